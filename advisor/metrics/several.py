"""Metrics whose values one function gives together, each bound to a constant: steps and communication."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

from advisor.analysis.device.view import DeviceView
from advisor.analysis.job.job import Job
from advisor.metrics.metric import _BY_NAME, Declare, Rows, Subject, Unit, Value
from advisor.model.missing import Missing


@dataclass(frozen=True, eq=False)
class Metric:
    """What is said of a metric, as `advisor.metrics.metric.Metric` has it; a function returns `{IT: value}`."""

    name: str
    meaning: str
    formula: str
    source: str = ""
    needs: tuple[str, ...] = ()
    where: Rows | None = None
    unit: Unit = _BY_NAME


Values: TypeAlias = Mapping[Metric, Value] | Missing
"""What a function measures; or the reason why none of it is known."""
_F = TypeVar("_F", bound=Callable[..., Values])


def time_of(name: str, share: Metric, formula: str) -> Metric:
    """The time per step, in ms, of which `share` is the part of the step."""
    return Metric(name, share.meaning.replace("Part of the step", "Time per step"), formula)


def _declare(subject: Subject, metrics: tuple[Metric, ...], function: Callable[..., Values], shared: Any) -> None:  # noqa: ANN401 - fields of OfAll
    def value_of(metric: Metric) -> Callable[..., Value]:
        def value(of: DeviceView | Job, *position: int) -> Value:
            values: Values = function(of, *position) if position else of.once(function)
            return values if isinstance(values, Missing) else values.get(metric)

        return value

    declare: Declare[...] = Declare(function.__module__, subject, shared)
    for metric in metrics:
        more: dict[str, Any] = {"needs": metric.needs, "unit": metric.unit}
        more |= {"where": metric.where} if metric.where else {}
        declare(metric.name, value_of(metric), **more).says(metric.meaning, metric.formula, metric.source)


def _registers(subject: Subject, metrics: tuple[Metric, ...], shared: Mapping[str, object]) -> Callable[[_F], _F]:
    def register(function: _F) -> _F:
        _declare(subject, metrics, function, shared)
        return function

    return register


def measures(*metrics: Metric, needs_steps: bool = True, framework: str = "", **shared: object) -> Callable[[_F], _F]:
    """Registers a function from a view to the values of `metrics`; one that is left out or None is unknown."""

    def register(function: _F) -> _F:
        @wraps(function)
        def measured(view: DeviceView) -> Values:
            if framework and view.process.get("framework") != framework:
                return Missing(f"{framework}_only")
            return {} if needs_steps and not view.total_ns else function(view)

        return _registers("device", metrics, {"needs_steps": needs_steps, **shared})(cast("_F", measured))

    return register


def measures_ranks(*metrics: Metric) -> Callable[[_F], _F]:
    """Registers a function from a job and the position of one of its ranks to that rank's values."""
    return _registers("rank", metrics, {})


def measures_jobs(*metrics: Metric) -> Callable[[_F], _F]:
    """Registers a function from a job to its values: one number for all ranks together."""
    return _registers("job", metrics, {})
