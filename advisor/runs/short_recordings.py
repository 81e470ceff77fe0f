"""Recordings that a profiler's schedule began when the program was about to end: a few steps, or none."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, TypeAlias

from advisor.inputs.discover import Recording, workers_of
from advisor.model.clause import Note
from advisor.model.reason import Reason
from advisor.model.report import Run, Unreadable

Outcome: TypeAlias = tuple[Sequence[Run], Sequence[Unreadable]]
"""What a recording came to: its runs, one per job, and the files of it that cannot be read."""

_FRAGMENT: Final = 0.5  # of the steps of the same processes' longest recording: a schedule records equally many


def last_cycles(recordings: Sequence[Recording], steps: Sequence[int | None]) -> dict[int, int]:
    """By number, the recordings that are only the rest of a schedule, and the longest of the same processes.

    A schedule without `repeat=1` begins again and again; where the program ends amid a cycle, that is written too. It
    has less than half of the steps of another recording of its processes in the same folder. `steps` are 0 where
    nothing was recorded, None where that is not known or no steps are marked.
    """
    of_processes = defaultdict[Hashable, list[int]](list)
    for number, recording in enumerate(recordings):
        if steps[number] is not None:
            of_processes[recording.path, workers_of(recording.files)].append(number)
    longest = {number: max(alike, key=lambda n: steps[n] or 0) for alike in of_processes.values() for number in alike}
    return {n: most for n, most in longest.items() if (steps[n] or 0) < _FRAGMENT * (steps[most] or 0)}


def without_last_cycles(recordings: Sequence[Recording], outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
    """What the recordings came to, without those; the run that stays notes it."""
    fragments = last_cycles(recordings, [_steps(outcome) for outcome in outcomes])
    omitted = Counter(fragments.values())
    for number, (runs, broken) in enumerate(outcomes):
        if number not in fragments:
            yield [_noted(run, omitted[number]) for run in runs], broken


def _steps(outcome: Outcome) -> int | None:
    runs, broken = outcome
    steps = [run.source.steps for run in runs]
    if not all(of.marked for of in steps) or not all(file.is_empty for file in broken):
        return None
    return max((of.count for of in steps), default=0)


def _noted(run: Run, omitted: int) -> Run:
    if not omitted:
        return run
    notes = (*run.source.notes, Reason.of(Note("last_cycle", recordings=omitted)))
    return run.model_copy(update={"source": run.source.model_copy(update={"notes": notes})})
