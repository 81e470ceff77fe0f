"""Tables of a fleet's week, built by columns: the amounts of one column have one unit, so that they can be added up."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Final, NamedTuple

from msgspec.structs import replace

from advisor.present import document as doc
from advisor.present.hours import label, money_in, unit_of
from advisor.text import DASH, UNKNOWN, interval

FEW: Final = 8
"""Rows of a table that the one screen shows."""

_TEAM: Final = "Team"
_SAYS_NOTHING: Final = frozenset({"", DASH, label(None)})
_LEFT_OUT: Final = (
    "GPU", "Team", "Jobs", "Idle", "Busy, %", "Of the step", "Before",
    "Was", "New", "Range", "Unknown", "Step", "Runs", "Hours of",
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


class Hours(NamedTuple):
    """A head and the GPU-hours below it, or both ends of their intervals; `none` for what is null."""

    head: str
    amounts: Sequence[tuple[float, ...] | None]
    none: str


def hours(head: str, amounts: Sequence[float | None], *, none: str = UNKNOWN) -> Hours:
    """A column of GPU-hours; `none` for what is null."""
    return Hours(head, [None if amount is None else (amount,) for amount in amounts], none)


def ranges(head: str, lows: Sequence[float], highs: Sequence[float]) -> Hours:
    """A column of intervals of GPU-hours; a dash where there is none."""
    return Hours(head, [(low, high) if high else None for low, high in zip(lows, highs, strict=True)], DASH)


def _in_one_unit(columns: Sequence[Column | Hours]) -> Iterator[Column]:
    """The columns with all GPU-hours in the unit that suits the largest of the table, which their heads name."""
    each = [column for column in columns if isinstance(column, Hours)]
    unit, times = unit_of(amount for column in each for ends in column.amounts for amount in ends or ())
    for column in columns:
        if isinstance(column, Column):
            yield column
            continue
        scaled = [ends and [amount * times for amount in ends] for ends in column.amounts]
        write = money_in([amount for ends in scaled for amount in ends or ()])
        cells = tuple(interval(ends[0], ends[-1], write) if ends else column.none for ends in scaled)
        yield Column(f"{column.head}, {unit}", cells)


def savings(amounts: Sequence[float]) -> Hours:
    """A column of GPU-hours that fixes save; a dash where there is no estimate."""
    return hours("Saves", [amount or None for amount in amounts], none=DASH)


def worth(head: str, amounts: Sequence[float | None], currency: str) -> Column:
    """A column of money; a dash where there is no price or no saving."""
    write = money_in([amount or 0.0 for amount in amounts])
    return Column(f"{head}, {currency}", tuple(write(amount) if amount else DASH for amount in amounts))


def with_sum(amounts: Sequence[float | None]) -> list[float | None]:
    """The amounts after their sum, which is null where all are."""
    known = [amount for amount in amounts if amount is not None]
    return [sum(known) if known else None, *amounts]


def table(  # noqa: PLR0913 - what a table's rows have besides their cells
    columns: Sequence[Column | Hours],
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
    heads = tuple(doc.Head(head, is_number, _rank(head)) for head, _, is_number in of_text)
    size = len(of_text[0].cells)
    cells = [
        [cell if isinstance(cell, doc.Cell) else doc.Cell(cell) for cell in ([""] * size + [*column.cells])[-size:]]
        for column in of_text
    ]
    teams = next((column for head, column in zip(heads, cells, strict=True) if head.text == _TEAM), ())
    groups = groups or ["" if has_sum and not at else cell.text for at, cell in enumerate(teams)] or [None] * size
    bars_of = ([None] * size + [*extents])[-size:]
    about = zip(zip(*cells, strict=True), groups, bars_of, strict=True)
    rows = [doc.Row(row, group=group, extent=extent) for row, group, extent in about]
    if has_sum:
        rows[0] = replace(rows[0], tone="strong")
    of = _informative(doc.Table(heads, tuple(rows), few=FEW, left_out=left_out, bars=bars))
    return replace(of, rows=of.rows[: size - extra], extra=of.rows[size - extra :])


def _rank(head: str) -> int:
    return max((rank for rank, name in enumerate(_LEFT_OUT, 1) if head.startswith(name)), default=0)


def _informative(of: doc.Table) -> doc.Table:
    says = [any(row.cells[at].text not in _SAYS_NOTHING for row in of.rows) for at in range(len(of.heads))]
    says[:1] = [True]
    rows = tuple(replace(row, cells=tuple(compress(row.cells, says))) for row in of.rows)
    return replace(of, heads=tuple(compress(of.heads, says)), rows=rows)


def section(id_: str, title: str, lead: str, of: doc.Table, level: doc.Level = doc.Level.BOTH) -> doc.Section | None:
    """A table under its title; None where it has no row."""
    blocks, is_grouped = (doc.Text(lead, "quiet"), of), any(row.group is not None for row in of.rows)
    return doc.Section(title, blocks, id=id_, is_grouped=is_grouped, level=level) if of.rows else None
