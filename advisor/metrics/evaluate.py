"""The measuring: every registered metric over the views of a file, then over all files of a job."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias, TypeVar

import polars as pl

from advisor.analysis.device.places import MOST_PLACES
from advisor.analysis.device.timeline import Timeline, worst_step
from advisor.analysis.device.view import DeviceView, Selection
from advisor.analysis.job.job import Job, job_of
from advisor.analysis.job.rank import Rank, rank_of
from advisor.errors import contained
from advisor.inputs.ncu import Counters
from advisor.metrics.kernels.roofs import ncu_values
from advisor.metrics.metric import JOB_TABLES, METRICS, TABLES, WHOLE_NUMBERS, Metric, Scope, Subject, Value, dtypes
from advisor.model.clause import Missing
from advisor.model.profile import join

_MOST: Final = 1 << 63
_AS_LONG: Final = 0.99  # of the longest step: devices that one thread drives differ by its launches
_PROFILERS_OWN: Final = re.compile(r"^\$(?:profiler|trace)\.py:\d+ __\w+__$")  # as XPlane names Python's calls
_COLLECTIVES: Final = ("host_collective", "exposed_communication")  # of a worker's steps, on the host and the device
NOTHING: Final = Missing("nothing_to_compute_from")

_Of = TypeVar("_Of", DeviceView, Job)
PlacesByMetric: TypeAlias = Mapping[tuple[str, int], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Part:
    """What one file's views tell by themselves; the job's metrics need the parts of all files."""

    selection: Selection
    device: pl.DataFrame  # a row per view
    tables: Mapping[str, pl.DataFrame]
    reasons: Mapping[str, Missing]
    ranks: tuple[Rank, ...]
    selected: tuple[Metric, ...] = ()  # the metrics in it beside the registered ones
    place_rows: PlacesByMetric | None = None  # of every metric and worker, once the events are let go
    timelines: Mapping[int, Timeline | None] = field(default_factory=dict)  # the longest step of each worker, then too

    def places(self, metric: str, worker: int) -> pl.DataFrame:
        """`Measurements.places` of one of its workers."""
        if self.place_rows is None:
            places = partial(_places_of, self.selection, self._known().get(metric), worker)
            return contained(places, lambda _: pl.DataFrame())
        return self.place_rows.get((metric, worker), pl.DataFrame())

    def timeline(self, worker: int, metrics: Iterable[str]) -> Timeline | None:
        """The longest used step of a worker, to be drawn; None where there is none."""
        if self.place_rows is None:
            known = self._known()
            marks = {name: _sound(where) for name in dict.fromkeys(metrics) if (where := known[name].where)}
            return contained(lambda: worst_step(self.selection.of(worker), marks), lambda _: None)
        return self.timelines.get(worker)

    def emptied(self) -> Part:
        """The same without the tables of single events: small enough to be kept for every rank of a large job."""
        known = self._known()
        placing = [name for name, metric in known.items() if metric.where]
        workers = self.selection.workers
        places = {(name, w): rows for name in placing for w in workers if (rows := self.places(name, w)).height}
        timelines = {worker: self.timeline(worker, known) for worker in workers}
        small = replace(self, selection=self.selection.emptied(), place_rows=places, timelines=timelines)
        # a table cut out of another keeps the other's memory: only a copy lets it go
        copied: Part = pickle.loads(pickle.dumps(small))  # noqa: S301 - our own bytes
        return copied

    def _known(self) -> Mapping[str, Metric]:
        return METRICS | {metric.name: metric for metric in self.selected}


@dataclass(frozen=True, slots=True)
class Measurements:
    """Every metric of a profile, one frame per scope.

    `device` has a row per view and a column per metric, `worker` the rows of the critical devices, `run` one row: that
    of the worker that sets the job's pace, with what holds for the job as a whole. The other scopes have a row per
    step, op, kernel or collective.
    """

    selection: Selection
    frames: Mapping[str, pl.DataFrame]
    reasons: Mapping[str, Missing]  # by metric, why a value is null
    parts: tuple[Part, ...] = ()
    of_job: Mapping[str, Value] = field(default_factory=dict)

    @property
    def pace(self) -> int:
        """The worker that sets the job's pace."""
        return int(self.rows("run")["worker"].item())

    @property
    def selected(self) -> tuple[Metric, ...]:
        """The metrics that were asked for beside the registered ones."""
        return self.parts[0].selected if self.parts else ()

    def of_kind(self, workload: str | None) -> Measurements:
        """The same, of a job that is known to do this kind of work; unchanged where that is None."""
        if workload is None:
            return self
        option = pl.DataFrame({"worker": [self.pace], "kind": [workload], "code": ["option"]})
        sign = pl.concat([self.frames["sign"].clear(), option], how="diagonal_relaxed")
        known = self._with("workload", workload=pl.lit(workload))
        return replace(known, frames={**known.frames, "sign": sign})

    def of_flops(self, flops: float | None) -> Measurements:
        """The same, of a model that needs so many FLOPs in a step of one device; unchanged where that is None."""
        if flops is None:
            return self
        return self._with("peak_work_per_step", flops_of_peak_share=flops / pl.col("peak_work_per_step"))

    def of_counters(self, counters: Mapping[str, Counters] | None) -> Measurements:
        """The same, with what Nsight Compute shows of its kernels; unchanged where that is None."""
        kernels, view = self.frames.get("kernel"), self.selection.of(self.pace)
        if counters is None or kernels is None or not view.total_ns:
            return self
        ran = kernels.filter(pl.col("worker") == view.worker, pl.col("device").eq_missing(view.device))
        known, types = ncu_values(ran, counters, max(1, view.steps.height), view.total_ns / 1e6), dtypes()
        return self._with("ncu_share", **{name: pl.lit(value, types[name]) for name, value in known.items()})

    def _with(self, column: str, **known: pl.Expr) -> Measurements:
        """The same with these values in every table that has the column."""
        frames = {scope: rows.with_columns(**known) for scope, rows in self.frames.items() if column in rows.columns}
        return replace(self, frames={**self.frames, **frames})

    def rows(self, scope: Scope) -> pl.DataFrame:
        """The rows that rules of this scope are held against; what holds for the whole job stands in each of them."""
        if scope == "run":
            return self.frames["run"]
        values = {name: None if isinstance(value, Missing) else value for name, value in self.of_job.items()}
        types = dtypes()
        return self.frames["worker"].with_columns(pl.lit(v, types[name]).alias(name) for name, v in values.items())

    def timeline(self, metrics: Iterable[str]) -> Timeline | None:
        """The longest used step of the worker that sets the pace, to be drawn; None where there is none.

        `metrics` are the metrics whose places are to be marked; others do no harm.
        """
        return next((part.timeline(self.pace, metrics) for part in self._parts_of(self.pace)), None)

    def places(self, metric: str, worker: int) -> pl.DataFrame:
        """At most ten places in the recording behind a worker's value, as a report names them; empty where none."""
        return next((part.places(metric, worker) for part in self._parts_of(worker)), pl.DataFrame())

    def _parts_of(self, worker: int) -> Iterator[Part]:
        return (part for part in self.parts if worker in part.selection.workers)


