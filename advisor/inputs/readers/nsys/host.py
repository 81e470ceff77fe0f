"""Rows of an export as what ran on the host: calls, NVTX ranges, threads, samples of them, and when they had no CPU."""

from typing import Final

import polars as pl

from advisor.inputs.clocks import LONGEST_NS
from advisor.inputs.names.calls import LAUNCHING, host_kinds
from advisor.inputs.names.kernels import kernel_name
from advisor.inputs.readers.nsys import tables
from advisor.inputs.readers.nsys.tables import PROCESS, THREAD, WHOSE, Export, ints, sane, timed, with_names
from advisor.model.profile import TEXT, Schema, matches, of_distinct
from advisor.vocabulary.limits import MOST_RANKS

_WAIT_NS: Final = 10_000  # shorter absences and calls make nothing wait that matters
_QUIET_NS: Final = 1_000_000_000  # own choice: loaders and the recorder's own start make no call for half a second
_CHILD: Final = r"^wait(?:p?id|[34])?$"
_MOST_CHILDREN: Final = 2  # waits for more are how the program is
_MPI: Final = ("P2P", "COLLECTIVES", "START_WAIT", "OTHER")
_ONCE: Final = r"^MPI_(?:Init|Finalize|Comm_|Cart_|Type_|Group_|Info_|Get_)"


def host_ops(export: Export, system: pl.DataFrame) -> pl.DataFrame:
    """Driver and runtime calls, NVTX ranges, what the profiler itself spent and child processes, in order of time."""
    calls, own = _calls(export), ranges(export)
    # What the profiler itself spent while the job ran; loading its libraries is not told apart from the job's own.
    overhead = with_names(timed(export, "PROFILER_OVERHEAD", "globalTid", "nameId"), "nameId", export)
    is_own = pl.col("name").cast(pl.String).str.contains(r"^CUDA profiling (?:data flush|stop)|^CUPTI:? ")
    columns = {"process": PROCESS, "kind": pl.lit("overhead")}
    overhead = overhead.filter(is_own).select("start_ns", "dur_ns", "name", **columns)
    # Of the video decoder's library, calls (not marks) that wait for an engine that CUDA's events do not show.
    decoder = timed(export, "NVVIDEO_DECODER_API", "globalTid", "nameId", where='"end" > "start"')
    decoder = with_names(decoder, "nameId", export).with_columns(kind=pl.lit("runtime"))
    decoder = decoder.select("start_ns", "dur_ns", *WHOSE, "name", "kind")
    # Calls of MPI that exchange data or wait for it, of processes that call CUDA, whichever table holds them.
    mpi = pl.concat([timed(export, f"MPI_{of}_EVENTS", "globalTid", "textId") for of in _MPI], how="diagonal")
    mpi = with_names(mpi, "textId", export).filter(~pl.col("name").cast(pl.String).str.contains(_ONCE))
    mpi = mpi.select("start_ns", "dur_ns", *WHOSE, "name", kind=pl.lit("collective"))
    # The long waits for a child process, a compiler perhaps, amid launches of their thread, unless they recur.
    launches = calls.filter(matches(LAUNCHING)).group_by("process", "thread").agg(last=pl.max("start_ns"))
    waits = system.filter(matches(_CHILD), pl.col("dur_ns") > _QUIET_NS).join(launches, on=["process", "thread"])
    few = waits.filter(pl.col("start_ns") < pl.col("last")).filter(pl.len().over("process") <= _MOST_CHILDREN)
    name = pl.format("a child process, in {}", pl.col("name").cast(pl.String)).cast(TEXT)
    children = few.select("start_ns", "dur_ns", "process", "thread", name=name, kind=pl.lit("start_up"))
    parts = [calls, own, overhead, decoder, mpi.join(calls, on="process", how="semi"), children]
    return pl.concat(parts, how="diagonal").sort("start_ns", "dur_ns", descending=[False, True], maintain_order=True)


def os_calls(export: Export) -> pl.DataFrame:
    """Calls of the operating system of at least 10 us."""
    calls = timed(export, "OSRT_API", "globalTid", "nameId", where=f'"end" - start >= {_WAIT_NS}')
    return with_names(calls, "nameId", export).select("start_ns", "dur_ns", *WHOSE, "name")


