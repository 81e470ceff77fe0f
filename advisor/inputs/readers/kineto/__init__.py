"""Reads PyTorch Profiler (Kineto) traces: Chrome-trace JSON, gzipped or not, of CUDA, ROCm and CPU runs.

Exports of the autograd profiler, which came before it, are read too: see `autograd`.

Host ranges leave to be told whether their times are in microseconds, whose they are, and what is read. Other writers
have used other units; tools that merge recordings put several processes into one file; and functions of Python that
read files in each step are the input of a job without a data loader.
"""

import gc
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, Any, Final

import msgspec
import numpy as np
import polars as pl

from advisor.errors import NothingRecorded, ReadError
from advisor.inputs import phases
from advisor.inputs.chrome_json.source import Source
from advisor.inputs.chrome_json.trace import Trace
from advisor.inputs.clocks import align, sound
from advisor.inputs.links import innermost, nested, require_ranges, steps, with_launches, with_parents, without_waits
from advisor.inputs.names.calls import FILE_READ, LAUNCHING, OPTIMIZER_STEP
from advisor.inputs.names.kernels import DTYPE_BYTES, collective_op, family
from advisor.inputs.readers import PLAIN, Reading, lacks
from advisor.inputs.readers.kineto import fields
from advisor.inputs.readers.kineto.columns import FETCH, NEXT_DATA, Columns, copy_kind, copy_memory
from advisor.inputs.readers.kineto.fields import KINETO, Device, Distributed, Event, Header, is_on, options, software
from advisor.inputs.recorder_block import busy_machine, noted
from advisor.inputs.step_marks import marks
from advisor.inputs.step_periods import PRODUCTS, notes, with_handovers, with_requests
from advisor.model.clause import Clause, Missing, Note
from advisor.model.intervals import begun
from advisor.model.profile import DEVICE_OP_KINDS, END_NS, HOST_OP_KINDS, Profile, fitting, join, matches, rows_where
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import MOST_RANKS

FORMAT: Final = "kineto"
# What a copy without secrets has of a trace
COPIED: Final = KINETO, [of.encode_name for of in msgspec.structs.fields(fields.Args)]
_MOST_BLOCKS: Final = 2**63  # of a grid: 2^31 - 1 by 65,535 by 65,535 is less
_DESCRIBED: Final = {name: pl.String if name == "name" else pl.Int64 for name in Device.__struct_fields__}
_WHY_ABSENT: Final = lacks(FORMAT)
_RECORD: Final = (
    "a schedule without `repeat=1` ends with such a file; else, torch.profiler records the thread that starts it: "
    "start it in the thread that does the work, or give it "
    "experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True)"
)
_EXAMPLES: Final = 3
_UNIT: Final = "`ts` and `dur` of a Chrome trace are numbers of microseconds, not of nanoseconds"
_RECORDER: Final = r"(?:^|[/\\])(?:advisor_inside|advisor[/\\]recording[/\\]inside)[/\\]"


def read(stream: IO[bytes], name: str, how: Reading = PLAIN) -> Profile:
    """The profile of one worker, or of all ranks in a merged file. `how.step_range` replaces `ProfilerStep#N`.

    A ReadError where nothing of it can be read; NothingRecorded where it has no activity.
    """
    trace, columns = Trace(name, KINETO, how.max_bytes), Columns()
    parallel = None
    if how.processes > 1:
        from advisor.inputs.chrome_json.parallel import Parallel  # noqa: PLC0415 - few files are worth a second process

        parallel = Parallel(_decoded, columns.extend, how.processes)
    with _without_collector():
        for events in trace.chunks(Source(stream, on_read=how.on_read), parallel):
            columns.add(events)
    if columns.untimed:
        trace.salvaged.append(Note("untimed_events", events=columns.untimed))
    profile = join([_profile(trace, of_rank, name, how, rank) for rank, of_rank in columns.by_rank().items()])
    if not ((profile.host_ops["kind"] != "step").any() or profile.device_ops.height):
        if columns.untimed:
            raise ReadError(f"no event has a valid start and length: {_UNIT}", name)
        if columns.foreign:
            which = ", ".join(sorted(columns.foreign)[:_EXAMPLES])
            other = f"a Chrome trace of another tool ({which}): PyTorch's profiler wrote none of it"
            raise ReadError(f"{other}; record the job with `advisor record -- COMMAND`", name)
        raise NothingRecorded(f"no host or device activity in it; {_RECORD}", name)
    return profile


