from __future__ import annotations

import polars as pl
import pytest

from advisor.errors import ReadError
from advisor.model.clause import Note
from advisor.model.profile import Profile
from tests.effort import every
from tests.strategies_kineto import LAUNCH, Event, call, event, kernel, op, profile, step

OTHER_THREAD = 99
NEXT_DATA = "torch/utils/data/dataloader.py(787): _next_data"
FETCH = "torch/utils/data/_utils/fetch.py(25): fetch"


def launched(made: Profile) -> list[tuple[str | None, str | None]]:
    """Names of the runtime call and of the op behind each device op."""
    name = made.host_ops["name"].to_list()
    return [(pick(name, row["launch"]), pick(name, row["op"])) for row in made.device_ops.to_dicts()]


def pick(names: list[str], at: int | None) -> str | None:
    return None if at is None else names[at]


def windows(made: Profile) -> dict[int, tuple[float, float]]:
    """Step number -> (start, end) of its window in microseconds; the profile has one device."""
    return {
        row["step"]: (row["start_ns"] / 1000, (row["start_ns"] + row["dur_ns"]) / 1000) for row in made.steps.to_dicts()
    }


# ---------------------------------------------------------------------------------------------- launches


def test_a_kernel_belongs_to_the_innermost_op_around_its_call():
    made = profile(
        op(0, 100, "outer"), op(10, 50, "inner"), call(20, 5, 1), call(70, 5, 2), kernel(30, 5, 1), kernel(80, 5, 2)
    )
    assert launched(made) == [("cudaLaunchKernel", "inner"), ("cudaLaunchKernel", "outer")]


def test_no_host_has_more_than_256_devices():
    with pytest.raises(ReadError, match="ops of more than 256 devices"):
        profile(*(kernel(at, 1, at, device=at) for at in range(257)))


def test_the_enclosing_op_is_believed_where_the_external_id_says_otherwise():
    liar = {"External id": 7}
    made = profile(
        op(0, 10, "innocent", **{"External id": 7}),
        op(20, 50, "true", **{"External id": 8}),
        call(30, 5, 1, **liar),
        kernel(40, 5, 1, **liar),
    )
    assert launched(made) == [("cudaLaunchKernel", "true")]


@pytest.mark.parametrize("spelling", ["External id", "external id"])
def test_where_the_call_was_not_recorded_the_external_id_is_all_there_is(spelling: str):
    made = profile(op(0, 10, "named", **{spelling: 7}), kernel(40, 5, 1, **{spelling: 7}))
    assert launched(made) == [(None, "named")]


def test_where_the_call_lies_outside_every_op_the_external_id_is_not_believed():
    named = {"External id": 7}
    made = profile(op(0, 10, "named", **named), call(20, 5, 1), kernel(40, 5, 1, **named), kernel(50, 5, 2, **named))
    assert launched(made) == [("cudaLaunchKernel", None), (None, "named")]


def test_an_external_id_that_repeats_the_correlation_names_no_op():
    """ROCm's tracer writes it so where the launch is of before the recording: the op of that number is another."""
    made = profile(op(0, 10, "later", **{"External id": 4}), kernel(40, 5, 4, **{"External id": 4}))
    assert launched(made) == [(None, None)]


@pytest.mark.parametrize("nothing", [0, -1, None])
def test_correlation_and_external_id_of_nothing_link_nothing(nothing: int | None):
    made = profile(
        op(0, 10, **{"External id": nothing}),
        call(1, 1, nothing),
        *[kernel(40, 5, nothing, **{"External id": nothing})] * 2,
    )
    assert launched(made) == [(None, None)] * 2


def test_annotations_python_frames_and_steps_are_no_ops():
    made = profile(
        step(1, 0, 100),
        op(5, 90, "aten::mm"),
        event("user_annotation", "mine", 10, 80),
        event("python_function", "f.py(1): f", 15, 70),
        call(20, 5, 1),
        kernel(30, 5, 1),
    )
    assert launched(made) == [("cudaLaunchKernel", "aten::mm")]


