"""A week on a terminal: the verdict and the tables that tell most."""

from __future__ import annotations

from typing import Final

from advisor.model.week import Week
from advisor.render.fleet import words
from advisor.render.page import Page

_WIDTH: Final = 100
_LINES: Final = 8
_SHOWN: Final = ("rules", "teams", "regressions", "wins", "realised", "hosts", "unreadable")


def render(week: Week, *, width: int = _WIDTH, color: bool = False, unicode: bool = True, verbose: bool = False) -> str:
    """The week as text; `verbose` shows every table, and all of their lines."""
    page = Page(width, color=color, unicode=unicode)
    page.add((words.headline(week), "bold"))
    for fact in words.facts(week):
        page.add(fact, margin=2, hang=2)
    for section in words.sections(week):
        if section.lines and (verbose or section.id in _SHOWN):
            _add(page, section, len(section.lines) if verbose else _LINES)
    page.gap()
    for caveat in words.caveats(week):
        page.add(caveat, hang=2)
    return page.text()


def _add(page: Page, section: words.Section, most: int) -> None:
    page.gap()
    page.add((section.title, "bold"))
    for line in section.lines[:most]:
        first, *others = (cell.text for cell in line.cells)
        told = [f"{head.lower()} {text}" for head, text in zip(section.heads[1:], others, strict=True) if tells(text)]
        page.add((first, "cyan"), margin=2, hang=2)
        page.add(", ".join(told), margin=6)
    folded = max(0, len(section.lines) - most)
    if left := folded + section.left_out:
        page.add(f"and {left:,} more" + ("; -v shows them" if folded else ""), margin=2)


def tells(text: str) -> bool:
    """Whether a cell says anything."""
    return text not in {"", "0", words.label(None), "\N{EN DASH}"}
