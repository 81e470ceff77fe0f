"""A week in sentences and tables; every renderer draws these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from advisor.text import UNKNOWN, count, interval, listing, ms, number, percent, percents
from advisor.week import Change, Coverage, Group, Hours, JobFinding, Week

MOST_LINES: Final = 20
_NO_LABEL: Final = "(no label)"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text; `run` is the id of the run that it leads to."""

    text: str
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table, and the team that it is about."""

    cells: tuple[Cell, ...]
    team: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A table with its title and what has to be known to read it; `empty` stands in place of a table without rows.

    The first `texts` columns hold text, the others numbers.
    """

    id: str
    title: str
    lead: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    empty: str
    texts: int = 1


def headline(week: Week) -> str:
    """The verdict of the week, in one sentence."""
    top = week.headline
    if not week.coverage.runs:
        return f"{week.week}: no run could be read"
    if top is None or not top.expected:
        return f"{week.week}: nothing to win found in {count(week.coverage.runs, 'run')}"
    return f"{week.week}: {top.title}: {gpu_hours(top.expected)} to win in {count(top.jobs, 'job')}"


def facts(week: Week) -> list[str]:
    """What the week came to, a phrase each."""
    total, currency = week.total, week.prices.currency
    told = [
        f"{count(total.runs, 'run')} checked, {week.coverage.unreadable:,} could not be read",
        f"{gpu_hours(total.paid)} paid{_cost(total.paid_money, currency)}",
        f"{_of(total.busy, total.paid)} busy, {_of(total.wasted, total.paid)} not",
        f"{_range(total)} to win, {gpu_hours(total.expected)} expected{_cost(total.expected_money, currency)}",
    ]
    return [fact for fact in told if fact]


def caveats(week: Week) -> list[str]:
    """What the numbers rest on."""
    total, prices = week.total, week.prices
    told = ["Extrapolated: what the recorded steps of a run tell is applied to all of its GPU-hours."]
    if total.estimated:
        told.append(
            f"{total.estimated:,} of {count(total.runs, 'run')} are not labelled with GPU-hours: those of their"
            " recorded steps count, far less than the job took."
        )
    if prices.by_gpu:
        when = f", as of {prices.as_of}" if prices.as_of else ", of no known date"
        told.append(f"Prices{f' from {prices.source}' if prices.source else ''}{when}: {_price_list(week)}.")
    if total.priced < total.runs:
        told.append(f"Money counts {total.priced:,} of {count(total.runs, 'run')}: the others have no price.")
    if week.coverage.profiled_share is not None:
        told.append(f"{percent(week.coverage.profiled_share)} of the fleet's GPU-hours were profiled.")
    return told


def sections(week: Week) -> list[Section]:
    """All tables, the most telling first."""
    return [
        _rules(week),
        _findings(week),
        _groups(week, "teams", "Teams", "Team", week.teams),
        _groups(week, "models", "Models", "Model", week.models),
        _groups(week, "gpus", "GPU types", "GPU", week.gpu_types),
        _runs(week),
        _changes("regressions", "Slower than in the four weeks before", week.regressions, week.too_few_to_compare),
        _changes("wins", "Faster than in the four weeks before", week.wins, week.too_few_to_compare),
        _realised(week),
        _repeats(week),
        _trend(week),
        _unreadable(week.coverage),
        _untold(week.coverage),
    ]


def linked(week: Week) -> list[str]:
    """The ids of the runs that the tables lead to."""
    cells = (cell for section in sections(week) for line in section.lines for cell in line.cells)
    return list(dict.fromkeys(cell.run for cell in cells if cell.run))


def team_names(week: Week) -> list[str]:
    """The teams that a page can be narrowed to."""
    return sorted({group.name for group in week.teams if group.name})


def gpu_hours(hours: float) -> str:
    """An amount of GPU-hours."""
    return f"{number(hours)} GPU-h"


def money(amount: float | None, currency: str) -> str:
    """An amount of money; a dash where there is no price."""
    return "\N{EN DASH}" if amount is None else f"{_amount(amount)} {currency}"


def _amount(amount: float) -> str:
    return f"{amount:,.0f}" if abs(amount) >= 100 else number(amount)  # noqa: PLR2004 - cents tell nothing above