def test_an_op_of_another_thread_encloses_nothing():
    made = profile(
        op(0, 100, "forward"),
        op(10, 50, "backward", tid=OTHER_THREAD),
        call(20, 5, 1, tid=OTHER_THREAD),
        kernel(30, 5, 1),
    )
    assert launched(made) == [("cudaLaunchKernel", "backward")]


def test_one_graph_launch_launches_many_kernels():
    made = profile(
        step(1, 0, 100),
        op(0, 50, "replay"),
        call(10, 5, 3, "cudaGraphLaunch"),
        *(kernel(20 + 10 * i, 8, 3, **{"graph id": 6}) for i in range(3)),
    )
    assert launched(made) == [("cudaGraphLaunch", "replay")] * 3
    assert made.device_ops.select("step", "graph").rows() == [(1, 6)] * 3


def test_of_two_calls_of_one_correlation_the_first_counts():
    made = profile(op(0, 10, "first"), op(20, 10, "second"), call(1, 1, 3), call(21, 1, 3), kernel(40, 1, 3))
    assert launched(made) == [("cudaLaunchKernel", "first")]


@pytest.mark.parametrize("category", every(2, ["cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"]))
@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpy", "cudaMalloc", "hipLaunchKernel"])
def test_whatever_call_it_was_it_launched(category: str, name: str):
    made = profile(op(0, 50), event(category, name, 10, 5, correlation=4), kernel(20, 5, 4))
    assert launched(made) == [(name, "aten::mm")]


def test_an_op_that_bears_a_correlation_is_no_launch():
    assert launched(profile(op(0, 50, correlation=1), kernel(20, 5, 1))) == [(None, None)]


def test_parents_are_innermost_and_of_the_same_thread():
    made = profile(
        op(0, 100, "a"), op(10, 50, "b"), op(20, 10, "c"), op(70, 10, "d"), op(20, 10, "e", tid=OTHER_THREAD)
    )
    assert made.host_ops["parent"].to_list() == [None, 0, 1, 0, None]


# ------------------------------------------------------------------------------------------------- steps


def launch(number: int, called: float, start: float, end: float) -> list[Event]:
    """A call at `called` for 2 us and the kernel that it launched."""
    return [call(called, 2, number), kernel(start, end - start, number)]


def test_a_step_lasts_until_its_last_kernel_ends():
    made = profile(step(5, 0, 100), step(6, 100, 100), *launch(1, 10, 50, 130), *launch(2, 110, 130, 180))
    assert windows(made) == {5: (30, 130), 6: (130, 200)}  # from 0 to 30 the queue fills, which happens once
    assert made.steps.select("host_start_ns", "host_dur_ns").rows() == [(0, 100_000), (100_000, 100_000)]
    assert made.device_ops["step"].to_list() == [5, 6]


@pytest.mark.parametrize(("loader", "begin"), [("_SingleProcess", 30), ("_MultiProcessing", 0)])
def test_what_workers_load_on_an_idle_device_is_a_wait_and_fills_no_queue(loader: str, begin: float):
    """Each step gets its batch after 70 of 100 us, and its kernel ends 30 us after it.

    The device waits 72 us in the first step, and 42 in others: a process that loads by itself begins 30 us later.
    """
    name = f"enumerate(DataLoader)#{loader}DataLoaderIter.__next__"
    loop = [(step(i, 100 * i, 100), event("user_annotation", name, 100 * i, 69)) for i in range(3)]
    work = [launch(1 + i, 100 * i + 70, 100 * i + 72, 100 * i + 130) for i in range(3)]
    made = profile(*(each for rows in (*loop, *work) for each in rows))
    assert windows(made) == {0: (begin, 130), 1: (130, 230), 2: (230, 330)}


def test_a_gap_between_two_host_ranges_belongs_to_the_first():
    made = profile(step(1, 0, 90), step(2, 100, 90), *launch(1, 10, 20, 30), *launch(2, 110, 120, 130))
    assert windows(made) == {1: (0, 100), 2: (100, 190)}
    assert [why is None for why in made.steps["incomplete"]] == [True, False]  # when a third began is unknown


