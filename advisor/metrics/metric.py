"""The register of metrics: a call declares each once, with its name, meaning, formula, source and function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, Literal, NamedTuple, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack, cast

import polars as pl
from polars.datatypes import DataType, DataTypeClass

from advisor.analysis.device.kernels import largest, longest
from advisor.analysis.device.view import DeviceView, spans
from advisor.analysis.job.job import Job
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import Intervals
from advisor.vocabulary.limits import with_limits
from advisor.whatif.change import Change, faster, saved

P = ParamSpec("P")
R = TypeVar("R")

Scope: TypeAlias = Literal["worker", "run"]
Dtype: TypeAlias = DataType | DataTypeClass
Unit: TypeAlias = Literal["ms", "us", "share", "ratio", "number", "count", "bytes", "rank", "device", "text", "names"]
Value: TypeAlias = float | str | Entries | Missing | None
"""What a metric's function gives; None is unknown without a reason of its own."""
Subject: TypeAlias = Literal["device", "rank", "job"]
Rows: TypeAlias = Callable[[DeviceView], pl.DataFrame]
Give: TypeAlias = Literal["share", "ms", "ops", "per_step"]
TabulateJob: TypeAlias = Callable[[Job], pl.DataFrame]

WHOLE_NUMBERS: Final[tuple[Unit, ...]] = ("count", "bytes", "rank", "device")
"""Units of numbers that have no fractions; a rank and a device are the numbers that the recording gives them."""
BY_NAME: Final = cast("Unit", "")
_UNITS_OF_NAMES: Final[dict[str, Unit]] = {
    **{unit: unit for unit in ("ms", "us", "share", "ratio", "bytes", "rank", "device")},
    "part": "share",
    **dict.fromkeys(("ops", "names", "causes", "calls"), "names"),
}
NAMES: Final = pl.List(
    pl.Struct({"name": pl.String, **dict.fromkeys(("count", "bytes", "ms", "share"), pl.Float64), "what": pl.String})
)
"""Type of the columns of metrics that list names, with the fields of `model.finding.Entry`."""
_DTYPES: Final[dict[Unit, Dtype]] = {**dict.fromkeys(WHOLE_NUMBERS, pl.Int64), "text": pl.String, "names": NAMES}


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One named number per device; the row of a worker is that of its critical device. Of a job: one for all ranks.

    Meaning, formula and source name limits as `limits.with_limits` does. What a change saves has no formula here: the
    rules that save so say how it is computed (`saving.method`). What lists names is of the unit `names` and gives
    `Entries`, no words; its times are of recorded steps, unless they are `unprofiled`.
    """

    name: str
    meaning: str
    of: Callable[..., Value]  # its value, of a view, of a rank in a job, or of a job, as `subject` says
    formula: str = ""
    source: str = ""
    unit: Unit = BY_NAME  # what the name ends in (`_ms`, `_share`), else `number`
    needs: tuple[str, ...] = ()  # tables and columns (`table` or `table.column`) without which it cannot be told
    where: Rows | None = None  # places in the recording that the number comes from, the most telling first
    subject: Subject = "device"
    topic: str = ""  # the module that declares it, below `metrics/`
    needs_steps: bool = True  # it is asked only where there are used steps
    framework: str = ""  # of this one alone
    device: bool | None = None  # of views with a device alone, or without one
    unprofiled: bool = False  # taken without the profiler, or of long steps alone
    unknown: Callable[[Any], Missing | None] | None = None  # a reason why it cannot be told

    def __post_init__(self) -> None:
        for text in ("meaning", "formula", "source"):
            object.__setattr__(self, text, with_limits(getattr(self, text)))
        if self.unit is BY_NAME:
            object.__setattr__(self, "unit", _UNITS_OF_NAMES.get(self.name.rpartition("_")[2], "number"))

    @property
    def scope(self) -> Scope:
        """Whether each worker has a value, or the run one for all."""
        return "run" if self.subject == "job" else "worker"

    @property
    def dtype(self) -> Dtype:
        """Type of the metric's column."""
        return _DTYPES.get(self.unit, pl.Float64)

    def value(self, subject: DeviceView | Job, *position: int) -> Value:
        """Its value of a device, of a job, or of the rank at this position of a job."""
        if isinstance(subject, DeviceView):
            if self.needs_steps and not subject.total_ns:
                return None
            if self.framework and subject.process.get("framework") != self.framework:
                return Missing(f"{self.framework}_only")
            if self.device not in {None, subject.device is not None}:
                return Missing("no_device_used" if self.device else "device_used")
        why = subject.once(self.unknown) if self.unknown else None
        return why or (self.of(subject, *position) if position else subject.once(self.of))


