"""The tables of a fleet's week: rules, findings, teams, runs, hosts, and what could not be read."""

from collections.abc import Sequence
from typing import Final

from advisor.model.week import Group, JobFinding, Week
from advisor.present import document as doc
from advisor.present import table_builder as columns
from advisor.present.hours import label, paid_word, share
from advisor.present.week_changes import changes, realised
from advisor.text import DASH, count, listing, percent

MOST_ROWS: Final = 40
"""Rows of a table of groups."""

_NO_GPU: Final = "none or unknown"
_GROUPS: Final = {"teams": ("Team", "Teams"), "models": ("Model", "Models"), "gpus": ("GPU", "GPU types")}


def sections(week: Week) -> list[doc.Section]:
    """All tables with rows, the most important first, each without the columns that say nothing in any row."""
    tables = (
        realised(week),
        changes(week, "regressions", "Slower than in the four weeks before", week.regressions),
        changes(week, "wins", "Faster than in the four weeks before", week.wins),
        _groups(week, "teams", week.teams),
        _rules(week),
        _repeats(week),
        _findings(week),
        _groups(week, "models", week.models),
        _groups(week, "gpus", week.gpu_types),
        _runs(week),
        _unused(week),
        _unreadable(week),
        _unknown(week),
    )
    return [section for section in tables if section]


def _rules(week: Week) -> doc.Section | None:
    rules = week.rules
    longest = max((rule.high for rule in rules), default=0.0)
    low, high = (_sum([getattr(rule, end) for rule in rules]) for end in ("low", "high"))
    new = [None if week.first else rule.new for rule in rules]
    table = columns.table(
        [
            columns.texts(
                "Finding",
                ["All findings", *(doc.Cell(rule.title, run=rule.run_id, beside=f"[{rule.rule}]") for rule in rules)],
            ),
            columns.texts("Owners or teams", (listing(rule.owners) or listing(rule.teams) or DASH for rule in rules)),
            columns.savings(_sum([rule.expected for rule in rules])),
            columns.worth("Worth", columns.with_sum([rule.money for rule in rules]), week.prices.currency),
            columns.ranges("Range", low, high),
            columns.counts("New", [None if week.first else sum(rule.new for rule in rules), *new]),
            columns.counts("Jobs", (rule.jobs for rule in rules)),
            columns.counts("Runs", (rule.runs for rule in rules)),
        ],
        extents=[(rule.low / longest, rule.high / longest) if rule.high else None for rule in rules],
        has_sum=True,
        bars="Bars: the first part is the low end of the range, the whole bar the high end." if longest else "",
    )
    lead = (
        "The saving is the middle of the range, weighted by how sure the rule is; a dash where there is no estimate."
        " A job can have several findings."
    )
    return columns.section("rules", "Savings by finding", lead, table) if rules else None


def _sum(amounts: Sequence[float]) -> list[float]:
    return [sum(amounts), *amounts]


def _findings(week: Week) -> doc.Section | None:
    findings = week.findings
    table = columns.table(
        [
            columns.texts("Finding", (doc.Cell(f.title, run=f.run_id, beside=f"[{f.rule}]") for f in findings)),
            columns.texts("Job", (finding.job for finding in findings)),
            columns.texts("Team", (label(finding.team) for finding in findings)),
            columns.texts("Status", (status(finding, first=week.first) for finding in findings)),
            columns.savings([finding.expected for finding in findings]),
            columns.worth("Worth", [finding.money for finding in findings], week.prices.currency),
            columns.counts("Runs", [None if f.status == "fixed" else f.runs for f in findings]),
        ],
        left_out=week.findings_left_out,
    )
    lead = f"One row per job and rule, over this week and the {count(week.weeks_before, 'week')} before."
    return columns.section("findings", "Findings by job", lead, table, level=doc.Level.BEHIND)


def status(finding: JobFinding, *, first: bool) -> str:
    """What became of a finding; in a `first` week none is new."""
    if first and finding.status == "new":
        return "first week"
    if finding.status == "persisting":
        return f"persisting, {count(finding.weeks, 'week')}"
    return f"suppressed: {finding.reason}" if finding.status == "suppressed" else finding.status


