"""The number formats of products: 64, 32 or 16 bits, TF32; whether Tensor Cores multiply them, and rows out of step."""

from collections.abc import Callable
from typing import Final

import polars as pl

from advisor.analysis.device.kernels import UPDATES, candidates, has_tensor_cores, kernels, kernels_ns, largest, parts
from advisor.analysis.device.roofs import in_format, no_chip, speed_ups
from advisor.analysis.device.view import DeviceView
from advisor.analysis.device.workload import UNKNOWN, workload
from advisor.inputs.names.kernels import PRODUCTS
from advisor.metrics.metric import lacking, of_devices
from advisor.model.clause import Missing
from advisor.model.profile import matches
from advisor.whatif.change import Interval, faster, saved

_MOST_UNKNOWN: Final = 0.5  # of the kernel time: with more, the share of the rest says nothing of the whole
_SOURCE: Final = (
    "kernel names first, then the launching op's dtype and what the device supports; see docs/metrics/tensor-cores.md"
)
_NEEDS: Final = ("device_ops", "device_ops.name")


def _of_verdict(view: DeviceView, *verdicts: str) -> float:
    """Part of the kernel time."""
    judged = view.once(candidates).filter(pl.col("verdict").is_in(verdicts))
    return int(judged["dur_ns"].sum()) / view.once(kernels_ns)


def _sixteen_bit_share(view: DeviceView) -> float | None:
    typed = view.once(candidates).filter(pl.col("dtype").is_not_null())
    typed_ns = int(typed["dur_ns"].sum())
    short_ns = int(typed.filter(pl.col("dtype").is_in(["fp16", "bf16", "fp8", "fp4", "int8"]))["dur_ns"].sum())
    return short_ns / typed_ns if typed_ns else None


_unknown: Final = lacking(
    tensor_cores_unknown=lambda view: has_tensor_cores(view) is None,
    no_tensor_cores=lambda view: not has_tensor_cores(view),
    nothing_to_compute_from=lambda view: not view.once(kernels_ns),
)
_unclear: Final = lacking(kernels_untold=lambda view: _of_verdict(view, "unknown") > _MOST_UNKNOWN)
measure = of_devices(__name__, source=_SOURCE, needs=_NEEDS, unknown=_unknown)
measure_shares = of_devices(__name__, source=_SOURCE, needs=_NEEDS, unknown=lacking(_unknown, _unclear))

measure_shares("tensor_core_share", lambda view: _of_verdict(view, "used")).says(
    "Part of the kernel time spent in kernels that use Tensor Cores.",
    "time of kernels judged used / time of all compute kernels; null where over half of that is judged unknown",
)
measure_shares("tensor_core_eligible_share", lambda view: _of_verdict(view, "used", "unused")).says(
    "Part of the kernel time spent in matrix kernels that use Tensor Cores or could.",
    "time of GEMM, convolution and attention kernels judged used or unused / time of all compute kernels; "
    "null where over half of that is judged unknown",
)
measure("sixteen_bit_share", _sixteen_bit_share).says(
    "Part of the matrix kernels' time spent on inputs of 16 bits or fewer.",
    "time of matrix kernels with fp16, bf16, fp8, fp4 or int8 inputs / time of those whose type is known",
)


# Pairs of public recordings on A100, T4, V100 and GeForce: products from TF32 1.4 to 2.2 times as fast, from fp32 2.8
# to 6 (GeForce 1.4 to 2.6), fp32 attention in one kernel 4 to 8, convolutions in three dimensions 1 to 2.5, all other
# kernels together 0.95 to 1.05.
_FROM_TF32: Final = (0.7, 1.1)  # of the ratio of the peaks, at least and at most
_FROM_3XTF32: Final = (3 * 0.7, 3 * 1.3)  # three products become one, and the kernel FlashAttention
_IN_3D: Final = (1.0, 2.5)  # times as fast
_REST: Final = (0.95, 1.05)  # times as fast, all other kernels together: what elementwise ones save, casts cost
# More launches for each that multiplies, with autocast: 514 for 289 products of a forward pass (aimetrics/
# assignment2-systems), as many in the backward pass, which has twice the products. A convolution's input is in 16 bits.
_CASTS: Final = pl.when(pl.col("family").cast(pl.String) == "convolution").then(2 / 3).otherwise(1.2)
# `model.to(torch.bfloat16)`: a kernel that moves values has half the bytes. 1.4: own choice, for what computes as well.
_MOVES: Final = (1.4, 2.0)
_MOVING_FAMILIES: Final = ["elementwise", "normalisation", "softmax", "reduction", "pooling", "copy", "layout"]
_LEAST_MOVING_NS: Final = 10_000  # own choice: a kernel that takes less mostly begins and ends
_COMMAS_OF_2D, _COMMAS_OF_3D = 3, 4  # of `[batch, channels, height, width]`, and with a depth
_VOLUMES: Final = r"(?i)3d|ndhwc|ncdhw|vol2col|col2vol"
_WORTH_TF32: Final = 1.5  # of the fp32 peak; GeForce boards multiply TF32 no faster than fp32


