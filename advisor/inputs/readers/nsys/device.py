"""Rows of an export as what ran on the devices, and the memory that was taken from them."""

from typing import Final

import polars as pl

from advisor.inputs.names.kernels import family
from advisor.inputs.readers.nsys import names
from advisor.inputs.readers.nsys.names import ints, name_of, process, records, sane, small, with_names
from advisor.inputs.readers.nsys.tables import Export
from advisor.model.profile import DEVICE_OP_KINDS, MEMORY_KINDS, TEXT

_DEVICE: Final = ("deviceId", "streamId", "correlationId", "globalPid")

_GRAPHICS: Final = {"OPENGL": "OpenGL", "VULKAN": "Vulkan", "DX12": "Direct3D 12"}

NAMELESS: Final = "unnamed kernel"
"""How kernels begin whose names the export does not hold; their numbers follow."""


def device_ops(export: Export) -> pl.DataFrame:
    """Kernels, collectives, copies, memsets, launches of CUDA graphs whose nodes were not recorded, and drawing.

    Where an op has no sound times, `dur_ns` is null.
    """
    parts = [_kernels(export), _copies(export), _memsets(export)]
    parts.append(_graphs(export, parts[0]))
    ops = pl.concat([*parts, *_drawing(export, pl.concat(parts, how="diagonal"))], how="diagonal")
    # Every schema tells the device; where a mangled one does not, it can only be the one that the process used.
    sole = pl.when(pl.col("device").n_unique() - pl.col("device").has_nulls() <= 1).then(
        pl.col("device").max().fill_null(0)
    )
    return ops.with_columns(pl.coalesce("device", sole.over("process"))).drop_nulls("device")


def allocations(export: Export) -> pl.DataFrame:
    """Device memory taken from and given back to the driver, with the running total per device."""
    columns = ints("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")
    needs = ("start", "bytes", "memoryOperationType")
    events = export.rows("CUDA_GPU_MEMORY_USAGE_EVENTS", columns, needs=needs)
    known = sane("start") & pl.col("bytes").is_between(0, 1 << 50) & pl.col("memoryOperationType").is_in([0, 1])
    on_device = names.memory_kind(pl.col("memKind")).cast(pl.String).is_in(["device", "managed"]).fill_null(value=True)
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
    known = texts.select("id", name=name_of("value"), kind=kind)
    return (
        kernels.with_columns(id=name_id)
        .join(known, on="id", how="left", maintain_order="left")
        .select(
            *_on_device(),
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
    memsets = records(export, "CUPTI_ACTIVITY_KIND_MEMSET", *_DEVICE, "bytes", "memKind", "graphNodeId")
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
    launches = records(export, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *_DEVICE, "graphId")
    ops = launches.select(
        *_on_device(),
        kind=pl.lit("kernel", DEVICE_OP_KINDS),
        name=pl.format("CUDA graph {}", pl.col("graphId").cast(pl.String).fill_null("?")).cast(TEXT),
        graph="graphId",
        whole_graph=True,
    )
    nodes = kernels.filter(pl.col("graph").is_not_null(), pl.col("correlation").is_not_null())
    return ops.join(nodes, on=["process", "correlation"], how="anti")


def _drawing(export: Export, computing: pl.DataFrame) -> list[pl.DataFrame]:
    """What draws on the device of a process that computes there; exports tell neither its launch nor CUDA's number."""
    return [
        with_names(records(export, f"{table}_WORKLOAD", "globalTid", "nameId"), "nameId", export)
        .select(
            *("start_ns", "dur_ns"),
            process=process(),
            stream=pl.lit(0, pl.Int64),
            kind=pl.lit("graphics", DEVICE_OP_KINDS),
            name=pl.format("{} {}", pl.lit(api), pl.col("name").cast(pl.String).fill_null("?")).cast(TEXT),
        )
        .join(computing, on="process", how="semi")
        for table, api in _GRAPHICS.items()
    ]


def _on_device() -> list[pl.Expr]:
    return [
        pl.col("start_ns"),
        pl.col("dur_ns"),
        pl.col("globalPid").alias("process"),
        small("deviceId").alias("device"),
        small("streamId").fill_null(0).cast(pl.Int64).alias("stream"),
        pl.col("correlationId").alias("correlation"),
    ]


def _size() -> pl.Expr:
    return pl.when(pl.col("bytes") >= 0).then("bytes")


def _product(*columns: str) -> pl.Expr:
    factors = [pl.col(column).cast(pl.Float64) for column in columns]
    return factors[0] * factors[1] * factors[2]


def _title(kind: pl.Expr) -> pl.Expr:
    return kind.cast(pl.String).str.to_titlecase().fill_null("Unknown")
