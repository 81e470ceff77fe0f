from __future__ import annotations

import pytest

from advisor.inputs.one_time_work import with_one_time_work
from tests.tables import Row, kernel, on_host, profile


def jit(at: float, idle_ms: float, name: str = "fused_add", call: str = "cuLaunchKernel") -> tuple[Row, Row]:
    """An op that is silent for so long before it launches a kernel, after another kernel; times in us."""
    begin = at + 100
    launch = begin + 1_000 * idle_ms
    before = kernel(at + 10, begin, launched=at + 1, name="elementwise")
    made = kernel(launch + 10, launch + 50, launched=launch + 1, name=name)
    made["call"]["name"] = call
    return before, made


def compiled(*kernels: Row, op: tuple[float, float] = (0, 1_000_000)) -> list[tuple[str, float, float]]:
    """Name, start and length, in us, of what counts as compilation; the op is open around it."""
    made = profile(kernels, [on_host("op", *op, name="forward")])
    host = made.host_ops.with_columns(thread=1)
    calls = host["kind"] == "runtime"
    host = host.with_columns(parent=calls.replace_strict({True: 0, False: None}))
    found = with_one_time_work(host, made.device_ops).filter(kind="compile")
    return [(row["name"], row["start_ns"] / 1e3, row["dur_ns"] / 1e3) for row in found.iter_rows(named=True)]


def test_an_op_that_is_silent_before_it_first_launches_a_module_compiles_it():
    assert compiled(*jit(0, 150)) == [("compilation of fused_add", 100, 150_000)]


def test_a_wait_that_comes_again_is_no_compilation():
    assert compiled(*jit(0, 150), *jit(200_000, 100)) == []
    assert len(compiled(*jit(0, 150), *jit(200_000, 0.1))) == 1


def test_silence_around_the_op_is_not_its_compilation():
    """The batch is made first; then the op begins, and launches its kernel."""
    assert compiled(*jit(0, 150), op=(150_000, 160_000)) == []


def test_a_kernel_of_the_library_is_not_compiled_and_a_short_wait_is_no_compiler():
    assert compiled(*jit(0, 150, call="cudaLaunchKernel")) == []
    assert compiled(*jit(0, 9)) == []


@pytest.mark.parametrize(("begin", "kind"), [(0, "runtime"), (20_000, "allocator")])
def test_memory_that_is_freed_before_any_work_is_the_start_of_cuda(begin: float, kind: str):
    call = on_host("allocator", begin, begin + 5_000, name="cudaFree")
    made = profile([kernel(10_000, 10_100, launched=9_990)], [call])
    assert with_one_time_work(made.host_ops, made.device_ops)["kind"][0] == kind


def test_a_recording_without_a_device_stays_as_it_is():
    made = profile(host_ops=[on_host("op", 0, 10)])
    assert with_one_time_work(made.host_ops, made.device_ops) is made.host_ops
