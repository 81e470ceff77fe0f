"""Two sets of runs held against each other: is the head slower, where did the time go, what changed in the work.

The verdict is about step times alone; everything else explains it and is told whatever the verdict is.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final

from advisor.comparing import steps, work
from advisor.comparing.breakdown import cause, compared_phase, frames, phase_changes, shifts
from advisor.comparing.findings import finding_changes, mark_new
from advisor.comparing.steps import LEAST_EFFECT, Load
from advisor.errors import NoRuns, ReadError
from advisor.model.comparison import Comparison, Shift, Side
from advisor.model.reason import Reason, remark
from advisor.model.report import Run, Unreadable
from advisor.model.trials import Trials
from advisor.text import listing, one_line

__all__ = ["LEAST_EFFECT", "Comparison", "compare", "mark_new"]

_WORTH: Final = 0.001  # of the base's step: work that moves less is not listed
_SAVING_MOVED: Final = 0.01  # of the base's step: a finding whose saving moves less is the same finding
_LEEWAY: Final = 1.1
_HALF: Final = 0.5
_LONGEST_SIZE: Final = 60
_LONGEST_NOTE: Final = 300
_MOST_UNREADABLE: Final = 3  # that are named, of each side


def compare(  # noqa: PLR0913 - all but the sides are options
    base: Sequence[Run],
    head: Sequence[Run],
    *,
    advisor_version: str,
    unreadable: tuple[Sequence[Unreadable], Sequence[Unreadable]] = ((), ()),
    notes: Sequence[Reason] = (),
    trials: Trials | None = None,
) -> Comparison:
    """The head's runs against the base's, at least one of each side.

    `unreadable` is what could not be read of the two, `notes` what the reader should know besides, and `trials` what
    `advisor try` measured of the base's fixes.

    Raises:
        NoRuns: a side has no run.
        ReadError: a report measured its steps by the ranges that mark them.
    """
    _refuse(base, head)
    ranks = steps.common_ranks([*base, *head])
    phase = compared_phase([*base, *head])
    unprofiled = phase is None and steps.are_unprofiled([*base, *head])
    before, after = (
        steps.side(runs, ranks, files, phase, unprofiled=unprofiled)
        for runs, files in zip((base, head), unreadable, strict=True)
    )
    change = steps.contrasted(before, after)
    decided = steps.verdict(base, head, before, after, change)
    pace = work.pace(base, head) if decided.verdict in {"slower", "faster"} else None
    load = Load.of(base, head) if unprofiled else None
    if pace and change and _explains(pace, change.ratio) and not (load and load.is_quiet):
        decided = steps.Decided("inconclusive", _other_machine(pace, load), "machine")
    per_step = before.per == after.per == "step"
    middle = change.of if change else "median"
    moved = shifts((base, head), ranks, (before, after), middle) if before.per and after.per else ()
    if others := _busy(decided, load, moved):
        decided = steps.Decided("inconclusive", others, "machine")
    step_ms = sum(shift.base_ms for shift in moved) or sum(shift.head_ms for shift in moved)
    return Comparison(
        advisor_version=advisor_version,
        verdict=decided.verdict,
        reason=decided.reason,
        cautions=tuple(_cautions(base, head, pace if decided.obstacle != "machine" else None, load)),
        obstacle=decided.obstacle,
        cause=None if phase else cause(decided.verdict, moved),
        change=change and steps.step_change(change, before),
        base=before,
        head=after,
        breakdown=moved,
        work=work.changes(base, head, _WORTH * step_ms) if per_step else (),
        findings=tuple(finding_changes((base, head), (before, after), middle, _SAVING_MOVED * step_ms, trials)),
        frames=frames(base, head) if per_step else (),
        phases=phase_changes(base, head, ranks),
        notes=(
            *_basis(before, after),
            *_unprofiled(base, head),
            *([remark("phase_of_steps", phase=phase)] if phase else ()),
            *notes,
            *_notes(base, head, ranks),
            *_readings((("base", base, unreadable[0]), ("head", head, unreadable[1]))),
        ),
    )


def _refuse(base: Sequence[Run], head: Sequence[Run]) -> None:
    """Raises where a side has no run, or steps that another version measured by their marks."""
    if not base or not head:
        raise NoRuns(f"{'base' if not base else 'head'}: no run to compare")
    stepped = [run for run in (*base, *head) if run.source.steps.marked]
    if ranged := [run.name for run in stepped if run.source.steps.timed_by == "range"]:
        raise ReadError(
            f"{one_line(listing(ranged), _LONGEST_NOTE)}: an earlier version measured these steps by their marks, not "
            "from start to start; check the recording again and compare that"
        )


def _busy(decided: steps.Decided, load: Load | None, moved: Sequence[Shift]) -> Reason | None:
    """Why other programs leave no verdict, in place of a verdict or of noise."""
    if load:
        return load.obstacle if decided.obstacle in {None, "noise"} and decided.reason.code != "one_recording" else None
    return _others(moved) if decided.verdict in {"slower", "faster"} else None


def _others(moved: Sequence[Shift]) -> Reason | None:
    """That other programs make up half of the change or more, as far as the recordings noted what these took."""
    change_ms = sum(shift.change_ms for shift in moved)
    for shift in moved:
        if shift.part == "other_programs" and change_ms and shift.change_ms / change_ms >= _HALF:
            return remark("other_programs", base=shift.base_ms, head=shift.head_ms)
    return None


def _other_machine(pace: work.Pace, load: Load | None) -> Reason:
    code = "other_machine" if pace.certain else "other_machine_or_work"
    if load and load.is_quiet and pace.certain:
        code = "other_pace"
    return remark(code, ops=pace.ops, ratio=pace.ratio)


def _explains(pace: work.Pace, ratio: float) -> bool:
    """Whether the pace of work that did not change is all of the change of the step."""
    return 1 < ratio <= _LEEWAY * pace.ratio or pace.ratio / _LEEWAY <= ratio < 1


def _cautions(base: Sequence[Run], head: Sequence[Run], pace: work.Pace | None, load: Load | None) -> Iterator[Reason]:
    """What else than its speed differs between the sides, and is not the reason of the verdict already."""
    if pace:
        yield _other_machine(pace, load)
    yield from (reason for _, reason in steps.incomparable(base, head)[1:])
    for code, what, keys in (("other_sizes", "shapes", ["name"]), ("other_types", "types", ["name", "shapes"])):
        if ops := work.altered(what, keys, base, head):
            name, before, after = (one_line(text, _LONGEST_SIZE) for text in ops[0])
            yield remark(code, ops=len(ops), op=name, base=before, head=after)


def _basis(before: Side, after: Side) -> Iterator[Reason]:
    """Why the sides' times, and all that is per step, are not compared."""
    sides = (("base", before), ("head", after))
    if unmeasured := [name for name, side in sides if side.per is None]:
        yield remark("not_measured", sides=listing(unmeasured))
    elif unmarked := [name for name, side in sides if side.per == "recording"]:
        yield remark("no_steps", sides=listing(unmarked))


