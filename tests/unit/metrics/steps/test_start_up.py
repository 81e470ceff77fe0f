from __future__ import annotations

import pytest

from advisor.metrics.metric import METRICS
from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.tables import US, Row, kernel, on_device, on_host, pageable, profile, span, step, values_of, view, worker_row

# us       -1000   -900    -400   0      50
# calls    cuInit  cudaMemcpyAsync
# copies           =========             =====   of 100 bytes each
# kernel                          =====
HOST = [on_host("runtime", -1_000, -950, name="cuInit"), on_host("runtime", -900, -400, name="cudaMemcpyAsync")]
DEVICE = [pageable(-900, -500, bytes=100), kernel(0, 40), pageable(50, 60, bytes=100)]
WORKERS: list[Row] = [{"worker": 0, "work_start_ns": 0, "work_end_ns": 60 * US}]
TOLD = ("once_ms", "once_work", "once_idle_share", "recorded_ms")
COPIES = ("startup_copy_ms", "startup_copy_bytes", "startup_pageable_bytes")


def found(*more: Row, host: tuple[Row, ...] = (), steps: tuple[Row, ...] = (), began: int | None = 0) -> Row:
    workers = [{"worker": 0, "work_start_ns": began, "work_end_ns": 60 * US}]
    made = view(profile([*DEVICE, *more], [*HOST, *host], steps, workers=workers))
    return values_of(("once_ms", "once_work", *COPIES), made)


def found_in(recorded: Profile) -> object:
    return values_of(("once_ms",), view(recorded))["once_ms"]


def test_what_comes_before_the_work_is_told_once():
    assert found() == {
        "once_ms": 1.0,
        "once_work": "cudaMemcpyAsync (0.5 ms), CPU work between CUDA calls (0.45 ms), cuInit (50 µs)",
        "startup_copy_ms": 0.4,
        "startup_copy_bytes": 100,
        "startup_pageable_bytes": 100,
    }


def test_the_outermost_ranges_that_end_before_the_work_are_named():
    spans = {"init": (-1_000, -10), "load": (-890, -410), "main": (-1_000, 70)}
    ranges = [on_host("annotation", *at, name=name) for name, at in spans.items()]
    assert found(host=tuple(ranges))["once_work"] == "cudaMemcpyAsync (0.5 ms), init (0.49 ms)"
    parts = [on_host("annotation", *at, name=f"{name} (dynamo_timed)") for name, at in spans.items()]
    assert found(host=tuple(parts))["once_work"] == "cudaMemcpyAsync (0.5 ms), torch.compile (0.49 ms)"
    first = on_host("input", -1_000, -10, name="enumerate(DataLoader)")
    assert found(host=(first,))["once_work"] == "cudaMemcpyAsync (0.5 ms), enumerate(DataLoader) (0.49 ms)"


def test_the_time_from_a_processs_start_to_its_first_call_of_cuda_is_start_up():
    """It imports for 3 ms of 4.06, then makes calls for 1; where the work began is unknown, it may have worked then."""
    since = {"process_start_ns": -4_000 * US}
    told = values_of(TOLD, view(profile(DEVICE, HOST, workers=[WORKERS[0] | since])))
    assert (
        told["once_work"]
        == "CPU work before the first CUDA call (3 ms), cudaMemcpyAsync (0.5 ms), CPU work between CUDA calls (0.45 ms)"
    )
    assert (told["once_ms"], told["recorded_ms"]) == (4.0, 4.06)
    assert told["once_idle_share"] == pytest.approx(3 / 4.06)
    amid = values_of(TOLD, view(profile(DEVICE, HOST, workers=[{"worker": 0, **since}])))
    assert (amid["once_ms"], amid["recorded_ms"], amid["once_idle_share"]) == (0, 1.06, 0)


def test_marked_steps_begin_later_than_the_first_kernel():
    told = found(kernel(70, 80, step=1), steps=(step(1, 70, 80),))
    assert (told["once_ms"], told["startup_copy_bytes"]) == (1.07, 200)


def test_copies_within_the_device_are_no_pageable_ones():
    told = found(on_device("memcpy", -300, -200, copy_kind="DtoD", bytes=7))
    assert [told[name] for name in COPIES] == [0.5, 107, 100]


def test_a_recorder_started_amid_the_work_saw_no_start():
    told = found(began=None)
    assert all(isinstance(told[name], Missing) for name in COPIES)
    assert (told["once_ms"], told["once_work"]) == (0, "")


def test_places_are_the_longest_copies_before_it():
    where = METRICS["startup_copy_ms"].where
    assert where
    rows = where(view(profile(DEVICE, HOST, workers=WORKERS)))
    assert rows.select("start_ns", "dur_ns").rows() == [(-900_000, 400_000)]