def _is_tf32_off(view: DeviceView) -> pl.Expr:
    """Whether TF32 is switched off for a kernel: never where kernels of its family run with it, in any step.

    Convolutions with three dimensions have engines without TF32, and one of unknown dimensions may be such a one.
    """
    is_worth = _is_nvidia(view) and _ratio(view, "fp32", "tf32") >= _WORTH_TF32
    slow = pl.lit(is_worth) & (pl.col("verdict") == "unused") & (pl.col("dtype") == "fp32")
    flat = (pl.col("family") != "convolution") | (pl.col("shape").str.count_matches(",") == _COMMAS_OF_2D)
    volume = matches(_VOLUMES)
    return slow & flat.fill_null(value=False) & ~volume & ~pl.col("family").is_in(view.once(_families_with_tf32))


def _families_with_tf32(view: DeviceView) -> list[str]:
    """Families of which some kernel runs in TF32: its switch, one for products and one for cuDNN, is on."""
    ran = view.once(candidates).filter(pl.col("dtype") == "tf32", pl.col("verdict") == "used")
    return ran["family"].cast(pl.String).unique().to_list()


def _is_nvidia(view: DeviceView) -> bool:
    return view.chip is not None and view.chip.vendor == "NVIDIA"


def _ratio(view: DeviceView, dtype: str, faster: str | None) -> float:
    """Of the peaks; 1 where it is not known."""
    return (view.chip.tensor_core_gain(dtype, faster) if view.chip and faster else None) or 1.0


def _tf32_off(view: DeviceView) -> pl.DataFrame:
    return view.once(candidates).filter(_is_tf32_off(view))


def _in_32_bits(view: DeviceView) -> pl.DataFrame:
    return view.once(candidates).filter(pl.col("dtype").is_in(["fp32", "tf32", "3xtf32"]))


def _thirty_two_bit(view: DeviceView) -> pl.DataFrame:
    return _in_32_bits(view).filter(~_is_tf32_off(view))


def _rest(view: DeviceView) -> pl.DataFrame:
    """Kernels that multiply nothing and move fp32 values, without the optimizer's, whose weights stay in 32 bits.

    And whether each `halves`: where weights and all values change, in PyTorch's inference of which no part runs in 16
    bits yet.
    """
    is_inference = {"training", UNKNOWN}.isdisjoint(view.once(workload).split(", "))
    changes = is_inference and view.process.get("framework") == "pytorch" and not view.once(_sixteen_bit_share)
    moves = pl.col("family").is_in(_MOVING_FAMILIES) & (pl.col("dur_ns") >= _LEAST_MOVING_NS)
    values = pl.coalesce("op_dtype", "element_type") == "fp32"
    rest = view.once(parts).filter(values, ~pl.col("multiplies"), ~UPDATES, pl.col("family") != "optimizer")
    return rest.with_columns(halves=moves & pl.lit(changes))


def _half(view: DeviceView) -> str | None:
    """The type of 16 bits to multiply in; None where the device has none."""
    return next((dtype for dtype in ("bf16", "fp16") if view.chip and dtype in view.chip.tensor_dtypes), None)


