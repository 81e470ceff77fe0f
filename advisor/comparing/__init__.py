"""Two sets of runs held against each other: is the head slower, where did the time go, what changed in the work.

The verdict is about step times alone; everything else explains it and is told whatever the verdict is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Final, TypeAlias

import numpy as np

from advisor.comparing import steps, work
from advisor.comparing.findings import finding_changes, mark_new
from advisor.comparing.steps import LEAST_EFFECT, Load, Pair, pace
from advisor.errors import NoRuns, ReadError
from advisor.model.comparison import Comparison, Frame, PhaseChange, PhaseTimes, Shift, Side, StepChange, Verdict
from advisor.model.finding import Value
from advisor.model.intervals import Floats
from advisor.model.reason import Reason, remark
from advisor.model.report import Run, Unreadable, number
from advisor.model.trials import Trials
from advisor.text import listing, one_line
from advisor.vocabulary.kinds import PHASES
from advisor.vocabulary.parts import LONG, PARTS

__all__ = ["LEAST_EFFECT", "Comparison", "compare", "mark_new"]

_WORTH: Final = 0.001  # of the base's step: work that moves less is not listed
_SAVING_MOVED: Final = 0.01  # of the base's step: a finding whose saving moves less is the same finding
_LEEWAY: Final = 1.1
_HALF: Final = 0.5
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
    `advisor try` measured of the base's fixes. NoRuns where a side has no run; a ReadError where a report measured its
    steps by the ranges that mark them.
    """
    _refuse(base, head)
    phase = compared_phase([*base, *head])
    pair = Pair.of(base, head, unreadable, phase)
    decided, change = steps.verdict(pair), pair.change
    pace = work.pace(base, head) if decided.verdict in {"slower", "faster"} else None
    load = Load.of(pair)
    ratio = change.ratio if pace and change else 1.0  # what the pace of work that did not change may be all of
    is_pace = pace and (1 < ratio <= _LEEWAY * pace.ratio or pace.ratio / _LEEWAY <= ratio < 1)
    if pace and is_pace and not (load and load.is_quiet):
        decided = steps.Decided("inconclusive", _other_machine(pace, load), "machine")
    moved = shifts(pair) if pair.before.per and pair.after.per else ()
    if others := _busy(decided, load, moved):
        decided = steps.Decided("inconclusive", others, "machine")
    step_ms = sum(shift.base_ms for shift in moved) or sum(shift.head_ms for shift in moved)
    return Comparison(
        advisor_version=advisor_version,
        verdict=decided.verdict,
        reason=decided.reason,
        cautions=tuple(_cautions(pair, pace if decided.obstacle != "machine" else None, load)),
        obstacle=decided.obstacle,
        cause=None if phase else cause(decided.verdict, moved),
        change=change and StepChange(**asdict(change), least=steps.least_change(pair.before)),
        base=pair.before,
        head=pair.after,
        breakdown=moved,
        work=work.changes(base, head, _WORTH * step_ms) if pair.is_per_step else (),
        findings=tuple(finding_changes(pair, _SAVING_MOVED * step_ms, trials)),
        frames=frames(base, head) if pair.is_per_step else (),
        phases=phase_changes(pair),
        notes=(
            *_basis(pair),
            *([remark("phase_of_steps", phase=phase)] if phase else ()),
            *notes,
            *_notes(pair),
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
    """Why other programs leave no verdict, in place of a verdict or of noise.

    As far as the recordings noted what these took, they make up half of the change or more.
    """
    if load:
        return load.obstacle if decided.obstacle in {None, "noise"} and decided.reason.code != "one_recording" else None
    change_ms = sum(shift.change_ms for shift in moved)
    for shift in moved if decided.verdict in {"slower", "faster"} and change_ms else ():
        if shift.part == "other_programs" and shift.change_ms / change_ms >= _HALF:
            return remark("other_programs", base=shift.base_ms, head=shift.head_ms)
    return None


def _other_machine(pace: work.Pace, load: Load | None) -> Reason:
    code = "other_machine" if pace.certain else "other_machine_or_work"
    if load and load.is_quiet and pace.certain:
        code = "other_pace"
    return remark(code, ops=pace.ops, ratio=pace.ratio)


def _cautions(pair: Pair, pace: work.Pace | None, load: Load | None) -> Iterator[Reason]:
    """What else than its speed differs between the sides, and is not the reason of the verdict already."""
    if pace:
        yield _other_machine(pace, load)
    yield from (reason for _, reason in steps.incomparable(pair)[1:])
    for code, what, keys in (("other_sizes", "shapes", ["name"]), ("other_types", "types", ["name", "shapes"])):
        if ops := work.altered(what, keys, pair.base, pair.head):
            name, before, after = (one_line(text, 60) for text in ops[0])
            yield remark(code, ops=len(ops), op=name, base=before, head=after)


def _basis(pair: Pair) -> Iterator[Reason]:
    """Why the sides' times, and all that is per step, are not compared; their steps without the profiler, if timed."""
    sides = (("base", pair.before), ("head", pair.after))
    if unmeasured := [name for name, side in sides if side.per is None]:
        yield remark("not_measured", sides=listing(unmeasured))
    elif unmarked := [name for name, side in sides if side.per == "recording"]:
        yield remark("no_steps", sides=listing(unmarked))
    times = [[run.source.steps.unprofiled_ms for run in of_side] for of_side in (pair.base, pair.head)]
    if all(time for side in times for time in side):
        before, after = (fmean(time or 0.0 for time in side) for side in times)
        yield remark("unprofiled", base=before, head=after)


def _notes(pair: Pair) -> Iterator[Reason]:
    base, head = pair.base, pair.head
    recorded = {worker.worker for run in [*base, *head] for worker in run.source.workers}
    if recorded > pair.ranks:
        yield remark("common_ranks", ranks=len(pair.ranks), recorded=len(recorded))
    if any(run.source.framework != base[0].source.framework for run in head):
        yield remark("other_frameworks")
    if any(run.source.format != base[0].source.format for run in head):
        yield remark("other_profilers")
    if len({run.source.format for run in (*base, *head)}) == 1:  # options of one profiler that only one side has
        before, after = (
            {option for run in runs for option in run.source.environment.get("recorded with", "").split(", ") if option}
            for runs in (base, head)
        )
        for side, options in (("base", before - after), ("head", after - before)):
            if options:
                yield remark("settings_of_one_side", side=side, settings=listing(sorted(options)))
    if why := work.hidden([*base, *head]):
        yield remark("hidden_work", why=why)


def _readings(sides: Sequence[tuple[str, Sequence[Run], Sequence[Unreadable]]]) -> Iterator[Reason]:
    for side, runs, unread in sides:
        if not work.has_tables(runs):
            yield remark("no_work_tables", side=side)
        if notes := list(dict.fromkeys(note.words for run in runs for note in run.source.salvaged)):
            note, more = one_line(notes[0], _LONGEST_NOTE), len(notes) - 1
            yield remark("read_with_notes" if more else "read_with_note", side=side, note=note, more=more)
        for file in unread[:_MOST_UNREADABLE]:
            path, why = (one_line(text, _LONGEST_NOTE) for text in (file.path, file.why))
            code = "unreadable_alike" if file.others else "unreadable"
            yield remark(code, side=side, path=path, why=why, others=len(file.others))
        if len(unread) > _MOST_UNREADABLE:
            yield remark("unreadable_others", side=side, files=len(unread) - _MOST_UNREADABLE)


def shifts(pair: Pair) -> tuple[Shift, ...]:
    """The parts of the step that the verdict is about, in ms: those of a side add up to its time.

    A median is of usual steps, so that what long ones add to the mean is no part of it. Without steps the parts are of
    all that was recorded.
    """
    sides = zip((pair.base, pair.head), (pair.before, pair.after), pair.times_ms, strict=True)
    before, after = (_parts(*of_side, pair) for of_side in sides)
    codes = [code for code in PARTS if code in before or code in after]
    return tuple(Shift(part=code, base_ms=before.get(code, 0.0), head_ms=after.get(code, 0.0)) for code in codes)


def _parts(runs: Sequence[Run], side: Side, time_ms: float | None, pair: Pair) -> dict[str, float]:
    """Milliseconds by part: the shares are a mean over the runs."""
    timed = list(filter(None, (_parts_ms(run, pair.ranks, is_unprofiled=side.is_unprofiled) for run in runs)))
    totals: Counter[str] = Counter()
    for parts in timed:
        totals.update(parts)
    if not pair.is_of_means:
        del totals[LONG]
    scale = time_ms / totals.total() if side.per == "step" and time_ms and totals.total() else 1 / max(1, len(timed))
    return {name: total * scale for name, total in totals.items()}


def _parts_ms(run: Run, ranks: frozenset[int], *, is_unprofiled: bool) -> dict[str, float]:
    """Milliseconds per used step of the rank that sets the pace; of the slowest that counts where that one does not.

    They are of the recorded step, with its waits for other programs, unless both sides are of the step without these.
    """
    steps = run.source.steps
    worker = pace(run, ranks)
    if worker == steps.worker and (is_unprofiled or steps.unprofiled_ms is None):
        parts = run.accounting.parts if run.accounting else ()
        return {part.part: part.share * steps.length_ms for part in parts if steps.length_ms}
    rows = [row for row in run.metrics.get("device", ()) if row.get("worker") == worker]
    slowest = max(rows, key=lambda row: number(row, "step_mean_ms"), default={})
    place = slowest.get("worker"), slowest.get("device")
    own = [row for row in run.metrics.get("accounting", ()) if (row.get("worker"), row.get("device")) == place]
    return {str(row["part"]): number(row, "share") * number(slowest, "step_mean_ms") for row in own}


def cause(verdict: Verdict, breakdown: Sequence[Shift]) -> Shift | None:
    """The part that moved most in the verdict's direction."""
    if verdict not in {"slower", "faster"} or not breakdown:
        return None
    sign = 1 if verdict == "slower" else -1
    most = max(breakdown, key=lambda shift: sign * shift.change_ms)
    return most if sign * most.change_ms > 0 else None


_DECODE: Final = "decode"
_NUMBERS: Final = ("step_ms", "idle_share", "launch_share", "communication_share")


def phase_changes(pair: Pair) -> tuple[PhaseChange, ...]:
    """Each phase that a side has; means over its runs."""
    each = ((phase, *(_times(runs, pair.ranks, phase) for runs in (pair.base, pair.head))) for phase in PHASES)
    return tuple(PhaseChange(phase=name, base=before, head=after) for name, before, after in each if before or after)


def compared_phase(runs: Iterable[Run]) -> str | None:
    """The phase whose steps alone are compared: to decode, where steps of a run prefill too and all runs decode.

    How long a prefill takes is up to the prompts, and how many there are, to chance.
    """
    phases = [{row.get("phase") for row in run.metrics.get("step", ())} for run in runs]
    mixes = any(len(of - {None}) > 1 for of in phases)
    return _DECODE if mixes and all(_DECODE in of for of in phases) else None


def _times(runs: Sequence[Run], ranks: frozenset[int], phase: str) -> PhaseTimes | None:
    of_phase = ((run, row) for run in runs for row in run.metrics.get("phase", ()) if row.get("phase") == phase)
    rows = [row for run, row in of_phase if row.get("worker") == pace(run, ranks)]
    steps = sum(number(row, "steps") for row in rows)
    if not steps:
        return None
    means = {name: sum(number(row, name) * number(row, "steps") for row in rows) / steps for name in _NUMBERS}
    return PhaseTimes(steps=int(steps), **means)


_TABLE: Final = "call_tree"
_MOST_FRAMES: Final = 400  # as many as one side has at most; the rest is too small to be seen
_DEEPEST: Final = 500
_TIMES: Final = ("base_ms", "base_self_ms", "head_ms", "head_self_ms")

_Path: TypeAlias = tuple[tuple[str | None, str], ...]  # names and kinds from the top down


def frames(base: Sequence[Run], head: Sequence[Run]) -> tuple[Frame, ...]:
    """Every frame of either side, parents first; nothing where a run has no such tree.

    Frames are the same where they bear the same names along the same path. Of several runs, times are means.
    """
    if not all(run.metrics.get(_TABLE) for run in (*base, *head)):
        return ()
    times: defaultdict[_Path, Floats] = defaultdict(lambda: np.zeros(4))
    for at, runs in ((0, base), (2, head)):
        for path, total_ms, self_ms in (frame for run in runs for frame in _paths(run.metrics[_TABLE])):
            times[path][at : at + 2] += np.array([total_ms, self_ms]) / len(runs)
    longest = sorted(times, key=lambda path: (-float(times[path][::2].max()), len(path)))[:_MOST_FRAMES]
    number = {path: i for i, path in enumerate(sorted(longest, key=lambda path: (len(path), longest.index(path))))}
    each = {path: dict(zip(_TIMES, times[path].tolist(), strict=True)) for path in number}
    return tuple(
        Frame(parent=number[path[:-1]] if len(path) > 1 else None, name=path[-1][0], kind=path[-1][1], **of)
        for path, of in each.items()
    )


def _paths(rows: Sequence[Mapping[str, Value]]) -> Iterator[tuple[_Path, float, float]]:
    """Each frame's path, total and self time; a frame whose parent does not stand before it is left out."""
    paths: dict[Value, _Path] = {None: ()}
    for row in rows:
        above, name, total, own = paths.get(row.get("parent")), row.get("name"), row.get("total_ms"), row.get("self_ms")
        if above is None or len(above) >= _DEEPEST or not isinstance(total, int | float):
            continue
        paths[row.get("id")] = path = (*above, (None if name is None else str(name), str(row.get("kind"))))
        yield path, float(total), float(own) if isinstance(own, int | float) else 0.0
