"""What is computed in the used steps: every kernel, or on the host every op, with what its names and inputs tell.

Of the matrix products, which kernels multiply, in which type, and whether on Tensor Cores.
"""

from collections.abc import Callable, Iterable
from typing import Final

import polars as pl

from advisor.analysis.device.host_work import optimizer_work, own_ns, step_ops
from advisor.analysis.device.op_work import ELEMENTWISE, TABLES, factors, inputs, values_of, work
from advisor.analysis.device.view import DeviceView, classes
from advisor.inputs import hardware
from advisor.inputs.names.kernels import FAMILIES, kernel_name
from advisor.model.clause import Entries, Missing
from advisor.model.profile import in_order, lean, matches, of_distinct, rows_where

_FLOATS: Final[dict[str, str]] = TABLES["floats"]
_COMPUTING: Final = frozenset({"mm", "addmm", "bmm", "baddbmm"})
_PRODUCTS: Final = _COMPUTING | {"linear", "matmul"}  # which call one of these
TYPE: Final = r"^(?:[^:\s]+:|jit\(.*/)([A-Za-z_][\w-]*)$"  # of `scope/name:Type` and `jit(f)/dot_general`
_OF_PYTORCH: Final = r"^(?:aten|mkldnn|mkl|onednn|quantized|ipex_prepack|torch_ipex)::(.*)"  # and libraries for CPUs
_DISPATCH_NS: Final = 10_000  # an op on the host that takes less is mostly dispatch
_OWN_SHARE: Final = 0.8  # of an op's time outside the ops within it: it computes, and does not only call

_BOOKKEEPING: Final = rf"^(?:{'|'.join(TABLES['bookkeeping'])})$"
_ON_HOST: Final[dict[str, str]] = TABLES["on_host"] | {"elementwise": rf"^(?:fill|zero|{ELEMENTWISE})_?(?:_backward)?$"}

UPDATES: Final = pl.col("part").eq_missing(pl.lit("optimizer"))  # whether a kernel of `parts` updates parameters
TYPE_BYTES: Final = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}

# Their launch takes the size of the whole grid in threads: hipExtModuleLaunchKernel, which hipBLASLt and rocBLAS call.
_IN_THREADS: Final = r"^Cijk_"

# PyTorch's elementwise kernels have 128 threads a block: of the first each computes four values, or as many as a vector
# holds; of the second, as many as its name says (aten/src/ATen/native/cuda/CUDALoops.cuh, Loops.cuh).
_VECTORS: Final = r"\b(?:vectorized|unrolled)_elementwise_kernel<(?:\(int\))?(\d+)?"
_LEAST_VECTOR: Final = 4
_THREADS: Final = 128
_LOOPS: Final = r"\belementwise_kernel<(?:\(int\))?(\d+), (?:\(int\))?(\d+)"

_OP_COLUMNS: Final = {
    **dict.fromkeys(("op_name", "op_dtype"), pl.String),
    "elements": pl.Int64,
    "shape": pl.String,
    **dict.fromkeys(("count", "m", "n", "k"), pl.Int64),
    "work": pl.String,
    **dict.fromkeys(("flops", "least_flops"), pl.Float64),
    "least_bytes": pl.Int64,
}
_SMALLEST_SIDE: Final = 64  # a multiplication with a shorter side is bound by memory, not by arithmetic

_PRODUCT_OP: Final = r"^aten::\w*(?:mm|matmul|linear|einsum|conv\w*|attention\w*)$"


