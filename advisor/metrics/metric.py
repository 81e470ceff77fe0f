"""The register of metrics: a call declares each once, with its name, meaning, formula, source and function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypedDict, Unpack, cast

import polars as pl

from advisor.analysis.device.kernels import largest, longest
from advisor.analysis.device.view import DeviceView, spans
from advisor.analysis.job.job import Job
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing
from advisor.vocabulary.limits import with_limits
from advisor.whatif import WORDS, Change, faster, saved

P = ParamSpec("P")

Scope: TypeAlias = Literal["worker", "run"]
Unit: TypeAlias = Literal["ms", "us", "share", "ratio", "number", "count", "bytes", "rank", "device", "text"]
Value: TypeAlias = float | str | Missing | None
"""What a metric's function gives; None is unknown without a reason of its own."""
Subject: TypeAlias = Literal["device", "rank", "job"]
Rows: TypeAlias = Callable[[DeviceView], pl.DataFrame]
Give: TypeAlias = Literal["share", "ms", "ops", "per_step"]
Tabulate: TypeAlias = Callable[[DeviceView], pl.DataFrame]
TabulateJob: TypeAlias = Callable[[Job], pl.DataFrame]

WHOLE_NUMBERS: Final[tuple[Unit, ...]] = ("count", "bytes", "rank", "device")
"""Units of numbers that have no fractions; a rank and a device are the numbers that the recording gives them."""
_BY_NAME: Final = cast("Unit", "")
_UNITS_OF_NAMES: Final[dict[str, Unit]] = {
    **{unit: unit for unit in ("ms", "us", "share", "ratio", "bytes", "rank", "device")},
    "part": "share",
    **dict.fromkeys(("ops", "names", "causes"), "text"),
}
_DTYPES: Final[dict[Unit, type[pl.DataType]]] = {**dict.fromkeys(WHOLE_NUMBERS, pl.Int64), "text": pl.String}


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One named number per device; the row of a worker is that of its critical device. Of a job: one for all ranks.

    `of` gives its value from a view of one device, from a job and the position of a rank, or from a job, as `subject`
    says. `unit` is what the name ends in (`_ms`, `_share`), else `number`, unless it is given. Meaning, formula and
    source name limits as `limits.with_limits` does. `needs` names the tables and columns (`table` or `table.column`)
    without which it cannot be told. `of` is asked only where there are used steps, unless it `needs_steps` not; of this
    `framework` alone; and where `unknown` gives no reason why not. `where` gives the places in the recording that the
    number comes from, the most telling first.
    """

    name: str
    meaning: str
    formula: str
    of: Callable[..., Value]
    source: str = ""
    unit: Unit = _BY_NAME
    needs: tuple[str, ...] = ()
    where: Rows | None = None
    subject: Subject = "device"
    topic: str = ""
    needs_steps: bool = True
    framework: str = ""
    unknown: Callable[[Any], Missing | None] | None = None

    def __post_init__(self) -> None:
        for text in ("meaning", "formula", "source"):
            object.__setattr__(self, text, with_limits(getattr(self, text)))
        if self.unit is _BY_NAME:
            object.__setattr__(self, "unit", _UNITS_OF_NAMES.get(self.name.rpartition("_")[2], "number"))

    def called(self, name: str) -> Metric:
        """The same by another name."""
        return replace(self, name=name, unit=self.unit)

    @property
    def scope(self) -> Scope:
        """Whether each worker has a value, or the run one for all."""
        return "run" if self.subject == "job" else "worker"

    @property
    def dtype(self) -> type[pl.DataType]:
        """Type of the metric's column."""
        return _DTYPES.get(self.unit, pl.Float64)

    def value(self, subject: DeviceView | Job, *position: int) -> Value:
        """Its value of a device, of a job, or of the rank at this position of a job."""
        if isinstance(subject, DeviceView):
            if self.needs_steps and not subject.total_ns:
                return None
            if self.framework and subject.process.get("framework") != self.framework:
                return Missing(f"{self.framework}_only")
        why = subject.once(self.unknown) if self.unknown else None
        return why or self.of(subject, *position)


METRICS: Final[dict[str, Metric]] = {}
TABLES: Final[dict[str, Tabulate]] = {}
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


class OfSaving(TypedDict, total=False):
    """What `saving` may say of both ends of one."""

    sources: tuple[str, str]


@dataclass(frozen=True)
class Declare(Generic[P]):
    """Declares metrics: a call declares one. `module` is the `__name__` of the module that they stand in."""

    module: str
    subject: Subject
    shared: ForAll

    def __call__(self, name: str, meaning: str, formula: str, of: Callable[P, Value], **more: Unpack[Details]) -> None:
        """One metric, of what `Metric` has.

        Raises:
            ValueError: the name is taken.
        """
        if name in METRICS:
            raise ValueError(f"registered twice: {name}")
        topic = self.module.removeprefix("advisor.metrics.").partition(".")[0]
        needs = {"needs": (*self.shared.get("needs", ()), *more.get("needs", ()))}
        fields: dict[str, Any] = {**self.shared, **more, **needs}
        METRICS[name] = Metric(name, meaning, formula, of, subject=self.subject, topic=topic, **fields)


