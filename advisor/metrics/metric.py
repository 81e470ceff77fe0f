"""The register of metrics: a name, a unit, a formula and a source for each, and the function that measures it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Final, Literal, TypeAlias, cast

import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.analysis.job.job import Job
from advisor.model.missing import Missing
from advisor.vocabulary.limits import with_limits

Scope: TypeAlias = Literal["worker", "run"]
Unit: TypeAlias = Literal["ms", "us", "share", "ratio", "number", "count", "bytes", "rank", "device", "text"]

WHOLE_NUMBERS: Final[tuple[Unit, ...]] = ("count", "bytes", "rank", "device")
"""Units of numbers that have no fractions; a rank and a device are the numbers that the recording gives them."""
_BY_NAME: Final = cast("Unit", "")
_UNITS_OF_NAMES: Final[dict[str, Unit]] = {
    **{unit: unit for unit in ("ms", "us", "share", "ratio", "bytes", "rank", "device")},
    "part": "share",
}
_DTYPES: Final[dict[Unit, type[pl.DataType]]] = {**dict.fromkeys(WHOLE_NUMBERS, pl.Int64), "text": pl.String}


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One named number per device; the row of a worker is that of its critical device. Of scope run: one per job.

    A module binds it to the constant of its name, and a function returns `{THE_CONSTANT: value}`. `METRICS` has it
    with all that it needs. `unit` is what the name ends in (`_ms`, `_share`), else `number`, unless it is given.

    Meaning, formula and source name limits as `limits.with_limits` does. `needs` names the tables and columns (`table`
    or `table.column`) without which it cannot be told, besides those that all metrics of its function need. `where`
    gives the places in the recording that the number comes from, the most telling first.
    """

    name: str
    meaning: str
    formula: str
    source: str = ""
    needs: tuple[str, ...] = ()
    where: Callable[[DeviceView], pl.DataFrame] | None = None
    scope: Scope = "worker"
    unit: Unit = _BY_NAME

    def __post_init__(self) -> None:
        if self.unit is _BY_NAME:
            object.__setattr__(self, "unit", _UNITS_OF_NAMES.get(self.name.rpartition("_")[2], "number"))

    @property
    def dtype(self) -> type[pl.DataType]:
        """Type of the metric's column."""
        return _DTYPES.get(self.unit, pl.Float64)


def time_of(name: str, share: Metric, formula: str) -> Metric:
    """The time per step, in ms, of which `share` is the part of the step."""
    return Metric(name, share.meaning.replace("Part of the step", "Time per step"), formula)


Value: TypeAlias = float | str | Missing | None
Values: TypeAlias = Mapping[Metric, Value] | Missing
"""What a function measures; or the reason why none of it is known."""
Measure: TypeAlias = Callable[[DeviceView], Values]
Tabulate: TypeAlias = Callable[[DeviceView], pl.DataFrame]
MeasureJob: TypeAlias = Callable[[Job], Values]
MeasureRank: TypeAlias = Callable[[Job, int], Values]
TabulateJob: TypeAlias = Callable[[Job], pl.DataFrame]

METRICS: Final[dict[str, Metric]] = {}
TABLES: Final[dict[str, Tabulate]] = {}
JOB_TABLES: Final[dict[str, TabulateJob]] = {}
MEASURES: Final[list[tuple[tuple[Metric, ...], Measure]]] = []
RANK_MEASURES: Final[list[tuple[tuple[Metric, ...], MeasureRank]]] = []
JOB_MEASURES: Final[list[tuple[tuple[Metric, ...], MeasureJob]]] = []


def measures(
    *metrics: Metric, needs: tuple[str, ...] = (), needs_steps: bool = True, framework: str = ""
) -> Callable[[Measure], Measure]:
    """Registers a function from a view to the values of `metrics`; one that is left out or None is unknown.

    All metrics need what `needs` names. The function is asked only where the view has used steps, unless it needs none,
    and a device, where all its metrics need ops of one; and of this framework alone.
    """
    of_device = all("device_ops" in (*needs, *metric.needs) for metric in metrics)

    def register(function: Measure) -> Measure:
        @wraps(function)
        def measured(view: DeviceView) -> Values:
            if (needs_steps and not view.total_ns) or (of_device and view.device is None):
                return {}
            is_other = framework and view.process.get("framework") != framework
            return Missing(f"{framework}_only") if is_other else function(view)

        _enter(metrics, needs=needs)
        MEASURES.append((metrics, measured))
        return measured

    return register


def measures_ranks(*metrics: Metric) -> Callable[[MeasureRank], MeasureRank]:
    """Registers a function from a job and the position of one of its ranks to that rank's values."""

    def register(function: MeasureRank) -> MeasureRank:
        _enter(metrics)
        RANK_MEASURES.append((metrics, function))
        return function

    return register


def measures_jobs(*metrics: Metric) -> Callable[[MeasureJob], MeasureJob]:
    """Registers a function from a job to its values: one number for all ranks together."""

    def register(function: MeasureJob) -> MeasureJob:
        _enter(metrics, scope="run")
        JOB_MEASURES.append((metrics, function))
        return function

    return register


def _enter(metrics: Sequence[Metric], needs: tuple[str, ...] = (), scope: Scope = "worker") -> None:
    if clash := METRICS.keys() & {m.name for m in metrics}:
        raise ValueError(f"metrics registered twice: {sorted(clash)}")
    METRICS.update({m.name: _complete(m, needs=(*needs, *m.needs), scope=scope) for m in metrics})


def _complete(metric: Metric, needs: tuple[str, ...], scope: Scope) -> Metric:
    meaning, formula, source = map(with_limits, (metric.meaning, metric.formula, metric.source))
    return replace(metric, meaning=meaning, formula=formula, source=source, needs=needs, scope=scope)


def topics() -> dict[str, list[Metric]]:
    """All metrics by the package that measures them, in the order of their names."""
    groups: dict[str, list[Metric]] = {}
    for metrics, function in (*MEASURES, *RANK_MEASURES, *JOB_MEASURES):
        topic = function.__module__.removeprefix("advisor.metrics.").partition(".")[0]
        groups.setdefault(topic, []).extend(METRICS[metric.name] for metric in metrics)
    return {topic: sorted(group, key=lambda metric: metric.name) for topic, group in groups.items()}


def tabulates(scope: str) -> Callable[[Tabulate], Tabulate]:
    """Registers a function from a view to a frame with one row per step, op or kernel; its docstring names columns."""

    def register(function: Tabulate) -> Tabulate:
        TABLES[scope] = function
        return function

    return register


def tabulates_jobs(scope: str) -> Callable[[TabulateJob], TabulateJob]:
    """Registers a function from a job to a frame; its docstring names the columns."""

    def register(function: TabulateJob) -> TabulateJob:
        JOB_TABLES[scope] = function
        return function

    return register


def dtypes() -> dict[str, type[pl.DataType]]:
    """Column type of every metric."""
    return {name: metric.dtype for name, metric in METRICS.items()}
