"""Which GPU each process drove, what is known of it, and its sampled counters."""

from typing import Final

import polars as pl
from polars.datatypes import DataTypeClass

from advisor.inputs.readers.nsys import names
from advisor.inputs.readers.nsys.names import ints, sane
from advisor.inputs.readers.nsys.tables import Export
from advisor.model.profile import TEXT

_GPU: Final[dict[str, DataTypeClass]] = {
    "name": pl.String,
    **dict.fromkeys(("id", "totalMemory", "smCount", "computeMajor", "computeMinor"), pl.Int64),
    **dict.fromkeys(("cuDevice", "maxWarpsPerSm", "threadsPerWarp"), pl.Int64),
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
    types: dict[str, DataTypeClass] = {"typeId": pl.Int64, "metricId": pl.Int64, "metricName": pl.String}
    listed = export.rows("TARGET_INFO_GPU_METRICS", types, needs=tuple(types)).with_columns(
        metric=pl.coalesce(
            pl.when(pl.col("metricName").str.contains(of)).then(pl.lit(metric)) for of, metric in names.GPU_METRICS
        )
    )
    # Numbers are not stable from one version to the next, and a share needs a peak.
    metrics = listed.filter(pl.col("metric").is_not_null(), pl.col("metricName").str.contains("%", literal=True))
    metrics = metrics.unique(["typeId", "metricId"], keep="first")
    if not metrics.height:
        return pl.DataFrame(schema={"gpu": pl.Int64, "metric": TEXT, "at_ns": pl.Int64, "value": pl.Float64})
    ids = ", ".join(map(str, metrics["metricId"].unique().sort()))
    columns = {**ints("timestamp", "typeId", "metricId"), "value": pl.Float64}
    samples = export.rows("GPU_METRICS", columns, needs=tuple(columns), where=f'"metricId" IN ({ids})')
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
    )


def _numbers(export: Export, gpus: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """process, device and gpu (its number in the session's list)."""
    columns: dict[str, DataTypeClass] = dict.fromkeys(("gpuId", "cudaId", "pid"), pl.Int64)
    listed = export.rows("TARGET_INFO_CUDA_DEVICE", columns, needs=tuple(columns))
    known = listed.select(pid="pid", device=pl.col("cudaId").cast(pl.Int32, strict=False), said=pl.col("gpuId")).unique(
        ["pid", "device"], keep="first"
    )
    by_number = gpus.select(device=pl.col("cuda").cast(pl.Int32, strict=False), numbered="gpu").drop_nulls("device")
    return (
        used.with_columns(pid=pl.col("process") // (1 << 24) & 0xFFFFFF)
        .join(known, on=["pid", "device"], how="left")
        .join(by_number.unique("device", keep="none"), on="device", how="left")
        .select("process", "device", gpu=pl.coalesce("said", "numbered"))
    )
