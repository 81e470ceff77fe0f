from __future__ import annotations

import pytest

from advisor.metrics.metric import METRICS
from advisor.metrics.steps.breakdown import accounting, step_parts
from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.tables import kernel, metrics_of, on_device, on_host, pageable, profile, step, view


def parts(made: Profile) -> dict[str, float]:
    """Each part's time in us."""
    return {row["part"]: row["time_ns"] / 1e3 for row in accounting(view(made)).to_dicts()}


def test_each_nanosecond_is_in_one_part():
    # us          0    20   30   40   50   60   70   80   90  100  110
    # kernel      =========                ====      ====        ====    at 0, 60, 80 and 106; launched 5 us before
    # copy                 ====                                          25 to 40
    # memset                         ====                                45 to 55
    # collective       =========                                         15 to 50
    # input                                     |----|                   70 to 78
    device = [
        kernel(0, 20, 0),
        on_device("collective", 15, 50, 1, stream=8),
        on_device("memcpy", 25, 40, 2, stream=9),
        on_device("memset", 45, 55, 3, stream=9),
        kernel(60, 70, 56),
        kernel(80, 90, 79),
        kernel(106, 110, 89),
    ]
    made = profile(device, [on_host("input", 70, 78)], [step(1, 0, 110)])
    assert parts(made) == {
        "compute": 44,
        "memcpy": 15,
        "memset": 10,
        "collective": 10,  # 20 to 25 and 40 to 45
        "input": 8,
        "launch_gap": 7,  # 55 to 60 and 78 to 80
        "dependency": 16,
    }


def test_functions_of_tf_data_pipelines_are_built_and_not_compiled():
    build, runs = "tf.function-graph_building", "EagerLocalExecute: "
    host = [
        on_host("step", 0, 100, step=1),
        on_host("compile", 0, 30, name=build, step=1),
        on_host("annotation", 30, 35, name=f"{runs}MapDataset", step=1),
        on_host("compile", 50, 60, name=build, step=1),
        on_host("annotation", 60, 65, name=f"{runs}__inference_train_7", step=1),
    ]
    made = profile([], host, [step(1, 0, 100, device=None)], workers=[{"worker": 0, "framework": "tensorflow"}])
    assert parts(made) == {"compile": 10, "pipeline_build": 30, "between": 60}


@pytest.mark.parametrize(("until", "between"), [(2, 97), (1, None)])
def test_of_a_recording_without_steps_calls_of_jitted_functions_tell_what_it_does(until: float, between: float | None):
    host = [on_host("op", 50, 52), on_host("annotation", 0, until, name="PjitFunction(add)"), on_host("op", 99, 100)]
    made = profile([], host, workers=[{"worker": 0, "framework": "jax"}])
    assert parts(made) == ({"between": between, "operators": 3} if between else {})


def test_each_step_has_its_own_parts():
    # us       0    40  50   80   100  120        180 200
    # kernel   =====    ====           ===========        launched at 0, 45 and 115
    # input                                      |----|   180 to 200
    device = [kernel(0, 40, 0), kernel(50, 80, 45), kernel(120, 180, 115)]
    made = profile(device, [on_host("input", 180, 200)], [step(1, 0, 100), step(2, 100, 200)])
    rows = step_parts(view(made)).to_dicts()
    assert [(row["step"], row["part"], pytest.approx(row["share"])) for row in rows] == [
        (1, "compute", 0.7),
        (2, "compute", 0.6),
        (2, "input", 0.2),
        (1, "launch_gap", 0.3),
        (2, "launch_gap", 0.2),
    ]


def test_long_gaps_before_a_launch_are_the_hosts():
    device = [kernel(0, 100, 0), kernel(1_100, 1_200, 1_090), kernel(2_200.001, 2_300, 2_200)]
    assert parts(profile(device, steps=[step(1, 0, 2_300)])) == {
        "compute": pytest.approx(299.999),
        "launch_gap": 1_000,
        "host_busy": pytest.approx(1_000.001),
    }


