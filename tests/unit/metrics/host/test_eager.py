from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from advisor.model.clause import Missing
from advisor.model.profile import table
from tests.tables import kernel, metrics_of, of_tensorflow, on_host, profile, step, view


def test_eager_ops_count_once_however_they_nest():
    host = [
        on_host("op", 0, 30, name="EagerLocalExecute: MatMul", eager=True, step=1),
        on_host("annotation", 4, 26, name="EagerKernelExecute", step=1, parent=0),
        on_host("op", 5, 25, name="MatMul:MatMul", eager=True, step=1, parent=1),
        on_host("op", 40, 50, name="model/Relu:Relu", eager=False, step=1),
        on_host("op", 60, 90, name="of the pipeline:Cast", eager=True),  # asked for by no step
    ]
    values = metrics_of(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert values["host_eager_share"] == pytest.approx(0.75)
    assert values["eager_ops_per_step"] == 1
    values = metrics_of(view(profile((), host, [step(1, 0, 100, device=None)])))
    assert isinstance(values["host_eager_share"], Missing)


def test_ops_that_write_summaries_are_a_callback_s_and_not_the_loop_s():
    ops = ["MatMul", "FlushSummaryWriter", "WriteScalarSummary"]
    host = [
        on_host("op", 10 * n, 10 * n + 5, name=f"EagerLocalExecute: {of}", eager=True, step=1)
        for n, of in enumerate(ops)
    ]
    host.append(on_host("op", 40, 45, name="model/Relu:Relu", eager=False, step=1))
    values = metrics_of(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert values["eager_ops_per_step"] == 1
    assert values["host_eager_share"] == pytest.approx(0.5)


def test_a_tf_function_saves_dispatch_and_the_python_between_eager_ops_on_a_cpu():
    # Outside of ops: 50 + 50 + 1500 + 850 = 2450 us, of which 950 in stretches of up to 1 ms; less 1 us per op,
    # 946 / 4 at least. Mul takes 50 us each time, so that 0.9 x 150 of it go, and nothing of the product's 400.
    ops = [("Mul", 0, 50), ("Mul", 100, 150), ("MatMul", 200, 600), ("Mul", 2100, 2150)]
    host = [on_host("op", *times, name=f"EagerLocalExecute: {of}", eager=True, step=1) for of, *times in ops]
    values = metrics_of(of_tensorflow(view(profile((), host, [step(1, 0, 3000, device=None)]))))
    assert values["eager_least_gain_ms"] == pytest.approx(0.2365)
    assert values["eager_gain_ms"] == pytest.approx(2.45 + 0.9 * 0.15)
    # The product is an op within a range within the op of its call: 5 us of that are dispatch, 395 are its own.
    within = [
        on_host("annotation", 201, 599, name="EagerKernelExecute", step=1, parent=2),
        on_host("op", 203, 598, name="MatMul:MatMul", eager=True, step=1, parent=4),
    ]
    values = metrics_of(of_tensorflow(view(profile((), [*host, *within], [step(1, 0, 3000, device=None)]))))
    assert values["eager_gain_ms"] == pytest.approx(2.45 + 0.9 * (0.15 + 0.005))


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
    assert metrics_of(of_tensorflow(of_pytorch))["keras_fit_ranges"] == number
    assert isinstance(metrics_of(of_pytorch)["keras_fit_ranges"], Missing)


def test_threads_that_only_launch_are_known_by_their_pool():
    worker = of_tensorflow(view(profile((), [on_host("op", 0, 50)], [step(1, 0, 100, device=None)])))
    threads = pl.DataFrame({"worker": [0] * 4, "name": ["tf_Compute", "tf_gpu_private_4", "tf_gpu_private_6", None]})
    assert metrics_of(replace(worker, threads=table("threads", threads), _computed={}))["private_launch_threads"] == 2
    assert metrics_of(worker)["private_launch_threads"] == 0


def test_calls_of_functions_that_trace():
    host = [
        on_host("annotation", 0, 30, details='{"tf_function_call":"traced-nonXla","tracing_count":2}'),
        on_host("annotation", 40, 50, details='{"tf_function_call":"notTraced-nonXla","tracing_count":2}'),
    ]
    values = metrics_of(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert values["function_tracing_share"] == pytest.approx(0.75)


def test_ops_on_the_device_are_those_that_launch_something_there():
    # one op encloses another; of the three innermost, one launches
    host = [on_host("op", 0, 30), on_host("op", 5, 25, parent=0), on_host("op", 40, 50), on_host("op", 60, 70)]
    trace = profile([kernel(30, 40, 10, op=1)], host, [step(1, 0, 100)])
    assert metrics_of(view(trace))["device_op_share"] == pytest.approx(1 / 3)
    values = metrics_of(view(profile([kernel(30, 40, 10)], steps=[step(1, 0, 100)])))
    assert isinstance(values["device_op_share"], Missing)
