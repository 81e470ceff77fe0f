"""One rule on a run: against rows of metrics it fired, passed or is not evaluable; one that fired has what it saves.

A run is as the judge sees it. A candidate is a rule that fired: it knows which worker's numbers it shows, and what it
saves alone or for its parts.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import polars as pl

from advisor.metrics.evaluate import Measurements
from advisor.metrics.metric import METRICS, Scope
from advisor.model.clause import FRAGMENT, Missing
from advisor.model.finding import CERTAINTY, OUTLIERS, Confidence
from advisor.rules import wording
from advisor.rules.expressions import Expression, evaluated
from advisor.rules.rule_file import Rule
from advisor.rules.rule_form import Fix
from advisor.vocabulary.limits import SAVED_SHARES
from advisor.vocabulary.parts import SKEW, WORK
from advisor.vocabulary.severities import SEVERITIES, Severity


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What the judge asks of a run."""

    format: str  # the reader's name
    pace: int  # the worker that sets the job's pace
    is_fragment: bool  # kernels were recorded in only a small part of the host's time
    reasons: Mapping[str, Missing]  # why metrics are unknown
    frames: Mapping[Scope, pl.DataFrame]  # the rows that rules of a scope judge, a column per metric
    frameworks: Mapping[int, str | None]  # by worker
    used_steps: Mapping[int, tuple[int, ...] | None]  # of each worker's values; None where it marks none
    places: Callable[[str, int], pl.DataFrame]  # behind a metric of a worker, the clearest first

    @property
    def workers(self) -> tuple[int, ...]:
        """All workers, ascending."""
        return tuple(sorted(self.used_steps))


def measured_run(measurements: Measurements) -> MeasuredRun:
    """A run that was just measured."""
    profile, views = measurements.selection.profile, measurements.selection.critical
    return MeasuredRun(
        format=profile.format,
        pace=measurements.pace,
        is_fragment=any(note.code == FRAGMENT for note in profile.salvaged),
        reasons=measurements.reasons,
        frames={scope: measurements.rows(scope) for scope in get_args(Scope)},
        frameworks=dict(profile.workers.select("worker", "framework").rows()),
        used_steps={view.worker: tuple(view.steps["step"].to_list()) if view.has_marks else None for view in views},
        places=measurements.places,
    )


Outcome: TypeAlias = Literal["fired", "passed", "not_evaluable"]


class Verdict(NamedTuple):
    """What a rule says of one row."""

    row: int
    outcome: Outcome
    severity: Severity | None = None  # that the rule states; None if what is saved decides
    missing: tuple[str, ...] = ()  # metrics whose absence kept it from judging
    low_ms: float | None = None  # None where the rule claims no saving, or it cannot be told; a row that passes has it
    high_ms: float | None = None
    of_ms: float | None = None  # what comes out of the first pool at most; None where all may
    cause_ms: float | None = None  # what is told of the cause; None where that is all
    lower: bool = False  # the confidence is a level lower
    outweighs_ms: float = 0.0  # what saves no more than this stands under the finding


def verdicts(rule: Rule, rows: pl.DataFrame) -> list[Verdict]:
    """One verdict per row of `rows`, whose columns are metrics; a RuleError where an expression of the rule is wrong.

    A null in any metric that `when` or `severity` names makes the row not evaluable, decided before evaluation.
    """
    if not rows.height:
        return []
    parsed = rule.expressions()
    judged = [key for key in parsed if key == "when" or key.startswith("severity.")]
    needed = sorted(set().union(*(parsed[key].names for key in judged)) - rule.params.keys())
    unknown = {metric: [value is None for value in rows[metric].to_list()] for metric in needed}
    missing = [[m for m in needed if unknown[m][row]] for row in range(rows.height)]
    values = {} if all(missing) else evaluated(parsed, rows, rule.params)
    return [_verdict(rule, row, values, missing[row]) for row in range(rows.height)]


