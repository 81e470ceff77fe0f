from __future__ import annotations

import pytest

from advisor.model.profile import Profile
from tests.tables import kernel, metrics_of, on_host, pageable, profile, step, values_of, view, worker_row


# us        0                 100   120     200       The host asks for a batch, launches, and waits.
# input     |------------------|
# launch                       ||                     99 to 100 and so on
# kernel                       =======                100 to 150
# sync                          |----|                101 to 150
def waiting_for_input(steps: int = 4) -> Profile:
    host, device = [], []
    for t in range(0, 200 * steps, 200):
        host += [on_host("input", t, t + 90), on_host("sync", t + 101, t + 150)]
        device += [kernel(t + 106, t + 150, t + 100)]
    return profile(device, host, [step(i, 200 * i, 200 * i + 200) for i in range(steps)])


def test_input_that_is_always_there_gives_back_the_time_it_took():
    found = metrics_of(view(waiting_for_input()))
    assert found["replay_error"] == pytest.approx(0, abs=0.05)
    assert found["input_gain_ms"] == pytest.approx(0.09, rel=0.05)


def test_without_launches_the_gaps_alone_bound_the_gains():
    made = profile([kernel(0, 50), kernel(80, 100)], [on_host("input", 60, 70)], [step(1, 0, 100)])
    found = metrics_of(view(made))
    assert found["replay_error"] is None
    assert found["input_gain_ms"] == pytest.approx(0.01)


def test_copies_that_no_replay_overlaps_may_run_beside_kernels():
    copies = [pageable(10, 30), pageable(45, 60)]  # 5 us of the second lie beside the kernel
    made = profile([kernel(0, 10), *copies, kernel(55, 80)], [on_host("input", 85, 100)], [step(1, 0, 100)])
    assert metrics_of(view(made))["input_copy_gain_ms"] == pytest.approx(0.03)
    assert metrics_of(view(waiting_for_input()))["input_copy_gain_ms"] == 0.0  # the replay overlaps them


def test_on_the_host_alone_input_counts_in_full():
    made = profile(host_ops=[on_host("input", 0, 30)], steps=[step(1, 0, 100, device=None)])
    assert worker_row(made)["input_gain_ms"] == pytest.approx(0.03)


def test_input_beside_which_a_program_of_jax_runs_gives_back_the_rest():
    call, op = on_host("annotation", 0, 1, name="PjitFunction(f)"), on_host("op", 10, 25, thread=2, step=1)
    made = profile(
        host_ops=[call, on_host("input", 0, 30), op],
        steps=[step(1, 0, 100, device=None)],
        workers=[{"worker": 0, "framework": "jax"}],
    )
    assert worker_row(made)["input_gain_ms"] == pytest.approx(0.015)


def test_one_step_of_more_calls_than_are_replayed_is_judged_by_its_gaps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.whatif.dependencies._MOST_CALLS", 1)
    assert metrics_of(view(waiting_for_input(steps=1)))["input_gain_ms"] == pytest.approx(0.09)


def test_a_wait_for_what_was_called_before_the_steps():
    made = profile([kernel(0, 50, -1)], [on_host("sync", 10, 52)], [step(1, 0, 100)])
    assert metrics_of(view(made))["sync_gain_ms"] is not None


def test_ops_that_run_in_another_order_than_they_were_called():
    # us        0    5    10   15   20   30   40   50
    # called    c a            b                        at 0, 2 and 15
    # sync           |--|                               5 to 9
    # device      ccccc             bbbbbb    aaaaaa    one stream
    device = [kernel(3, 8, 0), kernel(40, 50, 2), kernel(20, 30, 15)]
    made = profile(device, [on_host("sync", 5, 9)], [step(1, -2, 100)])
    assert metrics_of(view(made))["replay_error"] is not None


def test_no_gain_is_negative_or_longer_than_the_step():
    names = ("input_gain_ms", "input_copy_gain_ms", "sync_gain_ms")
    gains = values_of(names, view(waiting_for_input())).values()
    assert all(isinstance(gain, float) and 0 <= gain <= 0.2 for gain in gains)


def test_of_a_long_recording_the_first_steps_are_replayed(monkeypatch: pytest.MonkeyPatch):
    made = waiting_for_input(steps=4)
    assert metrics_of(view(made))["replayed_steps"] == 4
    monkeypatch.setattr("advisor.whatif.dependencies._MOST_CALLS", 2)  # a launch and a wait in each step
    assert metrics_of(view(made))["replayed_steps"] == 1