def kernels(view: DeviceView) -> pl.DataFrame:
    """Compute kernels of the used steps, ordered by stream and start.

    Adds to the columns of `device_ops` family, multiplies, tensor_cores, element_type, alignment, library and
    generation, as the name tells (advisor.inputs.names.kernels), and of the launching op: op_name, which may be all
    that the kernel bears of it; op_dtype, of its first floating-point input, or as XLA's program tells; elements and
    shape, of its largest input, or elements by the grid of a kernel of PyTorch; of a product of `count` pairs of
    (m x k) and (k x n) matrices count, m, n and k; and what the op has to do (`Work`): work, flops, least_flops and
    least_bytes, of all its kernels together. Null where the profile does not tell.

    Where the worker uses no device, the framework ops that compute stand for kernels, `id` and `op` being their own and
    `stream` their thread: see `_on_host`.
    """
    if view.device is None:
        return _on_host(view)
    rows = view.used_kernels
    rows = rows.join(view.once(classes), on="name", how="left").join(_ops(view, rows), on="op", how="left")
    rows = with_blocks(view, in_order(lean(rows), "stream", "start_ns", "id"))
    op = pl.coalesce("op_name", pl.col("framework_op").cast(pl.String))
    of_block = of_distinct(rows.select("name"), _of_blocks).to_series()
    rows = rows.with_columns(
        op_name=op,
        op_dtype=pl.coalesce("op_dtype", pl.col("operand_type").cast(pl.String)),
        elements=pl.coalesce("elements", pl.when(pl.col("grid") > 0).then(pl.col("grid") * of_block)),
    )
    return lean(rows)


def _of_blocks(names: pl.DataFrame) -> pl.DataFrame:
    """How many values a block of PyTorch's elementwise kernels computes; null of any other kernel."""
    text = pl.col("name").cast(pl.String)
    vector = text.str.extract(_VECTORS).cast(pl.Int64).fill_null(0).clip(_LEAST_VECTOR)
    threads, each = (text.str.extract(_LOOPS, group).cast(pl.Int64) for group in (1, 2))
    return names.select(of=pl.when(text.str.contains(_VECTORS)).then(_THREADS * vector).otherwise(threads * each))


def kernels_ns(view: DeviceView) -> int:
    """What they take together."""
    return int(view.once(kernels)["dur_ns"].sum())


