"""One week of a fleet as one frozen value; its JSON form is a contract like the report's."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from advisor.model.reason import Frozen
from advisor.vocabulary.severities import Severity

SCHEMA_VERSION: Final = 2
Status: TypeAlias = Literal["new", "persisting", "fixed", "suppressed"]


class Prices(Frozen):
    """What money was counted with; `fallback` says whose price a run has that is labelled with none."""

    currency: str
    by_gpu: Mapping[str, float]
    as_of: dt.date | None
    source: str | None


class Hours(Frozen):
    """GPU-hours of some runs.

    `paid` are labelled GPU-hours, or those of the recorded steps where a run has no label (`estimated` of the runs);
    they are `busy`, `wasted` and `unknown` together. `busy` is the share of the steps that is useful work, applied to
    all hours, and `unknown` are the hours of runs that do not show it; the others are null if no run does.
    `low`, `high` and `expected` are what fixes give back. Money is null where no run has a price; it counts `priced`
    runs only, which are `priced_hours` of those paid.
    """

    runs: int
    estimated: int
    paid: float
    busy: float | None
    wasted: float | None
    unknown: float
    low: float
    high: float
    expected: float
    priced: int
    priced_hours: float
    paid_money: float | None
    expected_money: float | None


class Group(Frozen):
    """The hours of a team, a model or a GPU type; null stands for the runs without that label."""

    name: str | None
    hours: Hours


class RuleTotal(Frozen):
    """One rule over all runs in which it fired, suppressed ones left out; `run_id` is the run with the most to win."""

    rule: str
    title: str
    severity: Severity
    runs: int
    jobs: int
    owners: tuple[str, ...]
    teams: tuple[str, ...]
    low: float
    high: float
    expected: float
    money: float | None
    new: int
    persisting: int
    run_id: str


class JobFinding(Frozen):
    """One rule on one job; `weeks` is in how many of the weeks looked at it fired, this one included."""

    rule: str
    title: str
    job: str
    team: str | None
    owner: str | None
    severity: Severity
    status: Status
    weeks: int
    runs: int
    low: float
    high: float
    expected: float
    money: float | None
    says: str
    fix: str
    reason: str | None
    run_id: str


def order(fix: Sequence[JobFinding | RuleTotal]) -> tuple[float, ...]:
    """What rules, and findings with one fix, are sorted by: what they surely save first, in money if priced."""
    low, expected, money = (sum(getattr(of, name) or 0.0 for of in fix) for name in ("low", "expected", "money"))
    return (-low * money / expected if expected else 0.0, -low, -money, -expected)


class RunTotal(Frozen):
    """One run with what its fixes give back."""

    run_id: str
    name: str
    job: str
    team: str | None
    owner: str | None
    gpu_type: str | None
    verdict: str
    paid: float
    estimated: bool
    expected: float
    money: float | None


class Unused(Frozen):
    """One run with the GPU-hours that it wasted: what is no useful work, and what findings shorten of it.

    Of runs that an earlier version stored they are those in which its devices did nothing. `first` is its first
    finding, null without one.
    """

    run_id: str
    name: str
    job: str
    team: str | None
    owner: str | None
    paid: float
    estimated: bool
    wasted: float
    first: str | None


class Change(Frozen):
    """A job's typical step against that of the four weeks before, on the same kind and number of GPUs.

    `ratio` is over the runs' median steps, 95 % interval `low` to `high`; `hours` are the week's GPU-hours of the job.
    """

    job: str
    team: str | None
    gpu_type: str | None
    before_ms: float
    after_ms: float
    ratio: float
    low: float
    high: float
    runs: int
    runs_before: int
    hours: float
    run_id: str


class Repeat(Frozen):
    """A host or GPU that a rule about slow ranks named in several runs; `runs` is how many it took part in."""

    host: str
    gpu: str | None
    named: int
    runs: int
    rules: tuple[str, ...]


class Trend(Frozen):
    """One week of the trend, its hours as in `Hours`.

    `shares` are parts of the hours paid that have nothing in common; with `unknown` they make up all of them.
    """

    week: str
    runs: int
    paid: float
    busy: float | None
    wasted: float | None
    unknown: float
    shares: Mapping[str, float]


class Shift(Frozen):
    """A job's part in how the busy share of the fleet changed since the week before; all jobs' parts add up to it.

    `points` is that part, of 1: the hours by which the job is busier than the fleet was, as a share of all hours, now
    less then. A job of the fleet's own busy share moves nothing, however many its hours. Hours of which it is unknown
    whether the devices worked count in neither week. `busy` and `busy_before` are null in a week without the job.
    """

    job: str
    team: str | None
    busy_before: float | None
    busy: float | None
    hours_before: float
    hours: float
    points: float
    run_id: str | None


class Realised(Frozen):
    """A job whose findings were fixed: what they promised of its step together, and what it got shorter by, as shares.

    `tried_low` and `tried_high` are what `advisor try` measured of the fix before; null where it was not tried alone.
    `before_ms` and `after_ms` are medians over the runs' typical steps: of the week that last had the findings, and of
    this one, on the same kind and number of GPUs. `brought` are the GPU-hours that this week's runs of the job would
    have taken more at the step of before; `hours` are those that they took.
    """

    job: str
    team: str | None
    titles: tuple[str, ...]
    low: float
    high: float
    tried_low: float | None = None
    tried_high: float | None = None
    realised: float
    brought: float
    hours: float
    before_ms: float
    after_ms: float
    runs: int
    runs_before: int
    run_id: str

    @property
    def came_true(self) -> bool:
        """Whether what was promised came true: at least the lower end."""
        return self.realised >= self.low


class Unreadable(Frozen):
    """Recordings that were not checked for one reason; `path` is one of them."""

    why: str
    runs: int
    path: str


class Coverage(Frozen):
    """What the week's numbers rest on, and what they leave out.

    `runs` were checked; only they count in `Hours`. Beside them stand recordings that could not be read and folders
    with labelled GPU-hours but no profile, each with the hours of their labels. `stale` runs were judged by other
    rules, limits or suppressions than those of now; null where these were not given.
    """

    runs: int
    unreadable: int
    unreadable_hours: float
    unprofiled: int
    unprofiled_hours: float
    without_gpu_hours: int
    without_price: int
    gpus_without_price: tuple[str, ...]
    prices_of_no_gpu: tuple[str, ...]
    stale: int | None
    profiled_share: float | None
    not_evaluable: Mapping[str, int]
    reasons: tuple[Unreadable, ...]
    rule_sets: Mapping[str, int]


class Week(Frozen):
    """The report of one ISO week.

    `findings` are in the order of what their fixes surely save, the low end, in money where there is a price.
    """

    kind: Literal["week"] = "week"
    schema_version: Literal[2] = SCHEMA_VERSION
    advisor_version: str
    week: str
    weeks_before: int
    prices: Prices
    total: Hours
    teams: tuple[Group, ...]
    models: tuple[Group, ...]
    gpu_types: tuple[Group, ...]
    rules: tuple[RuleTotal, ...]
    findings: tuple[JobFinding, ...]
    findings_left_out: int
    runs: tuple[RunTotal, ...]
    unused: tuple[Unused, ...]
    regressions: tuple[Change, ...]
    wins: tuple[Change, ...]
    too_few_to_compare: int
    repeats: tuple[Repeat, ...]
    trend: tuple[Trend, ...]
    shifts: tuple[Shift, ...]
    realised: tuple[Realised, ...]
    coverage: Coverage

    @property
    def first(self) -> bool:
        """Whether none of the weeks before has a run, so that nobody knows which findings are new."""
        return all(point.week == self.week for point in self.trend)
