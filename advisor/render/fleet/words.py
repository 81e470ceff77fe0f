"""A week in sentences and tables; every renderer draws these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from advisor.model.week import Change, Coverage, Group, Hours, JobFinding, Trend, Week
from advisor.text import UNKNOWN, count, interval, listing, ms, number, percent, percents

MOST_LINES: Final = 20
_NO_LABEL: Final = "(no label)"
_NO_GPU: Final = "none, or not told"
NONE: Final = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text; `run` is the id of the run that it leads to."""

    text: str
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table, the team that it is about, and the dark and the whole length of its bar, of 1."""

    cells: tuple[Cell, ...]
    team: str | None = None
    bar: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A table with its title and what has to be known to read it; `empty` stands in place of a table without rows.

    `left_out` lines more are not among the `lines`. The first `texts` columns hold text, the others numbers.
    `of_teams` are tables whose lines are each of one team; `bars` says what the lines' bars show, where they are drawn.
    """

    id: str
    title: str
    lead: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    empty: str
    texts: int = 1
    of_teams: bool = False
    bars: str = ""
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that stands for itself: what it is, and what has to be known beside it."""

    name: str
    value: str
    beside: str


def headline(week: Week) -> str:
    """The verdict of the week, in one sentence."""
    top, total = week.headline, week.total
    if not week.coverage.runs:
        return f"{week.week}: no run could be read"
    if top is None or not top.expected:
        return f"{week.week}: nothing to win found in {count(week.coverage.runs, 'run')}"
    won = f"{share(total.expected, total.paid)} ({gpu_hours(total.expected)})"
    whole = f"{won} of the {gpu_hours(total.paid)} {_paid(total)} can be won back"
    return f"{week.week}: {whole}. First: {top.title} ({gpu_hours(top.expected)} in {count(top.jobs, 'job')})"


def facts(week: Week) -> list[str]:
    """What the week came to, a phrase each."""
    total = week.total
    return [
        f"{gpu_hours(total.paid)} {_paid(total)}{_cost(total.paid_money, week)}",
        ", ".join(_split(total)),
        f"{_of(total.expected, total.paid)} back by fixes{_cost(total.expected_money, week)}, {_range(total)}",
        ", ".join([f"{count(total.runs, 'run')} checked", *_beside(week.coverage)]),
        *stale(week.coverage),
    ]


def _split(hours: Hours) -> list[str]:
    """The hours paid in parts that make up all of them: busy, not busy, could not tell."""
    known = (
        [] if hours.busy is None else [f"{_of(hours.busy, hours.paid)} busy", f"{_of(hours.wasted, hours.paid)} not"]
    )
    untold = [f"{_of(hours.untold, hours.paid)} could not be told"] if hours.untold or not known else []
    return [*known, *untold]


def _beside(coverage: Coverage) -> list[str]:
    """What was found beside the checked runs, with the labelled GPU-hours that the totals leave out."""
    bad, bare = coverage.unreadable_hours, coverage.unprofiled_hours
    told = [f"{coverage.unreadable:,} could not be read{f' ({gpu_hours(bad)} more)' if bad else ''}"]
    if coverage.unprofiled:
        told.append(f"{coverage.unprofiled:,} without a profile ({gpu_hours(bare)} more)")
    return told


def stale(coverage: Coverage) -> list[str]:
    """A warning where runs were judged by other rules than those of now."""
    if not coverage.stale:
        return []
    of = f"{coverage.stale:,} of {count(coverage.runs, 'run')}"
    return [f"judged by other rules or suppressions than those of now: {of}; `advisor fleet rejudge` first"]


def figures(hours: Hours, week: Week, *, all_teams: bool) -> list[Figure]:
    """What the hours of all runs or of a team's came to."""
    coverage = week.coverage
    idle = "" if hours.busy is None else f"{share(hours.wasted, hours.paid)} not"
    untold = f"{gpu_hours(hours.untold)} could not be told" if hours.untold else ""
    busy = "" if hours.busy is None else gpu_hours(hours.busy)
    told = [
        Figure("Recorded" if hours.estimated == hours.runs else "Paid", gpu_hours(hours.paid), _money_of(hours, week)),
        Figure("Busy", share(hours.busy, hours.paid), _joined(busy, idle, untold)),
        Figure(
            "To win",
            gpu_hours(hours.expected),
            _joined(share(hours.expected, hours.paid), _money(hours.expected_money, week)),
        ),
    ]
    profiled = (
        "" if coverage.profiled_share is None else f"{percent(coverage.profiled_share)} of all GPU-hours profiled"
    )
    return [*told, Figure("Runs", f"{hours.runs:,}", _joined(*_beside(coverage), profiled) if all_teams else "")]