SAVED_ENDS: Final = {"least_gain": "at least", "gain": "at most"}  # of a saving, in words
METRICS: Final[dict[str, Metric]] = {}
TABLES: Final[dict[str, Rows]] = {}
JOB_TABLES: Final[dict[str, TabulateJob]] = {}


class ForAll(TypedDict, total=False):
    """What `Metric` says of all metrics that are declared together."""

    source: str
    needs: tuple[str, ...]
    needs_steps: bool
    framework: str
    unknown: Callable[[Any], Missing | None]


class Details(TypedDict, total=False):
    """What `Metric` may say of one of them, a source instead of theirs; `needs` comes on top of what all need."""

    source: str
    unit: Unit
    needs: tuple[str, ...]
    where: Rows
    unprofiled: bool


class Words(NamedTuple):
    """What is measured, which `says` declares with its words, as strings in the order that the method names."""

    says: Callable[..., None]


@dataclass(frozen=True)
class Declare(Generic[P]):
    """Declares metrics of `module`, the `__name__` that they stand in; `part_of` gives each of what it is a part of."""

    module: str
    subject: Subject
    shared: ForAll
    part_of: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None

    def __call__(self, name: str, of: Callable[P, Value], **more: Unpack[Details]) -> Words:
        """One metric, of what `Metric` has; says its meaning, its formula and, if not that of all, its source.

        Raises:
            ValueError: the name is taken.
        """

        def says(meaning: str, formula: str = "", source: str = self.shared.get("source", "")) -> None:
            if name in METRICS:
                raise ValueError(f"registered twice: {name}")
            topic = self.module.removeprefix("advisor.metrics.")
            needs = (*self.shared.get("needs", ()), *more.get("needs", ()))
            fields: dict[str, Any] = {**self.shared, **more, "source": source, "needs": needs}
            function = self.part_of(of) if self.part_of else of
            METRICS[name] = Metric(name, meaning, function, formula, subject=self.subject, topic=topic, **fields)

        return Words(says)

    def saving(self, name: str, interval: Callable[P, tuple[float, float] | Missing]) -> Words:
        """`<name>_least_gain_ms` and `<name>_gain_ms`: step time that a change saves, at least and at most.

        Says the change, and how where no rule saves so. `interval` gives both ends in ms, and is asked once.
        """

        def says(change: str, *formula: str) -> None:
            ends = self.part_of(interval) if self.part_of else interval
            for position, (end, words) in enumerate(SAVED_ENDS.items()):
                of_end = replace(self, part_of=None)(f"{name}_{end}_ms", partial(end_of, ends, position))
                of_end.says(f"Step time that {change} saves {words}.", *formula, source="")

        return Words(says)

    def parts_of(self, compute: Callable[P, R | Missing | None], without: Value = None) -> Declare[[R]]:
        """Declares metrics that are parts of what a function computes once of a view or a job.

        Where that is missing, so are they; where it is None they are all `without`.
        """

        def part_of(part: Callable[[R], Any]) -> Callable[[Any], Any]:
            def of(subject: Any) -> Any:  # noqa: ANN401 - a view or a job
                result = subject.once(compute)
                return result if isinstance(result, Missing) else without if result is None else part(result)

            return of

        return Declare(self.module, self.subject, self.shared, part_of)


