"""The rest of a schedule is no run of its own."""

from __future__ import annotations

import pytest

from advisor.inputs.discover import Recording
from advisor.model.report import Run
from advisor.runs.files import unreadable
from advisor.runs.summary import last_cycles, without_last_cycles
from tests.render_samples import RESNET, changed


def recorded(moment: int, process: str = "host_7", folder: str = "logs") -> Recording:
    return Recording("", folder, "kineto", (f"{folder}/{process}.{1795402682645336994 + moment}.pt.trace.json",))


def run(steps: int) -> Run:
    return changed(RESNET, source=changed(RESNET.source, steps=changed(RESNET.source.steps, count=steps)))


@pytest.mark.parametrize(
    ("steps", "fragments"),
    [
        ([12, 12, 2], {2: 0}),
        ([12, 5], {1: 0}),
        ([12, 6], {}),  # half of them: a cycle that somebody asked for
        ([2, 12, 0], {0: 1, 2: 1}),
        ([12, None], {}),  # a file that cannot be read is said to be so
        ([0, 0], {}),
    ],
)
def test_a_recording_of_fewer_than_half_of_the_steps_is_the_rest_of_a_schedule(
    steps: list[int | None], fragments: dict[int, int]
):
    assert last_cycles([recorded(n) for n in range(len(steps))], steps) == fragments


@pytest.mark.parametrize("other", [recorded(1, process="host_8"), recorded(1, folder="elsewhere")])
def test_recordings_of_other_processes_and_folders_stay(other: Recording):
    assert last_cycles([recorded(0), other], [12, 2]) == {}


def test_the_run_that_stays_notes_what_is_left_out():
    empty = unreadable("logs/last", "nothing in it").model_copy(update={"is_empty": True})
    ((runs, broken),) = without_last_cycles([recorded(0), recorded(1)], [([run(12)], []), ([], [empty])])
    assert [note.code for note in runs[0].source.notes if note.code == "last_cycle"] == ["last_cycle"]
    assert not broken


def test_a_file_that_is_broken_stays_unreadable():
    broken = unreadable("logs/last", "cut off")
    outcomes = [([run(12)], []), ([], [broken])]
    assert [*without_last_cycles([recorded(0), recorded(1)], outcomes)] == outcomes


def test_a_recording_that_marks_no_steps_is_no_rest_of_a_schedule():
    unmarked = changed(run(0), source=changed(RESNET.source, steps=changed(RESNET.source.steps, marked=False)))
    outcomes = [([run(12)], []), ([unmarked], [])]
    assert [*without_last_cycles([recorded(0), recorded(1)], outcomes)] == outcomes
