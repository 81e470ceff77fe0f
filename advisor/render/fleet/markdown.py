"""A week as Markdown for chat and mail: the verdict, what it came to, then the tables, the long ones cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from advisor.model.week import Week
from advisor.render.fleet import words
from advisor.render.markdown import MOST_CHARACTERS, escape, prose, table, within

_LINES: Final = 8
_LONGEST: Final = 160
_MOST_COLUMNS: Final = 5  # a chat is narrow
# what goes first where there are more
_EXPENDABLE: Final = ("Runs", "Not told", "To win", "New", "Brought", "Wasted", "Team", "GPU", "Step")


def render(week: Week, *, links: str | None = None, most: int = MOST_CHARACTERS) -> str:
    """The week as Markdown.

    Args:
        week: What to draw.
        links: Where the runs' reports lie, as a URL or folder; without it nothing is linked.
        most: Characters at most; tables that would exceed it are left out, and the last line says so.
    """
    return within(list(_blocks(week, links)), most)


def _blocks(week: Week, links: str | None) -> Iterator[str]:
    yield f"### {escape(words.headline(week), 400)}"
    yield "\n".join(f"- {prose(fact)}" for fact in words.facts(week))
    for section in words.sections(week):
        if section.lines:
            yield from _section(section, links)
    yield "\n".join(f"- {escape(caveat)}" for caveat in words.caveats(week))
    yield f"<sub>gpu-advisor {escape(week.advisor_version)}</sub>"


def _section(section: words.Section, links: str | None) -> Iterator[str]:
    left = max(0, len(section.lines) - _LINES) + section.left_out
    section = words.of_columns(section, _columns(section))
    rows = [[_cell(cell, links) for cell in line.cells] for line in section.lines[:_LINES]]
    rest = f"\n\nAnd {left:,} more." if left > 0 else ""
    lead = f"\n\n{prose(section.lead)}" if section.lead else ""
    yield f"**{escape(section.title)}**{lead}\n\n{table(section.heads, rows)}{rest}"


def _columns(section: words.Section) -> list[int]:
    """The most important columns where they are many."""
    expendable = [section.heads.index(head) for head in _EXPENDABLE if head in section.heads[1:]]
    out = expendable[: max(0, len(section.heads) - _MOST_COLUMNS)]
    return [at for at in range(len(section.heads)) if at not in out]


def _cell(cell: words.Cell, links: str | None) -> str:
    text = escape(f"a {cell.text.replace('`', '')}", _LONGEST)[2:]  # what acts at the start of a line is not there
    return f"[{text}](<{links}/{cell.run}.html>)" if links and cell.run else text
