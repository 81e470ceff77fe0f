from __future__ import annotations

import pytest

from advisor.metrics.steps.breakdown import step_table
from advisor.model.profile import Profile
from advisor.vocabulary.kinds import CATEGORIES
from tests.effort import every
from tests.tables import kernel, metrics_of, of_tensorflow, on_device, on_host, pageable, profile, step, view

STEP = [step(1, 0, 100)]


def shares(made: Profile) -> dict[str, float]:
    """The categories that have a part of the step, in percent."""
    found = {category: metrics_of(view(made))[f"{category}_share"] for category in CATEGORIES}
    return {category: share * 100 for category, share in found.items() if isinstance(share, float) and share}


def test_the_first_category_that_covers_an_instant_owns_it():
    # us          0    10   20   30   40   50   60   70   80   90   100
    # kernel      ==========                                             0 to 20
    # memcpy              ========                                      15 to 30: 10 left
    # memset                    ====                                    28 to 34: 4
    # collective                  ==========                            30 to 50: 16
    # launch                             =====                          45 to 55: 5
    # input                                 ===                         54 to 60: 5
    # compile                                 ====                      58 to 65: 5
    # host                                     ==========               60 to 80: 15
    # other                                              ==========     20
    device = [kernel(0, 20), on_device("memcpy", 15, 30), on_device("memset", 28, 34), on_device("collective", 30, 50)]
    host = [on_host("runtime", 45, 55), on_host("input", 54, 60), on_host("compile", 58, 65), on_host("op", 60, 80)]
    assert shares(profile(device, host, STEP)) == pytest.approx(
        {
            "compute": 20,
            "memcpy": 10,
            "memset": 4,
            "collective": 16,
            "launch": 5,
            "input": 5,
            "compile": 5,
            "host": 15,
            "other": 20,
        }
    )


@pytest.mark.parametrize(
    ("kind", "category"),
    every(
        2,
        [
            *(("runtime", "launch"), ("sync", "launch"), ("allocator", "launch"), ("collective", "collective")),
            *(("op", "host"), ("annotation", "host"), ("module", "host"), ("python", "host"), ("gc", "host")),
            *(("input", "input"), ("compile", "compile"), ("step", "other"), ("overhead", "other")),
        ],
    ),
)
def test_where_a_kind_of_host_range_counts(kind: str, category: str):
    assert shares(profile(host_ops=[on_host(kind, 0, 100)], steps=STEP)) == {category: 100}


def test_a_collective_under_a_kernel_is_compute():
    made = profile([kernel(0, 60), on_device("collective", 40, 100, stream=8)], steps=STEP)
    assert shares(made) == {"compute": 60, "collective": 40}


def test_kernels_of_two_streams_count_once():
    assert shares(profile([kernel(0, 60), kernel(40, 90, stream=8)], steps=STEP)) == {"compute": 90, "other": 10}


def test_a_kernel_that_covers_the_step_leaves_nothing_to_others():
    host = [on_host("runtime", 0, 40), on_host("op", 0, 100)]
    assert shares(profile([kernel(0, 100), on_device("memcpy", 10, 20)], host, STEP)) == {"compute": 100}


def test_only_what_lies_inside_the_steps_used_counts():
    steps = [step(1, 0, 50), step(2, 50, 60, incomplete="cut"), step(3, 100, 150)]
    made = profile([kernel(40, 110), kernel(140, 190)], steps=steps)
    assert shares(made) == {"compute": 30, "other": 70}  # 10 + 10 + 10 of 100


def test_input_per_step():
    steps = [step(1, 0, 100), step(2, 100, 300)]
    made = profile(host_ops=[on_host("input", 0, 10), on_host("input", 100, 120)], steps=steps)
    assert metrics_of(view(made))["input_exposed_ms"] == pytest.approx(0.015)
    assert metrics_of(view(made))["input_share"] == pytest.approx(0.1)


