"""Where the step of a comparison changed: both sides as bars on one scale, and a table that adds up to the verdict."""

import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from advisor.model.comparison import Comparison, Shift, Side
from advisor.present import document as doc
from advisor.text import PER_MS, UNKNOWN, listing, number, percent, precise_ms, runs_of, same_scale
from advisor.vocabulary.parts import part_gloss, part_short

_NANOSECOND: Final = 1e-6  # in ms
_VISIBLE: Final = 0.005  # of the longer step: a shorter part is no bar that anybody could see

Kind: TypeAlias = Literal["part", "sum", "share"]


class Row(NamedTuple):
    """A line of the breakdown's table; `kind` separates parts from what they add up to, `part` is the part's code.

    Parts and sums are in ms per step; a share's `base_ms` and `head_ms` are parts of 1.
    """

    kind: Kind
    name: str
    meaning: str
    base_ms: float
    head_ms: float
    part: str | None = None

    @property
    def change_ms(self) -> float:
        """Above zero: it takes longer than before."""
        return self.head_ms - self.base_ms


def breakdown(comparison: Comparison) -> doc.Section | None:
    """Both steps as bars, and the table of their parts; a sentence where a side was not measured."""
    if not comparison.breakdown:
        text = unmeasured(comparison)
        return doc.Section("Where a step goes", (doc.Text(text),), id="breakdown", is_titled=False) if text else None
    lines = rows(comparison)
    leads = [] if comparison.per_step else ["The times of the sides are not of the same thing."]
    if lines[-1].kind == "sum":
        leads.append(
            f"The parts have the shares of the mean usual step{_rank(comparison)}, and add up to the headline."
        )
    blocks: tuple[doc.Block, ...] = (
        *(doc.Text(lead, "quiet", level=doc.Level.BEHIND) for lead in leads),
        bars(comparison),
        _table(lines, doc.Level.SCREEN),
        _table(lines, doc.Level.BEHIND),
    )
    return doc.Section(_title(comparison), blocks, id="breakdown", is_titled=not comparison.per_step, is_lead=True)


def _title(comparison: Comparison) -> str:
    """Where a side has no steps, the parts are shares of whatever its times are of."""
    if comparison.per_step:
        return "Where a step goes"
    wholes = {name: "a step" if of.per == "step" else "the recording" for name, of in _sides(comparison)}
    if wholes["before"] == wholes["after"]:
        return f"Where the time goes, in shares of {wholes['before']}"
    return f"Where the time goes, in shares of {', '.join(f'{what} {name}' for name, what in wholes.items())}"


def unmeasured(comparison: Comparison) -> str:
    """What stands in the place of the parts where a side has none; empty where both have."""
    lacking = [name for name, of in _sides(comparison) if of.per is None]
    return f"Where a step goes: not measured {listing(lacking)} the change." if lacking else ""


def _sides(comparison: Comparison) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("before", comparison.base), ("after", comparison.head)


def bars(comparison: Comparison) -> doc.Bars:
    """Both steps above each other."""
    before, after = ([(s.part, getattr(s, side)) for s in comparison.breakdown] for side in ("base_ms", "head_ms"))
    sides = zip(("before", "after"), (before, after), _wholes(comparison), strict=True)
    pair = tuple(_bar(name, parts, total, has_time=comparison.per_step) for name, parts, total in sides)
    return doc.Bars(pair, legend=False)


def _wholes(comparison: Comparison) -> tuple[float, float]:
    """What the parts of each side are held against, in ms: the longer step, or without steps the side's own time."""
    base, head = (sum(getattr(shift, side) for shift in comparison.breakdown) for side in ("base_ms", "head_ms"))
    return (max(base, head),) * 2 if comparison.per_step else (base, head)


def _bar(name: str, parts: Sequence[tuple[str, float]], longest: float, *, has_time: bool) -> doc.Bar:
    segments = []
    for code, time in (of for of in parts if of[1] > 0):
        size = (time, scaled(longest, time)[0]) if has_time else (None, percent(time / longest))
        segments.append(doc.Segment(code, time / longest, size[0], part_short(code), size[1]))
    return doc.Bar(name, tuple(segments), scaled(longest, sum(time for _, time in parts))[0] if has_time else "")


def scaled(longest: float, *times: float) -> list[str]:
    """Times in ms with the decimals and the unit of the longest, so that each reads the same everywhere."""
    texts, unit = same_scale(longest, *times)
    return [f"{text} {unit}" for text in texts[1:]]


