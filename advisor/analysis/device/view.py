"""What every metric looks through: the profile over the steps that are used, one view per worker and device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl

from advisor.inputs.hardware import Gpu, generation, match
from advisor.inputs.names.calls import FREES
from advisor.inputs.names.kernels import classify
from advisor.model.clause import Entries, Missing, largest_first
from advisor.model.intervals import Intervals, Ints, above
from advisor.model.profile import END_NS, Profile, matches, rows_where
from advisor.model.profile import spans as spans  # noqa: PLC0414 - for who looks through views
from advisor.vocabulary.kinds import DRIVER_CALLS, START_UP
from advisor.vocabulary.limits import SLOW_CALL_NS

_LOADING: Final = r"^(?:cu|hip)(?:Module|Library)(?:Load|Get)|^(?:cu|hip)KernelGet"
_WAITING: Final = r"(?i)memcpy|memset|synchronize|query|wait"  # for what runs already, as a first call too
_SET_UP_NS: Final = 10_000_000  # no call of a process that is set up takes so long before any work

_OF_STEPS: Final = ("steps", "outliers", "incomplete", "visible")  # tables of no single events

T = TypeVar("T")


class ByName:
    """The rows of a table by their names: a pattern is held against each name once, and not against each row."""

    def __init__(self, names: pl.Series) -> None:
        rows = names.rename("name").to_frame().with_row_index("row").group_by("name").agg("row")
        self._names, self._rows = rows["name"].cast(pl.String), rows["row"]
        self._none = pl.Series("row", dtype=pl.UInt32)
        self._known: dict[str, pl.Series] = {}

    def like(self, pattern: str) -> pl.Series:
        """The numbers of the rows whose name matches the regular expression, ascending."""
        if pattern not in self._known:
            hits = self._names.str.contains(pattern)  # most patterns are of another framework
            self._known[pattern] = self._rows.filter(hits).explode().sort() if hits.any() else self._none
        return self._known[pattern]


@dataclass(frozen=True, eq=False)
class DeviceView:
    """One device of one worker (device None: a worker that used none) over its used steps.

    `starts` and `ends` are the step windows in ns, shape (steps,), ascending and disjoint. `outliers` are steps left
    out because they took too long or compiled, `incomplete` those of which a part lacks. `ops` holds the device's ops
    and `host` the worker's host ops, whole recording each: what surrounds a step can explain it. `devices` is how
    many the worker used. `threads`, `os_calls`, `off_cpu` and `host_samples` are the worker's and those of processes of
    the job that could be any worker's; `gpu_samples` are the device's.
    """

    worker: int
    device: int | None
    has_marks: bool
    steps: pl.DataFrame
    outliers: pl.DataFrame
    incomplete: pl.DataFrame
    devices: int
    used: tuple[int, ...]  # the worker's devices that ran anything, copies too
    working: tuple[int, ...]  # the worker's devices that ran kernels
    ops: pl.DataFrame
    process_ops: pl.DataFrame  # ops of all of the worker's devices
    host: pl.DataFrame
    allocations: pl.DataFrame
    collectives: pl.DataFrame
    collective_log: pl.DataFrame
    threads: pl.DataFrame
    os_calls: pl.DataFrame
    off_cpu: pl.DataFrame
    host_samples: pl.DataFrame
    gpu_samples: pl.DataFrame
    facts: Mapping[str, Any]  # the device's row; empty where nothing is known of it
    process: Mapping[str, Any]  # the worker's row
    visible: pl.DataFrame  # devices that the worker's process sees, as described: device, name, sm_count, capability
    loses_ops: bool = False  # for their times: the device may work while it seems idle
    host_doubt: Missing | None = None  # why the host may work while it seems idle
    gpu_blocks: int = 0  # of memory that the worker took from devices
    _computed: dict[Callable[[DeviceView], Any], Any] = field(default_factory=dict, repr=False)
    _unions: dict[tuple[str, ...], Intervals] = field(default_factory=dict, repr=False)

    @cached_property
    def starts(self) -> Ints:
        """Start of each window in ns."""
        return self.steps["start_ns"].to_numpy()

    @cached_property
    def ends(self) -> Ints:
        """End of each window in ns."""
        ends: Ints = self.starts + self.steps["dur_ns"].to_numpy()
        return ends

    @cached_property
    def recorded(self) -> tuple[int, int]:
        """The worker's start, or its first event, and the end of its last, in ns, without the recorder's own calls."""
        moments = pl.concat([table.select("start_ns", end=END_NS) for table in (self.host, self.ops)])
        first, last = moments.select(pl.min("start_ns"), pl.max("end")).row(0)
        begin, end = self.process.get("recorded_start_ns"), self.process.get("recorded_end_ns")
        if begin is None and self.process.get("work_start_ns") is not None:  # else it may have been at work for long
            begin = self.process.get("process_start_ns")
        return (first or 0) if begin is None else begin, (last or 0) if end is None else end

    @property
    def recorded_ns(self) -> int:
        """The time from one to the other."""
        return self.recorded[1] - self.recorded[0]

    @cached_property
    def complete(self) -> pl.DataFrame:
        """The used and the uneven steps together."""
        return pl.concat([self.steps, self.outliers]).sort("start_ns", maintain_order=True)

    @cached_property
    def lasting(self) -> pl.DataFrame:
        """The steps that the mean step is of: the used and the uneven ones, without those that start up.

        A step that compiles before the first that is used does so once.
        """
        first = self.steps["start_ns"].min() if self.steps.height else None
        left_out, early = pl.col("left_out"), pl.col("start_ns") < pl.lit(first, pl.Int64)
        starts = left_out.is_in(START_UP) | ((left_out == "compiled") & early)
        return self.complete.filter(~starts.fill_null(value=False))

    @cached_property
    def total_ns(self) -> int:
        """Length of all windows together."""
        return int(self.steps["dur_ns"].sum())

    @cached_property
    def only_collectives(self) -> bool:
        """Whether the recording is an extract that shows neither what computes nor what idles."""
        return bool(self.ops.height and not self.host.height and (self.ops["kind"] == "collective").all())

    @cached_property
    def gpu(self) -> Gpu | None:
        """What the hardware table knows of the device; None where it cannot be told which it is."""
        known = {fact: self.facts.get(fact) for fact in ("memory_bytes", "sm_count", "capability")}
        return match(self.facts.get("name"), **known)

    @cached_property
    def chip(self) -> Gpu | None:
        """The same; of a GPU that the table does not list, what those of its compute capability have in common."""
        return self.gpu or generation(self.facts.get("name"), self.facts.get("capability"))

    @property
    def memory_gbs(self) -> float | None:
        """The bandwidth of the device's memory: by the hardware table, else as the profile states it."""
        return (self.gpu and self.gpu.memory_bandwidth_gbs) or self.facts.get("memory_gbs")

    @property
    def is_of_nsight(self) -> bool:
        """Whether Nsight Systems recorded it, and no profiler of a framework."""
        return str(self.process.get("producer")).startswith("Nsight Systems")

    @property
    def is_of_one_run(self) -> bool:
        """Whether it is of one `session.run` of TensorFlow, before and behind which the device has nothing to do."""
        return self.process.get("producer") == "TensorFlow's timeline"

    @cached_property
    def reserved(self) -> pl.DataFrame:
        """The device's allocations; `reserved_bytes` is all that an allocator may give where it takes that at once."""
        may_give = pl.col("allocated_bytes") + pl.col("available_bytes")
        return self.allocations.with_columns(pl.coalesce("reserved_bytes", may_give))

    @cached_property
    def busy(self) -> Intervals:
        """When at least one kernel, copy or memset runs on the device."""
        return spans(self.ops)

    @cached_property
    def blocked(self) -> Intervals:
        """When a host thread waits for the device: in a call that synchronises or frees, held up by a full queue."""
        calls = self.host.select("kind", "name", "start_ns", "dur_ns").filter(pl.col("kind").is_in(DRIVER_CALLS))
        waits = spans(calls.filter(pl.col("kind") == "sync"))
        holds_up = (pl.col("kind") == "runtime") | ((pl.col("kind") == "allocator") & matches(FREES))
        slow = spans(calls.filter(holds_up, pl.col("dur_ns") > SLOW_CALL_NS))
        return waits | (slow & self.busy)

    @cached_property
    def used_ops(self) -> pl.DataFrame:
        """Device ops that start inside a window, with the `window` (row of `steps`) they start in."""
        return started_in(self.ops, self.starts, self.ends)

    @cached_property
    def used_kernels(self) -> pl.DataFrame:
        """The kernels among them, without collectives."""
        return rows_where(self.used_ops, pl.col("kind") == "kernel")

    @cached_property
    def used_host(self) -> pl.LazyFrame:
        """Host ops that start inside the host's range of a used step, with the `window`.

        Lazy, because they are most of the largest table: ask for the columns and rows that are needed.
        """
        return self.windowed.lazy().filter(pl.col("window").is_not_null())

    @cached_property
    def windowed(self) -> pl.DataFrame:
        """All host ops with the `window`, null outside; the columns are those of `host`, no copies."""
        return self.host.with_columns(window_of(self.host, *host_bounds(self.steps)))

    def once(self, compute: Callable[[DeviceView], T]) -> T:
        """`compute(self)`, computed at its first use: several metrics share it."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        result: T = self._computed[compute]
        return result

    def forget(self) -> None:
        """Let go of what was computed: it refers to the view and would stay, with all tables, until Python looks."""
        self._computed.clear()

    def host_like(self, pattern: str, *kinds: str) -> pl.DataFrame:
        """Host ops whose name matches the regular expression; of these kinds, where any are given."""
        return self._like(self.host, pattern, kinds)

    def used_like(self, pattern: str, *kinds: str) -> pl.DataFrame:
        """Those of them in `used_host`."""
        rows = self._like(self.windowed, pattern, kinds)
        return rows if rows.is_empty() else rows.filter(pl.col("window").is_not_null())

    def _like(self, host: pl.DataFrame, pattern: str, kinds: tuple[str, ...]) -> pl.DataFrame:
        rows = self._host_by_name.like(pattern)
        if rows.is_empty():
            return host.clear()
        return host[rows.filter(self.host["kind"].gather(rows).is_in(kinds)) if kinds else rows]

    @cached_property
    def _host_by_name(self) -> ByName:
        return ByName(self.host["name"])

    def with_host(self, rows: pl.DataFrame, by: str, **columns: str) -> pl.DataFrame:
        """The rows with columns of the host op whose id `by` holds, `called_ns="start_ns"` say; null where none is."""
        at = pl.Series(positions(self.host, rows[by])).replace(-1, None)
        return rows.with_columns(self.host[column].gather(at).alias(name) for name, column in columns.items())

    def host_of(self, ids: pl.Series) -> pl.DataFrame:
        """The host ops with these ids, each once, in the order of the table."""
        at, is_sought = positions(self.host, ids), np.zeros(self.host.height, bool)
        is_sought[at[at >= 0]] = True
        return self.host[np.flatnonzero(is_sought)]

    def outward(self, ids: pl.Series) -> Iterator[Ints]:
        """Rows of `host` by level: those with these ids, those right around them, and so on; -1 where none is."""
        at, parent = positions(self.host, ids), np.append(positions(self.host, self.host["parent"]), -1)
        while (at >= 0).any():
            yield at
            at = parent[at]

    def host_spans(self, *kinds: str) -> Intervals:
        """When a host op of one of these kinds is open on any of the worker's threads."""
        return self._spans("host", kinds)

    def device_spans(self, *kinds: str) -> Intervals:
        """When an op of one of these kinds runs on the device."""
        return self._spans("ops", kinds)

    def _spans(self, table: str, kinds: tuple[str, ...]) -> Intervals:
        known = self._kinds[table]
        sought = (table, *sorted(known & {*kinds}))
        if sought not in self._unions:
            rows = getattr(self, table).select("kind", "start_ns", "dur_ns").filter(pl.col("kind").is_in(sought[1:]))
            self._unions[sought] = self.busy if sought == ("ops", *sorted(known)) else spans(rows)
        return self._unions[sought]

    @cached_property
    def _kinds(self) -> dict[str, set[str]]:
        """The kinds of op that the device and the worker's host have."""
        return {table: {*getattr(self, table)["kind"].unique().drop_nulls()} for table in ("ops", "host")}

    @cached_property
    def windows(self) -> Intervals:
        """All windows: each ends with the last kernel that was launched in its step."""
        return Intervals.of(self.starts, self.ends)

    @cached_property
    def host_windows(self) -> Intervals:
        """The used steps on the host: from the start of each mark to the start of the next."""
        return Intervals.of(*host_bounds(self.steps))

    def used_ns(self, union: Intervals) -> int:
        """How much of `union` lies in the windows."""
        return int(union.within(self.starts, self.ends).sum())

    def share(self, union: Intervals) -> float | None:
        """Part of the windows that `union` covers, 0..1; None where there is no time at all."""
        return self.used_ns(union) / self.total_ns if self.total_ns else None

    def per_step_ms(self, total_ns: float) -> float:
        """Mean milliseconds per used step."""
        return total_ns / 1e6 / max(1, self.steps.height)

    def used_ms(self, union: Intervals) -> float:
        """How much of `union` lies in the windows, in mean milliseconds per used step."""
        return self.per_step_ms(self.used_ns(union))

    def largest(self, times_ns: Iterable[tuple[str, float]]) -> Entries:
        """The names with the most time, with that per step."""
        return largest_first(times_ns, unit=1e6 * max(1, self.steps.height))

    def emptied(self) -> DeviceView:
        """The same without its ops."""
        tables = {of.name: getattr(self, of.name) for of in fields(self) if of.name not in _OF_STEPS}
        events: Any = {name: rows.clear() for name, rows in tables.items() if isinstance(rows, pl.DataFrame)}
        return replace(self, **events, _computed={}, _unions={})