def test_where_too_much_is_unknown_no_cause_is_told():
    made = profile([kernel(0, 20, 0), kernel(30, 60), kernel(80, 100, 79)], steps=[step(1, 0, 100)])
    assert parts(made) == {"compute": 70, "unknown": 30}


def test_where_kernels_were_not_recorded_no_copy_is_known_to_be_exposed():
    made = profile(
        [on_device("memcpy", 0, 20)], [on_host("runtime", 0, 5, name="cudaLaunchKernel")], steps=[step(1, 0, 100)]
    )
    assert parts(made) == {}
    assert METRICS["exposed_memcpy_share"].value(view(made)) == Missing("kernels_not_recorded", launches=1)


def test_waits_for_a_cpu_are_no_work_of_the_ops_that_they_lengthen():
    # us       0    20               80   100
    # input    =====                          a wait that is no work keeps its length
    # op            =================         60 of the 80 us that the host works
    host = [on_host("input", 0, 20), on_host("op", 20, 80)]
    waiting = view(profile([], host, [step(1, 0, 100, device=None)]))
    waiting.process.update({"run_delay_ms": 0.030, "own_delay_ms": 0.010})
    times = {row["part"]: row["time_ns"] / 1e3 for row in accounting(waiting).to_dicts()}
    assert times == {"input": 20, "operators": 30, "between": 10, "other_programs": 30, "own_processes": 10}
    waiting.process.update({"run_delay_ms": 0.9, "own_delay_ms": 0.9})  # more than there is
    assert sum(row["time_ns"] for row in accounting(waiting).to_dicts()) == 100_000


def test_ops_beside_a_collective_share_the_waits_for_a_cpu_with_the_others():
    # us          0    20         70   80   100
    # op                ==========               on the thread that waits; half of the 90 us of work are noted
    # collective            ===========          10 us beside no op: a thread that sleeps needs no CPU
    host = [on_host("op", 20, 70), on_host("collective", 40, 80, name="gloo:all_reduce", thread=4)]
    waiting = view(profile([], host, [step(1, 0, 100, device=None)]))
    waiting.process["run_delay_ms"] = 0.045
    times = {row["part"]: row["time_ns"] / 1e3 for row in accounting(waiting).to_dicts()}
    assert times == {"collective": 10, "operators": 25, "between": 20, "other_programs": 45}


@pytest.mark.parametrize(
    "loading",
    ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "numpy/lib/_npyio_impl.py(311): load"],
)
def test_loading_in_the_main_process_waits_for_a_cpu_as_other_work_does(loading: str):
    # us       0              60       80   100
    # input    ================                  in the main process; half of all work waits, input's stays in it
    # op                       =========
    host = [on_host("input", 0, 60, name=loading), on_host("op", 60, 80)]
    waiting = view(profile([], host, [step(1, 0, 100, device=None)]))
    waiting.process.update({"run_delay_ms": 0.040, "own_delay_ms": 0.010})
    times = {row["part"]: row["time_ns"] / 1e3 for row in accounting(waiting).to_dicts()}
    assert times == {"input": 60, "operators": 10, "between": 10, "other_programs": 16, "own_processes": 4}


def test_on_a_cpu_ops_are_the_useful_work():
    # us        0    20        60      80   100
    # input     |----|
    # op             |--------------|            20 to 70, of which compile 30 to 40
    # python    |----------------------------|
    host = [on_host("input", 0, 20), on_host("op", 20, 70), on_host("compile", 30, 40), on_host("python", 0, 100)]
    assert parts(profile([], host, [step(1, 0, 100, device=None)])) == {
        "input": 20,
        "compile": 10,
        "between": 30,
        "operators": 40,
    }


def test_a_window_in_which_hardly_anything_was_recorded_has_no_parts():
    """A thread that only sends requests: 4 of 100 us in ops. With marks, or with 5 of 100, the parts are known."""
    thin, enough = ([on_host("op", 0, 1), on_host("op", 100 - us, 100)] for us in (3, 4))
    assert parts(profile([], thin)) == {}
    assert parts(profile([], enough)) == {"between": 95, "operators": 5}
    assert parts(profile([], thin, [step(1, 0, 100, device=None)])) == {"between": 96, "operators": 4}


