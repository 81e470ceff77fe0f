"""Report: everything that a check found out, as one frozen value. Its JSON form is the contract with other programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from pydantic import computed_field

from advisor.model.frozen import Frozen
from advisor.model.reason import Reason
from advisor.model.timeline import Timeline
from advisor.vocabulary import HEALTHY_SHARE

Severity: TypeAlias = Literal["high", "medium", "low"]
Confidence: TypeAlias = Literal["high", "medium", "low"]
FailOn: TypeAlias = Literal["high", "medium", "low", "never"]
Value: TypeAlias = float | int | str | None
Operator: TypeAlias = Literal["<", "<=", ">", ">=", "=", "<>", "!="]

SCHEMA_VERSION: Final = 2
CERTAINTY: Final[Mapping[Confidence, float]] = {"high": 1.0, "medium": 0.7, "low": 0.4}
"""Weight of a saving's midpoint by the confidence: the expected saving, which ranks findings."""

SEVERITIES: Final[tuple[Severity, ...]] = ("high", "medium", "low")
FINDINGS_EXIT_CODE: Final = 1
UNJUDGED_EXIT_CODE: Final = 3
OUTLIERS: Final = "outliers"
"""The part of the mean step that uneven steps add; a saving of it is relative to the mean of all complete steps."""


class Saving(Frozen):
    """Step time that a fix gives back: an interval, and the part of the step it comes out of.

    `parts` are all parts that it draws on, with the milliseconds of the recorded step that come out of each at most.
    """

    low_ms: float
    high_ms: float
    low_share: float
    high_share: float
    of: str
    method: str
    parts: Mapping[str, float] = {}


class Evidence(Frozen):
    """A number behind a finding; `formula` says how it is computed.

    `limit` is where the rule fires, `limits` where it is medium or high, by severity; `signs` say on which side of each
    (key `fires`, or the severity), where that is not `>=`.
    """

    metric: str
    value: Value
    unit: str
    meaning: str
    limit: float | None = None
    limits: Mapping[Severity, float] = {}
    signs: Mapping[str, Operator] = {}
    formula: str | None = None


class Place(Frozen):
    """A spot in the recording that shows a finding.

    `start_ns` is on the profile's clock, `at_ms` counts from the first instant recorded, or of
    Nsight Systems exports from where its own timeline does.
    """

    table: str
    name: str
    worker: int
    device: int | None
    step: int | None
    start_ns: int
    at_ms: float
    dur_ns: int
    op: str | None = None
    stack: str | None = None


class Patch(Frozen):
    """A change that `advisor try` can make from outside: its name there, and its arguments."""

    name: str
    arguments: Mapping[str, bool | int | str] = {}


class Fix(Frozen):
    """What to change, for one framework or any.

    `numerics` says how results change. Fixes of one `choice` exclude each other. `cannot_show` is the code of why no
    recording shows whether the job has the fix already; null where one shows it. `patch` is how to try it, null where
    only an edit does. `is_estimated` says whether the finding's saving is what this fix brings.
    """

    framework: str
    do: str
    code: str | None = None
    link: str | None = None
    numerics: str | None = None
    choice: str | None = None
    cannot_show: str | None = None
    patch: Patch | None = None
    is_estimated: bool = True


class Reach(Frozen):
    """Where a finding holds; `told_of` is the worker whose numbers and places it shows."""

    workers: tuple[int, ...]
    steps: tuple[int, ...]
    told_of: int | None = None


class Symptom(Frozen):
    """A finding that a cause accounts for: shown under that cause."""

    rule: str
    title: str
    says: str
    severity: Severity = "low"


class Finding(Frozen):
    """One rule that fired in one run; numbers and places are those of the worker that has most to win.

    `condition` is what the rule asks for, in its own language; its names are those of the evidence and of `params`, the
    rule's thresholds; `references` say where those come from. `loss` is the part of the accounting that a finding
    without a saving explains. `phase` is the phase of a server's steps that it is about, null where it is of all.
    `new` says whether a baseline lacked it; null where there was none, or it could not tell.
    """

    key: str
    rule: str
    title: str
    severity: Severity
    confidence: Confidence
    saving: Saving | None
    scope: Reach
    says: str
    why: str
    evidence: tuple[Evidence, ...]
    where: tuple[Place, ...]
    fixes: tuple[Fix, ...]
    symptoms: tuple[Symptom, ...]
    explains: tuple[str, ...]
    docs: str
    condition: str | None = None
    params: Mapping[str, float] = {}
    references: tuple[str, ...] = ()
    loss: str | None = None
    phase: str | None = None
    new: bool | None = None

    @property
    def lacks_work(self) -> bool:
        """Whether the recording lacks work of the device: the time that seems lost may be none."""
        return self.loss == "unknown"

    def fixes_for(self, framework: str | None) -> tuple[Fix, ...]:
        """The fixes for this framework; all of them where none is for it."""
        own = tuple(fix for fix in self.fixes if framework is None or fix.framework in {framework, "any"})
        return own or self.fixes


