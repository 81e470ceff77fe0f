"""What every kind of rendered comparison says in the same words. Nothing here is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from advisor.comparison import Amount, Comparison, FindingChange, FindingStatus, Found, Shift, Side, WorkChange
from advisor.render import words
from advisor.text import UNKNOWN, count, interval, listing, ms, number, percent, us, without_shared_unit

_MINUS: Final = "\N{MINUS SIGN}"
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


def headline(found: Comparison) -> str:
    """The verdict in one line: `Slower: 127 to 177 ms a step (+40 %), most of it input (+59 ms)`."""
    title = _TITLES[found.verdict]
    if found.verdict == "inconclusive" or found.change is None:
        return f"{title}: {found.reason}"
    if found.verdict == "same":
        return f"{title}: {ms(found.head.median_ms)} a step ({signed_share(found.change.ratio - 1)})"
    said = f"{title}: {times(found)} a step ({signed_share(found.change.ratio - 1)})"
    if found.cause is None:
        return said
    moved = sum(shift.change_ms for shift in found.breakdown)
    part = "most of it" if 2 * abs(found.cause.change_ms) >= abs(moved) else "above all"
    return f"{said}, {part} {found.cause.category} ({signed_ms(found.cause.change_ms)})"


def times(found: Comparison) -> str:
    """Both medians with one unit: `127 → 177 ms`."""
    before, after = ms(found.base.median_ms), ms(found.head.median_ms)
    return f"{without_shared_unit(before, after)} \N{RIGHTWARDS ARROW} {after}"


def certainty(found: Comparison) -> str:
    """What the verdict rests on: the reason, unless the headline is that, and the interval; empty where neither.

    One step spans no interval.
    """
    reason = "" if found.verdict == "inconclusive" else f"{found.reason[:1].upper()}{found.reason[1:]}. "
    if found.change is None or found.obstacle in {"hardware", "world-size"}:
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
    """`1 new finding (high), 2 gone, 3 as before; 12 kernels and 4 ops differ`."""
    return f"{_findings(found.findings)}; {_work(found.work)}"


def _findings(changes: Sequence[FindingChange]) -> str:
    shown = Counter(change.status for change in changes if not _symptom(change))
    parts = [f"{shown[status]} {word}" for status, word in STATUSES.items() if shown[status]]
    return f"findings: {', '.join(parts)}" if parts else "no findings on either side"


def _work(changes: Sequence[WorkChange]) -> str:
    ops = sum(change.work == "op" for change in changes)
    parts = [count(amount, noun) for amount, noun in ((len(changes) - ops, "kernel"), (ops, "op")) if amount]
    return f"{listing(parts)} changed" if parts else "no kernel or op changed"


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
    longest = max(sum(s.base_ms for s in found.breakdown), sum(s.head_ms for s in found.breakdown))
    return (
        _bars([(s.category, s.base_ms) for s in found.breakdown], longest),
        _bars([(s.category, s.head_ms) for s in found.breakdown], longest),
    )


def _bars(parts: Sequence[tuple[str, float]], longest: float) -> list[Bar]:
    drawn, start = [], 0.0
    for category, time in parts:
        if time > 0 and longest:
            drawn.append(Bar(category, start, time / longest, time))
            start += time / longest
    return drawn


def shifts(found: Comparison) -> list[Shift]:
    """The categories that take any time worth seeing on either side."""
    longest = max(sum(s.base_ms for s in found.breakdown), sum(s.head_ms for s in found.breakdown))
    return [s for s in found.breakdown if max(s.base_ms, s.head_ms) > _SEEN * longest]


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
    return words.CATEGORIES.get(category, "")


def signed_ms(change: float) -> str:
    """A difference of durations with its sign."""
    return f"{_sign(change)}{ms(abs(change))}"


def signed_share(change: float | None) -> str:
    """A difference as a share of 1 with its sign, in percent."""
    return UNKNOWN if change is None else f"{_sign(change)}{percent(abs(change))}"


def _sign(change: float) -> str:
    return "+" if change > 0 else _MINUS if change < 0 else "\N{PLUS-MINUS SIGN}"
