"""Rows of an export as what ran on the devices, the memory taken from them, the GPUs themselves and their counters."""

from typing import Final

import polars as pl

from advisor.inputs.names.kernels import family
from advisor.inputs.readers.nsys import tables
from advisor.inputs.readers.nsys.tables import PID, PROCESS, Export, ints, records, sane, small, with_names
from advisor.model.profile import DEVICE_OP_KINDS, MEMORY_KINDS, TEXT
from advisor.text import listing

_DEVICE: Final = ("deviceId", "streamId", "correlationId", "globalPid")

_ON_DEVICE: Final = [
    *(pl.col("start_ns"), pl.col("dur_ns"), pl.col("globalPid").alias("process"), small("deviceId").alias("device")),
    small("streamId").fill_null(0).cast(pl.Int64).alias("stream"),
    pl.col("correlationId").alias("correlation"),
]
_SIZE: Final = pl.when(pl.col("bytes") >= 0).then("bytes")
_GRAPHICS: Final = {"OPENGL": "OpenGL", "VULKAN": "Vulkan", "DX12": "Direct3D 12"}

NAMELESS: Final = "unnamed kernel"  # how kernels begin whose names the export does not hold; their numbers follow


def device_ops(export: Export) -> pl.DataFrame:
    """What ran on devices, CUDA graphs without nodes and drawing included; `dur_ns` is null without sound times."""
    parts = [_kernels(export), _copies(export), _memsets(export)]
    # Launches of CUDA graphs as a whole, but for those whose nodes are there themselves.
    launches = records(export, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *_DEVICE, "graphId")
    ops = launches.select(
        *_ON_DEVICE,
        kind=pl.lit("kernel", DEVICE_OP_KINDS),
        name=pl.format("CUDA graph {}", pl.col("graphId").cast(pl.String).fill_null("?")).cast(TEXT),
        graph="graphId",
        whole_graph=True,
    )
    nodes = parts[0].filter(pl.col("graph").is_not_null(), pl.col("correlation").is_not_null())
    parts.append(ops.join(nodes, on=["process", "correlation"], how="anti"))
    ops = pl.concat([*parts, *_drawing(export, pl.concat(parts, how="diagonal"))], how="diagonal")
    # Every schema tells the device; where a mangled one does not, it can only be the one that the process used.
    sole = pl.when(pl.col("device").n_unique() - pl.col("device").has_nulls() <= 1).then(
        pl.col("device").max().fill_null(0)
    )
    return ops.with_columns(pl.coalesce("device", sole.over("process"))).drop_nulls("device")


def allocations(export: Export) -> pl.DataFrame:
    """Device memory taken from and given back to the driver, with the running total per device."""
    needs = ("start", "bytes", "memoryOperationType")
    columns = ints("globalPid", "deviceId", "address", "memKind", *needs)
    events = export.rows("CUDA_GPU_MEMORY_USAGE_EVENTS", columns, needs=needs)
    known = sane("start") & pl.col("bytes").is_between(0, 1 << 50) & pl.col("memoryOperationType").is_in([0, 1])
    on_device = tables.memory_kind(pl.col("memKind")).cast(pl.String).is_in(["device", "managed"]).fill_null(value=True)
    change = pl.when(pl.col("memoryOperationType") == 0).then("bytes").otherwise(-pl.col("bytes"))
    return (
        events.filter(known)
        .sort("start", maintain_order=True)
        .select(
            process="globalPid",
            device=pl.when(on_device).then(small("deviceId")),
            at_ns="start",
            bytes=change,
            address="address",
        )
        .with_columns(reserved_bytes=pl.col("bytes").cum_sum().over("process", "device").clip(0))
    )


