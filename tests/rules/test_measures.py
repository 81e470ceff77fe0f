"""What rules without Python of their own measure, on profiles made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.device_bound import ADD, GEMM, REDUCE, TO_NHWC, op, queued
from tests.profiles import book, of_rule
from tests.tables import kernel, on_device, on_host, profile, step, view


def on_cpu(*ops: dict[str, Any], ms: float = 1, **worker: object) -> DeviceView:
    """A step of so many ms of a worker without a device."""
    rows = [row | {"step": 1} for row in ops]
    workers = [{"worker": 0, "framework": "pytorch"} | worker]
    return view(profile((), rows, [step(1, 0, 1000 * ms, device=None)], devices=(), workers=workers))


PRODUCTS = ["nvjet_qqtst_128x64_128x4_1x2_h_bz_TNT", "void deep_gemm::fp8_gemm_kernel<7168, 4096, 128>"]
CASTS = [
    "void transformer_engine::cast_fp8_1D_kernel<__nv_bfloat16, __nv_fp8_e4m3>",
    "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn, true>",
    "void at::native::vectorized_elementwise_kernel<4, at::native::float8_copy_kernel_cuda(at::TensorIteratorBase&)>",
]


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("cast", CASTS)
def test_casts_to_eight_bits_and_products_in_eight_bits(product: str, cast: str):
    of = of_rule("fp8-casts-not-fused", queued((product, 500, {}), (cast, 100, {}), (ADD, 380, {})))
    assert (of["fp8_product_share"], of["fp8_cast_share"], of["fp8_cast_ms"]) == pytest.approx((0.5, 0.1, 0.1))


FORWARD = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >(flash::Flash_fwd_params)"
BACKWARD = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128> >(int)"
DECODING = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128> >(flash::Flash_fwd_params)"
THIRD = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int> > >(int)"


@pytest.mark.parametrize(
    ("names", "each", "ms"),
    [
        ((THIRD, FORWARD, BACKWARD, THIRD), 100, (0.2, 0.05, 0.1)),
        ((DECODING, "gemm"), 100, (0, 0, 0)),
        ((FORWARD, BACKWARD), 19, (0, 0, 0)),
    ],
)
def test_the_second_flash_attention_takes_up_to_twice_the_time(
    names: tuple[str, ...], each: int, ms: tuple[float, ...]
):
    kernels = [kernel(each * n + 10, each * (n + 1) + 10, n, name=name) for n, name in enumerate(names)]
    made = profile(kernels, steps=[step(1, 0, each * len(names) + 10, host=(0, 10))])
    of = of_rule("earlier-attention", view(made))
    ends = [of[f"earlier_attention_{end}"] for end in ("ms", "least_gain_ms", "gain_ms")]
    assert ends == pytest.approx(ms)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "share"),
    [
        ("aten::_slow_conv2d_forward", [8, 64, 28, 28], "float", 0.6),
        ("aten::slow_conv3d_forward", [1, 8, 32, 32, 32], "c10::BFloat16", 0.6),
        ("aten::mkldnn_convolution", [8, 64, 28, 28], "float", 0),
        ("aten::_slow_conv2d_forward", [8, 64, 28, 28], "double", 0),  # oneDNN has no 64 bits
        ("aten::_slow_conv2d_forward", [1, 3, 32, 32], "float", 0),  # small: PyTorch's own choice
    ],
)
def test_convolutions_outside_onednn(name: str, shape: list[int], dtype: str, share: float):
    made = on_host("op", 100, 700, name=name, shapes=json.dumps([shape]), dtypes=json.dumps([dtype]))
    assert of_rule("conv-without-onednn", on_cpu(made))["native_convolution_share"] == pytest.approx(share)


CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32"
TO_NCHW = "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>"
IMAGES, VOLUMES = [8, 64, 56, 56], [8, 64, 56, 56, 56]


@pytest.mark.parametrize(("sides", "volumes_ms"), [(IMAGES, 0), (VOLUMES, 0.24)])
def test_conversions_around_convolutions_can_all_but_go(sides: list[int], volumes_ms: float):
    ran = [(ADD, 240, {}), (TO_NHWC, 100, {"on": 0}), (CONV, 500, {"on": 0}), (TO_NCHW, 140, {"on": 0})]
    of = of_rule("layout-transposes", queued(*ran, ops=[op("aten::cudnn_convolution", sides, [64, 64, 3, 3])]))
    assert of["layout_transpose_share"] == of["layout_transpose_ms"] == pytest.approx(0.24)
    assert (of["layout_transpose_per_step"], of["volumes_ms"]) == (2, pytest.approx(volumes_ms))
    assert of["layout_transpose_names"] == "aten::cudnn_convolution (0.24 ms)"
    assert (of["layout_transpose_least_gain_ms"], of["layout_transpose_gain_ms"]) == pytest.approx((0.18, 0.24))


CHAIN = [op("aten::mul", [4096, 4096]), op("aten::tanh", [4096, 4096])]


def chains(of: DeviceView) -> tuple[float, ...]:
    """Runs per step, kernels in each, and the saving."""
    values = of_rule("elementwise-chains", of)
    names = ("runs_per_step", "per_step", "least_gain_ms", "gain_ms")
    runs, kernels, *gains = (values[f"elementwise_chain_{name}"] for name in names)
    return runs, kernels / max(1, runs), *gains


def test_a_chain_becomes_one_kernel_between_its_shortest_and_twice_its_longest():
    ran = [(ADD, us, {"on": i % 2}) for i, us in enumerate((100, 120, 140, 120))]
    made = queued(*ran, (REDUCE, 500, {}), ops=CHAIN)
    assert chains(made) == pytest.approx((1, 4, 0.20, 0.38))
    of = of_rule("elementwise-chains", made)
    assert of["elementwise_chain_share"] == pytest.approx(0.48)
    assert of["elementwise_chain_names"] == "aten::mul (0.24 ms), aten::tanh (0.24 ms)"


def test_each_chain_is_fused_by_itself_and_never_gets_slower():
    ran = [(ADD, 100, {"on": 0})] * 3 + [(REDUCE, 80, {})] + [(ADD, 20, {"on": 1})] * 5
    assert chains(queued(*ran, ops=CHAIN)) == pytest.approx((2, 4, 0.1 + 0.06, 0.2 + 0.08))
    uneven = [(ADD, 10, {"on": 0}), (ADD, 10, {"on": 0}), (ADD, 400, {"on": 0})]
    assert chains(queued(*uneven, ops=CHAIN))[2] == 0
    assert chains(queued((REDUCE, 80, {}))) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("names", "saved_ms"),
    [
        ("aten::mul aten::mul aten::add", (0.04, 0.14)),  # one op of 160 us at most, of 60 at least
        ("aten::tanh aten::tanh aten::mul", (0.0, 0.14)),  # of 280
        ("aten::random_ aten::mul aten::add", (0.04, 0.12)),  # of 80: what it draws takes 20 beyond 60
    ],
)
def test_on_a_cpu_a_fused_op_computes_functions_again_and_draws_as_before(names: str, saved_ms: tuple[float, float]):
    """80, 60 and 60 us in a row."""
    rows = [
        on_host("op", start, end, name=name, shapes="[[64, 64]]", dtypes='["float"]')
        for name, start, end in zip(names.split(), (0, 80, 140), (80, 140, 200), strict=True)
    ]
    assert chains(on_cpu(*rows, ms=0.4))[2:] == pytest.approx(saved_ms)


COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"


def test_casts_are_copies_inside_to_copy():
    outer = on_host("op", 0, 2, name="aten::_to_copy")
    inner = on_host("op", 0, 1, name="aten::copy_", parent=0)
    contiguous = on_host("op", 3, 4, name="aten::copy_")
    copies = [kernel(10, 40, 1, name=COPY, op=1), kernel(40, 60, 4, name=COPY, op=2)]
    of = of_rule("unfused-casts", view(profile(copies, [outer, inner, contiguous], [step(1, 0, 100)])))
    assert (of["cast_ms"], of["cast_per_step"]) == (pytest.approx(0.03), 1)


@pytest.mark.parametrize("name", ["model/dense/Cast:Cast", "jit(step)/convert_element_type"])
def test_casts_of_other_frameworks_bear_their_type(name: str):
    made = queued((COPY, 300, {"framework_op": name}), (GEMM, 680, {}))
    assert of_rule("unfused-casts", made)["cast_ms"] == pytest.approx(0.3)


def test_what_runs_in_sixteen_bits_is_named():
    half = on_host("op", 0, 1, name="a/b:Mul", dtypes='["c10::BFloat16"]', shapes="[[4]]")
    single = on_host("op", 2, 3, name="a/c:Add", dtypes='["float"]', shapes="[[4]]")
    made = view(profile([kernel(0, 30, op=0), kernel(40, 50, op=1)], [half, single], [step(1, 0, 100)]))
    assert of_rule("sixteen-bit-unused", made)["narrow_names"] == "Mul (30 µs)"


def test_updates_count_in_whatever_form_they_run():
    multi = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>"
    assert of_rule("updates-dominate", queued((multi, 300, {}), (GEMM, 680, {})))["update_share"] == pytest.approx(0.3)
    assert of_rule("updates-dominate", queued((GEMM, 980, {})))["update_share"] == 0


def test_writes_to_the_cache_and_attention():
    attention = kernel(0, 80, name="flash_fwd_splitkv_kernel")
    write = kernel(80, 100, name="void vllm::reshape_and_cache_flash_kernel<__half>(__half const*)")
    of = of_rule("cache-writes-slow", view(profile([attention, write])))
    assert (of["cache_write_ms"], of["attention_ms"]) == pytest.approx((0.020, 0.080))


def test_norms_right_after_an_all_reduce_on_their_stream():
    ops = [
        on_device("collective", 0, 10, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        kernel(10, 14, name="void vllm::fused_add_rms_norm_kernel<c10::BFloat16>()"),
        kernel(14, 18, name="void vllm::rms_norm_kernel<c10::BFloat16>()"),  # of no all-reduce
        on_device("collective", 18, 28, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        kernel(28, 30, name="gemm"),
        on_device("collective", 30, 40, name="ncclDevKernel_AllGather_RING_LL"),
        kernel(40, 44, name="void vllm::rms_norm_kernel<c10::BFloat16>()"),
    ]
    does = {0: "all_reduce", 3: "all_reduce", 5: "all_gather"}
    collectives = [{"worker": 0, "device_op": i, "op": op} for i, op in does.items()]
    of = of_rule("allreduce-norm-not-fused", view(profile(ops, collectives=collectives)))
    assert (of["allreduce_norm_per_step"], of["allreduce_norm_ms"]) == (1, pytest.approx(0.004))


def test_without_shapes_nothing_is_said_of_sizes():
    lacking = book()["conv-without-onednn"].selected["native_convolution_share"]
    assert "host_ops.shapes" in lacking.needs
    assert not isinstance(lacking.value(on_cpu(on_host("op", 0, 10, name="aten::mul"))), Missing)


@pytest.mark.parametrize(
    ("name", "occupancy", "blocks_per_sm", "share"),
    [(ADD, 0.24, 1.0, 0.98), (ADD, 0.25, 1.0, 0), (ADD, 0.24, 0.9, 0), (ADD, 0.0, 9.0, 0), (GEMM, 0.12, 1.0, 0)],
)
def test_low_occupancy_is_counted_where_blocks_suffice_and_threads_matter(
    name: str, occupancy: float, blocks_per_sm: float, share: float
):
    of = queued((name, 980, {"occupancy": occupancy, "blocks_per_sm": blocks_per_sm}))
    assert of_rule("low-occupancy", of)["low_occupancy_share"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("name", "slow", "us", "grid", "share"),
    [(ADD, 6, 20, 9, 0.968), (ADD, 6, 19, 9, 0), (ADD, 5, 20, 9, 0), (ADD, 6, 20, 0, 0), (GEMM, 6, 20, 9, 0)],
)
def test_equal_elementwise_kernels_far_from_their_best(name: str, slow: int, us: int, grid: int, share: float):
    """Four calls take 2 us and the others `us`."""
    ran = [(name, 2, {"grid": grid})] * 4 + [(name, us, {"grid": grid})] * slow
    assert of_rule("memory-spilled", queued(*ran))["stretched_share"] == pytest.approx(share, abs=0.2)


@pytest.mark.parametrize(("us", "share"), [(21, 0.42), (20, 0)])
def test_products_with_a_vector_wait_for_memory_unless_they_are_short(us: int, share: float):
    gemv = "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float>"
    made = profile(
        [kernel(0, us, 0, name=gemv), kernel(50, 50 + us, 0, name=gemv), kernel(80, 90, 0, name="gemm")],
        steps=[step(1, 0, 100)],
    )
    assert of_rule("dominant-kernel", view(made))["vector_products_share"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("name", "share"),
    [("samples.read", 0.4), ("fetch_batch", 0.4), ("load", 0.4), ("forward", 0), ("spread", 0), ("read_head", 0)],
)
def test_kernels_in_a_range_that_reads_count_if_they_are_long(name: str, share: float):
    """Launched in the range from 0 to 100 us; the second is short, and the third of after the range."""
    kernels = [kernel(100, 2100, 50, name="get"), kernel(2100, 2200, 60, name="get"), kernel(2200, 5000, 2300)]
    made = profile(kernels, [on_host("annotation", 0, 100, name=name)], [step(1, 0, 5000)])
    assert of_rule("reading-kernels", view(made))["reads_share"] == pytest.approx(share)