def test_what_is_done_once_is_apart_from_the_steps():
    """CUDA starts for 200 ms, the first kernel's code loads for 2 ms, and each step is 10 ms long."""
    call = on_host("start_up", 0, 200_000, name="start of CUDA")
    load = on_host("start_up", 201_000, 203_000, name="loading")
    compiles = on_host("compile", 212_000, 213_000, name="recompiled")  # in a step that is used
    kernels = [
        kernel(200_500, 200_600, launched=200_490, name="fill"),
        kernel(203_000, 210_000, name="gemm"),
        kernel(210_010, 220_000, launched=210_001, name="gemm"),
    ]
    steps = [step(1, 200_000, 210_000), step(2, 210_000, 220_000)]
    row = worker_row(profile(kernels, [call, load, compiles], steps))
    assert row["once_ms"] == pytest.approx(202)
    assert row["once_idle_share"] == pytest.approx(202 / 220)
    assert row["once_step_share"] == pytest.approx(2 / 20)
    assert row["once_work"] == "start of CUDA (200 ms)"


def test_on_a_cpu_all_before_the_first_marked_step_is_start_up_where_a_function_was_compiled_there():
    """A graph is built in ms 10 to 60 of 200 before two steps of 20 ms; ranges that repeat in it are no loop."""
    steps = [step(n, at * 1_000, (at + 20) * 1_000, device=None) for n, at in ((1, 200), (2, 220))]
    ops = [on_host("op", 0, 1_000), *(on_host("op", of["start_ns"] / US, of["start_ns"] / US + 19_000) for of in steps)]
    compiles = on_host("compile", 10_000, 60_000, name="tf.function-graph_building")
    parts = [on_host("annotation", at, at + 9_000, name=f"convert {at}") for at in (20_000, 30_000, 40_000)]
    row = worker_row(profile((), [*ops, compiles, *parts], steps))
    assert row["once_ms"] == pytest.approx(200)
    assert row["recorded_ms"] == pytest.approx(239)
    assert row["left_out_parts"] == "start-up that each run pays once (200 ms)"
    assert worker_row(profile((), [*ops, *parts], steps))["once_ms"] == 0
    late = on_host("compile", 201_000, 202_000, name="tf.function-graph_building")
    assert worker_row(profile((), [*ops, late], steps))["once_ms"] == 0


def test_the_time_used_without_marked_steps_is_none_of_marked_ones():
    ops = [on_host("op", 0, 1_000), on_host("op", 2_000, 3_500)]
    row = worker_row(profile((), ops))
    assert (row["unmarked_ms"], row["used_ms"]) == (3.5, 3.5)
    marked = worker_row(profile((), ops, [step(1, 0, 4_000, device=None)]))
    assert (marked["unmarked_ms"], marked["used_ms"]) == (0, 4)


def test_launches_without_any_op_of_the_device_leave_start_up_unknown():
    launch = on_host("runtime", 0, 10, name="cudaLaunchKernel")
    assert isinstance(found_in(profile((), [launch], workers=WORKERS)), Missing)
    assert found_in(profile((), [on_host("op", 0, 10)], workers=WORKERS)) == 0


def test_what_is_in_no_used_step_is_named():
    """ms 0 to 100 lie before ten steps of 10 ms, one of them 110 long, with a pause of 50, and 40 after them."""
    at, steps, kernels = 100.0, [], []
    for number in range(10):
        length = 110 if number == 4 else 10
        steps.append(step(number, at * 1_000, (at + length) * 1_000))
        kernels.append(kernel(at * 1_000 + 5, (at + length) * 1_000, launched=at * 1_000 + 4, step=number))
        at += length + (50 if number == 7 else 0)
    row = worker_row(profile(kernels, [on_host("op", 0, 1), on_host("op", 350_000, 390_000)], steps), "steady")
    assert row["left_out_share"] == pytest.approx(190 / 390)
    before, between, after = "before the first step (100 ms)", "between steps (50 ms)", "after the last step (40 ms)"
    assert row["left_out_parts"] == f"the time {before}, the time {between}, the time {after}"
    assert (row["step_mean_ms"], row["whole_step_mean_ms"]) == (10, 20)


def test_another_loop_is_left_out_by_its_name():
    """Three ranges of 20 ms before the first step, two of which are no loop behind the last."""
    steps = [step(1, 100_000, 200_000)]
    kernels = [kernel(100_005, 200_000, launched=100_004, step=1)]
    names = [
        on_host("annotation", at, at + 20_000, name=f"warm {at}", thread=2)
        for at in (0, 30_000, 60_000, 210_000, 240_000)
    ]
    row = worker_row(profile(kernels, names, steps), "steady")
    before, after = "the time before the first step", "the time after the last step (60 ms)"
    assert row["left_out_parts"] == f"{after}, 3 ranges `warm #` before the steps (60 ms), {before} (40 ms)"
    starts = on_host("start_up", 62_000, 79_000, name="start of CUDA in cudaMemset", thread=2)
    row = worker_row(profile(kernels, [*names, starts], steps), "steady")
    assert row["left_out_parts"] == f"{after}, {before} (57 ms), 3 ranges `warm #` before the steps (43 ms)"


