from __future__ import annotations

import pytest

from advisor.inputs.phases import with_one_time_work
from tests.tables import Row, kernel, on_host, profile


def jit(at: float, idle_ms: float, name: str = "fused_add", call: str = "cuLaunchKernel") -> tuple[Row, Row]:
    """An op that is silent for so long before it launches a kernel, after another kernel; times in us."""
    begin = at + 100
    launch = begin + 1_000 * idle_ms
    before = kernel(at + 10, begin, launched=at + 1, name="elementwise")
    made = kernel(launch + 10, launch + 50, launched=launch + 1, name=name)
    made["call"]["name"] = call
    return before, made


def compiled(
    *kernels: Row, op: tuple[float, float] = (0, 1_000_000), loads: tuple[float, ...] = (), calls: tuple[Row, ...] = ()
) -> list[tuple[str, float, float]]:
    """Name, start and length, in us, of what counts as compilation; the op is open around it; `loads` load a module."""
    modules = [on_host("runtime", at, at + 100, name="cuModuleLoadDataEx") for at in loads]
    made = profile(kernels, [on_host("op", *op, name="forward"), *modules, *calls])
    host = made.host_ops.with_columns(thread=1)
    is_call = host["kind"] == "runtime"
    host = host.with_columns(parent=is_call.replace_strict({True: 0, False: None}))
    found = with_one_time_work(host, made.device_ops).filter(kind="compile")
    return [(row["name"], row["start_ns"] / 1e3, row["dur_ns"] / 1e3) for row in found.iter_rows(named=True)]


def test_an_op_that_is_silent_before_it_first_launches_a_module_compiles_it():
    assert compiled(*jit(0, 150)) == [("compilation of fused_add", 100, 150_000)]


def test_what_was_compiled_is_called_what_people_call_it():
    signature = "gpu_assembly_kernel(CuDeviceArray<Int64, (int)1, (int)1>, CuDeviceArray<Float64, (int)2, (int)1>)"
    assert compiled(*jit(0, 150, signature))[0][0] == "compilation of gpu_assembly_kernel"


def test_a_wait_that_comes_again_is_no_compilation():
    assert compiled(*jit(0, 150), *jit(200_000, 100)) == []
    assert len(compiled(*jit(0, 150), *jit(200_000, 0.1))) == 1


def test_silence_around_the_op_is_not_its_compilation():
    """The batch is made first; then the op begins, and launches its kernel."""
    assert compiled(*jit(0, 150), op=(150_000, 160_000)) == []


def test_a_module_loaded_in_the_silence_was_made_in_it():
    after = {"op": (150_000, 160_000)}
    assert compiled(*jit(0, 150), loads=(140_000,), **after) == [("compilation of fused_add", 100, 150_000)]
    assert compiled(*jit(0, 150), loads=(50,), **after) == []
    assert compiled(*jit(0, 150), *jit(200_000, 100), loads=(140_000,), **after) == []
    assert compiled(jit(0, 150)[1], loads=(50,), **after) == [("compilation of fused_add", 50, 150_050)]


def test_an_autotuner_makes_modules_that_hold_kernels_of_one_name():
    """Each is compiled in silence, loaded and launched; without a load the last wait is how the program is."""
    made = *jit(0, 150), *jit(200_000, 100), *jit(400_000, 100)
    each = [("compilation of fused_add", at, us) for at, us in ((100, 150_000), (200_100, 100_000), (400_100, 100_000))]
    loads = 140_000, 300_050, 500_050
    assert compiled(*made, loads=loads, op=(0, 1)) == each
    assert compiled(*made, *jit(600_000, 100), loads=loads, op=(0, 1)) == []
    busy = on_host("runtime", 410_000, 420_000, name="cuvidCreateDecoder")
    assert compiled(*made, loads=loads, op=(0, 1), calls=(busy,)) == []
    assert compiled(*made[:4], loads=loads[:2], op=(0, 1)) == []  # two may be two parts of a library


def test_a_kernel_of_the_library_is_not_compiled_and_a_short_wait_is_no_compiler():
    assert compiled(*jit(0, 150, call="cudaLaunchKernel")) == []
    assert compiled(*jit(0, 9)) == []


# ms     0           200  210           500             1000
# calls  |- cudaFree -|    |- launch a -|  |- cudaFree -|
# device               |fill|            |a|             |a|...
def started(*calls: Row, steps: str = "") -> list[tuple[str, float, float]]:
    """Name, start and length, in ms, of what counts as start-up, around three kernels at 200, 500 and 1,000 ms."""
    ms = 1_000
    device = [
        kernel(200 * ms, 201 * ms, launched=199.99 * ms, name="fill"),
        kernel(500 * ms, 501 * ms, launched=500 * ms, name="a"),
        kernel(1_000 * ms, 1_001 * ms, launched=999.99 * ms, name="a"),
    ]
    device[1]["call"] |= {"start_ns": 210_000_000, "dur_ns": 290_000_000}
    made = profile(device, [*calls, *([on_host("step", 0, 1_001 * ms, name=steps)] if steps else [])])
    found = with_one_time_work(made.host_ops, made.device_ops).filter(kind="start_up").sort("start_ns")
    return [(row["name"], row["start_ns"] / 1e6, row["dur_ns"] / 1e6) for row in found.iter_rows(named=True)]