def test_a_worker_without_time_has_no_parts():
    assert parts(profile([], [on_host("op", 5, 5)])) == {}


def test_the_start_of_the_device_is_a_part():
    """us 0 to 80 CUDA starts, of which 10 to 20 take memory; the kernel's launch is at 89."""
    times = parts(profile([kernel(90, 100, 89)], [on_host("start_up", 0, 80, thread=2), on_host("allocator", 10, 20)]))
    assert times == {"compute": 10, "start_up": 80, "unknown": 10}


def holders(made: Profile) -> dict[str, tuple[str, float]]:
    """By part the range of the program's own that holds most of it, and how much."""
    rows = accounting(view(made)).drop_nulls("range").to_dicts()
    return {row["part"]: (row["range"], pytest.approx(row["range_share"])) for row in rows}


# us     0    10        40   50        90  100
# op     |====|                        |===|
# ranges      |- score 1 -----------|          10 to 80, in it `sort` 15 to 75
SCORES = [
    on_host("op", 0, 10),
    on_host("annotation", 0, 100, name="epoch 3"),
    on_host("annotation", 10, 80, name="score 1"),
    on_host("annotation", 15, 75, name="sort"),
    on_host("annotation", 10, 80, name="Optimizer.step#SGD.step"),
    on_host("op", 90, 100),
]
ALONE = [step(1, 0, 100, device=None)]


def test_the_shortest_range_of_the_program_s_own_that_holds_most_of_a_part_is_its_place():
    assert holders(profile([], SCORES, ALONE)) == {"between": ("sort", 60 / 80)}
    assert holders(profile([], [*SCORES[:3], *SCORES[4:]], ALONE)) == {"between": ("score #", 70 / 80)}


def test_a_range_around_the_step_a_framework_s_and_one_on_another_thread_are_no_place():
    others = [{**SCORES[3], "thread": 9}, {**SCORES[3], "name": "CompiledFunction"}]
    mark = on_host("step", 0, 100)
    assert holders(profile([], [*SCORES[:2], *others, *SCORES[4:], mark], ALONE)) == {}


def test_of_xla_s_ranges_only_plain_names_are_the_program_s_own():
    made = [*SCORES[:2], {**SCORES[3], "name": "ParseArguments"}, SCORES[5]]
    assert holders(profile([], made, ALONE, workers=[{"worker": 0, "framework": "jax"}])) == {}
    made[2] = SCORES[3]
    assert holders(profile([], made, ALONE, workers=[{"worker": 0, "framework": "jax"}])) == {"between": ("sort", 0.75)}


def test_the_wait_for_a_launch_lies_where_the_host_is():
    # idle from 20 to 110, launched at 105; the host is in `tokenize` from 30 to 100
    host = [on_host("annotation", 30, 100, name="tokenize", thread=2)]
    made = profile([kernel(0, 20, 0), kernel(110, 120, 105)], host, [step(1, 0, 120)])
    assert holders(made) == {"launch_gap": ("tokenize", 70 / 90)}


def test_without_a_device_communication_beside_ops_of_another_thread_is_work():
    # gloo 20 to 80; the other thread's op covers 50 to 100
    host = [on_host("collective", 20, 80, name="gloo:all_reduce", thread=9), on_host("op", 50, 100)]
    assert parts(profile(host_ops=host, steps=[step(1, 0, 100, device=None)])) == {
        "collective": 30,
        "between": 20,
        "operators": 50,
    }


def test_a_copy_whose_call_returns_when_it_is_done_is_exposed_in_any_framework():
    made = profile(
        [kernel(0, 40), pageable(30, 70)],
        [on_host("runtime", 20, 75, step=1)],
        [step(1, 0, 100)],
        workers=[{"worker": 0, "framework": "jax"}],
    )
    assert metrics_of(view(made))["exposed_memcpy_share"] == 0.3