def process_starts(export: Export, host: pl.DataFrame) -> pl.DataFrame:
    """When each process is launched, or seen first in a call of the system or a sample, before its first call of CUDA.

    `recorded_start_ns`, too, where its own code runs for over a second before that: it calls neither CUDA nor the
    system then, as loading libraries and modules would.
    """
    first = pl.col("start_ns").filter(pl.col("correlation").is_not_null()).min()
    processes = host.group_by("process").agg(begin_ns=pl.min("start_ns"), first_ns=first).drop_nulls()
    where, columns = f'"start" < {processes.select(pl.max("first_ns")).item() or 0}', ints("start", "globalTid")
    events = pl.concat(
        export.rows(table, columns, where=where).with_columns(calls=pl.lit(table == "OSRT_API"))
        for table in ("OSRT_API", "COMPOSITE_EVENTS")
    )
    is_launch = "text LIKE 'Process was launched%' AND timestamp >= 0"  # before, nothing was recorded yet
    launched = {**ints("timestamp", "globalPid"), "text": pl.String}
    launches = export.rows("DIAGNOSTIC_EVENT", launched, where=is_launch)
    starts = launches.select(start="timestamp", globalTid="globalPid", calls=pl.lit(value=False))
    events = pl.concat([events, starts]).filter(sane("start")).with_columns(process=PROCESS)
    events = events.join(processes, on="process")
    calls = pl.col("start").filter("calls")
    early = events.filter(pl.col("start") < pl.col("first_ns")).sort("start").group_by("process")
    quiet = pl.min_horizontal("start", "begin_ns").filter("calls").filter(calls.diff().shift(-1) > _QUIET_NS)
    return early.agg(process_start_ns=pl.min("start"), recorded_start_ns=quiet.min())


def off_cpu(export: Export) -> pl.DataFrame:
    """When threads were on no CPU for at least 10 us, between one scheduling event and the next."""
    columns = ints("start", "cpu", "isSchedIn", "globalTid", "threadState")
    switches = export.rows("SCHED_EVENTS", columns, needs=("start", "isSchedIn", "globalTid"))
    states = export.rows("ENUM_SAMPLING_THREAD_STATE", {"id": pl.Int64, "label": pl.String})
    state = states.filter(pl.col("id") > 0).unique("id", keep="first").rename({"id": "threadState", "label": "state"})
    ordered = switches.filter(sane("start")).sort("globalTid", "start", "isSchedIn", maintain_order=True)
    back = pl.col("start", "cpu", "isSchedIn", "globalTid").shift(-1).name.prefix("next_")
    away, is_same = pl.col("next_start") - pl.col("start"), pl.col("globalTid") == pl.col("next_globalTid")
    is_away = is_same & (pl.col("isSchedIn") == 0) & (pl.col("next_isSchedIn") == 1)
    return (
        ordered.with_columns(back)
        .filter(is_away, away.is_between(_WAIT_NS, LONGEST_NS))
        .join(state, on="threadState", how="left")
        .select(
            *WHOSE,
            start_ns="start",
            dur_ns=away,
            cpu=tables.small("cpu"),
            next_cpu=tables.small("next_cpu"),
            state=pl.col("state").cast(TEXT),
        )
    )


def threads(export: Export) -> pl.DataFrame:
    """Names of threads."""
    names = export.rows("ThreadNames", ints("nameId", "globalTid")).unique(
        "globalTid", keep="last", maintain_order=True
    )
    return with_names(names, "nameId", export).select(*WHOSE, pl.col("name").cast(pl.String))


def ranges(export: Export) -> pl.DataFrame:
    """NVTX ranges that were closed, NCCL's with their payloads; those of `nvtxRangeStart` have no thread."""
    columns = ints(*tables.TIME, "eventType", "globalTid", "textId", "domainId", "jsonTextId")
    columns |= {"text": pl.String, "jsonText": pl.String}
    events = export.rows("NVTX_EVENTS", columns, needs=("start", "end", "eventType"))
    texts = export.strings(events["textId"], events["jsonTextId"]).cast({"value": TEXT})
    for of, column in (("textId", "told"), ("jsonTextId", "json")):
        events = events.join(texts.rename({"id": of, "value": column}), on=of, how="left", maintain_order="left")
    events = events.cast({"text": TEXT, "jsonText": TEXT}).with_columns(
        pl.coalesce("text", "told"), json=pl.coalesce("jsonText", "json"), process=PROCESS
    )
    domains = events.filter(pl.col("eventType") == tables.NVTX_DOMAIN).unique(["process", "domainId"], keep="first")
    closed = events.filter(pl.col("eventType").is_in([*tables.NVTX_PUSH_POP, *tables.NVTX_START_END]))
    of_domains, keys = domains.select("process", "domainId", domain="text"), ["process", "domainId"]
    # Of ranges that were open at a process's end it may have written down the machine's time.
    session = export.rows("ANALYSIS_DETAILS", ints("startTime", "duration"))
    for begin, length in session.filter(sane("startTime"), pl.col("duration") < pl.col("startTime")).rows()[:1]:
        at = pl.col(tables.TIME)
        closed = closed.with_columns(pl.when(at.is_between(begin, begin + length)).then(at - begin).otherwise(at))
    closed = tables.placed(closed).drop_nulls(["dur_ns", "text"])
    closed = closed.join(of_domains, on=keys, how="left", maintain_order="left", nulls_equal=True)
    closed = closed.hstack(of_distinct(closed.select("text", "domain"), _read))
    closed = closed.hstack(of_distinct(closed.select(json=pl.when("nccl").then("json")), _payloads))
    return closed.select(
        *("start_ns", "dur_ns", "process", "kind", "sequence", "shapes", "nccl", "name"),
        *("group", "group_size", "message_bytes"),
        thread=pl.when(pl.col("eventType").is_in(tables.NVTX_PUSH_POP)).then(THREAD),
    )


