"""A comparison as a comment on a pull request: the verdict first, everything behind it folded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from advisor.comparison import Comparison, FindingChange, Shift, Verdict, WorkChange
from advisor.render.compared import words
from advisor.render.markdown import MOST_CHARACTERS, details, escape, name, prose, table, within
from advisor.text import count, ms

_MOST_FINDINGS: Final = 5
_MOST_WORK: Final = 15
_SHAPES: Final[dict[Verdict, str]] = {"slower": "🔴", "faster": "🟢", "same": "⚪", "inconclusive": "🟡"}
_NO_LETTER: Final = re.compile(r"[^A-Za-z0-9 _]")
_GRAVITY: Final = {"high": "▲ high", "medium": "◆ medium", "low": "● low"}


def render(found: Comparison, *, most: int = MOST_CHARACTERS) -> str:
    """The comparison as Markdown for GitHub and GitLab.

    Args:
        found: What to draw.
        most: Characters at most; details that would exceed it are left out, and the last line says so.
    """
    return within(list(_blocks(found)), most)


def _blocks(found: Comparison) -> Iterator[str]:
    yield f"### {_SHAPES[found.verdict]} {escape(words.headline(found), 300)}"
    if certainty := words.certainty(found):
        yield escape(certainty)
    yield f"base: {escape(words.side(found.base))}<br>head: {escape(words.side(found.head))}"
    changes = words.findings(found)
    if changes:
        yield _findings(changes)
    yield f"{escape(words.tally(found).capitalize())}."
    if found.breakdown:
        yield details("Where a step goes", *_breakdown(found))
    if found.work:
        yield details(f"What changed in the work ({count(len(found.work), 'row')})", *_work(found.work))
    if changes:
        yield details(f"Findings in words ({len(changes)})", "\n".join(map(_told, changes)))
    if found.notes:
        yield "\n".join(f"- {escape(note)}" for note in found.notes)
    yield f"<sub>gpu-advisor {escape(found.advisor_version)}</sub>"


def _findings(changes: Sequence[FindingChange]) -> str:
    rows = [
        (
            f"**{words.STATUSES[c.status]}**" if c.status in {"new", "worse"} else words.STATUSES[c.status],
            _GRAVITY.get(str(c.head.severity if c.head else c.base and c.base.severity), ""),
            escape(c.title, 120),
            escape(words.worth(c.base), 120),
            escape(words.worth(c.head), 120),
        )
        for c in changes[:_MOST_FINDINGS]
    ]
    if len(changes) > _MOST_FINDINGS:
        rows.append(("", "", f"and {len(changes) - _MOST_FINDINGS} more", "", ""))
    return table(("", "", "Finding", "A fix gave back", "A fix gives back"), rows)


def _breakdown(found: Comparison) -> Iterator[str]:
    yield _chart(found)
    yield "Milliseconds a step, outliers left out. Bars: head. Line: base."
    yield table(
        ("Category", "Base", "Head", "Change"),
        [
            (escape(s.category, 40), escape(ms(s.base_ms)), escape(ms(s.head_ms)), escape(words.signed_ms(s.change_ms)))
            for s in words.shifts(found)
        ],
    )


def _chart(found: Comparison) -> str:
    """A Mermaid chart of both breakdowns; its text is ours, a category's name is cut to letters."""
    shown = words.shifts(found)
    names = ", ".join(f'"{_NO_LETTER.sub("", s.category)[:20] or "unnamed"}"' for s in shown)
    base, head = (", ".join(f"{value:.3f}" for value in values) for values in zip(*_columns(shown), strict=True))
    top = max((value for both in _columns(shown) for value in both), default=1)
    axes = [f"  x-axis [{names}]", f'  y-axis "ms a step" 0 --> {1.05 * top:.3f}']
    lines = ["xychart-beta", *axes, f"  bar [{head}]", f"  line [{base}]"]
    return "\n".join(["```mermaid", *lines, "```"])


def _columns(shown: Sequence[Shift]) -> list[tuple[float, float]]:
    return [(shift.base_ms, shift.head_ms) for shift in shown]


def _work(changes: Sequence[WorkChange]) -> Iterator[str]:
    yield table(
        ("", "What", "Base, per step", "Head, per step", "Change"),
        [
            (
                c.status,
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