class NotEvaluable(Frozen):
    """A rule that could not be judged; `missing` maps each metric it lacked to the reason.

    `of` is the part of the step that its saving would come out of, `beyond` what else it may come out of.
    """

    rule: str
    title: str
    of: str | None = None
    beyond: tuple[str, ...] = ()
    missing: Mapping[str, Reason]

    @property
    def words(self) -> tuple[str, ...]:
        """The reasons in words, each once."""
        return tuple(dict.fromkeys(reason.words for reason in self.missing.values()))


class Suppressed(Frozen):
    """A rule that fired and was suppressed in the configuration."""

    rule: str
    title: str
    severity: Severity
    reason: str
    until: str | None


class LeftOutStep(Frozen):
    """A step that was recorded and not used.

    `step_ms` is null where the recording does not hold the whole of it; the codes are those of
    `advisor.vocabulary.LEFT_OUT`: `outlier` is left out for nothing but its length.
    """

    worker: int
    device: int | None
    step: int
    why: Reason
    step_ms: float | None = None


class StepLength(Frozen):
    """How many of the used steps are of one length, and their mean."""

    steps: int
    mean_ms: float


class Steps(Frozen):
    """How many steps the numbers of `worker` rest on: the one that sets the job's pace.

    `unprofiled_ms` is the typical step without the profiler, null where it was not timed; savings and the accounting
    are of that step, with the shares of the recorded one.
    `timed_by` says what a step's time is: the period from its start to the next one's, or, in reports of earlier
    versions, the range that marks it.
    `lengths` are the two lengths that the steps have, the shorter first; empty where they are all of one.
    """

    marked: bool
    timed_by: Literal["period", "range"] = "range"
    count: int
    used: int
    step_ms: float | None
    step_mean_ms: float | None
    unprofiled_ms: float | None = None
    left_out: tuple[LeftOutStep, ...]
    worker: int | None = None
    lengths: tuple[StepLength, ...] = ()

    @property
    def are_cut(self) -> bool:
        """Whether no step is usable because the file ends early."""
        return not self.used and any(step.why.code == "file_cut" for step in self.left_out)

    @property
    def length_ms(self) -> float | None:
        """The step that all times of a report are of: without the profiler where that was timed, else as recorded."""
        return self.step_mean_ms if self.unprofiled_ms is None else self.unprofiled_ms


class Worker(Frozen):
    """One process of the job."""

    worker: int
    rank: int | None
    name: str
    file: str


class Device(Frozen):
    """One device of one worker."""

    worker: int
    device: int
    name: str | None
    model: str | None
    memory_bytes: int | None


class Sign(Frozen):
    """What shows a kind of work: a code of `advisor.vocabulary.SIGNS`, and a name from the recording as example."""

    kind: str
    code: str
    example: str | None = None


class Workload(Frozen):
    """The kinds of work that a recording shows, and what shows them; none where nothing does."""

    kinds: tuple[str, ...] = ()
    signs: tuple[Sign, ...] = ()


class Source(Frozen):
    """What was read; `notes` say what holds and what does not where the job is not here as a whole.

    `workload` is what kind of work it does. `environment` is what the job ran on and how it was recorded, as far as
    the profile tells: hardware, software, profiler, options; never the environment of a process.
    """

    path: str
    format: str
    framework: str | None
    world_size: int | None
    workers: tuple[Worker, ...]
    devices: tuple[Device, ...]
    steps: Steps
    salvaged: tuple[Reason, ...]
    notes: tuple[Reason, ...] = ()
    lacks: Mapping[str, Reason]
    environment: Mapping[str, str] = {}
    workload: Workload = Workload()


class Part(Frozen):
    """A part of the mean step: useful work, or a loss.

    `findings` are the rules whose savings come out of it, or that explain it; `saved_ms` is what those save at most.
    `is_explained` says whether one of them is about it. `reasons` are what kept rules that are about it from judging.
    `range` is the program's own range that most of it lies in, and `range_share` how much of it; null where none does.
    The codes are those of `advisor.vocabulary.PARTS`.
    """

    part: str
    is_useful: bool
    ms: float
    share: float
    findings: tuple[str, ...] = ()
    saved_ms: float = 0.0
    is_explained: bool = False
    reasons: tuple[Reason, ...] = ()
    range: str | None = None
    range_share: float | None = None


class Accounting(Frozen):
    """The step in disjoint parts that add up to it: the mean one, or the one without the profiler where it was timed.

    `useful_share` is the useful work that no finding shortens, as a share of the step.
    """

    step_ms: float
    useful_share: float
    parts: tuple[Part, ...]

    @property
    def losses(self) -> list[Part]:
        """What is no useful work, the largest first."""
        return sorted((part for part in self.parts if not part.is_useful), key=lambda part: -part.ms)


OutcomeCode: TypeAlias = Literal["finding", "loss", "minor", "nothing", "too_little"]