def _decoded(text: bytes) -> tuple[int, Columns] | None:
    """The events of a list, and how many they are; None where they are broken, or no events."""
    try:
        events = KINETO.events.decode(text)
    except (ValueError, RecursionError):
        return None
    columns = Columns()
    columns.add(events)
    return len(events), columns


@contextmanager
def _without_collector() -> Iterator[None]:
    """Millions of short-lived events would make the garbage collector scan them over and over."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _profile(trace: Trace[Event, Header], columns: Columns, name: str, how: Reading, rank: int | None) -> Profile:
    header = trace.header
    info = _distributed(trace) if rank is None else Distributed(rank)
    worker = how.worker if info.rank is None else info.rank
    base_ns = header.baseTimeNanoseconds or 0
    cut: list[Note] = []
    of_hook = ((pl.col("kind") == "python") & matches(_RECORDER)).fill_null(value=False)
    host = fitting(rows_where(columns.host, ~of_hook).with_columns(pl.col("start_ns") + base_ns), cut)
    device_ops = sound(fitting(_device(columns, base_ns), cut), name, cut)
    of_others = outsiders(host, device_ops)
    host = rows_where(host, ~pl.col("pid").is_in(of_others.implode()).fill_null(value=False))
    pid = next(iter(host["pid"].drop_nulls()), None)
    host = _with_loader_frames(with_parents(nested(host.drop("pid"), name, cut)))
    if how.step_range is not None:
        require_ranges(host, how.step_range)
    host = without_waits(host, linked := with_launches(device_ops, host))
    aligned = align(_with_collectives(linked, host), host)
    host = phases.with_one_time_work(host, aligned.device)
    chosen = marks(host, aligned.device, how.step_range)
    step_rows, device = steps(host, aligned.device, chosen.steps, cut_off=trace.cut_off)
    extent = phases.work(host, device)
    host = host if step_rows.height else phases.with_only_pass(host, device, extent)
    facts = noted(header.advisor)
    kineto = f"Kineto schema {header.schemaVersion}" if header.schemaVersion else "Kineto"
    producer = pl.lit("autograd profiler" if columns.is_of_autograd else kineto)
    waits = with_handovers(host, device, step_rows, facts.get("stacks", ()))
    # Allocations; one device's, under another number (see `_seen`), are those of the one device that ran ops.
    rows = columns.memory.with_columns(
        pl.col("at_ns") + base_ns, device=pl.when(pl.col("device_type") != 0).then("device")
    )
    ran, owners = device["device"].unique().to_list(), rows["device"].drop_nulls().unique().to_list()
    same = len(ran) == len(owners) == 1
    tables = {
        "workers": extent.on(_workers(header, info, pid, name, worker, facts).with_columns(producer=producer)),
        "devices": _devices(header, device),
        "steps": step_rows,
        "device_ops": aligned.unlinked(device),
        "host_ops": with_requests(with_file_reads(waits, step_rows), device, step_rows),
        "collectives": _collectives(device, host),
        "allocations": rows.with_columns(pl.col("device").replace(owners[0], ran[0])) if same else rows,
    }
    caveat = {"cut_off": 1} if trace.cut_off else {}
    is_known = device.height or columns.is_of_autograd
    launches = 0 if is_known else host.select(matches(LAUNCHING).sum()).item() or 0
    unrecorded = Missing("kernels_not_recorded", launches=launches, **caveat) if launches else None
    cause = None if trace.salvaged else unrecorded  # damage explains it where there is any
    elsewhere = Note("other_processes", processes=len(of_others)) if len(of_others) else None
    maybe: list[Clause | None] = [elsewhere, chosen.how, cause, checked(host, name), busy_machine(facts)]
    maybe += notes(chosen.steps, step_rows)
    maybe += [Missing("ops_timed")] if columns.is_of_autograd and device.height else []
    salvaged = [*trace.salvaged, *cut, *aligned.notes, *filter(None, maybe)]
    profile = Profile.of(tables, format=FORMAT, salvaged=salvaged).numbered(worker)
    lacks = _lacks(profile, caveat, on={option for option in _RECORDS if is_on(header, option)})
    why = {"device_ops": unrecorded, **aligned.lacks}
    if device.height and not host.height and (device["kind"] == "collective").all():
        why |= dict.fromkeys(("host_ops", *_TIMED_BY_OPS), Missing("only_collectives"))
    if columns.is_of_autograd:
        lacks = dict.fromkeys(lacks, Missing("autograd_export"))
        why |= dict.fromkeys(_TIMED_BY_OPS if device.height else (), Missing("ops_timed"))
    return replace(profile, lacks=lacks | {need: reason for need, reason in why.items() if reason})


def _with_loader_frames(host: pl.DataFrame) -> pl.DataFrame:
    """With the DataLoader's functions as requests for a batch, where none of its ranges was recorded.

    Annotations can be left out of a recording that has Python's stacks. The main process itself fetches, or waits for
    its workers where it asks for a batch and fetches nothing meanwhile.
    """
    if (host["kind"] == "input").any():
        return host
    frames = host.filter(pl.col("kind") == "python")
    fetches, asks = (frames.filter(matches(names)) for names in (FETCH, NEXT_DATA))
    if not asks.height:
        return host
    fetching = innermost(host, fetches["id"], host["id"].is_in(asks["id"].implode()))
    loads = pl.concat([fetches, asks.filter(~pl.col("id").is_in(fetching.implode()))])["id"]
    is_load = pl.col("id").is_in(loads.implode())
    return host.with_columns(kind=pl.when(is_load).then(pl.lit("input", HOST_OP_KINDS)).otherwise("kind"))


def _device(columns: Columns, base_ns: int) -> pl.DataFrame:
    device = columns.device
    names = device.select("name").unique().with_columns(text=pl.col("name").cast(pl.String))
    by_name = names.select(
        "name",
        copy_kind=copy_kind(pl.col("text")),
        source_memory=copy_memory(pl.col("text"), 1),
        target_memory=copy_memory(pl.col("text"), 2),
        communicates=family(names["text"]) == "collective",
        nameless=family(names["text"]) == "other",
    )
    communicates = (pl.col("kind") == "kernel") & pl.col("communicates")
    return device.join(by_name, on="name", how="left", maintain_order="left").with_columns(
        pl.col("start_ns") + base_ns,
        kind=pl.when(communicates).then(pl.lit("collective", DEVICE_OP_KINDS)).otherwise("kind"),
        occupancy=pl.col("occupancy_percent") / 100,
        blocks_per_sm=pl.when(pl.col("blocks_per_sm").is_between(0, _MOST_BLOCKS)).then("blocks_per_sm"),
    )


def _with_collectives(device: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """With kernels of unknown names as collectives where arguments or range say so, unless others have such a name."""
    if (device["kind"] == "collective").any():
        return device  # a check for NaN starts in that range too, and is none
    ranges = (host["name"].cast(pl.String) == "record_param_comms").gather(device["op"])
    tells = pl.col("nameless") & (pl.col("collective").is_not_null() | ranges.fill_null(value=False))
    kind = pl.when((pl.col("kind") == "kernel") & tells).then(pl.lit("collective", DEVICE_OP_KINDS)).otherwise("kind")
    return device.with_columns(kind=kind)


def _distributed(trace: Trace[Event, Header]) -> Distributed:
    """What the header tells of the job; numbers that no job has count as untold."""
    info = trace.header.distributedInfo or Distributed()
    size = info.world_size if 0 < (info.world_size or 0) < MOST_RANKS else None
    is_rank = info.rank is None or 0 <= info.rank < (size or MOST_RANKS)
    if not is_rank and info.rank is not None:
        trace.salvaged.append(Note("no_rank_of_job", rank=info.rank, **({"size": size} if size else {})))
    return Distributed(info.rank if is_rank else None, size, info.backend)


def _workers(  # noqa: PLR0913, PLR0917 - all that is known of it
    header: Header, info: Distributed, pid: int | None, name: str, worker: int, facts: Mapping[str, Any]
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "name": [re.split(r"[./]", name.rsplit("/", 1)[-1])[0] or f"worker{worker}"],
            "pid": [pid],
            "rank": [info.rank],
            "world_size": [info.world_size],
            "backend": [info.backend],
            "framework": ["pytorch"],
            "options": [options(header)],
            "file": [name],
            **{fact: [value] for fact, value in facts.items()},
            "software": [", ".join(filter(None, (facts.get("software"), software(header)))) or None],
        }
    )


def _devices(header: Header, ops: pl.DataFrame) -> pl.DataFrame:
    """The described devices, and a row for each that ran ops under another number (on ROCm), if all are alike."""
    described = [msgspec.structs.astuple(device) for device in header.deviceProperties]
    devices = pl.DataFrame(described, _DESCRIBED, orient="row").with_columns(
        name=pl.col("name").replace("", None), capability=pl.col("major") + pl.col("minor").fill_null(0) / 10
    )
    used = ops.select(device=pl.col("device").cast(pl.Int64)).unique().drop_nulls()
    undescribed = used.join(devices, on="device", how="anti")
    alike = devices.drop("device").unique()
    return pl.concat([devices, undescribed.join(alike, how="cross")]) if alike.height == 1 else devices


def _collectives(device: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Bytes by nccl-tests' convention: what all ranks hold together for a gather, what one rank sends otherwise."""
    kernels = device.filter(pl.col("kind") == "collective")
    # A backend opens `nccl:...` right around each call: that knows an all_to_all where the kernel says SendRecv.
    around = host["name"].gather(host["parent"].gather(kernels["launch"])).cast(pl.String)
    of_backend = pl.select(pl.when(around.str.contains(r"^\w*ccl:")).then(around)).to_series()
    op = pl.coalesce(*map(collective_op, (kernels["collective"], of_backend, kernels["name"])))
    elements = pl.when(pl.col("op").is_in(["all_gather", "gather"])).then("elements_out").otherwise("elements_in")
    size = pl.col("dtype").replace_strict(DTYPE_BYTES, default=None, return_dtype=pl.Int64)
    return kernels.with_columns(op=op).select(
        *("group", "group_size", "sequence", "op", "dtype", "description", "ranks"),
        device_op="id",
        peer=pl.when(pl.col("peer") >= 0).then("peer"),
        bytes=pl.when(pl.col("op") != "barrier").then(elements * size),
    )


