from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model.clause import Note
from tests.tables import Row, kernel, measured, metrics_of, on_device, on_host, profile, step, view

# Five steps of 100 us and one of 300, each with a kernel in its first 60 us. Shares are of the six.
STEPS = [*(step(i, 100 * i, 100 * i + 100) for i in range(5)), step(5, 500, 800)]
DEVICE = [kernel(100 * i, 100 * i + 60, 100 * i) for i in range(6)]
RUNNING = on_host("op", 0, 800, name="run", thread=2)  # on the thread that launches: no time is left to Python


def found(host: list[Row] | None = None, more: list[Row] | None = None, steps: list[Row] | None = None):
    made = profile([*DEVICE, *(more or [])], host or [], steps or STEPS)
    return metrics_of(view(made, "steady"))


def test_an_outlier_costs_what_it_takes_beyond_the_median_spread_over_all_steps():
    values = found([RUNNING])
    assert values["outlier_steps"] == 1
    assert values["outlier_ratio"] == pytest.approx(3.0)
    assert values["outlier_excess_ms"] == values["outlier_own_ms"] == pytest.approx(0.200 / 6)


def test_at_most_it_costs_what_it_takes_beyond_97_percent_of_the_median():
    values = found([RUNNING])
    assert values["outlier_most_ms"] == pytest.approx(0.203 / 6)
    assert values["outliers_share"] == pytest.approx(203 / 6 / 100)


def test_where_the_steps_differ_more_three_deviations_are_taken_off():
    lengths = (96, 98, 100, 102, 104, 300)  # the median of the used steps is 100, their deviation 2
    starts = [sum(lengths[:i]) for i in range(6)]
    steps = [step(i, at, at + length) for i, (at, length) in enumerate(zip(starts, lengths, strict=True))]
    values = metrics_of(view(profile(DEVICE, [RUNNING], steps), "steady"))
    assert values["outlier_most_ms"] == pytest.approx((200 + 3 * 1.4826 * 2) / 6 / 1e3)


def test_without_uneven_steps_nothing_is_lost():
    values = found(steps=STEPS[:5])
    assert values["outliers_share"] == values["outlier_excess_ms"] == values["outlier_most_ms"] == 0
    assert values["outlier_ratio"] == 1
    assert values["outlier_causes"] == values["outlier_cause"] == ""


def test_longer_kernels_of_a_server_are_other_requests():
    longer, serves = [kernel(560, 760, 500)], on_host("python", 0, 1, name="vllm/v1/engine/core.py(7): step", thread=3)
    assert found([RUNNING], longer)["outlier_own_ms"] == pytest.approx(0.200 / 6)
    assert found([RUNNING, serves], longer)["outlier_own_ms"] == pytest.approx(0, abs=1e-6)
    assert found([RUNNING, serves])["outlier_own_ms"] == pytest.approx(0.200 / 6)  # no kernel takes longer


@pytest.mark.parametrize(("usual", "uneven"), [("masked_multihead_attention_kernel", 0), ("batch_prefill", 1)])
def test_a_step_that_reads_a_prompt_beside_steps_that_decode_is_none(usual: str, uneven: int):
    """If all read prompts, the attention of the sixth takes 200 us for another reason."""
    attention = [kernel(100 * i + 60, 100 * i + 70, 100 * i, name=usual) for i in range(5)]
    prompt = kernel(560, 760, 500, name="fmha_v2_flash_attention_fp16_64_128_S_128_causal_sm80_kernel_nl_tiled")
    assert found([RUNNING], [*attention, prompt])["outlier_steps"] == uneven


def test_copies_to_the_host_are_a_checkpoint():
    copy = on_device("memcpy", 560, 740, 560, copy_kind="DtoH")
    assert found([RUNNING], more=[copy])["outlier_causes"] == "saving a checkpoint (0.18 ms)"


def test_a_range_that_saves_is_a_checkpoint():
    frame = on_host("python", 560, 780, name="torch/serialization.py(938): save")
    assert found([frame])["outlier_causes"] == "saving a checkpoint (0.22 ms)"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gc", "garbage collection"),
        ("collective", "communication with other ranks"),
        ("allocator", "taking or freeing device memory"),
    ],
)
def test_a_kind_of_range_names_the_cause(kind, words):
    assert found([on_host(kind, 600, 800)])["outlier_causes"] == f"{words} (0.2 ms)"