def _cost(amount: float | None, currency: str) -> str:
    return "" if amount is None else f" ({money(amount, currency)})"


def _of(part: float | None, whole: float) -> str:
    return UNKNOWN if part is None else f"{gpu_hours(part)} ({percent(part / whole)})" if whole else gpu_hours(part)


def _range(total: Hours) -> str:
    return interval(total.low, total.high, gpu_hours)


def _price_list(week: Week) -> str:
    return ", ".join(f"{gpu} {_amount(price)} {week.prices.currency}" for gpu, price in week.prices.by_gpu.items())


def _cells(*texts: str | Cell) -> tuple[Cell, ...]:
    return tuple(text if isinstance(text, Cell) else Cell(text) for text in texts)


def _rules(week: Week) -> Section:
    lines = [
        Line(
            _cells(
                rule.title,
                listing(rule.owners) or listing(rule.teams) or "\N{EN DASH}",
                f"{rule.jobs:,}",
                f"{rule.runs:,}",
                f"{rule.new:,}",
                interval(rule.low, rule.high, gpu_hours),
                gpu_hours(rule.expected),
                money(rule.money, week.prices.currency),
            )
        )
        for rule in week.rules[:MOST_LINES]
    ]
    heads = ("Rule", "Owners or teams", "Jobs", "Runs", "New", "To win", "Expected", "Worth")
    return Section(
        "rules", "What to fix first", "Rules by what their fixes give back.", heads, tuple(lines), "No rule fired.", 2
    )


def _findings(week: Week) -> Section:
    lines = [_finding(finding, week) for finding in week.findings]
    left_out = f" {count(week.findings_left_out, 'smaller one')} left out." if week.findings_left_out else ""
    lead = f"One line per job and rule, over this week and the {count(week.weeks_before, 'week')} before.{left_out}"
    heads = ("Finding", "Job", "Team", "Status", "Runs", "Expected", "Worth")
    return Section("findings", "Findings", lead, heads, tuple(lines), "None.", 4)


def _finding(finding: JobFinding, week: Week) -> Line:
    gone = finding.status == "fixed"
    return Line(
        _cells(
            Cell(finding.title, finding.run_id),
            finding.job,
            finding.team or _NO_LABEL,
            status(finding),
            "" if gone else f"{finding.runs:,}",
            "" if gone else gpu_hours(finding.expected),
            "" if gone else money(finding.money, week.prices.currency),
        ),
        finding.team,
    )


def status(finding: JobFinding) -> str:
    """What became of a finding."""
    if finding.status == "persisting":
        return f"persisting, {count(finding.weeks, 'week')}"
    return f"suppressed: {finding.reason}" if finding.status == "suppressed" else finding.status


def _groups(week: Week, id_: str, title: str, head: str, groups: Iterable[Group]) -> Section:
    lines = [
        Line(
            _cells(
                group.name or _NO_LABEL,
                f"{group.hours.runs:,}",
                gpu_hours(group.hours.paid),
                UNKNOWN if group.hours.busy is None else gpu_hours(group.hours.busy),
                UNKNOWN if group.hours.wasted is None else gpu_hours(group.hours.wasted),
                gpu_hours(group.hours.expected),
                money(group.hours.expected_money, week.prices.currency),
            ),
            group.name if id_ == "teams" else None,
        )
        for group in groups
    ]
    heads = (head, "Runs", "Paid", "Busy", "Wasted", "To win, expected", "Worth")
    return Section(id_, title, "GPU-hours, the most to win first.", heads, tuple(lines[: 2 * MOST_LINES]), "None.")


def _runs(week: Week) -> Section:
    lines = [
        Line(
            _cells(
                Cell(run.name, run.run_id),
                run.verdict,
                run.team or _NO_LABEL,
                gpu_hours(run.paid) + (" recorded" if run.estimated else ""),
                gpu_hours(run.expected),
                money(run.money, week.prices.currency),
            ),
            run.team,
        )
        for run in week.runs
    ]
    heads = ("Run", "Verdict", "Team", "Paid", "To win, expected", "Worth")
    return Section("runs", "Runs with the most to win", "", heads, tuple(lines), "None.", 3)