def _lacks(profile: Profile, caveat: dict[str, int], *, on: Container[str]) -> dict[str, Missing]:
    """Why each absent table or column is absent, in terms of how the profile was recorded: what options were `on`."""
    has_calls = (profile.host_ops["kind"] == "python").any()
    needs = profile.empty(need for need in _WHY_ABSENT if not (need == "host_ops.stack" and has_calls))
    though_on = {
        need: Missing("none_though_on", option=option, what=what, **caveat)
        for option, (need, what) in _RECORDS.items()
        if option in on
    }
    return {need: though_on.get(need) or Missing(_WHY_ABSENT[need], **caveat) for need in needs}


# What is not known of a device where only the time from an op's first kernel to its last is, or only collectives
_TIMED_BY_OPS: Final = ("device_ops.name", "device_ops.start_ns", "device_ops.dur_ns")
_RECORDS: Final = {
    "record_shapes": ("host_ops.shapes", "shapes"),
    "with_stack": ("host_ops.stack", "stacks"),
    "profile_memory": ("allocations", "memory events"),
}
"""What an option of the profiler adds to the file."""


_FEWEST: Final = 100  # ops that show what is usual
_SHORTEST_NS: Final = 100  # that an op takes with its record: PyTorch's shortest ones take several times as long
_LONGEST_NS: Final = 100_000  # that the shortest hundredth of the ops takes: views and allocations take a microsecond
_MANY: Final = 1000
_HUNDREDTH: Final = 0.01
_DOES: Final = {"op": "work", "collective": "work", "step": "step"}
_LEAST_SHARE: Final = 0.05  # of the steps, from where on waiting for input is a finding
_FEWEST_STEPS: Final = 3


