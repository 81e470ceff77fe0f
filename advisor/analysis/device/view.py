"""What every metric looks through: the profile over the steps that are used, one view per worker and device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl

from advisor.inputs.hardware import Gpu, generation, match
from advisor.inputs.names.kernels import classify
from advisor.model.arrays import Ints
from advisor.model.intervals import EMPTY, Union
from advisor.model.profile import Profile, matches
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import SLOW_CALL_NS

_LOADING: Final = r"^(?:cu|hip)(?:Module|Library)(?:Load|Get)|^(?:cu|hip)KernelGet"
_WAITING: Final = r"(?i)memcpy|memset|synchronize|query|wait"  # for what runs already, as a first call too
_SET_UP_NS: Final = 10_000_000  # no call of a process that is set up takes so long before any work

_EVENTS: Final = ("ops", "host", "allocations", "collectives", "threads", "os_calls", "off_cpu", "gpu_samples")

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class DeviceView:
    """One device of one worker (device None: a worker that used none) over its used steps.

    `starts` and `ends` are the step windows in ns, shape (steps,), ascending and disjoint. `outliers` are steps left
    out because they took too long or compiled, `cut` how many are because the file ends early. `ops` holds the device's
    ops and `host` the worker's host ops, whole recording each: what surrounds a step can explain it. `devices` is how
    many the worker used. `threads`, `os_calls`
    and `off_cpu` are the worker's and those of processes of the job that could be any worker's; `gpu_samples` are the
    device's.
    """

    worker: int
    device: int | None
    has_marks: bool
    steps: pl.DataFrame
    outliers: pl.DataFrame
    cut: int
    devices: int
    used: tuple[int, ...]  # the worker's devices that ran anything, copies too
    working: tuple[int, ...]  # the worker's devices that ran kernels
    ops: pl.DataFrame
    host: pl.DataFrame
    allocations: pl.DataFrame
    collectives: pl.DataFrame
    threads: pl.DataFrame
    os_calls: pl.DataFrame
    off_cpu: pl.DataFrame
    gpu_samples: pl.DataFrame
    facts: Mapping[str, Any]  # the device's row; empty where nothing is known of it
    process: Mapping[str, Any]  # the worker's row
    visible: int | None  # devices that the worker's process sees; None where the recording does not tell
    _computed: dict[Callable[[DeviceView], Any], Any] = field(default_factory=dict, repr=False)
    _host_spans: dict[tuple[str, ...], Union] = field(default_factory=dict, repr=False)

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
    def complete(self) -> pl.DataFrame:
        """The used and the uneven steps together."""
        return pl.concat([self.steps, self.outliers]).sort("start_ns", maintain_order=True)

    @cached_property
    def total_ns(self) -> int:
        """Length of all windows together."""
        return int(self.steps["dur_ns"].sum())

    @cached_property
    def gpu(self) -> Gpu | None:
        """What the hardware table knows of the device; None where it cannot be told which it is."""
        facts = self.facts
        return match(
            facts.get("name"),
            memory_bytes=facts.get("memory_bytes"),
            sm_count=facts.get("sm_count"),
            capability=facts.get("capability"),
        )

    @cached_property
    def chip(self) -> Gpu | None:
        """The same; of a GPU that the table does not list, what those of its compute capability have in common."""
        return self.gpu or generation(self.facts.get("name"), self.facts.get("capability"))

    @cached_property
    def reserved(self) -> pl.DataFrame:
        """The device's allocations; `reserved_bytes` is all that an allocator may give where it takes that at once."""
        may_give = pl.col("allocated_bytes") + pl.col("available_bytes")
        return self.allocations.with_columns(pl.coalesce("reserved_bytes", may_give))

    @cached_property
    def busy(self) -> Union:
        """When at least one kernel, copy or memset runs on the device."""
        return spans(self.ops)

    @cached_property
    def blocked(self) -> Union:
        """When a host thread waits for the device: inside a synchronising call, or held up by a full launch queue."""
        calls = self.host.select("kind", "start_ns", "dur_ns").filter(pl.col("kind").is_in(["sync", "runtime"]))
        waits = spans(calls.filter(pl.col("kind") == "sync"))
        slow = spans(calls.filter((pl.col("kind") == "runtime") & (pl.col("dur_ns") > SLOW_CALL_NS)))
        return waits | (slow & self.busy)

    @cached_property
    def used_ops(self) -> pl.DataFrame:
        """Device ops that start inside a window, with the `window` (row of `steps`) they start in."""
        return started_in(self.ops, self.starts, self.ends)

    @cached_property
    def used_host(self) -> pl.DataFrame:
        """Host ops that start inside the host's range of a used step, with the `window`."""
        host_start = self.steps["host_start_ns"].to_numpy()
        return started_in(self.host, host_start, host_start + self.steps["host_dur_ns"].to_numpy())

    def once(self, compute: Callable[[DeviceView], T]) -> T:
        """`compute(self)`, computed at its first use: several metrics share it."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        result: T = self._computed[compute]
        return result

    def host_like(self, pattern: str, *kinds: str) -> pl.DataFrame:
        """Host ops whose name matches the regular expression; of these kinds, where any are given."""
        return self._like(self.host, pattern, kinds)

    def used_like(self, pattern: str, *kinds: str) -> pl.DataFrame:
        """Those of them in `used_host`."""
        return self._like(self.used_host, pattern, kinds)

    def _like(self, rows: pl.DataFrame, pattern: str, kinds: tuple[str, ...]) -> pl.DataFrame:
        names = self._host_names
        hits = names.filter(names.cast(pl.String).str.contains(pattern))
        if hits.is_empty():  # most patterns are of another framework
            return rows.clear()
        matching = pl.col("name").is_in(hits.implode())
        return rows.filter(matching & pl.col("kind").is_in(kinds) if kinds else matching)

    @cached_property
    def _host_names(self) -> pl.Series:
        """Each name of a host op once."""
        return self.host["name"].unique()

    def host_spans(self, *kinds: str) -> Union:
        """When a host op of one of these kinds is open on any of the worker's threads."""
        if kinds not in self._host_spans:
            rows = self.host.select("kind", "start_ns", "dur_ns")
            self._host_spans[kinds] = spans(rows.filter(pl.col("kind").is_in(kinds)))
        return self._host_spans[kinds]

    def share(self, union: Union) -> float | None:
        """Part of the windows that `union` covers, 0..1; None where there is no time at all."""
        return float(union.within(self.starts, self.ends).sum() / self.total_ns) if self.total_ns else None

    def per_step_ms(self, total_ns: float) -> float:
        """Mean milliseconds per used step."""
        return total_ns / 1e6 / max(1, self.steps.height)

    def emptied(self) -> DeviceView:
        """The same without its ops."""
        return replace(self, **{name: getattr(self, name).clear() for name in _EVENTS}, _computed={}, _host_spans={})


