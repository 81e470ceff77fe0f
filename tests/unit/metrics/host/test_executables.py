from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model.clause import Missing
from tests.tables import kernel, metrics_of, of_tensorflow, on_host, profile, step, view


def trace(modules: list[str], framework: str = "jax", steps: int = 1):
    ran = [kernel(10 * i, 10 * i + 5, hlo_module=module) for i, module in enumerate(modules)]
    each = 10 * len(modules) / steps
    marks = [step(n, n * each, (n + 1) * each) for n in range(steps)]
    recorded = view(profile(ran, [], marks))
    return replace(recorded, process={**recorded.process, "framework": framework}, _computed={})


def test_op_by_op_every_kernel_is_a_program_of_its_own():
    values = metrics_of(trace(["jit_add", "jit_multiply", "jit_sqrt", "jit_tanh"] * 5))
    assert values["executables_per_step"] == 20
    assert values["executable_kinds"] == 4
    assert values["kernels_per_executable"] == 1
    assert values["executable_names"] == "jit_add (5 x), jit_multiply (5 x), jit_sqrt (5 x), jit_tanh (5 x)"


def test_a_compiled_step_is_one_program():
    values = metrics_of(trace(["jit_step"] * 40))
    assert values["executables_per_step"] == 1
    assert values["kernels_per_executable"] == 40


def test_without_a_device_the_function_called_last_runs_the_program():
    """jnp.matmul calls lax.dot_general, whose program runs; a call that only traces runs none."""
    calls = [(0, 50, "matmul"), (10, 40, "dot_general"), (60, 90, "tanh"), (92, 95, "mean")]
    host = [on_host("annotation", a, b, name=f"PjitFunction({name})") for a, b, name in calls]
    runs = [on_host("annotation", at, at + 5, name="PjRtCpuExecutable::ExecuteHelper") for at in (20, 70)]
    ops = [on_host("op", at, at + 2) for at in (21, 71)]
    recorded = view(profile([], [*host, *runs, *ops], [step(0, 0, 100, device=None)], devices=()))
    values = metrics_of(replace(recorded, process={**recorded.process, "framework": "jax"}, _computed={}))
    assert values["executable_names"] == "dot_general (1 x), tanh (1 x)"
    assert values["executables_per_step"] == 2
    assert values["kernels_per_executable"] == 1


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_other_frameworks_have_no_such_programs(framework: str):
    assert isinstance(metrics_of(trace(["jit_step"], framework))["executables_per_step"], Missing)


def test_what_xla_left_out():
    host = [on_host("op", 0, 1, name="a/b:Mul"), on_host("op", 2, 3, name="a/c:Mul")]
    ops = [
        kernel(0, 30, op=0, hlo_module="jit_f"),
        kernel(40, 50, op=1, framework_op="a/c:Mul"),
    ]
    values = metrics_of(of_tensorflow(view(profile(ops, host, [step(1, 0, 100)]))))
    assert values["xla_share"] == pytest.approx(0.75)
    unknown = metrics_of(of_tensorflow(view(profile([kernel(0, 30)], steps=[step(1, 0, 100)]))))
    assert unknown["xla_share"] == 0


def test_small_programs_beside_a_compiled_step_count_for_themselves():
    """Three ops of one program each, and a step of 40: in the mean 11 ops a program."""
    names = ["split", "roll", "stack", "step"]
    host = [on_host("annotation", 100 * n, 100 * n + 9, name=f"PjitFunction({name})") for n, name in enumerate(names)]
    runs = [on_host("annotation", 100 * n + 10, 100 * n + 12, name="PjRtCpuExecutable::Execute") for n in range(4)]
    ops = [on_host("op", at, at + 1) for at in (11, 111, 211, *range(312, 352))]
    recorded = view(profile([], [*host, *runs, *ops], [step(0, 0, 400, device=None)], devices=()))
    values = metrics_of(replace(recorded, process={**recorded.process, "framework": "jax"}, _computed={}))
    assert values["kernels_per_executable"] == 1
    assert values["small_executables_part"] == pytest.approx(3 / 43)