class DeclareOfDevices(Declare[[DeviceView]]):
    """Declares metrics of devices; a method declares several that belong together, in words said once."""

    def share(self, name: str, when: Callable[[DeviceView], Intervals], **more: Unpack[Details]) -> Words:
        """One metric: the part of the step in which something goes on."""
        return self(name, lambda view: view.share(view.once(when)), **more)

    def time(self, name: str, when: Callable[[DeviceView], Intervals], **more: Unpack[Details]) -> Words:
        """`<name>_share` and `<name>_ms`: the part of the step, and the time per step, in which something goes on.

        Says `which`, which goes on after "Part of the step ", as "in which Python runs" does; what the time is in
        the formula; and the source.
        """

        def says(which: str, what: str, *source: str) -> None:
            self.share(f"{name}_share", when, **more).says(f"Part of the step {which}.", f"{what} / step time", *source)
            self(f"{name}_ms", lambda view: view.used_ms(view.once(when))).says(
                f"Time per step {which}.", f"{what} / steps"
            )

        return Words(says)

    def kernels(self, name: str, rows: Rows, gives: Sequence[Give] = ("share", "ms"), **more: Unpack[Details]) -> Words:
        """`<name>_share` and the like of kernels, rows as `analysis.device.kernels.kernels` has them.

        Says what `time` does; the formula names the kernels. Time is their union, cut to the used steps. Places are
        the longest call of each kernel.
        """

        def took_ns(view: DeviceView) -> int:
            return view.used_ns(spans(view.once(rows)))

        places: Details = {"where": longest(rows), **more}
        measures: Mapping[Give, Words] = {
            "share": self(f"{name}_share", lambda view: took_ns(view) / view.total_ns, **places),
            "ms": self(f"{name}_ms", lambda view: view.per_step_ms(took_ns(view))),
            "ops": self(f"{name}_ops", lambda view: largest(view, view.once(rows))),
            "per_step": self.per_step(name, rows),
        }

        def says(which: str, what: str, *source: str) -> None:
            words = {
                "share": (f"Part of the step {which}.", f"time of {what} / step time", *source),
                "ms": (f"Time per step {which}.", f"time of {what} / steps"),
                "ops": (
                    f"The ops with the most time {which}.",
                    f"those that launched {what}, the most time first, then the others",
                ),
                "per_step": (f"Kernels per step {which}.", f"number of {what} / steps"),
            }
            for give in gives:
                measures[give].says(*words[give])

        return Words(says)

    def per_step(self, name: str, rows: Rows, **more: Unpack[Details]) -> Words:
        """`<name>_per_step`: how many of these rows a step has."""
        return self(f"{name}_per_step", lambda view: view.once(rows).height / view.steps.height, **more)

    def gain(self, name: str, change: Callable[[DeviceView], Change], **more: Unpack[Details]) -> Words:
        """`<name>_gain_ms`: step time that a change saves at most. Says its meaning."""
        return self(f"{name}_gain_ms", lambda view: saved(view, change(view)).most_ms, **more)

    def faster(
        self, name: str, rows: Rows, ends: tuple[float, float] | Callable[[DeviceView], tuple[pl.Expr, pl.Expr]]
    ) -> Words:
        """`saving` by kernels that take other times: `ends` are parts of now, or ns, at least and at most faster.

        Says what `saving` does.
        """

        def interval(view: DeviceView) -> tuple[float, float]:
            slow, fast = ends(view) if callable(ends) else (pl.col("dur_ns") * part for part in ends)
            return saved(view, faster(view.once(rows), slow, fast))

        return self.saving(name, interval)


def end_of(interval: Callable[..., Any], position: int, of: DeviceView | Job) -> Value:
    """The low or the high end, by position, of what is computed once; with `partial` a value for other processes."""
    ends: tuple[float, float] | Missing = of.once(interval)
    return ends if isinstance(ends, Missing) else ends[position]


