"""Waits for Python's lock: the least of what the main thread sleeps, other threads run and ops leave."""

import pytest

from advisor.model.clause import Missing
from tests.tables import metrics_of, on_host, profile, step, view

OPS = [on_host("op", 0, 400, name="aten::linear")]


def share(sleep: float, runs: float, waits: int = 0) -> object:
    """A step of 1 ms, 0.4 ms of it in ops, and a sample in ten in a call that sleeps for each of `waits`."""
    of = view(profile([], OPS, [step(1, 0, 1000, device=None)]))
    calls = ["loss.backward"] * (10 - waits) + ["lock.acquire"] * waits
    stacks = [
        {"line": "train.py:9", "call": call, "below": [], "ns": 1, "samples": 1, "of_loader": False} for call in calls
    ]
    thread = {"line": "stats.py:8", "function": "crunch", "call": None, "share": runs}
    of.process.update({"stacks": stacks, "sleep_share": sleep, "threads": [thread]})  # type: ignore[attr-defined]
    values = metrics_of(of)
    assert values["lock_thread_line"] == "stats.py:8"
    assert values["lock_threads"] == f"stats.py:8 in `crunch` ({100 * runs:.0f} % of the time)"
    return values["lock_wait_share"]


@pytest.mark.parametrize(
    ("sleep", "runs", "waits", "expected"),
    [(0.3, 0.8, 0, 0.3), (0.3, 0.8, 1, 0.2), (0.3, 0.1, 0, 0.1), (0.9, 0.8, 0, 0.6), (0.1, 0.8, 3, 0)],
)
def test_the_wait_is_the_least_of_sleep_others_and_time_outside_of_ops(
    sleep: float, runs: float, waits: int, expected: float
):
    assert share(sleep, runs, waits) == pytest.approx(expected)


def test_what_the_main_thread_takes_over_is_a_part_of_the_samples():
    of = view(profile([], OPS, [step(1, 0, 1000, device=None)]))
    sample = {"line": "train.py:9", "call": "q.get", "samples": 1, "of_loader": False}
    stacks = [{**sample, "below": ["queue.py: Queue.get"], "ns": 1}, {**sample, "below": ["queue.py: f"], "ns": 3}]
    of.process.update({"stacks": stacks, "sleep_share": 0.5, "threads": []})  # type: ignore[attr-defined]
    assert metrics_of(of)["takes_over_part"] == 0.25


def test_threads_at_one_line_are_one_entry():
    """Four feeders run 20 % each, one thread that logs 30 %."""
    of = view(profile([], OPS, [step(1, 0, 1000, device=None)]))
    threads = [{"line": "feed.py:8", "function": "feed", "call": "q.put", "share": 0.2}] * 4
    threads.append({"line": "log.py:3", "function": "log", "call": None, "share": 0.3})
    of.process.update({"stacks": [], "sleep_share": 0.5, "threads": threads})  # type: ignore[attr-defined]
    words = "feed.py:8 `q.put(...)` in `feed` (4 x, 80 % of the time), log.py:3 in `log` (30 % of the time)"
    assert metrics_of(of)["lock_threads"] == words
    assert metrics_of(of)["lock_thread_line"] == "feed.py:8 `q.put(...)`"
    assert metrics_of(of)["busy_thread_share"] == 0.3  # no feeder alone keeps a core


def test_without_other_threads_none_keeps_a_core():
    of = view(profile([], OPS, [step(1, 0, 1000, device=None)]))
    of.process.update({"stacks": [], "sleep_share": 0.5, "threads": []})  # type: ignore[attr-defined]
    assert metrics_of(of)["busy_thread_share"] == 0


def test_without_a_note_of_threads_nothing_is_told():
    values = metrics_of(view(profile([], OPS, [step(1, 0, 1000, device=None)])))
    assert isinstance(values["lock_wait_share"], Missing)
