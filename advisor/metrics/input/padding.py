"""Padding: sequences of a batch that are filled up to one length, and what the ops over that length would save."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import own_ns, step_ops
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import lacking, of_devices
from advisor.model.profile import BATCHES, matches

_PRODUCTS: Final = r"bmm|attention"  # of each token with each other
_SURELY: Final = 0.75  # own choice, of what shorter sequences save: ops over them cost their launch all the same


def _batches(view: DeviceView) -> pl.DataFrame:
    """The batches, with `values`: places for tokens in each."""
    batches = pl.DataFrame({"batch": view.process.get("batches") or []}, schema={"batch": BATCHES}).unnest("batch")
    return batches.with_columns(values=pl.col("rows") * pl.col("length"))


def _mean(view: DeviceView, part: pl.Expr) -> float:
    """The mean over all places for tokens; 0 without sequences."""
    batches = view.once(_batches)
    total, weighted = int(batches["values"].sum()), batches.select(value=part * pl.col("values"))["value"].to_list()
    return float(sum(weighted)) / max(1, total)


def _padding(view: DeviceView) -> float:
    return _mean(view, pl.col("padding"))


def _times(view: DeviceView) -> pl.DataFrame:
    """The time of the used steps in ops over the padded length, by the power of it that their work has: power, ns.

    The length stands in their shapes, alone or times the rows of a batch. Of a device's kernels by the op that launches
    them.
    """
    batches = view.once(_batches)
    length = "|".join(map(str, batches["length"].unique().sort()))
    rows = "|".join(map(str, batches["values"].unique().sort()))
    if view.device is None:
        ops = view.once(step_ops).select("id", "parent", "name", "shapes", "dur_ns").collect()
        times = ops.select("name", "shapes", ns=own_ns(ops))
    else:
        times = view.with_host(view.used_ops, "op", shapes="shapes", name="name").select("shapes", "name", ns="dur_ns")
    shapes = pl.col("shapes").cast(pl.String)
    twice = shapes.str.contains(rf"\[[^\[\]]*\b(?:{length})\b[^\[\]]*\b(?:{length})\b") | matches(_PRODUCTS)
    once = shapes.str.contains(rf"\b(?:{length}|{rows})\b")
    powers = times.select(power=pl.when(once & twice).then(2).when(once).then(1), ns="ns").drop_nulls()
    return powers.group_by("power").agg(pl.sum("ns"))


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    """What is saved if each batch is as long as its longest sequence, and if there is no padding at all."""
    if not view.once(_padding):
        return 0.0, 0.0
    longest, full = _mean(view, pl.col("longest") / pl.col("length")), 1 - view.once(_padding)
    times = view.once(_times).rows()
    least, most = (sum(ns * (1 - rest**power) for power, ns in times) for rest in (longest, full))
    return view.per_step_ms(_SURELY * least), view.per_step_ms(max(least, most))


measure = of_devices(__name__, unknown=lacking(no_batches=lambda view: view.process.get("batches") is None))
measure("padding_share", _padding).says(
    "Part of the batches that is padding: places for tokens that hold none.",
    "places that an attention mask leaves out, else tails or heads of rows that repeat one value / places, in up to 8 "
    "batches that the loader hands over; 0 without sequences",
)
measure("padded_length", lambda view: _mean(view, pl.col("length"))).says(
    "How long the sequences of a batch are with their padding.", "mean length of those batches"
)
measure("longest_length", lambda view: _mean(view, pl.col("longest"))).says(
    "How long the longest sequence of a batch is without its padding.", "mean over those batches"
)
measure.saving("padding", _ends_ms).says("shorter sequences")
