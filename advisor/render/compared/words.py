"""What every kind of rendered comparison says in the same words. Nothing here is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from advisor.model.comparison import (
    Amount,
    Comparison,
    FindingChange,
    FindingStatus,
    Found,
    Shift,
    Side,
    WorkChange,
    WorkStatus,
)
from advisor.text import UNKNOWN, count, interval, listing, ms, number, percent, runs_of, us, without_shared_unit
from advisor.vocabulary import CATEGORIES

_MINUS: Final = "\N{MINUS SIGN}"
_NANOSECOND: Final = 1e-6  # in ms
_OTHER_COUNT: Final = 0.05  # by which the number per step has to differ to be told, as in the comparison
_SEEN: Final = 0.005  # of the longer step: categories below it are no bar anybody could see
_TITLES: Final = {"faster": "Faster", "slower": "Slower", "same": "No change", "inconclusive": "Inconclusive"}
STATUSES: Final[dict[FindingStatus, str]] = {
    "new": "new",
    "worse": "worse",
    "gone": "gone",
    "better": "better",
    "kept": "as before",
    "untold": "could not tell",
}
"""What became of a finding, in words."""

_WORK: Final[dict[WorkStatus, str]] = {
    "appeared": "new",
    "vanished": "gone",
    "slower": "slower",
    "faster": "faster",
}


class Flame(NamedTuple):
    """The words around a flame graph; `all` stands on the frame that holds all others."""

    title: str
    says: str
    all: str


def work_status(change: WorkChange) -> str:
    """What became of a kernel or op, in a word or two; a size may come or go while the name stays."""
    if change.status == "count" and change.base and change.head:
        return "more often" if change.head.per_step > change.base.per_step else "less often"
    if change.size and not (change.base and change.head):
        return "new size" if change.head else "size gone"
    told = _WORK.get(change.status, change.status)
    if change.base and change.head and _other_count(change.base.per_step, change.head.per_step):
        return f"{told}, {'more' if change.head.per_step > change.base.per_step else 'fewer'}"
    return told


def _other_count(base: float, head: float) -> bool:
    return abs(head - base) >= _OTHER_COUNT * max(base, head)


def headline(found: Comparison) -> str:
    """The verdict in one line: `Slower: 127 to 177 ms a step (+40 %), above all input (+59 ms)`."""
    title = _TITLES[found.verdict]
    if found.verdict == "inconclusive" or found.change is None:
        return f"{title}: {found.reason}"
    if found.verdict == "same":
        return f"{title}: {ms(found.head.median_ms)} a step ({signed_share(found.change.ratio - 1)})"
    said = f"{title}: {times(found)} a step ({signed_share(found.change.ratio - 1)})"
    if found.cause is None:
        return said
    moved = abs((found.head.median_ms or 0.0) - (found.base.median_ms or 0.0))
    part = "most of it" if moved / 2 <= abs(found.cause.change_ms) <= moved else "above all"
    return f"{said}, {part} {found.cause.category} ({signed_ms(found.cause.change_ms)})"


def sentence(told: str) -> str:
    """A remark that stands for itself."""
    return f"{told[:1].upper()}{told[1:]}."


def times(found: Comparison) -> str:
    """Both medians with one unit: `127 → 177 ms`."""
    before, after = ms(found.base.median_ms), ms(found.head.median_ms)
    return f"{without_shared_unit(before, after)} \N{RIGHTWARDS ARROW} {after}"


def certainty(found: Comparison) -> str:
    """What the verdict rests on: the reason, unless the headline is that, and the interval; empty where neither.

    One step spans no interval.
    """
    reason = "" if found.verdict == "inconclusive" else f"{found.reason[:1].upper()}{found.reason[1:]}. "
    if found.change is None or found.one_recording or found.obstacle in {"hardware", "world-size"}:
        return reason.rstrip()
    change = signed_share(found.change.ratio - 1)
    if min(found.base.steps, found.head.steps) < 2:  # noqa: PLR2004 - one step does not vary
        return f"{reason}The change of the median step is {change}."
    low, high = signed_share(found.change.low - 1), signed_share(found.change.high - 1)
    return f"{reason}The change of the median step is {change}, with 95 % confidence {low} to {high}."


def side(of: Side) -> str:
    """`resnet50: 6 steps, 177 ms at the median, 178 ms on average · Tesla V100`."""
    names = listing([one.run for one in of.series[:3]] + ([f"{len(of.series) - 3} more"] if len(of.series) > 3 else []))  # noqa: PLR2004 - three names are enough
    measured = f"{count(of.steps, 'step')}, {ms(of.median_ms)} at the median, {ms(of.mean_ms)} on average"
    return f"{names}: {measured if of.steps else 'no step times'} · {listing(of.devices) or 'no device'}"


def tally(found: Comparison) -> str:
    """`findings: 1 new, 2 gone, 3 as before; 12 kernels and 4 ops changed`."""
    told = statuses(found)
    changed = f"{work(found)} changed" if found.per_step else "kernels and ops not compared"
    return f"{f'findings: {told}' if told else 'no findings on either side'}; {changed}"


def counts(found: Comparison) -> str:
    """`6 findings: 1 new, 2 gone, 3 as before`, for where the work has a heading of its own."""
    told = statuses(found)
    return f"{count(len(findings(found)), 'finding')}: {told}" if told else "No findings on either side"


def statuses(found: Comparison) -> str:
    """How many findings are new, worse and so on; empty where there is none."""
    shown = Counter(change.status for change in findings(found))
    return ", ".join(f"{shown[status]} {word}" for status, word in STATUSES.items() if shown[status])


def work(found: Comparison) -> str:
    """`12 kernels and 4 ops`."""
    ops = sum(change.work == "op" for change in found.work)
    parts = [count(amount, noun) for amount, noun in ((len(found.work) - ops, "kernel"), (ops, "op")) if amount]
    return listing(parts) or "no kernel or op"


def findings(found: Comparison) -> list[FindingChange]:
    """The findings worth a row; what only was and is a symptom of another is told with that one."""
    return [change for change in found.findings if not _symptom(change)]


def _symptom(change: FindingChange) -> bool:
    return all(side is None or side.under for side in (change.base, change.head)) and change.status in {
        "kept",
        "untold",
    }


def worth(found: Found | None) -> str:
    """What a fix would give back on one side: `30 to 59 ms (17-33 %)`; a dash where there was no finding."""
    if found is None:
        return "\N{EN DASH}"
    if found.under:
        return "part of another finding"
    if found.saving is None or found.saving.high_ms <= 0:
        return "nothing that shows"
    return interval(found.saving.low_ms, found.saving.high_ms)


def amount(of: Amount | None) -> str:
    """How often per step and how long each; a dash where there is none."""
    if of is None:
        return "\N{EN DASH}"
    return f"{number(round(of.per_step, 2))} \N{MULTIPLICATION SIGN} {us(of.mean_us)}"


def size(change: WorkChange) -> str:
    """A kernel's grid and block, a copy's bytes or an op's shapes, with spaces to break at; empty where unknown."""
    return (change.size or "").replace(",", ", ")


