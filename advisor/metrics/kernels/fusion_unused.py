"""Sequences of kernels for which there is one fused kernel: norms, rotary embeddings, gated activations, copies."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device.kernels import TYPE_BYTES, kernels
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.text import ms, number

_LARGE: Final = 1 << 16  # elements: a kernel on fewer is as long as its launch, not as its bytes
_LEAST_SAVED: Final = 0.5  # of the bytes that one kernel does not move, at least
_OTHER: Final = "."
_LETTERS: Final = {
    "aten::pow": "P",
    "aten::square": "P",
    "aten::mean": "M",
    "aten::var": "V",
    "aten::sub": "S",
    "aten::add": "A",
    "aten::add_": "A",
    "aten::rsqrt": "R",
    "aten::sqrt": "Q",
    "aten::copy_": "C",
    "aten::mul": "U",
    "aten::mul_": "U",
    "aten::div": "D",
    "aten::div_": "D",
    "aten::neg": "N",
    "aten::cat": "K",
    "aten::silu": "L",
    "aten::gelu": "L",
    "aten::zero_": "Z",
    "aten::fill_": "Z",
}
_NODES: Final = {
    "MulBackward0": "u",
    "RsqrtBackward0": "r",
    "AddBackward0": "a",
    "MeanBackward1": "m",
    "PowBackward0": "p",
    "ToCopyBackward0": "c",
    "NegBackward0": "n",
    "SiluBackward0": "l",
    "GeluBackward0": "l",
}
"""Autograd's nodes of what is written op by op: norms, rotary embeddings, gates."""
_OF_WORK: Final = {"product": "G", "attention": "F"}


class _Fusion(NamedTuple):
    """A kind of sequence: what it looks like, a letter per kernel, and how many tensors a fused kernel moves for it.

    `apart` are the letters of kernels that stand between the others and stay.
    """

    kind: str
    words: str
    pattern: re.Pattern[str]
    passes: int
    apart: str = "GF"


_FUSIONS: Final = (
    # The square, its mean and the reciprocal root, or mean, variance and root; with weight, bias and casts around.
    _Fusion("norm", "norms", re.compile(r"C?[PU]MA?R[UC]{1,3}|M(?:VS|SV)AQDU?A?|MS[PU]MA[QR][DU]U?A?"), 2),
    # Its gradient: two tensors are read and one is written; the weight's gradient is summed up on the way.
    _Fusion("norm", "norms", re.compile(r"u+c*u*r+a*m+p+"), 3),
    # One product with cosines, one of the exchanged halves with sines, and their sum.
    _Fusion("rotary", "rotary embeddings", re.compile("UNKUA|NKUUA"), 2),
    # Its gradient: the halves come back as slices, each copied into zeros, and what reaches one tensor is summed up.
    _Fusion("rotary", "rotary embeddings", re.compile("unZ?CZ?CAuA?"), 2),
    # The activation times as many values, often with the product of matrices that gives them in between.
    _Fusion("gate", "gated activations", re.compile("LG?U"), 3),
    # Its gradient: a product for each side, then the activation's; three tensors are read and two are written. Between
    # them the other side's products of matrices have their gradients, which may be added to earlier ones.
    _Fusion("gate", "gated activations", re.compile(r"uu[GA.]{0,6}l"), 5, "GFA."),
    # Copies of query, key and value, where the kernel reads any strides; two alone may fill a cache
    _Fusion("copies", "copies around attention", re.compile("CCCFC?"), 0),
)
_WITH_SIZE: Final = {"norm": "PUCup", "rotary": "UAu", "gate": "LUul", "copies": "C"}
"""Which kernels of a sequence work on tensors of one size."""
_OF_TWO: Final = 2.5  # tensors: two are read and one is written, none of them much smaller than the others
_SCHEMA: Final = {
    "id": pl.Int64,
    "fusion": pl.String,
    "sequence": pl.Int64,
    "saved_bytes": pl.Float64,
    "saved_part": pl.Float64,
}


_COLUMNS: Final = ("id", "stream", "start_ns", "op", "op_name", "op_dtype", "work", "elements", "least_bytes")


class _Kernel(NamedTuple):
    id: int
    letter: str
    elements: int | None
    least_bytes: int | None
    size: int | None