def rows(comparison: Comparison) -> list[Row]:
    """The parts of the step, and their sum, which is the time of the headline; of what has no steps the shares."""
    parts = _parts(comparison)
    base, head = (sum(getattr(row, side) for row in parts) for side in ("base_ms", "head_ms"))
    if not comparison.per_step:
        return [
            row._replace(kind="share", base_ms=row.base_ms / (base or 1), head_ms=row.head_ms / (head or 1))
            for row in parts
        ]
    if not parts or None in comparison.times_ms:
        return parts
    is_mean = comparison.change is not None and comparison.change.of == "mean"
    return _rounded([*parts, Row("sum", "mean of all steps" if is_mean else "median step", "", base, head)])


def _rounded(lines: Sequence[Row]) -> list[Row]:
    """The lines as they are printed, so that they add up: the rest has what rounding leaves, or the longest part."""
    longest = max(lines[:-1], key=lambda row: row.base_ms + row.head_ms)
    texts, unit = same_scale(max(lines[-1].base_ms, lines[-1].head_ms))
    digits = len(texts[0].partition(".")[2]) + round(math.log10(PER_MS[unit]))

    def column(side: str) -> list[float]:
        *parts, total = (round(getattr(row, side), digits) for row in lines)
        rounding = total - sum(parts)
        at = -1 if lines[-2].part is None and parts[-1] + rounding >= 0 else lines.index(longest)
        parts[at] += rounding
        return [*parts, total]

    ends = zip(lines, column("base_ms"), column("head_ms"), strict=True)
    return [row._replace(base_ms=base, head_ms=head) for row, base, head in ends]


def _parts(comparison: Comparison) -> list[Row]:
    """The parts that are long enough to be seen, and the sum of the others."""
    visible = shifts(comparison)
    parts = [Row("part", part_short(s.part), part_gloss(s.part), s.base_ms, s.head_ms, s.part) for s in visible]
    hidden = [s for s in comparison.breakdown if s not in visible]
    if any(s.base_ms or s.head_ms for s in hidden):
        names = listing([part_short(s.part) for s in hidden if s.base_ms or s.head_ms])
        parts.append(Row("part", "the rest", names, sum(s.base_ms for s in hidden), sum(s.head_ms for s in hidden)))
    return parts


def shifts(comparison: Comparison) -> list[Shift]:
    """The parts that take any time worth seeing on either side."""
    base, head = _wholes(comparison)
    return [s for s in comparison.breakdown if s.base_ms > _VISIBLE * base or s.head_ms > _VISIBLE * head]


def _rank(comparison: Comparison) -> str:
    """Whose steps the shares are of; empty where a side has one rank."""
    base, head = (
        {series.worker for series in side.series if series.worker is not None}
        for side in (comparison.base, comparison.head)
    )
    if not base or all((side.world_size or 0) <= 1 for side in (comparison.base, comparison.head)):
        return ""
    if base == head:
        return f" of rank {runs_of(base)}"
    return f" of rank {runs_of(base)} before and {runs_of(head) or UNKNOWN} after"


def _table(lines: Sequence[Row], level: doc.Level) -> doc.Table:
    """A row for each part; what it means is behind the one screen."""
    numbers, table = (doc.Head(text, is_number=True) for text in ("Before", "After", "Change")), list[doc.Row]()
    for row in lines:
        part = doc.Cell(row.name, beside=row.meaning if level is doc.Level.BEHIND else "")
        tone: doc.Tone = "strong" if row.kind == "sum" else "plain"
        table.append(doc.Row((part, *map(doc.Cell, cells(row, lines))), part=row.part, tone=tone))
    return doc.Table((doc.Head("Part"), *numbers), tuple(table), level=level)


def cells(row: Row, lines: Sequence[Row]) -> tuple[str, str, str]:
    """A line's base, head and change: durations in one unit, or shares whose change is in percentage points."""
    if row.kind == "share":
        points = number(round(100 * abs(row.change_ms), 1))
        sign = _sign(row.change_ms if points != "0" else 0)
        return percent(row.base_ms), percent(row.head_ms), f"{sign}{points} points"
    longest = max(max(of.base_ms, of.head_ms) for of in lines)
    base, head, change = scaled(longest, row.base_ms, row.head_ms, abs(row.change_ms))
    return base, head, f"{_sign(0 if change.startswith('0 ') else row.change_ms)}{change}"


def signed_ms(change: float) -> str:
    """A difference of durations with its sign; recordings count whole nanoseconds, so that less is none."""
    change = change if abs(change) >= _NANOSECOND else 0.0
    return f"{_sign(change)}{precise_ms(abs(change))}"


def signed_share(change: float) -> str:
    """A difference as a share of 1 with its sign, in percent."""
    return f"{_sign(change)}{percent(abs(change))}"


def _sign(change: float) -> str:
    return "+" if change > 0 else "\N{MINUS SIGN}" if change < 0 else "\N{PLUS-MINUS SIGN}"