def open_ranges(export: Export) -> int:
    """Number of NVTX ranges that were never closed."""
    opening = ", ".join(map(str, (*tables.NVTX_PUSH_POP, *tables.NVTX_START_END)))
    where = f'"end" IS NULL AND "eventType" IN ({opening})'
    return export.rows("NVTX_EVENTS", ints("start", "end", "eventType"), where=where).height


def mpi_ranks(export: Export) -> pl.DataFrame:
    """Process and rank, as nsys or a thread's NVTX name tell it."""
    table = export.rows("MPI_RANKS", ints("globalPid", "rank")).filter(pl.col("rank").is_between(0, MOST_RANKS))
    columns, where = {**ints("eventType", "globalTid"), "text": pl.String}, f'"eventType" = {tables.NVTX_THREAD}'
    tags = export.rows("NVTX_EVENTS", columns, where=where)
    rank = pl.col("text").str.extract(r"^MPI Rank (\d{1,6})$").cast(pl.Int64)
    both = [table.rename({"globalPid": "process"}), tags.select(process=PROCESS, rank=rank).drop_nulls()]
    return pl.concat(both).drop_nulls().unique("process", keep="first")


def _calls(export: Export) -> pl.DataFrame:
    columns = ("eventClass", "globalTid", "correlationId", "nameId", "returnValue")
    calls = timed(export, "CUPTI_ACTIVITY_KIND_RUNTIME", *columns)
    calls = calls.filter(pl.col("eventClass").is_in(tables.API_CLASSES) | pl.col("eventClass").is_null())
    returned = pl.concat_str(pl.lit('{"returnValue": '), pl.col("returnValue").cast(pl.String), pl.lit("}"))
    texts = export.strings(calls["nameId"]).select(nameId="id", name=pl.col("value").str.replace(tables.VERSION, ""))
    kind, name = host_kinds(pl.lit("runtime"), pl.col("name")).cast(pl.String), pl.col("name").fill_null("?").cast(TEXT)
    texts = texts.select("nameId", name, kind=kind)
    return calls.join(texts, on="nameId", how="left", maintain_order="left").select(
        "start_ns",
        "dur_ns",
        *WHOSE,
        name=pl.col("name").fill_null("?"),
        kind=pl.col("kind").fill_null("runtime"),
        correlation="correlationId",
        details=pl.when(pl.col("returnValue") != 0).then(returned).cast(TEXT),
    )


def _read(distinct: pl.DataFrame) -> pl.DataFrame:
    text, domain = pl.col("text").cast(pl.String), pl.col("domain").cast(pl.String)
    return distinct.select(
        name=tables.range_name(text).cast(TEXT),
        kind=tables.range_kinds(text, domain),
        # emit_nvtx adds autograd's number, and with record_shapes=True the shapes of the inputs as JSON.
        sequence=text.str.extract(r", seq = (\d{1,18})(?:,|$)").cast(pl.Int64, strict=False),
        shapes=text.str.extract(r", sizes = (\[.*?\])(?:, input_op_ids = .*)?$").cast(TEXT),
        # NCCL's domain is made before a recording that starts late: its ranges are known by their names as well.
        nccl=(domain == "NCCL").fill_null(value=False) | text.str.contains(r"^nccl[A-Z]\w+$"),
    )


