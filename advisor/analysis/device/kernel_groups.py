"""Kernels that belong together: attention computed step by step, an optimizer's updates, chains of elementwise work."""

from collections.abc import Iterable
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import optimizer_work
from advisor.analysis.device.kernels import TYPE, kernels
from advisor.analysis.device.view import DeviceView
from advisor.model.missing import Missing

_LEAST_CHAIN: Final = 3  # one after another, of a size: two alone may be any two
_ELEMENTWISE: Final = ["elementwise", "copy", "cast", "rng"]
_TRANSPARENT: Final = [
    *_ELEMENTWISE,
    "layout",
    "index",
]  # to an attention: scaling, masks, dropout, casts, permutations
# What writes without reading: it begins a chain and continues none. A dropout reads its input.
_SOURCES: Final = r"(?i)FillFunctor|FillPhilox|distribution_\w*kernel|threefry|fillBufferAligned|^memset"
_SOURCE_OPS: Final = r"""(?x)
    ^aten::(?:fill|zero|zeros|ones|full|uniform|normal|log_normal|random|exponential|bernoulli|rand\w*)_?$
    | :(?:Fill|ZerosLike|OnesLike|\w*Random\w*|\w*TruncatedNormal\w*)$
    | /random_bits$"""
_EXTREMES: Final = ["aten::max", "aten::amax"]  # subtracted before an exponential
_BATCHED: Final = ["aten::bmm", "aten::baddbmm", "aten::matmul", "aten::einsum"]
_BATCHED_TYPES: Final = r":(?:BatchMatMul\w*|Einsum)$|/dot_general$"  # of TensorFlow and JAX
_NAME: Final = pl.col("name").cast(pl.String)
_OP: Final = pl.col("op_name").fill_null("")
_OF_NAMES: Final = {
    "_reorders": _NAME.str.contains("(?i)nchw|nhwc"),
    "_is_source": _NAME.str.contains(_SOURCES),
    "_backward": _NAME.str.contains("(?i)backward|bwd"),
    "_updates": _NAME.str.contains("addcdiv"),  # the last op of an update in torch.optim's Adam and its kin
}
_OF_OPS: Final = {
    "_convolves": _OP.str.contains("(?i)conv"),
    "_op_is_source": _OP.str.contains(_SOURCE_OPS),
    "_scope": _OP.str.extract("^(.*)/").fill_null(""),
    "_type": pl.coalesce(_OP.str.extract(TYPE), _OP),
}

PARTS: Final = pl.Enum(["optimizer", "attention", "layout", "chain"])


def parts(view: DeviceView) -> pl.DataFrame:
    """The kernels of the steps with `part`, the pattern that each belongs to (PARTS; null: none), and `run`.

    A kernel belongs to one pattern at most, the first of
    - optimizer: launched inside an `Optimizer.step#...` annotation; without any such, or without launches, a chain that
      updates parameters;
    - attention: a softmax between batched products, with those products and what lies between, see `_in_attention`;
    - layout: conversions between NCHW and NHWC by name, and any transposition that a convolution launches;
    - chain: at least three elementwise kernels in a row on one stream over equally many elements (where shapes do not
      tell: with equal grids and blocks), each able to depend on the one before, see `independent`; those of one chain
      share their `run`.
    """
    rows = with_words(view.once(kernels)).with_columns(part=pl.lit(None, PARTS))
    rows = _with_part(rows, "optimizer", _in_optimizer(view, rows))
    rows = _with_part(rows, "attention", _in_attention(rows))
    rows = _with_part(rows, "layout", (pl.col("family") == "layout") & (pl.col("_reorders") | pl.col("_convolves")))
    size = pl.struct("elements", pl.when(pl.col("elements").is_null()).then(pl.struct("grid", "block")))
    has_size = pl.col("elements").is_not_null() | pl.col("grid").is_not_null()
    single = pl.col("part").is_null() & pl.col("family").is_in(_ELEMENTWISE) & has_size
    rows = rows.with_columns(run=pl.struct("stream", single, size, independent().cum_sum()).rle_id())
    chain = single & (pl.len().over("run") >= _LEAST_CHAIN)
    is_joined = view.device is None or rows["launch"].count() > 0
    if not (view.once(optimizer_work).total and is_joined):
        rows = _with_part(rows, "optimizer", chain & pl.col("_updates").any().over("run"))
    return _with_part(rows, "chain", chain).drop(*_OF_NAMES, *_OF_OPS)


def with_words(rows: pl.DataFrame) -> pl.DataFrame:
    """With what the words in names tell, read once per name: what `independent` asks."""
    names = rows.select("name").unique().with_columns(**_OF_NAMES)
    ops = rows.select("op_name").unique().with_columns(**_OF_OPS)
    rows = rows.join(names, on="name", how="left", maintain_order="left")
    return rows.join(ops, on="op_name", how="left", nulls_equal=True, maintain_order="left")


