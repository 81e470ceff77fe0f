"""Sampled hardware counters: how much of the multiprocessors is at work, and whether memory or arithmetic limits it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.steps import DeviceView
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.intervals import Union
from advisor.model.missing import Missing

_HIGH: Final = 0.6  # of a peak: what limits a kernel is used at least so much
_ENOUGH: Final = 100  # samples in the steps used
_NEEDS: Final = ("device_ops", "gpu_samples")
_SOURCE: Final = "Nsight Systems' GPU metrics (--gpu-metrics-devices)"
_ROOFS: Final = "60 % of the peak: Nsight Compute's speed-of-light rule calls less than that latency-bound"


@measures(
    Metric(
        "sm_active_share",
        "share",
        "How many of the multiprocessors have work, while the device is busy.",
        "mean of the samples of SMs Active in the steps, taken while an op runs",
        _SOURCE,
        _NEEDS,
    ),
    Metric(
        "tensor_active_share",
        "share",
        "How busy the Tensor Cores are, while the device is busy.",
        "mean of the samples of Tensor Active in the steps, taken while an op runs",
        _SOURCE,
        _NEEDS,
    ),
    Metric(
        "dram_share",
        "share",
        "How much of the device memory's bandwidth is used, while the device is busy.",
        "mean of the samples of DRAM read and write together in the steps, taken while an op runs",
        _SOURCE,
        _NEEDS,
    ),
    Metric(
        "memory_bound_share",
        "share",
        "Part of the step in which memory bandwidth limits what runs.",
        "samples in the steps with DRAM read and write of at least 60 % and more than SM Issue and Tensor Active "
        "/ samples in the steps",
        _ROOFS,
        _NEEDS,
    ),
    Metric(
        "compute_bound_share",
        "share",
        "Part of the step in which arithmetic limits what runs.",
        "samples in the steps with SM Issue or Tensor Active of at least 60 % and more than DRAM / samples there",
        _ROOFS,
        _NEEDS,
    ),
)
def counters(view: DeviceView) -> Mapping[str, Value]:
    """Means and limits from the samples in the used steps; a counter that was not sampled is unknown."""
    if not view.total_ns:
        return {}
    table = _samples(view)
    names = ("sm_active_share", "tensor_active_share", "dram_share", "memory_bound_share", "compute_bound_share")
    if table.height < _ENOUGH:
        return dict.fromkeys(names, Missing("few_samples", samples=table.height, needed=_ENOUGH))
    busy = table.filter("busy")
    arithmetic = pl.max_horizontal("sm_issue", "tensor_active")
    limits = table.select(
        memory=((pl.col("dram") >= _HIGH) & (pl.col("dram") > arithmetic)).mean(),
        compute=((arithmetic >= _HIGH) & (arithmetic > pl.col("dram"))).mean(),
    ).row(0, named=True)
    told = {name: busy[name].mean() for name in ("sm_active", "tensor_active", "dram")}
    absent = Missing("counters_not_sampled")
    values: dict[str, Value] = {
        f"{name}_share": mean if isinstance(mean, float) else absent for name, mean in told.items()
    }
    known = table["dram"].count() and table.select(arithmetic.count()).item()
    return values | {f"{limit}_bound_share": share if known else absent for limit, share in limits.items()}


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
