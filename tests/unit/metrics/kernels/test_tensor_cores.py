from __future__ import annotations

import json

import pytest

from advisor.analysis.device.kernels import candidates
from advisor.metrics import METRICS
from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.tables import A100, V100, Row, kernel, metrics_of, on_host, profile, step, view

NAMES = ("tensor_core_share", "tensor_core_eligible_share", "sixteen_bit_share")
P100 = V100 | {"name": "Tesla P100-SXM2-16GB", "capability": 6.0, "sm_count": 56}
NEW = {"device": 0, "name": "Something New", "capability": 13.0}
MI250 = {"device": 0, "name": "AMD Radeon Graphics", "capability": 9.0}  # of a chip without the figures that tell it

HALF = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
TF32 = "ampere_sgemm_tf32_tensorop_s1688gemm_128x128_nn"
SINGLE = "volta_sgemm_128x64_nn"
OPEN = "cutlass_gemm_kernel"  # a product, and no more
ANY = "my_kernel"  # may be anything
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def product(dtype: str | None, *shapes: list[int], name: str = "aten::mm") -> Row:
    dtypes = json.dumps([dtype] * len(shapes)) if dtype else None
    return on_host("op", 0, 1, name=name, dtypes=dtypes, shapes=json.dumps(shapes) if shapes else None)


def ran(name: str, op: Row | None = None, device: Row = V100, dur: float = 10) -> Profile:
    return profile(
        [kernel(0, dur, name=name, op=0 if op else None)], [op] if op else [], [step(1, 0, 100)], devices=[device]
    )


def verdicts(recording: Profile) -> list[str]:
    return candidates(view(recording))["verdict"].to_list()


LARGE = [128, 256], [256, 512]


@pytest.mark.parametrize(
    ("name", "dtype", "device", "verdict"),
    [
        (HALF, None, A100, "used"),
        (TF32, "float", A100, "used"),
        (HALF, "float", A100, "used"),  # the name knows better than the op
        (SINGLE, None, V100, "unused"),
        (SINGLE, "c10::Half", A100, "unused"),
        # An undecided name: the device has no path for the type, or it may have taken one.
        (OPEN, "float", V100, "unused"),
        (OPEN, "float", A100, "unknown"),  # TF32
        (OPEN, "c10::Half", V100, "unknown"),
        (OPEN, "c10::BFloat16", V100, "unused"),
        (OPEN, "c10::BFloat16", A100, "unknown"),
        (OPEN, "double", V100, "unused"),
        (OPEN, "double", A100, "unknown"),
        (OPEN, "float", NEW, "unknown"),
        (OPEN, None, V100, "unknown"),
        (OPEN, "long int", V100, "unknown"),
        (ANY, "float", V100, "unknown"),  # it may not multiply at all
    ],
)
def test_the_name_decides_then_the_type_and_the_device(name: str, dtype: str | None, device: Row, verdict: str):
    assert verdicts(ran(name, product(dtype, *LARGE), device)) == [verdict]


def test_the_first_tensor_of_floating_point_gives_the_type():
    op = on_host("op", 0, 1, name="aten::embedding", dtypes='["long int", "", "float", "c10::Half"]')
    assert candidates(view(ran(OPEN, op)))["dtype"].to_list() == ["fp32"]
    assert candidates(view(ran(HALF, op)))["dtype"].to_list() == ["fp16"]  # the name knows better


@pytest.mark.parametrize(
    ("op", "counts"),
    [
        (product("float", [64, 64], [64, 64]), True),
        (product("float", [63, 64], [64, 64]), False),
        (product("float", [4096, 4096], [4096, 8]), False),
        (product("float", [8], [128, 256], [256, 512], name="aten::addmm"), True),  # the bias is no factor
        (product("float", [2, 128, 64], [2, 64, 128], name="aten::bmm"), True),  # two products are two, not a side
        (product("float", [32, 3, 224, 224], [64, 3, 7, 7], name="aten::conv2d"), True),  # no matrices
        (product("float", [1, 512], name="aten::mm"), True),  # one factor does not tell
        (on_host("op", 0, 1, name="aten::mm", shapes="[[1, 2], not JSON", dtypes="{}"), True),
    ],
)
def test_products_with_a_side_under_64_are_left_out(op: Row, *, counts: bool):
    assert len(verdicts(ran(SINGLE, op))) == counts


