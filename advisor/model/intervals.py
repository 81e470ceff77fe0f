"""Disjoint intervals of time, overlaps and nesting of [start, end) in integer nanoseconds; arrays that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


_NONE = np.empty(0, np.int64)
_LONGEST = int(np.iinfo(np.int64).max)
_USUAL_DEPTH = 64  # of ranges in one another; from there a search costs less than a walk up


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals in ascending order. Overlapping time counts once; touching intervals are merged."""

    starts: Ints  # shape (n,), in ns, as the others; may be what the intervals were made of
    ends: Ints

    @classmethod
    def of(cls, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Intervals:
        """Any intervals, in any order, merged; those without length cover nothing."""
        start, end = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        del starts, ends  # they may fill memory
        real = end > start
        if not real.all():
            start, end = start[real], end[real]
        if not len(start):
            return EMPTY
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start = start[order]
            end = end[order]
        reach = np.maximum.accumulate(end)
        first = np.concatenate(([True], start[1:] > reach[:-1]))
        return cls(start, reach) if first.all() else cls(start[first], reach[np.append(first[1:], True)])

    @cached_property
    def total(self) -> int:
        """Covered time in ns."""
        return int((self.ends - self.starts).sum())

    @cached_property
    def _before(self) -> Ints:
        """The time covered before each."""
        before = np.zeros(len(self.starts), np.int64)
        np.cumsum((self.ends - self.starts)[:-1], out=before[1:])
        return before

    def before(self, times: npt.ArrayLike) -> Ints:
        """Time covered before each of `times`, in ns; same shape as `times`."""
        at = np.asarray(times, np.int64)
        if not len(self.starts):
            return np.zeros(at.shape, np.int64)
        i = np.searchsorted(self.starts, at, side="right") - 1
        inside = np.minimum(at, self.ends[i]) - self.starts[i]
        return np.where(i < 0, 0, self._before[i] + inside)

    def covers(self, times: npt.ArrayLike) -> Mask:
        """Whether each of `times` lies in an interval; same shape as `times`."""
        at = np.asarray(times, np.int64)
        i = np.searchsorted(self.starts, at, side="right") - 1
        return (i >= 0) & (at < self.ends[i]) if len(self.starts) else np.zeros(at.shape, bool)

    def last_end(self, times: npt.ArrayLike) -> Ints:
        """End of the last interval that ended at or before each of `times`; the time itself where none has."""
        at = np.asarray(times, np.int64)
        i = np.searchsorted(self.ends, at, side="right") - 1
        return np.where(i < 0, at, self.ends[i]) if len(self.ends) else at

    def within(self, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Ints:
        """Time covered inside each window [start, end), in ns; one value per window."""
        return self.before(ends) - self.before(starts)

    def __or__(self, other: Intervals) -> Intervals:
        """Time covered by either."""
        if not len(self.starts) or not len(other.starts):
            return self if len(self.starts) else other
        return Intervals.of(np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends)))

    def __and__(self, other: Intervals) -> Intervals:
        """Time covered by both."""
        if not len(self.starts) or not len(other.starts):
            return EMPTY
        first = np.searchsorted(other.ends, self.starts, "right")
        count = np.searchsorted(other.starts, self.ends, "left") - first  # of the other's intervals that each meets
        own = np.repeat(np.arange(len(self.starts)), count)
        theirs = np.arange(len(own)) - np.repeat(np.cumsum(count) - count - first, count)
        starts = np.maximum(self.starts[own], other.starts[theirs])
        return Intervals(starts, np.minimum(self.ends[own], other.ends[theirs]))

    def __sub__(self, other: Intervals) -> Intervals:
        """Time covered by this one and not by the other."""
        rest = Intervals(np.append(-_LONGEST, other.ends), np.append(other.starts, _LONGEST))
        return self & rest if len(other.starts) else self

    def part_of(self, other: Intervals) -> float:
        """How much of the other's time this covers, 0..1; 0 where that has none."""
        return (self & other).total / max(1, other.total)

    def bridged(self, longest: int) -> Intervals:
        """The same with the gaps covered that are no longer than so many ns."""
        apart = self.starts[1:] - self.ends[:-1] > longest
        ends = np.concatenate((apart, [True])) if len(self.ends) else np.zeros(0, bool)
        return Intervals(self.starts[np.roll(ends, 1)], self.ends[ends])

    def shifted(self, by: int) -> Intervals:
        """The same so many ns later."""
        return Intervals(self.starts + by, self.ends + by)

    def of_length(self, above: int, up_to: int = _LONGEST) -> Intervals:
        """The intervals that are longer than `above` ns and no longer than `up_to` ns."""
        length = self.ends - self.starts
        fits = (length > above) & (length <= up_to)
        return Intervals(self.starts[fits], self.ends[fits])

    def gaps(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """The uncovered intervals of each window [start, end), ascending: starts, ends, the number of the window."""
        first = np.searchsorted(self.ends, starts, "right")
        count = np.maximum(np.searchsorted(self.starts, ends, "left") - first, 0) + 1
        window, after = np.repeat(np.arange(len(starts)), count), np.cumsum(count)
        following = np.arange(len(window)) + np.repeat(first + count - after, count)
        opens, closes = np.append(self.ends, 0)[following - 1], np.append(self.starts, 0)[following]
        opens[after - count], closes[after - 1] = starts, ends
        real = closes > opens
        return opens[real], closes[real], window[real]


EMPTY = Intervals(_NONE, _NONE)


def begun(moments: npt.ArrayLike, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Ints:
    """How many of these moments, in any order, lie in each window [start, end); one number per window."""
    at = np.sort(np.asarray(moments, np.int64))
    return np.searchsorted(at, ends) - np.searchsorted(at, starts)


def shared_out(times: Mapping[str, Intervals], starts: Ints, ends: Ints) -> dict[str, Ints]:
    """By name, the time in each window [start, end) that these cover and none before them does, in ns."""
    covered, last, own = EMPTY, EMPTY, {}
    for name, when in times.items():
        if len(when.starts):  # a union of many is not made for the last
            covered, last = covered | last, when
        own[name] = (when - covered).within(starts, ends)
    return own


def nest(views: npt.ArrayLike, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Ints:
    """Index of each interval's innermost enclosing interval on the same view, -1 at the top; shape (n,).

    A view is a thread. Intervals that overlap without nesting (rounded clocks, a range that a call opens and leaves
    open) get the innermost one that is open from their start to their middle or longer. Of two equal intervals the one
    that comes first in the input encloses the other.
    """
    return _each_view(_parents, views, starts, ends)


def crossed(views: npt.ArrayLike, starts: npt.ArrayLike, ends: npt.ArrayLike, by: int) -> Ints:
    """Index of the innermost interval that each begins in and outlasts, by more than `by` each; -1 without one."""

    def outlasted(start: Ints, end: Ints) -> Ints:
        inner = _last_above(end, np.arange(len(start)), start + by)
        return np.where((inner >= 0) & (end[inner] + by < end), inner, -1)

    return _each_view(outlasted, views, starts, ends)


def _each_view(function: Callable[[Ints, Ints], Ints], views: npt.ArrayLike, *times: npt.ArrayLike) -> Ints:
    """What the function gives of the intervals of one view, sorted by start then longest first: their indices.

    All views are worked on at once, one behind the other on one axis, unless that is too long for 64 bits.
    """
    view, start, end = np.asarray(views), *(np.asarray(of, np.int64) for of in times)
    order = np.lexsort((-end, start, view))
    indices = np.full(len(order), -1, np.int64)
    if not len(order):
        return indices
    of_view = np.cumsum(np.diff(view[order], prepend=view[order[:1]]) != 0)
    first_ns, length_ns = int(start.min()), int(end.max()) - int(start.min()) + 2
    if length_ns * (int(of_view[-1]) + 2) < _LONGEST:
        groups, later = [order], np.empty_like(start)
        later[order] = of_view * length_ns - first_ns
        start, end = start + later, end + later
    else:
        groups = np.split(order, np.flatnonzero(np.diff(of_view)) + 1)
    for rows in groups:
        inner = function(start[rows], end[rows])
        indices[rows] = np.where(inner < 0, -1, rows[inner])
    return indices


def nearest(counts: Mask, parent: Ints) -> Ints:
    """Of each interval itself or the innermost around it (see `nest`) that counts; -1 where none is.

    Each round doubles the reach.
    """
    up = np.where(counts, np.arange(len(parent)), parent)
    while not np.array_equal(further := above(up, up), up):
        up = further
    return up


def around(chosen: Mask, parent: Ints) -> Mask:
    """Which intervals enclose one that is chosen; shapes as of `nearest`."""
    enclosing = np.zeros(len(parent), np.bool_)
    up = np.flatnonzero(chosen)
    while len(up := np.unique(parent[up])) and len(up := up[(up >= 0) & ~enclosing[up]]):
        enclosing[up] = True
    return enclosing


def above(of: Ints, row: Ints) -> Ints:
    """`of[row]`, and -1 where `row` is -1."""
    return np.where(row >= 0, of[row], -1) if len(of) else np.full(len(row), -1, np.int64)


def _parents(start: Ints, end: Ints) -> Ints:
    """Parents within one view, sorted by start then longest first: the nearest earlier one that is open long enough."""
    end = np.maximum(end, start + 1)  # one without length is open for the instant
    middle = start + (end - start) // 2
    parent, rows = np.arange(-1, len(start) - 1), np.arange(len(start))
    for _ in range(_USUAL_DEPTH):
        rows = rows[(parent[rows] >= 0) & (end[parent[rows]] <= middle[rows])]
        if not len(rows):
            return parent
        parent[rows] = parent[parent[rows]]  # all that lies between the two is over by the middle of the later one
    parent[rows] = _last_above(end, rows, middle[rows])
    return parent


def _last_above(values: Ints, before: Ints, limits: Ints) -> Ints:
    """Of each place and limit the last place before it whose value is above the limit; -1 where none is.

    A tree of maxima: from the place up to a part of the array that holds such a value, and down to it.
    """
    maxima = [np.append(values, np.full(-len(values) % (1 << len(values).bit_length()), np.iinfo(np.int64).min))]
    while len(maxima[-1]) > 1:
        maxima.append(maxima[-1].reshape(-1, 2).max(axis=1))
    height, part, end = np.full(len(before), -1), np.full(len(before), -1, np.int64), before.copy()
    for level, highest in enumerate(maxima):
        places = np.flatnonzero((height < 0) & (end >> level & 1 > 0))
        holds = highest[(end[places] >> level) - 1] > limits[places]
        height[places[holds]], part[places[holds]] = level, (end[places[holds]] >> level) - 1
        end[places[~holds]] -= 1 << level
    for level in range(len(maxima) - 1, 0, -1):
        rows = np.flatnonzero(height >= level)
        later = 2 * part[rows] + 1
        part[rows] = np.where(maxima[level - 1][later] > limits[rows], later, later - 1)
    return part