class Bar(NamedTuple):
    """One category of one side's step: where it starts and how long it is, as shares of the longer step."""

    category: str
    start: float
    share: float
    ms: float


def bars(found: Comparison) -> tuple[list[Bar], list[Bar]]:
    """Both sides' steps, on one scale."""
    whole, before, after = _wholes(found)
    base = [(s.category, s.base_ms) for s in found.breakdown]
    head = [(s.category, s.head_ms) for s in found.breakdown]
    return (_bars(base, whole), _bars(head, whole)) if found.per_step else (_bars(base, before), _bars(head, after))


def _wholes(found: Comparison) -> tuple[float, float, float]:
    """The longer side's time and each side's, in ms."""
    base, head = sum(s.base_ms for s in found.breakdown), sum(s.head_ms for s in found.breakdown)
    return max(base, head), base, head


def _bars(parts: Sequence[tuple[str, float]], longest: float) -> list[Bar]:
    drawn, start = [], 0.0
    for category, time in parts:
        if time > 0 and longest:
            drawn.append(Bar(category, start, time / longest, time))
            start += time / longest
    return drawn


def shifts(found: Comparison) -> list[Shift]:
    """The categories that take any time worth seeing on either side."""
    whole, *each = _wholes(found)
    base, head = (whole, whole) if found.per_step else each
    return [s for s in found.breakdown if s.base_ms > _SEEN * base or s.head_ms > _SEEN * head]


def flame(found: Comparison) -> Flame | None:
    """What the flame graph of both sides is called; None where there is no head to draw."""
    if not any(frame.head_ms for frame in found.frames):
        return None
    kinds = {frame.kind for frame in found.frames}
    by = [next((kind for kind in ("module", "scope", "annotation") if kind in kinds), None), "operator"]
    top = [frame for frame in found.frames if frame.parent is None]
    whose, others = ("Device", "the host's and the waits are") if found.head.devices else ("Host", "the waits are")
    base, head = sum(frame.base_ms for frame in top), sum(frame.head_ms for frame in top)
    return Flame(
        title=f"{whose} time by {listing([part for part in by if part])}, before and after",
        says=f"The {whose.lower()}'s time alone: {others} in the parts of the step above. "
        "A frame is as wide as its time on the head, and coloured where that changed by 1 % of the whole: "
        "what is gone has no width and is in the table below.",
        all=f"{whose.lower()} time of a step: {ms(head)}, was {ms(base)}",
    )


def where(found: Comparison) -> str:
    """The heading of the breakdown: where a side has no steps, shares of whatever its times are of."""
    return "Where a step goes" if found.per_step else f"Where the time goes, in shares of {_whole_of(found)}"


def _whole_of(found: Comparison) -> str:
    """What the parts add up to on either side: `the recording`, `a step on the base, the recording on the head`."""
    whole = {name: "a step" if of.per == "step" else "the recording" for name, of in _sides(found)}
    if whole["base"] == whole["head"]:
        return whole["base"]
    return ", ".join(f"{what} on the {name}" for name, what in whole.items())


