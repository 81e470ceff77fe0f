"""The week of a fleet as a document: what its GPU-hours went into, what to fix first, and what the numbers rest on."""

from collections import Counter
from collections.abc import Iterator

from advisor.model.week import Coverage, Group, Hours, Trend, Week
from advisor.present import document as doc
from advisor.present.hours import amount, gpu_hours, join, label, money, paid_word, share, with_share
from advisor.present.week_changes import actions, shifts
from advisor.present.week_tables import sections
from advisor.text import UNKNOWN, count, interval, listing, percent
from advisor.vocabulary.parts import part_short


def document(week: Week) -> doc.Document:
    """The week as a document."""
    parts = (_totals(week), actions(week), _trend(week), *sections(week), _basis(week))
    article = doc.Article(
        id="week",
        name=f"Week {week.week}",
        headline=headline(week),
        facts=(),
        sections=tuple(section for section in parts if section),
        groups=tuple(sorted((_group(group, week) for group in week.teams), key=lambda group: group.name)),
    )
    return doc.Document("week", article.headline, f"Fleet, {week.week}", week.advisor_version, (article,))


def linked(week: Week) -> list[str]:
    """The ids of the runs that the tables lead to, each once."""
    blocks = (block for article in document(week).articles for section in article.sections for block in section.blocks)
    rows = (row for block in blocks if isinstance(block, doc.Table) for row in (*block.rows, *block.extra))
    return list(dict.fromkeys(cell.run for row in rows for cell in row.cells if cell.run))


def headline(week: Week) -> str:
    """The verdict of the week, in one sentence."""
    top, total = week.headline, week.total
    if not week.coverage.runs:
        return f"{week.week}: no run could be read"
    if top is None or not top.expected:
        return f"{week.week}: no finding with a saving in {count(week.coverage.runs, 'run')}"
    return _verdict(week.week, total, top.title, top.expected, top.jobs)


def _group(group: Group, week: Week) -> doc.Group:
    """A team with the verdict of its runs."""
    findings = [finding for finding in week.findings if finding.team == group.name and finding.expected > 0]
    name, jobs = f"{week.week}, {label(group.name)}", Counter(finding.rule for finding in findings)
    worth = {rule: sum(finding.expected for finding in findings if finding.rule == rule) for rule in jobs}
    if not worth:
        return doc.Group(label(group.name), f"{name}: no finding with a saving in {count(group.hours.runs, 'run')}")
    rule = max(worth, key=worth.__getitem__)
    title = next(finding.title for finding in findings if finding.rule == rule)
    return doc.Group(label(group.name), _verdict(name, group.hours, title, worth[rule], jobs[rule]))


def _verdict(name: str, hours: Hours, title: str, expected: float, jobs: int) -> str:  # the first rule's
    saving = f"{share(hours.expected, hours.paid)} ({gpu_hours(hours.expected)})"
    first = f"{title} ({gpu_hours(expected)} in {count(jobs, 'job')})"
    return f"{name}: fixes save {saving} of the {gpu_hours(hours.paid)} {paid_word(hours)}. First: {first}"


def facts(week: Week) -> list[str]:
    """What the week came to, a phrase each."""
    total = week.total
    cost = _cost(total.paid_money, week)
    percentage, worth = share(total.expected, total.paid), _cost(total.expected_money, week)
    span = f"{interval(total.low, total.high, gpu_hours)} by the intervals of all findings"
    return [
        f"{gpu_hours(total.paid)} {paid_word(total)}{f' ({cost})' if cost else ''}",
        ", ".join(_split(total)),
        f"Fixes save {gpu_hours(total.expected)} ({join(percentage, worth)}): {span}",
        ", ".join([f"{count(total.runs, 'run')} checked", *_unchecked_hours(week.coverage)]),
        *stale(week.coverage),
    ]


def _split(hours: Hours) -> list[str]:
    """The hours paid in parts that make up all of them: busy, idle, unknown."""
    known = []
    if hours.busy is not None:
        known = [f"{with_share(hours.busy, hours.paid)} busy", f"{with_share(hours.wasted, hours.paid)} idle"]
    unknown = [f"{with_share(hours.unknown, hours.paid)} unknown"] if hours.unknown or not known else []
    return [*known, *unknown]


def _unchecked_hours(coverage: Coverage) -> list[str]:
    """What lies beside the checked runs, with the labelled GPU-hours that the totals leave out."""
    bad, bare = coverage.unreadable_hours, coverage.unprofiled_hours
    parts = [f"{coverage.unreadable:,} could not be read{f' ({gpu_hours(bad)} more)' if bad else ''}"]
    if coverage.unprofiled:
        parts.append(f"{coverage.unprofiled:,} without a profile ({gpu_hours(bare)} more)")
    return parts


def stale(coverage: Coverage) -> list[str]:
    """A warning where runs were judged by other rules than those of now."""
    if not coverage.stale:
        return []
    of = f"{coverage.stale:,} of {count(coverage.runs, 'run')}"
    return [f"{of} were judged by other rules or suppressions than those of now: run `advisor fleet rejudge` first"]


def _cost(sum_: float | None, week: Week) -> str:
    """An amount, with the hours that it is of where some have no price."""
    total = week.total
    part = f" for the {gpu_hours(total.priced_hours)} with a price" if total.priced < total.runs else ""
    return "" if sum_ is None else f"{money(sum_, week.prices.currency)}{part}"


