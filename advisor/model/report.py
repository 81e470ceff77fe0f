"""Report: everything that a check found out, as one frozen value. Its JSON form is the contract with other programs."""

import operator
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, computed_field

from advisor.model.action import LARGE, MOST, Action, actions
from advisor.model.clause import BARELY_RECORDED, DOUBTS, FRAGMENT, ONE_RUN
from advisor.model.finding import Confidence, Entry, Finding, NotEvaluable, Suppressed, Value, grade
from advisor.model.reason import Count, Frozen, Length, Reason, Share
from advisor.model.source import Source
from advisor.vocabulary.limits import HEALTHY_SHARE
from advisor.vocabulary.parts import PARTS
from advisor.vocabulary.severities import SEVERITIES, FailOn, Severity


class Track(Frozen):
    """A stream of the device or a thread of the host; `name` is the thread's, null where it is not known."""

    kind: Literal["stream", "thread"]
    number: int
    name: str | None = None


class Span(Frozen):
    """A stretch of a timeline, in ns from its start."""

    start_ns: int
    dur_ns: Count


class Idle(Span):
    """A stretch in which the device runs nothing, and why; times in ns from the timeline's start."""

    cause: str


class Piece(Span):
    """A stretch of a timeline, in ns from its start, and the part of the step that it shows."""

    part: str


class Events(Frozen):
    """The events of a timeline, a column each and all of one length.

    `track` counts into the timeline's tracks, `name` and `kind` into its texts; times are in ns from its start. `depth`
    says how many ranges of the same track enclose the event.
    """

    track: tuple[int, ...]
    name: tuple[int, ...]
    kind: tuple[int, ...]
    depth: tuple[Count, ...]
    start_ns: tuple[int, ...]
    dur_ns: tuple[Count, ...]


class Timeline(Frozen):
    """The longest used step of the worker that sets the pace: what ran, and why the device idled.

    `recorded` is how many events the step has; the shortest are left out where that is more than a page can show, and
    of `idle` as well. `strip` is the whole step at the resolution of a picture: over any stretch each part has as much
    of it as it has time. `parts_ns` is the time of each part, empty where the accounting is unknown. `shows` gives, by
    the key of a finding, the stretches that show it.
    """

    worker: int
    device: int | None
    step: int | None
    start_ns: int
    dur_ns: Count
    recorded: Count
    tracks: tuple[Track, ...]
    texts: tuple[str, ...]
    events: Events
    idle: tuple[Idle, ...]
    strip: tuple[Piece, ...] = ()  # empty in reports that were saved before it
    parts_ns: Mapping[str, Count] = {}
    shows: Mapping[str, tuple[Span, ...]]


Row: TypeAlias = Mapping[str, Value]  # a row of the metrics, by name
SCHEMA_VERSION: Final = 3
_EARLIER: Final = 2  # what it has and version 3 has not is ignored, or follows from the rest
_Version: TypeAlias = Annotated[Literal[3], BeforeValidator(lambda of: SCHEMA_VERSION if of == _EARLIER else of)]
FINDINGS_EXIT_CODE: Final = 1
_SMALL_BESIDE, _LARGER = 0.02, 0.2  # own choice: what saves less of the step, and so little of what another saves
UNJUDGED_EXIT_CODE: Final = 3


class Part(Frozen):
    """A part of the mean step: useful work, or a loss.

    `findings` are the rules whose savings come out of it, or that explain it; `saved_ms` is what those save at most.
    `is_explained` says whether one of them is about it. `reasons` are what kept rules that are about it from judging.
    `range` is the program's own range that most of it lies in, and `range_share` how much of it; null where none does.
    `lines` are the program's lines that hold most of it, of ops those with a tenth of the step; empty where it is
    Python around the training's own ops, null where no lines were sampled.
    The codes are those of `advisor.vocabulary.parts`.
    """

    part: str
    is_useful: bool
    ms: Length
    share: Share
    findings: tuple[str, ...] = ()
    saved_ms: Length = 0.0
    is_explained: bool = False
    reasons: tuple[Reason, ...] = ()
    range: str | None = None
    range_share: Share | None = None
    lines: str | tuple[Entry, ...] | None = None


class Accounting(Frozen):
    """The step in disjoint parts that add up to it: the mean one, or the one without the profiler where it was timed.

    `busy_share` is the part of the step that is useful work: what every bar and sentence calls busy.
    """

    step_ms: Annotated[float, Field(gt=0)]
    parts: tuple[Part, ...]

    @computed_field  # type: ignore[prop-decorator] # mypy knows no property under a decorator
    @property
    def busy_share(self) -> float:
        """The part of the step that is useful work."""
        return sum(part.share for part in self.parts if part.is_useful)

    @property
    def needed_share(self) -> float:
        """The same without what findings shorten of it."""
        return sum(part.ms - part.saved_ms for part in self.parts if part.is_useful) / self.step_ms

    @property
    def losses(self) -> list[Part]:
        """What is no useful work, the largest first."""
        return sorted((part for part in self.parts if not part.is_useful), key=lambda part: -part.ms)


