"""Kernels that only move data: how much of the time they take, which follow each other, and what fusing them saves."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import independent, parts, with_words
from advisor.analysis.device.kernels import TYPE, TYPE_BYTES, extent, longest
from advisor.analysis.device.roofs import memory_ns
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.text import largest_first, ms, number, percent
from advisor.whatif import WORDS, faster, saved

_WORDS: Final = {
    "copy": "copy kernels",
    "elementwise": "elementwise",
    "normalisation": "norms",
    "softmax": "softmax",
    "reduction": "reductions",
    "cat": "concatenation",
    "layout": "layout changes",
    "index": "indexing",
    "rng": "random numbers",
    "pooling": "pooling",
}
_LARGE: Final = 1 << 16  # elements: a kernel on fewer is as long as its launch, not as its bytes
_PASSES: Final = 2  # through memory, that a link of a chain costs: written by one kernel, read by the next
_FUSABLE: Final = (0.5, 1.0)  # of the links, at least and at most
_PORTIONS: Final = (0.5, 0.9)  # of a kernel's time that may go
_MOST: Final = 3
_CASTS: Final = r"^aten::_to_copy$"
_CAST_TYPES: Final = r":Cast$|/convert_element_type$"
_NEEDS: Final = ("device_ops", "device_ops.name")


MOVING_KERNEL_SHARE = Metric(
    "moving_kernel_share",
    "Part of the kernel time in kernels that only move data: memory bandwidth limits them, not arithmetic.",
    "time of copy, elementwise, normalisation, softmax, reduction, concatenation, layout, index, random-number and "
    "pooling kernels, without those that update parameters / time of all compute kernels",
    "NVIDIA GPU Performance Background User's Guide: their arithmetic intensity is below any GPU's ridge",
    where=lambda view: longest(_moving_kernels(view)),
)
MOVING_MS = Metric(
    "moving_ms",
    "Time per step in kernels that only move data: memory bandwidth limits them, not arithmetic.",
    "union of those kernels / steps",
)
MOVING_KINDS = Metric(
    "moving_kinds",
    "Which kinds of kernels only move data, in parts of the kernel time.",
    "those with the most, then the others",
    unit="text",
)
CHAIN_LINKS = Metric(
    "chain_links",
    "Which kernels that move data follow each other on the same values, with their time per step.",
    "pairs in a row on a stream over equally many elements, at least 65,536, within one layer's scope where ops are "
    "named by layer, by launching ops; the three with the most",
    unit="text",
)
FUSABLE_BYTES = Metric(
    "fusable_bytes",
    "Bytes per step that pairs of kernels write and read again, which one kernel for both would not.",
    "sum over pairs of 2 x elements x bytes of the second one's type / steps",
    "shapes and types of the launching ops",
)
FUSABLE_LEAST_MS = Metric(
    "fusable_least_ms",
    "Step time that fusing pairs of kernels on the same values saves at least.",
    f"half of those bytes at the full memory bandwidth, at most half of a kernel's time{WORDS['faster']}",
)
FUSABLE_MS = Metric(
    "fusable_ms",
    "Step time that fusing pairs of kernels on the same values saves at most.",
    f"all of those bytes at the full memory bandwidth, at most all but a tenth of a kernel's time{WORDS['faster']}",
)


@measures(
    MOVING_KERNEL_SHARE, MOVING_MS, MOVING_KINDS, CHAIN_LINKS, FUSABLE_BYTES, FUSABLE_LEAST_MS, FUSABLE_MS, needs=_NEEDS
)
def data_movement(view: DeviceView) -> Values:
    """What moves data and what of it could be one kernel; nothing without a device."""
    rows, links = view.once(_moving_kernels), view.once(_links)
    all_ns = int(view.once(parts)["dur_ns"].sum())
    most_saved, dur = pl.col("saved_ns"), pl.col("dur_ns")
    slow, fast = (
        dur - pl.min_horizontal(most_saved * part, dur * most) for part, most in zip(_FUSABLE, _PORTIONS, strict=True)
    )
    least, most = saved(view, faster(links, slow, fast))
    return {
        MOVING_KERNEL_SHARE: int(rows["dur_ns"].sum()) / all_ns if all_ns else 0.0,
        MOVING_MS: view.per_step_ms(float(spans(rows).within(view.starts, view.ends).sum())),
        MOVING_KINDS: _kinds(rows, all_ns),
        CHAIN_LINKS: _pairs(view, links),
        FUSABLE_BYTES: int(links["saved_bytes"].sum()) // view.steps.height,
        FUSABLE_LEAST_MS: least,
        FUSABLE_MS: most,
    }


CAST_SHARE = Metric(
    "cast_share",
    "Part of the step in kernels that only change the type of values.",
    "time of copy kernels launched in aten::_to_copy, or by a Cast or convert_element_type op / step time",
    where=lambda view: longest(_casts(view)),
)
CAST_MS = time_of("cast_ms", CAST_SHARE, "time of those kernels / steps")
CASTS_PER_STEP = Metric("casts_per_step", "Kernels per step that only change the type of values.", "kernels / steps")


@measures(CAST_SHARE, CAST_MS, CASTS_PER_STEP, needs=_NEEDS)
def casts(view: DeviceView) -> Values:
    """Casts that are kernels of their own; nothing without a device."""
    rows = _casts(view)
    share, time_ms, _ = extent(view, rows)
    return {CAST_SHARE: share, CAST_MS: time_ms, CASTS_PER_STEP: rows.height / view.steps.height}


def _moving_kernels(view: DeviceView) -> pl.DataFrame:
    is_optimizer = pl.col("part").eq_missing(pl.lit("optimizer"))
    return view.once(parts).filter(pl.col("family").is_in(list(_WORDS)), ~is_optimizer)


def _links(view: DeviceView) -> pl.DataFrame:
    """Kernels that read what the kernel before them wrote: with `before`, its op, `saved_bytes` and `saved_ns`.

    Small kernels in between, as the casts of a layer's weights, end no chain; a product does. So does what is
    independent of the kernel before, see `independent`.
    """
    large = view.once(parts).filter(pl.col("elements") >= _LARGE)
    is_moving = pl.col("family").is_in(list(_WORDS)) & ~pl.col("part").eq_missing(pl.lit("optimizer"))
    rows = with_words(large).with_columns(moves=is_moving, follows=~independent())
    previous = {name: pl.col(name).shift().over("stream") for name in ("moves", "elements", "op_name")}
    chained = pl.col("moves") & pl.col("follows") & previous["moves"] & (pl.col("elements") == previous["elements"])
    size = pl.col("op_dtype").replace_strict(TYPE_BYTES, default=None, return_dtype=pl.Int64)
    rows = rows.with_columns(before=previous["op_name"], saved_bytes=_PASSES * pl.col("elements") * size)
    return rows.filter(chained.fill_null(value=False), pl.col("saved_bytes").is_not_null()).with_columns(
        saved_ns=memory_ns(pl.col("saved_bytes"), view.gpu, 1.0)
    )


def _kinds(rows: pl.DataFrame, all_ns: int) -> str | None:
    times = rows.group_by(pl.col("family").cast(pl.String).replace(_WORDS)).agg(pl.sum("dur_ns"))
    return largest_first(times.rows(), lambda ns: percent(ns / all_ns), "{} {}") or None


def _pairs(view: DeviceView, links: pl.DataFrame) -> str | None:
    kinds = [pl.coalesce(pl.col(name).str.extract(TYPE), name).alias(name) for name in ("before", "op_name")]
    pairs = links.group_by(kinds).agg(pl.sum("dur_ns"), number=pl.len())
    longest_first = pairs.sort("dur_ns", "op_name", descending=[True, False]).head(_MOST)
    texts = [
        f"{before} then {after} ({number(calls / view.steps.height)} x, {ms(view.per_step_ms(ns))})"
        for before, after, ns, calls in longest_first.rows()
    ]
    return ", ".join(texts) or None


def _casts(view: DeviceView) -> pl.DataFrame:
    copies = view.once(parts).filter(pl.col("family") == "copy")
    casting = view.host_like(_CASTS).select(op="id")
    inner = view.host.join(casting, left_on="parent", right_on="op", how="semi").select(op="id")
    ids = pl.concat([casting, inner])["op"].implode()
    return copies.filter(pl.col("op").is_in(ids) | pl.col("op_name").str.contains(_CAST_TYPES).fill_null(value=False))
