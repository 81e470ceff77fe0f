"""The phases of a recording: the start of the process with any warm-up, the work that counts, and the teardown.

A process does some things once: starting CUDA, loading kernels at their first launch, compiling them before it.
"""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.inputs.loops import is_without_framework
from advisor.inputs.names.calls import LAUNCHING, STEP, SYSTEM_WAIT
from advisor.inputs.names.kernels import kernel_name
from advisor.inputs.step_marks import WARM_UP
from advisor.model.intervals import Intervals, Ints, Mask
from advisor.model.profile import END_NS, HOST_OP_KINDS, in_order, matches, rows_where, spans
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import CODE_LOAD_NS, LONG_CALL_NS, PAGES_APART_NS, SET_UP_NS

ONCE: Final = ["start_up", "compile"]  # kinds of host ops that are done once: see `advisor.inputs.phases`
_KERNELS: Final = ["kernel", "collective"]
_FIRST_CALLS: Final = (  # once, at the beginning; what loads code before any kernel runs does so for the first one
    r"^cu(?:Init|ModuleGetLoadingMode|DevicePrimaryCtxRetain|CtxCreate|(?:Module|Library)Load)"
)
_NOTICEABLE: Final = 0.05  # of the time: less changes no number that a reader sees
_MOST_WORK: Final = 0.5  # of the kernels' time: what repeats is never the smaller part
_MOST_BEFORE: Final = 0.95  # of the recording, as in one-time-work: so long before the first kernel no later pass waits
COLD_RANGE: Final = "the program's only pass"
_PAUSE: Final = 0.5  # of the recording, as in host-alone, which tells it
_ONLY: Final = 0.1  # own choice: of the longest pause; a longer one may be how the program is
_OFTEN: Final = 10  # own choice: launches of a kernel; fewer may be one pass, of which the pause is a part
_MOST_IDLE: Final = 0.5  # own choice: of the idle time, from which first uses are what it is made of
_WARM: Final = 2 / 3  # own choice: of the launches; a loop has as many after its first pass


class Work(NamedTuple):
    """When the work of a recording without steps begins and ends, in ns; None where its first or last event does.

    A start is known only where the recording holds the start of the process: what comes before it is start-up then.
    """

    start_ns: int | None
    end_ns: int | None

    def on(self, workers: pl.DataFrame) -> pl.DataFrame:
        """The table of workers with these times."""
        times = {"work_start_ns": self.start_ns, "work_end_ns": self.end_ns}
        return workers.with_columns(pl.lit(ns, pl.Int64).alias(name) for name, ns in times.items())


def work(host: pl.DataFrame, device: pl.DataFrame, os_calls: pl.DataFrame | None = None) -> Work:
    """From the first kernel after start-up, warm-up, loading of kernels and compilation to the device's last op.

    Copies before it load weights and inputs; in a program without a framework those right before count. Frees and files
    after the work are teardown, and so are pages of managed memory that move later than results do. What is done once
    ends before the work as long as at least half of the kernels' time follows, as does a sleep, or a wait for a key or
    a child process; the rest is in the work. So it is with all that a pause sets apart.
    """
    recorded = rows_where(device, pl.col("dur_ns") > 0)  # an op that takes no time is in no interval
    device = _beside_pause(host, recorded) if is_without_framework(host, recorded) else recorded
    kernels = in_order(rows_where(device, pl.col("kind").is_in(_KERNELS)), "start_ns")
    if not kernels.height:
        return Work(None, None)
    is_migration = (pl.col("source_memory") == "managed").fill_null(value=False)
    first_ns, end_ns = int(kernels["start_ns"][0]), int(device.filter(~is_migration).select(END_NS.max()).item())
    done = [host.filter(pl.col("kind").is_in(ONCE))]
    if os_calls is not None:
        callers = host.filter(pl.col("kind").is_in(DRIVER_CALLS))["thread"].implode()
        done.append(os_calls.filter(matches(SYSTEM_WAIT), pl.col("thread").is_in(callers)))
    once_ns = max(_once_ns(rows.sort(END_NS), device, kernels) for rows in done)
    after = kernels.filter(pl.col("start_ns") >= max(once_ns, _warm_ns(host, device, first_ns)))
    begins_ns = int(after["start_ns"][0]) if after.height else first_ns
    together = spans(device).bridged(PAGES_APART_NS)
    if begins_ns == first_ns and is_without_framework(host, device):
        begins_ns = int(together.starts[np.searchsorted(together.starts, begins_ns, "right") - 1])
        begins_ns = max(once_ns or begins_ns, begins_ns)
    end_ns = int(together.ends[np.searchsorted(together.ends, end_ns)])
    before = host.filter(pl.col("start_ns") < begins_ns)["name"].unique().cast(pl.String)
    recorded_ns = int(pl.concat([host["start_ns"], device["start_ns"]]).to_numpy().min())
    is_mostly_before = begins_ns - recorded_ns > _MOST_BEFORE * (end_ns - recorded_ns)
    is_apart = bool(device.height and device["start_ns"].min() != recorded["start_ns"].min())
    is_from_start = once_ns > 0 or is_apart or before.str.contains(_FIRST_CALLS).any() or is_mostly_before
    return Work(begins_ns if is_from_start else None, end_ns)