OutcomeCode: TypeAlias = Literal["finding", "loss", "minor", "nothing", "too_little"]


class Outcome(Frozen):
    """What the verdict says, in facts.

    Attributes:
        code: `finding` where the first finding is the verdict, `loss` where a loss without one is larger, `minor` where
            no finding saves anything, `nothing` where no rule fired, `too_little` where most rules could not be judged,
            or no finding is the verdict and nothing shows where the time goes.
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


class Columns(Frozen):
    """Rows of a table by column, in their order.

    `same` are the columns with one value for all of them. `like` is the table whose rows these are, too; null where
    they are written here.
    """

    same: Mapping[str, Value] = {}
    columns: Mapping[str, tuple[Value, ...]] = {}
    like: str | None = None


class Run(Frozen):
    """One job: what was read, where its step goes, what to change, and what could not be told.

    `verdict` is the `outcome` in words. `columns` are, in the file of a job of many ranks alone, the rows of `metrics`
    of most ranks; the ranks of which more is told have theirs in `metrics`.
    """

    name: str
    verdict: str
    source: Source
    findings: tuple[Finding, ...]
    not_evaluable: tuple[NotEvaluable, ...]
    passed: tuple[str, ...]
    not_applicable: tuple[str, ...]
    suppressed: tuple[Suppressed, ...]
    metrics: Mapping[str, tuple[Mapping[str, Value], ...]]
    columns: Mapping[str, Columns] = Field({}, exclude_if=operator.not_)
    timeline: Timeline | None = None
    accounting: Accounting | None = None

    @computed_field  # type: ignore[prop-decorator] # as above
    @property
    def outcome(self) -> Outcome:
        """What the verdict says, in facts."""
        by_words = {why.words: why for rule in self.not_evaluable for why in rule.missing.values()}
        times = Counter(words for rule in self.not_evaluable for words in rule.words)
        words, rules = next(iter(times.most_common(1)), ("", 0))
        loss, code = self.unexplained, self._code
        return Outcome(
            code=code,
            judged=self.judged,
            not_evaluable=len(self.not_evaluable),
            reason=by_words.get(words),
            reason_rules=rules,
            loss=loss.part if loss and code == "loss" else None,
        )

    @property
    def length_ms(self) -> float | None:
        """The step that the accounting and the sequence of the actions are of."""
        return self.accounting.step_ms if self.accounting else self.source.steps.length_ms

    @computed_field  # type: ignore[prop-decorator] # as above
    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """What to do, the first to be done first; all of them, also those that save next to nothing."""
        useful = [part for part in self.accounting.parts if part.is_useful and part.ms] if self.accounting else []
        work_ms = {pool: part.ms for part in useful if part.part in PARTS for pool in PARTS[part.part].pools}
        used_share = number(self.of_pace, "used_ms") / (number(self.of_pace, "recorded_ms") or 1.0)
        return actions(self.findings, self.source.framework, self.length_ms, work_ms, used_share)

    @computed_field  # type: ignore[prop-decorator] # as above
    @property
    def trust(self) -> Confidence:
        """How far the numbers can be trusted, as far as the recording goes.

        Low where it is what is wrong, or what `weakens` it is much. Medium where that is less, a finding is about the
        recording, files were repaired, ranks are missing, steps are inferred or few, or action 1's finding has low
        confidence.
        """
        about = any(of.of_recording for of in self.findings) or self.source.steps.are_few
        about |= bool(self.doubts or self.weakens)
        about |= any(finding.confidence == "low" for finding in self.findings[:1] if self.worthwhile)
        return "low" if self.is_unsound or grade(**self.weakens) == "low" else "medium" if about else "high"

    @property
    def is_unsound(self) -> bool:
        """Whether the recording is what is wrong.

        Most rules could not be judged, nothing shows where the time goes, it lacks much of the device's work, or holds
        one run alone, or little beside a start or a failure.
        """
        is_part = any(note.code in {FRAGMENT, ONE_RUN} for note in self.doubts)
        most = [of for of in self.findings[:1] if of.loss in {"once", "unknown"} and of.severity != "low"]
        is_little = bool(most) and all(of.records for of in self._first)  # beside start-up, or what failed early
        is_grave = any(of.of_recording and of.severity == "high" for of in self.findings)
        return self.tells_too_little or is_part or is_little or is_grave or not self._shows_times

    @property
    def weakens(self) -> dict[str, float]:
        """What was measured of the recording itself and makes its numbers less sure."""
        parts = self.accounting.parts if self.accounting else ()
        others = sum(part.share for part in parts if part.part == "other_programs")
        known = {"profiler-overhead": self.source.steps.longer, "busy_machine": others}
        return {of: value for of, value in known.items() if grade(**{of: value}) != "high"}

    @property
    def _shows_times(self) -> bool:
        return self.accounting is not None or self.source.workload.kinds == ("collectives",)

    @property
    def doubts(self) -> list[Reason]:
        """The notes that make numbers doubtful, as steps do that were only inferred."""
        notes = (*self.source.salvaged, *self.source.notes)
        return [note for note in notes if note.code in DOUBTS or note.facts.get("confidence", "high") != "high"]

    @property
    def _code(self) -> OutcomeCode:
        if self.findings and self.findings[0].lacks_work and self.findings[0].severity == "high":
            return "finding"
        if self.tells_too_little:
            return "too_little"
        if self.unexplained:
            return "loss"
        if self._is_worth_a_verdict:
            return "finding"
        if any(note.code == BARELY_RECORDED for note in self.source.notes) or not self._shows_times:
            return "too_little"
        return "minor" if self.findings else "nothing"

    @property
    def _is_worth_a_verdict(self) -> bool:
        explains = self.accounting is None or self.accounting.needed_share < HEALTHY_SHARE
        saves = any(action.high_ms and not action.is_small for action in self.actions)
        worth = [of for of in self.findings if of.saving is None or of.saving.high_ms > 0]
        return saves or any((f.loss and explains) or f.severity != "low" for f in worth)

    @property
    def unexplained(self) -> Part | None:
        """The loss that is the verdict: the largest that no finding explains, unless findings account for more.

        A smaller one than a tenth of the step is the verdict only where no finding is, and the job is not healthy.
        """
        known = self.accounting
        if known is None or known.needed_share >= HEALTHY_SHARE or self.is_mostly_once:
            return None
        loss = next((part for part in known.losses if not part.is_explained), None)
        saved = next((finding.saving.high_share for finding in self.findings if finding.saving), 0.0)
        about = next((finding.time_share or 0.0 for finding in self.findings[:1] if finding.severity != "low"), 0.0)
        explained = (part.share for part in known.losses if part.is_explained)
        if loss is None or loss.share <= max([saved, about, *explained]):
            return None
        return loss if loss.share >= 1 - HEALTHY_SHARE or not self._is_worth_a_verdict else None

    @property
    def is_mostly_once(self) -> bool:
        """Whether most of the recording is work that is done once: the first finding says so."""
        return any(finding.is_most_of_recording for finding in self.findings[:1])

    @property
    def worthwhile(self) -> list[Action]:
        """The actions that have a place on a first screen, the first to be done first.

        What saves next to nothing beside the others has none, nor what saves little and only after them, nor what asks
        for a second recording. One that shows why most of the time is lost has one, whatever its finding saves.
        """
        shows = {*self.unexplained.findings} if self.unexplained else set()
        first = next((action for action in self.actions if action.is_recording), None)
        most = max((action.shares[1] for action in self.actions), default=0.0)
        every = [action for action in self.actions if action is first or not action.is_recording]
        known = [a for a in every if a.high_ms is None or a.shares[1] >= min(_SMALL_BESIDE, most * _LARGER)]
        known = [a for a in known if not a.after or a.sure_share >= LARGE] or known
        return [a for a in known if not a.is_small or (a.is_recording and not shows.isdisjoint(a.findings))]

    @property
    def listed(self) -> list[Action]:
        """Those that a first screen lists."""
        return self._first[: MOST - self.records_first]

    @property
    def _first(self) -> list[Action]:
        return self.worthwhile[:MOST]

    @property
    def records_first(self) -> bool:
        """Whether another recording comes before these, because this one is what is wrong and none of them says so."""
        doubts = {finding.key for finding in self.findings if finding.of_recording}
        asks = any(a.is_recording or "`advisor record" in a.do or doubts & {*a.findings} for a in self._first)
        calls_none = any(why.code == "no_cuda_called" for why in self.source.lacks.values())
        return self.is_unsound and bool(self._first) and not (asks or calls_none)

    @property
    def numbered(self) -> list[tuple[int, Action]]:
        """Those with their numbers, behind that of another recording."""
        return [*enumerate(self.listed, 1 + self.records_first)]

    @property
    def of_job(self) -> Row:
        """The metrics of the job as a whole; empty where the report has none."""
        return next(iter(self.metrics.get("run", ())), {})

    @property
    def of_pace(self) -> Row:
        """The metrics of the worker that sets the pace, or of the first; empty where the report has none."""
        rows = self.metrics.get("worker", ())
        return next((row for row in rows if row.get("worker") == self.source.steps.worker), rows[0] if rows else {})

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
    schema_version: _Version = SCHEMA_VERSION
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


def number(row: Row, name: str) -> float:
    """A metric of a row, 0 where it is unknown."""
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
