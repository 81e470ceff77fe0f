"""A comparison as a comment on a pull request: the verdict first, everything behind it folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from advisor.model.comparison import Comparison, FindingChange, Verdict, WorkChange
from advisor.render import mermaid
from advisor.render.compared import words
from advisor.render.markdown import MOST_CHARACTERS, details, escape, graded, name, prose, table, within

_MOST_FINDINGS: Final = 5
_MOST_WORK: Final = 15
_MOST_NOTES: Final = 3  # that stand open
_SHAPES: Final[dict[Verdict, str]] = {"slower": "🔴", "faster": "🟢", "same": "⚪", "inconclusive": "🟡"}


def render(found: Comparison, *, most: int = MOST_CHARACTERS) -> str:
    """The comparison as Markdown for GitHub and GitLab.

    Args:
        found: What to draw.
        most: Characters at most; details that would exceed it are left out, and the last line says so.
    """
    return within(list(_blocks(found)), most)


def _blocks(found: Comparison) -> Iterator[str]:
    yield f"### {_SHAPES[found.verdict]} {escape(words.headline(found), 300)}"
    yield f"**{escape(words.counts(found))}**"
    if certainty := words.certainty(found):
        yield escape(certainty)
    yield from (f"**{escape(words.sentence(caution), 300)}**" for caution in found.cautions)
    if chart := _chart(found):
        yield chart
    changes = words.findings(found)
    if changes:
        yield _findings(changes)
    if found.notes[:_MOST_NOTES]:
        yield "\n".join(f"- {escape(note, 300)}" for note in found.notes[:_MOST_NOTES])
    if found.breakdown:
        yield details(words.where(found), _breakdown(found))
    elif unmeasured := words.unmeasured(found):
        yield escape(unmeasured)
    if found.work:
        yield details(f"What changed in the work ({escape(words.work(found))})", *_work(found.work))
    if changes:
        yield details(f"Findings in words ({len(changes)})", "\n".join(map(_told, changes)))
    yield details("What was compared", _compared(found))
    yield f"<sub>gpu-advisor {escape(found.advisor_version)}</sub>"


def _chart(found: Comparison) -> str | None:
    """Both steps, one above the other; what moved most stands out. Shares of unlike wholes have no common axis."""
    if not found.per_step:
        return None
    sides = (
        ("base", [(shift.category, shift.base_ms) for shift in found.breakdown]),
        ("head", [(shift.category, shift.head_ms) for shift in found.breakdown]),
    )
    return mermaid.bars([mermaid.bar(*side) for side in sides], found.cause.category if found.cause else None)


def _findings(changes: Sequence[FindingChange]) -> str:
    rows = [
        (
            f"**{words.STATUSES[c.status]}**" if c.status in {"new", "worse"} else words.STATUSES[c.status],
            _graded(c),
            escape(c.title, 120),
            escape(words.worth(c.base), 120),
            escape(words.worth(c.head), 120),
        )
        for c in changes[:_MOST_FINDINGS]
    ]
    if len(changes) > _MOST_FINDINGS:
        rows.append(("", "", f"and {len(changes) - _MOST_FINDINGS} more", "", ""))
    return table(("", "", "Finding", "A fix saves, base", "A fix saves, head"), rows)


def _graded(change: FindingChange) -> str:
    found = change.head or change.base
    return graded(found.severity) if found and found.severity else ""


def _breakdown(found: Comparison) -> str:
    """The table adds up: parts, their sum, and the way from there to the medians of the headline."""
    return table(
        ("", "", "Base", "Head", "Change"),
        [
            tuple(
                _strong(cell, row)
                for cell in (escape(row.name, 40), escape(row.meaning, 160), *map(escape, words.cells(row)))
            )
            for row in words.rows(found)
        ],
    )


def _strong(cell: str, row: words.Row) -> str:
    return f"**{cell}**" if row.kind == "sum" else cell


def _compared(found: Comparison) -> str:
    lines = [f"base: {words.side(found.base)}", f"head: {words.side(found.head)}", *found.notes[_MOST_NOTES:]]
    return "\n".join(f"- {escape(line)}" for line in lines)


def _work(changes: Sequence[WorkChange]) -> Iterator[str]:
    yield table(
        ("", "What", "Base, per step", "Head, per step", "Change"),
        [
            (
                escape(words.work_status(c)),
                name(c.name) + (f" {escape(words.size(c), 60)}" if c.size else ""),
                escape(words.amount(c.base)),
                escape(words.amount(c.head)),
                escape(words.signed_ms(c.change_ms)),
            )
            for c in changes[:_MOST_WORK]
        ],
    )
    if len(changes) > _MOST_WORK:
        yield f"And {len(changes) - _MOST_WORK} that moved less."


def _told(change: FindingChange) -> str:
    found = change.head or change.base
    why = f" ({escape(change.why)})" if change.why else ""
    return (
        f"- {words.STATUSES[change.status]}: **{escape(change.title, 120)}**{why}: {prose(found.says if found else '')}"
    )