def _beside_pause(host: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """The device's ops on that side of the only pause that holds most of the kernels' time, and some kernel often.

    The pause is half of the recording or more, neither the host calls the driver in it nor the device works, and no
    other is a tenth as long.
    """
    every = pl.concat([table.select("start_ns", end=END_NS) for table in (host.filter(pl.col("dur_ns") > 0), device)])
    used = spans(host.filter(pl.col("kind").is_in(DRIVER_CALLS))) | spans(device)
    pauses = used.starts[1:] - used.ends[:-1]
    *_, second, longest = np.sort(np.append([0, 0], pauses))
    recorded_ns = every.select(pl.max("end") - pl.min("start_ns")).item()
    if not device.height or longest < _PAUSE * recorded_ns or second > _ONLY * longest:
        return device
    is_after = pl.col("start_ns") >= int(used.starts[1 + np.argmax(pauses)])
    sides = [device.filter(side) for side in (is_after, ~is_after)]
    kernels = [side.filter(pl.col("kind").is_in(_KERNELS)) for side in sides]
    most = int(np.argmax([of["dur_ns"].to_numpy().sum() for of in kernels]))
    return sides[most] if (kernels[most].select(pl.len().over("name").max()).item() or 0) >= _OFTEN else device


def with_only_pass(host: pl.DataFrame, device: pl.DataFrame, extent: Work) -> pl.DataFrame:
    """Host ops with a range of kind `start_up` around the work of a process that goes through its program once.

    Then no time of the host is that of a later pass. It is so where the recording holds the process's start, what is
    done once is half of the device's idle time, and kernels are loaded to the end: two thirds of the launches lie
    nowhere between two loads. Where it is all idle time of the work but little, none is left to judge.
    """
    if extent.start_ns is None or extent.end_ns is None:
        return host
    kernels = device.filter(pl.col("kind").is_in(_KERNELS)).sort("start_ns")
    start_ns, end_ns = extent.start_ns, extent.end_ns
    recorded_ns = int(pl.concat([host["start_ns"], device["start_ns"]]).to_numpy().min())
    idle = Intervals.of([recorded_ns], [end_ns]) - spans(device)
    once = spans(host.filter(pl.col("kind").is_in(ONCE))) | Intervals.of([recorded_ns], [start_ns])
    # The most kernels between two for which the device idled as long as a load takes, of all of them.
    idle_ns = pl.col("start_ns") - END_NS.cum_max().shift(1)
    loaded = device.sort("start_ns").filter(idle_ns >= CODE_LOAD_NS)["start_ns"]
    firsts = kernels.unique("name", keep="first").filter(pl.col("start_ns").is_in(loaded.implode()))
    at: Ints = np.searchsorted(kernels["start_ns"].to_numpy(), np.sort(firsts["start_ns"].to_numpy()))
    rest, is_warm = (idle - once).total, float(np.diff([0, *at, kernels.height]).max() / kernels.height) >= _WARM
    if is_warm or rest < _NOTICEABLE * (end_ns - start_ns) or rest > _MOST_IDLE * idle.total:
        return host
    row = {"id": host.height, "kind": "start_up", "name": COLD_RANGE, "start_ns": start_ns, "dur_ns": end_ns - start_ns}
    schema = {name: host.schema[name] for name in row}
    return pl.concat([host, pl.DataFrame([row], schema_overrides=schema)], how="diagonal")


def _once_ns(once: pl.DataFrame, device: pl.DataFrame, kernels: pl.DataFrame) -> int:
    """When what is done once ends before most of the work: the rest of it idles the device for little of the time left.

    0 where it does so from the first of it, or of the device's work, on.
    """
    ends = once.select(END_NS).to_series().to_numpy()
    total = np.append(0, np.cumsum(kernels["dur_ns"].to_numpy()))
    done = total[np.searchsorted(kernels["start_ns"].to_numpy(), ends)]
    is_before = done <= _MOST_WORK * total[-1]
    if not is_before.any():
        return 0
    idle = spans(once.filter(pl.Series(is_before))) - spans(device)
    first_ns = int(pl.concat([once["start_ns"], device["start_ns"]]).to_numpy().min())
    end_ns = int(device.select(END_NS.max()).item())
    cuts = np.append(first_ns, ends[is_before])
    is_rest_little = idle.total - idle.before(cuts) < _NOTICEABLE * (end_ns - cuts)
    return int(cuts[np.argmax(is_rest_little)]) if is_rest_little.any() and not is_rest_little[0] else 0


def _warm_ns(host: pl.DataFrame, device: pl.DataFrame, first_ns: int) -> int:
    """When the work of a warm-up is over: one stretch of ranges of that name, in which the first kernel is launched."""
    warm = spans(host.filter(pl.col("kind") == "annotation", matches(WARM_UP)))
    if len(warm.starts) != 1 or first_ns < warm.starts[0]:
        return first_ns
    start, end = int(warm.starts[0]), int(warm.ends[0])
    calls = host.select(launch="id", called_ns="start_ns")
    launched = device.join(calls, on="launch").filter(pl.col("called_ns").is_between(start, end))
    if not launched.height or int(launched["start_ns"].to_numpy().min()) > first_ns:
        return first_ns
    return max(end, int(launched.select(END_NS.max()).item()))


STARTING: Final = "start of {} in {}"
LOADING: Final = "loading of a kernel in "
_IDLE: Final = 0.9  # of a call: the device does nothing that it could wait for
_MOST_CALLS: Final = 2  # half as long as this one: what comes more often is how the program is
_WAITING: Final = r"(?i)memcpy|synchronize|query|wait"  # for the device, which may work unrecorded
_PINNING: Final = r"(?i)HostAlloc|AllocHost|MallocHost|HostRegister"  # takes milliseconds: programs keep what they pin
_COMPILES_NS: Final = 10_000_000  # no compiler of kernels is quicker
_TRIES: Final = 3  # own choice: forms of a kernel that an autotuner makes
_AGAIN: Final = 0.5  # of the wait before the first launch: if it comes again, it is no compilation
_INIT: Final = r"^(?:cu|hip)Init$"  # each library with a runtime within calls it, and then sets that up
_MODULE_LAUNCH: Final = r"^(?:cu|hip)(?:Ext)?(?:Module)?LaunchKernel|^cuLaunchKernelEx"
_MODULE_LOAD: Final = r"^(?:cu|hip)(?:Module|Library)LoadData"


def with_one_time_work(host: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """Host ops with a range around all that is done once: `start_up` of the driver's calls, `compile` of kernels."""
    if not device.height:
        return host
    rows = pl.concat([_start_ups(host, device), _compilations(host, device)], how="diagonal_relaxed")
    numbered = rows.with_columns(id=pl.int_range(host.height, host.height + pl.len(), dtype=pl.Int64))
    return pl.concat([host, numbered], how="diagonal_relaxed") if rows.height else host


def _start_ups(host: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """Ranges of kind `start_up`: calls in which CUDA or HIP sets itself up or loads a kernel, while the device idles.

    That is each long call before the device's first op. Later, it is the first launch of a kernel that keeps the device
    idle for 1 ms, or the op right around it that takes as long, and a call of 100 ms or more (10 ms if it pins memory)
    that no more than one other of its name comes near, or of 10 ms so soon after `cuInit`.
    """
    loading = pl.col("id").is_in(_first_launches(host, device).implode())
    is_call = pl.col("kind").is_in(DRIVER_CALLS) & ~matches(_WAITING).fill_null(value=False)
    calls = host.with_columns(loads=loading).filter(is_call | pl.col("loads"), pl.col("dur_ns") >= CODE_LOAD_NS)
    start = calls["start_ns"].to_numpy()
    idle_ns = calls["dur_ns"].to_numpy() - spans(device).within(start, start + calls["dur_ns"].to_numpy())
    is_long = (pl.col("dur_ns") >= SET_UP_NS) | (pl.col("kind") == "allocator")  # taking memory takes microseconds
    before = (pl.col("start_ns") < device["start_ns"].min()) & is_long
    is_near = pl.col("dur_ns").rank("ordinal", descending=True).over("name") <= _MOST_CALLS
    third = pl.col("dur_ns").sort(descending=True).slice(_MOST_CALLS, 1).max().over("name").fill_null(0)
    least_ns = pl.when(matches(_PINNING).fill_null(value=False)).then(SET_UP_NS).otherwise(LONG_CALL_NS)
    is_amid = pl.col("start_ns") < device["start_ns"].max()  # what comes after all work ends the process
    rare = is_near & is_amid & (pl.col("dur_ns") >= least_ns) & (2 * third < pl.col("dur_ns"))
    dry_ns = pl.when(pl.col("loads") & is_call).then(CODE_LOAD_NS)  # a launch waits for work before it, not after that
    idles = pl.Series(idle_ns) >= pl.min_horizontal(dry_ns, _IDLE * pl.col("dur_ns"))
    begun = host.filter(matches(_INIT))["start_ns"].to_numpy()
    sets_up = pl.Series(Intervals.of(begun, begun + SET_UP_NS).covers(start)) & (pl.col("dur_ns") >= SET_UP_NS)
    of = pl.col("name").cast(pl.String)
    starting = pl.format(STARTING, pl.when(of.str.starts_with("hip")).then(pl.lit("HIP")).otherwise(pl.lit("CUDA")), of)
    title = pl.when("loads").then(pl.lit(LOADING) + of).otherwise(starting)
    kind, name = pl.lit("start_up", HOST_OP_KINDS), title.cast(host.schema["name"])
    return calls.filter(idles & (before | rare | sets_up | pl.col("loads"))).select(
        "thread", "start_ns", "dur_ns", kind=kind, name=name
    )


def _first_launches(host: pl.DataFrame, device: pl.DataFrame) -> pl.Series:
    """Host rows that launch a kernel for the first time: calls, and the innermost framework ops right around them."""
    steps = host.filter(pl.col("kind") == "step")["name"].cast(pl.String).str.extract(STEP).cast(pl.Int64, strict=False)
    if steps.min() not in {None, 0}:
        return steps.clear()  # a profiler's schedule began the recording in a later step
    firsts = device.sort("start_ns").unique("name", keep="first")["launch"].drop_nulls()
    may_load = matches(LAUNCHING).fill_null(value=False) | (pl.col("kind") == "op")
    calls = host.filter(may_load, pl.col("id").is_in(firsts.implode()))
    outer = host.filter(pl.col("kind") == "op")["parent"].drop_nulls()
    around = host.filter(pl.col("kind") == "op", pl.col("id").is_in(calls["parent"].implode()))["id"]
    return pl.concat([calls["id"], around.filter(~around.is_in(outer.implode()))])


def _compilations(host: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """Ranges of kind `compile`: the silence before the first launch of a kernel of a module that is made meanwhile.

    Code that is compiled at run time is launched through the driver. The device idles for 10 ms or more until the
    kernel's thread loads a module, or before its first launch, in the same op; and never half as long before the same
    kernel without a load. So it is before later launches of an autotuner: three loads or more, and no call that takes a
    tenth of the time, as those that create a decoder do. Before its first op a device idles from the first call on.
    """
    first = host.filter(pl.col("kind").is_in(DRIVER_CALLS))["start_ns"].min()
    # Kernels with the idle time of their device before them: name, launch, start_ns, idle_ns.
    end = END_NS.cum_max().shift(1).over("device").fill_null(pl.lit(first, pl.Int64))
    ordered = device.sort("start_ns").with_columns(idle_ns=(pl.col("start_ns") - end).clip(0).fill_null(0))
    kernels = ordered.filter(pl.col("kind") == "kernel").select("name", "launch", "start_ns", "idle_ns")
    modules = host.filter(matches(_MODULE_LAUNCH)).select(launch="id", at="start_ns", call_thread="thread")
    waits = kernels.sort("start_ns").with_columns(is_first=pl.int_range(pl.len()).over("name") == 0)
    rows = waits.filter(pl.col("idle_ns") >= _COMPILES_NS).join(modules, on="launch", how="left").with_row_index()
    # Whether the thread of each launch loaded a module from memory since the device ran dry.
    loads = host.filter(matches(_MODULE_LOAD)).select(call_thread="thread", loaded="start_ns")
    loaded = pl.col("loaded").is_between(pl.col("start_ns") - pl.col("idle_ns"), pl.col("at"), closed="left")
    since = rows.join(loads, on="call_thread").filter(loaded)["index"]
    rows = rows.with_columns(loads=pl.col("index").is_in(since.implode()))
    calls = spans(host.filter(pl.col("kind").is_in(DRIVER_CALLS)))
    called_ns = calls.within((rows["start_ns"] - rows["idle_ns"]).to_numpy(), rows["start_ns"].to_numpy())
    is_tuned = (pl.Series(called_ns) < (1 - _IDLE) * pl.col("idle_ns")) & (pl.sum("loads").over("name") >= _TRIES)
    rows = rows.with_columns(loads=pl.col("loads") & (pl.col("is_first") | is_tuned))
    again = pl.col("idle_ns").filter(~pl.col("loads") & ~pl.col("is_first")).max().over("name").fill_null(0)
    rows = rows.filter(pl.col("loads") | pl.col("is_first"), again < _AGAIN * pl.col("idle_ns")).drop_nulls("at")
    around = rows.filter(pl.col("loads") | pl.Series(_runs_since(rows, host), dtype=pl.Boolean))
    called = pl.col("name").cast(pl.String).map_elements(kernel_name, return_dtype=pl.String).str.head(60)
    return around.select(
        thread="call_thread",
        kind=pl.lit("compile", HOST_OP_KINDS),
        name=pl.format("compilation of {}", called).cast(host.schema["name"]),
        start_ns=(dry_ns := pl.col("start_ns") - pl.col("idle_ns")),
        dur_ns=pl.col("at") - dry_ns,
    ).filter(pl.col("dur_ns") > 0)


def _runs_since(rows: pl.DataFrame, host: pl.DataFrame) -> Mask:
    """Whether a framework op around each launch was open already when the device ran dry; shape (rows,)."""
    parent, start = host["parent"].fill_null(-1).to_numpy(), host["start_ns"].to_numpy()
    is_op = (host["kind"] == "op").to_numpy()
    dry = (rows["start_ns"] - rows["idle_ns"]).to_numpy()
    at, open_since = rows["launch"].to_numpy().copy(), np.zeros(rows.height, bool)
    while len(climbing := np.flatnonzero(at >= 0)):
        at[climbing] = parent[at[climbing]]
        inside = climbing[at[climbing] >= 0]
        open_since[inside] |= is_op[at[inside]] & (start[at[inside]] <= dry[inside])
    return open_since