def test_longer_kernels_are_a_cause_too():
    values = found(more=[kernel(600, 800, 590)])
    assert (values["outlier_causes"], values["outlier_cause"]) == ("longer kernels (0.2 ms)", "compute")


def test_a_cause_counts_beyond_what_the_used_steps_have_of_it():
    collecting = [on_host("gc", 100 * i + 60, 100 * i + 90) for i in range(5)]
    values = found([*collecting, on_host("gc", 560, 790)])
    assert values["outlier_causes"] == "garbage collection (0.2 ms)"  # 230 us, 30 of them as usual


def test_a_step_that_waits_for_a_late_batch_is_used_like_any_other():
    loading = [on_host("input", 100 * i + 60, 100 * i + 90) for i in range(5)]
    made = profile([], [RUNNING, *loading, on_host("input", 560, 790)], STEPS)
    assert view(made, "steady").steps.height == 6
    assert metrics_of(view(made, "steady"))["outlier_steps"] == 0


def test_a_first_step_that_fills_the_queue_is_no_outlier_but_bounds_what_python_costs():
    steps = [
        step(0, 0, 300, host=(0, 100)),
        *(step(i, 200 + 100 * i, 300 + 100 * i, host=(100 * i, 100 * i + 100)) for i in range(1, 6)),
    ]
    device = [kernel(200, 300, 90), *(kernel(200 + 100 * i, 300 + 100 * i, 100 * i + 90) for i in range(1, 6))]
    values = metrics_of(view(profile(device, [], steps), "steady"))
    assert values["outlier_steps"] == values["outlier_excess_ms"] == 0
    assert values["outlier_ratio"] == 1
    assert values["outlier_cause"] == ""
    assert values["outlier_python_ms"] > 0


STALLED = [*STEPS[:5], step(5, 500, 1800)]  # over 1 ms without an op: no Python between ops


def test_other_host_work_is_named_by_what_ran():
    host = [on_host("annotation", 570, 1770, name="validate", thread=2)]
    assert found(host, steps=STALLED)["outlier_causes"] == "other host work, mostly validate (1.2 ms)"
    assert found(host, steps=STALLED)["outlier_cause"] == "host"


def test_what_nothing_recorded_explains_is_said_so():
    assert found(steps=STALLED)["outlier_causes"] == "work or waits that were not recorded (1.2 ms)"
    assert found(steps=STALLED)["outlier_cause"] == "unknown"


def test_other_work_is_named_by_what_takes_longer_than_in_other_steps():
    """Each step sleeps for 60 us, unrecorded; the long one validates for 50, in ops that all have."""
    steps = [step(i, 100 * i, 100 * i + 100, device=None) for i in range(5)]
    long = step(5, 500, 650, device=None)
    usual = [on_host("op", 100 * i, 100 * i + 40, name="aten::mm") for i in range(6)]
    host = [*usual, on_host("op", 600, 650, name="aten::mm")]
    values = metrics_of(view(profile([], host, [*steps, long]), "steady"))
    assert values["outlier_causes"] == "other host work, mostly aten::mm (50 µs)"


@pytest.mark.parametrize(("ops", "cause"), [(21, "work"), (20, "host")])
def test_a_step_that_runs_so_many_more_of_the_same_ops_has_more_work(ops: int, cause: str):
    """It takes 7.5 times as long; used steps have 4 ops, so 0.7 x 7.5 x 4 = 21 make it long."""
    steps = [*(step(i, 100 * i, 100 * i + 100, device=None) for i in range(5)), step(5, 500, 1250, device=None)]
    usual = [on_host("op", 100 * i + 10 * n, 100 * i + 10 * n + 8, name="aten::mm") for i in range(5) for n in range(4)]
    host = [*usual, *(on_host("op", 500 + 30 * n, 525 + 30 * n, name="aten::mm") for n in range(ops))]
    assert metrics_of(view(profile([], host, steps), "steady"))["outlier_cause"] == cause


CPU_STEP = (("input", 0, 10), ("op", 20, 50), ("compile", 70, 90))


def test_python_between_ops_is_a_cause():
    values = found()  # 240 us of it, 40 in each other step
    assert values["outlier_causes"] == "Python between framework ops (0.2 ms)"
    assert values["outlier_python_ms"] == pytest.approx(0.200 / 6)


