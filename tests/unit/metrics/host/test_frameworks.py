from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from advisor.analysis.device.view import DeviceView
from advisor.metrics.host import frameworks
from advisor.metrics.host.frameworks import (
    compilation,
    contention,
    devices,
    eager,
    eager_gains,
    placement,
    settings,
)
from advisor.metrics.memory import peak
from advisor.metrics.steps.breakdown import breakdown
from advisor.model.missing import Missing
from advisor.model.profile import table
from tests.tables import V100, by_metric, by_name, kernel, on_device, on_host, profile, step, view

eager = by_metric(eager)
settings = by_metric(settings)
contention = by_metric(contention)

breakdown = by_name(breakdown)


def of_tensorflow(worker: DeviceView) -> DeviceView:
    return replace(worker, process={**worker.process, "framework": "tensorflow"}, _computed={})


def test_devices_that_are_visible_and_used():
    visible = [V100 | {"device": i} for i in range(4)]
    ops = [kernel(0, 1, device=2), on_device("memcpy", 0, 1, device=3)]
    values = devices(view(profile(ops, steps=[step(1, 0, 10, device=2)], devices=visible)))
    assert values == {frameworks.DEVICES_VISIBLE: 4, frameworks.DEVICES_IDLE: 2, frameworks.DEVICES_WORKING: "2"}


