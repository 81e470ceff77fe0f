"""The phases of a recording: the start of the process with any warm-up, the work that counts, and the teardown."""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.inputs.loops import is_without_framework
from advisor.inputs.step_marks import WARM_UP
from advisor.model.intervals import Intervals, Ints
from advisor.model.profile import END_NS, matches, spans
from advisor.vocabulary.limits import CODE_LOAD_NS, PAGES_APART_NS

ONCE: Final = ["start_up", "compile"]
"""Kinds of host ops that are done once: see `advisor.inputs.one_time_work`."""
_KERNELS: Final = ["kernel", "collective"]
_FIRST_CALLS: Final = (  # once, at the beginning; what loads code before any kernel runs does so for the first one
    r"^cu(?:Init|ModuleGetLoadingMode|DevicePrimaryCtxRetain|CtxCreate|(?:Module|Library)Load)"
)
_NOTICEABLE: Final = 0.05  # of the time: less changes no number that a reader sees
_MOST_WORK: Final = 0.5  # of the kernels' time: what repeats is never the smaller part
_MOST_BEFORE: Final = 0.95  # of the recording, as in one-time-work: so long before the first kernel no later pass waits
COLD_RANGE: Final = "the program's only pass"
_MOST_IDLE: Final = 0.5  # own choice: of the idle time, from which first uses are what it is made of
_WARM: Final = 2 / 3  # own choice: of the launches; a loop has as many after its first pass


class Work(NamedTuple):
    """When the work of a recording without steps begins and ends, in ns; None where its first or last event does.

    A start is known only where the recording holds the start of the process: what comes before it is start-up then, and
    not work that began before the recording.
    """

    start_ns: int | None
    end_ns: int | None

    def on(self, workers: pl.DataFrame) -> pl.DataFrame:
        """The table of workers with these times."""
        times = {"work_start_ns": self.start_ns, "work_end_ns": self.end_ns}
        return workers.with_columns(pl.lit(ns, pl.Int64).alias(name) for name, ns in times.items())


def work(host: pl.DataFrame, device: pl.DataFrame) -> Work:
    """From the first kernel after start-up, warm-up, loading of kernels and compilation to the device's last op.

    Copies before it load weights and inputs; a program without a framework copies in what the kernels right after them
    need, and that counts. Frees and files after the work are teardown, and so are pages of managed memory that move
    later than results do, which the host reads at once. What is done once ends before the work as long as at least half
    of the kernels' time follows; the rest of it is in the work.
    """
    device = device.filter(pl.col("dur_ns") > 0)  # an op that takes no time is in no interval
    kernels = device.filter(pl.col("kind").is_in(_KERNELS)).sort("start_ns")
    if not kernels.height:
        return Work(None, None)
    is_migration = (pl.col("source_memory") == "managed").fill_null(value=False)
    first_ns, end_ns = int(kernels["start_ns"][0]), int(device.filter(~is_migration).select(END_NS.max()).item())
    once_ns = _once_ns(host, device, kernels)
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
    is_from_start = once_ns > 0 or before.str.contains(_FIRST_CALLS).any() or is_mostly_before
    return Work(begins_ns if is_from_start else None, end_ns)


def with_only_pass(host: pl.DataFrame, device: pl.DataFrame, extent: Work) -> pl.DataFrame:
    """Host ops with a range of kind `start_up` around the work of a process that goes through its program once.

    Then no time of the host is that of a later pass: an op is slow at its first call in more ways than a profiler
    names. It is so where the recording holds the process's start, what is done once is half of the device's idle time,
    and kernels are loaded to the end: two thirds of the launches lie nowhere between two loads.
    """
    if extent.start_ns is None or extent.end_ns is None:
        return host
    kernels = device.filter(pl.col("kind").is_in(_KERNELS)).sort("start_ns")
    start_ns, end_ns = extent.start_ns, extent.end_ns
    recorded_ns = int(pl.concat([host["start_ns"], device["start_ns"]]).to_numpy().min())
    idle = Intervals.of([recorded_ns], [end_ns]) - spans(device)
    once = spans(host.filter(pl.col("kind").is_in(ONCE))) | Intervals.of([recorded_ns], [start_ns])
    if (once & idle).total < _MOST_IDLE * idle.total or _longest_warm(device, kernels) >= _WARM:
        return host
    row = {"id": host.height, "kind": "start_up", "name": COLD_RANGE, "start_ns": start_ns, "dur_ns": end_ns - start_ns}
    schema = {name: host.schema[name] for name in row}
    return pl.concat([host, pl.DataFrame([row], schema_overrides=schema)], how="diagonal")


def _longest_warm(device: pl.DataFrame, kernels: pl.DataFrame) -> float:
    """The most kernels between two for which the device idled as long as a load takes, of all of them."""
    idle_ns = pl.col("start_ns") - END_NS.cum_max().shift(1)
    loaded = device.sort("start_ns").filter(idle_ns >= CODE_LOAD_NS)["start_ns"]
    firsts = kernels.unique("name", keep="first").filter(pl.col("start_ns").is_in(loaded.implode()))
    at: Ints = np.searchsorted(kernels["start_ns"].to_numpy(), np.sort(firsts["start_ns"].to_numpy()))
    return float(np.diff([0, *at, kernels.height]).max() / kernels.height)


def _once_ns(host: pl.DataFrame, device: pl.DataFrame, kernels: pl.DataFrame) -> int:
    """When what is done once ends before most of the work: the rest of it idles the device for little of the time left.

    0 where it does so from the first of it, or of the device's work, on: what precedes both is no work.
    """
    once = host.filter(pl.col("kind").is_in(ONCE)).sort(END_NS)
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
