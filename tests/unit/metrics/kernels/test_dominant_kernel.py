from __future__ import annotations

import pytest

from advisor.metrics import METRICS
from advisor.model.clause import Missing
from advisor.rules.evaluation import measured_run
from advisor.rules.judge import judge
from tests import profiles
from tests.device_bound import ADD, GEMM, op, queued
from tests.tables import measured, metrics_of, of_tensorflow, on_host, profile, step, view

NAIVE = "void mine::naive_kernel<float>(float const*, float*)"
LARGE = op("aten::mm", [4096, 4096], [4096, 4096])  # 137.4 GFLOP: 440.5 us at the A100's 312 TFLOP/s


def test_the_kernel_with_the_most_time_is_named_with_its_part_of_the_work():
    values = metrics_of(queued((NAIVE, 300, {}), (ADD, 200, {}), (NAIVE, 300, {}), (GEMM, 200, {})))
    assert values["dominant_kernel_name"] == "mine::naive_kernel"
    command = "ncu --kernel-name naive_kernel -c 3 --set full COMMAND"
    assert values["dominant_kernel_command"] == command
    assert values["dominant_kernel_part"] == pytest.approx(0.6)
    assert values["dominant_kernel_ms"] == pytest.approx(0.6)
    assert values["dominant_kernel_family"] is None
    assert values["dominant_kernel_least_reached"] == 0


def test_the_few_kernels_of_a_program_s_own_that_hold_a_quarter_each_are_named_together():
    first, second, third = (f"void mine::{name}(double*)" for name in ("tendencies_z", "tendencies_x", "update"))
    values = metrics_of(queued((first, 390, {}), (second, 380, {}), (third, 230, {})))
    assert values["dominant_kernel_name"] == "mine::tendencies_z and mine::tendencies_x"
    assert (values["dominant_kernels"], values["dominant_kernel_part"]) == (2, pytest.approx(0.77))
    command = "ncu --kernel-name 'regex:^(tendencies_z|tendencies_x)$' -c 6 --set full COMMAND"
    assert values["dominant_kernel_command"] == command
    of_a_library = metrics_of(queued((first, 390, {}), (GEMM, 380, {}), (second, 230, {})))
    assert (of_a_library["dominant_kernel_name"], of_a_library["dominant_kernels"]) == ("mine::tendencies_z", 1)


def test_a_name_that_is_no_symbol_stays_one_word_of_the_command():
    values = metrics_of(queued(("$(id) ; kernel", 300, {}), (ADD, 200, {})))
    assert values["dominant_kernel_command"] == "ncu --kernel-name '$(id) ; kernel' -c 3 --set full COMMAND"


def test_on_a_cpu_the_ops_of_a_type_are_one_and_count_while_they_run():
    """Convolutions for 500 of the 700 us in which ops compute; others run beside them, and waiting is no work."""
    ran = [
        ("a/Conv2D:Conv2D", 0, 300),
        ("b/Conv2D:Conv2D", 300, 500),
        ("c/Mul:Mul", 500, 700),
        ("x/_5:_Recv", 700, 990),
    ]
    host = [on_host("op", start, end, name=name, step=1) for name, start, end in ran]
    host.append(on_host("op", 0, 200, name="d/Mul:Mul", step=1, thread=2))
    values = metrics_of(of_tensorflow(view(profile((), host, [step(1, 0, 1_000, device=None)]))))
    assert values["dominant_kernel_name"] == "Conv2D"
    assert values["dominant_kernel_family"] == "convolution"
    assert values["dominant_kernel_part"] == pytest.approx(5 / 7)
    assert values["dominant_kernel_ms"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("ops", "name", "part"),
    [
        (("ipex_prepack::convolution_relu_run", "mkldnn::_convolution_pointwise"), "convolutions", 5 / 7),
        (("aten::_slow_conv2d_forward", "aten::_slow_conv2d_backward"), "aten::_slow_conv2d_forward", 3 / 7),
    ],
    ids=["of libraries", "of PyTorch's own loops"],
)
def test_on_a_cpu_all_convolutions_of_libraries_are_one(ops: tuple[str, str], name: str, part: float):
    ran = zip((*ops, "aten::mul"), (0, 300, 500), (300, 500, 700), strict=True)
    host = [on_host("op", start, end, name=of) for of, start, end in ran]
    values = metrics_of(view(profile((), host, [step(1, 0, 1_000, device=None)])))
    assert values["dominant_kernel_name"] == name
    assert values["dominant_kernel_part"] == pytest.approx(part)


def test_on_a_cpu_the_finding_s_share_is_of_the_time_beside_it():
    """A convolution for 60 of 100 ms, in an op that takes 90: of what ops compute it is all."""
    host, steps = [], []
    for number in range(4):
        at = 100_000 * number
        host.append(on_host("op", at, at + 90_000, name="aten::conv2d"))
        host.append(on_host("op", at, at + 60_000, name="aten::mkldnn_convolution", parent=2 * number))
        steps.append(step(number, at, at + 100_000, device=None))
    found = judge(measured_run(measured(profile((), host, steps))), profiles.book(), {}).findings
    says = next(finding.says for finding in found if finding.rule == "dominant-kernel")
    what = "aten::mkldnn_convolution takes 60 % of each step (60 ms)."
    assert says == f"The job runs on the CPU (no GPU was recorded): {what}"


def test_kernels_that_take_no_time_dominate_nothing():
    values = metrics_of(queued((GEMM, 0, {}), (ADD, 0, {})))
    unknown = Missing("nothing_to_compute_from")
    assert values["dominant_kernel_part"] == values["dominant_kernel_least_reached"] == unknown


def test_graphs_alone_have_no_places_of_a_dominant_kernel():
    assert METRICS["dominant_kernel_share"].where(queued(("CUDA graph 5", 100, {}))).is_empty()


def test_what_it_reaches_counts_ops_of_unknown_work_as_none():
    half = metrics_of(queued((GEMM, 880, {"on": 0}), (GEMM, 880, {}), ops=[LARGE]))
    assert half["dominant_kernel_least_reached"] == pytest.approx(440.5 / 1760, rel=1e-3)
    assert half["dominant_kernel_family"] == "gemm"