def _members(view: DeviceView) -> pl.DataFrame:
    """The kernels of such sequences, with `fusion` (kind), `sequence` (number), `saved_bytes` and `saved_part`."""
    letter = pl.coalesce(
        pl.col("op_name").replace_strict(_LETTERS, default=None, return_dtype=pl.String),
        pl.col("work").replace_strict(_OF_WORK, default=None, return_dtype=pl.String),
        pl.lit(_OTHER),
    )
    node = pl.col("node").replace_strict(_NODES, default=None, return_dtype=pl.String)
    size = pl.col("op_dtype").replace_strict(TYPE_BYTES, default=None, return_dtype=pl.Int64)
    rows = view.once(kernels)
    letters = _with_nodes(view, rows.select(*_COLUMNS)).with_columns(letter=pl.coalesce(node, letter), size=size)
    streams = letters.partition_by("stream")
    members = [member for stream in streams for member in _of_stream(stream)]
    return rows.join(pl.DataFrame(members, _SCHEMA, orient="row"), on="id", how="inner", maintain_order="left")


def _with_nodes(view: DeviceView, rows: pl.DataFrame) -> pl.DataFrame:
    """With `node`, what of autograd called the op of a kernel; null outside of norms' gradients."""
    nodes = view.host_like(rf"^(?:{'|'.join(_NODES)})$").select(parent="id", node=pl.col("name").cast(pl.String))
    return view.with_host(rows, "op", parent="parent").join(nodes, on="parent", how="left", maintain_order="left")


def _of_stream(rows: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """The members of every sequence of one stream, each with what the sequence saves per member."""
    text, columns = rows["letter"].str.join("").item(), rows.select(*_Kernel._fields)
    for fusion in _FUSIONS:
        for match in fusion.pattern.finditer(text):
            all_kernels = (_Kernel(*row) for row in columns[match.start() : match.end()].rows())
            members = [kernel for kernel in all_kernels if kernel.letter not in fusion.apart]
            now, fused = _bytes(fusion, members)
            if now > fused:
                saving = ((now - fused) / len(members), 1 - fused / now)
                yield from ((k.id, fusion.kind, members[0].id, *saving) for k in members)


def _bytes(fusion: _Fusion, members: Sequence[_Kernel]) -> tuple[float, float]:
    """What the members move, and what one kernel would; both 0 where it is not known that they are such a sequence."""
    sizes, last = {k.elements for k in members if k.letter in _WITH_SIZE[fusion.kind]}, members[-1]
    elements = max((size for size in sizes if size), default=0)
    if len(sizes) != 1 or elements < _LARGE or last.size is None:
        return 0.0, 0.0
    gates = fusion.kind == "gate" and (last.least_bytes or 0) < _OF_TWO * elements * last.size  # by fewer values
    casts = fusion.kind == "copies" and any(k.least_bytes != 2 * (k.elements or 0) * (k.size or 0) for k in members)
    if gates or casts:
        return 0.0, 0.0
    tensor = float(elements * last.size)
    return sum(2 * tensor if k.least_bytes is None else k.least_bytes for k in members), fusion.passes * tensor


def _kinds(view: DeviceView) -> pl.DataFrame:
    """Each kind with its sequences, the most time first."""
    kinds = view.once(_members).group_by("fusion").agg(pl.sum("dur_ns"), calls=pl.col("sequence").n_unique())
    return kinds.sort("dur_ns", "fusion", descending=[True, False])


def _in_words(view: DeviceView) -> str | None:
    """`norms (49 x, 3.2 ms), rotary embeddings (48 x, 5.1 ms)`."""
    words = {fusion.kind: fusion.words for fusion in _FUSIONS}
    texts = [
        f"{words[kind]} ({number(calls / view.steps.height)} x, {ms(view.per_step_ms(ns))})"
        for kind, ns, calls in view.once(_kinds).rows()
    ]
    return ", ".join(texts) or None


def _without(part: float) -> pl.Expr:
    """Time of a kernel without this part of what it need not move."""
    return pl.col("dur_ns") * (1 - part * pl.col("saved_part"))


def _unknown(view: DeviceView) -> Missing | None:
    return Missing("nothing_to_compute_from") if view.device is None else None


measure = of_devices(__name__, framework="pytorch", unknown=_unknown)

measure.kernels("fusion", _members, needs=("device_ops", "host_ops.shapes")).says(
    "in sequences of kernels for which there is one fused kernel",
    "kernels of such sequences in a row on a stream, over at least 65,536 elements: norms (square, mean, rsqrt, "
    "multiply), rotary embeddings (multiply, negate, concatenate, multiply, add), gated activations (SiLU or GELU, "
    "multiply by as many values), the backward ops of these by autograd's nodes, and three copies without a cast right "
    "before fused attention and one after it",
    "sequences of the modules of Hugging Face's transformers",
)
measure("fusion_kinds", _in_words, unit="text").says(
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
