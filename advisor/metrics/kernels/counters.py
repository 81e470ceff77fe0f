"""Hardware counters: sampled over the steps, or of single kernels as Nsight Compute shows them beside a recording."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.kernel_words import kernel_name
from advisor.inputs.ncu import Counters, base_name
from advisor.metrics.metric import Value, of_devices
from advisor.model.clause import Missing, largest_first
from advisor.vocabulary.limits import table

_HIGH: Final = 0.6  # of a peak: what limits a kernel is used at least so much
_ENOUGH: Final = 100  # samples in the steps used
_SOURCE: Final = "Nsight Systems' GPU metrics (--gpu-metrics-devices)"
_ROOFS: Final = "60 % of the peak: Nsight Compute's speed-of-light rule calls less than that latency-bound"
_COUNTERS: Final = ("sm_active", "sm_issue", "tensor_active", "dram_read", "dram_write")


def _samples(view: DeviceView) -> pl.DataFrame:
    """The counters per instant sampled in the used steps (0..1, null if not sampled); arithmetic, dram and busy."""
    at = view.gpu_samples["at_ns"].to_numpy()
    inside = pl.Series(view.windows.covers(at), dtype=pl.Boolean)
    wide = (
        view.gpu_samples.filter(inside)
        .with_columns(pl.col("metric").cast(pl.String))
        .pivot("metric", index="at_ns", values="value", aggregate_function="mean", maintain_order=True)
    )
    wide = wide.with_columns(pl.lit(None, pl.Float64).alias(name) for name in _COUNTERS if name not in wide.columns)
    at = wide["at_ns"].to_numpy()
    return wide.with_columns(
        arithmetic=pl.max_horizontal("sm_issue", "tensor_active"),
        dram=pl.col("dram_read") + pl.col("dram_write").fill_null(0),
        busy=pl.Series(view.busy.covers(at), dtype=pl.Boolean),
    )


def _unknown(view: DeviceView) -> Missing | None:
    samples = view.once(_samples).height
    return Missing("few_samples", samples=samples, needed=_ENOUGH) if samples < _ENOUGH else None


def _while_busy(view: DeviceView, counter: str) -> Value:
    return _mean(view.once(_samples).filter("busy"), pl.col(counter))


def _limiting(view: DeviceView, roof: str, other: str) -> Value:
    """How often this roof limits what runs, of the samples of both."""
    return _mean(view.once(_samples), (pl.col(roof) >= _HIGH) & (pl.col(roof) > pl.col(other)))


def _mean(samples: pl.DataFrame, of: pl.Expr) -> Value:
    mean: float | None = samples.select(of.mean()).item()
    return Missing("counters_not_sampled") if mean is None else mean


measure = of_devices(__name__, source=_SOURCE, needs=("device_ops", "gpu_samples"), unknown=_unknown)

measure("sm_active_share", lambda view: _while_busy(view, "sm_active")).says(
    "How many of the multiprocessors have work, while the device is busy.",
    "mean of the samples of SMs Active in the steps, taken while an op runs",
)
measure("tensor_active_share", lambda view: _while_busy(view, "tensor_active")).says(
    "How busy the Tensor Cores are, while the device is busy.",
    "mean of the samples of Tensor Active in the steps, taken while an op runs",
)
measure("dram_share", lambda view: _while_busy(view, "dram")).says(
    "How much of the device memory's bandwidth is used, while the device is busy.",
    "mean of the samples of DRAM read and write together in the steps, taken while an op runs",
)
measure("memory_bound_share", lambda view: _limiting(view, "dram", "arithmetic")).says(
    "Part of the step in which memory bandwidth limits what runs.",
    "samples in the steps with DRAM read and write of at least 60 % and more than SM Issue and Tensor Active "
    "/ samples in the steps",
    _ROOFS,
)
measure("compute_bound_share", lambda view: _limiting(view, "arithmetic", "dram")).says(
    "Part of the step in which arithmetic limits what runs.",
    "samples in the steps with SM Issue or Tensor Active of at least 60 % and more than DRAM / samples there",
    _ROOFS,
)


_RULES: Final = (
    "NVIDIA Nsight Compute's rules CPIStall, UncoalescedGlobalAccess, SharedMemoryConflicts, Occupancy, "
    "AchievedOccupancy and ThreadDivergence"
)


_COUNTED: Final = {
    "name": pl.String,
    "ms": pl.Float64,
    **{field: pl.String if field in {"stall", "limit"} else pl.Float64 for field in Counters._fields},
}
_LIMITS: Final[dict[str, dict[str, str]]] = table(__file__, "counters")

of_kernels = of_devices(__name__, source=_RULES, unknown=lambda _: Missing("no_ncu"))
of_kernels("ncu_share", lambda _: None).says(
    "Part of the step in kernels whose counters were given.", "time of kernels that the CSV of --ncu names / step time"
)
for _name, _limit in _LIMITS.items():
    of_kernels(f"{_name}_kernels_share", lambda _: None).says(
        f"Part of the step in kernels {_limit['words']}.", f"time of kernels with {_limit['formula']} / step time"
    )
    of_kernels(f"{_name}_kernels", lambda _: None, unit="names").says(
        f"The kernels {_limit['words']}, the most time first.", f"those with {_limit['formula']}"
    )


def ncu_values(
    kernels: pl.DataFrame, counters: Mapping[str, Counters], steps: int, steps_ms: float
) -> dict[str, object]:
    """These metrics, of the table of kernels (name, total_ms) of so many used steps, which took `steps_ms` together."""
    spent: dict[str, float] = {}
    for symbol, total_ms in kernels.select("name", "total_ms").rows():
        spent[kernel_name(symbol)] = spent.get(kernel_name(symbol), 0.0) + total_ms
    known = [(name, ms, *counters[base_name(name)]) for name, ms in spent.items() if base_name(name) in counters]
    counted = pl.DataFrame(known, _COUNTED, orient="row").with_columns(missing=pl.col("occupancy") - pl.col("achieved"))
    shares: dict[str, object] = {"ncu_share": min(1.0, sum(counted["ms"]) / steps_ms)}
    for name, limit in _LIMITS.items():
        share, what = pl.sql_expr([limit["share"], limit["what"]])
        limited = counted.filter(pl.sql_expr(limit["when"])).select("name", "ms", share=share, what=what)
        parts = {row.pop("name"): row for row in limited.drop("ms").to_dicts()}
        shares[f"{name}_kernels_share"] = min(1.0, sum(limited["ms"]) / steps_ms)
        largest = largest_first(limited.select("name", "ms").rows(), unit=steps)
        shares[f"{name}_kernels"] = [row | parts.get(row["name"], {}) for row in largest]
    return shares