def with_blocks(view: DeviceView, rows: pl.DataFrame) -> pl.DataFrame:
    """With blocks per multiprocessor wherever the device's multiprocessors are known.

    A grid of 0 was not recorded: no kernel runs without a block. Tensile's launches give threads where others give
    blocks.
    """
    count = pl.lit(view.facts.get("sm_count"), pl.Float64)
    in_threads = matches(_IN_THREADS) & (pl.col("grid") >= pl.col("block")) & (pl.col("grid") % pl.col("block") == 0)
    blocks = pl.when(in_threads.fill_null(value=False)).then(pl.col("grid") // pl.col("block")).otherwise("grid")
    reported = pl.when(~in_threads.fill_null(value=False) & (pl.col("blocks_per_sm") > 0)).then("blocks_per_sm")
    return rows.with_columns(pl.coalesce(reported, pl.when(blocks > 0).then(blocks) / count))


def largest(view: DeviceView, rows: pl.DataFrame) -> Entries:
    """The ops (or where no op is known, kernels) with the most time per step.

    Of TensorFlow and JAX those of one type are one: each op of a graph has a name of its own.
    """
    of_names = rows.group_by("op_name", "name").agg(pl.sum("dur_ns")).cast({"op_name": pl.String, "name": pl.String})
    op = pl.coalesce(pl.col("op_name").str.extract(TYPE), "op_name")
    rows = of_names.select(op, "name", "dur_ns")
    return view.largest((of_type or kernel_name(name), ns) for of_type, name, ns in rows.rows())


def longest(rows: Callable[[DeviceView], pl.DataFrame]) -> Callable[[DeviceView], pl.DataFrame]:
    """The longest call of each kernel, the kernel with the most time first, as places to point at."""

    def places(view: DeviceView) -> pl.DataFrame:
        table = pl.when(pl.col("kind").is_null()).then(pl.lit("host_ops")).otherwise(pl.lit("device_ops"))
        return (
            view.once(rows)
            .select("step", "start_ns", "dur_ns", "op", "kind", "name", total=pl.sum("dur_ns").over("name"))
            .sort("dur_ns", "start_ns", descending=[True, False])
            .unique("name", keep="first", maintain_order=True)
            .sort("total", "start_ns", descending=[True, False])
            .select("step", "start_ns", "dur_ns", "op", table=table, name=pl.col("name").cast(pl.String))
        )

    return places


def _on_host(view: DeviceView) -> pl.DataFrame:
    """Ops of PyTorch or TensorFlow that compute, for at least 10 us, four fifths of it outside the ops within them.

    A product that first copies its bias, or a matrix, is one op all the same.
    """
    columns = ("id", "worker", "name", "start_ns", "dur_ns", "step", "window", "thread")
    ops = view.once(step_ops).select(*columns, "parent").collect()
    name = pl.col("name").cast(pl.String)
    bare = pl.coalesce(name.str.extract(TYPE), name.str.extract(_OF_PYTORCH), name)
    family = pl.coalesce(pl.when(bare.str.contains(pattern)).then(pl.lit(label)) for label, pattern in _ON_HOST.items())
    computing = (name.str.contains(_OF_PYTORCH) | name.str.contains(TYPE)) & ~bare.str.contains(_BOOKKEEPING)
    families = ops.select("name").unique().filter(computing).with_columns(family=family)
    own, long = own_ns(ops), pl.col("dur_ns") >= _DISPATCH_NS
    products = ops.filter(bare.is_in(_COMPUTING), own >= _DISPATCH_NS)["id"].implode()
    computes = pl.col("id").is_in(products) | (own >= _OWN_SHARE * ops["dur_ns"])
    leaves = ops.filter(long, computes, ~pl.col("parent").is_in(products).fill_null(value=False))
    leaves = leaves.join(families, on="name")
    rows = leaves.select(
        *columns[:-1],
        op="id",
        stream="thread",
        family=pl.col("family").fill_null("other").cast(FAMILIES),
        multiplies=pl.lit(False),  # noqa: FBT003 - of Tensor Cores there is nothing to ask
    )
    blank = view.ops.clear().with_columns(
        tensor_cores=pl.lit(None, pl.Boolean),
        alignment=pl.lit(None, pl.UInt8),
        **dict.fromkeys(("element_type", "library", "generation"), pl.lit(None, pl.String)),
    )
    rows = pl.concat([blank, rows], how="diagonal")
    return rows.join(_ops(view, rows), on="op", how="left").sort("stream", "start_ns", "id")


def _ops(view: DeviceView, kernels: pl.DataFrame) -> pl.DataFrame:
    """The launching ops; each kind of call is parsed once."""
    keys = ["name", "shapes", "dtypes", "details"]
    ops = view.host_of(kernels["op"]).select("id", *keys)
    kinds = ops.select(keys).unique(maintain_order=True)
    rows = [_op_columns(*row) for row in kinds.select(pl.all().cast(pl.String)).rows()]
    kinds = kinds.hstack(pl.DataFrame(rows, _OP_COLUMNS, orient="row"))
    return ops.join(kinds, on=keys, how="left", nulls_equal=True).select(pl.col("id").alias("op"), *_OP_COLUMNS)


def _op_columns(name: str | None, shapes: str | None, dtypes: str | None, options: str | None) -> tuple[object, ...]:
    tensors = inputs(shapes, dtypes)
    bare = (name or "").removeprefix("aten::")
    sides = factors(bare, tensors) if bare in _PRODUCTS else None
    largest = max((tensor for tensor in tensors if tensor and tensor.shape), key=lambda t: t.elements, default=None)
    size = (largest.elements, str(list(largest.shape))) if largest else (None, None)
    todo = work(name, shapes, dtypes, options) or (None,) * 4
    return name, operand_type(dtypes), *size, *(sides or (None,) * 4), *todo


def element_types(dtypes: str | None) -> str | None:
    """The types of an op's tensors in the order of its inputs, each once: `fp32, long int`; None where none is known.

    `dtypes` is a JSON list, as PyTorch's profiler writes it, which does not tell the types of a list's tensors.
    """
    names = values_of(dtypes or "")
    of_tensors = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    types = [_FLOATS.get(name, name) for name in of_tensors if name and not name.endswith(("Scalar", "List"))]
    return ", ".join(dict.fromkeys(types)) or None


def operand_type(dtypes: str | None) -> str | None:
    """Of the first floating-point input."""
    names = values_of(dtypes or "")
    types = (_FLOATS.get(name) for name in names if isinstance(name, str)) if isinstance(names, list) else ()
    return next(filter(None, types), None)


def candidates(view: DeviceView) -> pl.DataFrame:
    """Kernels of the used steps that multiply matrices, with `verdict` (used, unused, unknown) and `dtype`.

    Matrix times vector, and products with a side under 64 where shapes tell, are bound by memory: they count only if
    they run on Tensor Cores all the same. An undecided name is settled where the multiplication's type has no Tensor
    Core path on the device. Kernels whose name tells no family may or may not multiply: they are never called unused
    for their type alone, and have the type of the op that launched them only if that op multiplies.
    """
    tiny = (pl.min_horizontal("m", "n", "k") < _SMALLEST_SIDE).fill_null(value=False)
    may_use = pl.col("tensor_cores") | ((pl.col("family") != "gemv") & ~tiny)
    products = rows_where(view.once(kernels), pl.col("multiplies") & may_use)
    multiplies = pl.col("op_name").str.contains(_PRODUCT_OP) & ~pl.col("op_name").str.contains("depthwise")
    dtype = pl.when((pl.col("family") != "other") | multiplies).then(pl.coalesce("element_type", "op_dtype"))
    chip, types = view.chip, {"fp64": "fp64", "fp32": "tf32", "bf16": "bf16"}
    slow = [dtype for dtype, of in types.items() if chip and of not in chip.tensor_dtypes]  # as far as it is known
    impossible = dtype.is_in(slow) & (pl.col("family") != "other")
    verdict = (
        pl.when(pl.col("tensor_cores")).then(pl.lit("used"))
        .when(~pl.col("tensor_cores") | impossible).then(pl.lit("unused"))
        .otherwise(pl.lit("unknown"))
    )  # fmt: skip
    return in_order(products.with_columns(verdict=verdict, dtype=dtype), "start_ns")


def verdicts(view: DeviceView) -> pl.DataFrame:
    """Every compute kernel of the used steps, by `id`, with its `verdict`: that of `candidates`, else `no use`.

    Null where the device has no Tensor Cores, or it cannot be told whether it has.
    """
    ids = view.used_kernels.select("id")
    rows = ids.join(view.once(candidates).select("id", "verdict"), on="id", how="left")
    verdict = pl.col("verdict").fill_null("no use") if has_tensor_cores(view) else pl.lit(None, pl.String)
    return rows.with_columns(verdict=verdict)


def has_tensor_cores(view: DeviceView) -> bool | None:
    """Whether the device has Tensor Cores; None where it cannot be told."""
    if view.chip is not None:
        return bool(view.chip.tensor_dtypes)
    return hardware.has_tensor_cores(view.facts.get("capability"), view.facts.get("name") or "")


_LEAST_CHAIN: Final = 3  # one after another, of a size: two alone may be any two
_MOST_ALIKE: Final = 16  # own choice: what runs more often in a row is a loop over equal work
_ELEMENTWISE: Final = ["elementwise", "copy", "cast", "rng"]
_TRANSPARENT: Final = [*_ELEMENTWISE, "layout", "index"]  # to an attention: scaling, masks, dropout, permutations
# What writes without reading: it begins a chain and continues none. A dropout reads its input.
_SOURCES: Final = r"(?i)FillFunctor|FillPhilox|distribution_\w*kernel|threefry|fillBufferAligned|^memset"
_SOURCE_OPS: Final = r"""(?x)
    ^aten::(?:fill|zero|zeros|ones|full|uniform|normal|log_normal|random|exponential|bernoulli|rand\w*)_?$
    | :(?:Fill|ZerosLike|OnesLike|\w*Random\w*|\w*TruncatedNormal\w*)$
    | /random_bits$"""
_LEAST_ATTENTIONS: Final = 2  # in a step, where no op tells them from a classifier's softmax
_EXTREMES: Final = ["aten::max", "aten::amax"]  # subtracted before an exponential
_BATCHED: Final = ["aten::bmm", "aten::baddbmm", "aten::matmul", "aten::einsum"]
_BATCHED_TYPES: Final = r":(?:BatchMatMul\w*|Einsum)$|/dot_general$"  # of TensorFlow and JAX
_NAME: Final = pl.col("name").cast(pl.String)
_OP: Final = pl.col("op_name").fill_null("")
# Of PyTorch's kernels for which no op was recorded, what those of a softmax by hand compute
_BY_NAME: Final = {
    "aten::exp": r"\bexp_kernel_cuda",
    "aten::sum": r"\breduce_kernel<.*\bsum_functor<",
    "aten::max": r"\breduce_kernel<.*\b(?:MaxOps|MaxNanFunctor|max_functor)",
}
_WORK: Final = pl.coalesce(pl.col("op_name"), pl.col("_work")).fill_null("")
_OF_NAMES: Final = {
    "_reorders": _NAME.str.contains("(?i)nchw|nhwc"),
    "_is_source": _NAME.str.contains(_SOURCES),
    "_backward": _NAME.str.contains("(?i)backward|bwd"),
    "_work": pl.coalesce(pl.when(_NAME.str.contains(words)).then(pl.lit(op)) for op, words in _BY_NAME.items()),
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
      share their `run`. None that runs over 16 times in a row: that repeats one work.
    """
    rows = with_words(view.once(kernels)).with_columns(part=pl.lit(None, PARTS))
    # Whether each kernel was launched while an optimizer updated its parameters.
    launches = view.with_host(rows, "launch", call_ns="start_ns")
    call_ns = launches["call_ns"] if view.device is not None else rows["start_ns"]
    at = call_ns.fill_null(0).to_numpy()
    during = view.once(optimizer_work).covers(at)
    rows = _with_part(rows, "optimizer", pl.Series(during & call_ns.is_not_null().to_numpy(), dtype=pl.Boolean))
    rows = _with_part(rows, "attention", _in_attention(rows))
    rows = _with_part(rows, "layout", (pl.col("family") == "layout") & (pl.col("_reorders") | pl.col("_convolves")))
    size = pl.struct("elements", pl.when(pl.col("elements").is_null()).then(pl.struct("grid", "block")))
    has_size = pl.col("elements").is_not_null() | pl.col("grid").is_not_null()
    alike = pl.len().over(pl.struct("stream", "name", size).rle_id())
    single = pl.col("part").is_null() & pl.col("family").is_in(_ELEMENTWISE) & has_size & (alike <= _MOST_ALIKE)
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

    A fill or a random generator reads nothing, and nobody copies a copy. Ops of a graph bear the name of their layer
    (`layer_1/dropout/Mul`), and a graph's executor launches those of many layers side by side; two of a type on
    different shapes are, in any framework, two tensors' turn.
    """
    scope, kind, copies = pl.col("_scope"), pl.col("_type"), pl.col("family") == "copy"
    source = pl.col("_op_is_source") | pl.col("_is_source") | (copies & copies.shift(fill_value=False))
    reshaped = (kind == kind.shift()) & (pl.col("shape") != pl.col("shape").shift())
    return source | (scope != scope.shift()).fill_null(value=False) | reshaped.fill_null(value=False)


def _with_part(rows: pl.DataFrame, name: str, belongs: pl.Expr | pl.Series) -> pl.DataFrame:
    """With this part for the kernels that belong to it and have none yet."""
    joins = pl.col("part").is_null() & belongs
    return rows.with_columns(part=pl.when(joins).then(pl.lit(name, PARTS)).otherwise("part"))


def _in_attention(rows: pl.DataFrame) -> pl.Series:
    """Whether each kernel is part of an attention that is computed product by product.

    Scaling, masks, dropout, casts and permutations are passed over. Of the other kernels of the stream, the one before
    a softmax and the one after must be batched products; backward two of each, as a product has two gradients.

    Without ops nobody knows which products are batched: any may be, where a step has several such softmaxes, each with
    a scaling or a mask before it. The gradient of one by hand is the sums of as many values, of which each softmax has
    no more than one place.
    """
    batched = pl.col("op_name").is_in(_BATCHED) | pl.col("op_name").str.contains(_BATCHED_TYPES)
    product = batched.fill_null(value=True) & (pl.col("family") == "gemm") & pl.col("part").is_null()
    softmax, gradient = pl.col("softmax"), pl.col("_backward")
    main = _not_passed_over(rows).with_columns(product=product.fill_null(value=False))
    four = _at("product", (-2, -1, 1, 2), every=True)
    main = main.with_columns(
        forward=softmax & ~gradient & _at("product", (-1, 1), every=True),
        backward=softmax & gradient & four,
        summed=pl.col("sums") & four,
    )
    one_each = pl.col("summed").sum().over("step") <= (pl.col("forward") & pl.col("by_hand")).sum().over("step")
    main = main.with_columns(backward=pl.col("backward") | (pl.col("summed") & one_each))
    once = pl.col("op_name").is_null() & (pl.col("forward").sum().over("step") < _LEAST_ATTENTIONS)
    main = main.with_columns(pl.col("forward", "backward") & ~once)
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

    A softmax that is written by hand is its exponential, without the maximum before it and the sum that follows it. Its
    gradient is the first of the `sums` over as many values.
    """
    passes, exponential = pl.col("family").is_in(_TRANSPARENT), _WORK == "aten::exp"
    again = _OP.is_in([*_EXTREMES, "aten::exp", "aten::sum"]) & (pl.col("op") == pl.col("op").shift().over("stream"))
    scaled = pl.col("op_name").is_not_null() | passes.shift(fill_value=False).over("stream")
    rows = rows.with_columns(scaled=scaled, size=pl.col("elements").shift().over("stream"))
    main = rows.filter(~passes | exponential).filter(~again.fill_null(value=False))  # a large op may be two kernels
    main = main.with_columns(by_hand=exponential & (_WORK.shift(-1, fill_value="").over("stream") == "aten::sum"))
    belongs = _at("by_hand", (-1,)) | (_at("by_hand", (1,)) & _WORK.is_in(_EXTREMES))
    is_softmax = (pl.col("family") == "softmax") & pl.col("scaled") & ~_OP.str.contains("log_softmax")
    is_softmax &= ~_NAME.str.contains("LogSoftMax")
    main = main.filter(~passes | pl.col("by_hand"), ~belongs).with_columns(softmax=is_softmax | pl.col("by_hand"))
    of_scores = pl.col("size").is_in(main.filter("by_hand")["elements"].implode()).fill_null(value=False)
    main = main.with_columns(sums=of_scores & (_WORK == "aten::sum"))
    return main.filter(~(pl.col("sums") & _at("sums", (-1,))))


def _at(column: str, places: Iterable[int], *, every: bool = False) -> pl.Expr:
    """Whether the column is true at any (or every) of these places from each row on, in its stream."""
    there = [pl.col(column).shift(-place, fill_value=False).over("stream") for place in places]
    return pl.all_horizontal(there) if every else pl.any_horizontal(there)
