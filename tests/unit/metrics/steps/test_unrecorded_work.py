"""Launches of which nothing was recorded, and launches that failed."""

from __future__ import annotations

from advisor.metrics.steps.breakdown import accounting
from tests.profiles import of_rule
from tests.tables import Row, kernel, metrics_of, on_device, on_host, profile, step, values_of, view


def launch(at: float, error: int | None = None) -> Row:
    details = None if error is None else f'{{"returnValue": {error}}}'
    return on_host("runtime", at, at + 1, name="cudaLaunchKernel", details=details)


def test_nothing_is_known_of_a_device_none_of_whose_launches_was_recorded():
    of = view(profile([], [on_host("op", 0, 100), launch(10), launch(20)], [step(1, 0, 100)]))
    assert metrics_of(of)["lost_launches"] == 2
    assert [*values_of(("lost_launch_share", "lost_idle_share"), of).values()] == [1.0, 1.0]
    assert accounting(of).is_empty()


def test_memory_that_is_refused_after_the_last_launch_ended_the_program():
    def memory_errors(error: int | None, *launches: float, name: str = "cudaMalloc") -> object:
        call = on_host("runtime", 50, 51, name=name, details=error and f'{{"returnValue": {error}}}')
        calls = [call, *(launch(at) for at in launches)]
        return metrics_of(view(profile([kernel(60, 70, 10)], calls, [step(1, 0, 100)])))["memory_errors"]

    assert memory_errors(2, 10) == memory_errors(2) == memory_errors(2, 10, name="cuMemCreate") == 1
    assert memory_errors(2, 10, 52) == 0  # the framework freed some, and tried again
    assert memory_errors(None, 10) == memory_errors(1, 10) == memory_errors(2, 10, name="cudaMallocHost") == 0


def test_of_a_copy_that_was_not_recorded_the_call_that_waited_for_it_is_named():
    calls = [on_host("runtime", 10, 90, name="cudaMemcpyAsync"), on_host("sync", 95, 98, name="cudaDeviceSynchronize")]
    trace = profile([], [on_host("op", 0, 100), launch(92), *calls], [step(1, 0, 100)])
    waits = of_rule("kernels-not-recorded", view(trace))["waits_names"]
    assert waits == "cudaMemcpyAsync (80 µs), cudaDeviceSynchronize (3 µs)"


def test_where_no_kernel_was_recorded_first_calls_that_take_long_are_where_cuda_starts():
    """All but two have later calls that take a tenth or more, only long later ones, or none; 99 ms are not long."""
    ms = 1_000
    lengths = {"inverse": (840, 300, 29), "conv2d": (100, 1, 9), "uniform_": (0, 0, 160), "bmm": (600, 2, 60)}
    lengths |= {"normal": (500,), "cat": (99, 1, 1)}
    begin, host = 0, [launch(10)]
    for name, calls in lengths.items():
        for length in calls:
            host.append(on_host("op", begin, begin + length * ms, name=name))
            begin += length * ms + ms
    inverse = host.index(next(op for op in host if op["name"] == "inverse"))
    host.append(on_host("op", 1, 840 * ms - 1, name="inverse_helper", parent=inverse))  # alone of its name
    trace = profile([], host, [step(1, 0, begin)])
    assert metrics_of(view(trace))["cold_calls"] == "inverse (1.14 s), conv2d (100 ms)"
    known = profile([kernel(50, 60, 45)], host, [step(1, 0, begin)])
    assert metrics_of(view(known))["cold_calls"] == ""


def test_a_copy_that_was_recorded_is_no_kernel():
    of = view(profile([on_device("memcpy", 30, 60)], [on_host("op", 0, 100), launch(10)], [step(1, 0, 100)]))
    assert [*values_of(("lost_launch_share", "lost_idle_share"), of).values()] == [1.0, 0.7]
    assert accounting(of).is_empty()


def test_failed_launches_are_counted_with_their_errors():
    calls = [launch(10, 209), launch(20, 209), launch(30, 1 << 32), launch(40)]
    of = view(profile([kernel(50, 60, 45)], calls, [step(1, 0, 100)]))
    told = {
        "failed_launches": 3,
        "failed_launch_share": 3 / 5,  # the kernel's own call is the fifth
        "launch_errors": "cudaErrorNoKernelImageForDevice 209 (2 x), error 4294967296 (1 x)",
    }
    assert values_of(told, of) == told
    assert metrics_of(of)["lost_launches"] == 0


def test_a_kernel_that_crashed_leaves_its_error_to_the_calls_after_it():
    """A query of work that still runs returns an error too, as a free after the end of CUDA and a wrong copy do."""

    def call(at: float, name: str, error: int, kind: str = "runtime") -> Row:
        return on_host(kind, at, at + 1, name=name, details=f'{{"returnValue": {error}}}')

    waits, frees = call(20, "cudaDeviceSynchronize", 700, "sync"), call(30, "cudaFree", 700, "allocator")
    harmless = [
        call(12, "cudaEventQuery", 600),
        call(40, "cudaFree", 4, "allocator"),
        call(14, "cudaMemcpy", 1, "sync"),
    ]
    crashed, ran = (profile([], [launch(10), *calls], [step(1, 0, 100)]) for calls in ([waits, frees], harmless))
    assert metrics_of(view(crashed))["kernel_errors"] == "cudaErrorIllegalAddress 700 (2 x)"
    assert metrics_of(view(ran))["kernel_errors"] == ""
