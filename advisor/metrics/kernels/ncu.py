"""What Nsight Compute shows of the kernels of a step: given beside a recording, and null without."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import polars as pl

from advisor.inputs.names.kernel_words import kernel_name
from advisor.inputs.ncu import Counters, base_name
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.text import largest_first, ms, percent

_FEW_ISSUED: Final = 0.8  # instructions per cycle
_STALLED: Final = 0.3  # of the cycles between two instructions
_EXCESS: Final = 0.1  # of the sectors, of the accesses
_OCCUPANCY: Final = 0.8
_RULES: Final = "NVIDIA Nsight Compute's rules CPIStall, UncoalescedGlobalAccess, SharedMemoryConflicts and Occupancy"


class _Limit(NamedTuple):
    """A limit of kernels: what it is, in words; and which kernels it limits, with the words for one of them."""

    words: str
    formula: str
    of: Callable[[Counters], str | None]


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


_LIMITS: Final = {
    "stalled": _Limit(
        "whose warps mostly wait for one thing",
        "under 0.8 instructions per cycle, and one stall over 30 % of the cycles between two instructions of a warp",
        _stall,
    ),
    "uncoalesced": _Limit(
        "that move more of global memory than their threads ask for", "over 10 % of the sectors in excess", _excess
    ),
    "bank_conflict": _Limit(
        "whose accesses of shared memory conflict", "over 10 % of the accesses by conflicts of banks", _conflicts
    ),
    "occupancy_limit": _Limit(
        "whose launch allows few warps at once", "under 80 % of the multiprocessor's warps", _occupancy
    ),
}

measure = of_devices(__name__, source=_RULES, unknown=lambda _: Missing("no_ncu"))
measure("ncu_share", lambda _: None).says(
    "Part of the step in kernels whose counters were given.", "time of kernels that the CSV of --ncu names / step time"
)
for _name, _limit in _LIMITS.items():
    measure(f"{_name}_kernels_share", lambda _: None).says(
        f"Part of the step in kernels {_limit.words}.", f"time of kernels with {_limit.formula} / step time"
    )
    measure(f"{_name}_kernels", lambda _: None, unit="text").says(
        f"The kernels {_limit.words}, the most time first.", f"those with {_limit.formula}"
    )


def values(kernels: pl.DataFrame, counters: Mapping[str, Counters], steps: int, steps_ms: float) -> dict[str, object]:
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
