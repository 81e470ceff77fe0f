"""The week of a fleet as a document: what its GPU-hours went into, what to fix first, and what the numbers rest on."""

from collections.abc import Iterator, Sequence

from advisor.model.week import Coverage, Hours, JobFinding, Trend, Week
from advisor.present import document as doc
from advisor.present.table_builder import amount, gpu_hours, join, label, money, paid_word, share, with_share
from advisor.present.week_tables import actions, best_fixes, sections, shifts
from advisor.text import UNKNOWN, count, interval, listing, percent
from advisor.vocabulary.parts import part_short


def document(week: Week) -> doc.Document:
    """The week as a document."""
    lines = doc.Lines(tuple(caveats(week)), "quiet")
    basis = doc.Section("What the numbers rest on", (lines,), id="basis", is_grouped=True)
    parts = (_totals(week), actions(week), _trend(week), *sections(week), basis)
    groups = []
    for group in week.teams:
        name, findings = label(group.name), [finding for finding in week.findings if finding.team == group.name]
        verdict = _verdict(f"{week.week}, {name}", group.hours, findings, week.prices.currency)
        groups.append(doc.Group(name, verdict))
    article = doc.Article(
        id="week",
        name=f"Week {week.week}",
        headline=headline(week),
        facts=(),
        sections=tuple(section for section in parts if section),
        groups=tuple(sorted(groups, key=lambda group: group.name)),
    )
    return doc.Document("week", article.headline, f"Fleet, {week.week}", week.advisor_version, (article,))


def linked(week: Week) -> list[str]:
    """The ids of the runs that the tables lead to, each once."""
    blocks = (block for article in document(week).articles for section in article.sections for block in section.blocks)
    rows = (row for block in blocks if isinstance(block, doc.Table) for row in (*block.rows, *block.extra))
    return list(dict.fromkeys(cell.run for row in rows for cell in row.cells if cell.run))


def headline(week: Week) -> str:
    """The verdict of the week, in one sentence."""
    if not week.coverage.runs:
        return f"{week.week}: no run could be read"
    return _verdict(week.week, week.total, week.findings, week.prices.currency)


def _verdict(name: str, hours: Hours, findings: Sequence[JobFinding], currency: str) -> str:
    best = best_fixes(findings)
    if not best:
        return f"{name}: no finding with a saving in {count(hours.runs, 'run')}"
    saving = f"{share(hours.expected, hours.paid)} ({join(gpu_hours(hours.expected), _worth(hours, currency))})"
    jobs = f"{gpu_hours(sum(finding.expected for finding in best[0]))} in {count(len(best[0]), 'job')}"
    of = f"of the {gpu_hours(hours.paid)} {paid_word(hours)}"
    return f"{name}: fixes save {saving} {of}. First: {best[0][0].title} ({jobs})"


def facts(week: Week) -> list[str]:
    """The same in sentences, for media without tiles, and whether the runs were judged by one set of rules."""
    each = (
        f"{of.name}: {of.value}{f' ({of.beside})' if of.beside else ''}"
        for of in figures(week.total, week, all_teams=True)
    )
    return [*each, *stale(week.coverage)]


def stale(coverage: Coverage) -> list[str]:
    """A warning where runs were judged by other rules than those of now."""
    if not coverage.stale:
        return []
    of = f"{coverage.stale:,} of {count(coverage.runs, 'run')}"
    return [f"{of} were judged by other rules or suppressions than those of now: run `advisor fleet rejudge` first"]


def _worth(hours: Hours, currency: str) -> str:
    """The money that fixes save, at least so much where some hours have no price; empty where none has."""
    least = "at least " if hours.priced < hours.runs else ""
    return "" if hours.expected_money is None else f"{least}{money(hours.expected_money, currency)}"


