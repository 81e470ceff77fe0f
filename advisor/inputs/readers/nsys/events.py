"""Rows of an export as events: what ran on the host and on the devices, of every process, in the profile's terms.

Every frame has `process`: the upper bits of globalTid or globalPid (hardware, virtual machine, process id), null where
an old schema does not tell. Times are the export's own, in ns since the session's start; they may be negative.
"""

from typing import Final

import polars as pl
from polars.datatypes import DataTypeClass

from advisor.inputs.names.calls import host_kinds
from advisor.inputs.names.kernels import family
from advisor.inputs.readers.nsys import names
from advisor.inputs.readers.nsys.tables import Export
from advisor.model.schemas import DEVICE_OP_KINDS, MEMORY_KINDS, TEXT

_MOST_RANKS: Final = 1 << 20
_LATEST_NS: Final = 1 << 60  # with the session's time of day it stays below 2**63
_LONGEST_NS: Final = 1 << 50  # 13 days
_WAIT_NS: Final = 10_000  # shorter absences and calls make nothing wait that matters
_TIME: Final = ("start", "end")
_DEVICE: Final = ("deviceId", "streamId", "correlationId", "globalPid")
_NCCL: Final = "NCCL"

NAMELESS: Final = "?"
"""Name of a kernel whose name the export does not hold."""


def device_ops(export: Export) -> pl.DataFrame:
    """Kernels, collectives, copies, memsets, and launches of CUDA graphs whose nodes were not recorded.

    Where an op has no sound times, `dur_ns` is null.
    """
    parts = [_kernels(export), _copies(export), _memsets(export)]
    parts.append(_graphs(export, parts[0]))
    ops = pl.concat(parts, how="diagonal")
    # Every schema tells the device; where a mangled one does not, it can only be the one that the process used.
    sole = pl.when(pl.col("device").n_unique() - pl.col("device").has_nulls() <= 1).then(
        pl.col("device").max().fill_null(0)
    )
    return ops.with_columns(pl.coalesce("device", sole.over("process"))).drop_nulls("device")


_MPI: Final = ("P2P", "COLLECTIVES", "START_WAIT", "OTHER")
_ONCE: Final = r"^MPI_(?:Init|Finalize|Comm_|Cart_|Type_|Group_|Info_|Get_)"


def host_ops(export: Export) -> pl.DataFrame:
    """Driver and runtime calls, NVTX ranges, and what the profiler itself spent, in order of time."""
    parts = [calls := _calls(export), ranges(export), _overhead(export), _exchanges(export, calls)]
    return pl.concat(parts, how="diagonal").sort("start_ns", "dur_ns", descending=[False, True], maintain_order=True)


def os_calls(export: Export) -> pl.DataFrame:
    """Calls of the operating system of at least 10 us."""
    calls = _timed(export, "OSRT_API", "globalTid", "nameId", where=f'"end" - start >= {_WAIT_NS}')
    return _with_names(calls, "nameId", export).select("start_ns", "dur_ns", *_whose(), "name")


def off_cpu(export: Export) -> pl.DataFrame:
    """When threads were on no CPU for at least 10 us, between one scheduling event and the next."""
    columns = _ints("start", "cpu", "isSchedIn", "globalTid", "threadState")
    switches = export.rows("SCHED_EVENTS", columns, needs=("start", "isSchedIn", "globalTid"))
    states = export.rows("ENUM_SAMPLING_THREAD_STATE", {"id": pl.Int64, "label": pl.String}, needs=("id", "label"))
    state = states.filter(pl.col("id") > 0).unique("id", keep="first").rename({"id": "threadState", "label": "state"})
    ordered = switches.filter(_sane("start")).sort("globalTid", "start", "isSchedIn", maintain_order=True)
    back = pl.col("start", "cpu", "isSchedIn", "globalTid").shift(-1).name.prefix("next_")
    away = pl.col("next_start") - pl.col("start")
    return (
        ordered.with_columns(back)
        .filter(
            pl.col("isSchedIn") == 0, pl.col("next_isSchedIn") == 1, pl.col("globalTid") == pl.col("next_globalTid")
        )
        .filter(away.is_between(_WAIT_NS, _LONGEST_NS))
        .join(state, on="threadState", how="left")
        .select(
            *_whose(),
            start_ns="start",
            dur_ns=away,
            cpu=_small("cpu"),
            next_cpu=_small("next_cpu"),
            state=pl.col("state").cast(TEXT),
        )
    )