def _in_sixteen_bits(view: DeviceView, end: int) -> pl.Expr:
    """Longest (end 0) or shortest (end 1) time of products, and of the other kernels, which have no verdict."""
    half = _half(view) or "fp16"
    ordinary, tensor = (_ratio(view, dtype, half) for dtype in ("fp32", "tf32"))
    from_tf32, from_3xtf32 = ((tensor * least, tensor * most) for least, most in (_FROM_TF32, _FROM_3XTF32))
    is_tf32 = (pl.col("dtype") == "tf32") | ((pl.col("verdict") != "unused") & pl.lit(_is_nvidia(view)))
    is_3d = (pl.col("family") == "convolution") & (
        (pl.col("shape").str.count_matches(",") == _COMMAS_OF_3D) | matches(_VOLUMES)
    ).fill_null(value=False)
    return (
        pl.when("halves")
        .then(pl.col("dur_ns") / _MOVES[end])
        .when(pl.col("verdict").is_null())
        .then(pl.col("dur_ns") / _REST[end])
        .when(is_3d)
        .then(pl.col("dur_ns") / min(_IN_3D[end], ordinary))
        .when(pl.col("dtype") == "3xtf32")
        .then(in_format(view, half, from_3xtf32, end))
        .when(is_tf32)
        .then(in_format(view, half, from_tf32, end))
        .otherwise(in_format(view, half, speed_ups(ordinary), end))
    )


def _mixed(view: DeviceView, of: Callable[[DeviceView], pl.DataFrame]) -> Interval:
    """These products in 16 bits; at least with what the host launches to cast their inputs, where autocast does."""
    products, rest = view.once(of), view.once(_rest)
    is_cast = view.process.get("framework") == "pytorch" and not rest["halves"].any()
    casts = products.unique("launch").select(_CASTS.sum()).item() / max(1, view.used_ops["launch"].n_unique())
    rows = pl.concat([products, rest], how="diagonal")
    return saved(view, faster(rows, _in_sixteen_bits(view, 0), _in_sixteen_bits(view, 1), many=1 + is_cast * casts))


def _switches(view: DeviceView) -> str | None:
    of_cudnn = (view.once(_tf32_off)["family"] == "convolution").unique().to_list()
    return {(True,): "cudnn", (False,): "matmul"}.get(tuple(of_cudnn), "both" if of_cudnn else None)


def _in_tf32(view: DeviceView) -> tuple[pl.Expr, pl.Expr]:
    times = speed_ups(_ratio(view, "fp32", "tf32"))
    return in_format(view, "tf32", times, 0), in_format(view, "tf32", times, 1)


no_half = lacking(no_sixteen_bit_tensor_cores=lambda view: _half(view) is None)
of_tf32 = of_devices(__name__, needs=_NEEDS, unknown=no_chip)
measure_halves = of_devices(__name__, needs=_NEEDS, unknown=lacking(no_chip, no_half))

of_tf32.kernels("tf32_off", _tf32_off, gives=("share", "ms", "ops")).says(
    "in fp32 matrix kernels that do not use Tensor Cores, although the device has TF32",
    "fp32 matrix kernels judged unused, where TF32's peak is at least 1.5 times that of fp32, without families of "
    "which some kernel runs in TF32 and without convolutions in three or unknown dimensions",
    "kernel names, then the launching op's dtype; peaks from the hardware table",
)
of_tf32("tf32_off_switches", _switches, unit="text").says(
    "Which of the two switches of TF32 is off: `matmul`, `cudnn` or `both`.",
    "by the families of those kernels",
    "PyTorch: torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32",
)
of_tf32.faster("tf32", _tf32_off, _in_tf32).says("allowing TF32")
measure_halves.kernels("thirty_two_bit", _thirty_two_bit, gives=("share", "ms", "ops")).says(
    "in matrix kernels on 32-bit inputs, without those of tf32_off_share",
    "matrix kernels with fp32 or TF32 inputs, without those of tf32_off_share",
    "kernel names, then the launching op's dtype",
)
measure_halves.kernels("halved_pass", lambda view: view.once(_rest).filter("halves"), gives=("ms",)).says(
    "in passes over 32-bit values that have half the bytes once the whole model runs in 16 bits",
    "kernels on fp32 that only move values for over 10 us (elementwise, norms, pooling, copies), in inference of "
    "PyTorch of which nothing runs in 16 bits; 0 in other work",
)
measure_halves.saving("sixteen_bit", lambda view: _mixed(view, _thirty_two_bit)).says("mixed precision")
measure_halves.saving("all_sixteen_bit", lambda view: _mixed(view, _in_32_bits)).says(
    "mixed precision, also for products in fp32 that do not use Tensor Cores,", "as in amp-unused, for all products"
)