def _sound(where: Callable[[DeviceView], pl.DataFrame]) -> Callable[[DeviceView], pl.DataFrame]:
    """The same, and no places where it fails: that costs a metric its marks, and no more of the drawing."""
    return lambda view: contained(lambda: view.once(where), lambda _: pl.DataFrame())


def _places_of(selection: Selection, metric: Metric | None, worker: int) -> pl.DataFrame:
    where = metric.where if metric else None
    view = selection.of(worker)
    if where is None or not (rows := view.once(where).head(MOST_PLACES)).height:
        return pl.DataFrame()
    rows = rows.with_columns(id=pl.col("op") if "op" in rows.columns else pl.lit(None, pl.Int64))
    ops = view.host_of(rows["id"])  # a few: names become text row by row
    zero = view.process.get("zero_ns")
    names = ops.select("id", pl.col("stack").cast(pl.String), op_name=pl.col("name").cast(pl.String))
    names = names.with_columns(pl.coalesce("stack", _python_stacks(selection, names["id"])))
    labelled = rows.join(names, on="id", how="left", maintain_order="left")
    return labelled.select(
        "table",
        "name",
        "start_ns",
        "dur_ns",
        "stack",
        worker=pl.lit(view.worker),
        device=pl.lit(view.device, pl.Int32),
        step=pl.col("step") if "step" in rows.columns else pl.lit(None, pl.Int32),
        at_ms=(pl.col("start_ns") - (selection.profile.start_ns if zero is None else zero)) / 1e6,
        op=pl.when(pl.col("op_name") != pl.col("name")).then("op_name"),
    )


