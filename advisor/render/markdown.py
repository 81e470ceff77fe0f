"""A report as a comment on a pull request or in a chat: GitHub's and GitLab's Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from advisor.model.report import SEVERITIES, Finding, Fix, Report, Run, Severity
from advisor.render import mermaid, words
from advisor.text import UNKNOWN, count, one_line, percent, plain, quantity, shortened

MOST_CHARACTERS: Final = 60_000
"""GitHub refuses a comment of more than 65,536; what calls `render` may want to add a line of its own."""

_MOST_LINES: Final = 40
_TABLE_FINDINGS: Final = 5
_LONGEST: Final = 600  # characters of one text
_LONGEST_CODE: Final = 4000
_SHAPES: Final[dict[Severity, str]] = {"high": "▲", "medium": "◆", "low": "●"}
# What either of the two reads as markup; underscores inside words are none.
_MARKUP: Final = re.compile(r"[\\`*\[\]|<>&~$^@#]|(?<![^\W_])_+|_+(?![^\W_])|^[-+=/]|^\d+[.)](?!\S)")
# Where a sign meets the name or number that it would make a mention, an issue, a label, a link or an emoji.
_REFERENCE: Final = re.compile(
    r'(?<=[@#!%~$^&])(?=[\w"{])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=\bGH)(?=-\d)|(?<=:)(?=[\w+-]+:)', re.IGNORECASE
)
_APART: Final = "\N{ZERO WIDTH SPACE}"


def render(report: Report, *, most: int = MOST_CHARACTERS) -> str:
    """The report as Markdown.

    Args:
        report: What to draw.
        most: Characters at most; details that would exceed it are left out, and the last line says so.
    """
    blocks = [block for run in report.runs for block in _run(run)]
    if len(report.runs) != 1 or report.unreadable:
        blocks = [*_overview(report), *blocks]
    blocks.append(f"<sub>gpu-advisor {escape(report.advisor_version)}</sub>")
    return within(blocks, most)


def escape(text: str, most: int = _LONGEST) -> str:
    """The text on one line, as itself: it formats nothing, links nowhere, mentions nobody and ends no table's cell.

    Signs become character references, which hold in Markdown and in the HTML between it.
    """
    return _escaped(one_line(text, most))


def _escaped(line: str) -> str:
    apart = _REFERENCE.sub(_APART, line)
    return _MARKUP.sub(lambda signs: "".join(map(_reference, signs[0])), apart).replace(_APART, _reference(_APART))


def _reference(sign: str) -> str:
    return sign if sign.isdigit() else f"&#{ord(sign)};"


def prose(text: str) -> str:
    """Escaped text; its `code` spans as such."""
    spans = words.code_spans(one_line(text, _LONGEST))
    return "".join(f"<code>{_escaped(part)}</code>" if code else _escaped(part) for code, part in spans)


def name(text: str) -> str:
    """Escaped text as code."""
    return f"<code>{escape(text, 200)}</code>"


def within(blocks: Sequence[str], most: int) -> str:
    """The blocks up to `most` characters; each is complete in itself, so that the cut breaks none."""
    cut = "Shortened: the full report is in the JSON or HTML file.\n"
    kept: list[str] = []
    room = most - len(cut)
    for block in blocks:
        room -= len(block) + 2
        if room < 0:
            return "\n\n".join([*kept, cut])
        kept.append(block)
    return "\n\n".join(kept) + "\n"


def _overview(report: Report) -> Iterator[str]:
    yield f"### {escape(words.overview(report))}"
    if report.unreadable:
        yield "\n".join(f"- not read: {name(file.path)}: {escape(file.why)}" for file in report.unreadable[:20])


def _run(run: Run) -> Iterator[str]:
    steps = run.source.steps
    yield f"### {escape(run.verdict)}"
    yield " · ".join(
        [f"**{escape(run.name, 100)}**", *(escape(phrase, 200) for phrase in words.what_was_read(run.source))]
    )
    yield f"**{escape(counts(run))}**"
    if chart := _chart(run):
        yield chart
    if run.findings:
        yield _findings(run)
    if order := words.ranking(run):
        yield f"<sub>{escape(order[0].upper() + order[1:])}.</sub>"
    shares = [f"{escape(s.label, 60)} {percent(s.share)}" for s in words.segments(run)]
    yield f"Where {words.whole(steps)} goes: {', '.join(shares) or UNKNOWN}."
    if told := words.headlines(run):
        yield f"In numbers: {escape(', '.join(f'{what} {value}' for what, value in told))}."
    for number, finding in enumerate(run.findings[:_TABLE_FINDINGS], 1):
        yield details(f"{number}. {escape(finding.title, 200)}", *_finding(finding, run))
    if lines := words.pipeline_lines(run):
        rows = "\n".join(f"{'  ' * depth}- {escape(line)}" for depth, line in lines[:_MOST_LINES])
        yield details("The input pipeline of tf.data", rows)
    yield from _unknowns(run)
    yield from _what_was_read(run)


def graded(severity: Severity) -> str:
    """A severity with its sign, on one line however narrow its cell."""
    return f"{_SHAPES[severity]}&nbsp;{severity}"


def counts(run: Run) -> str:
    """`4 findings: 2 high, 1 medium, 1 low; 1 new; 26 rules found nothing; 3 could not be judged`."""
    severities = Counter(finding.severity for finding in run.findings)
    told = ", ".join(f"{severities[one]} {one}" for one in SEVERITIES if severities[one])
    parts = [f"{count(len(run.findings), 'finding')}: {told}" if told else "No findings"]
    if new := sum(finding.new is True for finding in run.findings):
        parts.append(f"{new} new")
    parts.append(f"{count(len(run.passed), 'rule')} found nothing")
    if run.not_evaluable:
        parts.append(f"{len(run.not_evaluable)} could not be judged")
    return "; ".join(parts)


def _chart(run: Run) -> str | None:
    """The step as a bar; what the first finding's fix shortens stands out."""
    step_ms = run.source.steps.step_mean_ms or 0.0
    name = "step" if run.source.steps.marked else "recorded"
    parts = mermaid.bar(name, [(category, share * step_ms) for category, share in run.breakdown.items()])
    first = next((finding.saving for finding in run.findings if finding.saving), None)
    return mermaid.bars([parts], first.of if first else None)