def threads(export: Export) -> pl.DataFrame:
    """Names of threads."""
    names_there = export.rows("ThreadNames", _ints("nameId", "globalTid"), needs=("nameId", "globalTid"))
    return _with_names(names_there.unique("globalTid", keep="last", maintain_order=True), "nameId", export).select(
        *_whose(), pl.col("name").cast(pl.String)
    )


def gpu_samples(export: Export) -> pl.DataFrame:
    """Sampled hardware counters as shares of their peak: gpu (of the session's list), metric, at_ns, value."""
    types: dict[str, DataTypeClass] = {"typeId": pl.Int64, "metricId": pl.Int64, "metricName": pl.String}
    listed = export.rows("TARGET_INFO_GPU_METRICS", types, needs=tuple(types)).with_columns(
        metric=names.first_of(pl.col("metricName"), names.GPU_METRICS)
    )
    # Numbers are not stable from one version to the next, and a share needs a peak.
    metrics = listed.filter(pl.col("metric").is_not_null(), pl.col("metricName").str.contains("%", literal=True))
    metrics = metrics.unique(["typeId", "metricId"], keep="first")
    if not metrics.height:
        return pl.DataFrame(schema={"gpu": pl.Int64, "metric": TEXT, "at_ns": pl.Int64, "value": pl.Float64})
    ids = ", ".join(map(str, metrics["metricId"].unique().sort()))
    columns = {**_ints("timestamp", "typeId", "metricId"), "value": pl.Float64}
    samples = export.rows("GPU_METRICS", columns, needs=tuple(columns), where=f'"metricId" IN ({ids})')
    return (
        samples.filter(_sane("timestamp"), pl.col("value").is_between(0, 1_000))
        .join(metrics.select("typeId", "metricId", pl.col("metric").cast(TEXT)), on=["typeId", "metricId"])
        .group_by(gpu=pl.col("typeId") & 0xFF, metric=pl.col("metric"), at_ns=pl.col("timestamp"))
        .agg(several=pl.sum("value") / 100, value=pl.max("value") / 100)
        # A link's traffic comes in parts (requests, responses, user data); anything else is told twice.
        .with_columns(
            value=pl.when(pl.col("metric").cast(pl.String).str.starts_with("nvlink")).then("several").otherwise("value")
        )
        .drop("several")
        .sort("gpu", "metric", "at_ns")
    )


def allocations(export: Export) -> pl.DataFrame:
    """Device memory taken from and given back to the driver, with the running total per device."""
    columns = _ints("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")
    needs = ("start", "bytes", "memoryOperationType")
    events = export.rows("CUDA_GPU_MEMORY_USAGE_EVENTS", columns, needs=needs)
    sane = _sane("start") & pl.col("bytes").is_between(0, 1 << 50) & pl.col("memoryOperationType").is_in([0, 1])
    on_device = names.memory_kind(pl.col("memKind")).cast(pl.String).is_in(["device", "managed"]).fill_null(value=True)
    change = pl.when(pl.col("memoryOperationType") == 0).then("bytes").otherwise(-pl.col("bytes"))
    return (
        events.filter(sane)
        .sort("start", maintain_order=True)
        .select(
            process="globalPid",
            device=pl.when(on_device).then(_small("deviceId")),
            at_ns="start",
            bytes=change,
            address="address",
        )
        .with_columns(reserved_bytes=pl.col("bytes").cum_sum().over("process", "device").clip(0))
    )


