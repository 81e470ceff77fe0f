"""Two sets of runs held against each other: is the head slower, where did the time go, what changed in the work.

The verdict is about step times alone; everything else explains it and is told whatever the verdict is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from advisor.comparing import steps, work
from advisor.comparing.breakdown import cause, shifts
from advisor.comparing.findings import finding_changes, mark_new
from advisor.comparing.modules import frames
from advisor.comparing.steps import LEAST_EFFECT
from advisor.errors import NoRuns
from advisor.model.comparison import Comparison, Side
from advisor.model.report import Run, Unreadable
from advisor.text import count, listing, one_line

__all__ = ["LEAST_EFFECT", "Comparison", "compare", "mark_new"]

_WORTH: Final = 0.001  # of the base's step: work that moves less is not listed
_SAVING_MOVED: Final = 0.01  # of the base's step: a finding whose saving moves less is the same finding
_LONGEST_SIZE: Final = 60
_LONGEST_NOTE: Final = 300
_MOST_UNREADABLE: Final = 3  # that are named, of each side


def compare(
    base: Sequence[Run],
    head: Sequence[Run],
    *,
    advisor_version: str,
    unreadable: tuple[Sequence[Unreadable], Sequence[Unreadable]] = ((), ()),
    notes: Sequence[str] = (),
) -> Comparison:
    """The head's runs against the base's.

    Args:
        base: At least one run of the job before the change.
        head: At least one run of it after the change.
        advisor_version: Ours.
        unreadable: What could not be read of the base and of the head.
        notes: What the reader should know besides.

    Raises:
        NoRuns: a side has no run.
    """
    if not base or not head:
        raise NoRuns(f"{'base' if not base else 'head'}: no run to compare")
    ranks = steps.common_ranks([*base, *head])
    before, after = (steps.side(runs, ranks, files) for runs, files in zip((base, head), unreadable, strict=True))
    change = steps.contrasted(before, after)
    decided = steps.verdict(base, head, before, after, change)
    per_step = before.per == after.per == "step"
    moved = shifts(base, head, ranks) if before.per and after.per else ()
    step_ms = sum(shift.base_ms for shift in moved) or sum(shift.head_ms for shift in moved)
    return Comparison(
        advisor_version=advisor_version,
        verdict=decided.verdict,
        reason=decided.reason,
        cautions=tuple(_cautions(base, head)),
        obstacle=decided.obstacle,
        cause=cause(decided.verdict, moved),
        change=change and steps.step_change(change, before),
        base=before,
        head=after,
        breakdown=moved,
        work=work.changes(base, head, _WORTH * step_ms) if per_step else (),
        findings=tuple(finding_changes(base, head, (before.per, after.per), _SAVING_MOVED * step_ms)),
        frames=frames(base, head) if per_step else (),
        notes=(*_basis(before, after), *notes, *_notes(base, head, ranks, unreadable)),
    )


def _cautions(base: Sequence[Run], head: Sequence[Run]) -> Iterator[str]:
    """What else than its speed differs in a step."""
    if others := work.resized(base, head):
        first = others[0]
        sizes = " \N{RIGHTWARDS ARROW} ".join(one_line(size, _LONGEST_SIZE) for size in (first.base, first.head))
        resized_ops = f"{count(len(others), 'op')} {'has' if len(others) == 1 else 'have'} other sizes"
        yield f"the work of a step differs: {resized_ops} ({one_line(first.name, _LONGEST_SIZE)} {sizes})"


def _basis(before: Side, after: Side) -> Iterator[str]:
    """Why the sides' times, and all that is told per step, are not held against each other."""
    sides = (("base", before), ("head", after))
    if unmeasured := [name for name, side in sides if side.per is None]:
        yield (
            f"not measured: the {listing(unmeasured)}; neither the parts of the step nor kernels and ops are compared, "
            "and what one side found may be on the other too"
        )
    elif unmarked := [name for name, side in sides if side.per == "recording"]:
        yield (
            f"no steps on the {listing(unmarked)}, so that its times are of all that was recorded: the parts are "
            "compared as shares, kernels and ops not at all"
        )


def _notes(
    base: Sequence[Run],
    head: Sequence[Run],
    ranks: frozenset[int],
    unreadable: tuple[Sequence[Unreadable], Sequence[Unreadable]],
) -> Iterator[str]:
    """What a reader should know before trusting the comparison."""
    recorded = {worker.worker for run in [*base, *head] for worker in run.source.workers}
    if recorded > ranks:
        yield f"step times are those of the {count(len(ranks), 'rank')} that all runs recorded, of {len(recorded)}"
    if any(first != other for first, other in _pairs(base, head, lambda run: run.source.framework)):
        yield "the sides were recorded with different frameworks"
    if any(first != other for first, other in _pairs(base, head, lambda run: run.source.format)):
        yield "the sides were recorded with different profilers: names of work may differ for that alone"
    if other := _other_settings(base, head):
        yield f"recorded with other settings: {other}"
    if why := work.hidden([*base, *head]):
        yield f"kernels and copies: could not tell which are new, gone or done more often: {why}"
    for name, runs, files in zip(("base", "head"), (base, head), unreadable, strict=True):
        if not work.has_sizes(runs):
            yield f"the {name} is a report without tables of kernels and ops: write it again from its profile"
        if read := list(dict.fromkeys(note for run in runs for note in run.source.salvaged)):
            more = f" (and {len(read) - 1} more)" if len(read) > 1 else ""
            yield f"noted while reading the {name}: {one_line(read[0], _LONGEST_NOTE)}{more}"
        yield from (f"not read of the {name}: {_unread(file)}" for file in files[:_MOST_UNREADABLE])
        if len(files) > _MOST_UNREADABLE:
            yield f"not read of the {name}: {count(len(files) - _MOST_UNREADABLE, 'more file')}"


def _other_settings(base: Sequence[Run], head: Sequence[Run]) -> str | None:
    """The profiler's options that only one side was recorded with; None where none is, or the profilers differ."""
    if len({run.source.format for run in (*base, *head)}) > 1:
        return None
    before, after = (
        {option for run in runs for option in run.source.environment.get("recorded with", "").split(", ") if option}
        for runs in (base, head)
    )
    only = (("base", before - after), ("head", after - before))
    return "; ".join(f"only the {side} with {listing(sorted(options))}" for side, options in only if options) or None


def _unread(file: Unreadable) -> str:
    others = f" (and {count(len(file.others), 'more file')} for the same reason)" if file.others else ""
    return f"{one_line(file.path, _LONGEST_NOTE)}: {one_line(file.why, _LONGEST_NOTE)}{others}"


def _pairs(base: Sequence[Run], head: Sequence[Run], of: Callable[[Run], object]) -> Iterator[tuple[object, object]]:
    return zip([of(base[0])] * len(head), map(of, head), strict=True)
