"""Kernels for which there is one fused kernel: norms, rotary embeddings, gates, chains of values, attention."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec
import polars as pl

from advisor.analysis.device.host_work import BACKWARD
from advisor.analysis.device.kernels import (
    TYPE,
    TYPE_BYTES,
    UPDATES,
    independent,
    kernels,
    kernels_ns,
    longest,
    part,
    parts,
    with_words,
)
from advisor.analysis.device.roofs import memory_ns
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import lacking, of_devices
from advisor.model.clause import Entries, Missing, largest_first
from advisor.model.profile import Schema
from advisor.vocabulary.limits import table
from advisor.whatif.change import Change, Interval, faster, saved

_LARGE: Final = 1 << 16  # elements: a kernel on fewer is as long as its launch, not as its bytes
_LEAST_SAVED: Final = 0.5  # of the bytes that one kernel does not move, at least
_OTHER: Final = "."


class _Fusion(msgspec.Struct, frozen=True):
    """A kind of sequence."""

    kind: str
    words: str
    pattern: str  # a letter per kernel
    passes: int  # how many tensors a fused kernel moves for it
    apart: str = "GF"  # letters of kernels that stand between the others and stay


class _Sequences(msgspec.Struct, frozen=True):
    """Letters by op, by node of autograd and by kind of work; `sized` are those on tensors of one size, by kind."""

    ops: dict[str, str]
    nodes: dict[str, str]
    work: dict[str, str]
    sized: dict[str, str]
    fusions: tuple[_Fusion, ...]


_KNOWN: Final = msgspec.convert(table(__file__, "sequences"), _Sequences)
_OF_TWO: Final = 2.5  # tensors: two are read and one is written, none of them much smaller than the others
_COLUMNS: Final = ("id", "stream", "op", "op_name", "op_dtype", "work", "elements", "least_bytes")
_SAVED: Final = ("fusion", "sequence", "saved_bytes", "saved_part")
_HITS: Final[Schema] = {"fusion": pl.String, "passes": pl.Int64, "apart": pl.String, "row": pl.List(pl.UInt32)}


def _members(view: DeviceView) -> pl.DataFrame:
    """The kernels of such sequences, with `fusion` (kind), `sequence` (number), `saved_bytes` and `saved_part`."""
    letter = pl.coalesce(
        pl.col("op_name").replace_strict(_KNOWN.ops, default=None, return_dtype=pl.String),
        pl.col("work").replace_strict(_KNOWN.work, default=None, return_dtype=pl.String),
        pl.lit(_OTHER),
    )
    node = pl.col("node").replace_strict(_KNOWN.nodes, default=None, return_dtype=pl.String)
    size = pl.col("op_dtype").replace_strict(TYPE_BYTES, default=None, return_dtype=pl.Int64)
    rows = view.once(kernels)
    # what of autograd called the op of a kernel; null outside of norms' gradients
    nodes = view.host_like(rf"^(?:{'|'.join(_KNOWN.nodes)})$").select(parent="id", node=pl.col("name").cast(pl.String))
    called = view.with_host(rows.select(*_COLUMNS), "op", parent="parent")
    letters = called.join(nodes, on="parent", how="left", maintain_order="left").with_row_index("row")
    letters = letters.with_columns(letter=pl.coalesce(node, letter), size=size)
    texts = letters.group_by("stream", maintain_order=True).agg(pl.first("row"), pl.col("letter").str.join())
    hits = [
        (fusion.kind, fusion.passes, fusion.apart, [*range(first + match.start(), first + match.end())])
        for _, first, text in texts.rows()
        for fusion in _KNOWN.fusions
        for match in re.finditer(fusion.pattern, text)
    ]
    if not hits:  # as of most recordings
        return rows.clear().with_columns(pl.lit(0.0).alias(name) for name in _SAVED)
    of_rows = pl.DataFrame(hits, _HITS, orient="row").with_row_index("sequence").explode("row")
    members = of_rows.join(letters, on="row", maintain_order="left")
    members = members.filter(~pl.col("apart").str.contains(pl.col("letter"), literal=True))
    return rows.join(_saving(members).explode("id"), on="id", how="inner", maintain_order="left")


def _saving(members: pl.DataFrame) -> pl.DataFrame:
    """A row per sequence with the ids of its kernels, without those that may be something else, or move no less."""
    moved, sizes = pl.col("least_bytes"), pl.col("fusion").replace_strict(_KNOWN.sized, return_dtype=pl.String)
    elements = pl.col("elements").filter(sizes.str.contains(pl.col("letter"), literal=True))
    tensor = elements.max() * pl.col("size").last()
    each = members.group_by("sequence").agg(
        pl.first("fusion"),
        pl.col("id"),
        now=moved.sum() + 2 * tensor * moved.null_count(),
        fused=tensor * pl.first("passes"),
        alike=(elements.n_unique() == 1) & (elements.max() >= _LARGE),
        by_fewer=moved.last().fill_null(0) < _OF_TWO * tensor,  # values
        cast=moved.ne_missing(2 * pl.col("elements").fill_null(0) * pl.col("size").fill_null(0)).any(),
    )
    others = ((pl.col("fusion") == "gate") & pl.col("by_fewer")) | ((pl.col("fusion") == "copies") & pl.col("cast"))
    saved_bytes = pl.col("now") - pl.col("fused")
    return each.filter("alike", ~others, saved_bytes > 0).select(
        "fusion",
        "sequence",
        "id",
        saved_bytes=saved_bytes / pl.col("id").list.len(),
        saved_part=saved_bytes / pl.col("now"),
    )


def _kinds(view: DeviceView) -> pl.DataFrame:
    """Each kind with its sequences, the most time first."""
    kinds = view.once(_members).group_by("fusion").agg(pl.sum("dur_ns"), calls=pl.col("sequence").n_unique())
    return kinds.sort("dur_ns", "fusion", descending=[True, False])


def _of_kinds(view: DeviceView) -> Entries | None:
    words = {fusion.kind: fusion.words for fusion in _KNOWN.fusions}
    return _entries(view, ((words[kind], ns, calls) for kind, ns, calls in view.once(_kinds).rows())) or None


def _entries(view: DeviceView, rows: Iterable[tuple[str, int, int]]) -> Entries:
    """Names with their time in ns and how often they come."""
    return [{"name": n, "count": calls / view.steps.height, "ms": view.per_step_ms(ns)} for n, ns, calls in rows]


def _without(part: float) -> pl.Expr:
    """Time of a kernel without this part of what it need not move."""
    return pl.col("dur_ns") * (1 - part * pl.col("saved_part"))


measure = of_devices(
    __name__, framework="pytorch", unknown=lacking(nothing_to_compute_from=lambda view: view.device is None)
)

measure.kernels("fusion", _members, needs=("device_ops", "host_ops.shapes")).says(
    "in sequences of kernels for which there is one fused kernel",
    "kernels of such sequences in a row on a stream, over at least 65,536 elements: norms (square, mean, rsqrt, "
    "multiply), rotary embeddings (multiply, negate, concatenate, multiply, add), gated activations (SiLU or GELU, "
    "multiply by as many values), the backward ops of these by autograd's nodes, and three copies without a cast right "
    "before fused attention and one after it",
    "sequences of the modules of Hugging Face's transformers",
)
measure("fusion_kinds", _of_kinds, unit="names").says(
    "Which sequences of kernels one fused kernel could replace, with number and time per step.",
    "all kinds, most time first",
)
measure("fusion_first", lambda view: next(iter(view.once(_kinds)["fusion"]), "none"), unit="text").says(
    "The kind of fusable sequence with most time: `norm`, `rotary`, `gate`, `copies`, or `none`.", "by time"
)
measure("fusion_bytes", lambda view: int(view.once(_members)["saved_bytes"].sum()) // view.steps.height).says(
    "Bytes per step that sequences of kernels move and that fused kernels would not.",
    "sum over sequences of the bytes of their ops - tensors that a fused kernel reads and writes (norm and rotary 2, "
    "a norm's backward ops 3, gate 3, its backward ops 5, copies 0) x elements x bytes of the last op's type / steps",
)
measure.faster("fusion", _members, lambda _: (_without(_LEAST_SAVED), _without(1.0))).says(
    "taking the fused kernel for each sequence that has one"
)


_WORDS: Final[dict[str, str]] = table(__file__, "moving")
_MOVES: Final = pl.col("family").is_in(list(_WORDS)) & ~UPDATES
_PASSES: Final = 2  # through memory, that a link of a chain costs: written by one kernel, read by the next
_FUSABLE: Final = (0.5, 1.0)  # of the links, at least and at most
_PORTIONS: Final = (0.5, 0.9)  # of a kernel's time that may go


def _moving_kernels(view: DeviceView) -> pl.DataFrame:
    return view.once(parts).filter(_MOVES)


def _links(view: DeviceView) -> pl.DataFrame:
    """Kernels that read what the kernel before them wrote: with `before`, its op, `saved_bytes` and `saved_ns`.

    Small kernels in between, as the casts of a layer's weights, end no chain; a product does. So does what is
    independent of the kernel before, see `independent`.
    """
    large = view.once(parts).filter(pl.col("elements") >= _LARGE)
    rows = with_words(large).with_columns(moves=_MOVES, follows=~independent())
    previous = {name: pl.col(name).shift().over("stream") for name in ("moves", "elements", "op_name")}
    chained = pl.col("moves") & pl.col("follows") & previous["moves"] & (pl.col("elements") == previous["elements"])
    kind = pl.coalesce("op_dtype", "element_type")
    size = kind.replace_strict(TYPE_BYTES, default=None, return_dtype=pl.Int64)
    rows = rows.with_columns(before=previous["op_name"], saved_bytes=_PASSES * pl.col("elements") * size)
    return rows.filter(chained.fill_null(value=False), pl.col("saved_bytes").is_not_null()).with_columns(
        saved_ns=memory_ns(pl.col("saved_bytes"), view.memory_gbs, 1.0)
    )


def _moving_kinds(view: DeviceView) -> Entries | None:
    times = view.once(_moving_kernels).group_by(pl.col("family").cast(pl.String).replace(_WORDS)).agg(pl.sum("dur_ns"))
    return largest_first(times.rows(), "share", view.once(kernels_ns)) or None


def _pairs(view: DeviceView) -> Entries | None:
    kinds = [pl.coalesce(pl.col(name).str.extract(TYPE), name).alias(name) for name in ("before", "op_name")]
    pairs = view.once(_links).group_by(kinds).agg(pl.sum("dur_ns"), number=pl.len())
    most = pairs.sort("dur_ns", "op_name", descending=[True, False]).head(3).rows()
    return _entries(view, ((f"{before} then {after}", ns, calls) for before, after, ns, calls in most)) or None


def _gains(view: DeviceView) -> Interval:
    least, dur = pl.col("saved_ns"), pl.col("dur_ns")
    ends = (dur - pl.min_horizontal(least * part, dur * most) for part, most in zip(_FUSABLE, _PORTIONS, strict=True))
    return saved(view, faster(view.once(_links), *ends))


of_values = of_devices(__name__, needs=("device_ops", "device_ops.name"))

of_values(
    "moving_kernel_share",
    lambda view: int(view.once(_moving_kernels)["dur_ns"].sum()) / max(1, view.once(kernels_ns)),
    where=longest(_moving_kernels),
).says(
    "Part of the kernel time in kernels that only move data: memory bandwidth limits them, not arithmetic.",
    "time of copy, cast, elementwise, normalisation, softmax, reduction, concatenation, layout, index, random "
    "number and pooling kernels, without those that update parameters / time of all compute kernels",
    "NVIDIA GPU Performance Background User's Guide: their arithmetic intensity is below any GPU's ridge",
)
of_values.kernels("moving", _moving_kernels, gives=("ms",)).says(
    "in kernels that only move data: memory bandwidth limits them, not arithmetic", "kernels as in moving_kernel_share"
)
of_values("moving_kinds", _moving_kinds, unit="names").says(
    "Which kinds of kernels only move data, in parts of the kernel time.", "those with the most, then the others"
)
of_values("chain_links", _pairs, unit="names").says(
    "Which kernels that move data follow each other on the same values, with their time per step.",
    "pairs in a row on a stream over equally many elements, at least 65,536, within one layer's scope where ops are "
    "named by layer, by launching ops; the three with the most",
)
of_values("fusable_bytes", lambda view: int(view.once(_links)["saved_bytes"].sum()) // view.steps.height).says(
    "Bytes per step that pairs of kernels write and read again, which one kernel for both would not.",
    "sum over pairs of 2 x elements x bytes of the second one's type / steps",
    "shapes and types of the launching ops",
)
of_values.saving("fusable", _gains).says("fusing pairs of kernels on the same values")


# Of the peak: memory-efficient kernels on a V100; FlashAttention-2 reaches 73 % of an A100's, FlashAttention-3 75 % of
# an H100's.
_RATES: Final = (0.25, 0.75)
_HEAD: Final = 64  # elements of the smallest head that fused kernels have tiles for; shorter ones are filled up
_AGAIN: Final = 1.25  # times the work at most: the backward pass computes the scores anew
_SLOWER: Final = (3.0, 1.5)  # own choice, than products in TF32 and in other types: fp32 takes three of TF32 for each
_FUSED: Final = (0.5, 0.13)  # of the time, where peak or shapes are not known: FlashAttention is 2 to 7.6 times as fast
# PyTorch 2.13 in fp32 on one core of an AMD EPYC, forward and backward, 45 shapes of 64 to 1024 positions: fused
# attention takes 40 to 109 % of the time, 88 % in the middle.
_FUSED_ON_CPU: Final = (1.0, 0.4)
_IS_PRODUCT: Final = pl.col("family") == "gemm"


def _attention(view: DeviceView) -> pl.DataFrame:
    return part(view, "attention")


def _unknown_attention(view: DeviceView) -> Missing | None:
    """That products and softmax ran whose ops were not recorded."""
    nameless = view.once(parts).filter(pl.col("op_name").is_null(), pl.col("family").is_in(["gemm", "softmax"]))
    is_unclear = not view.once(_attention).height and nameless["family"].n_unique() > 1
    return Missing("launching_ops_not_recorded") if is_unclear else None


def _fused(view: DeviceView) -> Change:
    """One kernel in place of the products."""
    kernels = view.once(_attention)
    products_ns = max(1, int(kernels.filter(_IS_PRODUCT)["dur_ns"].sum()))
    slow, fast = (
        pl.when(_IS_PRODUCT).then(pl.col("dur_ns") * (ns / products_ns)).otherwise(0) for ns in _fused_ns(view, kernels)
    )
    return faster(kernels, slow, fast)


def _fused_ns(view: DeviceView, kernels: pl.DataFrame) -> tuple[float, float]:
    """Longest and shortest time of fused kernels that do all of it; never more than now."""
    now = float(kernels["dur_ns"].sum())
    if view.device is None:
        return _FUSED_ON_CPU[0] * now, _FUSED_ON_CPU[1] * now
    flops = 2.0 * pl.col("count") * pl.col("m") * pl.col("n") * pl.col("k")
    at_peak = flops / _peak(view) / 1e3  # 1e3 per TFLOP/s
    filled = pl.max_horizontal(1.0, _HEAD / pl.min_horizontal("m", "n", "k"))
    slower = pl.when(pl.col("element_type") == "tf32").then(_SLOWER[0]).otherwise(_SLOWER[1])
    products = kernels.filter(_IS_PRODUCT).select(
        most=at_peak * filled / _RATES[0], now=filled * slower * pl.col("dur_ns"), least=at_peak / _RATES[1]
    )
    if not products.height or products["least"].null_count():
        return _FUSED[0] * now, _FUSED[1] * now
    of_peak, of_now, fast = products.sum().row(0)
    has_tf32 = view.gpu is not None and "tf32" in view.gpu.peaks
    is_forward = view.host_like("", "op").height > 0 and not view.host_like(BACKWARD, "op").height
    slow = (1.0 if is_forward else _AGAIN) * (min(of_peak, of_now) if has_tf32 else of_peak)
    return min(now, slow), min(now, fast)


def _peak(view: DeviceView) -> pl.Expr:
    """The device's peak for the type of each product in TFLOP/s, as fused attention computes it."""
    peaks = view.gpu.peaks if view.gpu else {}
    if "fp32" in peaks:
        peaks["fp32"] = max(peaks["fp32"], peaks.get("3xtf32", 0.0))
    dtype = pl.coalesce("op_dtype", "element_type")
    return dtype.replace_strict(peaks, default=None, return_dtype=pl.Float64) if peaks else pl.lit(None, pl.Float64)


of_attention = of_devices(__name__, needs=("device_ops.name",), unknown=_unknown_attention)

of_attention.kernels("unfused_attention", _attention, gives=("share", "ms", "ops")).says(
    "in which attention is computed product by product",
    "softmax kernels, or `exp` with the sum after it, between batched products (any, without recorded ops), sums "
    "between two products on each side (backward), those products and what lies between",
)
of_attention.saving("attention", lambda view: saved(view, _fused(view))).says("a fused attention")