class DeclareOfDevices(Declare[[DeviceView]]):
    """Declares metrics of devices; a method declares several that belong together, in words said once."""

    def time(
        self, name: str, when: Callable[[DeviceView], Intervals], which: str, what: str, **more: Unpack[Details]
    ) -> None:
        """`<name>_share` and `<name>_ms`: the part of the step, and the time per step, in which something goes on.

        `which` goes on after "Part of the step ", as "in which Python runs" does; `what` is the time in the formula.
        """
        self(
            f"{name}_share",
            f"Part of the step {which}.",
            f"{what} / step time",
            lambda v: v.share(v.once(when)),
            **more,
        )
        self(
            f"{name}_ms",
            f"Time per step {which}.",
            f"{what} / steps",
            lambda v: v.per_step_ms(int(v.once(when).within(v.starts, v.ends).sum())),
        )

    def kernels(
        self,
        name: str,
        rows: Rows,
        which: str,
        what: str,
        gives: Sequence[Give] = ("share", "ms"),
        **more: Unpack[Details],
    ) -> None:
        """`<name>_share` and the like of kernels, rows as `analysis.device.kernels.kernels` has them.

        `which` is as for `time`; `what` names the kernels in the formula. Time is their union, cut to
        the used steps. Places are the longest call of each kernel.
        """

        def took_ns(view: DeviceView) -> int:
            return int(spans(view.once(rows)).within(view.starts, view.ends).sum())

        def share(view: DeviceView) -> Value:
            return took_ns(view) / view.total_ns

        places: Details = {"where": lambda view: longest(view.once(rows)), **more}
        forms: Mapping[Give, tuple[str, str, Callable[[DeviceView], Value], Details]] = {
            "share": (f"Part of the step {which}.", f"time of {what} / step time", share, places),
            "ms": (
                f"Time per step {which}.",
                f"time of {what} / steps",
                lambda view: view.per_step_ms(took_ns(view)),
                {},
            ),
            "ops": (
                f"The ops with the most time {which}.",
                f"those that launched {what}, the most time first, then the others",
                lambda view: largest(view, view.once(rows)),
                {"unit": "text"},
            ),
            "per_step": (
                f"Kernels per step {which}.",
                f"number of {what} / steps",
                lambda view: view.once(rows).height / view.steps.height,
                {},
            ),
        }
        for give in gives:
            meaning, formula, of, others = forms[give]
            self(f"{name}_{give}", meaning, formula, of, **others)

    def saving(
        self,
        name: str,
        change: str,
        formulas: tuple[str, str],
        interval: Callable[[DeviceView], tuple[float, float]],
        sources: tuple[str, str] = ("", ""),
    ) -> None:
        """`<name>_least_gain_ms` and `<name>_gain_ms`: step time that `change` saves, at least and at most.

        Formulas and sources are those of the two ends. `interval` gives both ends in ms, and is asked once.
        """
        for end, (kind, words) in enumerate((("least_gain", "at least"), ("gain", "at most"))):
            self(
                f"{name}_{kind}_ms",
                f"Step time that {change} saves {words}.",
                formulas[end],
                lambda view, end=end: view.once(interval)[end],  # type: ignore[misc]  # the end is bound here
                source=sources[end],
            )

    def gain(
        self, name: str, meaning: str, formula: str, change: Callable[[DeviceView], Change], **more: Unpack[Details]
    ) -> None:
        """`<name>_gain_ms`: step time that a change saves at most."""
        places: Details = {"source": "advisor.whatif.replay", **more}
        self(f"{name}_gain_ms", meaning, formula, lambda view: saved(view, change(view)).most_ms, **places)

    def faster(
        self,
        name: str,
        change: str,
        rows: Rows,
        ends: tuple[float, float] | Callable[[DeviceView], tuple[pl.Expr, pl.Expr]],
        formulas: tuple[str, str],
        **more: Unpack[OfSaving],
    ) -> None:
        """`saving` by kernels that take other times: `ends` are parts of now, or ns, at least and at most faster.

        The formulas get the words for a replay.
        """

        def interval(view: DeviceView) -> tuple[float, float]:
            slow, fast = ends(view) if callable(ends) else (pl.col("dur_ns") * part for part in ends)
            return saved(view, faster(view.once(rows), slow, fast))

        least, most = (f"{formula}{WORDS['faster']}" for formula in formulas)
        self.saving(name, change, (least, most), interval, **more)


class DeclareOfJobs(Declare[[Job]]):
    """Declares metrics of jobs."""

    def rank(self, name: str, meaning: str, formula: str, position: Callable[[Job], int | Missing]) -> None:
        """`name` and `<name>_device`: one rank of the job, by its position, and its device where a rank has several."""

        def worker(job: Job) -> Value:
            at = job.once(position)
            return at if isinstance(at, Missing) else job.ranks[at].worker

        def device(job: Job) -> Value:
            at = job.once(position)
            if isinstance(at, Missing):
                return at
            several = job.several_devices and job.ranks[at].device is not None
            return job.ranks[at].device if several else Missing("one_device_per_rank")

        self(name, meaning, formula, worker, unit="rank")
        of_device = f"{name}: its device, where a rank drives several."
        self(f"{name}_device", of_device, "the number that the recording gives it", device, unit="device")


def of_devices(module: str, **shared: Unpack[ForAll]) -> DeclareOfDevices:
    """Declares metrics of one device of a worker, from its view."""
    return DeclareOfDevices(module, "device", shared)


def of_ranks(module: str, **shared: Unpack[ForAll]) -> Declare[[Job, int]]:
    """Declares metrics of each rank of a job, from the job and the rank's position in it."""
    return Declare(module, "rank", shared)


def of_jobs(module: str, **shared: Unpack[ForAll]) -> DeclareOfJobs:
    """Declares metrics of a job: one number for all ranks together."""
    return DeclareOfJobs(module, "job", shared)


def topics() -> dict[str, list[Metric]]:
    """All metrics by the package that measures them, in the order of their names."""
    groups: dict[str, list[Metric]] = {}
    for metric in sorted(METRICS.values(), key=lambda metric: metric.name):
        groups.setdefault(metric.topic, []).append(metric)
    return groups


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