@dataclass(frozen=True, eq=False)
class Selection:
    """A profile seen over some of its steps.

    `steps` are the profile's steps with `left_out`: why a step is not used, null where it is. A worker that marks no
    steps has one that spans its whole recording. `views` are every worker's devices, in order. `paced` says by worker
    which of its devices sets its pace, where that is known.
    """

    profile: Profile
    steps: pl.DataFrame
    views: tuple[DeviceView, ...]
    paced: Mapping[int, int | None] = field(default_factory=dict)

    @cached_property
    def critical(self) -> list[DeviceView]:
        """Per worker, the device that sets its pace; where nobody knows, that whose used steps take longest."""
        longest: dict[int, DeviceView] = {}
        for view in self.views:
            rival = longest.get(view.worker, view)
            longest[view.worker] = max(rival, view, key=self._pace)
        return list(longest.values())

    @property
    def workers(self) -> tuple[int, ...]:
        """All workers, ascending."""
        return tuple(sorted({view.worker for view in self.views}))

    def _pace(self, view: DeviceView) -> tuple[bool, float]:
        return self.paced.get(view.worker, -1) == view.device, view.per_step_ms(view.total_ns)

    def of(self, worker: int) -> DeviceView:
        """The view that sets this worker's pace."""
        return next(view for view in self.critical if view.worker == worker)

    def emptied(self) -> Selection:
        """The same without the tables of single events: what a report still needs once everything is measured."""
        return Selection(self.profile.emptied(), self.steps, tuple(view.emptied() for view in self.views), self.paced)


