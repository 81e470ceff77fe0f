"""Hardware counters: sampled over the steps, or of single kernels as Nsight Compute shows them beside a recording."""

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.kernel_words import kernel_name
from advisor.inputs.ncu import Counters, base_name
from advisor.metrics.metric import Value, of_devices
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing
from advisor.text import largest_first, ms, percent

_HIGH: Final = 0.6  # of a peak: what limits a kernel is used at least so much
_ENOUGH: Final = 100  # samples in the steps used
_COUNTERS: Final = ("sm_active", "sm_issue", "tensor_active", "dram_read", "dram_write")


def _samples(view: DeviceView) -> pl.DataFrame:
    """The counters per instant sampled in the used steps (0..1, null if not sampled); arithmetic, dram and busy."""
    at = view.gpu_samples["at_ns"].to_numpy()
    windows = Intervals.of(view.starts, view.ends)
    inside = pl.Series(windows.within(at, at + 1) > 0, dtype=pl.Boolean)
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
        busy=pl.Series(view.busy.within(at, at + 1) > 0, dtype=pl.Boolean),
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


measure = of_devices(__name__, needs=("device_ops", "gpu_samples"), unknown=_unknown)

measure("sm_active_share", lambda view: _while_busy(view, "sm_active"))
measure("tensor_active_share", lambda view: _while_busy(view, "tensor_active"))
measure("dram_share", lambda view: _while_busy(view, "dram"))
measure("memory_bound_share", lambda view: _limiting(view, "dram", "arithmetic"))
measure("compute_bound_share", lambda view: _limiting(view, "arithmetic", "dram"))


_FEW_ISSUED: Final = 0.8  # instructions per cycle
_STALLED: Final = 0.3  # of the cycles between two instructions
_EXCESS: Final = 0.1  # of the sectors, of the accesses
_OCCUPANCY: Final = 0.8


def _stall(of: Counters) -> str | None:
    is_idle = of.issued is not None and of.issued < _FEW_ISSUED
    is_stalled = is_idle and of.stalled is not None and of.stalled > _STALLED
    return f"{str(of.stall).replace('_', ' ')} {percent(of.stalled)}" if is_stalled and of.stalled else None


def _excess(of: Counters) -> str | None:
    return f"{percent(of.excess)} in excess" if of.excess is not None and of.excess > _EXCESS else None


def _conflicts(of: Counters) -> str | None:
    return f"{percent(of.conflicts)} by conflicts" if of.conflicts is not None and of.conflicts > _EXCESS else None


def _occupancy(of: Counters) -> str | None:
    is_low = of.occupancy is not None and of.occupancy < _OCCUPANCY
    return f"{percent(of.occupancy)} of the warps, {of.limit}" if is_low and of.occupancy is not None else None


_LIMITS: Final[Mapping[str, Callable[[Counters], str | None]]] = {
    "stalled": _stall,
    "uncoalesced": _excess,
    "bank_conflict": _conflicts,
    "occupancy_limit": _occupancy,
}
"""By limit, the words for a kernel that it limits."""

of_kernels = of_devices(__name__, unknown=lambda _: Missing("no_ncu"))
of_kernels("ncu_share", lambda _: None)
for _limit in _LIMITS:
    of_kernels(f"{_limit}_kernels_share", lambda _: None)
    of_kernels(f"{_limit}_kernels", lambda _: None, unit="text")


def ncu_values(
    kernels: pl.DataFrame, counters: Mapping[str, Counters], steps: int, steps_ms: float
) -> dict[str, object]:
    """These metrics, of the table of kernels (name, total_ms) of so many used steps, which took `steps_ms` together."""
    spent: dict[str, float] = {}
    for symbol, total_ms in kernels.select("name", "total_ms").rows():
        spent[kernel_name(symbol)] = spent.get(kernel_name(symbol), 0.0) + total_ms
    known = {name: total_ms for name, total_ms in spent.items() if base_name(name) in counters}
    shares: dict[str, object] = {"ncu_share": min(1.0, sum(known.values()) / steps_ms)}
    for limit, words_of in _LIMITS.items():
        words = {name: text for name in known if (text := words_of(counters[base_name(name)]))}
        parts = [(f"{name}: {words[name]}", known[name] / steps) for name in words]
        shares[f"{limit}_kernels_share"] = min(1.0, sum(known[name] for name in words) / steps_ms)
        shares[f"{limit}_kernels"] = largest_first(sorted(parts, key=lambda part: -part[1]), ms)
    return shares
