"""Which call ends a step, in the order in which programs make their calls."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.recording.inside import clock
from advisor.recording.inside.marker import Marker


def ends(calls: Iterable[tuple[str, object]], skip: int = 2) -> list[int]:
    marker = Marker(skip)
    return [number for number, (kind, key) in enumerate(calls) if marker.ends_step(kind, key)]


def optimizers(names: str) -> list[tuple[str, object]]:
    return [("optimizer", name) for name in names]


def test_an_optimizer_ends_each_step_after_those_skipped():
    assert ends(optimizers("aaaaa")) == [1, 2, 3, 4]


def test_of_a_gan_the_optimizer_that_steps_least_ends_the_step():
    assert ends(optimizers("dddddg" * 12), skip=10) == [59, 65, 71]


def test_of_a_gan_one_that_comes_after_the_choice_begins_it_anew():
    assert ends(optimizers("dddddg" * 4)) == [1, 2, 3, 4, 11, 17, 23]


def test_of_optimizers_that_step_as_often_the_last_one_ends_the_step():
    assert ends(optimizers("abcdef" * 4)) == [11, 17, 23]


def test_an_optimizer_that_stepped_once_does_not_hold_up_the_choice():
    assert ends(optimizers("w" + "a" * 25)) == [21, 22, 23, 24, 25]


def test_an_optimizer_that_left_the_loop_does_not_hold_up_the_choice():
    assert ends(optimizers("www" + "a" * 1000), skip=5)


def test_another_optimizer_begins_the_choice_anew():
    marker = Marker(2)
    outcomes = [marker.ends_step(kind, key) for kind, key in optimizers("aaa" + "bbb")]
    assert outcomes == [False, True, True, None, True, True]


def test_a_new_optimizer_in_every_round_ends_steps_all_the_same():
    rounds = [("optimizer", number) for number in range(20) for _ in range(3)]
    assert len(ends(rounds)) > 40


def test_an_optimizer_replaces_the_module_it_trains():
    marker = Marker(1)
    calls = [("module", "root"), ("module", "root"), ("optimizer", "a"), ("module", "root"), ("optimizer", "a")]
    assert [marker.ends_step(*call) for call in calls] == [True, True, None, False, True]


def test_an_engine_counts_for_the_optimizers_inside_it():
    assert ends([("optimizer", "a"), ("engine", "e")] * 4, skip=1) == [0, 3, 5, 7]


@given(st.lists(st.tuples(st.sampled_from(["optimizer", "module", "engine"]), st.integers(0, 3))), st.integers(0, 5))
def test_any_program_is_counted_without_an_error(calls: list[tuple[str, object]], skip: int):
    marker = Marker(skip)
    for call in calls:
        assert marker.ends_step(*call) in {True, False, None}
        assert marker.calls >= 1


def test_an_optimizer_that_exists_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A hundred calls of the policy per update; each takes 10 ms."""
    now = iter(range(1, 10**15, 10**7))
    monkeypatch.setattr(clock, "now_ns", lambda: next(now))
    marker = Marker(2)
    marker.await_optimizer()
    rounds = ([("module", "policy")] * 100 + [("optimizer", "adam")]) * 4
    assert [number for number, call in enumerate(rounds) if marker.ends_step(*call)] == [201, 302, 403]


def test_modules_count_where_an_optimizer_never_steps(monkeypatch: pytest.MonkeyPatch):
    now = iter(range(1, 10**15, 10**10))  # two looks at the clock per call
    monkeypatch.setattr(clock, "now_ns", lambda: next(now))
    marker = Marker(2)
    marker.await_optimizer()
    outcomes = [marker.ends_step("module", "root") for _ in range(8)]
    assert not any(outcomes[:4])
    assert outcomes[-1] is True