def ranges(export: Export) -> pl.DataFrame:
    """NVTX ranges that were closed; those of `nvtxRangeStart` have no thread, for they nest with nothing.

    Those of NCCL bear `group`, `group_size` and `bytes`, where the export decoded the payloads.
    """
    columns: dict[str, DataTypeClass] = {
        **_ints(*_TIME, "eventType", "globalTid", "textId", "domainId", "jsonTextId"),
        "text": pl.String,
        "jsonText": pl.String,
    }
    events = export.rows("NVTX_EVENTS", columns, needs=("start", "end", "eventType"))
    texts = export.strings(events["textId"], events["jsonTextId"]).cast({"value": TEXT})
    events = (
        events.cast({"text": TEXT, "jsonText": TEXT})
        .join(texts.rename({"id": "textId", "value": "told"}), on="textId", how="left", maintain_order="left")
        .join(texts.rename({"id": "jsonTextId", "value": "json"}), on="jsonTextId", how="left", maintain_order="left")
        .with_columns(pl.coalesce("text", "told"), json=pl.coalesce("jsonText", "json"), process=_process())
    )
    domains = events.filter(pl.col("eventType") == names.NVTX_DOMAIN).unique(["process", "domainId"], keep="first")
    closed = events.filter(pl.col("eventType").is_in([*names.NVTX_PUSH_POP, *names.NVTX_START_END]))
    closed = (
        _placed(closed)
        .drop_nulls(["dur_ns", "text"])
        .join(
            domains.select("process", "domainId", domain="text"),
            on=["process", "domainId"],
            how="left",
            maintain_order="left",
            nulls_equal=True,
        )
    )
    readings = _read(closed.select("text", "domain").unique())
    closed = closed.join(readings, on=["text", "domain"], how="left", maintain_order="left", nulls_equal=True)
    payloads = _payloads(closed.filter("nccl").select("json").unique())
    return closed.join(payloads, on="json", how="left", maintain_order="left").select(
        "start_ns",
        "dur_ns",
        "process",
        "kind",
        "sequence",
        "shapes",
        "nccl",
        "name",
        "group",
        "group_size",
        "message_bytes",
        thread=pl.when(pl.col("eventType").is_in(names.NVTX_PUSH_POP)).then(_thread()),
    )


def open_ranges(export: Export) -> int:
    """Number of NVTX ranges that were never closed."""
    columns = _ints("start", "end", "eventType")
    opening = ", ".join(map(str, (*names.NVTX_PUSH_POP, *names.NVTX_START_END)))
    where = f'"end" IS NULL AND "eventType" IN ({opening})'
    return export.rows("NVTX_EVENTS", columns, needs=tuple(columns), where=where).height


def mpi_ranks(export: Export) -> pl.DataFrame:
    """Process and rank, as nsys or a thread's NVTX name tell it."""
    table = export.rows("MPI_RANKS", _ints("globalPid", "rank"), needs=("globalPid", "rank"))
    table = table.filter(pl.col("rank").is_between(0, _MOST_RANKS))
    columns: dict[str, DataTypeClass] = {**_ints("eventType", "globalTid"), "text": pl.String}
    where = f'"eventType" = {names.NVTX_THREAD}'
    tags = export.rows("NVTX_EVENTS", columns, needs=("eventType", "globalTid", "text"), where=where)
    rank = pl.col("text").str.extract(r"^MPI Rank (\d{1,6})$").cast(pl.Int64)
    both = [table.rename({"globalPid": "process"}), tags.select(process=_process(), rank=rank).drop_nulls()]
    return pl.concat(both).drop_nulls().unique("process", keep="first")


# ------------------------------------------------------------------------------------------------ one table each