def test_a_kernel_that_outlasts_the_next_steps_range_leaves_that_step_no_time():
    beside = kernel(300, 20, 2, stream=8)
    made = profile(step(1, 0, 100), step(2, 100, 100), *launch(1, 10, 50, 350), call(110, 2, 2), beside)
    assert windows(made) == {1: (50, 350), 2: (350, 350)}


def test_copies_do_not_lengthen_a_step():
    copy = event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 50, 100, device=0, stream=7, correlation=1)
    made = profile(step(1, 0, 100), call(10, 2, 1, "cudaMemcpyAsync"), copy)
    assert windows(made) == {1: (0, 100)}
    assert made.device_ops["step"].to_list() == [1]


def test_a_kernel_of_nobody_lengthens_no_step():
    made = profile(step(1, 0, 100), *launch(1, 10, 50, 60), kernel(90, 100, 77))
    assert windows(made) == {1: (0, 100)}
    assert made.device_ops["step"].to_list() == [1, None]


@pytest.mark.parametrize(
    ("called", "owner"),
    [(0, 1), (97, 1), (98, 1), (98.5, 1), (99.9, 1), (100, 2), (199, 2), (200, None), (250, None)],
)
def test_a_call_belongs_to_the_step_that_it_begins_in(called: float, owner: int | None):
    made = profile(step(1, 0, 100), step(2, 100, 100), *launch(7, called, 300, 310))
    assert made.device_ops["step"].to_list() == [owner]


def test_calls_of_every_thread_belong_to_the_step_of_their_time():
    made = profile(step(1, 0, 100), call(50, 2, 1, tid=OTHER_THREAD), kernel(60, 5, 1))
    assert made.device_ops["step"].to_list() == [1]


def test_every_device_has_windows_of_its_own():
    made = profile(
        *(step(1, 0, 100), step(2, 100, 100)),
        *(call(10, 2, 1), kernel(20, 100, 1, device=0), call(14, 2, 2), kernel(20, 10, 2, device=1)),
        *(call(110, 2, 3), kernel(120, 10, 3, device=0), call(114, 2, 4), kernel(120, 130, 4, device=1)),
    )
    rows = made.steps.sort("device", "step").select("device", "step", "start_ns", "dur_ns").rows()
    assert rows == [(0, 1, 20_000, 100_000), (0, 2, 120_000, 80_000), (1, 1, 0, 100_000), (1, 2, 100_000, 150_000)]


def test_without_device_work_the_steps_are_the_hosts():
    made = profile(step(1, 0, 100), step(2, 100, 50), op(10, 20), op(110, 20))
    assert made.steps.select("device", "step", "start_ns", "dur_ns", "incomplete").rows() == [
        (None, 1, 0, 100_000, None),
        (None, 2, 100_000, 50_000, None),
    ]


def test_steps_whose_launches_have_no_kernels_are_not_the_hosts():
    """A recording cut out of a longer one: its kernels are those of launches before it, its launches' come after it."""
    late = [call(10, 2, 7), kernel(55, 60, 7), kernel(120, 20, 8)]
    made = profile(*late, step(1, 50, 100), call(60, 2, 1), call(70, 2, 2))
    assert made.steps.select("device", "step", "incomplete").rows() == [(None, 1, NONE)]


def test_an_op_of_an_odd_device_makes_no_steps_of_its_own():
    """They would be the other devices' too: each step twice."""
    odd = kernel(60, 5, 2, device="x") | {"pid": "x"}
    made = profile(step(1, 0, 100), call(10, 5, 1), kernel(20, 5, 1), call(50, 5, 2), odd)
    assert made.device_ops["device"].to_list() == [0, None]
    assert made.steps.select("device", "step").rows() == [(0, 1)]
    assert profile(step(1, 0, 100), call(50, 5, 2), odd).steps.select("device", "step").rows() == [(None, 1)]