def fixes_in_order(rule: Rule, row: Mapping[str, object]) -> Sequence[Fix]:
    """The rule's fixes as they matter in this row of metrics, without those that are made already.

    First those whose condition holds, then those without one, then those whose condition is unknown or does not hold.
    Those for other kinds of work are left out; of unknown condition, those that hold numbers of the job, and those that
    exclude one that fits. A RuleError where a condition is wrong.
    """
    holds, order = _holding(rule, row), {True: 1, None: 3, False: 4}
    kinds = workloads(row)
    unsayable = {n for (n, key), known in holds.items() if key == "when" and known is None and "{{" in rule.fixes[n].do}
    fits = [
        n
        for n, fix in enumerate(rule.fixes)
        if not holds.get((n, "unless")) and not (fix.workload and kinds.isdisjoint(fix.workload))
    ]
    open_ = [n for n in fits if n not in unsayable]
    place = {n: order[holds[n, "when"]] if (n, "when") in holds else 2 for n in open_}
    fitting = {rule.fixes[n].choice for n in open_ if place[n] < order[None]} - {None}
    either = [n for n in open_ if place[n] != order[None] or rule.fixes[n].choice not in fitting]
    return [rule.fixes[n] for n in sorted(either, key=lambda n: place[n])]


def workloads(row: Mapping[str, object]) -> set[str]:
    """The kinds of work that a row of metrics is of."""
    return set(str(row.get("workload") or "unknown").split(", "))


def fixes_of_other_causes(rule: Rule, row: Mapping[str, object]) -> Sequence[Fix]:
    """The fixes whose condition is known not to hold in this row of metrics; a RuleError where one is wrong."""
    holds = _holding(rule, row)
    return [fix for n, fix in enumerate(rule.fixes) if holds.get((n, "when")) is False]


def _holding(rule: Rule, row: Mapping[str, object]) -> dict[tuple[int, str], bool | None]:
    """Whether each condition holds; None where what it needs is not known."""
    values = ((key, value_of(condition, row, rule)) for key, condition in rule.fix_conditions().items())
    return {key: None if value is None else bool(value) for key, value in values}


def value_of(expression: Expression, row: Mapping[str, object], rule: Rule) -> Any:  # noqa: ANN401 - a number, a text or a truth
    """What an expression of the rule comes to in a row of metrics; None where what it needs is not known."""
    known = {name: row[name] for name in expression.names - rule.params.keys()}
    if None in known.values():
        return None
    return expression.over(pl.DataFrame([known or {"": None}]), rule.params)[0]


def _verdict(rule: Rule, row: int, values: Mapping[str, list[Any]], missing: Iterable[str]) -> Verdict:
    if missing := tuple(missing):
        return Verdict(row, "not_evaluable", missing=missing)
    low, high, most, cause = (values.get(f"saving.{of}_ms", {row: None})[row] for of in ("low", "high", "of", "cause"))
    if low is None or high is None:
        low = high = None
    if not values["when"][row]:
        return Verdict(row, "passed", None, (), low, high, most, cause)
    lower = bool(values.get("confidence.lower_if", {row: False})[row])
    # What is saved decides, if it is known and nobody has set another severity.
    is_decided = low is not None and rule.saving and rule.severity and rule.severity.because
    levels = () if is_decided else rule.levels
    severity = next((level for level in levels if values[f"severity.{level}"][row]), None)
    outweighs = values.get("about.outweighs_ms", {row: None})[row] or 0.0
    return Verdict(row, "fired", severity, (), low, high, most, cause, lower, outweighs)