def unmeasured(found: Comparison) -> str:
    """What stands in the place of the parts where a side has none; empty where both have."""
    lacking = [name for name, of in _sides(found) if of.per is None]
    return f"Where a step goes: not measured on the {listing(lacking)}." if lacking else ""


class Row(NamedTuple):
    """A line of the breakdown's table; `kind` tells parts from what they add up to.

    Parts and sums are in ms a step; a share's `base_ms` and `head_ms` are parts of 1.
    """

    kind: Literal["part", "sum", "rest", "share"]
    name: str
    meaning: str
    base_ms: float
    head_ms: float

    @property
    def change_ms(self) -> float:
        """Above zero: it takes longer than before."""
        return self.head_ms - self.base_ms


def cells(row: Row) -> tuple[str, str, str]:
    """A line's base, head and change: durations, or shares whose change is in percentage points."""
    if row.kind == "share":
        points = number(round(100 * abs(row.change_ms), 1))
        sign = _sign(row.change_ms) if points != "0" else _sign(0)
        return percent(row.base_ms), percent(row.head_ms), f"{sign}{points} points"
    shown = signed_ms if row.kind == "rest" else ms
    return shown(row.base_ms), shown(row.head_ms), signed_ms(row.change_ms)


def rows(found: Comparison) -> list[Row]:
    """The parts of the step, their sum, and what leads from it to the median of the headline: all of it adds up.

    The parts are those of the even steps of one rank, on average; the median is of every step, of its slowest rank.
    """
    shown = shifts(found)
    parts = [Row("part", s.category, meaning(s.category), s.base_ms, s.head_ms) for s in shown]
    hidden = [s for s in found.breakdown if s not in shown]
    if any(s.base_ms or s.head_ms for s in hidden):
        less = listing([s.category for s in hidden])
        parts.append(Row("part", "the rest", less, sum(s.base_ms for s in hidden), sum(s.head_ms for s in hidden)))
    base, head = (sum(getattr(row, side) for row in parts) for side in ("base_ms", "head_ms"))
    if not found.per_step:
        return [
            row._replace(kind="share", base_ms=row.base_ms / (base or 1), head_ms=row.head_ms / (head or 1))
            for row in parts
        ]
    before, after = found.base.median_ms, found.head.median_ms
    if not parts or before is None or after is None:
        return parts
    many = any((side.world_size or 0) > 1 for side in (found.base, found.head))
    mover = "outliers, and each step's slowest rank," if many else "outliers"
    return [
        *parts,
        Row("sum", "even steps", f"their mean{_taken_apart(found) if many else ''}", base, head),
        Row("rest", "difference", f"how far {mover} move the median", before - base, after - head),
        Row("sum", "all steps", "their median: the times of the verdict", before, after),
    ]


def moved(row: Row, of: Sequence[Row]) -> bool:
    """Whether the line is one of those that make up the change: a fifth of the largest change of any part, or more."""
    return row.change_ms != 0 and abs(row.change_ms) >= _TELLING * max(abs(one.change_ms) for one in of)


_TELLING: Final = 0.2


def _taken_apart(found: Comparison) -> str:
    """Whose steps the parts are of."""
    base, head = ({one.worker for one in side.series if one.worker is not None} for side in (found.base, found.head))
    if base == head:
        return f", of rank {runs_of(base)}" if base else ""
    return f", of rank {runs_of(base) or UNKNOWN} on the base and {runs_of(head) or UNKNOWN} on the head"


class Strip(NamedTuple):
    """One side's steps on an axis from `low_ms` to `high_ms` that both sides share: positions are shares of it."""

    name: str
    low_ms: float
    high_ms: float
    steps: list[float]
    median: float


def strips(found: Comparison) -> list[Strip]:
    """Both sides' steps, where both have any."""
    times = {name: [t for one in of.series for t in one.steps_ms] for name, of in _sides(found)}
    if not all(times.values()):
        return []
    least, most = min(map(min, times.values())), max(map(max, times.values()))
    room = 0.05 * (most - least) or 0.05 * most
    low, high = max(0.0, least - room), most + room
    return [
        Strip(
            name,
            low,
            high,
            [(t - low) / (high - low) for t in times[name]],
            ((of.median_ms or low) - low) / (high - low),
        )
        for name, of in _sides(found)
    ]


def _sides(found: Comparison) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("base", found.base), ("head", found.head)


def meaning(category: str) -> str:
    """What happens in this part of the step."""
    known = CATEGORIES.get(category)
    return known.meaning if known else ""


def signed_ms(change: float) -> str:
    """A difference of durations with its sign; recordings count whole nanoseconds, so that less is none."""
    change = change if abs(change) >= _NANOSECOND else 0.0
    return f"{_sign(change)}{ms(abs(change))}"


def signed_share(change: float | None) -> str:
    """A difference as a share of 1 with its sign, in percent."""
    return UNKNOWN if change is None else f"{_sign(change)}{percent(abs(change))}"


def _sign(change: float) -> str:
    return "+" if change > 0 else _MINUS if change < 0 else "\N{PLUS-MINUS SIGN}"
