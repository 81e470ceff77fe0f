"""Sampled hardware counters: how much of the multiprocessors is at work, and whether memory or arithmetic limits it."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.model.intervals import Union
from advisor.model.missing import Missing

_HIGH: Final = 0.6  # of a peak: what limits a kernel is used at least so much
_ENOUGH: Final = 100  # samples in the steps used
_NEEDS: Final = ("device_ops", "gpu_samples")
_SOURCE: Final = "Nsight Systems' GPU metrics (--gpu-metrics-devices)"
_ROOFS: Final = "60 % of the peak: Nsight Compute's speed-of-light rule calls less than that latency-bound"


SM_ACTIVE_SHARE = Metric(
    "sm_active_share",
    "How many of the multiprocessors have work, while the device is busy.",
    "mean of the samples of SMs Active in the steps, taken while an op runs",
    _SOURCE,
)
TENSOR_ACTIVE_SHARE = Metric(
    "tensor_active_share",
    "How busy the Tensor Cores are, while the device is busy.",
    "mean of the samples of Tensor Active in the steps, taken while an op runs",
    _SOURCE,
)
DRAM_SHARE = Metric(
    "dram_share",
    "How much of the device memory's bandwidth is used, while the device is busy.",
    "mean of the samples of DRAM read and write together in the steps, taken while an op runs",
    _SOURCE,
)
MEMORY_BOUND_SHARE = Metric(
    "memory_bound_share",
    "Part of the step in which memory bandwidth limits what runs.",
    "samples in the steps with DRAM read and write of at least 60 % and more than SM Issue and Tensor Active "
    "/ samples in the steps",
    _ROOFS,
)
COMPUTE_BOUND_SHARE = Metric(
    "compute_bound_share",
    "Part of the step in which arithmetic limits what runs.",
    "samples in the steps with SM Issue or Tensor Active of at least 60 % and more than DRAM / samples there",
    _ROOFS,
)


@measures(SM_ACTIVE_SHARE, TENSOR_ACTIVE_SHARE, DRAM_SHARE, MEMORY_BOUND_SHARE, COMPUTE_BOUND_SHARE, needs=_NEEDS)
def counters(view: DeviceView) -> Values:
    """Means and limits from the samples in the used steps; a counter that was not sampled is unknown."""
    samples = _samples(view)
    if samples.height < _ENOUGH:
        return Missing("few_samples", samples=samples.height, needed=_ENOUGH)
    values = _means(samples) | _limits(samples)
    return {metric: Missing("counters_not_sampled") if value is None else value for metric, value in values.items()}


def _means(samples: pl.DataFrame) -> dict[Metric, float | None]:
    busy = samples.filter("busy").select(pl.mean("sm_active", "tensor_active", "dram")).row(0, named=True)
    return {SM_ACTIVE_SHARE: busy["sm_active"], TENSOR_ACTIVE_SHARE: busy["tensor_active"], DRAM_SHARE: busy["dram"]}


def _limits(samples: pl.DataFrame) -> dict[Metric, float | None]:
    """Which roof limits what runs; unknown unless samples of both are there."""
    arithmetic, dram = pl.max_horizontal("sm_issue", "tensor_active"), pl.col("dram")
    known = (dram.count() > 0) & (arithmetic.count() > 0)
    memory_bound = ((dram >= _HIGH) & (dram > arithmetic)).mean()
    compute_bound = ((arithmetic >= _HIGH) & (arithmetic > dram)).mean()
    shares = samples.select(memory=pl.when(known).then(memory_bound), compute=pl.when(known).then(compute_bound)).row(0)
    return {MEMORY_BOUND_SHARE: shares[0], COMPUTE_BOUND_SHARE: shares[1]}


def _samples(view: DeviceView) -> pl.DataFrame:
    """One row per instant sampled in the used steps: sm_active, sm_issue, tensor_active, dram (0..1), busy."""
    at = view.gpu_samples["at_ns"].to_numpy()
    windows = Union.of(view.starts, view.ends)
    inside = pl.Series(windows.within(at, at + 1) > 0, dtype=pl.Boolean)
    wide = (
        view.gpu_samples.filter(inside)
        .with_columns(pl.col("metric").cast(pl.String))
        .pivot("metric", index="at_ns", values="value", aggregate_function="mean", maintain_order=True)
    )
    wide = wide.with_columns(
        pl.lit(None, pl.Float64).alias(name)
        for name in ("sm_active", "sm_issue", "tensor_active", "dram_read", "dram_write")
        if name not in wide.columns
    )
    at = wide["at_ns"].to_numpy()
    return wide.select(
        "sm_active",
        "sm_issue",
        "tensor_active",
        dram=pl.col("dram_read") + pl.col("dram_write").fill_null(0),
        busy=pl.Series(view.busy.within(at, at + 1) > 0, dtype=pl.Boolean),
    )