def _kernels(export: Export) -> pl.DataFrame:
    ids = ("demangledName", "shortName", "mangledName")
    columns = (
        *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread"),
        *("staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId"),
    )
    kernels = records(export, "CUPTI_ACTIVITY_KIND_KERNEL", *_DEVICE, *ids, *columns)
    texts = export.strings(*(kernels[column] for column in ids))
    name_id = pl.coalesce(pl.when(pl.col(column).is_in(texts["id"].implode())).then(column) for column in ids)
    communicates = pl.Series(family(texts["value"]) == "collective").fill_null(value=False)
    kind = pl.when(communicates).then(pl.lit("collective")).otherwise(pl.lit("kernel")).cast(DEVICE_OP_KINDS)
    known = texts.select("id", name=pl.col("value").fill_null("?").cast(TEXT), kind=kind)
    return (
        kernels.with_columns(id=name_id)
        .join(known, on="id", how="left", maintain_order="left")
        .select(
            *_ON_DEVICE,
            kind=pl.col("kind").fill_null("kernel"),
            name=pl.coalesce(
                "name", pl.format("{} {}", pl.lit(NAMELESS), pl.coalesce(ids)).cast(TEXT), pl.lit(NAMELESS, TEXT)
            ),
            grid=_product("gridX", "gridY", "gridZ").cast(pl.Int64, strict=False),
            block=_product("blockX", "blockY", "blockZ").cast(pl.Int32, strict=False),
            registers=small("registersPerThread"),
            shared_bytes=small(pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory").fill_null(0)),
            graph=pl.coalesce("graphId", "graphNodeId"),
        )
    )


def _copies(export: Export) -> pl.DataFrame:
    columns = (*_DEVICE, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId")
    copies = records(export, "CUPTI_ACTIVITY_KIND_MEMCPY", *columns)
    kind = pl.col("copyKind").replace_strict(tables.COPY_KINDS, default=None, return_dtype=pl.String)
    source, target = (
        pl.when(pl.col("copyKind").is_in(tables.MIGRATIONS))
        .then(pl.lit("managed", MEMORY_KINDS))
        .otherwise(tables.memory_kind(pl.col(side)))
        for side in ("srcKind", "dstKind")
    )
    return copies.select(
        *_ON_DEVICE,
        kind=pl.lit("memcpy", DEVICE_OP_KINDS),
        name=pl.format("Memcpy {} ({} -> {})", kind.fill_null("?"), _title(source), _title(target)).cast(TEXT),
        bytes=_SIZE,
        copy_kind=kind.cast(TEXT),
        source_memory=source,
        target_memory=target,
        graph="graphNodeId",
    )


def _memsets(export: Export) -> pl.DataFrame:
    memsets = records(export, "CUPTI_ACTIVITY_KIND_MEMSET", *_DEVICE, "bytes", "memKind", "graphNodeId")
    target = tables.memory_kind(pl.col("memKind"))
    return memsets.select(
        *_ON_DEVICE,
        kind=pl.lit("memset", DEVICE_OP_KINDS),
        name=pl.format("Memset ({})", _title(target)).cast(TEXT),
        bytes=_SIZE,
        target_memory=target,
        graph="graphNodeId",
    )


def drawing_interfaces(export: Export) -> str:
    """The interfaces with which any process draws, in words; empty where none does."""
    tables = ((api, f"{table}_{of}") for table, api in _GRAPHICS.items() for of in ("WORKLOAD", "API"))
    return listing([*dict.fromkeys(api for api, table in tables if records(export, table).height)])


def _drawing(export: Export, computing: pl.DataFrame) -> list[pl.DataFrame]:
    """What draws on the device of a process that computes there; exports tell neither its launch nor CUDA's number."""
    return [
        with_names(records(export, f"{table}_WORKLOAD", "globalTid", "nameId"), "nameId", export)
        .select(
            *("start_ns", "dur_ns"),
            process=PROCESS,
            stream=pl.lit(0, pl.Int64),
            kind=pl.lit("graphics", DEVICE_OP_KINDS),
            name=pl.format("{} {}", pl.lit(api), pl.col("name").cast(pl.String).fill_null("?")).cast(TEXT),
        )
        .join(computing, on="process", how="semi")
        for table, api in _GRAPHICS.items()
    ]


def _product(*columns: str) -> pl.Expr:
    factors = [pl.col(column).cast(pl.Float64) for column in columns]
    return factors[0] * factors[1] * factors[2]


def _title(kind: pl.Expr) -> pl.Expr:
    return kind.cast(pl.String).str.to_titlecase().fill_null("Unknown")


_GPU: Final = {
    "name": pl.String,
    **ints(
        "id", "totalMemory", "smCount", "computeMajor", "computeMinor", "memoryBandwidth"
    ),  # the last in bytes per s
    **ints("cuDevice", "maxWarpsPerSm", "threadsPerWarp"),
}
_OLDER: Final = {  # columns of TARGET_INFO_CUDA_GPU, which exports before 2022 have beside a list of bare names
    "deviceId": "id",
    "name": "name",
    "globalMemorySize": "totalMemory",
    "numMultiprocessors": "smCount",
    "computeCapabilityMajor": "computeMajor",
    "computeCapabilityMinor": "computeMinor",
    "maxWarpsPerMultiprocessor": "maxWarpsPerSm",
    "numThreadsPerWarp": "threadsPerWarp",
    "memoryBandwidth": "memoryBandwidth",
}
_OF_NVIDIA: Final = r"(?i)nvidia|tesla|geforce|quadro|titan"
# Kernels compiled for one generation alone (sm_90a, sm_100a) run on no other; those for sm_80 do.
_GENERATIONS: Final = [(r"(?i)sm_?90", 9.0), (r"(?i)sm_?100", 10.0)]


def devices(export: Export, ops: pl.DataFrame, processes: list[int | None]) -> pl.DataFrame:
    """One row per process and device that it used; name and figures are null where they could not be told.

    Where no process used any, each of `processes` sees all that are listed.

    A process's device is the GPU that TARGET_INFO_CUDA_DEVICE says it is, else any where all are alike, else the one
    with that CUDA number. Without a list, kernels built for one generation alone tell the compute capability. Graphics
    chips without multiprocessors, as other vendors' are listed, are not the job's.
    """
    used = ops.select("process", "device").unique().sort("process", "device", nulls_last=True)
    gpus = _gpus(export)
    if not gpus.height:
        names = ops.select("process", "device", pl.col("name").cast(pl.String)).unique()
        generation = pl.coalesce(
            pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(capability))
            for pattern, capability in _GENERATIONS
        )
        generations = names.with_columns(capability=generation).group_by("process", "device").agg(pl.max("capability"))
        return used.join(generations, on=["process", "device"], how="left", nulls_equal=True)
    if not used.height:
        each = pl.DataFrame({"process": processes}, schema={"process": pl.Int64})
        listed = gpus.with_columns(device=pl.coalesce("cuda", "gpu").cast(pl.Int32, strict=False)).drop("cuda")
        return each.join(listed.unique("device", keep="first", maintain_order=True), how="cross")
    numbered = used.join(_numbers(export, gpus, used), on=["process", "device"], how="left", nulls_equal=True)
    facts = gpus.rename({"gpu": "known"}).drop("cuda").unique("known", keep="first")
    alike = facts.drop("known").unique()
    if alike.height == 1:
        return numbered.join(alike, how="cross")
    return numbered.join(facts, left_on="gpu", right_on="known", how="left")


def gpu_samples(export: Export) -> pl.DataFrame:
    """Sampled hardware counters as shares of their peak: gpu (of the session's list), metric, at_ns, value."""
    listed = export.rows("TARGET_INFO_GPU_METRICS", {**ints("typeId", "metricId"), "metricName": pl.String})
    means = (pl.when(pl.col("metricName").str.contains(of)).then(pl.lit(metric)) for of, metric in tables.GPU_METRICS)
    listed = listed.with_columns(metric=pl.coalesce(means))
    # Numbers are not stable from one version to the next, and a share needs a peak.
    metrics = listed.filter(pl.col("metric").is_not_null(), pl.col("metricName").str.contains("%", literal=True))
    metrics = metrics.unique(["typeId", "metricId"], keep="first")
    if not metrics.height:
        return pl.DataFrame(schema={"gpu": pl.Int64, "metric": TEXT, "at_ns": pl.Int64, "value": pl.Float64})
    ids = ", ".join(map(str, metrics["metricId"].unique().sort()))
    columns = {**ints("timestamp", "typeId", "metricId"), "value": pl.Float64}
    samples = export.rows("GPU_METRICS", columns, where=f'"metricId" IN ({ids})')
    return (
        samples.filter(sane("timestamp"), pl.col("value").is_between(0, 1_000))
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


def samples_by_device(samples: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """Samples of the GPUs that the job used, by process and device."""
    if "gpu" in used.columns and used["gpu"].count():
        return samples.join(used.select("process", "device", "gpu").drop_nulls("gpu"), on="gpu")
    is_sure = samples["gpu"].n_unique() == used.height == 1
    return samples.join(used.select("process", "device").head(int(is_sure)), how="cross")


def _gpus(export: Export) -> pl.DataFrame:
    older = export.rows("TARGET_INFO_CUDA_GPU", {old: _GPU[new] for old, new in _OLDER.items()}, needs=("name",))
    listed = older.rename(_OLDER).unique(maintain_order=True).with_columns(cuDevice="id")
    if listed.is_empty():
        listed = export.rows("TARGET_INFO_GPU", _GPU, needs=("name",))
    capability = pl.col("computeMajor") + pl.col("computeMinor").fill_null(0) / 10
    computes = (pl.col("smCount") > 0) | (pl.col("computeMajor") > 0) | pl.col("name").str.contains(_OF_NVIDIA)
    threads = (pl.col("maxWarpsPerSm") * pl.col("threadsPerWarp")).cast(pl.Int32, strict=False)
    return listed.filter(computes).select(
        "name",
        gpu="id",
        cuda="cuDevice",
        memory_bytes=pl.when(pl.col("totalMemory") > 0).then("totalMemory"),
        sm_count=pl.when(pl.col("smCount") > 0).then("smCount").cast(pl.Int32, strict=False),
        capability=pl.when(pl.col("computeMajor") > 0).then(capability),
        max_threads_per_sm=pl.when(threads > 0).then(threads),
        memory_gbs=pl.when(pl.col("memoryBandwidth") > 0).then(pl.col("memoryBandwidth") / 1e9),
    )


def _numbers(export: Export, gpus: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """process, device, gpu (its number in the session's list), and `again` where an earlier one is surely the same."""
    listed = export.rows("TARGET_INFO_CUDA_DEVICE", ints("gpuId", "cudaId", "pid"))
    known = listed.select("pid", device=pl.col("cudaId").cast(pl.Int32, strict=False), said="gpuId")
    by_number = gpus.select(device=pl.col("cuda").cast(pl.Int32, strict=False), numbered="gpu").drop_nulls("device")
    return (
        used.with_columns(pid=PID)
        .join(known.unique(["pid", "device"], keep="first"), on=["pid", "device"], how="left")
        .join(by_number.unique("device", keep="none"), on="device", how="left")
        .with_columns(sure=pl.coalesce("said", *([] if gpus.height > 1 else ["numbered"])))
        .with_columns(again=pl.col("sure").is_not_null() & ~pl.col("sure").is_first_distinct())
        .select("process", "device", "again", gpu=pl.coalesce("said", "numbered"))
    )