def test_steps_of_which_a_part_was_not_recorded_are_named():
    """Eight steps of 100 ms, the last without an end; of four the work lacks. What follows goes on until 950."""
    cut = {2: "no_device_work", 5: "no_device_work", 6: "kernels_absent", 7: "no_end"}
    steps = [step(n, n * 1e5, (n + 1) * 1e5, incomplete=cut.get(n)) for n in range(7)]
    steps.append(step(7, 7e5, 7e5, incomplete="no_end"))
    kernels = [kernel(n * 1e5 + 5, (n + 1) * 1e5, launched=n * 1e5 + 4, step=n) for n in (0, 1, 3, 4)]
    ops = [on_host("op", 0, 1), on_host("op", 949_000, 950_000)]
    row = worker_row(profile(kernels, ops, steps), "steady")
    assert row["left_out_share"] == pytest.approx(5.5 / 9.5)
    parts = [part.rpartition(" (")[::2] for part in str(row["left_out_parts"]).split("), ")]
    assert parts == [
        ("step 7, because nothing shows where it ends", "250 ms"),
        ("steps 2, 5, because the recording lacks the device work", "200 ms"),
        ("step 6, because the recording lacks kernels launched there or in the step before", "100 ms)"),
    ]


def test_a_gpu_that_was_busy_before_the_first_recorded_work_was_not_idle():
    """The first kernel was launched at 0 and began at 50 ms: it stood behind others."""
    calls = [on_host("runtime", 0, 10, name="cudaLaunchKernel")]
    row = worker_row(profile([kernel(50_000, 100_000, launch=0, launched=0)], calls))
    assert row["left_out_parts"] == "its start, when the GPU was busy with work that was not recorded (50 ms)"


def before_the_work(
    *samples: Row,
    framework: str = "cuda",
    first: str = "cudaMalloc",
    called_at: float = 120,
    copied_at: float = 450,
    quiet_at: float | None = None,
) -> Row:
    """ms 0 to 120 load the program, 30 are a first call, then a copy of 1 ms, and the kernel is launched at 950."""
    times = {
        first: (called_at, called_at + 30),
        "cudaMemcpy": (copied_at, copied_at + 1),
        "cudaLaunchKernel": (950, 951),
    }
    calls = [on_host("runtime", start * 1_000, end * 1_000, name=name) for name, (start, end) in times.items()]
    host = [on_host("annotation", 0, 1, name="main"), *calls]
    worker = {"worker": 0, "framework": framework, "work_start_ns": 950_500 * US, "work_end_ns": 951_000 * US}
    worker |= {} if quiet_at is None else {"recorded_start_ns": round(quiet_at * 1_000 * US)}
    made = profile([kernel(950_500, 951_000)], host, workers=[worker], host_samples=samples)
    return values_of(("once_ms", "host_alone_place", "left_out_parts"), view(made))


FILLS: list[Row] = [
    {"worker": 0, "thread": 1, "at_ns": ms * 1_000 * US, "functions": ["a: fill"]} for ms in range(5, 950, 10)
]


def test_what_the_program_computes_between_its_first_calls_is_no_start_up():
    """It computes for 300 and 499 ms; its loading is start-up."""
    words = "the host alone before the work (799 ms), start-up that each run pays once (152 ms)"
    place = "between `cudaMemcpy` and `cudaLaunchKernel` (62 %)"
    assert before_the_work() == {"once_ms": 151.5, "host_alone_place": place, "left_out_parts": words}
    of_framework = before_the_work(framework="pytorch")
    assert of_framework["left_out_parts"] == "start-up that each run pays once (950 ms)"
    assert not of_framework["host_alone_place"]


def test_what_precedes_all_calls_that_use_memory_is_start_up():
    """The 300 ms between `cuInit` and the copy: a library sets itself up."""
    told = before_the_work(first="cuInit")["left_out_parts"]
    assert told == "the host alone before the work (499 ms), start-up that each run pays once (452 ms)"


def test_what_runs_before_the_first_call_is_no_start_up_where_samples_show_it():
    assert before_the_work(*FILLS)["left_out_parts"].startswith("the host alone before the work (919 ms)")
    late = before_the_work(*FILLS, called_at=900, copied_at=930)
    assert late["left_out_parts"].startswith("the host alone before the work (900 ms)")
    assert late["host_alone_place"] == "in `a: fill` (100 %)"