def checked(host: pl.DataFrame, name: str) -> Note | None:
    """A note where the times may be in nanoseconds; a ReadError where they are in milliseconds or seconds."""
    ops = host.lazy().filter(pl.col("kind") == "op").select("thread", "start_ns", "dur_ns").collect()
    if ops.height < _FEWEST:
        return None
    typical_ns = ops["dur_ns"].filter(ops["dur_ns"] > 0).quantile(0.5, "linear")  # old versions round to microseconds
    # The time from one op to the next on the thread that has most of them.
    threads = ops.group_by("thread").agg(ops=pl.len(), span=END_NS.max() - pl.col("start_ns").min())
    busiest = threads.sort("ops", "span").row(-1, named=True)
    if min(typical_ns or _SHORTEST_NS, busiest["span"] / busiest["ops"]) < _SHORTEST_NS:
        raise ReadError(
            f"the typical op takes under {_SHORTEST_NS} ns: the times are not in microseconds, as those of a Chrome "
            "trace are; multiply `ts` and `dur` by 1,000, or by 1,000,000",
            name,
        )
    shortest_ns = ops["dur_ns"].quantile(_HUNDREDTH) or 0.0
    return Note("long_ops", shortest=shortest_ns / 1e6) if ops.height >= _MANY and shortest_ns >= _LONGEST_NS else None