def _groups(week: Week, id_: str, groups: Sequence[Group]) -> doc.Section | None:
    head, title = _GROUPS[id_]
    top = groups[:MOST_ROWS]
    names = [_NO_GPU if id_ == "gpus" and group.name is None else label(group.name) for group in top]
    has_sum = len(groups) > 1
    hours = [*([week.total] if has_sum else []), *(group.hours for group in top)]
    longest = max((group.hours.paid for group in top), default=0.0)
    paid = paid_word(week.total).capitalize()
    table = columns.table(
        [
            columns.texts(head, [*(["All"] if has_sum else []), *names]),
            columns.hours(paid, [of.paid for of in hours]),
            columns.hours("Busy", [of.busy for of in hours]),
            columns.hours("Idle", [of.wasted for of in hours]),
            columns.hours("Unknown", [of.unknown or None for of in hours], none=DASH),
            columns.Column("Busy, %", [share(of.busy, of.paid) for of in hours]),
            columns.savings([of.expected for of in hours]),
            columns.worth("Worth", [of.expected_money for of in hours], week.prices.currency),
            columns.counts("Runs", [of.runs for of in hours]),
        ],
        extents=[((of.hours.busy or 0.0) / longest, of.hours.paid / longest) if longest else None for of in top],
        has_sum=has_sum,
        left_out=max(0, len(groups) - MOST_ROWS),
        bars=f"Bars: the hours {paid.lower()}; their first part is busy.",
    )
    return columns.section(
        id_,
        title,
        f"Hours {paid.lower()} are busy, idle or unknown; the three add up. The largest saving comes first.",
        table,
        level=doc.Level.BOTH if id_ == "teams" else doc.Level.BEHIND,
    )


def _runs(week: Week) -> doc.Section | None:
    runs = week.runs
    table = columns.table(
        [
            columns.texts("Run", (doc.Cell(run.name, run=run.run_id) for run in runs)),
            columns.texts("Team", (label(run.team) for run in runs)),
            columns.hours("Paid", [run.paid for run in runs]),
            columns.texts("Hours of", ["recorded steps" if run.estimated else "" for run in runs]),
            columns.savings([run.expected for run in runs]),
            columns.worth("Worth", [run.money for run in runs], week.prices.currency),
            columns.texts("Verdict", (run.verdict for run in runs)),
        ]
    )
    lead = f"The first {len(runs)} of {count(week.coverage.runs, 'run')}."
    return columns.section("runs", "Runs with the largest saving", lead, table, level=doc.Level.BEHIND)


def _unused(week: Week) -> doc.Section | None:
    runs = week.unused
    table = columns.table(
        [
            columns.texts("Run", (doc.Cell(run.name, run=run.run_id) for run in runs)),
            columns.texts("First finding", (run.first or DASH for run in runs)),
            columns.texts("Team", (label(run.team) for run in runs)),
            columns.hours("Wasted", [run.wasted for run in runs]),
            columns.Column("Of its hours", [share(run.wasted, run.paid) for run in runs]),
            columns.hours("Paid", [run.paid for run in runs]),
            columns.texts("Hours of", ["recorded steps" if run.estimated else "" for run in runs]),
        ]
    )
    lead = "Runs with the most GPU-hours that are lost, or that a fix saves."
    return columns.section("unused", "Most wasted GPU-hours", lead, table, level=doc.Level.BEHIND)


def _repeats(week: Week) -> doc.Section | None:
    hosts = week.repeats
    table = columns.table(
        [
            columns.texts("Host", (host.host for host in hosts)),
            columns.texts("GPU", (host.gpu or DASH for host in hosts)),
            columns.texts("Rules", (listing(host.rules) for host in hosts)),
            columns.Column("Runs", [f"{host.named:,} of {host.runs:,}" for host in hosts]),
        ]
    )
    lead = "Hosts whose rank the others waited for in two or more runs. Hosts come from labels."
    return columns.section("hosts", "Hosts that are slow repeatedly", lead, table)


def _unreadable(week: Week) -> doc.Section | None:
    coverage = week.coverage
    table = columns.table(
        [
            columns.texts("Reason", (reason.why for reason in coverage.reasons)),
            columns.texts("Example", (reason.path for reason in coverage.reasons)),
            columns.counts("Recordings", [reason.runs for reason in coverage.reasons]),
        ]
    )
    others = coverage.unreadable + coverage.unprofiled - sum(reason.runs for reason in coverage.reasons)
    lead = "`advisor fleet runs` lists all of them."
    if others:
        lead += f" {count(others, 'recording')} have other reasons than these."
    return columns.section("unreadable", "Could not be read, or without a profile", lead, table)


def _unknown(week: Week) -> doc.Section | None:
    coverage = week.coverage
    rules = coverage.not_evaluable
    table = columns.table(
        [
            columns.texts("Rule", rules),
            columns.counts("Runs", rules.values()),
            columns.Column("Share", [percent(runs / coverage.runs) for runs in rules.values()]),
        ]
    )
    lead = f"Rules that lacked a number, and in how many of {count(coverage.runs, 'run')}."
    if len(coverage.rule_sets) > 1:
        lead += " Runs were judged by different rule sets. Run `advisor fleet rejudge` first."
    return columns.section("unknown", "Could not tell", lead, table, level=doc.Level.BEHIND)
