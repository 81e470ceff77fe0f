"""Reads TensorFlow's timelines: the Chrome traces that `tensorflow.python.client.timeline` writes of a `session.run`.

A process of the trace is what one of TensorFlow's devices computed (`/job:.../device:GPU:0 Compute`), which its
executor starts on the host, or what ran on a GPU: the kernels of all its streams (`stream:all`), the copies (`memcpy`),
and both again by stream (`stream:13`). Every event has the name of a node of the graph and its type.

What the tables hold:

- `host_ops`: the nodes as `scope/name:Type`, the way XPlane has them; `input` are those that take a batch from an
  iterator or a queue, `compile` those in which XLA compiles. No threads are told: nodes that do not overlap share one.
- `device_ops.name` is the type of the node, as kernels' own names are not told; `framework_op` the node. `op` and
  `launch` are the node's last run before it: the executor launches a kernel while it runs the node. A copy between
  devices has no node of its own, and for `launch` the last run of any before it.
"""

import re
from dataclasses import replace
from heapq import heappop, heappush
from typing import IO, Annotated, Final, TypeAlias

import msgspec
import polars as pl

from advisor.errors import NothingRecorded, UsageError
from advisor.inputs.chrome_json.source import Source
from advisor.inputs.chrome_json.trace import Form, Trace
from advisor.inputs.clocks import near
from advisor.inputs.phases import with_one_time_work
from advisor.inputs.readers import PLAIN, Reading, lacks
from advisor.model.clause import ONE_RUN, Missing, Note
from advisor.model.profile import DEVICE_OP_KINDS, END_NS, HOST_OP_KINDS, TEXT, Profile, fitting

FORMAT: Final = "tf_timeline"
_WHY_ABSENT: Final = lacks(FORMAT)
_TASK: Final = r"/job:[^/]+/replica:\d+/task:\d+"
_GPU: Final = rf"(?i)^(?:{_TASK})?/(?:device:)?gpu:(\d{{1,9}})/(?:stream:(?:all|(\d{{1,18}}))|memcpy) Compute$"
_KINDS: Final = {"input": r"^(?:IteratorGetNext|QueueDequeue)", "compile": r"^_XlaCompile"}  # by type; else `op`

Microseconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 52)]  # the latest is in 2112


class Args(msgspec.Struct, gc=False):
    """A node and its type; of metadata, what a process is called."""

    name: str = ""
    op: str = ""


class Event(msgspec.Struct, gc=False):
    """One entry of `traceEvents`."""

    ph: str | None = None
    name: str | None = None
    pid: int | None = None
    ts: Microseconds = 0
    dur: Microseconds = 0
    args: Args | None = None


class Header(msgspec.Struct):
    """Nothing stands around the events."""


TIMELINE: Final = Form(Event, Header, what="a timeline of TensorFlow (no JSON)")
COPIED: Final = TIMELINE, Args.__struct_fields__  # what a copy without secrets has of one


def read(stream: IO[bytes], name: str, how: Reading = PLAIN) -> Profile:
    """The profile of one process.

    A ReadError where nothing of it can be read; NothingRecorded without any node or kernel; a UsageError of a
    `step_range`: nothing in it is a step.
    """
    if how.step_range is not None:
        raise UsageError(f"--step-range: {name} is a timeline of one run, without ranges or steps; leave it out")
    trace = Trace(name, TIMELINE, how.max_bytes)
    rows = near(fitting(_rows(trace, Source(stream, on_read=how.on_read)), trace.salvaged), trace.salvaged)
    of_tasks = rows.drop_nulls("task").partition_by("task", maintain_order=True)
    if len(of_tasks) > 1:
        trace.salvaged.append(Note("other_tasks", tasks=len(of_tasks) - 1))
    host = _host(max(of_tasks, key=len, default=rows.clear()))  # those of other processes have clocks of their own
    device = _device(rows.drop_nulls("device"), host)
    if not (host.height or device.height):
        raise NothingRecorded("no node ran in it; pass `RunOptions(trace_level=RunOptions.FULL_TRACE)`", name)
    ran = pl.concat(table.select("start_ns", end=END_NS) for table in (host, device))
    worker = ran.select(
        name=pl.lit(re.split(r"[./]", name.rsplit("/", 1)[-1])[0]),
        framework=pl.lit("tensorflow"),
        producer=pl.lit("TensorFlow's timeline"),
        file=pl.lit(name),
        recorded_start_ns=pl.min("start_ns"),
        recorded_end_ns=pl.max("end"),
    )
    # With requests for a batch as start-up, where CUDA starts later: the first also starts what makes batches.
    started_ns = pl.col("start_ns").filter(pl.col("kind") == "start_up").max()
    is_first = (pl.col("kind") == "input") & (pl.col("start_ns") <= started_ns).fill_null(value=False)
    host = with_one_time_work(host, device.with_columns(launch="op")).with_columns(
        kind=pl.when(is_first).then(pl.lit("start_up", HOST_OP_KINDS)).otherwise("kind")
    )
    tables = {"workers": worker, "device_ops": device, "host_ops": host}
    profile = Profile.of(tables, format=FORMAT, salvaged=(Note(ONE_RUN), *trace.salvaged)).numbered(how.worker)
    absent = [*profile.empty(_WHY_ABSENT), *(["device_ops.name"] if device.height else [])]
    return replace(profile, lacks={need: Missing(_WHY_ABSENT[need]) for need in absent})


