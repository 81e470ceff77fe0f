"""What a process does once: CUDA's start-up in the first calls, and compiling a kernel before its first launch."""

from typing import Final

import numpy as np
import polars as pl

from advisor.model.arrays import Mask
from advisor.model.profile import END_NS, HOST_OP_KINDS, matches

COMPILATION: Final = "compilation of {}"
_SET_UP_NS: Final = 1_000_000  # taking or freeing memory takes microseconds
_COMPILES_NS: Final = 10_000_000  # no compiler of kernels is quicker
_AGAIN: Final = 0.5  # of the wait before the first launch: if it comes again, it is no compilation
_MODULE_LAUNCH: Final = r"^(?:cu|hip)(?:Ext)?(?:Module)?LaunchKernel|^cuLaunchKernelEx"
_NAME_LENGTH: Final = 60


def with_one_time_work(host: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """Host ops in which start-up is no allocation, and with the compilation of kernels that nothing else recorded.

    Args:
        host: Host ops, with `id` and `parent`.
        device: Device ops, with `launch` and `op`.
    """
    first = device["start_ns"].min()
    if not device.height or not isinstance(first, int):
        return host
    end = END_NS
    sets_up = (pl.col("kind") == "allocator") & (pl.col("dur_ns") >= _SET_UP_NS) & (end <= first)
    host = host.with_columns(
        kind=pl.when(sets_up).then(pl.lit("runtime", HOST_OP_KINDS)).otherwise("kind")  # there is nothing to free yet
    )
    rows = _compilations(host, device)
    return pl.concat([host, rows], how="diagonal_relaxed") if rows.height else host


def _compilations(host: pl.DataFrame, device: pl.DataFrame) -> pl.DataFrame:
    """Ranges of kind `compile`: an op's silence before it first launches a kernel of a module made while it ran.

    Code that is compiled at run time is launched through the driver. The device idles for 10 ms or more before the
    kernel's first launch, from the same op, and never again half as long before the same kernel.
    """
    waits = _waits(device)
    if not (waits["idle_ns"] >= _COMPILES_NS).any():
        return waits.clear()
    modules = host.filter(matches(_MODULE_LAUNCH)).select(launch="id", at="start_ns", call_thread="thread")
    firsts = waits.sort("start_ns").with_columns(
        again=pl.col("idle_ns").slice(1).max().over("name"), order=pl.int_range(pl.len()).over("name")
    )
    rows = firsts.filter(
        pl.col("order") == 0,
        pl.col("idle_ns") >= _COMPILES_NS,
        pl.col("again").is_null() | (pl.col("again") < _AGAIN * pl.col("idle_ns")),
    ).join(modules, on="launch")
    around = rows.filter(pl.Series(_runs_since(rows, host), dtype=pl.Boolean))
    title = around["name"].cast(pl.String).str.head(_NAME_LENGTH)
    return around.select(
        pl.int_range(host.height, host.height + pl.len(), dtype=pl.Int64).alias("id"),
        pl.col("call_thread").alias("thread"),
        pl.lit("compile", HOST_OP_KINDS).alias("kind"),
        pl.Series([COMPILATION.format(name) for name in title], dtype=pl.String)
        .cast(host.schema["name"])
        .alias("name"),
        (pl.col("start_ns") - pl.col("idle_ns")).alias("start_ns"),
        (pl.col("at") - pl.col("start_ns") + pl.col("idle_ns")).alias("dur_ns"),
    ).filter(pl.col("dur_ns") > 0)


def _waits(device: pl.DataFrame) -> pl.DataFrame:
    """Kernels with the idle time of their device before them: name, launch, start_ns, idle_ns."""
    end = END_NS.cum_max().shift(1).over("device")
    ordered = device.sort("start_ns").with_columns(idle_ns=(pl.col("start_ns") - end).clip(0).fill_null(0))
    return ordered.filter(pl.col("kind") == "kernel").select("name", "launch", "start_ns", "idle_ns")


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
