"""Tables of a fleet's week, built by columns of one unit each; GPU-hours, money and labels in words."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Final, NamedTuple

from msgspec.structs import replace

from advisor.model.week import Hours
from advisor.present import document as doc
from advisor.text import DASH, UNKNOWN, interval, number, percent

_UNITS: Final = (("GPU-h", 1.0), ("GPU-min", 60.0), ("GPU-s", 3600.0))


def label(name: str | None) -> str:
    """A label, or what stands for its absence."""
    return name or "(no label)"


def gpu_hours(hours: float) -> str:
    """An amount of GPU-hours, in the unit that suits it."""
    if not hours or hours >= 0.1:  # noqa: PLR2004 - a smaller decimal hour says little
        return f"{number(hours)} GPU-h"
    return f"{number(hours * 60)} GPU-min" if hours >= 1 / 60 else f"{number(hours * 3600)} GPU-s"


def paid_word(hours: Hours) -> str:
    """`recorded` where no run is labelled with its GPU-hours, else `paid`."""
    return "recorded" if hours.estimated == hours.runs else "paid"


def share(part: float | None, total: float) -> str:
    """A part of a whole in per cent."""
    return UNKNOWN if part is None or not total else percent(part / total)


def with_share(part: float | None, total: float) -> str:
    """`51 GPU-h (34 %)`."""
    if part is None:
        return UNKNOWN
    return f"{gpu_hours(part)} ({percent(part / total)})" if total else gpu_hours(part)


def money(sum_: float | None, currency: str) -> str:
    """An amount of money; a dash where there is no price."""
    return DASH if sum_ is None else f"{amount(sum_)} {currency}"


def amount(sum_: float) -> str:
    """An amount of money without its currency."""
    if 0 < sum_ < 0.01:  # noqa: PLR2004 - a cent
        return "<0.01"
    return f"{sum_:,.0f}" if abs(sum_) >= 100 else number(sum_)  # noqa: PLR2004 - cents say nothing of more


def join(*parts: str) -> str:
    """The parts that are not empty, with commas."""
    return ", ".join(filter(None, parts))


FEW: Final = 8
"""Rows of a table that the one screen shows."""

_SAYS_NOTHING: Final = frozenset({"", DASH, label(None)})
_LEFT_OUT: Final = (
    "GPU", "Team", "Unknown", "Jobs", "Idle", "Busy, %", "Of the step", "Before",
    "Was", "New", "Range", "Step", "Runs", "Hours of",
)  # fmt: skip
"""Columns that go first where there is no room for all, the last one first."""


class Column(NamedTuple):
    """A head and the cells below it."""

    head: str
    cells: Sequence[str | doc.Cell]
    is_number: bool = True


def texts(head: str, cells: Iterable[str | doc.Cell]) -> Column:
    """A column of text."""
    return Column(head, tuple(cells), is_number=False)


def counts(head: str, numbers: Iterable[int | None]) -> Column:
    """A column of counts; empty where there is none."""
    return Column(head, tuple("" if number is None else f"{number:,}" for number in numbers))


class HourColumn(NamedTuple):
    """A head and the GPU-hours below it, or both ends of their intervals; `none` for what is null."""

    head: str
    amounts: Sequence[tuple[float, ...] | None]
    none: str


def hours(head: str, amounts: Sequence[float | None], *, none: str = UNKNOWN) -> HourColumn:
    """A column of GPU-hours; `none` for what is null."""
    return HourColumn(head, [None if amount is None else (amount,) for amount in amounts], none)


def ranges(head: str, lows: Sequence[float], highs: Sequence[float]) -> HourColumn:
    """A column of intervals of GPU-hours; a dash where there is none."""
    return HourColumn(head, [(low, high) if high else None for low, high in zip(lows, highs, strict=True)], DASH)


def _in_one_unit(columns: Sequence[Column | HourColumn]) -> Iterator[Column]:
    """The columns with all GPU-hours in the unit that suits the largest of the table, which their heads name."""
    each = [column for column in columns if isinstance(column, HourColumn)]
    most = max((amount for column in each for ends in column.amounts for amount in ends or ()), default=0.0)
    unit, times = next((unit, times) for unit, times in _UNITS if most * times >= 1 or unit == _UNITS[-1][0])
    for column in columns:
        if isinstance(column, Column):
            yield column
            continue
        scaled = [ends and [amount * times for amount in ends] for ends in column.amounts]
        cells = tuple(interval(ends[0], ends[-1], number) if ends else column.none for ends in scaled)
        yield Column(f"{column.head}, {unit}", cells)


def savings(amounts: Sequence[float]) -> HourColumn:
    """A column of GPU-hours that fixes save; a dash where there is no estimate."""
    return hours("Saves", [amount or None for amount in amounts], none=DASH)


def worth(head: str, amounts: Sequence[float | None], currency: str) -> Column:
    """A column of money; a dash where there is no price or no saving."""
    return Column(f"{head}, {currency}", tuple(amount(of) if of else DASH for of in amounts))


def with_sum(amounts: Sequence[float | None]) -> list[float | None]:
    """The amounts after their sum, which is null where all are."""
    known = [amount for amount in amounts if amount is not None]
    return [sum(known) if known else None, *amounts]


def table(  # noqa: PLR0913 - what a table's rows have besides their cells
    columns: Sequence[Column | HourColumn],
    *,
    groups: Sequence[str | None] = (),
    extents: Sequence[tuple[float, float] | None] = (),
    has_sum: bool = False,
    extra: int = 0,
    left_out: int = 0,
    bars: str = "",
) -> doc.Table:
    """A table without the columns that say nothing in any row; the first one stays.

    `groups` are the teams of the rows, where a page can be narrowed to one and no column says them, and `extents` their
    bars. With `has_sum` the first row is the sum of the others, and empty in the columns that lack it; the last `extra`
    rows are for a page of one team alone.
    """
    of_text = [*_in_one_unit(columns)]
    ranks = [[n for n, name in enumerate(_LEFT_OUT, 1) if head.startswith(name)] for head, *_ in of_text]
    heads = tuple(doc.Head(of[0], of[2], max(of_head, default=0)) for of, of_head in zip(of_text, ranks, strict=True))
    size = len(of_text[0].cells)
    cells = [
        [cell if isinstance(cell, doc.Cell) else doc.Cell(cell) for cell in ([""] * size + [*column.cells])[-size:]]
        for column in of_text
    ]
    teams = next((column for head, column in zip(heads, cells, strict=True) if head.text == "Team"), ())
    groups = groups or ["" if has_sum and not at else cell.text for at, cell in enumerate(teams)] or [None] * size
    bars_of = ([None] * size + [*extents])[-size:]
    says = [not at or any(cell.text not in _SAYS_NOTHING for cell in column) for at, column in enumerate(cells)]
    about = zip(zip(*compress(cells, says), strict=True), groups, bars_of, strict=True)
    rows = [doc.Row(row, group=group, extent=extent) for row, group, extent in about]
    if has_sum:
        rows[0] = replace(rows[0], tone="strong")
    own, more = tuple(rows[: size - extra]), tuple(rows[size - extra :])
    return doc.Table(tuple(compress(heads, says)), own, extra=more, few=FEW, left_out=left_out, bars=bars)


def section(id_: str, title: str, lead: str, of: doc.Table, level: doc.Level = doc.Level.BOTH) -> doc.Section | None:
    """A table under its title; None where it has no row."""
    blocks, is_grouped = (doc.Text(lead, "quiet"), of), any(row.group is not None for row in of.rows)
    return doc.Section(title, blocks, id=id_, is_grouped=is_grouped, level=level) if of.rows else None