def test_a_step_without_length_has_no_shares():
    values = metrics_of(view(profile(steps=[step(1, 0, 0)])))
    assert {values[f"{category}_share"] for category in CATEGORIES} == {None}


def test_one_row_per_step_used():
    steps = [step(1, 0, 100), step(2, 100, 150, incomplete="cut"), step(3, 200, 250)]
    table = step_table(view(profile([kernel(0, 25), kernel(210, 260)], steps=steps)))
    assert table.select("step", "name", "start_ns", "step_ms", "compute_share", "other_share").rows() == [
        (1, "ProfilerStep#1", 0, pytest.approx(0.1), 0.25, 0.75),
        (3, "ProfilerStep#3", 200_000, pytest.approx(0.05), 0.8, pytest.approx(0.2)),
    ]


def test_the_bottleneck_of_a_step_is_its_largest_category():
    steps = [step(1, 0, 100), step(2, 100, 200)]
    made = profile([kernel(0, 60), kernel(100, 130)], [on_host("input", 130, 190)], steps)
    assert step_table(view(made))["bottleneck"].to_list() == ["compute", "input"]


# us        0    10        40      60    80    100
# main      call| next .............|  Python    |
# XLA            ===========                          10 to 40, dispatched by the step
# of loader                 ========                  40 to 60, by no step
JAX = [{"worker": 0, "framework": "jax"}]
BESIDE = [
    on_host("annotation", 0, 10, name="PjitFunction(f)", thread=1, step=1),
    on_host("input", 10, 60, name="$builtins next", thread=1, step=1),
    on_host("op", 10, 40, name="fusion.1", thread=2, step=1),
    on_host("op", 40, 60, name="fusion.2", thread=3, step=None),
]


def test_input_is_waited_for_only_where_no_program_of_a_step_runs():
    made = profile(host_ops=BESIDE, steps=[step(1, 0, 100, device=None)], workers=JAX)
    assert shares(made) == {"input": pytest.approx(20), "host": pytest.approx(40), "other": pytest.approx(40)}


def test_a_program_of_the_step_before_is_work_too():
    late = [row | {"step": 0} if row.get("thread") == 2 else row for row in BESIDE]
    made = profile(host_ops=late, steps=[step(1, 0, 100, device=None)], workers=JAX)
    assert shares(made)["input"] == pytest.approx(20)


def test_in_other_frameworks_ops_on_other_threads_leave_the_wait():
    made = profile(
        host_ops=BESIDE, steps=[step(1, 0, 100, device=None)], workers=[{"worker": 0, "framework": "tensorflow"}]
    )
    assert shares(made)["input"] == pytest.approx(50)


def test_tensorflow_s_order_of_the_breakdown():
    """A request for input owns an instant before the executor; of another step it owns none."""
    host = [
        on_host("annotation", 0, 60, name="ExecutorState::Process", step=1),
        on_host("input", 10, 30, step=1),
        on_host("input", 30, 50, step=2),
        on_host("op", 55, 80, step=1),
    ]
    ops = [kernel(0, 20), on_device("memcpy", 50, 70, copy_kind="HtoD"), on_device("memcpy", 80, 85, copy_kind="DtoH")]
    values = metrics_of(of_tensorflow(view(profile(ops, host, [step(1, 0, 100)]))))
    shares = {category: values[f"{category}_share"] for category in CATEGORIES}
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
    values = metrics_of(of_tensorflow(view(profile((), host, [step(1, 0, 100, device=None)]))))
    assert (values["launch_share"], values["host_share"], values["input_share"]) == (0.0, 0.6, 0.2)


def test_of_jax_a_copy_that_the_host_waits_for_is_launching():
    made = profile(
        [kernel(0, 40), pageable(30, 70)],
        [on_host("runtime", 20, 75, step=1)],
        STEP,
        workers=[{"worker": 0, "framework": "jax"}],
    )
    assert shares(made) == {"compute": 40, "launch": 35, "other": 25}
