"""Hardware counters: sampled over the steps, or of single kernels as Nsight Compute shows them beside a recording."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.kernel_words import kernel_name
from advisor.inputs.ncu import Counters, base_name
from advisor.metrics.metric import Value, of_devices
from advisor.model.missing import Missing
from advisor.text import largest_first, ms, percent

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


_FEW_ISSUED: Final = 0.8  # instructions per cycle
_STALLED: Final = 0.3  # of the cycles between two instructions
_EXCESS: Final = 0.1  # of the sectors, of the accesses
_OCCUPANCY: Final = 0.8
_MISSING_WARPS: Final = 0.1  # of the warps: those that the launch allows and that were not there
_THREADS: Final = 0.75  # of a warp: 24 of 32
_RULES: Final = (
    "NVIDIA Nsight Compute's rules CPIStall, UncoalescedGlobalAccess, SharedMemoryConflicts, Occupancy, "
    "AchievedOccupancy and ThreadDivergence"
)


class _Limit(NamedTuple):
    """A limit of kernels: what it is, in words; and which kernels it limits, with the words for one of them."""

    words: str
    formula: str
    of: Callable[[Counters], str | None]


def _stall(of: Counters) -> str | None:
    is_idle = of.issued is not None and of.issued < _FEW_ISSUED
    is_stalled = is_idle and of.stalled is not None and of.stalled > _STALLED
    return f"{str(of.stall).replace('_', ' ')} {percent(of.stalled)}" if is_stalled and of.stalled else None


def _over_a_tenth(part: float | None, words: str) -> str | None:
    return f"{percent(part)} {words}" if part is not None and part > _EXCESS else None


def _occupancy(of: Counters) -> str | None:
    is_low = of.occupancy is not None and of.occupancy < _OCCUPANCY
    return f"{percent(of.occupancy)} of the warps, {of.limit}" if is_low and of.occupancy is not None else None


def _missing_warps(of: Counters) -> str | None:
    if of.occupancy is None or of.achieved is None or of.occupancy - of.achieved <= _MISSING_WARPS:
        return None
    if of.waves is not None and of.waves < 1:  # too few blocks for all multiprocessors, which their grid shows
        return None
    return f"{percent(of.achieved)} of the warps, {percent(of.occupancy)} allowed"


def _divergence(of: Counters) -> str | None:
    return f"{percent(of.threads)} of a warp's threads" if of.threads is not None and of.threads < _THREADS else None


_LIMITS: Final = {
    "stalled": _Limit(
        "whose warps mostly wait for one thing",
        "under 0.8 instructions per cycle, and one stall over 30 % of the cycles between two instructions of a warp",
        _stall,
    ),
    "uncoalesced": _Limit(
        "that move more of global memory than their threads ask for",
        "over 10 % of the sectors in excess",
        lambda of: _over_a_tenth(of.excess, "in excess"),
    ),
    "bank_conflict": _Limit(
        "whose accesses of shared memory conflict",
        "over 10 % of the accesses by conflicts of banks",
        lambda of: _over_a_tenth(of.conflicts, "by conflicts"),
    ),
    "occupancy_limit": _Limit(
        "whose launch allows few warps at once", "under 80 % of the multiprocessor's warps", _occupancy
    ),
    "lost_warps": _Limit(
        "that have fewer warps at once than their launch allows",
        "a wave of blocks or more, and over 10 % of the multiprocessor's warps allowed and not there",
        _missing_warps,
    ),
    "divergent": _Limit(
        "whose warps split up", "under 24 of a warp's 32 threads at work in a mean instruction", _divergence
    ),
}

of_kernels = of_devices(__name__, source=_RULES, unknown=lambda _: Missing("no_ncu"))
of_kernels("ncu_share", lambda _: None).says(
    "Part of the step in kernels whose counters were given.", "time of kernels that the CSV of --ncu names / step time"
)
for _name, _limit in _LIMITS.items():
    of_kernels(f"{_name}_kernels_share", lambda _: None).says(
        f"Part of the step in kernels {_limit.words}.", f"time of kernels with {_limit.formula} / step time"
    )
    of_kernels(f"{_name}_kernels", lambda _: None, unit="text").says(
        f"The kernels {_limit.words}, the most time first.", f"those with {_limit.formula}"
    )


def ncu_values(
    kernels: pl.DataFrame, counters: Mapping[str, Counters], steps: int, steps_ms: float
) -> dict[str, object]:
    """These metrics, of the table of kernels (name, total_ms) of so many used steps, which took `steps_ms` together."""
    spent: dict[str, float] = {}
    for symbol, total_ms in kernels.select("name", "total_ms").rows():
        spent[kernel_name(symbol)] = spent.get(kernel_name(symbol), 0.0) + total_ms
    known = {name: total_ms for name, total_ms in spent.items() if base_name(name) in counters}
    shares: dict[str, object] = {"ncu_share": min(1.0, sum(known.values()) / steps_ms)}
    for limit, what in _LIMITS.items():
        words = {name: text for name in known if (text := what.of(counters[base_name(name)]))}
        parts = [(f"{name}: {words[name]}", known[name] / steps) for name in words]
        shares[f"{limit}_kernels_share"] = min(1.0, sum(known[name] for name in words) / steps_ms)
        shares[f"{limit}_kernels"] = largest_first(sorted(parts, key=lambda part: -part[1]), ms)
    return shares
