from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from advisor.analysis.device.steps import DeviceView
from advisor.metrics.host.frameworks import arranged, compiled, contention, devices, eager, placement, recorded
from advisor.metrics.memory.peak import memory
from advisor.metrics.steps.breakdown import breakdown
from advisor.model.missing import Missing
from advisor.model.profile import table
from tests.tables import V100, kernel, on_device, on_host, profile, step, view


def of_tensorflow(one: DeviceView) -> DeviceView:
    return replace(one, process={**one.process, "framework": "tensorflow"}, _computed={})


def test_devices_seen_and_used():
    seen = [V100 | {"device": i} for i in range(4)]
    ops = [kernel(0, 1, device=2), on_device("memcpy", 0, 1, device=3)]
    found = devices(view(profile(ops, steps=[step(1, 0, 10, device=2)], devices=seen)))
    assert found == {"devices_visible": 4, "devices_idle": 2, "devices_working": "2"}


def test_time_between_steps():
    steps = [step(1, 0, 100), step(2, 150, 250), step(3, 300, 400)]
    assert recorded(view(profile([kernel(0, 1)], steps=steps)))["between_steps_share"] == pytest.approx(0.25)
    asking = [on_host("input", 90, 125), on_host("input", 260, 310)]  # 25 of 50 us between, then 40 of 50
    told = recorded(view(profile([kernel(0, 1)], asking, steps)))["between_steps_input_part"]
    assert told == pytest.approx(65 / 100)
    apart = recorded(view(profile([kernel(0, 1)], steps=[step(1, 0, 100), step(5, 150, 250)])))
    assert isinstance(apart["between_steps_share"], Missing)