class Outcome(Frozen):
    """What the verdict says, in facts.

    Attributes:
        code: `finding` where the first finding is the verdict, `loss` where a loss without one is larger, `minor` where
            no finding saves anything, `nothing` where no rule fired, `too_little` where most rules could not be judged.
        judged: How many rules could be judged.
        not_evaluable: How many could not.
        reason: The reason that most of those have.
        reason_rules: How many have it.
        loss: The part of the accounting that is the verdict; null where none is.
    """

    code: OutcomeCode
    judged: int
    not_evaluable: int
    reason: Reason | None = None
    reason_rules: int = 0
    loss: str | None = None


class Run(Frozen):
    """One job: what was read, where its step goes, what to change, and what could not be told.

    `verdict` is the `outcome` in words.
    """

    name: str
    verdict: str
    source: Source
    breakdown: Mapping[str, float]
    findings: tuple[Finding, ...]
    not_evaluable: tuple[NotEvaluable, ...]
    passed: tuple[str, ...]
    not_applicable: tuple[str, ...]
    suppressed: tuple[Suppressed, ...]
    metrics: Mapping[str, tuple[Mapping[str, Value], ...]]
    timeline: Timeline | None = None
    accounting: Accounting | None = None

    @computed_field  # type: ignore[prop-decorator] # as above
    @property
    def outcome(self) -> Outcome:
        """What the verdict says, in facts."""
        by_words = {why.words: why for rule in self.not_evaluable for why in rule.missing.values()}
        times = Counter(words for rule in self.not_evaluable for words in rule.words)
        words, rules = next(iter(times.most_common(1)), ("", 0))
        reason = by_words.get(words)
        unjudged = len(self.not_evaluable)
        loss, code = self.unexplained, self._code
        return Outcome(
            code=code,
            judged=self.judged,
            not_evaluable=unjudged,
            reason=reason,
            reason_rules=rules,
            loss=loss.part if loss and code == "loss" else None,
        )

    @property
    def _code(self) -> OutcomeCode:
        if self.tells_too_little:
            return "too_little"
        if self.unexplained:
            return "loss"
        if self._is_worth_a_verdict:
            return "finding"
        return "minor" if self.findings else "nothing"

    @property
    def _is_worth_a_verdict(self) -> bool:
        explains = self.accounting is None or self.accounting.useful_share < HEALTHY_SHARE
        return any(f.saving or (f.loss and explains) or f.severity != "low" for f in self.findings)

    @property
    def unexplained(self) -> Part | None:
        """The loss that is the verdict: the largest that no finding explains, unless findings account for more.

        A smaller one than a tenth of the step is the verdict only where no finding is, and the job is not healthy.
        """
        known = self.accounting
        if known is None or known.useful_share >= HEALTHY_SHARE:
            return None
        loss = next((part for part in known.losses if not part.is_explained), None)
        if loss is None or loss.share <= self._known_share(known):
            return None
        return loss if loss.share >= 1 - HEALTHY_SHARE or not self._is_worth_a_verdict else None

    def _known_share(self, known: Accounting) -> float:
        """Of the step: what the first finding saves, or the largest loss that one explains without a saving."""
        saved = next((finding.saving.high_share for finding in self.findings if finding.saving), 0.0)
        rules = {finding.rule for finding in self.findings if finding.loss}
        return max([saved, *(part.share for part in known.losses if rules & {*part.findings})])

    @property
    def worst(self) -> Severity | None:
        """Highest severity among the findings, None where there are none."""
        return next((s for s in SEVERITIES if any(f.severity == s for f in self.findings)), None)

    @property
    def judged(self) -> int:
        """How many rules could be judged."""
        fired = {f.rule for f in self.findings} | {s.rule for f in self.findings for s in f.symptoms}
        return len(fired) + len(self.passed) + len(self.suppressed)

    @property
    def tells_too_little(self) -> bool:
        """Whether more rules could not be judged than could: then silence means nothing."""
        return len(self.not_evaluable) > self.judged


class Unreadable(Frozen):
    """A file or folder that held no profile that could be read; `others` beside it, for the same reason.

    `is_empty` is true of a file that is whole and in which nothing was recorded.
    """

    path: str
    why: str
    others: tuple[str, ...] = ()
    is_empty: bool = False


class Report(Frozen):
    """All runs of one `advisor check`."""

    kind: Literal["report"] = "report"
    schema_version: Literal[2] = SCHEMA_VERSION
    advisor_version: str
    runs: tuple[Run, ...]
    unreadable: tuple[Unreadable, ...] = ()

    def exit_code(self, fail_on: FailOn) -> int:
        """1 if a finding is at least as severe as `fail_on`; else 3 if a file is unread or a run tells too little.

        Else 0; where `fail_on` is `never`, 0 unless every run is of a file cut off before a step is complete: 3.
        """
        if self.runs and all(run.source.steps.are_cut for run in self.runs):
            return UNJUDGED_EXIT_CODE
        if fail_on == "never":
            return 0
        grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
        if any(f.severity in grave for run in self.runs for f in run.findings):
            return FINDINGS_EXIT_CODE
        unsure = self.unreadable or any(run.tells_too_little for run in self.runs)
        return UNJUDGED_EXIT_CODE if unsure else 0