def _payloads(distinct: pl.DataFrame) -> pl.DataFrame:
    text = pl.col("json").cast(pl.String).str
    return distinct.select(
        group=text.extract(r'"NCCL communicator ID"\s*:\s*"?(\w+)"?'),
        group_size=text.extract(r'"No. of ranks"\s*:\s*(\d{1,9})').cast(pl.Int32, strict=False),
        message_bytes=text.extract(r'"Message size \[bytes\]"\s*:\s*(\d{1,18})').cast(pl.Int64, strict=False),
    )


# Code of the system, of the profiler and of interpreters: what a program calls, not what it is.
_FOREIGN_MODULE: Final = (
    r"^\[|(?:^|/)(?:(?:python|nsys)[-.\w]*|ld[-.][-.\w]*|lib(?:c|m|dl|rt|util|pthread|gcc_s|stdc\+\+)(?:-[\d.]+)?\.so"
    r"[^/]*|lib(?:python|cupti|nvidia-|nvrtc|Tools)[^/]*)$"
)
_FOREIGN_FUNCTION: Final = r"^(?:[\w:]+ )?(?:std::|__gnu_cxx::|operator)|^(?:_init|_start|_?_libc_\w+|0x\w+)?$"
# In these the recorded calls say what the thread does.
_DRIVER_MODULE: Final = r"(?:^|/)libcuda(?:rt)?[-.\d]*\.so"
_DRIVER_FUNCTION: Final = r"^(?:lib|__)cudart|^cu(?:da)?[A-Z]\w+$"
_COMPILED: Final = ("//anon", "a JIT: code compiled at run time")  # memory that no file is behind; it has no symbols
_SAMPLES: Final[Schema] = {"process": pl.Int64, "thread": pl.Int64, "at_ns": pl.Int64, "functions": pl.List(pl.String)}


def host_samples(export: Export, host: pl.DataFrame) -> pl.DataFrame:
    """Process, thread, at_ns and functions of each sample of a thread that calls CUDA.

    The functions are the program's and its libraries', the innermost first, each as `module: function` without folder
    and parameters. There are none in a call of CUDA, or where only the system or an interpreter was seen.
    """
    callers = host.filter(pl.col("correlation").is_not_null()).select("process", "thread").unique()
    events = export.rows("COMPOSITE_EVENTS", ints("id", "start", "globalTid"))
    events = events.unique("id", keep="first", maintain_order=True)  # each has a stack of its own, in a sound file
    events = events.with_columns(WHOSE).join(callers, on=["process", "thread"], how="semi")
    if events.is_empty():
        return pl.DataFrame(schema=_SAMPLES)
    frames = export.rows("SAMPLING_CALLCHAINS", ints("id", "symbol", "module", "stackDepth"))
    frames = frames.join(events, on="id", how="semi")
    texts = export.strings(frames["symbol"], frames["module"]).with_columns(value=pl.col("value").fill_null(""))
    frames = frames.join(_known(texts, "module", _DRIVER_MODULE, _FOREIGN_MODULE), on="module")
    frames = frames.join(_known(texts, "symbol", _DRIVER_FUNCTION, _FOREIGN_FUNCTION), on="symbol")
    in_driver = (pl.col("module_of_driver") | pl.col("symbol_of_driver")).any().over("id")
    is_compiled = pl.col("module_text") == _COMPILED[0]
    is_own = ~in_driver & ~pl.col("module_foreign") & (is_compiled | ~pl.col("symbol_foreign"))
    own = frames.filter(is_own).sort("id", "stackDepth")
    words = {text: kernel_name(text) for text in own["symbol_text"].unique()}
    module, function = pl.col("module_text").str.extract(r"([^/]*)$"), pl.col("symbol_text").replace(words)
    text = pl.concat_str(module, function, separator=": ")
    label = pl.when(is_compiled).then(pl.lit(_COMPILED[1])).otherwise(text).unique(maintain_order=True)
    stacks = own.group_by("id", maintain_order=True).agg(functions=label)
    # Apart, since a left join takes room for the first stack in each row without one.
    without = events.join(stacks, on="id", how="anti").with_columns(functions=pl.lit([], pl.List(pl.String)))
    known = pl.concat([events.join(stacks, on="id"), without]).sort("start", "id")
    return known.select("process", "thread", at_ns="start", functions="functions")


def _known(texts: pl.DataFrame, of: str, driver: str, foreign: str) -> pl.DataFrame:
    """The texts as those of a column, each with whether it is the driver's or foreign."""
    text = pl.col("value")
    flags = {f"{of}_of_driver": text.str.contains(driver), f"{of}_foreign": text.str.contains(foreign)}
    return texts.select(pl.col("id").alias(of), text.alias(f"{of}_text"), **flags)