_OF_ACCOUNTING: Final = {"memcpy": "exposed_memcpy_share"}  # the frameworks' own breakdown counts some as launching
_AS_MUCH: Final = 0.5  # of the most that any worker saves: numbers of two workers in a report ask for a reason
_SHARED: Final = {"collective"}  # the longest of all ranks' times in it holds the most waiting for the others
_SEVERAL: Final = 2
_OF_HOST: Final = {"host_busy", "host_work", "host_ops"}  # a launch of many, or a kernel, is no slower for once
_ENOUGH_STEPS: Final = 5  # as many as a comparison takes
_SURE_PART: Final = 0.5
_LITTLE: Final = 0.05  # own choice, of the step
_MOST: Final = 0.5  # of the time that a finding is about: one about such a part of it is the better name for it
_LEAST_PART: Final = 0.25  # of the high end: a lower low end says little of how much goes
# A model says how fast work can be, few steps how often uneven ones come, and other ranks how late one is.
_ESTIMATED: Final = WORK | {OUTLIERS, SKEW}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule that fired."""

    rule: Rule
    verdict: Verdict
    row: Mapping[str, object]  # whose numbers it shows
    workers: tuple[int, ...]  # all that it holds for
    low_ms: float | None  # what the job's step saves
    high_ms: float | None
    evens_ms: float = 0.0  # by which the ranks differ less after the high saving, from the latest to the typical one
    says: str = ""
    sentence_share: float | None = None  # the one that its first sentence tells; None where it tells others
    is_limited: bool = False  # another rank sets the pace then: what the job saves is an estimated difference
    is_fragment: bool = False  # as of the run

    @property
    def worker(self) -> int:
        """The worker whose numbers it shows."""
        worker = self.row["worker"]
        assert isinstance(worker, int)  # noqa: S101 - the frame's key
        return worker

    @property
    def device(self) -> str:
        """What to call the device that the job ran on."""
        name = self.row.get("device_name")
        return wording.device(name if isinstance(name, str) else None)

    @property
    def on_device(self) -> bool:
        """Whether the worker used a device, as far as the recording shows."""
        return self.row.get("devices_used") != 0

    @property
    def heading(self) -> str:
        """The rule's title, with what to call the device."""
        return self.rule.heading(self.device, unsure=self.verdict.lower)

    @property
    def severity(self) -> Severity:
        """The severity if no other finding saves of the same time."""
        middle_ms = self.part_of_recorded(self.pool) * ((self.low_ms or 0.0) + (self.high_ms or 0.0)) / 2
        return self.severity_of(middle_ms / self.step_ms if self.step_ms else 0.0)

    def severity_of(self, saved_share: float) -> Severity:
        """The level that the rule states; else that of the middle of the saving, as a share of the step.

        What the host does in one step of one rank may be a first call, slow for once: it is medium at most. So is what
        may save nothing, with low confidence.
        """
        if self.verdict.severity is not None:
            return self.verdict.severity
        level = next(level for level in SEVERITIES if saved_share >= SAVED_SHARES.get(level, 0.0))
        is_once = self.row.get("steps") == 1 and len(self.workers) == 1 and self.pool in _OF_HOST
        is_doubtful = not self.low_ms and self.confidence == "low"
        return "medium" if (is_once or is_doubtful) and level == "high" else level

    @property
    def confidence(self) -> Confidence:
        """The rule's confidence, one level lower in case of doubt, and low in a fragment.

        Of what is estimated or guessed it is medium at most; of a loss that is measured, high and not medium.
        """
        levels: Sequence[Confidence] = list(CERTAINTY)
        level = levels.index(self.rule.certainty.level)
        if self.is_fragment or (self.rule.saving and self.row.get("lost_launches")):
            return "low"
        if self.verdict.lower:
            return levels[min(level + 1, len(levels) - 1)]
        high_ms, cause_ms, steps = self.high_ms or 0.0, self.verdict.cause_ms, self.row.get("steps")
        # Clearly more than was measured of the cause; many steps that show the lost time, a quarter of which is saved.
        is_guessed = cause_ms is not None and high_ms - cause_ms > _LITTLE * (self.known("step_mean_ms") or 0.0)
        is_measured = 0 < high_ms <= (self.low_ms or 0.0) / _LEAST_PART
        has_steps = isinstance(steps, int | float) and steps >= _ENOUGH_STEPS
        if self.pool in _ESTIMATED or self.is_limited or is_guessed:
            return levels[max(level, levels.index("medium"))]
        return "high" if is_measured and has_steps and level == levels.index("medium") else levels[level]

    @property
    def time_ms(self) -> float:
        """The time per step that its rule says it is about."""
        return self.known(self.rule.about.time or "") or 0.0

    @property
    def pools(self) -> tuple[str, ...]:
        """The parts of the step that its saving comes out of, the first one first."""
        saving, of_ms = self.rule.saving, self.verdict.of_ms
        if saving is None:
            return ()
        is_less = of_ms is not None and of_ms < _SURE_PART * (self.high_ms or 0.0)
        several = self.row.get("devices_used") not in {None, 0, 1}
        others = ("dependency_idle",) if several and saving.of in WORK else ()  # which do the same work
        return (*saving.then_from, saving.of) if is_less else (saving.of, *saving.then_from, *others)

    def most_ms(self, pool: str) -> float:
        """Milliseconds per step that the saving may take out of that part of the step."""
        of_ms = self.verdict.of_ms
        is_limited = of_ms is not None and self.rule.saving is not None and pool == self.rule.saving.of
        return of_ms if is_limited and of_ms is not None else math.inf

    @property
    def pool(self) -> str | None:
        """The first of them that has any time."""
        return next(filter(self.pool_ms, self.pools), next(iter(self.pools), None))

    @property
    def is_of_ranks(self) -> bool:
        """Whether its saving is that ranks wait less for each other."""
        return self.rule.saving is not None and is_of_job(self.rule.saving.of)

    def expected_ms(self, low_ms: float | None, high_ms: float | None) -> float:
        """The saving to expect of this interval; 0 if it is unknown."""
        return 0.0 if low_ms is None or high_ms is None else (low_ms + high_ms) / 2 * CERTAINTY[self.confidence]

    def known(self, metric: str) -> float | None:
        """A number of the row; None where it is unknown."""
        value = self.row.get(metric)
        return value if isinstance(value, float) else None

    @property
    def step_ms(self) -> float | None:
        """The step of the report, with uneven ones if these add to it: without the profiler, else as recorded."""
        kind = "{}step_mean_ms" if self.known("unprofiled_step_ms") is None else "unprofiled_{}step_ms"
        return self.known(kind.format("whole_")) or self.known(kind.format(""))

    def part_of_recorded(self, pool: str | None) -> float:
        """What a recorded millisecond of this part takes without the profiler; 1 where nothing shows that."""
        part = self.known(f"unprofiled_{pool}_part")
        return 1.0 if part is None else part

    def unprofiled(self, ms: float, parts: Mapping[str, float]) -> float:
        """Recorded milliseconds that come out of these parts, one after another, without the profiler."""
        takes_ms = 0.0
        for pool, part in parts.items():
            takes_ms += self.part_of_recorded(pool) * min(ms, part)
            ms -= min(ms, part)
        return takes_ms

    def pool_ms(self, pool: str) -> float:
        """Milliseconds per step in that part of the step: of copies what no kernel covers, as in the accounting."""
        share, mean = self.row.get(_OF_ACCOUNTING.get(pool, "")), self.row["step_mean_ms"]
        if share is None:
            share = self.row[f"{pool}_share"]
        return float(share) * float(mean) if isinstance(share, float) and isinstance(mean, float) else 0.0


