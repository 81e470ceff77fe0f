"""Kernels that only move data: how much of the time they take, which follow each other, and what fusing them saves."""

from typing import Final

import polars as pl

from advisor.analysis.device.kernel_groups import independent, parts, with_words
from advisor.analysis.device.kernels import TYPE, TYPE_BYTES, longest
from advisor.analysis.device.roofs import memory_ns
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.text import largest_first, ms, number, percent
from advisor.whatif import Interval, faster, saved

_WORDS: Final = {
    "copy": "copy kernels",
    "cast": "casts",
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


def _all_ns(view: DeviceView) -> int:
    return int(view.once(parts)["dur_ns"].sum())


def _moving_share(view: DeviceView) -> float:
    total = view.once(_all_ns)
    return int(view.once(_moving_kernels)["dur_ns"].sum()) / total if total else 0.0


def _kinds(view: DeviceView) -> str | None:
    times = view.once(_moving_kernels).group_by(pl.col("family").cast(pl.String).replace(_WORDS)).agg(pl.sum("dur_ns"))
    return largest_first(times.rows(), lambda ns: percent(ns / view.once(_all_ns)), "{} {}") or None


def _pairs(view: DeviceView) -> str | None:
    kinds = [pl.coalesce(pl.col(name).str.extract(TYPE), name).alias(name) for name in ("before", "op_name")]
    pairs = view.once(_links).group_by(kinds).agg(pl.sum("dur_ns"), number=pl.len())
    longest_first = pairs.sort("dur_ns", "op_name", descending=[True, False]).head(_MOST)
    texts = [
        f"{before} then {after} ({number(calls / view.steps.height)} x, {ms(view.per_step_ms(ns))})"
        for before, after, ns, calls in longest_first.rows()
    ]
    return ", ".join(texts) or None


def _gains(view: DeviceView) -> Interval:
    least, dur = pl.col("saved_ns"), pl.col("dur_ns")
    ends = (dur - pl.min_horizontal(least * part, dur * most) for part, most in zip(_FUSABLE, _PORTIONS, strict=True))
    return saved(view, faster(view.once(_links), *ends))


measure = of_devices(__name__, needs=("device_ops", "device_ops.name"))

measure("moving_kernel_share", _moving_share, where=longest(_moving_kernels)).says(
    "Part of the kernel time in kernels that only move data: memory bandwidth limits them, not arithmetic.",
    "time of copy, cast, elementwise, normalisation, softmax, reduction, concatenation, layout, index, random "
    "number and pooling kernels, without those that update parameters / time of all compute kernels",
    "NVIDIA GPU Performance Background User's Guide: their arithmetic intensity is below any GPU's ridge",
)
measure.kernels("moving", _moving_kernels, gives=("ms",)).says(
    "in kernels that only move data: memory bandwidth limits them, not arithmetic", "kernels as in moving_kernel_share"
)
measure("moving_kinds", _kinds, unit="text").says(
    "Which kinds of kernels only move data, in parts of the kernel time.", "those with the most, then the others"
)
measure("chain_links", _pairs, unit="text").says(
    "Which kernels that move data follow each other on the same values, with their time per step.",
    "pairs in a row on a stream over equally many elements, at least 65,536, within one layer's scope where ops are "
    "named by layer, by launching ops; the three with the most",
)
measure("fusable_bytes", lambda view: int(view.once(_links)["saved_bytes"].sum()) // view.steps.height).says(
    "Bytes per step that pairs of kernels write and read again, which one kernel for both would not.",
    "sum over pairs of 2 x elements x bytes of the second one's type / steps",
    "shapes and types of the launching ops",
)
measure("fusable_least_ms", lambda view: view.once(_gains).least_ms).says(
    "Step time that fusing pairs of kernels on the same values saves at least."
)
measure("fusable_ms", lambda view: view.once(_gains).most_ms).says(
    "Step time that fusing pairs of kernels on the same values saves at most."
)