def _money(sum_: float | None, week: Week) -> str:
    """An amount of money; nothing where there is no price."""
    return "" if sum_ is None else money(sum_, week.prices.currency)


def _money_of(hours: Hours, week: Week) -> str:
    """What the hours cost, and of how many of them that is told."""
    part = f" for {gpu_hours(hours.priced_hours)}" if hours.priced < hours.runs else ""
    return "" if hours.paid_money is None else f"{_money(hours.paid_money, week)}{part}"


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
    if unused := week.coverage.prices_of_no_gpu:
        told.append(f"No run of this week is on {listing(unused)}, which has a price: names are those under GPU types.")
    if total.priced < total.runs:
        which = listing(week.coverage.gpus_without_price)
        why = f"the others have no price{f' ({which}: set it under fleet.prices in advisor.yaml)' if which else ''}"
        part = f"{gpu_hours(total.priced_hours)} of {gpu_hours(total.paid)}"
        told.append(f"Money counts {part}, {total.priced:,} of {count(total.runs, 'run')}: {why}.")
    told.append(f"{_coverage(week)}.")
    if week.coverage.profiled_share is not None:
        told.append(f"{percent(week.coverage.profiled_share)} of the fleet's GPU-hours were profiled.")
    return told


def _coverage(week: Week) -> str:
    """All labelled or recorded hours that were seen, by what is known of them."""
    total, coverage = week.total, week.coverage
    parts = [
        (total.paid - total.untold, "profiled and told"),
        (total.untold, "profiled, but whether the GPUs were busy could not be told"),
        (coverage.unreadable_hours, "in what could not be read"),
        (coverage.unprofiled_hours, "without a profile"),
    ]
    whole = sum(hours for hours, _ in parts)
    told = ", ".join(f"{_of(hours, whole)} {what}" for hours, what in parts if hours)
    sets = ", ".join(f"{name} ({count(runs, 'run')})" for name, runs in coverage.rule_sets.items())
    return f"Coverage of the {gpu_hours(whole)} seen: {told or 'none'}. Rule sets: {sets or 'none'}"


def sections(week: Week) -> list[Section]:
    """All tables, the most telling first, without columns that tell nothing in any line."""
    made = [
        _rules(week),
        _findings(week),
        _groups(week, "teams", "Teams", "Team", week.teams),
        _groups(week, "models", "Models", "Model", week.models),
        _groups(week, "gpus", "GPU types", "GPU", week.gpu_types),
        _runs(week),
        _unused(week),
        _changes("regressions", "Slower than in the four weeks before", week.regressions, week.too_few_to_compare),
        _changes("wins", "Faster than in the four weeks before", week.wins, week.too_few_to_compare),
        _realised(week),
        _repeats(week),
        _trend(week),
        _unreadable(week.coverage),
        _untold(week.coverage),
    ]
    return [_told(section) for section in made]


def _told(section: Section) -> Section:
    nothing = {NONE, label(None)}
    told = [
        at
        for at in range(len(section.heads))
        if not at or any(line.cells[at].text not in nothing for line in section.lines)
    ]
    return of_columns(section, told) if section.lines else section


def of_columns(section: Section, columns: Sequence[int]) -> Section:
    """The table with these columns alone."""
    return replace(
        section,
        heads=tuple(section.heads[at] for at in columns),
        lines=tuple(replace(line, cells=tuple(line.cells[at] for at in columns)) for line in section.lines),
        texts=sum(at < section.texts for at in columns),
    )


def linked(week: Week) -> list[str]:
    """The ids of the runs that the tables lead to."""
    cells = (cell for section in sections(week) for line in section.lines for cell in line.cells)
    return list(dict.fromkeys(cell.run for cell in cells if cell.run))


def teams(week: Week) -> list[tuple[str, Hours]]:
    """The teams that a page can be narrowed to, and their hours; runs without a team go by what stands for that."""
    return sorted((label(group.name), group.hours) for group in week.teams)