def is_of_job(pool: str) -> bool:
    """Whether a part of the step is the job's, not each rank's own."""
    return METRICS[f"{pool}_share"].scope == "run"


def candidate(rule: Rule, verdicts: Sequence[Verdict], rows: pl.DataFrame, pace: int) -> Candidate:
    """A rule that fired, with the numbers of the worker that sets the pace if it is known, else of the worst."""
    workers = rows["worker"].to_list()
    hits = [verdict for verdict in verdicts if verdict.outcome == "fired"]
    own = _per_rank(rows, "own_whole_step_ms") or _per_rank(rows, "own_step_ms")
    is_shared = rule.saving is not None and rule.saving.of in _SHARED
    worst = _verdict_to_show(hits, workers, pace, is_paced=bool(own) or is_shared)
    row, having = rows.row(worst.row, named=True), tuple(workers[verdict.row] for verdict in hits)
    low_ms = 0.0 if worst.low_ms and row.get("lost_launches") else worst.low_ms  # what runs unrecorded may take as long
    alone = Candidate(rule, worst, row, having, low_ms, worst.high_ms)
    if not own or alone.low_ms is None or alone.high_ms is None or alone.is_of_ranks:
        return alone
    # The candidate with what the job saves: the slowest rank sets the pace.
    apart = _per_rank(rows, "alone_whole_step_ms") or own
    rest = _own_steps_without(apart, [verdict.high_ms for verdict in verdicts])
    high = max(0.0, max(apart) - max(rest))
    low = max(0.0, max(own) - max(_own_steps_without(own, [verdict.low_ms for verdict in verdicts])))
    # What long steps add is none of the lateness that lasts.
    lasts = alone.pools[:1] != (OUTLIERS,) and _per_rank(rows, "persistent_skew_ms")
    evens = max(0.0, _lateness(apart) - _lateness(rest)) if lasts else 0.0
    is_limited = high < (alone.high_ms or 0.0)
    return replace(alone, low_ms=min(low, high), high_ms=high, evens_ms=evens, is_limited=is_limited)