_WORK: Final = ["product", "convolution", "attention"]
# What a CPU takes in 32 bits of the time in 64, at most and at least; the rule double-precision has the source.
_OF_HOST: Final = {"convolution": (0.45, 0.15), "product": (0.55, 0.35), "other": (0.8, 0.3)}
_RATES: Final = (0.35, 0.875)  # of the ratio of the peaks, at least and at most, as for TF32
_HALF: Final = 0.5  # of the bytes
_MOVING: Final = (0.75, _HALF)  # of the time of a kernel that only moves them
_TYPED: Final = 0.5  # of the products' time
_CONVOLUTION: Final = r"^aten::\w*conv"  # on the host, whose ops have no family of that kind
_NUMERICAL: Final = r"""(?x)
    ^aten::_?linalg_(?:cholesky|eig|svd|solve|lu|ldl|qr|inv|lstsq|pinv|det|slogdet|householder)\w*$
    |^aten::(?:cholesky|triangular_solve|ormqr|geqrf|_fft_)\w*$
    |evaluate_function:\s\w*(?:BackwardBackward|DoubleBackward)"""
_DTYPE: Final = pl.coalesce("element_type", "op_dtype")
_CONVOLVES: Final = pl.col("kind").is_null() & pl.col("op_name").str.contains(_CONVOLUTION)
_IS_PRODUCT: Final = (pl.col("work").is_in(_WORK) | _CONVOLVES).fill_null(value=False) | (
    pl.col("family").cast(pl.String).is_in(PRODUCTS)
)
"""Whether it multiplies matrices, as the inputs or the name of its op tell, or the kernel's name."""


def _doubles(view: DeviceView) -> pl.DataFrame:
    """All kernels, or without a device ops, that compute in fp64."""
    return view.once(kernels).filter(_DTYPE == "fp64")


def _products(view: DeviceView) -> pl.DataFrame:
    return view.once(_doubles).filter(_IS_PRODUCT)


def _unknown_formats(view: DeviceView) -> Missing | None:
    """That the types of most products are not known, or that the program may need 64 bits."""
    if view.device is None and not view.host["dtypes"].count():
        return Missing("no_shapes" if view.process.get("framework") == "pytorch" else "value_types_unknown")
    products = view.once(kernels).filter(_IS_PRODUCT)
    total, typed = (float(rows["dur_ns"].sum()) for rows in (products, products.filter(_DTYPE.is_not_null())))
    if typed < _TYPED * total:
        return Missing("value_types_unknown")
    is_numerical = view.once(_products).height and view.used_like(_NUMERICAL, "op").height
    return Missing("numerical_program") if is_numerical else None


def _in_64_bits(view: DeviceView) -> pl.DataFrame:
    """What takes less time in 32 bits; none where nothing is multiplied."""
    doubles = view.once(_doubles)
    return doubles if view.once(_products).height else doubles.clear()


def _in_fp32(view: DeviceView, end: int) -> pl.Expr:
    """Longest (end 0) or shortest (end 1) time in 32 bits, in ns."""
    now = pl.col("dur_ns")
    if view.device is None:
        product = pl.when(_IS_PRODUCT).then(pl.lit("product")).otherwise(pl.lit("other"))
        work = pl.when(_CONVOLVES | (pl.col("work") == "convolution")).then(pl.lit("convolution")).otherwise(product)
        return now * work.replace_strict({name: ends[end] for name, ends in _OF_HOST.items()}, return_dtype=pl.Float64)
    ratio = (view.chip.fp64_ratio if view.chip else None) or 1.0
    least, most = _RATES
    times = (least * ratio, max(most * ratio, 1 / _HALF))
    product = in_format(view, "fp32", times, end)
    return pl.when(_IS_PRODUCT).then(product).otherwise(now * _MOVING[end])


of_doubles = of_devices(__name__, unknown=_unknown_formats)