def outsiders(host: pl.DataFrame, device: pl.DataFrame) -> pl.Series:
    """Ids of the processes that are not the device's: they run ops or steps of their own, and launch nothing on it.

    Some writers give the calls, the steps or a few frames of one process another id, so that a process counts as
    another only where those that launch have all that it has: ops, steps or both. Empty where nothing is linked.
    """
    does = host.select("pid", "kind").unique().cast({"kind": pl.String})
    does = does.select("pid", does=pl.col("kind").replace_strict(_DOES, default=None)).drop_nulls().unique()
    if does["pid"].n_unique() <= 1:
        return does["pid"].clear()
    calls = host.filter(pl.col("kind").is_in(DRIVER_CALLS) & (pl.col("correlation") > 0))
    launching = pl.col("pid").is_in(calls.join(device, on="correlation", how="semi")["pid"].unique().implode())
    own = does.filter(launching)["does"].unique()
    rest = does.filter(~launching).group_by("pid").agg(pl.col("does").is_in(own.implode()).all())
    return rest.filter("does")["pid"].sort()


def with_file_reads(host: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """With calls that read files as kind `input`, where no request for a batch was recorded and every step reads.

    Only calls on the thread that bears the steps that a product follows in their step, and outside of modules and ops:
    what a model reads may be its weights. What only some steps read may be anything: a checkpoint, a table.
    """
    is_read = host.select((pl.col("kind") == "python") & matches(FILE_READ)).to_series()
    complete = steps.filter(pl.col("incomplete").is_null()).unique("host_start_ns").sort("host_start_ns")
    if not is_read.any() or complete.height < _FEWEST_STEPS or (host["kind"] == "input").any():
        return host
    bears_steps = (pl.col("kind") == "step") | matches(OPTIMIZER_STEP)
    reads = host.filter(is_read, pl.col("thread").is_in(host.filter(bears_steps)["thread"].implode()))
    holds = is_read | host.select(pl.col("kind").is_in(["module", "op"]) | matches(OPTIMIZER_STEP)).to_series()
    reads = reads.filter(innermost(host, reads["parent"], holds).is_null())
    products = host.filter(pl.col("kind") == "op", matches(PRODUCTS))["start_ns"]
    start, length = (complete[column].to_numpy() for column in ("host_start_ns", "host_dur_ns"))
    begins, took = (reads[column].to_numpy() for column in ("start_ns", "dur_ns"))
    at = np.searchsorted(start, begins, side="right") - 1
    ends = (start + length)[at]
    feeds = (at >= 0) & (begun(products, begins, ends) > 0)
    is_each = len(np.unique(at[feeds])) == complete.height
    if not is_each or took[feeds].sum() < _LEAST_SHARE * length.sum():
        return host
    is_load = pl.col("id").is_in(reads["id"].filter(pl.Series(feeds)).implode())
    return host.with_columns(kind=pl.when(is_load).then(pl.lit("input", HOST_OP_KINDS)).otherwise("kind"))