def classes(view: DeviceView) -> pl.DataFrame:
    """What the name of each of the device's ops tells (advisor.inputs.names.kernels), one row per `name`."""
    names = view.ops.select("name").unique()
    return names.hstack(classify(names["name"]).drop("name", "collective"))


def bounds(rows: pl.DataFrame) -> tuple[Ints, Ints]:
    """When each of the rows starts and ends, in ns."""
    start = rows["start_ns"].to_numpy()
    return start, start + rows["dur_ns"].to_numpy()


def host_bounds(steps: pl.DataFrame) -> tuple[Ints, Ints]:
    """When each of the steps starts and ends on the host, in ns."""
    start = steps["host_start_ns"].to_numpy()
    return start, start + steps["host_dur_ns"].to_numpy()


def positions(rows: pl.DataFrame, ids: pl.Series) -> Ints:
    """Where in `rows` these ids are; -1 for null and unknown ones. Readers number rows in order: that needs no join."""
    known, sought = rows["id"].to_numpy(), ids.fill_null(-1).to_numpy()
    if not len(known):
        return np.full(len(sought), -1, np.int64)
    if not rows["id"].is_sorted():
        order = np.argsort(known)
        return above(order, positions(rows[order], ids))
    if known[-1] - known[0] == len(known) - 1:  # none is missing
        return np.where((sought >= known[0]) & (sought <= known[-1]), sought - known[0], -1)
    at = np.minimum(np.searchsorted(known, sought), len(known) - 1)
    return np.where(known[at] == sought, at, -1)