@dataclass(frozen=True, eq=False)
class Selection:
    """A profile seen over some of its steps.

    `steps` are the profile's steps with `left_out`: why a step is not used, null where it is. A worker that marks no
    steps has one that spans its whole recording. `views` are every worker's devices, in order.
    """

    profile: Profile
    steps: pl.DataFrame
    views: tuple[DeviceView, ...]

    @cached_property
    def critical(self) -> list[DeviceView]:
        """Per worker, the device whose used steps take longest on average: it sets the worker's pace."""
        longest: dict[int, DeviceView] = {}
        for view in self.views:
            rival = longest.get(view.worker, view)
            longest[view.worker] = max(rival, view, key=lambda view_: view_.per_step_ms(view_.total_ns))
        return list(longest.values())

    def of(self, worker: int) -> DeviceView:
        """The view that sets this worker's pace."""
        return next(view for view in self.critical if view.worker == worker)

    def emptied(self) -> Selection:
        """The same without the tables of single events: what a report still needs once everything is measured."""
        return Selection(self.profile.emptied(), self.steps, tuple(view.emptied() for view in self.views))


def classes(view: DeviceView) -> pl.DataFrame:
    """What the name of each of the device's ops tells (advisor.inputs.names.kernels), one row per `name`."""
    names = view.ops.select("name").unique()
    return names.hstack(classify(names["name"]).drop("name"))


def spans(ops: pl.DataFrame) -> Union:
    """Union of the time ranges of device or host ops."""
    start = ops["start_ns"].to_numpy()
    return Union.of(start, start + ops["dur_ns"].to_numpy()) if ops.height else EMPTY


def rows_where(table: pl.DataFrame, rows: pl.Expr) -> pl.DataFrame:
    """The rows that are `mine`; the table itself, not a copy, where all of them are."""
    return table if table.select(rows.fill_null(value=False).all()).item() else table.filter(rows)


def started_in(ops: pl.DataFrame, starts: Ints, ends: Ints) -> pl.DataFrame:
    """The ops that start in one of the windows [start, end), in ns, with its number as `window`."""
    if not len(starts):
        return ops.clear().with_columns(window=pl.lit(0, pl.Int64))
    at = ops["start_ns"].to_numpy()
    window = np.searchsorted(starts, at, side="right") - 1
    inside = (window >= 0) & (at < ends[window])
    return ops.with_columns(window=pl.Series(window)).filter(pl.Series(inside, dtype=pl.Boolean))


def first_uses(host: pl.DataFrame, ops: pl.DataFrame) -> Union:
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


def inside(union: Union, ops: pl.DataFrame) -> pl.Series:
    """Whether each op starts during `union`."""
    return pl.Series(union.covers(ops["start_ns"].to_numpy()), dtype=pl.Boolean)