@pytest.mark.parametrize(("samples", "alone_ms"), [(FILLS, 800), ([], 0)])
def test_where_no_kernel_was_recorded_samples_show_what_the_host_does_alone(samples: list[Row], alone_ms: float):
    """What the program is built on is unknown then: silence between its calls may be a framework's."""
    times = {"cudaMalloc": (0, 1_000), "cudaLaunchKernel": (1_000, 2_000), "cudaFree": (802_000, 803_000)}
    calls = [on_host("runtime", start, end, name=name) for name, (start, end) in times.items()]
    workers = [{"worker": 0, "framework": None}]
    made = profile([on_device("memset", 500, 600)], calls, workers=workers, host_samples=samples)
    told = values_of(("host_alone_ms", "host_alone_place"), view(made))
    assert told["host_alone_ms"] == alone_ms
    assert told["host_alone_place"] == ("in `a: fill` (100 %)" if alone_ms else "")


def test_what_runs_before_the_first_call_is_no_start_up_where_the_recording_begins_for_that():
    """The reader saw 2 s without a call of the operating system before the program's first range."""
    parts = before_the_work(quiet_at=-2_000)["left_out_parts"]
    assert parts == "the host alone before the work (2.92 s), start-up that each run pays once (32 ms)"
    assert before_the_work(quiet_at=-2_000, framework="pytorch")["left_out_parts"].startswith("start-up")


@pytest.mark.parametrize(("framework", "alone_ms"), [("cuda", 549), ("pytorch", 0)])
def test_what_the_program_computes_after_the_last_work_is_its_own(framework: str, alone_ms: float):
    """The result is copied back until 2 ms and checked for 549; then memory is freed."""
    calls = [on_host("runtime", 0, 1_000, name="cudaLaunchKernel"), on_host("sync", 1_000, 2_000, name="cudaMemcpy")]
    calls.append(on_host("allocator", 551_000, 552_000, name="cudaFree"))
    worker = {"worker": 0, "framework": framework, "work_start_ns": 0, "work_end_ns": 2_000 * US}
    row = view(profile([kernel(0, 2_000)], calls, workers=[worker]))
    told = values_of(("host_alone_ms", "host_alone_place", "left_out_parts"), row)
    assert told["host_alone_ms"] == alone_ms
    assert told["host_alone_place"] == ("between `cudaMemcpy` and `cudaFree` (100 %)" if alone_ms else "")
    assert told["left_out_parts"] == "the time after the last work of the device (550 ms)"


@pytest.mark.parametrize(
    ("name", "until_ms", "waits"), [("getc", 551, "getc (100 %)"), ("getc", 270, ""), ("read", 551, "")]
)
def test_a_key_that_nobody_presses_is_what_the_host_waits_for(name: str, until_ms: float, waits: str):
    """From the result at 2 ms until 551 ms no call of CUDA; a file that is read takes as long as its work."""
    calls = [on_host("runtime", 0, 1_000, name="cudaLaunchKernel"), on_host("sync", 1_000, 2_000, name="cudaMemcpy")]
    calls.append(on_host("allocator", 551_000, 552_000, name="cudaFree"))
    asks = {"worker": 0, "pid": 100, "thread": 1, "name": name} | span(2_000, until_ms * 1_000)
    worker = {"worker": 0, "pid": 100, "framework": "cuda", "work_start_ns": 0, "work_end_ns": 2_000 * US}
    row = view(profile([kernel(0, 2_000)], calls, workers=[worker], os_calls=[asks]))
    assert values_of(("host_alone_waits",), row)["host_alone_waits"] == waits


@pytest.mark.parametrize(("begins_ms", "where"), [(100, ""), (500, ", mostly in `sleep`")])
def test_a_sleep_is_what_the_host_does_alone_before_the_work_only_if_it_lies_there(begins_ms: float, where: str):
    """A call at 0 ms, the work from 200 or 1,000 ms on for 1 ms, a sleep of 700 ms, and a call at 1,500 ms."""
    at = 2 * begins_ms * 1_000
    calls = [on_host("runtime", 0, 1_000, name="cudaMalloc"), on_host("runtime", 1_500_000, 1_501_000, name="cudaFree")]
    sleeps = {"worker": 0, "pid": 100, "thread": 1, "name": "sleep"} | span(250_000, 950_000)
    times = {"work_start_ns": round(at * US), "work_end_ns": round((at + 1_000) * US)}
    worker = {"worker": 0, "pid": 100, "framework": "cuda"} | times
    row = view(profile([kernel(at, at + 1_000)], calls, workers=[worker], os_calls=[sleeps]))
    told = values_of(("left_out_parts",), row)["left_out_parts"]
    assert f"the host alone before the work{where} (" in told


def test_no_place_is_named_where_no_stretch_is_half():
    assert not before_the_work(copied_at=549.5)["host_alone_place"]
