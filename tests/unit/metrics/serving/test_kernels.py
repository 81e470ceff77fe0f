from __future__ import annotations

import pytest

from tests.tables import kernel, on_device, on_host, profile, worker_row

ATTENTION = kernel(0, 80, name="flash_fwd_splitkv_kernel")


def test_writes_to_the_cache_are_held_against_attention():
    write = kernel(80, 100, name="void vllm::reshape_and_cache_flash_kernel<__half>(__half const*)")
    row = worker_row(profile([ATTENTION, write]))
    assert row["cache_write_part"] == pytest.approx(20 / 80)
    assert row["cache_write_ms"] == pytest.approx(0.020)


def test_without_fused_attention_they_are_unknown():
    assert worker_row(profile([kernel(0, 80, name="gemm")]))["cache_write_part"] is None


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
    row = worker_row(profile(ops, collectives=collectives))
    assert row["allreduce_norms_per_step"] == 1
    assert row["allreduce_norms_ms"] == pytest.approx(0.004)


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("step[DECODE bs=31]", "sglang"),
        ("execute_context_1(8)_generation_0(0)", "vllm"),
        ("[Executor] _forward_step 7: 0 ctx reqs, 8 gen reqs", "tensorrt_llm"),
        ("/opt/sglang/srt/managers/scheduler.py(7): run", "sglang"),
        ("train_step", None),
    ],
)
def test_the_engine_is_named_by_its_steps_and_its_code(name: str, engine: str | None):
    assert worker_row(profile([ATTENTION], [on_host("annotation", 0, 90, name=name)]))["engine"] == engine