def _totals(week: Week) -> doc.Section:
    """The numbers of all runs, and those of each team for a page that is narrowed to it."""
    everything = doc.Figures(figures(week.total, week, all_teams=True), says=tuple(facts(week)))
    teams = sorted((label(group.name), group.hours) for group in week.teams)
    of_teams = (doc.Figures(figures(hours, week, all_teams=False), group=team) for team, hours in teams)
    warning = tuple(doc.Text(f"{text}.", "warning", level=doc.Level.BEHIND) for text in stale(week.coverage))
    blocks: tuple[doc.Block, ...] = (*warning, everything, *of_teams)
    return doc.Section("The GPU-hours", blocks, id="totals", is_titled=False, is_grouped=True)


def figures(hours: Hours, week: Week, *, all_teams: bool) -> tuple[doc.Figure, ...]:
    """What the hours of all runs or of a team's came to."""
    coverage, currency = week.coverage, week.prices.currency
    busy, idle = ("" if part is None else gpu_hours(part) for part in (hours.busy, hours.wasted))
    part = f" for {gpu_hours(hours.priced_hours)}" if hours.priced < hours.runs else ""
    cost = "" if hours.paid_money is None else f"{money(hours.paid_money, currency)}{part}"
    worth = "" if hours.expected_money is None else money(hours.expected_money, currency)
    unknown = f"{gpu_hours(hours.unknown)} unknown" if hours.unknown else ""
    profiled = f"{percent(coverage.profiled_share)} of all GPU-hours profiled" if coverage.profiled_share else ""
    beside = join(*_unchecked_hours(coverage), profiled) if all_teams else ""
    return (
        doc.Figure(paid_word(hours).capitalize(), gpu_hours(hours.paid), cost),
        doc.Figure("Busy", share(hours.busy, hours.paid), join(busy, f"{idle} idle" if idle else "", unknown)),
        doc.Figure("Fixes save", gpu_hours(hours.expected), join(share(hours.expected, hours.paid), worth)),
        doc.Figure("Runs", f"{hours.runs:,}", beside),
    )


def _trend(week: Week) -> doc.Section | None:
    if not week.trend:
        return None
    lead = "One bar per week, this week last: the GPU-hours paid, by what the steps spend their time on."
    bars = doc.Bars(tuple(map(_bar, week.trend)))
    blocks = (doc.Text(lead, "quiet"), bars, *shifts(week))
    return doc.Section("Where the GPU-hours go, and what changed it", blocks, id="weeks")


def _bar(trend: Trend) -> doc.Bar:
    parts = trend_parts(trend)
    segments = doc.in_a_row(doc.Segment(part, of, None, part_short(part), percent(of)) for part, of in parts)
    return doc.Bar(trend.week, segments, f"{share(trend.busy, trend.paid)} busy", gpu_hours(trend.paid))


def trend_parts(trend: Trend) -> list[tuple[str, float]]:
    """Parts of a week's hours that make up all of them, the last one what could not be told."""
    if not trend.paid:
        return []
    parts = (*trend.shares.items(), (UNKNOWN, trend.unknown / trend.paid))
    return [(part, of_all) for part, of_all in parts if of_all]


def _basis(week: Week) -> doc.Section:
    lines = doc.Lines(tuple(caveats(week)), "quiet")
    return doc.Section("What the numbers rest on", (lines,), id="basis", is_grouped=True)


def caveats(week: Week) -> Iterator[str]:
    """What the numbers rest on."""
    total, coverage = week.total, week.coverage
    yield "Extrapolated: the shares of a run's recorded steps apply to all of its GPU-hours."
    if total.estimated:
        yield (
            f"{total.estimated:,} of {count(total.runs, 'run')} have no label with GPU-hours. They count with those of"
            " their recorded steps, far less than the job took."
        )
    yield from _prices(week)
    yield _coverage(week)
    if coverage.profiled_share is not None:
        yield f"{percent(coverage.profiled_share)} of the fleet's GPU-hours were profiled."


def _prices(week: Week) -> Iterator[str]:
    total, prices, coverage = week.total, week.prices, week.coverage
    if prices.by_gpu:
        when = f", as of {prices.as_of}" if prices.as_of else ", without a date"
        each = ", ".join(f"{gpu} {amount(price)} {prices.currency}" for gpu, price in prices.by_gpu.items())
        yield f"Prices{f' from {prices.source}' if prices.source else ''}{when}: {each}."
    if coverage.prices_of_no_gpu:
        yield (
            f"No run of this week is on {listing(coverage.prices_of_no_gpu)}, which has a price. Use the names of the"
            " table of GPU types."
        )
    if total.priced < total.runs:
        gpus = listing(coverage.gpus_without_price)
        todo = f" ({gpus}: set it under `fleet.prices` in advisor.yaml)" if gpus else ""
        hours = f"{gpu_hours(total.priced_hours)} of {gpu_hours(total.paid)}"
        runs = f"Prices are known for {hours}, {total.priced:,} of {count(total.runs, 'run')}. Others have none"
        yield f"{runs if total.priced else 'No run has a price'}{todo}."


def _coverage(week: Week) -> str:
    """All labelled or recorded hours, by what is known of them."""
    total, coverage = week.total, week.coverage
    parts = [
        (total.paid - total.unknown, "profiled, with known use of the GPUs"),
        (total.unknown, "profiled, with unknown use"),
        (coverage.unreadable_hours, "could not be read"),
        (coverage.unprofiled_hours, "without a profile"),
    ]
    hours_of_all = sum(hours for hours, _ in parts)
    each = ", ".join(f"{with_share(hours, hours_of_all)} {what}" for hours, what in parts if hours)
    sets = ", ".join(f"{name} ({count(runs, 'run')})" for name, runs in coverage.rule_sets.items())
    return f"Coverage of {gpu_hours(hours_of_all)}: {each or 'none'}. Rule sets: {sets or 'none'}."