def label(name: str | None) -> str:
    """A label, or what stands for its absence."""
    return name or _NO_LABEL


def gpu_hours(hours: float) -> str:
    """An amount of GPU-hours, in the unit that suits it."""
    if not hours or hours >= 0.1:  # noqa: PLR2004 - below, a decimal hour tells nobody anything
        return f"{number(hours)} GPU-h"
    return f"{number(hours * 60)} GPU-min" if hours >= 1 / 60 else f"{number(hours * 3600)} GPU-s"


def _paid(hours: Hours) -> str:
    return "recorded" if hours.estimated == hours.runs else "paid"


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def share(part: float | None, whole: float) -> str:
    """A part of a whole in per cent."""
    return UNKNOWN if part is None or not whole else percent(part / whole)


def _won(hours: float, shown: str) -> str:
    """An estimate; a dash where there is none."""
    return shown if hours else NONE


def money(sum_: float | None, currency: str) -> str:
    """An amount of money; a dash where there is no price."""
    return NONE if sum_ is None else f"{_amount(sum_)} {currency}"


def _amount(sum_: float) -> str:
    if 0 < sum_ < 0.01:  # noqa: PLR2004 - a cent
        return "<0.01"
    return f"{sum_:,.0f}" if abs(sum_) >= 100 else number(sum_)  # noqa: PLR2004 - cents tell nothing above


def _cost(amount: float | None, week: Week) -> str:
    """An amount in brackets, with the hours that it is of where some have no price."""
    total = week.total
    part = f", of the {gpu_hours(total.priced_hours)} with a price" if total.priced < total.runs else ""
    return "" if amount is None else f" ({_money(amount, week)}{part})"


def _of(part: float | None, whole: float) -> str:
    return UNKNOWN if part is None else f"{gpu_hours(part)} ({percent(part / whole)})" if whole else gpu_hours(part)


def _range(total: Hours) -> str:
    return f"{interval(total.low, total.high, gpu_hours)} if every finding holds"


def _price_list(week: Week) -> str:
    return ", ".join(f"{gpu} {_amount(price)} {week.prices.currency}" for gpu, price in week.prices.by_gpu.items())


def _cells(*texts: str | Cell) -> tuple[Cell, ...]:
    return tuple(text if isinstance(text, Cell) else Cell(text) for text in texts)


def _rules(week: Week) -> Section:
    longest = max((rule.high for rule in week.rules), default=0.0)
    lines = [
        Line(
            _cells(
                Cell(rule.title, rule.run_id),
                listing(rule.owners) or listing(rule.teams) or NONE,
                _won(rule.expected, gpu_hours(rule.expected)),
                _won(rule.expected, money(rule.money, week.prices.currency)),
                _won(rule.high, interval(rule.low, rule.high, gpu_hours)),
                f"{rule.jobs:,}",
                NONE if week.first else f"{rule.new:,}",
                f"{rule.runs:,}",
            ),
            bar=(rule.low / longest, rule.high / longest) if rule.high else None,
        )
        for rule in week.rules
    ]
    heads = ("Rule", "Owners or teams", "Expected", "Worth", "To win", "Jobs", "New", "Runs")
    lead = (
        "Rules by what their fixes give back; a dash where that cannot be estimated. What is expected is the middle,"
        " weighed with how sure the rule is. Links lead to the run with the most to win."
    )
    bars = "Bars: to the low end strong, to the high end faint."
    return Section("rules", "What to fix first", lead, heads, tuple(lines), "No rule fired.", 2, bars=bars)


def _findings(week: Week) -> Section:
    lines = [_finding(finding, week) for finding in week.findings]
    lead = f"One line per job and rule, over this week and the {count(week.weeks_before, 'week')} before."
    heads = ("Finding", "Job", "Team", "Status", "Expected", "Worth", "Runs")
    left_out = week.findings_left_out
    return Section("findings", "Findings", lead, heads, tuple(lines), "None.", 4, of_teams=True, left_out=left_out)


def _finding(finding: JobFinding, week: Week) -> Line:
    gone = finding.status == "fixed"
    return Line(
        _cells(
            Cell(finding.title, finding.run_id),
            finding.job,
            label(finding.team),
            status(finding, first=week.first),
            "" if gone else _won(finding.expected, gpu_hours(finding.expected)),
            "" if gone else _won(finding.expected, money(finding.money, week.prices.currency)),
            "" if gone else f"{finding.runs:,}",
        ),
        label(finding.team),
    )