of_doubles.kernels("double_product", _products, gives=("share", "ms")).says(
    "in which matrix products, convolutions and attention are computed in 64 bits (fp64)",
    "kernels, or without a device ops, that multiply and whose name tells fp64, or else the first floating-point input "
    "of the op",
    "kernel names, then the launching op's dtype",
)
of_doubles("double_product_ops", lambda view: largest(view, view.once(_products)) or None).says(
    "The ops whose products are in 64 bits.", "those with the most time, then the others"
)
of_doubles.faster("double", _in_64_bits, lambda view: (_in_fp32(view, 0), _in_fp32(view, 1))).says(
    "computing in 32 bits instead of 64"
)


_LEAST_KNOWN: Final = 0.5
_TYPE_OF_OP: Final = pl.coalesce("op_dtype", pl.when(pl.col("family").is_in(PRODUCTS)).then("element_type"))


def _part_of(view: DeviceView, chosen: pl.Expr) -> float:
    return float(view.once(kernels).filter(chosen)["dur_ns"].sum()) / view.once(kernels_ns)


of_sixteen_bits = of_devices(
    __name__,
    needs=("device_ops",),
    unknown=lacking(
        nothing_to_compute_from=lambda view: not view.once(kernels_ns),
        value_types_unknown=lambda view: _part_of(view, _TYPE_OF_OP.is_not_null()) < _LEAST_KNOWN,
    ),
)

of_sixteen_bits("sixteen_bit_kernel_share", lambda view: _part_of(view, _TYPE_OF_OP.is_in(["fp16", "bf16"]))).says(
    "Part of the kernel time on 16-bit floating point, bfloat16 included.",
    "time of kernels whose op's first floating-point input, or else, of products, whose name is of 16 bits / time of "
    "kernels; unknown where the type is known of less than half of that time",
    "XProf's overview page, device compute precisions, which counts bfloat16 as 32 bits",
)


_PADDED: Final = (0.9, 0.6)  # of the kernel's time, once the sides are padded
_STEP_OF: Final = {"fp16": 8, "bf16": 8, "tf32": 4}  # elements in 16 bytes
_FORWARD: Final = ["aten::addmm", "aten::linear", "aten::bmm", "aten::baddbmm"]  # n and k are lengths of rows there


def _on_tensor_cores(view: DeviceView) -> pl.DataFrame:
    used = (pl.col("family") == "gemm") & (pl.col("verdict") == "used") & pl.col("dtype").is_in(list(_STEP_OF))
    return view.once(candidates).filter(used)


def _misaligned(view: DeviceView) -> pl.DataFrame:
    """Labelled with the sides of the product, rows x inner side x columns, where they are known."""
    step = pl.col("dtype").replace_strict(_STEP_OF, default=None, return_dtype=pl.Int64)
    by_name = pl.col("alignment") < step
    by_shape = pl.col("op_name").is_in(_FORWARD) & ((pl.col("n") % step != 0) | (pl.col("k") % step != 0))
    odd = by_name.fill_null(value=False) | by_shape.fill_null(value=False)
    sized = pl.format("{} {} x {} x {}", "op_name", "m", "k", "n")
    return view.once(_on_tensor_cores).filter(odd).with_columns(op_name=pl.coalesce(sized, "op_name"))


def _is_row_unknown(view: DeviceView) -> bool:
    """Whether there are products of which neither name nor shapes tell."""
    products = view.once(_on_tensor_cores)
    return bool(products.height and not (products["alignment"].count() or products["n"].count()))


of_rows = of_devices(
    __name__, needs=("device_ops", "device_ops.name"), unknown=lacking(alignment_unknown=_is_row_unknown)
)

of_rows.kernels("misaligned_product", _misaligned, gives=("share", "ms", "ops")).says(
    "in which Tensor Cores multiply matrices whose rows do not start at multiples of 16 bytes",
    "GEMM kernels that use Tensor Cores on fp16, bf16 or TF32, and bear an alignment of under 16 bytes in their name "
    "or were launched by addmm, linear or bmm with n or k no multiple of 8 (TF32: 4)",
    "NVIDIA Matrix Multiplication Background User's Guide, table 1",
)
of_rows.faster("misaligned", _misaligned, _PADDED).says("padding the sides")
