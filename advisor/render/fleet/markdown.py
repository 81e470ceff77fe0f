"""A week as Markdown for chat and mail: the verdict, what it came to, then the tables, the long ones cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from advisor.render.fleet import words
from advisor.render.markdown import MOST_CHARACTERS, escape, prose, table, within
from advisor.week import Week

_LINES: Final = 8
_LONGEST: Final = 160


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
    rows = [[_cell(cell, links) for cell in line.cells] for line in section.lines[:_LINES]]
    rest = f"\n\nAnd {left:,} more." if left > 0 else ""
    lead = f"\n\n{prose(section.lead)}" if section.lead else ""
    yield f"**{escape(section.title)}**{lead}\n\n{table(section.heads, rows)}{rest}"


def _cell(cell: words.Cell, links: str | None) -> str:
    text = escape(f"a {cell.text.replace('`', '')}", _LONGEST)[2:]  # what acts at the start of a line is not there
    return f"[{text}](<{links}/{cell.run}.html>)" if links and cell.run else text