def _findings(run: Run) -> str:
    rows = ["| | Finding | A fix gives back | Confidence |", "| --- | --- | --- | --- |"]
    for finding in run.findings[:_TABLE_FINDINGS]:
        saving = words.saving(finding, run.source.steps) or "not estimated"
        sure = ", ".join(filter(None, (finding.confidence, words.reach(finding, run))))
        severity = f"{graded(finding.severity)}{', **new**' if finding.new else ''}"
        rows.append(f"| {severity} | {escape(finding.title, 200)} | {escape(saving)} | {escape(sure)} |")
    if len(run.findings) > _TABLE_FINDINGS:
        rows.append(f"| | and {len(run.findings) - _TABLE_FINDINGS} more | | |")
    return "\n".join(rows)


def _finding(finding: Finding, run: Run) -> Iterator[str]:
    yield prose(finding.says)
    if finding.symptoms:
        yield "\n".join(f"- also seen: **{escape(s.title, 200)}**: {prose(s.says)}" for s in finding.symptoms)
    mine, others = words.fixes(finding, run.source.framework)
    for fix in (*mine, *others):
        yield from _fix(fix)
    yield f"**Why** {prose(finding.why)}"
    if finding.saving:
        yield f"**Saving** out of {escape(words.pool(finding.saving.of))}: {prose(finding.saving.method)}"
    if finding.evidence:
        yield table(
            ("Evidence", "Value", "Limit", "Meaning"),
            [
                (
                    name(e.metric),
                    escape(quantity(e.value, e.unit)),
                    "" if e.limit is None else escape(quantity(e.limit, e.unit)),
                    prose(e.meaning),
                )
                for e in finding.evidence
            ],
        )
    if finding.where:
        yield "\n".join(f"- {name(place.name)}: {escape(words.spot(place))}" for place in finding.where)


def _fix(fix: Fix) -> Iterator[str]:
    link = words.web_link(fix.link)
    yield f"**Fix ({escape(fix.framework, 40)})** {prose(fix.do)}{f' [Documentation](<{link}>)' if link else ''}"
    if fix.code:
        yield _code(fix.code)


def _code(text: str) -> str:
    """A fenced block; the fence is longer than any in the text."""
    text = shortened(plain(text).rstrip(), _LONGEST_CODE)
    fence = max(["``", *re.findall("`+", text)], key=len) + "`"
    return f"{fence}\n{text}\n{fence}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _unknowns(run: Run) -> Iterator[str]:
    """What could not be told; open where nothing was found, because silence is no health."""
    if not run.not_evaluable:
        return
    lines = [f"- {', '.join(map(name, rules))}: {prose(why)}" for why, rules in words.unknowns(run.not_evaluable)]
    heading = f"What could not be told ({count(len(run.not_evaluable), 'rule')})"
    yield details(heading, "\n".join(lines)) if run.findings else f"**{heading}**\n\n" + "\n".join(lines)


def _what_was_read(run: Run) -> Iterator[str]:
    links = words.bandwidth(run)
    notes = [*run.source.notes, *words.each_rank(run), *([links] if links else [])]
    notes += [f"left out: {which}: {why}" for which, why in words.left_out(run.source)]
    notes += [f"note: {note}" for note in run.source.salvaged]
    notes += [f"lacks {what}: {why.words}" for what, why in run.source.lacks.items()]
    notes += [f"suppressed: {s.rule}: {s.reason}" + (f", until {s.until}" if s.until else "") for s in run.suppressed]
    notes += [words.tally(run)]
    yield details("What was read", "\n".join(f"- {escape(note)}" for note in notes[:50]))


def details(summary: str, *blocks: str) -> str:
    """A folded part; the empty lines make its inside Markdown again."""
    return "\n\n".join([f"<details><summary>{summary}</summary>", *blocks, "</details>"])