def _unprofiled(base: Sequence[Run], head: Sequence[Run]) -> Iterator[Reason]:
    """The sides' steps without the profiler, where all runs were timed so."""
    times = [[run.source.steps.unprofiled_ms for run in runs] for runs in (base, head)]
    if all(time for side in times for time in side):
        before, after = (fmean(time or 0.0 for time in side) for side in times)
        yield remark("unprofiled", base=before, head=after)


def _notes(base: Sequence[Run], head: Sequence[Run], ranks: frozenset[int]) -> Iterator[Reason]:
    """What a reader should know before trusting the comparison."""
    recorded = {worker.worker for run in [*base, *head] for worker in run.source.workers}
    if recorded > ranks:
        yield remark("common_ranks", ranks=len(ranks), recorded=len(recorded))
    if any(run.source.framework != base[0].source.framework for run in head):
        yield remark("other_frameworks")
    if any(run.source.format != base[0].source.format for run in head):
        yield remark("other_profilers")
    yield from _other_settings(base, head)
    if why := work.hidden([*base, *head]):
        yield remark("hidden_work", why=why)


def _other_settings(base: Sequence[Run], head: Sequence[Run]) -> Iterator[Reason]:
    """The profiler's options that only one side was recorded with; nothing where the profilers differ."""
    if len({run.source.format for run in (*base, *head)}) > 1:
        return
    before, after = (
        {option for run in runs for option in run.source.environment.get("recorded with", "").split(", ") if option}
        for runs in (base, head)
    )
    for side, options in (("base", before - after), ("head", after - before)):
        if options:
            yield remark("settings_of_one_side", side=side, settings=listing(sorted(options)))


def _readings(sides: Sequence[tuple[str, Sequence[Run], Sequence[Unreadable]]]) -> Iterator[Reason]:
    """How the files of each side could be read."""
    for side, runs, unread in sides:
        if not work.has_tables(runs):
            yield remark("no_work_tables", side=side)
        if notes := list(dict.fromkeys(note.words for run in runs for note in run.source.salvaged)):
            note, more = one_line(notes[0], _LONGEST_NOTE), len(notes) - 1
            yield remark("read_with_notes" if more else "read_with_note", side=side, note=note, more=more)
        yield from (_unreadable(file, side) for file in unread[:_MOST_UNREADABLE])
        if len(unread) > _MOST_UNREADABLE:
            yield remark("unreadable_others", side=side, files=len(unread) - _MOST_UNREADABLE)


def _unreadable(file: Unreadable, side: str) -> Reason:
    path, why = (one_line(text, _LONGEST_NOTE) for text in (file.path, file.why))
    code = "unreadable_alike" if file.others else "unreadable"
    return remark(code, side=side, path=path, why=why, others=len(file.others))
