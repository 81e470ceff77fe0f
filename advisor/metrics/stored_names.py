"""What ran by name, as a store keeps it of a run, and the metrics of later selections that this answers.

A name has its count, its time, and the time that it has alone, while nothing else of its kind goes on. The time of
several names lies between what they have alone and the sum of their times: it is known where both agree.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.kernels import classify, kernel_name
from advisor.metrics.metric import Metric, Value
from advisor.metrics.selection_gains import Measured
from advisor.metrics.selectors import Kind, Selector
from advisor.model.clause import Entries, Missing, largest_first
from advisor.model.intervals import Intervals, Ints

KINDS: Final[tuple[Kind, ...]] = ("ops", "kernels", "calls", "frames", "ranges")
"""What a store has of each run; copies have no names."""
_MOST_NAMES: Final = 4_000
_BY_NAMES: Final = frozenset({"kind", "names", "besides", "families"})
"""What a selection may ask for that its names tell."""
_LITTLE: Final = 1e-3  # of a time: bounds that are so close are one number
_LATER: Final = Missing("stored_before_rule")


class Names(msgspec.Struct, frozen=True):
    """What ran of one kind in the used steps: by name its count, its time and the time that it has alone, in ns."""

    steps: int
    total_ns: int
    names: list[str]
    counts: list[int]
    times_ns: list[int]
    alone_ns: list[int]


def _encoded(every: Selector, view: DeviceView) -> Value:
    """All names of its kind as JSON."""
    rows = view.once(every.rows)
    names = rows.select("id", name=pl.col("name").cast(pl.String)).drop_nulls("name")
    counts = names.group_by("name").len().sort("name")
    if counts.height > _MOST_NAMES:
        return _LATER
    numbers = names.join(counts.with_row_index("number"), on="name").select("id", "number")
    ranges = every.ranges(view).join(numbers, on="id")
    times_ns, alone_ns = _times(steps := every.steps(view), ranges, counts.height)
    of_names = counts["name"].to_list(), counts["len"].to_list()
    return msgspec.json.encode(Names(view.steps.height, steps.total, *of_names, times_ns, alone_ns)).decode()


def _times(steps: Intervals, ranges: pl.DataFrame, names: int) -> tuple[list[int], list[int]]:
    """By number of a name, the union of its ranges in the used steps, and what no other name's ranges cover of it."""
    ranges = ranges.sort("number", "start_ns")
    number, start, end = (ranges[of].to_numpy().astype(np.int64) for of in ("number", "start_ns", "end_ns"))
    bounds = np.searchsorted(number, np.arange(names + 1))
    own = [Intervals.of(start[a:b], end[a:b]) for a, b in pairwise(bounds)]
    times = [(of & steps).total for of in own]
    if not own:
        return [], []
    starts, ends = (np.concatenate([getattr(of, edge) for of in own]) for edge in ("starts", "ends"))
    numbers = np.repeat(np.arange(names), [len(of.starts) for of in own])
    return times, _alone(steps, starts, ends, numbers, names)


def _alone(steps: Intervals, starts: Ints, ends: Ints, numbers: Ints, names: int) -> list[int]:
    """By number, the time in the used steps in which its range is the only one."""
    at, by = np.concatenate([starts, ends]), np.concatenate([numbers, -numbers])
    opened = np.repeat([1, -1], len(starts))
    order = np.argsort(at, kind="stable")
    open_, which = np.cumsum(opened[order])[:-1], np.cumsum(by[order])[:-1]
    length = np.diff(steps.before(at[order]))
    is_alone = open_ == 1
    alone = np.zeros(names, np.int64)
    np.add.at(alone, which[is_alone], length[is_alone])
    return [int(of) for of in alone]


NAME_METRICS: Final[Mapping[Kind, Metric]] = {
    of.kind: Metric(
        f"names_of_{of.kind}",
        f"The names of {of.words}.",
        partial(_encoded, of),
        unit="text",
        needs=of.needs,
        unknown=of.unknown,
    )
    for of in map(Selector, KINDS)
}
"""The metrics that a store measures beside the others and takes out of the report."""


def answer(metric: Metric, tables: Mapping[Kind, Names]) -> Value:
    """A metric of a selection from the names that are stored of a worker; why not, where they do not tell it."""
    number = metric.of
    if not isinstance(number, Measured) or number.end not in _ENDS:
        return _LATER
    of = number.selector
    names = tables.get(of.kind)
    is_plain = all(getattr(of, field.name) == field.default for field in fields(of) if field.name not in _BY_NAMES)
    return _ENDS[number.end](names, _hits(of, names)) if names and is_plain else _LATER


def _hits(of: Selector, names: Names) -> Ints:
    """The numbers of the names that are selected."""
    text = pl.Series(names.names, dtype=pl.String)
    is_hit = text.str.contains(of.names) if of.names else pl.repeat(value=True, n=len(text), eager=True)
    if of.besides:
        is_hit &= ~text.str.contains(of.besides)
    if of.families:
        is_hit &= classify(text)["family"].cast(pl.String).is_in(of.families).fill_null(value=False)
    return np.flatnonzero(is_hit.to_numpy())


def _time(names: Names, hits: Ints, unit_ns: float) -> float | Missing:
    times, alone = (np.array(of, np.int64)[hits] for of in (names.times_ns, names.alone_ns))
    least, most = max(int(alone.sum()), int(times.max(initial=0))), int(times.sum())
    return most / unit_ns if most - least <= _LITTLE * most else _LATER


def _count(names: Names, hits: Ints) -> int:
    return sum(names.counts[hit] for hit in hits)


def _largest(names: Names, hits: Ints) -> Entries:
    times = ((kernel_name(names.names[hit]), names.times_ns[hit]) for hit in hits)
    return largest_first(times, unit=1e6 * names.steps)


_ENDS: Final[dict[str, Callable[[Names, Ints], Value]]] = {
    "share": lambda names, hits: _time(names, hits, names.total_ns),
    "ms": lambda names, hits: _time(names, hits, 1e6 * names.steps),
    "per_step": lambda names, hits: _count(names, hits) / names.steps,
    "count": _count,
    "names": _largest,
}
"""By the end of a metric's name, how the names tell it."""