def _python_stacks(selection: Selection, ops: pl.Series) -> pl.Series:
    """The Python calls that ops run in, innermost first, of a profiler that records calls instead of stacks.

    Without those by which the profiler's own ranges are opened and closed.
    """
    host = selection.profile.host_ops

    def frames(op: int) -> Iterator[str]:
        around = op
        while around is not None:
            if host["kind"][around] == "python" and not _PROFILERS_OWN.match(host["name"][around] or ""):
                yield host["name"][around]
            around = host["parent"][around]

    return pl.Series([";".join(frames(op)) or None for op in ops], dtype=pl.String)


def measure(selection: Selection, selected: Sequence[Metric] = ()) -> Measurements:
    """Compute every registered metric over the steps that the selection uses, and those that rules select."""
    return conclude([measure_part(selection, selected)])


def measure_part(selection: Selection, selected: Sequence[Metric] = ()) -> Part:
    """Compute what the views of one file tell by themselves; what is missing is null and leaves its reason."""
    metrics = [*_about("device"), *selected]
    paces = {(view.worker, view.device) for view in selection.critical}  # theirs are the reasons that are told
    rows, tables = list[dict[str, object]](), list[dict[str, pl.DataFrame]]()
    of_pace, others = dict[str, Missing](), dict[str, Missing]()
    for view in selection.views:
        reasons = of_pace if (view.worker, view.device) in paces else others
        values = _values(metrics, reasons, selection, view)
        if not view.steps.height:
            reasons |= {name: Missing("no_step_used") for name, value in values.items() if value is None}
        rows.append({"worker": view.worker, "device": view.device, **values})
        key = {"worker": pl.lit(view.worker, pl.Int32), "device": pl.lit(view.device, pl.Int32)}
        tables.append({scope: table.with_columns(**key) for scope, table in _tables(TABLES, view).items()})
    schema = {"worker": pl.Int32, "device": pl.Int32, **{metric.name: metric.dtype for metric in metrics}}
    device, ranks = pl.DataFrame(rows, schema=schema, orient="row"), tuple(map(rank_of, selection.views))
    return Part(selection, device, _stacked(tables), others | of_pace, ranks, tuple(selected))


def conclude(parts: Sequence[Part], logs: Sequence[Part] = ()) -> Measurements:
    """The measurements of a job from its files' and from `logs` beside them: adds what only all ranks together tell."""
    selection = _joined([part.selection for part in parts])
    reasons = {name: why for part in parts for name, why in part.reasons.items()}
    job = job_of([rank for part in parts for rank in part.ranks], [rank.log for part in logs for rank in part.ranks])
    of_ranks = [_values(_about("rank"), reasons, selection, job, position) for position in range(len(job.ranks))]
    of_job = _values(_about("job"), reasons, selection, job)
    device = pl.concat([part.device for part in parts]).sort("worker", "device", nulls_last=False, maintain_order=True)
    device = _with_metrics(device, of_ranks, _about("rank"))
    selection = _paced(selection, device)
    parts = [
        part if part.place_rows is not None else replace(part, selection=_paced(part.selection, device))
        for part in parts
    ]
    pacing = {(view.worker, view.device) for view in selection.critical}
    paces = [key in pacing for key in device.select("worker", "device").iter_rows()]
    worker = device.filter(pl.Series(paces, dtype=pl.Boolean))
    pace = pace_of(worker)
    slowest = worker.filter(pl.col("worker") == pace)
    for part in parts:
        if any(view.worker == pace for view in part.selection.views):
            reasons |= part.reasons
    tables = _stacked([part.tables for part in parts]) | _tables(JOB_TABLES, job)
    run = _with_metrics(slowest, [of_job], _about("job"))
    frames = {"run": run, "worker": worker, "device": device, **tables}
    return Measurements(selection, frames, reasons, tuple(parts), of_job)