def _totals(week: Week) -> doc.Section:
    """The numbers of all runs, and those of each team for a page that is narrowed to it."""
    everything = doc.Figures(figures(week.total, week, all_teams=True), says=tuple(facts(week)))
    teams = sorted(week.teams, key=lambda group: label(group.name))
    of_teams = (doc.Figures(figures(of.hours, week, all_teams=False), group=label(of.name)) for of in teams)
    warning = tuple(doc.Text(f"{text}.", "warning", level=doc.Level.BEHIND) for text in stale(week.coverage))
    blocks: tuple[doc.Block, ...] = (*warning, everything, *of_teams)
    return doc.Section("The GPU-hours", blocks, id="totals", is_titled=False, is_grouped=True)


def figures(hours: Hours, week: Week, *, all_teams: bool) -> tuple[doc.Figure, ...]:
    """What the hours of all runs or of a team's came to."""
    coverage, currency = week.coverage, week.prices.currency
    busy, wasted = ("" if part is None else gpu_hours(part) for part in (hours.busy, hours.wasted))
    unknown = f"{gpu_hours(hours.unknown)} unknown" if hours.unknown else ""
    profiled = f"{percent(coverage.profiled_share)} of all GPU-hours profiled" if coverage.profiled_share else ""
    saved = (share(hours.expected, hours.paid), _worth(hours, currency))
    span = interval(hours.low, hours.high, gpu_hours)
    # what lies beside the checked runs, with the labelled GPU-hours that the totals leave out
    more = [f" ({gpu_hours(of)} more)" if of else "" for of in (coverage.unreadable_hours, coverage.unprofiled_hours)]
    bare = f"{coverage.unprofiled:,} without a profile{more[1]}" if coverage.unprofiled else ""
    beside = join(f"{coverage.unreadable:,} could not be read{more[0]}", bare, profiled) if all_teams else ""
    part = f" for the {gpu_hours(hours.priced_hours)} with a price" if hours.priced < hours.runs else ""
    cost = "" if hours.paid_money is None else f"{money(hours.paid_money, currency)}{part}"
    return (
        doc.Figure(paid_word(hours).capitalize(), gpu_hours(hours.paid), cost),
        doc.Figure("Busy", share(hours.busy, hours.paid), join(busy, f"{wasted} lost" if wasted else "", unknown)),
        doc.Figure("Fixes save", gpu_hours(hours.expected), join(*saved, f"{span} by the intervals of all findings")),
        doc.Figure("Runs", f"{hours.runs:,}", beside),
    )


def _trend(week: Week) -> doc.Section | None:
    if not week.trend:
        return None
    several = "One bar per week, this week last: the" if len(week.trend) > 1 else "The"
    lead = f"{several} GPU-hours {paid_word(week.total)}, by what the steps spend their time on."
    bars = []
    for of in week.trend:
        segments = (doc.Segment(part, size, None, part_short(part), percent(size)) for part, size in trend_parts(of))
        bars.append(doc.Bar(of.week, tuple(segments), f"{share(of.busy, of.paid)} busy", gpu_hours(of.paid)))
    blocks = (doc.Text(lead, "quiet"), doc.Bars(tuple(bars)), *shifts(week))
    return doc.Section("Where the GPU-hours go, and what changed it", blocks, id="weeks")


def trend_parts(trend: Trend) -> list[tuple[str, float]]:
    """Parts of a week's hours that make up all of them, the last one what could not be told."""
    if not trend.paid:
        return []
    parts = (*trend.shares.items(), (UNKNOWN, trend.unknown / trend.paid))
    return [(part, of_all) for part, of_all in parts if of_all]


def caveats(week: Week) -> Iterator[str]:
    """What the numbers rest on."""
    total, coverage, prices = week.total, week.coverage, week.prices
    yield "Extrapolated: the shares of a run's recorded steps apply to all of its GPU-hours."
    if total.estimated:
        yield (
            f"{total.estimated:,} of {count(total.runs, 'run')} have no label with GPU-hours. They count with those of"
            " their recorded steps, far less than the job took."
        )
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
    yield _coverage(week)
    if coverage.profiled_share is not None:
        yield f"{percent(coverage.profiled_share)} of the fleet's GPU-hours were profiled."


def _coverage(week: Week) -> str:
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