def test_without_markers_there_are_no_steps():
    made = profile(op(0, 10), *launch(1, 1, 20, 30))
    assert made.steps.height == 0
    assert "ProfilerStep#N" in made.lacks["steps"].words


def test_a_step_marked_twice_counts_once():
    made = profile(step(1, 0, 100), step(1, 5, 90), *launch(1, 10, 20, 30))
    assert windows(made) == {1: (0, 100)}


def test_a_number_beyond_all_bounds_marks_no_step():
    assert profile(*LAUNCH, step(10**12, 100, 10)).steps["step"].to_list() == [1]


# --------------------------------------------------------------------------------------- what is missing

NONE, SHORT = "no_device_work", "less_work"


def job(*kernels: int) -> Profile:
    """Steps 1, 2, ... of so many kernels each."""
    steps = [step(i + 1, 1_000 * i, 1_000) for i in range(len(kernels))]
    calls = [(i, 1_000 * i + 10 * k, 1_000 * i + k + 1) for i, count in enumerate(kernels) for k in range(count)]
    return profile(*steps, *(e for _, at, id_ in calls for e in (call(at, 2, id_), kernel(at + 3, 2, id_))))


@pytest.mark.parametrize(
    ("kernels", "why"),
    [
        ((10, 10, 10), (None, None, None)),
        ((10, 10, 0), (None, None, NONE)),
        ((10, 0, 0), (None, NONE, NONE)),
        ((10, 10, 7), (None, None, SHORT)),
        ((10, 10, 8), (None, None, None)),  # 0.8 times as much is not less than 0.8 times as much
        ((10, 7, 0), (None, SHORT, NONE)),
        ((10, 2, 10), (None, None, None)),  # in the middle, nothing says that it was not so
        ((10, 0, 10), (None, None, None)),
        ((3,), (None,)),
        ((0, 10), (None, None)),
    ],
)
def test_steps_at_the_end_of_a_recording_with_less_work_do_not_count(
    kernels: tuple[int, ...], why: tuple[str | None, ...]
):
    assert tuple(job(*kernels).steps["incomplete"]) == why


def test_the_last_of_marks_without_length_has_no_end_and_lacks_no_work():
    work = [e for i in range(3) for e in (call(1_000 * i + 10, 2, i + 1), kernel(1_000 * i + 20, 9, i + 1))]
    made = profile(*(step(i + 1, 1_000 * i, 0) for i in range(3)), *work)
    assert made.steps["incomplete"].to_list() == [None, None, "no_end"]


def test_calls_of_advisor_s_own_hook_are_no_work_of_the_program():
    names = ["train.py(3): main", "out/.advisor-x/advisor_inside/hook.py(147): _tick", "advisor/model.py(1): fit"]
    made = profile(*(event("python_function", name, i, 9 - 2 * i) for i, name in enumerate(names)))
    assert made.host_ops["name"].to_list() == [names[0], names[2]]
    assert made.host_ops["parent"].to_list() == [None, 0]


# ---------------------------------------------------------------------------------------------- requests for a batch


def frame(at: float, length: float, name: str) -> Event:
    return event("python_function", name, at, length)


