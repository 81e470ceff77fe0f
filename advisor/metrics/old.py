"""The former way to declare metrics, until all of them are declared by `metric.of_devices` and its like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from advisor.metrics.metric import _BY_NAME, Declare, Rows, Unit, Value
from advisor.model.missing import Missing


@dataclass(frozen=True, eq=False)
class Metric:
    """As before."""

    name: str
    meaning: str
    formula: str
    source: str = ""
    needs: tuple[str, ...] = ()
    where: Rows | None = None
    scope: str = "worker"
    unit: Unit = _BY_NAME


Values: TypeAlias = Mapping[Metric, Value] | Missing


def time_of(name: str, share: Metric, formula: str) -> Metric:
    """As before."""
    return Metric(name, share.meaning.replace("Part of the step", "Time per step"), formula)


def _declare(subject: str, metrics: tuple[Metric, ...], function: Callable[..., Values], **shared: Any) -> None:
    declare: Declare[...] = Declare(function.__module__, subject, shared)  # type: ignore[arg-type]

    def value(metric: Metric) -> Callable[..., Value]:
        def of(on: Any, *position: int) -> Value:
            got = function(on, *position) if position else on.once(function)
            return got if isinstance(got, Missing) else got.get(metric)

        return of

    for metric in metrics:
        more: dict[str, Any] = {"source": metric.source, "needs": metric.needs, "unit": metric.unit}
        declare(metric.name, metric.meaning, metric.formula, value(metric), where=metric.where, **more)


def measures(*metrics: Metric, **shared: Any) -> Callable[[Any], Any]:
    """As before."""

    def register(function: Any) -> Any:
        _declare("device", metrics, function, **shared)
        return function

    return register


def measures_ranks(*metrics: Metric) -> Callable[[Any], Any]:
    """As before."""

    def register(function: Any) -> Any:
        _declare("rank", metrics, function)
        return function

    return register


def measures_jobs(*metrics: Metric) -> Callable[[Any], Any]:
    """As before."""

    def register(function: Any) -> Any:
        _declare("job", metrics, function)
        return function

    return register