def test_eager_ops_count_once_however_they_nest():
    host = [
        on_host("op", 0, 30, name="EagerLocalExecute: MatMul", eager=True, step=1),
        on_host("op", 5, 25, name="MatMul:MatMul", eager=True, step=1, parent=0),
        on_host("op", 40, 50, name="model/Relu:Relu", eager=False, step=1),
        on_host("op", 60, 90, name="of the pipeline:Cast", eager=True),  # asked for by no step
    ]
    found = eager(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert found["host_eager_share"] == pytest.approx(0.75)
    assert found["eager_ops_per_step"] == 1
    assert isinstance(eager(view(profile((), host, [step(1, 0, 100, device=None)])))["host_eager_share"], Missing)


@pytest.mark.parametrize(
    ("kind", "name", "told"),
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
def test_the_loop_of_keras_is_known_by_its_functions_and_its_mark(kind, name, told):
    one = view(profile((), [on_host(kind, 0, 50, name=name)], [step(1, 0, 100, device=None)]))
    assert arranged(of_tensorflow(one))["keras_fit_ranges"] == told
    assert isinstance(arranged(one)["keras_fit_ranges"], Missing)


def test_threads_that_only_launch_are_known_by_their_pool():
    one = of_tensorflow(view(profile((), [on_host("op", 0, 50)], [step(1, 0, 100, device=None)])))
    named = pl.DataFrame({"worker": [0] * 4, "name": ["tf_Compute", "tf_gpu_private_4", "tf_gpu_private_6", None]})
    assert arranged(replace(one, threads=table("threads", named)))["private_launch_threads"] == 2
    assert arranged(one)["private_launch_threads"] == 0


def test_calls_of_functions_that_trace():
    host = [
        on_host("annotation", 0, 30, details='{"tf_function_call":"traced-nonXla","tracing_count":2}'),
        on_host("annotation", 40, 50, details='{"tf_function_call":"notTraced-nonXla","tracing_count":2}'),
    ]
    found = eager(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert found["function_tracing_share"] == pytest.approx(0.75)


def test_what_xla_left_out_and_what_runs_in_sixteen_bits():
    half = on_host("op", 0, 1, name="a/b:Mul", dtypes='["c10::BFloat16"]', shapes="[[4]]")
    single = on_host("op", 2, 3, name="a/c:Mul", dtypes='["float"]', shapes="[[4]]")
    ops = [
        kernel(0, 30, op=0, hlo_module="jit_f"),
        kernel(40, 50, op=1, framework_op="a/c:Mul"),
    ]
    found = compiled(of_tensorflow(view(profile(ops, [half, single], [step(1, 0, 100)]))))
    assert found["xla_share"] == pytest.approx(0.75)
    assert found["outside_compilation_share"] == pytest.approx(0.25)
    assert found["outside_compilation_ops"] == "Mul (10 µs)"
    assert found["sixteen_bit_kernel_share"] == pytest.approx(0.75)
    untold = compiled(of_tensorflow(view(profile([kernel(0, 30)], steps=[step(1, 0, 100)]))))
    assert untold["outside_compilation_share"] == 0
    assert isinstance(untold["sixteen_bit_kernel_share"], Missing)


def test_launching_while_tf_data_works():
    host = [
        on_host("annotation", 0, 40, name="ExecutorState::Process", step=1),
        on_host("pipeline", 20, 90, name="Iterator::Map", thread=2),
    ]
    found = contention(view(profile([kernel(30, 60)], host, [step(1, 0, 100)])))
    assert found["input_during_launch_share"] == pytest.approx(0.1)  # 20 to 30
    assert found["input_during_launch_part"] == pytest.approx(1 / 3)


def test_tensorflow_s_order_of_the_breakdown():
    """A request for input owns an instant before the executor; of another step it owns none."""
    host = [
        on_host("annotation", 0, 60, name="ExecutorState::Process", step=1),
        on_host("input", 10, 30, step=1),
        on_host("input", 30, 50, step=2),
        on_host("op", 55, 80, step=1),
    ]
    ops = [kernel(0, 20), on_device("memcpy", 50, 70, copy_kind="HtoD"), on_device("memcpy", 80, 85, copy_kind="DtoH")]
    found = breakdown(of_tensorflow(view(profile(ops, host, [step(1, 0, 100)]))))
    shares = {name.removesuffix("_share"): share for name, share in found.items() if name.endswith("_share")}
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
    found = breakdown(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert (found["launch_share"], found["host_share"], found["input_share"]) == (0.0, 0.6, 0.2)


def test_memory_that_an_allocator_takes_all_at_once():
    """Of 10 bytes 8 are used at the peak; of the 2 that are free half are outside the largest piece."""
    rows = [
        {"worker": 0, "device": 0, "at_ns": at, "allocated_bytes": a, "available_bytes": 10 - a, "fragmentation": f}
        for at, a, f in ((1, 4, 0.0), (2, 8, 0.5), (3, 6, 0.9))
    ]
    found = memory(view(profile([kernel(0, 1)], steps=[step(1, 0, 10)], allocations=rows)))
    assert (found["reserved_memory_bytes"], found["peak_memory_bytes"]) == (10, 8)
    assert found["fragmentation"] == pytest.approx(0.1)


def test_work_on_other_threads_for_a_step_is_no_python():
    from advisor.metrics.host.launching import python_bound  # noqa: PLC0415

    host = [
        on_host("step", 0, 100, name="train", step=1),
        on_host("annotation", 10, 95, name="ThunkExecutor::Execute", step=1, thread=2),
    ]
    found = python_bound(view(profile((), host, [step(1, 0, 100, device=None)])))
    assert found["python_bound_share"] == pytest.approx(0.15)
    apart = [row | {"step": None} for row in host]
    found = python_bound(view(profile((), apart, [step(1, 0, 100, device=None)])))
    assert isinstance(found["python_bound_share"], Missing)  # nothing says that the other thread works for the step


def test_ops_on_the_device_are_those_that_launch_something_there():
    # one op encloses another; of the three innermost, one launches
    host = [on_host("op", 0, 30), on_host("op", 5, 25, parent=0), on_host("op", 40, 50), on_host("op", 60, 70)]
    made = profile([kernel(30, 40, 10, op=1)], host, [step(1, 0, 100)])
    assert placement(view(made))["device_op_share"] == pytest.approx(1 / 3)
    assert isinstance(
        placement(view(profile([kernel(30, 40, 10)], steps=[step(1, 0, 100)])))["device_op_share"], Missing
    )
