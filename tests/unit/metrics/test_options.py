"""What a job uses already, as names in its recording show it."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.model.clause import Missing
from tests.profiles import of_rule
from tests.tables import Row, kernel, metrics_of, on_device, on_host, profile, step, view

STEPS = [step(1, 0, 100), step(2, 100, 200)]


def of_framework(framework: str, host: list[Row], device: list[Row] | None = None) -> Any:
    seen = view(profile(device or [kernel(0, 90, 0)], host, STEPS))
    seen.process.update({"framework": framework})
    return seen


def ops(*names: str) -> list[Row]:
    return [on_host("op", at + 10 * i, at + 10 * i + 5, name=name) for at in (0, 100) for i, name in enumerate(names)]


@pytest.mark.parametrize(
    ("names", "calls"),
    [
        (["aten::mm"], 0),
        (["Torch-Compiled Region: 0/0", "CompiledFunction"], 1),
        (["CompiledFunction", "CompiledFunctionBackward"], 1),
        (["## Call CompiledFxGraph fabc ##"], 1),
    ],
)
def test_compiled_regions_are_counted_once_each(names: list[str], calls: float):
    values = metrics_of(of_framework("pytorch", ops(*names)))
    assert values["compiled_calls_per_step"] == calls


def test_kernels_of_inductor_show_compiled_code_where_no_region_was_recorded():
    device = [kernel(0, 20, 0, name="triton_poi_fused_add_0"), kernel(20, 40, 20, name="triton_softmax_of_mine")]
    values = metrics_of(of_framework("pytorch", ops("aten::mm"), device))
    assert values["compiled_calls_per_step"] == 0.5


@pytest.mark.parametrize(
    ("names", "form"),
    [
        (["aten::mm"], "none"),
        (["Optimizer.step#Adam.step", "aten::add_"], "loop"),
        (["Optimizer.step#Adam.step", "aten::_foreach_add_"], "foreach"),
        (["Optimizer.step#Adam.step", "aten::_fused_adamw_"], "fused"),
        (["aten::_foreach_norm", "Optimizer.step#Adam.step", "aten::add_"], "loop"),  # the gradients are clipped
    ],
)
def test_the_optimizer_s_form_is_told_by_its_ops(names: list[str], form: str):
    assert metrics_of(of_framework("pytorch", ops(*names)))["optimizer_form"] == form


def test_the_optimizer_with_the_most_time_names_the_class():
    updates = [
        on_host("annotation", at, at + dur, name=f"Optimizer.step#{name}.step")
        for at, dur, name in ((0, 30, "RMSprop"), (40, 5, "AdamW"))
    ]
    values = metrics_of(of_framework("pytorch", [*ops("aten::mm"), *updates]))
    assert values["optimizer_class"] == "RMSprop"
    without = metrics_of(of_framework("pytorch", ops("aten::mm")))
    assert without["optimizer_class"] == Missing("no_optimizer_range")


def test_where_no_op_was_recorded_nothing_is_known_to_be_unused():
    unrecorded = of_framework("pytorch", [on_host("annotation", 0, 10)])
    assert metrics_of(unrecorded)["optimizer_form"] == Missing("no_host_op")
    assert metrics_of(of_framework("jax", ops("aten::mm")))["optimizer_form"] == Missing("pytorch_only")


def test_graphs_are_counted_where_calls_were_recorded():
    calls = [on_host("runtime", at, at + 5, name="cudaGraphLaunch") for at in (0, 100)]
    assert metrics_of(of_framework("cuda", calls))["graph_launches_per_step"] == 1
    assert metrics_of(of_framework("cuda", []))["graph_launches_per_step"] == 0  # of the kernel alone
    nothing = view(profile([kernel(0, 90)], [], STEPS))
    assert isinstance(metrics_of(nothing)["graph_launches_per_step"], Missing)


def iterator(path: str, parallelism: int | None = None) -> Row:
    details = None if parallelism is None else f'{{"parallelism":{parallelism}}}'
    return on_host("pipeline", 10, 20, name=f"Iterator::{path}", details=details)


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        ([iterator("Root::Map")], (0, 1)),
        ([iterator("Root::Prefetch"), iterator("Root::Prefetch::ParallelMapV2", 8)], (1, 0)),
        ([iterator("Root::MapAndBatch", 1)], (0, 1)),
        ([iterator("Root::Batch")], (0, 0)),
    ],
)
def test_the_tree_of_iterators_shows_prefetching_and_parallel_maps(rows: list[Row], counts: tuple[int, int]):
    values = metrics_of(of_framework("tensorflow", rows))
    metrics = ("tf_data_prefetches", "tf_data_serial_maps")
    assert tuple(values[metric] for metric in metrics) == counts


def test_without_tf_data_nothing_of_it_is_known():
    assert metrics_of(of_framework("jax", []))["tf_data_prefetches"] == Missing("no_tf_data")


def test_calls_of_functions_are_per_step():
    calls = ops("PjitFunction(train_step)", "PjitFunction(add)")
    assert of_rule("python-bound", of_framework("jax", calls))["jitted_calls_per_step"] == 2
    assert metrics_of(of_framework("jax", calls))["tf_function_calls_per_step"] == Missing("tensorflow_only")


def test_the_part_of_the_reductions_in_sixteen_bits_is_of_their_bytes():
    made = {"op": "all_reduce", "worker": 0, "group": "0"}
    calls = [made | {"dtype": "BFloat16", "bytes": 30}, made | {"dtype": "Float", "bytes": 10}]
    calls += [made | {"op": "all_gather", "dtype": "BFloat16", "bytes": 500}, made | {"dtype": None, "bytes": 7}]
    ops = [on_device("collective", 10 * at, 10 * at + 5) for at in range(len(calls))]
    rows = [call | {"device_op": number} for number, call in enumerate(calls)]
    shares = metrics_of(view(profile(ops, [], STEPS, collectives=rows)))
    assert shares["sixteen_bit_reduction_share"] == pytest.approx(0.75)
    assert metrics_of(of_framework("pytorch", []))["sixteen_bit_reduction_share"] == Missing("no_reductions")


@pytest.mark.parametrize(
    ("software", "version"),
    [("CUDA 12.4, driver for CUDA 12.9, NCCL 2.19.3", 21903), ("NCCL 2.7", 20700), ("PyTorch 2.9.1", 0), (None, 0)],
)
def test_the_version_of_nccl_is_in_its_own_form(software: str | None, version: int):
    seen = of_framework("pytorch", ops("aten::mm"))
    seen.process["software"] = software
    assert metrics_of(seen)["nccl_version"] == version


@pytest.mark.parametrize(
    ("settings", "slow"),
    [
        ("NCCL_P2P_DISABLE=1 OMP_NUM_THREADS=1", "NCCL_P2P_DISABLE=1 (NCCL does not copy from GPU to GPU)"),
        ("NCCL_P2P_DISABLE=0 CUDA_LAUNCH_BLOCKING=0 NCCL_ALGO=Ring", ""),
        ("XLA_FLAGS=--xla_gpu_autotune_level=4 --a=b", ""),
        (None, Missing("settings_unrecorded")),
    ],
)
def test_settings_that_slow_a_job_down_are_told_by_their_values(settings: str | None, slow: str | Missing):
    seen = of_framework("pytorch", ops("aten::mm"))
    seen.process.update({"settings": settings, "world_size": 8})
    assert metrics_of(seen)["slow_settings"] == slow


def test_settings_of_communication_are_nothing_to_a_job_of_one_rank():
    seen = of_framework("pytorch", ops("aten::mm"))
    seen.process["settings"] = "NCCL_P2P_DISABLE=1 CUDA_LAUNCH_BLOCKING=1"
    assert metrics_of(seen)["slow_settings"] == "CUDA_LAUNCH_BLOCKING=1 (each launch waits for its kernel)"


def test_a_recording_that_notes_no_setting_has_none():
    seen = of_framework("pytorch", ops("aten::mm"))
    seen.process["profiled_ms"] = 10.0
    assert metrics_of(seen)["slow_settings"] == ""