def test_python_that_slows_down_every_step_is_counted_by_its_own_rule():
    assert found()["outlier_own_ms"] == pytest.approx(0)  # 40 % of each used step


def test_compiling_steps_are_no_outliers_and_count_after_the_first_step_that_does_not():
    values = found([on_host("compile", 10, 50), on_host("compile", 600, 700)])
    assert values["outlier_steps"] == 0
    assert values["compiling_steps"] == 1  # the first one is start-up
    assert values["compiling_excess_ms"] == pytest.approx(0.200 / 6)
    assert values["compiling_most_ms"] == pytest.approx(0.203 / 6)


def test_where_every_step_compiles_all_but_the_first_count_for_what_compilation_takes_of_them():
    host = [on_host("compile", 100 * i + 70, 100 * i + 90) for i in range(5)]  # 20 us each, with the device idle
    values = found(host, steps=STEPS[:5])
    assert values["compiling_steps"] == 4
    assert values["uncompiled_steps"] == 0
    assert values["compiling_excess_ms"] == pytest.approx(4 * 0.020 / 5)
    assert values["compiling_most_ms"] == pytest.approx(0.020)  # the first step may compile again too


def test_ops_of_a_cpu_go_on_beside_compilation_which_costs_only_what_is_left():
    host = [on_host("compile", 100 * n + 20, 100 * n + 80) for n in range(5)]
    host += [on_host("op", 100 * n + 10, 100 * n + 60, thread=2, step=n) for n in range(5)]
    steps = [step(n, 100 * n, 100 * n + 100, device=None) for n in range(5)]
    values = metrics_of(view(profile([], host, steps, workers=[{"worker": 0, "framework": "jax"}]), "steady"))
    assert values["compiling_excess_ms"] == pytest.approx(4 * 0.020 / 5)  # from 60 to 80 in all but the first
    assert values["compiling_most_ms"] == pytest.approx(0.050)  # all but the op, in each


def test_one_step_without_compilation_is_no_usual_step():
    host = [on_host("compile", 100 * i + 70, 100 * i + 90) for i in range(6) if i != 3]
    values = found(host, steps=[*STEPS[:5], step(5, 500, 600)])
    assert (values["compiling_steps"], values["uncompiled_steps"]) == (4, 1)  # of five the first one is start-up
    assert values["compiling_excess_ms"] == pytest.approx(4 * 0.020 / 6)
    assert values["compiling_most_ms"] == pytest.approx(5 * 0.020 / 6)


def test_three_steps_that_all_compile_may_be_the_start():
    host = [on_host("compile", 100 * i + 70, 100 * i + 90) for i in range(3)]
    assert found(host, steps=STEPS[:3])["compiling_steps"] == 0


@pytest.mark.parametrize(("first", "compiling"), [(3, 0), (4, 1)])
def test_two_of_four_steps_that_compile_are_the_start_only_where_the_job_has_run_no_more_than_three(first, compiling):
    host = [on_host("compile", 100 * i + 70, 100 * i + 90) for i in range(2)]
    values = found(host, steps=[step(first + i, 100 * i, 100 * i + 100) for i in range(4)])
    assert values["compiling_steps"] == compiling
    assert values["compiling_excess_ms"] == pytest.approx(compiling * 0.020 / 4)


def test_compilation_at_the_start_is_no_recompilation():
    values = found([on_host("compile", 10, 50)], steps=STEPS[:5])
    assert values["compiling_steps"] == 0
    assert values["compiling_excess_ms"] == 0


def test_with_too_few_steady_steps_none_is_uneven():
    values = found([on_host("compile", 110, 150)], steps=[STEPS[0], STEPS[1], STEPS[5]])
    assert values["outliers_share"] == 0
    assert values["compiling_steps"] == 1


def test_places_are_the_uneven_steps():
    made = measured(profile(DEVICE, [], STEPS), "steady")
    (place,) = made.places("outlier_own_ms", 0).to_dicts()
    assert place["step"] == 5
    assert place["name"] == "ProfilerStep#5 (outlier)"
    assert place["dur_ns"] == 300_000


def test_a_step_that_compiled_is_a_place_of_compilation_only():
    host = [on_host("compile", 310, 350)]  # in step 3, which is left out for it; step 5 for its length
    made = measured(profile(DEVICE, host, STEPS), "steady")
    assert made.places("outlier_own_ms", 0)["step"].to_list() == [5]
    assert made.places("compiling_excess_ms", 0)["step"].to_list() == [3]