def test_a_product_with_a_short_side_counts_where_it_runs_on_tensor_cores():
    short = product("float", [128, 8], [8, 512])
    assert (verdicts(ran(TF32, short, A100)), verdicts(ran(SINGLE, short, A100))) == (["used"], [])


def test_what_multiplies_no_matrices_is_no_candidate():
    gemv = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>"
    assert verdicts(ran(gemv)) == verdicts(ran(ADD)) == []


# us       0        10              30                    60                            100
# kernels  == HALF ==     SINGLE    ==       OPEN         ==            ADD             ==
KERNELS = [
    *(kernel(0, 10, name=HALF), kernel(10, 30, name=SINGLE, op=0)),
    *(kernel(30, 60, name=OPEN, op=1), kernel(60, 100, name=ADD)),
]
OPS = [product("float", *LARGE), product("c10::Half", *LARGE, name="aten::bmm")]
MIXED = profile(KERNELS, OPS, [step(1, 0, 200)])


def test_shares_are_of_the_time_of_all_compute_kernels():
    values = metrics_of(view(MIXED))
    assert values["tensor_core_share"] == pytest.approx(0.1)
    assert values["tensor_core_eligible_share"] == pytest.approx(0.3)
    assert values["sixteen_bit_share"] == pytest.approx(40 / 60)


def test_kernels_outside_the_steps_used_do_not_count():
    recording = profile(
        [*KERNELS, kernel(250, 350, name=SINGLE)], OPS, [step(1, 0, 200), step(2, 200, 400, incomplete="cut")]
    )
    assert metrics_of(view(recording))["tensor_core_eligible_share"] == pytest.approx(0.3)


def test_places_are_the_longest_call_of_each_kernel_by_the_kernel_s_total():
    other = "volta_sgemm_32x32_nn"
    device = [
        kernel(0, 4, name=SINGLE),
        kernel(10, 15, name=SINGLE),
        kernel(20, 23, name=SINGLE),
        kernel(30, 41, name=other),
    ]
    places = METRICS["thirty_two_bit_share"].where
    assert places
    rows = places(view(profile(device, steps=[step(1, 0, 100)])))
    assert rows.select("name", "start_ns", "dur_ns").rows() == [(SINGLE, 10_000, 5_000), (other, 30_000, 11_000)]


@pytest.mark.parametrize(
    ("device", "reason"),
    [(P100, "no_tensor_cores"), ({"device": 0}, "tensor_cores_unknown"), (MI250, "tensor_cores_unknown")],
)
def test_without_tensor_cores_or_knowing_of_them_nothing_is_said(device: Row, reason: str):
    values = metrics_of(view(ran(SINGLE, device=device)))
    assert {values[name] for name in NAMES} == {Missing(reason)}


def test_products_without_length_have_no_type_worth_a_share():
    recording = profile([kernel(0, 10, name=ADD), kernel(20, 20, name=HALF)], steps=[step(1, 0, 100)])
    assert metrics_of(view(recording))["sixteen_bit_share"] is None


def test_without_kernels_there_are_no_shares():
    values = metrics_of(view(profile([], [], [step(1, 0, 100)])))
    assert {values[name] for name in NAMES} == {Missing("nothing_to_compute_from")}


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("aten::mm", "fp32"), ("aten::cudnn_convolution", "fp32"), ("aten::add", None), ("aten::_conv_depthwise2d", None)],
)
def test_a_kernel_of_unknown_name_has_the_type_of_an_op_that_multiplies(op: str, dtype: str | None):
    rows = candidates(view(ran(ANY, product("float", *LARGE, name=op))))
    assert rows.select("dtype", "verdict").rows() == [(dtype, "unknown")]


@pytest.mark.parametrize(("end", "share"), [(30, 0.5), (31, Missing("kernels_untold"))])
def test_a_share_of_few_kernels_is_no_share_of_all(end: int, share: object):
    rows = [kernel(0, 10, name=HALF), kernel(20, end, name=ANY)]
    assert metrics_of(view(profile(rows, [], [step(1, 0, 100)], devices=[A100])))["tensor_core_share"] == share
