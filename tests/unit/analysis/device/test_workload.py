from __future__ import annotations

from typing import Any

import pytest

from advisor.analysis.device.workload import signs, workload
from tests.tables import Row, kernel, on_host, profile, view

PRODUCTS = [on_host("op", 10 * n, 10 * n + 5, name="aten::mm") for n in range(3)]
MARK = "step[DECODE bs=31]"


def kind(device: list[Row], host: list[Row]) -> str:
    return workload(view(profile(device, host)))


def of_ops(host: list[Row], **more: Any) -> list[Row]:
    """A kernel of each op, launched in it."""
    return [
        kernel(op["start_ns"] / 1000 + 20, op["start_ns"] / 1000 + 25, op["start_ns"] / 1000 + 3, op=n, **more)
        for n, op in enumerate(host)
    ]


@pytest.mark.parametrize(
    ("of_host", "name", "expected"),
    [
        ("op", "autograd::engine::evaluate_function: MmBackward0", "training"),
        ("op", "aten::native_layer_norm_backward", "training"),
        ("annotation", "Optimizer.step#AdamW.step", "training"),
        ("op", "PjitFunction(train_step)", "training"),
        ("annotation", MARK, "serving"),
        ("annotation", "_forward_step 7: 0 ctx reqs, 31 gen reqs", "serving"),
        ("python", "vllm/v1/worker/gpu_model_runner.py(1332): execute_model", "serving"),
        ("python", "/sgl-workspace/sglang/python/sglang/srt/layers/attention.py(105): forward", "serving"),
        ("op", "predict_function", "inference"),
        # names that only look alike
        ("python", "torch/autograd/function.py(35): save_for_backward", "unknown"),
        ("python", "bytes.decode", "unknown"),
        ("op", "restrain_steps", "unknown"),
        ("annotation", "step 12", "unknown"),
    ],
)
def test_a_range_shows_the_kind_of_work(of_host: str, name: str, expected: str):
    assert kind([], [on_host(of_host, 0, 10, name=name)]) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void flash_bwd_dq_dk_dv_loop_kernel<...>", "training"),
        ("cudnn::cnn::wgrad_alg0_engine<float>", "training"),
        ("vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>", "serving"),
        ("void cudnn::bn_fw_inf_1C11_kernel_NCHW<float>", "inference"),
        ("cudnn::detail::dgrad_engine<float>", "unknown"),  # a transposed convolution runs it forward
        ("ampere_sgemm_128x64_tn", "unknown"),
    ],
)
def test_a_kernel_shows_the_kind_of_work(name: str, expected: str):
    others = [kernel(100 * n, 100 * n + 50, name=f"gemm_{n}") for n in range(4)]
    assert kind([kernel(500, 550, name=name), *others], []) == expected


def test_products_without_autograd_are_inference():
    assert kind(of_ops(PRODUCTS, name="gemm"), PRODUCTS) == "benchmark"  # one kernel, three times
    assert kind([], PRODUCTS) == "inference"
    assert kind([], PRODUCTS[:2]) == "unknown"


def test_numbers_of_autograd_leave_it_open():
    numbered = [op | {"sequence": n} for n, op in enumerate(PRODUCTS)]
    assert kind([], numbered) == "unknown"  # the backward pass may lie after the recording
    assert kind([], [op | {"sequence": 7} for op in PRODUCTS]) == "inference"  # nothing to differentiate: it stays


def test_kernels_of_a_graph_leave_it_open():
    graphs = [on_host("runtime", 50, 60, name="cudaGraphLaunch")]
    replayed = [kernel(100 + n, 101 + n, name=f"k{n}") | {"launch": 3} for n in range(9)]
    assert kind(replayed, [*PRODUCTS, *graphs]) == "unknown"


def test_one_kernel_again_and_again_is_a_benchmark():
    runs = [kernel(10 * n, 10 * n + 8, name="saxpy") for n in range(3)]
    assert kind(runs, []) == "benchmark"
    assert kind(runs[:2], []) == "unknown"
    assert kind([*runs, kernel(40, 43, name="other")], []) == "unknown"
    assert kind([*runs, kernel(40, 41, name="other")], []) == "benchmark"  # 24 of 25 us
    assert kind([run | {"graph": 1} for run in runs], []) == "unknown"


def test_kinds_that_mix_are_both_told():
    both = [on_host("annotation", 0, 10, name=MARK), on_host("op", 10, 20, name="MmBackward0")]
    assert kind([], both) == "training, serving"
    assert [sign.example for sign in signs(view(profile([], both)))] == ["MmBackward0", MARK]


@pytest.mark.parametrize(("until", "expected"), [(59, "capture"), (40, "serving")])
def test_a_capture_hides_what_is_captured(until: float, expected: str):
    host = [
        on_host("annotation", 0, 100, name=MARK),
        on_host("runtime", 5, 6, name="cudaStreamBeginCapture"),
        on_host("runtime", until, until + 1, name="cudaStreamEndCapture"),
    ]
    assert kind([], host) == expected