def test_without_a_step_nothing_is_known():
    values = found(steps=[step(1, 0, 100, incomplete="cut")])
    assert {values[name] for name in ("outlier_steps", "outlier_cause", "compiling_steps")} == {None}


@pytest.mark.parametrize(("more", "cause"), [((), "machine"), ((650, 700), "host")])
def test_a_long_step_of_a_cpu_that_runs_the_same_ops_is_the_machine_s(more: tuple[float, ...], cause: str):
    """The op of the last step takes three times as long; or two more run in it."""
    ops = [on_host("op", 100 * i, 100 * i + 90) for i in range(5)]
    last = [on_host("op", 500, 640 if more else 790), *(on_host("op", at, at + 40, name="evaluate") for at in more)]
    steps = [row | {"device": None} for row in STEPS]
    assert metrics_of(view(profile([], [*ops, *last], steps), "steady"))["outlier_cause"] == cause


@pytest.mark.parametrize(("rows", "cause"), [(19, "machine"), (20, "work"), (None, "machine")])
def test_a_long_step_of_larger_inputs_is_long_by_its_work(rows: int | None, cause: str):
    """It takes three times as long: then its inputs have 1.5 times the usual 13 x 10 elements or more."""
    shapes = ["[[13,10]]"] * 5 + [f"[[{rows},10]]"] if rows else [None] * 6
    ends = [90, 190, 290, 390, 490, 790]
    ops = [on_host("op", 100 * i, end, shapes=shapes[i]) for i, end in enumerate(ends)]
    steps = [row | {"device": None} for row in STEPS]
    assert metrics_of(view(profile([], ops, steps), "steady"))["outlier_cause"] == cause


def test_a_long_step_that_runs_as_many_other_ops_is_not_the_machine_s():
    ops = [on_host("op", 100 * i, 100 * i + 90) for i in range(5)]
    steps = [row | {"device": None} for row in STEPS]
    validation = on_host("op", 500, 790, name="evaluate")
    assert metrics_of(view(profile([], [*ops, validation], steps), "steady"))["outlier_cause"] == "host"


@pytest.mark.parametrize(
    ("delay_ms", "others_ms", "cause"),
    [
        (None, [], "unknown"),  # nobody noted whether the job had its CPU
        (0.0, [], "unknown"),
        (0.099, [], "unknown"),  # in each of six steps: less than half of the 1.2 ms
        (0.101, [], "machine"),
        (0.0, [1.0] * 5 + [1.24], "machine"),  # no step without the profiler is long
        (0.0, [1.0] * 5 + [1.25], "unknown"),
        (0.0, [1.0] * 5, "unknown"),  # too few to say so
    ],
)
def test_time_of_which_nothing_was_recorded_is_the_machine_s_only_if_it_kept_the_cpu(delay_ms, others_ms, cause):
    """A long step runs the same ops in the same time, and 1.2 ms more in which nothing was recorded."""
    ops = [on_host("op", 100 * i, 100 * i + 90) for i in range(6)]
    steps = [row | {"device": None} for row in STALLED]
    process = [
        {"worker": 0, "run_delay_ms": delay_ms, "before_steps_ms": others_ms[:3], "after_steps_ms": others_ms[3:]}
    ]
    made = profile([], ops, steps, workers=process)
    assert metrics_of(view(made, "steady"))["outlier_cause"] == cause


@pytest.mark.parametrize(("code", "kernels", "uneven"), [("steps_by_work", 3, 0), ("steps_by_work", 2, 1), ("", 3, 1)])
def test_a_turn_in_which_a_loop_around_it_runs_more_is_no_long_one(code: str, kernels: int, uneven: int):
    """Turns of two kernels, and a sixth that takes three times as long. A mark of the program's own tells a step."""
    run = [kernel(at + 30 * i, at + 30 * i + 20, at) for at in range(0, 600, 100) for i in range(2)]
    run += [kernel(600 + 30 * i, 620 + 30 * i, 600) for i in range(kernels - 2)]
    made = replace(profile(run, [RUNNING], STEPS), salvaged=(Note(code),) if code else ())
    values = metrics_of(view(made, "steady"))
    assert values["outlier_steps"] == uneven
    assert values["step_mean_ms"] == pytest.approx(0.1 if uneven else 0.8 / 6)