LOADS = ("loading of a kernel in cudaLaunchKernel", 210, 290)


def test_long_calls_before_any_work_start_cuda_whatever_they_are_called():
    early = on_host("allocator", 0, 2_000, name="cudaFree"), on_host("runtime", 3_000, 12_000, name="cudaGetDevice")
    assert started(*early) == [("start of CUDA in cudaFree", 0, 2), LOADS]
    assert started(on_host("runtime", 0, 150_000, name="cudaMemsetAsync"))[0][0] == "start of CUDA in cudaMemsetAsync"
    assert started(on_host("sync", 0, 150_000, name="cudaMemcpy")) == [LOADS]  # which may wait for unrecorded work


def test_a_slow_first_launch_loads_the_kernel_unless_a_schedule_began_the_recording_later():
    assert started(steps="ProfilerStep#0") == [LOADS]
    assert started(steps="ProfilerStep#3") == [("start of CUDA in cudaLaunchKernel", 210, 290)]


def test_the_op_right_around_a_first_launch_loads_the_kernel():
    """A library that chooses an algorithm does so in its op, before the call."""
    op = on_host("op", 205_000, 500_000, name="aten::addmm")
    call = on_host("runtime", 499_000, 499_100, name="cudaLaunchKernel", parent=1)
    device = [kernel(200_000, 201_000, launched=199_990, name="fill")]
    device.append(kernel(500_000, 501_000, name="a") | {"call": None, "launch": 2})
    made = profile(device, [on_host("annotation", 0, 600_000), op, call])
    rows = with_one_time_work(made.host_ops, made.device_ops).filter(kind="start_up")
    assert rows.select("name", "start_ns", "dur_ns").rows() == [
        ("loading of a kernel in aten::addmm", 205_000_000, 295_000_000)
    ]


@pytest.mark.parametrize(("returns", "loads"), [(212_000, True), (206_500, False)])
def test_a_first_launch_that_goes_on_after_the_device_ran_dry_loads_the_kernel(returns: int, *, loads: bool):
    """The device works until 206 ms: a launch that waits for room in its queue returns before."""
    device = [
        kernel(200_000, 206_000, launched=199_990, name="fill"),
        kernel(213_000, 213_100, launched=202_000, name="b"),
    ]
    device[1]["call"] |= {"start_ns": 202_000_000, "dur_ns": (returns - 202_000) * 1_000}
    made = profile(device)
    rows = with_one_time_work(made.host_ops, made.device_ops).filter(kind="start_up")
    assert rows["name"].to_list() == ["loading of a kernel in cudaLaunchKernel"] * loads


def test_a_rare_long_call_beside_an_idle_device_starts_a_library():
    library = on_host("allocator", 600_000, 900_000, name="cudaFree")
    assert started(library)[1:] == [("start of CUDA in cudaFree", 600, 300)]
    assert started(library, *(on_host("allocator", at, at + 200_000, name="cudaFree") for at in (0, 1e6)))[1:] == [
        LOADS,
    ]
    assert started(on_host("sync", 600_000, 900_000, name="cudaDeviceSynchronize")) == [LOADS]
    assert started(on_host("allocator", 1_002_000, 1_400_000, name="cudaFree")) == [LOADS]  # after the last kernel
    assert started(on_host("allocator", 600_000, 690_000, name="cudaFree")) == [LOADS]
    pinning = on_host("runtime", 600_000, 625_000, name="cuMemHostAlloc")
    assert started(pinning)[1:] == [("start of CUDA in cuMemHostAlloc", 600, 25)]


@pytest.mark.parametrize(("begins", "ends", "is_start"), [(600, 610, True), (600, 609.9, False), (609, 619, False)])
def test_a_library_with_a_runtime_within_sets_it_up_right_after_cuinit(begins: float, ends: float, *, is_start: bool):
    init = on_host("runtime", 599_000, 599_010, name="cuInit")
    free = on_host("allocator", 1_000 * begins, 1_000 * ends, name="cudaFree")
    assert started(init, free) == [LOADS, ("start of CUDA in cudaFree", 600, 10)][: 1 + is_start]


def test_a_recording_without_a_device_stays_as_it_is():
    made = profile(host_ops=[on_host("op", 0, 10)])
    assert with_one_time_work(made.host_ops, made.device_ops) is made.host_ops