def longest_name(rows: pl.DataFrame) -> str:
    """The name with the most dur_ns; empty without rows."""
    by_name = rows.group_by(pl.col("name").cast(pl.String)).agg(pl.sum("dur_ns"))
    return str(by_name.sort("dur_ns", "name", descending=[True, False])["name"].first() or "")


def outermost(rows: pl.DataFrame) -> pl.DataFrame:
    """Those of the rows that begin when all earlier ones of their thread are over; ordered as by `by_start`."""
    order = _order(rows)
    start, thread = rows["start_ns"].to_numpy()[order], rows["thread"].fill_null(-1).to_numpy()[order]
    end, first = start + rows["dur_ns"].to_numpy()[order], np.ones(len(order), bool)
    for run in np.split(np.arange(len(order)), np.flatnonzero(np.diff(thread)) + 1):
        first[run[1:]] = start[run[1:]] >= np.maximum.accumulate(end[run])[:-1]
    return rows[order[first]]


def by_start(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows by thread and start, of those that start together the longest first."""
    return rows[_order(rows)]


def _order(rows: pl.DataFrame) -> Ints:
    """Tables are nearly in this order: numpy's stable sorts take a tenth of other ones."""
    thread, start, length = rows["thread"].fill_null(-1), rows["start_ns"], rows["dur_ns"]
    return np.lexsort((-length.to_numpy(), start.to_numpy(), thread.to_numpy()))


def started_in(ops: pl.DataFrame, starts: Ints, ends: Ints) -> pl.DataFrame:
    """The ops that start in one of the windows [start, end), in ns, with its number as `window`."""
    return rows_where(ops.with_columns(window_of(ops, starts, ends)), pl.col("window").is_not_null())


def window_of(ops: pl.DataFrame, starts: Ints, ends: Ints) -> pl.Series:
    """The number of the window that each op starts in, null where in none."""
    if not len(starts):
        return pl.repeat(None, ops.height, dtype=pl.Int64, eager=True).alias("window")
    at = ops["start_ns"].to_numpy()
    window = np.searchsorted(starts, at, side="right") - 1
    inside = (window >= 0) & (at < ends[window])
    return pl.select(pl.when(pl.Series(inside, dtype=pl.Boolean)).then(pl.Series("window", window))).to_series()


def first_uses(host: pl.DataFrame, ops: pl.DataFrame) -> Intervals:
    """When calls of one worker are open that set CUDA up, load kernels' code, or launch a kernel for the first time.

    CUDA loads a kernel's code when it is first launched (lazy loading, CUDA C++ Programming Guide). A launch that is
    the first recorded but not the process's first takes microseconds, and so adds nothing.
    """
    launched = ops.filter(pl.col("kind") == "kernel", pl.col("launch").is_not_null())
    first = launched.sort("start_ns").unique("name", keep="first")["launch"]
    loads = (pl.col("kind") == "runtime") & (pl.col("id").is_in(first.implode()) | matches(_LOADING))
    return spans(host.filter(loads | (sets_up(ops) & ~matches(_WAITING))))


def sets_up(ops: pl.DataFrame) -> pl.Expr:
    """Whether a host op is a call that sets CUDA or HIP up: a long one before the first of the device ops."""
    first_ns = ops["start_ns"].min() if ops.height else 0
    return pl.col("kind").is_in(DRIVER_CALLS) & (pl.col("dur_ns") >= _SET_UP_NS) & (pl.col("start_ns") < first_ns)


def inside(union: Intervals, ops: pl.DataFrame) -> pl.Series:
    """Whether each op starts during `union`."""
    return pl.Series(union.covers(ops["start_ns"].to_numpy()), dtype=pl.Boolean)


def spent_ns(ops: pl.DataFrame, union: Intervals) -> pl.Series:
    """How much of each op's time lies in `union`."""
    return pl.Series("ns", union.within(*bounds(ops)), dtype=pl.Int64)