def _verdict_to_show(hits: Sequence[Verdict], workers: Sequence[int], pace: int, *, is_paced: bool) -> Verdict:
    """The verdict to show: that of the worker whose numbers the report has, unless another saves far more."""
    enough = _AS_MUCH * max(verdict.high_ms or 0.0 for verdict in hits)

    def order(verdict: Verdict) -> tuple[object, ...]:
        saved, elsewhere = verdict.high_ms or 0.0, workers[verdict.row] != pace
        level = SEVERITIES.index(verdict.severity or "low")
        return is_paced and elsewhere, level, -min(saved, enough), elsewhere, verdict.row

    return min(hits, key=order)


def _per_rank(rows: pl.DataFrame, metric: str) -> list[float]:
    """The metric of every rank if several have it, 0 for one that is left out of the comparison; else none."""
    values = rows[metric] if metric in rows.columns else pl.Series(dtype=pl.Float64)
    return values.fill_null(0.0).to_list() if values.count() >= _SEVERAL else []


def _own_steps_without(own: Sequence[float], saved: Sequence[float | None]) -> list[float]:
    return [ms - (gain or 0.0) for ms, gain in zip(own, saved, strict=True)]


def _lateness(own: Sequence[float]) -> float:
    """By how much the latest rank exceeds the typical one, which is the lower median."""
    return max(own) - sorted(own)[(len(own) - 1) // 2]


def with_parts(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates; one that stands for its parts saves as much as the greatest of them.

    Beside a part that is most of it, it saves of the rest only: what both cover is the same time.
    """
    by_rule, results = {candidate.rule.id: candidate for candidate in candidates}, list[Candidate]()
    for head in candidates:
        parts = [by_rule[rule] for rule in head.rule.about.parts if rule in by_rule]
        low, high = (max(getattr(each, end) or 0.0 for each in (head, *parts)) for end in ("low_ms", "high_ms"))
        if most := [part.time_ms for part in parts if part.time_ms >= _MOST * head.time_ms]:
            low, high = head.low_ms or 0.0, head.high_ms or 0.0
            rest = max(0.0, min(1.0, (head.time_ms - max(most)) / high)) if high else 0.0
            low, high = rest * low, rest * high
        is_own = not parts or any(part.worker != head.worker for part in parts)
        results.append(head if is_own else replace(head, low_ms=low, high_ms=high))
    return results
