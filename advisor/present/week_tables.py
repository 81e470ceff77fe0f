"""The tables of a fleet's week: rules, findings, teams, runs, hosts, and what changed since the weeks before."""

from collections.abc import Iterable, Sequence
from typing import Final

from advisor.model.week import Change, Group, JobFinding, Realised, Shift, Trend, Week, order
from advisor.present import document as doc
from advisor.present import table_builder as columns
from advisor.present.table_builder import label, paid_word, share
from advisor.text import DASH, UNKNOWN, count, first_sentence, interval, listing, ms, percent, percents

MOST_ROWS: Final = 40
"""Rows of a table of groups."""

_GROUPS: Final = {"teams": ("Team", "Teams"), "models": ("Model", "Models"), "gpus": ("GPU", "GPU types")}


def sections(week: Week) -> list[doc.Section]:
    """All tables with rows, the most important first, each without the columns that say nothing in any row."""
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
    tables = (
        realised(week),
        changes(week, "regressions", "Slower than in the four weeks before", week.regressions),
        changes(week, "wins", "Faster than in the four weeks before", week.wins),
        _groups(week, "teams", week.teams),
        _rules(week),
        columns.section("hosts", "Hosts that are slow repeatedly", lead, table),
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
    names = ["none or unknown" if id_ == "gpus" and group.name is None else label(group.name) for group in top]
    has_sum = len(groups) > 1
    hours = [*([week.total] if has_sum else []), *(group.hours for group in top)]
    longest = max((group.hours.paid for group in top), default=0.0)
    paid = paid_word(week.total).capitalize()
    table = columns.table(
        [
            columns.texts(head, [*(["All"] if has_sum else []), *names]),
            columns.hours(paid, [of.paid for of in hours]),
            columns.hours("Busy", [of.busy for of in hours]),
            columns.hours("Lost", [of.wasted for of in hours]),
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
        f"Hours {paid.lower()} are busy, lost or unknown; the three add up. The largest saving comes first.",
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


ACTIONS: Final = 3
"""How many fixes stand above all others, of all jobs and of each team's."""

_MOST_NAMES: Final = 3  # of jobs in one cell


def actions(week: Week) -> doc.Section | None:
    """The fixes that save most, of several jobs as one: those of all jobs, and for a page of one team those of its."""
    first = best_fixes(week.findings)[:ACTIONS]
    teams = dict.fromkeys(finding.team for finding in week.findings)
    of_teams = (fix for team in teams for fix in best_fixes([f for f in week.findings if f.team == team])[:ACTIONS])
    others = [fix for fix in of_teams if fix not in first]
    fixes = [*first, *others]
    todo = (f"→ {_do(fix)}" if fix[0].fix else f"[{fix[0].rule}]" for fix in fixes)
    titles = (doc.Cell(fix[0].title, run=fix[0].run_id, beside=do) for fix, do in zip(fixes, todo, strict=True))
    table = columns.table(
        [
            columns.texts("Finding", titles),
            columns.texts("Job", (_few(finding.job for finding in fix) for fix in fixes)),
            columns.texts(
                "Owner", (_few(f.owner or (f"team {f.team}" if f.team else DASH) for f in fix) for fix in fixes)
            ),
            columns.savings([sum(finding.expected for finding in fix) for fix in fixes]),
            columns.worth("Worth", [sum(f.money or 0.0 for f in fix) or None for fix in fixes], week.prices.currency),
            columns.ranges("Range", *([sum(getattr(f, end) for f in fix) for fix in fixes] for end in ("low", "high"))),
        ],
        groups=[_few(label(finding.team) for finding in fix) for fix in fixes],
        extra=len(others),
    )
    lead = "What the fixes save in a week like this one. The largest low end of the range comes first"
    lead += ", in money." if any(finding.money for finding in week.findings) else "."
    return columns.section("actions", "Do first", lead, table)


def best_fixes(findings: Sequence[JobFinding]) -> list[list[JobFinding]]:
    """The findings that save, with one fix together, whichever code stands behind its colon; the largest first."""
    alike: dict[tuple[str, str], list[JobFinding]] = {}
    for finding in findings:
        if finding.expected > 0 and finding.status != "suppressed":
            alike.setdefault((finding.rule, first_sentence(finding.fix).partition(":")[0]), []).append(finding)
    return sorted(alike.values(), key=order)


def _do(fix: Sequence[JobFinding]) -> str:
    """The fix in one sentence, without the code behind its colon where that is not one of all jobs."""
    each = {first_sentence(finding.fix) for finding in fix}
    return each.pop() if len(each) == 1 else f"{first_sentence(fix[0].fix).partition(':')[0].removesuffix('.')}."


def _few(names: Iterable[str]) -> str:
    return listing(list(dict.fromkeys(names)), _MOST_NAMES)


def shifts(week: Week) -> tuple[doc.Block, ...]:
    """What moved the busy share since the week before; nothing where there is none, or nothing did."""
    if not week.shifts:
        return ()
    before, now = week.trend[-2], week.trend[-1]
    moved = _busy(now) - _busy(before)
    lead = (
        f"Busy: {percent(_busy(now))} of the hours that are known, after {percent(_busy(before))} in {before.week}."
        " The jobs that moved it most, in points of that share:"
    )
    return (doc.Text(lead), _shifts(week.shifts, before, now, moved))


def _busy(trend: Trend) -> float:
    return (trend.busy or 0.0) / (trend.paid - trend.unknown)


def _shifts(every: Sequence[Shift], before: Trend, now: Trend, moved: float) -> doc.Table:
    rest = [moved - sum(shift.points for shift in every)]
    others = rest if _points(rest[0]) else []
    none = [None for _ in others]
    return columns.table(
        [
            columns.texts(
                "Job", ["All jobs", *(doc.Cell(s.job, run=s.run_id) for s in every), *("Other jobs" for _ in others)]
            ),
            columns.texts("Team", [*(label(shift.team) for shift in every), *("" for _ in others)]),
            columns.Column(
                "Was busy", [_share(part) for part in (_busy(before), *(s.busy_before for s in every), *none)]
            ),
            columns.Column("Is busy", [_share(part) for part in (_busy(now), *(s.busy for s in every), *none)]),
            columns.hours("Before", [before.paid - before.unknown, *(s.hours_before for s in every), *none], none=""),
            columns.hours("Now", [now.paid - now.unknown, *(s.hours for s in every), *none], none=""),
            columns.Column("Points", [_points(part) for part in (moved, *(s.points for s in every), *others)]),
        ],
        has_sum=True,
    )


def _share(of: float | None) -> str:
    return DASH if of is None else percent(of)


def _points(part: float) -> str:
    """A change of a share in points, with its sign; empty where it rounds to none."""
    points = round(100 * part, 1)
    return f"{points:+.1f}".replace("-", "\N{MINUS SIGN}") if points else ""


def realised(week: Week) -> doc.Section | None:
    """What fixes were predicted to save of the jobs that have them, and what they saved."""
    fixes = week.realised
    complete = sum(fix.came_true for fix in fixes)
    lead = (
        f"{complete} of {count(len(fixes), 'prediction')} came true. Hours are those that this week's runs would have"
        " taken more without the fix. Other changes of the job count in what was measured."
    )
    before = [fix.hours + fix.brought for fix in fixes]
    has_sum = len(fixes) > 1
    summed = _sum if has_sum else list
    low, high = (
        summed([getattr(fix, end) * old for fix, old in zip(fixes, before, strict=True)]) for end in ("low", "high")
    )
    sums = ["All jobs"] if has_sum else []
    table = columns.table(
        [
            columns.texts("Job", [*sums, *(doc.Cell(fix.job, run=fix.run_id) for fix in fixes)]),
            columns.texts("Fixed", (listing(fix.titles) for fix in fixes)),
            columns.texts("Team", (label(fix.team) for fix in fixes)),
            columns.ranges("Predicted", low, high),
            columns.hours("Measured", summed([fix.brought for fix in fixes])),
            columns.texts("Came true", ("yes" if fix.came_true else "no" for fix in fixes)),
            columns.texts("Of the step", map(_of_step, fixes)),
            columns.texts("Step", (f"{ms(f.before_ms)} to {ms(f.after_ms)}" for f in fixes)),
        ],
        has_sum=has_sum,
    )
    return columns.section("realised", "Predicted and measured savings", lead, table)


def _of_step(fix: Realised) -> str:
    """Saved of predicted: `38 % of 30-40 %, tried 36-41 %`."""
    known = f"{percent(fix.realised)} of {percents(fix.low, fix.high)}"
    if fix.tried_low is None or fix.tried_high is None:
        return known
    return f"{known}, tried {percents(fix.tried_low, fix.tried_high) if fix.tried_low > 0 else 'nothing'}"


def changes(week: Week, id_: str, title: str, of: Sequence[Change]) -> doc.Section | None:
    """Jobs whose step got longer, or shorter, than in the weeks before."""
    lead = "The median step of the job's runs on the same kind and number of GPUs, with its 95 % interval over runs."
    if few := week.too_few_to_compare:
        lead += f" {count(few, 'job')} had too few runs to compare."
    # how much longer or shorter the step got, with its interval: `8 % (6-11 %)`
    ratios = [[abs(ratio - 1) for ratio in (change.ratio, change.low, change.high)] for change in of]
    by = [f"{percent(middle)} ({interval(min(ends), max(ends), percent)})" for middle, *ends in ratios]
    table = columns.table(
        [
            columns.texts("Job", (doc.Cell(change.job, run=change.run_id) for change in of)),
            columns.texts("Team", (label(change.team) for change in of)),
            columns.texts("GPU", (change.gpu_type or UNKNOWN for change in of)),
            columns.Column("Was, is", [f"{ms(change.before_ms)}, {ms(change.after_ms)}" for change in of]),
            columns.Column("By", by),
            columns.Column("Runs before, now", [f"{change.runs_before:,}, {change.runs:,}" for change in of]),
            columns.hours("Paid", [change.hours for change in of]),
        ]
    )
    return columns.section(id_, title, lead, table)
