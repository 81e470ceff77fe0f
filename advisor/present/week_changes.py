"""What a fleet's Monday is about: what to do first, what changed where the GPU-hours go, what the last fixes saved."""

from collections.abc import Iterable, Sequence
from typing import Final

from advisor.model.week import Change, JobFinding, Realised, Shift, Trend, Week
from advisor.present import document as doc
from advisor.present import table_builder as columns
from advisor.present.hours import label
from advisor.text import DASH, UNKNOWN, count, first_sentence, interval, listing, ms, percent, percents

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
    todo = (f"→ {first_sentence(fix[0].fix)}" if fix[0].fix else f"[{fix[0].rule}]" for fix in fixes)
    titles = (doc.Cell(fix[0].title, run=fix[0].run_id, beside=do) for fix, do in zip(fixes, todo, strict=True))
    table = columns.table(
        [
            columns.texts("Finding", titles),
            columns.texts("Job", (_few(finding.job for finding in fix) for fix in fixes)),
            columns.texts("Owner", (_few(map(_owner, fix)) for fix in fixes)),
            columns.savings([sum(finding.expected for finding in fix) for fix in fixes]),
            columns.worth("Worth", [sum(f.money or 0.0 for f in fix) or None for fix in fixes], week.prices.currency),
            columns.ranges("Range", *([sum(getattr(f, end) for f in fix) for fix in fixes] for end in ("low", "high"))),
        ],
        groups=[_few(label(finding.team) for finding in fix) for fix in fixes],
        extra=len(others),
    )
    lead = "The fixes that save most, and what they save in a week like this one."
    return columns.section("actions", "Do first", lead, table)


def best_fixes(findings: Sequence[JobFinding]) -> list[list[JobFinding]]:
    """The findings that save, with one fix together, whichever code stands behind its colon; the largest first."""
    alike: dict[tuple[str, str], list[JobFinding]] = {}
    for finding in findings:
        if finding.expected > 0 and finding.status != "suppressed":
            alike.setdefault((finding.rule, first_sentence(finding.fix).partition(":")[0]), []).append(finding)
    return sorted(alike.values(), key=lambda fix: -sum(finding.expected for finding in fix))


def _few(names: Iterable[str]) -> str:
    """The first names, each once, and how many more there are."""
    return listing(list(dict.fromkeys(names)), _MOST_NAMES)


def _owner(finding: JobFinding) -> str:
    return finding.owner or (f"team {finding.team}" if finding.team else DASH)


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
    """The busy share of the hours of which it is known."""
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
    low, high = (
        _sum([getattr(fix, end) * old for fix, old in zip(fixes, before, strict=True)]) for end in ("low", "high")
    )
    sums = ["All jobs"] if len(fixes) > 1 else []
    table = columns.table(
        [
            columns.texts("Job", [*sums, *(doc.Cell(fix.job, run=fix.run_id) for fix in fixes)]),
            columns.texts("Fixed", (listing(fix.titles) for fix in fixes)),
            columns.texts("Team", (label(fix.team) for fix in fixes)),
            columns.ranges("Predicted", low, high),
            columns.hours("Measured", _sum([fix.brought for fix in fixes])),
            columns.texts("Came true", ("yes" if fix.came_true else "no" for fix in fixes)),
            columns.texts("Of the step", map(_of_step, fixes)),
            columns.texts("Step", (f"{ms(f.before_ms)} to {ms(f.after_ms)}" for f in fixes)),
        ],
        has_sum=len(fixes) > 1,
    )
    return columns.section("realised", "Predicted and measured savings", lead, table)


def _sum(amounts: list[float]) -> list[float]:
    """The amounts, after their sum where there are several."""
    return [sum(amounts), *amounts] if len(amounts) > 1 else amounts


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
    table = columns.table(
        [
            columns.texts("Job", (doc.Cell(change.job, run=change.run_id) for change in of)),
            columns.texts("Team", (label(change.team) for change in of)),
            columns.texts("GPU", (change.gpu_type or UNKNOWN for change in of)),
            columns.Column("Was, is", [f"{ms(change.before_ms)}, {ms(change.after_ms)}" for change in of]),
            columns.Column("By", [_by(change) for change in of]),
            columns.Column("Runs before, now", [f"{change.runs_before:,}, {change.runs:,}" for change in of]),
            columns.hours("Paid", [change.hours for change in of]),
        ]
    )
    return columns.section(id_, title, lead, table)


def _by(change: Change) -> str:
    """How much longer or shorter the step got, with its interval: `8 % (6-11 %)`."""
    middle, *ends = (abs(ratio - 1) for ratio in (change.ratio, change.low, change.high))
    return f"{percent(middle)} ({interval(min(ends), max(ends), percent)})"