def status(finding: JobFinding, *, first: bool) -> str:
    """What became of a finding; in a `first` week none is new."""
    if first and finding.status == "new":
        return "first week"
    if finding.status == "persisting":
        return f"persisting, {count(finding.weeks, 'week')}"
    return f"suppressed: {finding.reason}" if finding.status == "suppressed" else finding.status


def _groups(week: Week, id_: str, title: str, head: str, groups: Sequence[Group]) -> Section:
    longest = max((group.hours.paid for group in groups), default=0.0)
    lines = [
        Line(
            _cells(
                _NO_GPU if id_ == "gpus" and group.name is None else label(group.name),
                gpu_hours(group.hours.paid) + (" recorded" if group.hours.estimated == group.hours.runs else ""),
                share(group.hours.busy, group.hours.paid),
                UNKNOWN if group.hours.wasted is None else gpu_hours(group.hours.wasted),
                _won(group.hours.untold, gpu_hours(group.hours.untold)),
                _won(group.hours.expected, gpu_hours(group.hours.expected)),
                _won(group.hours.expected_money or 0.0, money(group.hours.expected_money, week.prices.currency)),
                f"{group.hours.runs:,}",
            ),
            label(group.name) if id_ == "teams" else None,
            ((group.hours.busy or 0.0) / longest, group.hours.paid / longest) if longest else None,
        )
        for group in groups
    ]
    heads = (head, "Paid", "Busy", "Wasted", "Not told", "Expected to win", "Worth", "Runs")
    lead = "The most to win first. Paid is busy, wasted and not told together."
    bars = "Bars: the GPU-hours paid, strong as far as the GPUs were busy."
    shown, left = tuple(lines[: 2 * MOST_LINES]), max(0, len(lines) - 2 * MOST_LINES)
    return Section(id_, title, lead, heads, shown, "None.", of_teams=id_ == "teams", bars=bars, left_out=left)


def _runs(week: Week) -> Section:
    lines = [
        Line(
            _cells(
                Cell(run.name, run.run_id),
                run.verdict,
                label(run.team),
                gpu_hours(run.paid) + (" recorded" if run.estimated else ""),
                gpu_hours(run.expected),
                money(run.money, week.prices.currency),
            ),
            label(run.team),
        )
        for run in week.runs
    ]
    heads = ("Run", "Verdict", "Team", "Paid", "Expected to win", "Worth")
    lead = f"The first {len(lines)} of {count(week.coverage.runs, 'run')}."
    return Section("runs", "Runs with the most to win", lead, heads, tuple(lines), "None.", 3, of_teams=True)


def _unused(week: Week) -> Section:
    lines = [
        Line(
            _cells(
                Cell(run.name, run.run_id),
                run.first or NONE,
                label(run.team),
                gpu_hours(run.wasted),
                share(run.wasted, week.total.wasted or 0.0),
                gpu_hours(run.paid) + (" recorded" if run.estimated else ""),
            ),
            label(run.team),
        )
        for run in week.unused
    ]
    heads = ("Run", "First finding", "Team", "Not busy", "Of all wasted", "Paid")
    lead = "Runs whose GPUs did nothing for longest, by GPU-hours, whether or not a fix is known."
    return Section("unused", "Most time not used", lead, heads, tuple(lines), "None.", 3, of_teams=True)


def _changes(id_: str, title: str, changes: Sequence[Change], too_few: int) -> Section:
    lines = [
        Line(
            _cells(
                Cell(change.job, change.run_id),
                label(change.team),
                change.gpu_type or UNKNOWN,
                f"{ms(change.before_ms)} to {ms(change.after_ms)}",
                _by(change),
                f"{change.runs_before:,} and {change.runs:,}",
                gpu_hours(change.hours),
            ),
            label(change.team),
        )
        for change in changes
    ]
    lead = "Median step of the job's runs on the same kind and number of GPUs; 95 % interval by bootstrap over runs."
    if too_few:
        lead += f" {count(too_few, 'job')} with too few runs to tell."
    heads = ("Job", "Team", "GPU", "Step", "By", "Runs before and now", "Paid")
    return Section(id_, title, lead, heads, tuple(lines), "None that can be told.", 3, of_teams=True)