def _changes(id_: str, title: str, changes: Sequence[Change], too_few: int) -> Section:
    lines = [
        Line(
            _cells(
                Cell(change.job, change.run_id),
                change.team or _NO_LABEL,
                change.gpu_type or UNKNOWN,
                f"{ms(change.before_ms)} to {ms(change.after_ms)}",
                _signed(change),
                f"{change.runs_before:,} and {change.runs:,}",
            ),
            change.team,
        )
        for change in changes
    ]
    lead = "Median step of the job's runs on the same kind and number of GPUs; 95 % interval by bootstrap over runs."
    if too_few:
        lead += f" {count(too_few, 'job')} with too few runs to tell."
    heads = ("Job", "Team", "GPU", "Step", "Change", "Runs before and now")
    return Section(id_, title, lead, heads, tuple(lines), "None that can be told.", 3)


def _signed(change: Change) -> str:
    """The change of the step with its interval: `+8 % (+6 to +11 %)`."""
    middle, low, high = (100 * (ratio - 1) for ratio in (change.ratio, change.low, change.high))
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f} %)"


def _realised(week: Week) -> Section:
    lines = [
        Line(
            _cells(
                Cell(one.job, one.run_id),
                listing(one.titles),
                one.team or _NO_LABEL,
                percents(one.low, one.high),
                percent(one.realised),
                "yes" if one.kept else "no",
                f"{ms(one.before_ms)} to {ms(one.after_ms)}",
            ),
            one.team,
        )
        for one in week.realised
    ]
    heads = ("Job", "Fixed", "Team", "Promised", "Came", "Kept", "Step")
    lead = "What was promised of the step, and what it got shorter by since; other changes count in it too."
    return Section(
        "realised", "Fixed: promised and realised", lead, heads, tuple(lines), "Nothing with a saving was fixed.", 3
    )


def _repeats(week: Week) -> Section:
    lines = [
        Line(_cells(one.host, one.gpu or "\N{EN DASH}", listing(one.rules), f"{one.named:,} of {one.runs:,}"))
        for one in week.repeats
    ]
    lead = "Hosts whose rank others waited for in two runs or more. Hosts come from labels."
    heads = ("Host", "GPU", "Rules", "Runs")
    return Section("hosts", "Hosts that are slow again and again", lead, heads, tuple(lines), "None.", 3)


def _trend(week: Week) -> Section:
    lines = [
        Line(
            _cells(
                one.week, f"{one.runs:,}", gpu_hours(one.paid), percent(one.busy_share), ", ".join(_largest(one.shares))
            )
        )
        for one in week.trend
    ]
    lead = "Shares are weighed with GPU-hours."
    return Section(
        "trend", "Trend", lead, ("Week", "Runs", "Paid", "Busy", "Where the rest goes"), tuple(lines), "None."
    )


def _largest(shares: Mapping[str, float]) -> Iterator[str]:
    rest = {name: share for name, share in shares.items() if name != "compute" and share >= 0.005}  # noqa: PLR2004 - shown as 1 %
    return (f"{name} {percent(rest[name])}" for name in sorted(rest, key=lambda name: -rest[name])[:4])


def _unreadable(coverage: Coverage) -> Section:
    lines = [Line(_cells(one.why, one.path, f"{one.runs:,}")) for one in coverage.reasons]
    return Section("unreadable", "Could not be read", "", ("Why", "For one", "Recordings"), tuple(lines), "None.", 2)


def _untold(coverage: Coverage) -> Section:
    rules = list(coverage.not_evaluable.items())[:MOST_LINES]
    lines = [Line(_cells(rule, f"{runs:,}", percent(runs / coverage.runs))) for rule, runs in rules]
    sets = ", ".join(f"{name} ({count(runs, 'run')})" for name, runs in coverage.rule_sets.items())
    lead = f"Rules that lacked a number in so many of {count(coverage.runs, 'run')}. Rule sets: {sets or 'none'}."
    if len(coverage.rule_sets) > 1:
        lead += " The runs were judged by different ones; `advisor fleet rejudge` makes them alike."
    return Section("untold", "What could not be told", lead, ("Rule", "Runs", "Share"), tuple(lines), "Nothing.")


def stacked(shares: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Category, where it begins in the bar, and its share."""
    starts = accumulate(shares.values(), initial=0.0)
    return [(category, start, share) for (category, share), start in zip(shares.items(), starts, strict=False)]
