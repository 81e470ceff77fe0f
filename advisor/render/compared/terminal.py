"""A comparison for a terminal: one screen, and with `verbose` everything behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from advisor.model.comparison import Comparison, FindingChange, FindingStatus, Verdict, WorkChange
from advisor.render.compared import words
from advisor.render.page import Page
from advisor.text import count, one_line, shortened

_STYLES: Final[dict[Verdict, str]] = {
    "slower": "bold red",
    "faster": "bold green",
    "same": "bold",
    "inconclusive": "bold yellow",
}
_MARKS: Final[dict[FindingStatus, str]] = {"new": "bold red", "worse": "bold red", "gone": "green", "better": "green"}
_FILLS: Final = "█▓▒░═─┄·:"
_FILL_STYLES: Final = ("cyan", "magenta", "yellow", "blue", "green", "red", "bright_cyan", "bright_magenta", "white")
_NARROW, _WIDE = 60, 110
_MARGIN: Final = 3
_MOST_FINDINGS, _MOST_WORK = 6, 8
_LABEL: Final = 6
_NAMED_AT: Final = 56  # column at which the name of a kernel or op starts


def render(
    found: Comparison, *, verbose: bool = False, width: int = 80, color: bool = False, unicode: bool = True
) -> str:
    """The comparison as lines of text; the arguments are those of `advisor.render.terminal.render`."""
    page = Page(max(_NARROW, min(width, _WIDE)), color=color, unicode=unicode)
    page.add((words.headline(found), _STYLES[found.verdict]), hang=_MARGIN)
    if certainty := words.certainty(found):
        page.add(certainty, margin=_MARGIN)
    for caution in found.cautions:
        page.add((words.sentence(caution), "bold"), margin=_MARGIN)
    page.add(("base  ", "bold"), words.side(found.base), hang=_LABEL)
    page.add(("head  ", "bold"), words.side(found.head), hang=_LABEL)
    for note in found.notes:
        page.add((note, "dim"), margin=_MARGIN, hang=_MARGIN)
    page.gap()
    if found.breakdown:
        _breakdown(page, found, verbose=verbose)
    elif unmeasured := words.unmeasured(found):
        page.add(unmeasured)
        page.gap()
    _findings(page, words.findings(found), verbose=verbose)
    _work(page, found.work, verbose=verbose)
    page.add((words.tally(found), "dim"), hang=_MARGIN)
    return page.text()


def _breakdown(page: Page, found: Comparison, *, verbose: bool) -> None:
    """Both steps as bars on one scale, and what moved; what a part means where there is room for it."""
    if not found.per_step:
        page.add((words.where(found), "bold"))
    order = {s.category: number for number, s in enumerate(words.shifts(found))}
    for label, bars in zip(("base", "head"), words.bars(found), strict=True):
        shown = [bar for bar in bars if bar.category in order]
        room = page.width - _LABEL
        ends = [round(room * min(bar.start + bar.share, 1.0)) for bar in shown]
        lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        drawn = [
            (_fill(order[bar.category]) * n, _style(order[bar.category])) for bar, n in zip(shown, lengths, strict=True)
        ]
        page.add((f"{label:{_LABEL}}", "bold"), *drawn)
    for row in words.rows(found):
        number = order.get(row.name)
        base, head, change = words.cells(row)
        width = 12 if row.kind == "share" else 8
        told = f" {shortened(one_line(row.name), 20):20} {base:>8} {head:>8} {change:>{width}}"
        fits = _LABEL + 1 + len(told) + 2 + len(row.meaning) <= page.width
        told += f"  {row.meaning}" if fits else ""
        swatch = (" ", "") if number is None else (_fill(number), _style(number))
        page.add(swatch, (told, "bold" if row.kind == "sum" else ""), margin=_LABEL, most=1)
        if verbose and row.meaning and not fits:
            page.add((row.meaning, "dim"), margin=_LABEL + 2)
    page.gap()


def _fill(number: int) -> str:
    return _FILLS[number % len(_FILLS)]


def _style(number: int) -> str:
    return _FILL_STYLES[number % len(_FILL_STYLES)]


def _findings(page: Page, changes: Sequence[FindingChange], *, verbose: bool) -> None:
    shown = changes if verbose else changes[:_MOST_FINDINGS]
    for change in shown:
        found = change.head or change.base
        worth = found and words.worth(found)
        said = f"{words.STATUSES[change.status]:10}"
        page.add(
            (said, _MARKS.get(change.status, "dim")),
            f" {change.title}",
            (f"  {worth}" if worth else "", "dim"),
            hang=11,
        )
        if change.why:
            page.add((change.why, "dim"), margin=11, most=None if verbose else 1)
        if verbose and found:
            page.add(found.says, margin=11)
    if len(changes) > len(shown):
        page.add(f"and {count(len(changes) - len(shown), 'more finding')}", margin=11)
    if changes:
        page.gap()


def _work(page: Page, changes: Sequence[WorkChange], *, verbose: bool) -> None:
    shown = changes if verbose else changes[:_MOST_WORK]
    for change in shown:
        amounts = f"{words.amount(change.base)} \N{RIGHTWARDS ARROW} {words.amount(change.head)}"
        start = f"{words.work_status(change):13} {words.signed_ms(change.change_ms):>9}  "
        amounts = f"{amounts:{_NAMED_AT - len(start) - 2}}  "
        if verbose:
            page.add(start, (amounts, "dim"))
            page.add(f"{change.name} ", (words.size(change), "dim"), margin=len(start), hang=_MARGIN)
        else:
            page.add(start, (amounts, "dim"), _sized(change, page.width - _NAMED_AT), most=1)
    if len(changes) > len(shown):
        page.add(f"and {len(changes) - len(shown)} kernels and ops that moved less; -v shows them", margin=_MARGIN)
    if changes:
        page.gap()


def _sized(change: WorkChange, room: int) -> str:
    """Name and size; where there is no room for both, the size keeps half of it: it tells rows of one name apart."""
    name, size = one_line(change.name), one_line(words.size(change))
    if not size:
        return shortened(name, room)
    kept = shortened(size, max(room // 2, room - len(name) - 1))
    return f"{shortened(name, room - len(kept) - 1)} {kept}"