def _by(change: Change) -> str:
    """How much longer or shorter the step got, with its interval: `8 % (6 to 11 %)`."""
    middle, one, other = (abs(ratio - 1) for ratio in (change.ratio, change.low, change.high))
    return f"{percent(middle)} ({interval(min(one, other), max(one, other), percent)})"


def _realised(week: Week) -> Section:
    lines = [
        Line(
            _cells(
                Cell(one.job, one.run_id),
                listing(one.titles),
                label(one.team),
                percents(one.low, one.high),
                percent(one.realised),
                gpu_hours(one.brought) if one.brought > 0 else "nothing",
                "yes" if one.kept else "no",
                f"{ms(one.before_ms)} to {ms(one.after_ms)}",
            ),
            label(one.team),
        )
        for one in week.realised
    ]
    heads = ("Job", "Fixed", "Team", "Promised", "Came", "Brought", "Kept", "Step")
    kept = sum(one.kept for one in week.realised)
    score = f"{kept} of {count(len(lines), 'promise')} kept. " if lines else ""
    lead = f"{score}What was promised of the step, and what it got shorter by; other changes count in it too."
    return Section(
        "realised",
        "Fixed: promised and realised",
        lead,
        heads,
        tuple(lines),
        "Nothing with a saving was fixed.",
        3,
        of_teams=True,
    )


def _repeats(week: Week) -> Section:
    lines = [
        Line(_cells(one.host, one.gpu or NONE, listing(one.rules), f"{one.named:,} of {one.runs:,}"))
        for one in week.repeats
    ]
    lead = "Hosts whose rank others waited for in two runs or more. Hosts come from labels."
    heads = ("Host", "GPU", "Rules", "Runs")
    return Section("hosts", "Hosts that are slow again and again", lead, heads, tuple(lines), "None.", 3)


def _trend(week: Week) -> Section:
    lines = [
        Line(
            _cells(
                one.week,
                ", ".join(f"{name} {percent(share)}" for name, share in parts(one)) or NONE,
                share(one.busy, one.paid),
                share(one.wasted, one.paid),
                _won(one.untold, share(one.untold, one.paid)),
                gpu_hours(one.paid),
                f"{one.runs:,}",
            )
        )
        for one in week.trend
    ]
    lead = (
        "Shares of the GPU-hours paid. The parts of each week make up all of it, and so do busy, wasted and not told;"
        " of the parts, compute, memcpy, memset and collectives keep a device busy."
    )
    heads = ("Week", "Where the hours go", "Busy", "Wasted", "Not told", "Paid", "Runs")
    return Section("trend", "Trend", lead, heads, tuple(lines), "None.", 2)


def parts(one: Trend) -> list[tuple[str, float]]:
    """Parts of a week's hours that make up all of them, the last one what could not be told."""
    if not one.paid:
        return []
    untold = one.untold / one.paid
    return [(name, share) for name, share in (*one.shares.items(), (UNKNOWN, untold)) if share]


def _unreadable(coverage: Coverage) -> Section:
    lines = [Line(_cells(one.why, one.path, f"{one.runs:,}")) for one in coverage.reasons]
    left = coverage.unreadable + coverage.unprofiled - sum(one.runs for one in coverage.reasons)
    lead = "`advisor fleet runs` names them all."
    if left:
        lead += f" For other reasons than these: {count(left, 'recording')}."
    return Section(
        "unreadable",
        "Could not be read, or without a profile",
        lead,
        ("Why", "For one", "Recordings"),
        tuple(lines),
        "None.",
        2,
    )


def _untold(coverage: Coverage) -> Section:
    rules = coverage.not_evaluable.items()
    lines = [Line(_cells(rule, f"{runs:,}", percent(runs / coverage.runs))) for rule, runs in rules]
    lead = f"Rules that lacked a number in so many of {count(coverage.runs, 'run')}."
    if len(coverage.rule_sets) > 1:
        lead += " The runs were judged by different rule sets; `advisor fleet rejudge` makes them alike."
    return Section("untold", "What could not be told", lead, ("Rule", "Runs", "Share"), tuple(lines), "Nothing.")


def stacked(one: Trend) -> list[tuple[str, float, float]]:
    """Part of a week's hours, where it begins in the bar, and its share."""
    told = parts(one)
    starts = accumulate((share for _, share in told), initial=0.0)
    return [(name, start, share) for (name, share), start in zip(told, starts, strict=False)]