class DeclareOfJobs(Declare[[Job]]):
    """Declares metrics of jobs."""

    def rank(self, name: str, position: Callable[[Job], int | Missing]) -> Words:
        """`name` and `<name>_device`: one rank of the job, by its position, and its device where a rank has several.

        Says what a metric of the rank does.
        """

        def worker(job: Job) -> Value:
            at = job.once(position)
            return at if isinstance(at, Missing) else job.ranks[at].worker

        def device(job: Job) -> Value:
            at = job.once(position)
            if isinstance(at, Missing):
                return at
            several = job.several_devices and job.ranks[at].device is not None
            return job.ranks[at].device if several else Missing("one_device_per_rank")

        def says(meaning: str, formula: str) -> None:
            self(name, worker, unit="rank").says(meaning, formula)
            self(f"{name}_device", device, unit="device").says(
                f"{name}: its device, where a rank drives several.", "the number that the recording gives it"
            )

        return Words(says)


def of_devices(module: str, **shared: Unpack[ForAll]) -> DeclareOfDevices:
    """Declares metrics of one device of a worker, from its view."""
    return DeclareOfDevices(module, "device", shared)


def of_ranks(module: str, **shared: Unpack[ForAll]) -> Declare[[Job, int]]:
    """Declares metrics of each rank of a job, from the job and the rank's position in it."""
    return Declare(module, "rank", shared)


def of_jobs(module: str, **shared: Unpack[ForAll]) -> DeclareOfJobs:
    """Declares metrics of a job: one number for all ranks together."""
    return DeclareOfJobs(module, "job", shared)


def lacking(
    *others: Callable[[Any], Missing | None], **conditions: Callable[[Any], object]
) -> Callable[[Any], Missing | None]:
    """Why metrics cannot be told: the first of these reasons whose condition holds of a view or a job, then others."""

    def why(of: Any) -> Missing | None:  # noqa: ANN401 - a view or a job
        first = next((Missing(code) for code, holds in conditions.items() if holds(of)), None)
        return first or next(filter(None, map(of.once, others)), None)

    return why


def topics() -> dict[str, list[Metric]]:
    """All metrics by the package that measures them, in the order of their names."""
    groups: dict[str, list[Metric]] = {}
    for metric in sorted(METRICS.values(), key=lambda metric: metric.name):
        groups.setdefault(metric.topic.partition(".")[0], []).append(metric)
    return groups


def tabulates(scope: str) -> Callable[[Rows], Rows]:
    """Registers a function from a view to a frame with one row per step, op or kernel; its docstring names columns."""
    return partial(_register, TABLES, scope)


def tabulates_jobs(scope: str) -> Callable[[TabulateJob], TabulateJob]:
    """Registers a function from a job to a frame; its docstring names the columns."""
    return partial(_register, JOB_TABLES, scope)


def _register(tables: dict[str, R], scope: str, function: R) -> R:
    tables[scope] = function
    return function


def dtypes() -> dict[str, Dtype]:
    """Column type of every metric."""
    return {name: metric.dtype for name, metric in METRICS.items()}


def table_of(rows: Iterable[Mapping[str, Any]], types: Mapping[str, Dtype]) -> pl.DataFrame:
    """Rows of metrics with these columns, null where a row lacks one or has a text for a number; a text is one name."""
    rows = list(rows)
    cells = ((name, type_, [_cell(row.get(name), type_) for row in rows]) for name, type_ in types.items())
    return pl.DataFrame([pl.Series(name, values, type_, strict=False) for name, type_, values in cells])


def _cell(value: Any, type_: Dtype) -> Any:  # noqa: ANN401 - of any column
    if type_ == NAMES and value is not None:
        return [{"name": f"{value}"}] * (value != "") if isinstance(value, str | float) else [*map(dict, value)]
    return value