def _rows(trace: Trace[Event, Header], source: Source) -> pl.DataFrame:
    """What ran, with the task whose executor ran it, or the GPU and its stream; copies stand under `memcpy` too."""
    schema = {"process": pl.Int64, "node": pl.String, "type": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64}
    numbers, titles, parts = dict[int | None, int](), dict[int | None, str](), [pl.DataFrame(schema=schema)]
    for chunk in trace.chunks(source):
        titled = (e for e in chunk if e.ph == "M" and e.name == "process_name" and e.args)
        titles |= {e.pid: e.args.name for e in titled if e.args and e.args.name.endswith(" Compute")}
        ran = ((numbers.setdefault(e.pid, len(numbers)), e, e.args) for e in chunk if e.ph == "X" and e.args)
        rows = [(number, args.name, args.op, e.ts, e.dur) for number, e, args in ran]
        parts.append(pl.DataFrame(rows, schema, orient="row"))
    title_of = pl.Series([titles.get(process, "") for process in numbers], dtype=pl.String)
    events = pl.concat(parts)
    title = pl.col("title").str
    return events.select(pl.exclude("process"), title=title_of.gather(events["process"])).with_columns(
        pl.col("start_ns", "dur_ns") * 1000,
        task=title.extract(rf"^({_TASK})/(?:device:)?\w+:\d+ Compute$"),
        device=title.extract(_GPU).cast(pl.Int32),
        stream=title.extract(_GPU, 2).cast(pl.Int64),
        kind=pl.when(title.contains("memcpy")).then(pl.lit("memcpy")).otherwise(pl.lit("kernel")).cast(DEVICE_OP_KINDS),
        framework_op=(pl.col("node") + ":" + pl.col("type")).cast(TEXT),
    )


def _host(rows: pl.DataFrame) -> pl.DataFrame:
    """The nodes that the executor ran, in order of time, each once, without `NoOp`, which does nothing."""
    rows = rows.unique(["framework_op", "start_ns", "dur_ns"], keep="first")
    rows = rows.filter(pl.col("type") != "NoOp").sort("start_ns", "dur_ns", "framework_op")
    kinds = (pl.when(pl.col("type").str.contains(types)).then(pl.lit(kind)) for kind, types in _KINDS.items())
    # The lowest number for each that none has which is still running.
    running, free, threads = list[tuple[int, int]](), list[int](), list[int]()
    for start_ns, dur_ns in rows.select("start_ns", "dur_ns").iter_rows():
        while running and running[0][0] <= start_ns:
            heappush(free, heappop(running)[1])
        threads.append(heappop(free) if free else len(running))
        heappush(running, (start_ns + dur_ns, threads[-1]))
    return rows.select(
        "node", "start_ns", "dur_ns", name="framework_op", thread=pl.Series(threads, dtype=pl.Int64)
    ).with_columns(
        id=pl.int_range(pl.len(), dtype=pl.Int64),
        kind=rows.select(pl.coalesce(*kinds, pl.lit("op")).cast(HOST_OP_KINDS)).to_series(),
        parent=pl.lit(None, pl.Int64),
    )


def _device(rows: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """What ran on GPUs, each once: it stands under its stream, and under all streams or the copies.

    `op` is the node's last run before it, and `launch` that, or of a copy between devices any node's.
    """
    once = rows.group_by("device", "start_ns", "dur_ns", "node", "type", "framework_op", maintain_order=True)
    device = (
        once.agg(pl.max("stream"), pl.max("kind"))
        .sort("start_ns", "device", maintain_order=True)
        .with_columns(
            id=pl.int_range(pl.len(), dtype=pl.Int64),
            name=pl.col("type").cast(TEXT),
            copy_kind=pl.col("type").str.extract(r"(?i)^MEMCPY([HDPA]to[HDPA])").cast(TEXT),
        )
    )
    runs = host.select("start_ns", "node", op="id", before="id")
    device = device.join_asof(runs.drop("before"), on="start_ns", by="node", check_sortedness=False)
    device = device.join_asof(runs.select("start_ns", "before"), on="start_ns")
    return device.with_columns(launch=pl.coalesce("op", "before"))
