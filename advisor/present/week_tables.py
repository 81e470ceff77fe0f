"""The tables of a fleet's week: rules, findings, teams, runs, changes, hosts, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Final

from advisor.model.week import Change, Group, JobFinding, Realised, RuleTotal, Week
from advisor.present import document as doc
from advisor.present.hours import DASH, gpu_hours, label, money, paid_word, share
from advisor.text import UNKNOWN, count, interval, listing, ms, percent, percents

MOST_ROWS: Final = 40
"""Rows of a table of groups."""

_FEW: Final = 8
_NO_GPU: Final = "none or unknown"
_GROUPS: Final = {"teams": "Team", "models": "Model", "gpus": "GPU"}
_SAYS_NOTHING: Final = frozenset({DASH, label(None)})
# columns that go first where a chat has no room for all, the last one first
_RANKS: Final = {
    name: rank
    for rank, name in enumerate(("Step", "GPU", "Team", "Idle", "Gained", "New", "Range", "Unknown", "Runs"), start=1)
}


def sections(week: Week) -> list[doc.Section]:
    """All tables with rows, the most important first, each without the columns that say nothing in any row."""
    tables = (
        _rules(week),
        _findings(week),
        _groups(week, "teams", week.teams),
        _groups(week, "models", week.models),
        _groups(week, "gpus", week.gpu_types),
        _runs(week),
        _unused(week),
        _changes(week, "regressions", "Slower than in the four weeks before", week.regressions),
        _changes(week, "wins", "Faster than in the four weeks before", week.wins),
        _realised(week),
        _repeats(week),
        _trend(week),
        _unreadable(week),
        _unknown(week),
    )
    return [section for section in tables if section]


# --------------------------------------------------------------------------------------------------------- all tables


def _section(  # noqa: PLR0913 - a table has a place, a title, what to know of it, its columns and its rows
    id_: str,
    title: str,
    lead: str,
    heads: tuple[str, ...],
    rows: Sequence[doc.Row],
    *,
    texts: int = 1,
    left_out: int = 0,
    bars: str = "",
    none: str = "",
    is_grouped: bool = False,
    level: doc.Level = doc.Level.BOTH,
) -> doc.Section | None:
    """A table under its title; the first `texts` columns hold text. None for a table without rows that needs no word.

    `bars` says what the bars of the rows show.
    """
    if not rows and not none:
        return None
    columns = tuple(doc.Head(name, at >= texts, _RANKS.get(name, 0)) for at, name in enumerate(heads))
    table = _informative(doc.Table(columns, tuple(rows), none=none, few=_FEW, left_out=left_out, bars=bars))
    return doc.Section(title, (doc.Text(lead, "quiet"), table), id=id_, is_grouped=is_grouped, level=level)


def _informative(table: doc.Table) -> doc.Table:
    """The table without columns that say nothing in any row; the first one stays."""
    if not table.rows:
        return table
    says = [any(row.cells[at].text not in _SAYS_NOTHING for row in table.rows) for at in range(len(table.heads))]
    says[0] = True
    rows = tuple(replace(row, cells=tuple(compress(row.cells, says))) for row in table.rows)
    return replace(table, heads=tuple(compress(table.heads, says)), rows=rows)


def _cells(*texts: str | doc.Cell) -> tuple[doc.Cell, ...]:
    return tuple(text if isinstance(text, doc.Cell) else doc.Cell(text) for text in texts)


def _hours(amount: float) -> str:
    """An estimate in GPU-hours; a dash where there is none."""
    return gpu_hours(amount) if amount else DASH


def _money(sum_: float | None, week: Week) -> str:
    """An estimate in money; a dash where there is none."""
    return money(sum_ or None, week.prices.currency)


def _paid(hours: float, *, is_estimated: bool) -> str:
    return f"{gpu_hours(hours)}{' recorded' if is_estimated else ''}"


# ------------------------------------------------------------------------------------------------- rules and findings


def _rules(week: Week) -> doc.Section | None:
    longest = max((rule.high for rule in week.rules), default=0.0)
    lead = (
        "Rules by the GPU-hours that their fixes save; a dash where there is no estimate. The saving is the middle of"
        " the range, weighted by how sure the rule is. A link leads to the run with the largest saving."
    )
    return _section(
        "rules",
        "What to fix first",
        lead,
        ("Rule", "Owners or teams", "Saving", "Money", "Range", "Jobs", "New", "Runs"),
        [_rule(rule, week, longest) for rule in week.rules],
        texts=2,
        none="No rule fired.",
        bars="Bars: the dark part is the low end of the range, the light part the high end.",
    )


def _rule(rule: RuleTotal, week: Week, longest: float) -> doc.Row:
    cells = _cells(
        doc.Cell(rule.title, run=rule.run_id, beside=f"[{rule.rule}]"),
        listing(rule.owners) or listing(rule.teams) or DASH,
        _hours(rule.expected),
        _money(rule.money, week),
        interval(rule.low, rule.high, gpu_hours) if rule.high else DASH,
        f"{rule.jobs:,}",
        DASH if week.first else f"{rule.new:,}",
        f"{rule.runs:,}",
    )
    return doc.Row(cells, extent=(rule.low / longest, rule.high / longest) if rule.high else None)


def _findings(week: Week) -> doc.Section | None:
    return _section(
        "findings",
        "Findings",
        f"One row per job and rule, over this week and the {count(week.weeks_before, 'week')} before.",
        ("Finding", "Job", "Team", "Status", "Saving", "Money", "Runs"),
        [_finding(finding, week) for finding in week.findings],
        texts=4,
        left_out=week.findings_left_out,
        is_grouped=True,
        level=doc.Level.BEHIND,
    )


def _finding(finding: JobFinding, week: Week) -> doc.Row:
    is_fixed = finding.status == "fixed"
    numbers = (_hours(finding.expected), _money(finding.money, week), f"{finding.runs:,}")
    cells = _cells(
        doc.Cell(finding.title, run=finding.run_id, beside=f"[{finding.rule}]"),
        finding.job,
        label(finding.team),
        status(finding, first=week.first),
        *(("", "", "") if is_fixed else numbers),
    )
    return doc.Row(cells, group=label(finding.team))


def status(finding: JobFinding, *, first: bool) -> str:
    """What became of a finding; in a `first` week none is new."""
    if first and finding.status == "new":
        return "first week"
    if finding.status == "persisting":
        return f"persisting, {count(finding.weeks, 'week')}"
    return f"suppressed: {finding.reason}" if finding.status == "suppressed" else finding.status


# ------------------------------------------------------------------------------------------------------------- groups


def _groups(week: Week, id_: str, groups: Sequence[Group]) -> doc.Section | None:
    head = _GROUPS[id_]
    longest = max((group.hours.paid for group in groups), default=0.0)
    return _section(
        id_,
        f"{head}s" if id_ != "gpus" else "GPU types",
        "The largest saving first. The hours paid are busy, idle or unknown.",
        (head, "Paid", "Busy", "Idle", "Unknown", "Saving", "Money", "Runs"),
        [_group(group, week, id_, longest) for group in groups[:MOST_ROWS]],
        left_out=max(0, len(groups) - MOST_ROWS),
        is_grouped=id_ == "teams",
        bars="Bars: the GPU-hours paid; the dark part is busy.",
        level=doc.Level.BOTH if id_ == "teams" else doc.Level.BEHIND,
    )


def _group(group: Group, week: Week, id_: str, longest: float) -> doc.Row:
    hours = group.hours
    cells = _cells(
        _NO_GPU if id_ == "gpus" and group.name is None else label(group.name),
        _paid(hours.paid, is_estimated=paid_word(hours) == "recorded"),
        share(hours.busy, hours.paid),
        UNKNOWN if hours.wasted is None else gpu_hours(hours.wasted),
        _hours(hours.unknown),
        _hours(hours.expected),
        _money(hours.expected_money, week),
        f"{hours.runs:,}",
    )
    extent = ((hours.busy or 0.0) / longest, hours.paid / longest) if longest else None
    return doc.Row(cells, group=label(group.name) if id_ == "teams" else None, extent=extent)


# --------------------------------------------------------------------------------------------------------------- runs


def _runs(week: Week) -> doc.Section | None:
    rows = [
        doc.Row(
            _cells(
                doc.Cell(run.name, run=run.run_id),
                run.verdict,
                label(run.team),
                _paid(run.paid, is_estimated=run.estimated),
                gpu_hours(run.expected),
                money(run.money, week.prices.currency),
            ),
            group=label(run.team),
        )
        for run in week.runs
    ]
    return _section(
        "runs",
        "Runs with the largest saving",
        f"The first {len(rows)} of {count(week.coverage.runs, 'run')}.",
        ("Run", "Verdict", "Team", "Paid", "Saving", "Money"),
        rows,
        texts=3,
        is_grouped=True,
        level=doc.Level.BEHIND,
    )


def _unused(week: Week) -> doc.Section | None:
    rows = [
        doc.Row(
            _cells(
                doc.Cell(run.name, run=run.run_id),
                run.first or DASH,
                label(run.team),
                gpu_hours(run.wasted),
                share(run.wasted, week.total.wasted or 0.0),
                _paid(run.paid, is_estimated=run.estimated),
            ),
            group=label(run.team),
        )
        for run in week.unused
    ]
    return _section(
        "unused",
        "Most idle GPU-hours",
        "Runs whose GPUs were idle for the most GPU-hours, whether or not a fix is known.",
        ("Run", "First finding", "Team", "Idle hours", "Of all idle", "Paid"),
        rows,
        texts=3,
        is_grouped=True,
        level=doc.Level.BEHIND,
    )


# ------------------------------------------------------------------------------------------------------------ changes


def _changes(week: Week, id_: str, title: str, changes: Iterable[Change]) -> doc.Section | None:
    lead = "The median step of the job's runs on the same kind and number of GPUs, with its 95 % interval over runs."
    if few := week.too_few_to_compare:
        lead += f" {count(few, 'job')} had too few runs to compare."
    heads = ("Job", "Team", "GPU", "Step", "By", "Runs before and now", "Paid")
    return _section(id_, title, lead, heads, [_change(change) for change in changes], texts=3, is_grouped=True)


def _change(change: Change) -> doc.Row:
    cells = _cells(
        doc.Cell(change.job, run=change.run_id),
        label(change.team),
        change.gpu_type or UNKNOWN,
        f"{ms(change.before_ms)} to {ms(change.after_ms)}",
        _by(change),
        f"{change.runs_before:,} and {change.runs:,}",
        gpu_hours(change.hours),
    )
    return doc.Row(cells, group=label(change.team))


def _by(change: Change) -> str:
    """How much longer or shorter the step got, with its interval: `8 % (6-11 %)`."""
    middle, *ends = (abs(ratio - 1) for ratio in (change.ratio, change.low, change.high))
    return f"{percent(middle)} ({interval(min(ends), max(ends), percent)})"


def _realised(week: Week) -> doc.Section | None:
    complete = sum(fix.kept for fix in week.realised)
    lead = (
        f"{complete} of {count(len(week.realised), 'estimate')} came true. The estimated share of the step, and the"
        " share by which it got shorter; other changes count in it too."
    )
    return _section(
        "realised",
        "Fixed: estimate and result",
        lead,
        ("Job", "Fixed", "Team", "Estimate", "Result", "Gained", "Came true", "Step"),
        [_fix(fix) for fix in week.realised],
        texts=3,
        is_grouped=True,
    )


def _fix(fix: Realised) -> doc.Row:
    cells = _cells(
        doc.Cell(fix.job, run=fix.run_id),
        listing(fix.titles),
        label(fix.team),
        percents(fix.low, fix.high),
        percent(fix.realised),
        gpu_hours(fix.brought) if fix.brought > 0 else "nothing",
        "yes" if fix.kept else "no",
        f"{ms(fix.before_ms)} to {ms(fix.after_ms)}",
    )
    return doc.Row(cells, group=label(fix.team))


def _repeats(week: Week) -> doc.Section | None:
    rows = [
        doc.Row(_cells(host.host, host.gpu or DASH, listing(host.rules), f"{host.named:,} of {host.runs:,}"))
        for host in week.repeats
    ]
    lead = "Hosts whose rank the others waited for in two or more runs. Hosts come from labels."
    return _section("hosts", "Hosts that are slow repeatedly", lead, ("Host", "GPU", "Rules", "Runs"), rows, texts=3)


def _trend(week: Week) -> doc.Section | None:
    rows = [
        doc.Row(
            _cells(
                trend.week,
                share(trend.busy, trend.paid),
                share(trend.wasted, trend.paid),
                share(trend.unknown, trend.paid) if trend.unknown else DASH,
                gpu_hours(trend.paid),
                f"{trend.runs:,}",
            )
        )
        for trend in week.trend
    ]
    lead = "Shares of the GPU-hours paid: busy, idle and unknown are all of them."
    heads = ("Week", "Busy", "Idle", "Unknown", "Paid", "Runs")
    return _section("trend", "Trend", lead, heads, rows, level=doc.Level.BEHIND)


# ----------------------------------------------------------------------------------------------------------- coverage


def _unreadable(week: Week) -> doc.Section | None:
    coverage = week.coverage
    rows = [doc.Row(_cells(reason.why, reason.path, f"{reason.runs:,}")) for reason in coverage.reasons]
    others = coverage.unreadable + coverage.unprofiled - sum(reason.runs for reason in coverage.reasons)
    lead = "`advisor fleet runs` lists all of them."
    if others:
        lead += f" {count(others, 'recording')} have other reasons than these."
    heads = ("Reason", "Example", "Recordings")
    return _section("unreadable", "Could not be read, or without a profile", lead, heads, rows, texts=2)


def _unknown(week: Week) -> doc.Section | None:
    coverage = week.coverage
    rows = [
        doc.Row(_cells(rule, f"{runs:,}", percent(runs / coverage.runs)))
        for rule, runs in coverage.not_evaluable.items()
    ]
    lead = f"Rules that lacked a number, and in how many of {count(coverage.runs, 'run')}."
    if len(coverage.rule_sets) > 1:
        lead += " Runs were judged by different rule sets. Run `advisor fleet rejudge` first."
    heads = ("Rule", "Runs", "Share")
    return _section("unknown", "Could not tell", lead, heads, rows, level=doc.Level.BEHIND)