def _kernels(export: Export) -> pl.DataFrame:
    ids = ("demangledName", "shortName", "mangledName")
    columns = (
        *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread"),
        *("staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId"),
    )
    kernels = _records(export, "CUPTI_ACTIVITY_KIND_KERNEL", *_DEVICE, *ids, *columns)
    texts = export.strings(*(kernels[column] for column in ids))
    name_id = pl.coalesce(pl.when(pl.col(column).is_in(texts["id"].implode())).then(column) for column in ids)
    communicates = pl.Series(family(texts["value"]) == "collective").fill_null(value=False)
    kind = pl.when(communicates).then(pl.lit("collective")).otherwise(pl.lit("kernel")).cast(DEVICE_OP_KINDS)
    known = texts.select("id", name=_name("value"), kind=kind)
    return (
        kernels.with_columns(id=name_id)
        .join(known, on="id", how="left", maintain_order="left")
        .select(
            *_on_device(),
            kind=pl.col("kind").fill_null("kernel"),
            name=pl.col("name").fill_null(NAMELESS),
            grid=_product("gridX", "gridY", "gridZ").cast(pl.Int64, strict=False),
            block=_product("blockX", "blockY", "blockZ").cast(pl.Int32, strict=False),
            registers=_small("registersPerThread"),
            shared_bytes=_small(pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory").fill_null(0)),
            graph=pl.coalesce("graphId", "graphNodeId"),
        )
    )


def _copies(export: Export) -> pl.DataFrame:
    columns = (*_DEVICE, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId")
    copies = _records(export, "CUPTI_ACTIVITY_KIND_MEMCPY", *columns)
    kind = pl.col("copyKind").replace_strict(names.COPY_KINDS, default=None, return_dtype=pl.String)
    source, target = (
        pl.when(pl.col("copyKind").is_in(names.MIGRATIONS))
        .then(pl.lit("managed", MEMORY_KINDS))
        .otherwise(names.memory_kind(pl.col(side)))
        for side in ("srcKind", "dstKind")
    )
    return copies.select(
        *_on_device(),
        kind=pl.lit("memcpy", DEVICE_OP_KINDS),
        name=pl.format("Memcpy {} ({} -> {})", kind.fill_null("?"), _title(source), _title(target)).cast(TEXT),
        bytes=_size(),
        copy_kind=kind.cast(TEXT),
        source_memory=source,
        target_memory=target,
        graph="graphNodeId",
    )


def _memsets(export: Export) -> pl.DataFrame:
    memsets = _records(export, "CUPTI_ACTIVITY_KIND_MEMSET", *_DEVICE, "bytes", "memKind", "graphNodeId")
    target = names.memory_kind(pl.col("memKind"))
    return memsets.select(
        *_on_device(),
        kind=pl.lit("memset", DEVICE_OP_KINDS),
        name=pl.format("Memset ({})", _title(target)).cast(TEXT),
        bytes=_size(),
        target_memory=target,
        graph="graphNodeId",
    )


def _graphs(export: Export, kernels: pl.DataFrame) -> pl.DataFrame:
    """Launches of CUDA graphs as a whole, but for those whose nodes are there themselves."""
    launches = _records(export, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *_DEVICE, "graphId")
    ops = launches.select(
        *_on_device(),
        kind=pl.lit("kernel", DEVICE_OP_KINDS),
        name=pl.format("CUDA graph {}", pl.col("graphId").cast(pl.String).fill_null("?")).cast(TEXT),
        graph="graphId",
        whole_graph=True,
    )
    nodes = kernels.filter(pl.col("graph").is_not_null(), pl.col("correlation").is_not_null())
    return ops.join(nodes, on=["process", "correlation"], how="anti")


def _calls(export: Export) -> pl.DataFrame:
    columns = ("eventClass", "globalTid", "correlationId", "nameId", "returnValue")
    calls = _timed(export, "CUPTI_ACTIVITY_KIND_RUNTIME", *columns)
    calls = calls.filter(pl.col("eventClass").is_in(names.API_CLASSES) | pl.col("eventClass").is_null())
    returned = pl.concat_str(pl.lit('{"returnValue": '), pl.col("returnValue").cast(pl.String), pl.lit("}"))
    texts = export.strings(calls["nameId"]).select(nameId="id", name=names.api_name(pl.col("value")))
    texts = texts.select("nameId", _name("name"), kind=host_kinds(pl.lit("runtime"), pl.col("name")).cast(pl.String))
    return calls.join(texts, on="nameId", how="left", maintain_order="left").select(
        "start_ns",
        "dur_ns",
        *_whose(),
        name=pl.col("name").fill_null("?"),
        kind=pl.col("kind").fill_null("runtime"),
        correlation="correlationId",
        details=pl.when(pl.col("returnValue") != 0).then(returned).cast(TEXT),
    )


def _overhead(export: Export) -> pl.DataFrame:
    """What the profiler itself spent while the job ran; loading its libraries is not told apart from the job's own."""
    records = _timed(export, "PROFILER_OVERHEAD", "globalTid", "nameId")
    return (
        _with_names(records, "nameId", export)
        .filter(pl.col("name").cast(pl.String).str.contains(r"^CUDA profiling (?:data flush|stop)|^CUPTI:? "))
        .select("start_ns", "dur_ns", "name", process=_process(), kind=pl.lit("overhead"))
    )


def _exchanges(export: Export, cuda: pl.DataFrame) -> pl.DataFrame:
    """Calls of MPI that exchange data or wait for it, of processes that call CUDA, whichever table holds them."""
    calls = pl.concat([_timed(export, f"MPI_{of}_EVENTS", "globalTid", "textId") for of in _MPI], how="diagonal")
    calls = _with_names(calls, "textId", export).filter(~pl.col("name").cast(pl.String).str.contains(_ONCE))
    calls = calls.select("start_ns", "dur_ns", *_whose(), "name", kind=pl.lit("collective"))
    return calls.join(cuda, on="process", how="semi")


def _read(distinct: pl.DataFrame) -> pl.DataFrame:
    """What each text of a range and its domain say."""
    text, domain = pl.col("text").cast(pl.String), pl.col("domain").cast(pl.String)
    return distinct.with_columns(
        name=names.range_name(text).cast(TEXT),
        kind=names.range_kinds(text, domain),
        sequence=names.sequence(text),
        shapes=names.shapes(text).cast(TEXT),
        # NCCL's domain is made before a recording that starts late: its ranges are known by their names as well.
        nccl=(domain == _NCCL).fill_null(value=False) | text.str.contains(r"^nccl[A-Z]\w+$"),
    )


def _payloads(distinct: pl.DataFrame) -> pl.DataFrame:
    """What each decoded payload of NCCL's says."""
    return distinct.with_columns(
        group=_payload("NCCL communicator ID", r'"?(\w+)"?'),
        group_size=_payload("No. of ranks", r"(\d{1,9})").cast(pl.Int32, strict=False),
        message_bytes=_payload(r"Message size \[bytes\]", r"(\d{1,18})").cast(pl.Int64, strict=False),
    )


# ------------------------------------------------------------------------------------------------ columns


def _ints(*columns: str) -> dict[str, DataTypeClass]:
    return dict.fromkeys(columns, pl.Int64)


def _records(export: Export, table: str, *columns: str, where: str | None = None) -> pl.DataFrame:
    """The rows of a table with these columns, as `_placed`."""
    return _placed(export.rows(table, _ints(*_TIME, *columns), needs=_TIME, where=where))


def _timed(export: Export, table: str, *columns: str, where: str | None = None) -> pl.DataFrame:
    """Those that have a place in time."""
    return _records(export, table, *columns, where=where).drop_nulls("dur_ns")


def _placed(rows: pl.DataFrame) -> pl.DataFrame:
    """All rows, with start_ns and dur_ns; both null where the row has no sound place in time."""
    start, end = (pl.when(_sane(column)).then(column) for column in _TIME)
    sound = (end - start).is_between(0, _LONGEST_NS)
    return rows.with_columns(start_ns=pl.when(sound).then(start), dur_ns=pl.when(sound).then(end - start))


def _sane(column: str) -> pl.Expr:
    return pl.col(column).is_between(-_LATEST_NS, _LATEST_NS)


def _on_device() -> list[pl.Expr]:
    return [
        pl.col("start_ns"),
        pl.col("dur_ns"),
        pl.col("globalPid").alias("process"),
        _small("deviceId").alias("device"),
        _small("streamId").fill_null(0).cast(pl.Int64).alias("stream"),
        pl.col("correlationId").alias("correlation"),
    ]


def _whose() -> list[pl.Expr]:
    return [_process().alias("process"), _thread().alias("thread")]


def _process() -> pl.Expr:
    return pl.col("globalTid") // (1 << 24) * (1 << 24)


def _thread() -> pl.Expr:
    return pl.col("globalTid") & 0xFFFFFF


def _name(column: str) -> pl.Expr:
    return pl.col(column).fill_null("?").cast(TEXT)


def _size() -> pl.Expr:
    return pl.when(pl.col("bytes") >= 0).then("bytes")


def _small(column: str | pl.Expr) -> pl.Expr:
    """As 32 bits; null where the number is larger."""
    return (pl.col(column) if isinstance(column, str) else column).cast(pl.Int32, strict=False)


def _product(*columns: str) -> pl.Expr:
    factors = [pl.col(column).cast(pl.Float64) for column in columns]
    return factors[0] * factors[1] * factors[2]


def _title(kind: pl.Expr) -> pl.Expr:
    return kind.cast(pl.String).str.to_titlecase().fill_null("Unknown")


def _payload(field: str, value: str) -> pl.Expr:
    return pl.col("json").cast(pl.String).str.extract(rf'"{field}"\s*:\s*{value}')


def _with_names(rows: pl.DataFrame, column: str, export: Export) -> pl.DataFrame:
    """The rows with the `name` that a column refers to."""
    texts = export.strings(rows[column]).select(pl.col("id").alias(column), name=pl.col("value").cast(TEXT))
    return rows.join(texts, on=column, how="left", maintain_order="left")