def _paced(selection: Selection, device: pl.DataFrame) -> Selection:
    """The selection of which each worker is seen by the device whose step takes longest without waits.

    Where nobody knows that, it is the one with the longest step; of equal ones the busiest outside of collectives.
    """
    works = pl.col("device_busy_share") - pl.col("exposed_communication_ms").fill_null(0) / pl.col("step_mean_ms")
    is_as_long = pl.col("step_mean_ms") >= _AS_LONG * pl.max("step_mean_ms").over("worker")
    # Of so many columns only those that matter: sorting all takes longer than measuring a device without work.
    pace = device.select("worker", "device", "own_step_ms", is_as_long.alias("is_as_long"), works.alias("works"))
    last = pace.reverse().sort("own_step_ms", "is_as_long", "works", maintain_order=True)
    return replace(selection, paced=dict(last.select("worker", "device").iter_rows()))


def _tables(functions: Mapping[str, Callable[[_Of], pl.DataFrame]], of: _Of) -> dict[str, pl.DataFrame]:
    """The table of each function; none where it fails."""
    tables = {scope: contained(partial(function, of), lambda _: None) for scope, function in functions.items()}
    return {scope: table for scope, table in tables.items() if table is not None}


def _stacked(parts: Sequence[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """The parts' tables of each scope in one."""
    return {scope: pl.concat(of) for scope in TABLES if (of := [part[scope] for part in parts if scope in part])}


def pace_of(worker: pl.DataFrame) -> int:
    """The worker that sets the job's pace: whose step takes longest by itself.

    Where clocks do not tell who waits for whom, it is the one with the longest step outside of collectives: members
    transfer for equally long, so that who is in them for less waits less.
    """
    own = worker.get_column("own_step_ms", default=pl.Series([None], dtype=pl.Float64))
    step, *collectives = (pl.col(f"{name}_ms").fill_null(0) for name in ("step_mean", *_COLLECTIVES))
    outside = worker.select(step - pl.sum_horizontal(collectives)).to_series()
    steps = own if own.count() else outside
    return int(worker["worker"].gather([steps.arg_max() or 0]).item())


def _joined(selections: Sequence[Selection]) -> Selection:
    """The selection of a job; of several files without events, which no metric asks for then."""
    if len(selections) == 1:
        return selections[0]
    selections = [selection.emptied() for selection in selections]
    views = sorted((view for selection in selections for view in selection.views), key=lambda view: view.worker)
    return Selection(
        join([selection.profile for selection in selections]),
        pl.concat([selection.steps for selection in selections]),
        tuple(views),
    )


def _with_metrics(frame: pl.DataFrame, rows: Sequence[Mapping[str, Value]], metrics: Sequence[Metric]) -> pl.DataFrame:
    """The frame with more metrics, one mapping per row."""
    schema = {metric.name: metric.dtype for metric in metrics}
    return frame.hstack(pl.DataFrame([dict(row) for row in rows], schema=schema, orient="row"))


def _about(subject: Subject) -> list[Metric]:
    return [metric for metric in METRICS.values() if metric.subject == subject]


def _values(
    metrics: Iterable[Metric], reasons: dict[str, Missing], selection: Selection, of: DeviceView | Job, *position: int
) -> dict[str, Value]:
    """The values of the metrics, all about this subject; null where one is missing, and the reason in `reasons`."""
    row: dict[str, Value] = {}
    device, worker = (of.device, of.worker) if isinstance(of, DeviceView) else (0, None)
    for metric in metrics:
        value = _lacking(metric, worker, device, selection) or _checked(
            contained(partial(metric.value, of, *position), Missing.of_failure), metric
        )
        if isinstance(value, Missing):
            reasons[metric.name] = value
        row[metric.name] = None if isinstance(value, Missing) else value
    return row


def _lacking(metric: Metric, worker: int | None, device: int | None, selection: Selection) -> Missing | None:
    """What the recording lacks of what the metric needs; None where it has all."""
    if device is None and "device_ops" in metric.needs and not selection.profile.why_lacking("device_ops"):
        return Missing("no_device_used")
    # what the device's columns lack is nothing to a worker whose ops run on the host
    needs = [need for need in metric.needs if device is not None or not need.startswith("device_ops.")]
    lacking = [why for need in needs if (why := selection.profile.why_lacking(need, worker))]
    return lacking[0] if lacking else None


def _checked(value: Value, metric: Metric) -> Value:
    """The value, or Missing where the arithmetic gave no number that the metric's column holds."""
    if isinstance(value, float | int):
        return value if math.isfinite(value) and (metric.unit not in WHOLE_NUMBERS or abs(value) < _MOST) else NOTHING
    return NOTHING if value is None else value