def test_eager_ops_count_once_however_they_nest():
    host = [
        on_host("op", 0, 30, name="EagerLocalExecute: MatMul", eager=True, step=1),
        on_host("op", 5, 25, name="MatMul:MatMul", eager=True, step=1, parent=0),
        on_host("op", 40, 50, name="model/Relu:Relu", eager=False, step=1),
        on_host("op", 60, 90, name="of the pipeline:Cast", eager=True),  # asked for by no step
    ]
    values = eager(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert values[frameworks.HOST_EAGER_SHARE] == pytest.approx(0.75)
    assert values[frameworks.EAGER_OPS_PER_STEP] == 1
    values = eager(view(profile((), host, [step(1, 0, 100, device=None)])))
    assert isinstance(values[frameworks.HOST_EAGER_SHARE], Missing)


def test_a_tf_function_saves_dispatch_and_the_python_between_eager_ops_on_a_cpu():
    # Outside of ops: 50 + 50 + 1500 + 850 = 2450 us, of which 950 in stretches of up to 1 ms; less 1 us per op,
    # 946 / 4 at least. Mul takes 50 us each time, so that 0.9 x 150 of it go, and 0.5 x 400 of the product.
    ops = [("Mul", 0, 50), ("Mul", 100, 150), ("MatMul", 200, 600), ("Mul", 2100, 2150)]
    host = [on_host("op", *times, name=f"EagerLocalExecute: {of}", eager=True, step=1) for of, *times in ops]
    values = eager_gains(of_tensorflow(view(profile((), host, [step(1, 0, 3000, device=None)]))))
    assert values[frameworks.EAGER_LEAST_GAIN_MS] == pytest.approx(0.2365)
    assert values[frameworks.EAGER_GAIN_MS] == pytest.approx(2.785)


@pytest.mark.parametrize(
    ("kind", "name", "number"),
    [
        ("annotation", "multi_step_on_iterator", 1),
        ("annotation", "EagerLocalExecute: __inference_multi_step_on_iterator_4236", 1),
        ("annotation", "EagerLocalExecute: __inference_train_function_913", 1),
        ("annotation", "EagerLocalExecute: __inference_one_step_on_data_12", 1),
        ("step", "Profiled batch", 1),
        ("annotation", "EagerLocalExecute: __inference_train_step_147", 0),
        ("annotation", "my_train_function", 0),
        ("step", "train", 0),
    ],
)
def test_the_loop_of_keras_is_known_by_its_functions_and_its_mark(kind, name, number):
    of_pytorch = view(profile((), [on_host(kind, 0, 50, name=name)], [step(1, 0, 100, device=None)]))
    assert settings(of_tensorflow(of_pytorch))[frameworks.KERAS_FIT_RANGES] == number
    assert isinstance(settings(of_pytorch)[frameworks.KERAS_FIT_RANGES], Missing)


def test_threads_that_only_launch_are_known_by_their_pool():
    worker = of_tensorflow(view(profile((), [on_host("op", 0, 50)], [step(1, 0, 100, device=None)])))
    threads = pl.DataFrame({"worker": [0] * 4, "name": ["tf_Compute", "tf_gpu_private_4", "tf_gpu_private_6", None]})
    assert settings(replace(worker, threads=table("threads", threads)))[frameworks.PRIVATE_LAUNCH_THREADS] == 2
    assert settings(worker)[frameworks.PRIVATE_LAUNCH_THREADS] == 0


def test_calls_of_functions_that_trace():
    host = [
        on_host("annotation", 0, 30, details='{"tf_function_call":"traced-nonXla","tracing_count":2}'),
        on_host("annotation", 40, 50, details='{"tf_function_call":"notTraced-nonXla","tracing_count":2}'),
    ]
    values = eager(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert values[frameworks.FUNCTION_TRACING_SHARE] == pytest.approx(0.75)


def test_what_xla_left_out_and_what_runs_in_sixteen_bits():
    half = on_host("op", 0, 1, name="a/b:Mul", dtypes='["c10::BFloat16"]', shapes="[[4]]")
    single = on_host("op", 2, 3, name="a/c:Mul", dtypes='["float"]', shapes="[[4]]")
    ops = [
        kernel(0, 30, op=0, hlo_module="jit_f"),
        kernel(40, 50, op=1, framework_op="a/c:Mul"),
    ]
    values = compilation(of_tensorflow(view(profile(ops, [half, single], [step(1, 0, 100)]))))
    assert values[frameworks.XLA_SHARE] == pytest.approx(0.75)
    assert values[frameworks.OUTSIDE_COMPILATION_SHARE] == pytest.approx(0.25)
    assert values[frameworks.OUTSIDE_COMPILATION_OPS] == "Mul (10 µs)"
    assert values[frameworks.SIXTEEN_BIT_KERNEL_SHARE] == pytest.approx(0.75)
    unknown = compilation(of_tensorflow(view(profile([kernel(0, 30)], steps=[step(1, 0, 100)]))))
    assert unknown[frameworks.OUTSIDE_COMPILATION_SHARE] == 0
    assert isinstance(unknown[frameworks.SIXTEEN_BIT_KERNEL_SHARE], Missing)


def test_launching_while_tf_data_works():
    host = [
        on_host("annotation", 0, 40, name="ExecutorState::Process", step=1),
        on_host("pipeline", 20, 90, name="Iterator::Map", thread=2),
    ]
    values = contention(view(profile([kernel(30, 60)], host, [step(1, 0, 100)])))
    assert values[frameworks.INPUT_DURING_LAUNCH_SHARE] == pytest.approx(0.1)  # 20 to 30
    assert values[frameworks.INPUT_DURING_LAUNCH_PART] == pytest.approx(1 / 3)


def test_tensorflow_s_order_of_the_breakdown():
    """A request for input owns an instant before the executor; of another step it owns none."""
    host = [
        on_host("annotation", 0, 60, name="ExecutorState::Process", step=1),
        on_host("input", 10, 30, step=1),
        on_host("input", 30, 50, step=2),
        on_host("op", 55, 80, step=1),
    ]
    ops = [kernel(0, 20), on_device("memcpy", 50, 70, copy_kind="HtoD"), on_device("memcpy", 80, 85, copy_kind="DtoH")]
    values = breakdown(of_tensorflow(view(profile(ops, host, [step(1, 0, 100)]))))
    shares = {name.removesuffix("_share"): share for name, share in values.items() if name.endswith("_share")}
    assert {name: round(share, 6) for name, share in shares.items() if share} == {
        "compute": 0.2,  # 0 to 20
        "input": 0.1,  # 20 to 30
        "launch": 0.3,  # 30 to 60
        "memcpy": 0.15,  # 60 to 70, to the device after launching; 80 to 85
        "host": 0.1,  # 70 to 80
        "other": 0.15,
    }


def test_on_a_cpu_the_executor_is_no_launch():
    host = [on_host("annotation", 0, 60, name="ExecutorState::Process", step=1), on_host("input", 60, 80, step=1)]
    values = breakdown(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert (values["launch_share"], values["host_share"], values["input_share"]) == (0.0, 0.6, 0.2)


def test_memory_that_an_allocator_takes_all_at_once():
    """Of 10 bytes 8 are used at the peak; of the 2 that are free half are outside the largest piece."""
    rows = [
        {"worker": 0, "device": 0, "at_ns": at, "allocated_bytes": a, "available_bytes": 10 - a, "fragmentation": f}
        for at, a, f in ((1, 4, 0.0), (2, 8, 0.5), (3, 6, 0.9))
    ]
    values = peak.memory(view(profile([kernel(0, 1)], steps=[step(1, 0, 10)], allocations=rows)))
    assert (values[peak.RESERVED_MEMORY_BYTES], values[peak.PEAK_MEMORY_BYTES]) == (10, 8)
    assert values[peak.FRAGMENTATION] == pytest.approx(0.1)


def test_ops_on_the_device_are_those_that_launch_something_there():
    # one op encloses another; of the three innermost, one launches
    host = [on_host("op", 0, 30), on_host("op", 5, 25, parent=0), on_host("op", 40, 50), on_host("op", 60, 70)]
    trace = profile([kernel(30, 40, 10, op=1)], host, [step(1, 0, 100)])
    assert placement(view(trace))[frameworks.DEVICE_OP_SHARE] == pytest.approx(1 / 3)
    values = placement(view(profile([kernel(30, 40, 10)], steps=[step(1, 0, 100)])))
    assert isinstance(values[frameworks.DEVICE_OP_SHARE], Missing)
