"""What sets one rank, GPU or host of a job apart from the others, and how fast data moves between them."""

import re
from collections import defaultdict
from typing import Final

from advisor.model.finding import Finding
from advisor.model.report import Run, number
from advisor.model.source import Source
from advisor.present.source import member, members, owner, place_name, whose
from advisor.text import DASH, capital, ms, plural, times_as_long

_ALIKE: Final = 0.1
_SEVERAL: Final = 2
_RANKS: Final = re.compile(rf"ranks? ([\d, {DASH}]+)")
_CLEAR: Final = 0.02  # of the step: a shorter wait names nobody


def pace(run: Run) -> str | None:
    """A sentence on a job of several ranks: which sets the pace, which takes longest, which the others wait for.

    `Rank 3 sets the pace: without waits it takes longest, 20 ms a step. The others wait longest for it: 7.8 ms a step,
    the sum of all ranks.` None where the ranks' own times are not known.
    """
    rows = [row for row in run.metrics.get("device", ()) if row.get("own_step_ms") is not None]
    if len(rows) < _SEVERAL or run.source.steps.worker is None:
        return None
    slowest = max(rows, key=lambda row: number(row, "own_step_ms"))
    who, slow = owner(run, run.of_pace), owner(run, slowest)
    is_same, own_ms = who == slow, number(slowest, "own_step_ms")
    longest = f"without waits {'it' if is_same else slow} takes longest, {ms(own_ms)}{_per(run)}"
    sets_pace = "is the slowest of those recorded" if run.source.part else "sets the pace"  # another may be slower
    return capital(f"{who} {sets_pace}{':' if is_same else ';'} {longest}{_awaited(run, who)}.")


def _per(run: Run) -> str:
    return " a step" if run.source.steps.marked else ""


def most_awaited(run: Run) -> tuple[str, float] | None:
    """The rank that the others wait for most, and how long all of them do, in ms per step; None where none waits."""
    waits: defaultdict[str, float] = defaultdict(float)
    for row in run.metrics.get("wait", ()):
        waits[place_name(run.source, row["awaited"], row["awaited_name"])] += number(row, "wait_ms")
    return max(waits.items(), key=lambda wait: wait[1], default=None)


def _awaited(run: Run, setter: str) -> str:
    """That rank and time in words; nothing where no wait is known."""
    most = most_awaited(run)
    if most is None:
        return ""
    awaited, wait_ms = most
    if wait_ms <= _CLEAR * (run.source.steps.step_mean_ms or 0.0):
        return f". The {whose(run.source)}s hardly wait for each other"
    whom = "it" if awaited == setter else f"{awaited}, the last to arrive"
    return f". The others wait longest for {whom}: {ms(wait_ms)}{_per(run)}, the sum of all {whose(run.source)}s"


def slowest_link(run: Run) -> str | None:
    """Where data moves slowest between the ranks; None where links cannot be compared."""
    place, ratio = run.of_job.get("slow_place"), run.of_job.get("slow_place_ratio")
    if not place or not isinstance(ratio, float):
        return None
    if ratio <= 1 + _ALIKE:
        return "no link between ranks is slower than the others"
    return f"transfers {place} take {times_as_long(ratio)} as the same ones elsewhere"


def ranks_of(finding: Finding, source: Source) -> list[int]:
    """The ranks that a finding sets apart: those that it holds for; where that is all, those that it names."""
    if len(finding.scope.workers) < len(source.workers):
        return [*finding.scope.workers]
    words = " ".join(match[1] for of in finding.evidence if (match := _RANKS.match(str(of.value))))
    spans = [(int(first), int(last or first)) for first, last in re.findall(rf"(\d+)(?:{DASH}(\d+))?", words)]
    return [of.worker for of in source.workers if any(first <= of.worker <= last for first, last in spans)]


def reach(finding: Finding, run: Run) -> str | None:
    """The processes that a finding holds for, where there are several: `ranks 0-2, 5 of 8`, `all 8 ranks`."""
    read = len(run.source.workers)
    if read <= 1:
        return None
    workers, worker = finding.scope.workers, finding.scope.told_of
    if len(workers) == read:
        every = f"{'both' if read == _SEVERAL else f'all {read}'} {plural(member(run.source))}"
        where = f"all {read} that were recorded" if run.source.part else every
    else:
        which = members(run.source, workers)
        where = f"{which} of the {read} recorded" if run.source.part else f"{which} of {read}"
    if len(workers) == 1 or worker is None or worker == run.source.steps.worker:
        return where
    return f"{where}; numbers are those of {members(run.source, [worker])}"