def no_multiprocessors(view: DeviceView) -> Missing | None:
    """Why it is unknown how many blocks a multiprocessor has, of kernels that have any."""
    rows = view.once(parts)
    return Missing("sm_count_unknown") if rows.height and not rows["blocks_per_sm"].count() else None


def part(view: DeviceView, name: str) -> pl.DataFrame:
    """The kernels that belong to one pattern."""
    return view.once(parts).filter(pl.col("part") == name)


def independent() -> pl.Expr:
    """Whether a kernel cannot work on what the one before it has written, as far as names and shapes tell.

    A fill or a random generator reads nothing. Ops of a graph bear the name of their layer (`layer_1/dropout/Mul`), and
    a graph's executor launches those of many layers side by side; two of a type on different shapes are, in any
    framework, two tensors' turn.
    """
    scope, kind = pl.col("_scope"), pl.col("_type")
    source = pl.col("_op_is_source") | pl.col("_is_source")
    reshaped = (kind == kind.shift()) & (pl.col("shape") != pl.col("shape").shift())
    return source | (scope != scope.shift()).fill_null(value=False) | reshaped.fill_null(value=False)


def _with_part(rows: pl.DataFrame, name: str, belongs: pl.Expr | pl.Series) -> pl.DataFrame:
    """With this part for the kernels that belong to it and have none yet."""
    joins = pl.col("part").is_null() & belongs
    return rows.with_columns(part=pl.when(joins).then(pl.lit(name, PARTS)).otherwise("part"))


def _in_optimizer(view: DeviceView, rows: pl.DataFrame) -> pl.Series:
    """Whether each kernel was launched while an optimizer updated its parameters."""
    launches = view.with_host(rows, "launch", call_ns="start_ns")
    call_ns = launches["call_ns"] if view.device is not None else rows["start_ns"]
    at = call_ns.fill_null(0).to_numpy()
    during = view.once(optimizer_work).covers(at)
    return pl.Series(during & call_ns.is_not_null().to_numpy(), dtype=pl.Boolean)


def _in_attention(rows: pl.DataFrame) -> pl.Series:
    """Whether each kernel is part of an attention that is computed product by product.

    Scaling, masks, dropout, casts and permutations are passed over. Of the other kernels of the stream, the one before
    a softmax and the one after must be batched products; backward two of each, as a product has two gradients.
    """
    batched = pl.col("op_name").is_in(_BATCHED) | pl.col("op_name").str.contains(_BATCHED_TYPES)
    product = batched & (pl.col("family") == "gemm") & pl.col("part").is_null()
    softmax, gradient = pl.col("softmax"), pl.col("_backward")
    main = _not_passed_over(rows).with_columns(product=product.fill_null(value=False))
    main = main.with_columns(
        forward=softmax & ~gradient & _at("product", (-1, 1), every=True),
        backward=softmax & gradient & _at("product", (-2, -1, 1, 2), every=True),
    )
    # A softmax some places on reaches back to here, one some places before reaches on.
    main = main.select(
        "id",
        inside=_at("forward", (-1, 0, 1)) | _at("backward", (-2, -1, 0, 1, 2)),
        goes_on=_at("forward", (0, 1)) | _at("backward", (-1, 0, 1, 2)),
    )
    rows = rows.join(main, on="id", how="left", maintain_order="left")
    between = pl.col("goes_on").forward_fill().over("stream").fill_null(value=False)
    return rows.select(pl.coalesce("inside", between)).to_series()


def _not_passed_over(rows: pl.DataFrame) -> pl.DataFrame:
    """The kernels that an attention does not pass over, with `softmax`.

    A softmax that is written by hand is its exponential, without the maximum before it and the sum that follows it.
    """
    passes, exponential = pl.col("family").is_in(_TRANSPARENT), _OP == "aten::exp"
    again = _OP.is_in([*_EXTREMES, "aten::exp", "aten::sum"]) & (pl.col("op") == pl.col("op").shift().over("stream"))
    main = rows.filter(~passes | exponential).filter(~again.fill_null(value=False))  # a large op may be two kernels
    main = main.with_columns(by_hand=exponential & (_OP.shift(-1, fill_value="").over("stream") == "aten::sum"))
    belongs = _at("by_hand", (-1,)) | (_at("by_hand", (1,)) & _OP.is_in(_EXTREMES))
    is_softmax = (pl.col("family") == "softmax") & ~_OP.str.contains("log_softmax")
    return main.filter(~passes | pl.col("by_hand"), ~belongs).with_columns(softmax=is_softmax | pl.col("by_hand"))


def _at(column: str, places: Iterable[int], *, every: bool = False) -> pl.Expr:
    """Whether the column is true at any (or every) of these places from each row on, in its stream."""
    there = [pl.col(column).shift(-place, fill_value=False).over("stream") for place in places]
    return pl.all_horizontal(there) if every else pl.any_horizontal(there)
