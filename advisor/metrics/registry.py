"""The register of metrics: a name, a unit, a formula and a source for each; and the measuring of them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import polars as pl

from advisor.lens import Lane, Lens

Unit: TypeAlias = Literal["ms", "us", "share", "ratio", "number", "count", "bytes", "text"]

MOST_PLACES: Final = 10
_DTYPES: Final[dict[Unit, type[pl.DataType]]] = {"count": pl.Int64, "bytes": pl.Int64, "text": pl.String}
_NO_DEVICE: Final = "this worker used no device in the recording"
_NOTHING: Final = "nothing in the steps used that it could be computed from"


@dataclass(frozen=True, slots=True)
class Metric:
    """One named number per device; the row of a worker is that of its critical device.

    `needs` names the tables and columns (`table` or `table.column`) without which it cannot be told. `where` gives
    the places in the recording that the number comes from, the most telling first.
    """

    name: str
    unit: Unit
    meaning: str
    formula: str
    source: str = ""
    needs: tuple[str, ...] = ()
    where: Callable[[Lane], pl.DataFrame] | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """The value of a metric that could not be told, and why."""

    why: str


Value: TypeAlias = float | str | Missing | None
Measure: TypeAlias = Callable[[Lane], Mapping[str, Value]]
Tabulate: TypeAlias = Callable[[Lane], pl.DataFrame]

METRICS: Final[dict[str, Metric]] = {}
TABLES: Final[dict[str, Tabulate]] = {}
_MEASURES: Final[list[tuple[tuple[Metric, ...], Measure]]] = []


def measures(*metrics: Metric) -> Callable[[Measure], Measure]:
    """Registers a function from a lane to the values of `metrics`; a value left out or None could not be told."""

    def register(function: Measure) -> Measure:
        if clash := METRICS.keys() & {m.name for m in metrics}:
            raise ValueError(f"metrics registered twice: {sorted(clash)}")
        METRICS.update({m.name: m for m in metrics})
        _MEASURES.append((metrics, function))
        return function

    return register


def tabulates(scope: str) -> Callable[[Tabulate], Tabulate]:
    """Registers a function from a lane to a frame with one row per step, op or kernel; its docstring names columns."""

    def register(function: Tabulate) -> Tabulate:
        TABLES[scope] = function
        return function

    return register


@dataclass(frozen=True, slots=True)
class Measurements:
    """Every metric of a profile.

    `frames` holds one frame per scope. `device` has a row per lane and a column per metric, `worker` the rows of the
    critical devices, the other scopes a row per step, op or kernel. `reasons[metric]` says why a value is null.
    """

    lens: Lens
    frames: Mapping[str, pl.DataFrame]
    reasons: Mapping[str, str]

    def places(self, metric: str, worker: int) -> pl.DataFrame:
        """At most ten places in the recording behind a worker's value, as a report names them; empty where none."""
        where = METRICS[metric].where
        lane = next(lane for lane in self.lens.critical if lane.worker == worker)
        if where is None or not (rows := where(lane).head(MOST_PLACES)).height:
            return pl.DataFrame()
        ops = lane.host.select(id="id", op_name=pl.col("name").cast(pl.String), stack=pl.col("stack").cast(pl.String))
        op = pl.col("op") if "op" in rows.columns else pl.lit(None, pl.Int64)
        told = rows.with_columns(id=op).join(ops, on="id", how="left", maintain_order="left")
        return told.select(
            "table",
            "name",
            "start_ns",
            "dur_ns",
            "stack",
            worker=pl.lit(lane.worker),
            device=pl.lit(lane.device, pl.Int32),
            step=pl.col("step") if "step" in rows.columns else pl.lit(None, pl.Int32),
            at_ms=(pl.col("start_ns") - self.lens.profile.start_ns) / 1e6,
            op=pl.when(pl.col("op_name") != pl.col("name")).then("op_name"),
        )


def dtypes() -> dict[str, type[pl.DataType]]:
    """Column type of every metric."""
    return {name: _DTYPES.get(metric.unit, pl.Float64) for name, metric in METRICS.items()}


def measure(lens: Lens) -> Measurements:
    """Compute every registered metric over the steps that the lens uses."""
    reasons: dict[str, str] = {}
    rows = [_row(lane, lens, reasons) for lane in lens.lanes]
    device = pl.DataFrame(rows, schema={"worker": pl.Int32, "device": pl.Int32, **dtypes()}, orient="row")
    critical = {(lane.worker, lane.device) for lane in lens.critical}
    worker = device.filter(pl.Series([(lane.worker, lane.device) in critical for lane in lens.lanes], dtype=pl.Boolean))
    tables = {scope: _stacked(function, lens.lanes) for scope, function in TABLES.items()}
    return Measurements(lens, {"worker": worker, "device": device, **tables}, reasons)


def _row(lane: Lane, lens: Lens, reasons: dict[str, str]) -> dict[str, object]:
    """Values of one lane; those that are missing become null and leave their reason in `reasons`."""
    row: dict[str, object] = {"worker": lane.worker, "device": lane.device}
    for metrics, function in _MEASURES:
        values = function(lane)
        for metric in metrics:
            value = _checked(values.get(metric.name), metric, lane, lens)
            if isinstance(value, Missing):
                reasons[metric.name] = value.why
                value = None
            row[metric.name] = value
    return row


def _checked(value: Value, metric: Metric, lane: Lane, lens: Lens) -> Value:
    """The value, or Missing where the recording lacks what it needs or the arithmetic gave no number."""
    if lane.device is None and "device_ops" in metric.needs and not lens.profile.why_lacking("device_ops"):
        return Missing(_NO_DEVICE)
    lacking = [why for need in metric.needs if (why := lens.profile.why_lacking(need))]
    if lacking:
        return Missing(lacking[0])
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return Missing(_NOTHING)
    return value


def _stacked(function: Tabulate, lanes: Sequence[Lane]) -> pl.DataFrame:
    keys = ({"worker": pl.lit(lane.worker, pl.Int32), "device": pl.lit(lane.device, pl.Int32)} for lane in lanes)
    frames = [function(lane).with_columns(**key) for lane, key in zip(lanes, keys, strict=True)]
    return pl.concat(frames)
