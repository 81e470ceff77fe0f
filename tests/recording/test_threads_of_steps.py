"""In which of a program's threads steps end, with a recording that writes down its steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from advisor.recording.inside import hook
from advisor.recording.inside.clock import Tail
from advisor.recording.inside.notes import Notes
from advisor.recording.inside.phases import Steps
from advisor.recording.inside.profilers import Profiler

Call = Callable[..., None]


class Noted(Steps):
    """A recording that goes on."""

    def __init__(self, *_: Any) -> None:
        super().__init__(Profiler())
        self.steps = 0

    def step(self, result: object = None) -> None:  # noqa: ARG002 - as the others
        assert threading.get_ident() == self.thread
        self.steps += 1

    def abandon(self) -> None:
        assert threading.get_ident() == self.thread  # the profiler's own thread alone can end it
        self.phase = "over"


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> hook.Hook:
    monkeypatch.setattr(hook, "Phases", Noted)
    return hook.Hook({"skip": 2, "active": 3}, Notes())


@pytest.fixture
def actor(hooked: hook.Hook) -> Iterator[Call]:
    """Calls of a kind in another thread."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda kind, times: pool.submit(call, hooked, kind, times).result()


def call(of: hook.Hook, kind: str, times: int) -> None:
    for _ in range(times):
        of._tick(Profiler, kind, kind, kind, None)  # noqa: SLF001 - what all frameworks call


def recorded(of: hook.Hook) -> tuple[str | None, bool, int]:
    """What ends steps, whether in this thread, and how many are recorded."""
    assert isinstance(of.phases, Noted)
    return of.marker.kind, of.phases.thread == threading.get_ident(), of.phases.steps


def test_an_optimizer_ends_steps_where_another_thread_called_a_model_first(hooked: hook.Hook, actor: Call):
    hooked.marker.await_optimizer()
    actor("module", 50)
    call(hooked, "optimizer", 4)
    actor("module", 50)
    assert recorded(hooked) == ("optimizer", True, 3)


def test_an_optimizer_ends_steps_where_those_of_another_thread_are_being_recorded(hooked: hook.Hook, actor: Call):
    actor("module", 5)
    assert recorded(hooked) == ("module", False, 4)
    first = hooked.phases
    call(hooked, "optimizer", 4)
    assert hooked.phases is first
    actor("module", 1)  # which leaves its own
    assert (first.phase, hooked.phases) == ("over", None)
    call(hooked, "optimizer", 2)
    assert recorded(hooked) == ("optimizer", True, 2)


def test_an_optimizer_ends_steps_where_those_of_another_thread_were_recorded(
    hooked: hook.Hook, actor: Call, tmp_path: Path
):
    actor("module", 5)
    written = tmp_path / "program.pt.trace.json.gz"
    written.touch()
    assert hooked.phases
    hooked.phases.path, hooked.tail, hooked.is_over = str(written), Tail(1.0, number=5), True
    actor("module", 5)
    assert written.exists()
    call(hooked, "optimizer", 6)
    assert not written.exists()
    assert recorded(hooked) == ("optimizer", True, 4)


def test_without_an_optimizer_steps_end_in_the_thread_that_goes_on(hooked: hook.Hook, actor: Call):
    call(hooked, "module", 1)
    actor("module", 15)
    assert hooked.phases is None
    actor("module", 15)
    before = recorded(hooked)
    assert before[:2] == ("module", False)
    call(hooked, "module", 50)
    assert recorded(hooked) == before