def requests(made: Profile) -> list[tuple[str, int]]:
    rows = made.host_ops.filter(made.host_ops["kind"] == "input")
    return [(name, start // 1000) for name, start in rows.select("name", "start_ns").rows()]


def test_functions_of_the_loader_are_requests_where_its_ranges_were_not_recorded():
    """The main process fetches in the first request; in the second it waits for its workers."""
    frames = [frame(0, 50, NEXT_DATA), frame(1, 48, FETCH), frame(2, 40, "mine.py(3): cut"), frame(60, 30, NEXT_DATA)]
    assert requests(profile(*frames, op(50, 10, "aten::mm"))) == [(FETCH, 1), (NEXT_DATA, 60)]


def test_the_loader_s_own_ranges_are_believed_before_its_functions():
    asked = event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 50)
    assert requests(profile(asked, frame(1, 48, NEXT_DATA), frame(2, 40, FETCH))) == [(asked["name"], 0)]


def test_a_dataset_of_the_same_name_is_no_loader():
    assert requests(profile(frame(0, 50, "mine/dataloader.py(7): _next_data"), op(50, 10, "aten::mm"))) == []


READ = "numpy/lib/_npyio_impl.py(239): __getitem__"


def stepping(*of_each: Event, steps: int = 3, length: float = 100) -> list[Event]:
    """Steps of 100 us, each with these events and a product at 80."""
    alike = [*of_each, op(80, 10, "aten::addmm")]
    moved = [each | {"ts": each["ts"] + number * length} for number in range(steps) for each in alike]
    return [*(step(number, number * length, length) for number in range(steps)), *moved]


def test_files_that_each_step_reads_before_its_products_are_its_input():
    """What reads inside of another such function is part of that."""
    nested = [frame(10, 40, READ), frame(12, 30, "zipfile.py(930): read"), frame(60, 5, "<built-in function imread>")]
    made = requests(profile(*stepping(*nested)))
    expected = [(READ, 10), ("<built-in function imread>", 60)]
    assert made == [(name, at + 100 * number) for number in range(3) for name, at in expected]


@pytest.mark.parametrize(
    "events",
    [
        [*stepping(steps=3), frame(10, 60, READ)],  # a checkpoint
        stepping(frame(91, 8, READ)),  # a reference that the results are held against
        stepping(event("python_function", "nn.Module: Mine_0", 5, 60), frame(10, 40, READ)),  # weights on a disk
        stepping(frame(10, 4.9, "json/__init__.py(274): load")),  # a twentieth of the step is 5 us
        stepping(frame(10, 40, READ), steps=2),
        stepping(frame(10, 40, READ) | {"tid": OTHER_THREAD}),  # it reads ahead
        stepping(frame(10, 40, "json/__init__.py(299): loads")),  # text of any origin
        [*stepping(frame(10, 40, READ)), event("user_annotation", "enumerate(DataLoader)#A.__next__", 5, 2)],
    ],
)
def test_files_that_may_be_anything_are_no_input(events: list[Event]):
    assert READ not in [name for name, _ in requests(profile(*events))]
    assert not any("json" in name for name, _ in requests(profile(*events)))


# ------------------------------------------------------------------------------------------------ several processes


def ranges(*events: Event) -> list[tuple[str, int]]:
    return profile(*LAUNCH, *events).host_ops.select("name", pl.col("start_ns") // 1000).rows()


OWN = [("ProfilerStep#1", 0), ("aten::mm", 10), ("cudaLaunchKernel", 20)]


def test_another_process_that_launches_nothing_is_left_out_and_said():
    theirs = [step(7, 50, 40) | {"pid": 2}, op(60, 9, "gloo:all_reduce") | {"pid": 2}, op(70, 9) | {"pid": 2}]
    assert ranges(*theirs) == OWN
    made = profile(*theirs, *LAUNCH)
    assert (made.steps["name"].to_list(), made.workers["pid"].item()) == (["ProfilerStep#1"], 1)
    assert made.salvaged == (Note("other_processes", processes=1),)


def test_other_numbers_of_the_same_process_are_no_other_process():
    """Frames, steps or calls of one process bear another number in some recordings."""
    assert len(ranges(frame(0, 90, "a.py(1): f") | {"pid": 0})) == len(OWN) + 1
    for other in range(3):
        made = profile(*(e | {"pid": 2} if i == other else e for i, e in enumerate(LAUNCH)))
        assert (made.host_ops.height, made.steps.height, made.salvaged) == (3, 1, ())


def test_each_of_two_processes_that_launch_counts():
    theirs = [op(60, 20) | {"pid": 2}, call(65, 5, 2) | {"pid": 2}, kernel(80, 5, 2)]
    assert len(ranges(*theirs)) == len(OWN) + 2


def test_of_unlinked_work_no_process_is_left_out():
    made = profile(op(0, 9), op(20, 9) | {"pid": 2}, kernel(40, 9, 5))
    assert (made.host_ops.height, made.salvaged) == (2, ())
