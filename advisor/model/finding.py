"""A finding: a rule that fired, its numbers, its saving and its fixes; and rules that could not be judged."""

import operator
from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from advisor.model.reason import Count, Frozen, Length, Reason, Share
from advisor.vocabulary.limits import table
from advisor.vocabulary.severities import Severity


def _is_unknown(value: object) -> bool:
    return value is None


class Entry(Frozen):
    """A name that a metric lists; of its amounts it has those that the metric is about.

    `count`, `bytes` and `ms` are per step unless the metric says otherwise. `share` is a part of 1; `what` says what it
    is of, or what else is known of the name.
    """

    name: str
    count: float | None = Field(None, exclude_if=_is_unknown)
    bytes: float | None = Field(None, exclude_if=_is_unknown)
    ms: float | None = Field(None, exclude_if=_is_unknown)
    share: float | None = Field(None, exclude_if=_is_unknown)
    what: str | None = Field(None, exclude_if=_is_unknown)


Confidence: TypeAlias = Literal["high", "medium", "low"]
Value: TypeAlias = float | Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | str | tuple[Entry, ...] | None
Operator: TypeAlias = Literal["<", "<=", ">", ">=", "=", "<>", "!="]

# Weight of a saving's midpoint by the confidence: the expected saving, which ranks findings
CERTAINTY: Final[Mapping[Confidence, float]] = {"high": 1.0, "medium": 0.7, "low": 0.4}
_LIMITS: Final[Mapping[str, Mapping[Confidence, float]]] = table(__file__, "trust")


def grade(**of: float) -> Confidence:
    """How far to trust what rests on these: `low` or `medium` from a limit of trust.yaml on, else `high`."""
    levels: tuple[Confidence, ...] = ("low", "medium")
    return next((level for level in levels if any(value >= _LIMITS[name][level] for name, value in of.items())), "high")


_MUCH: Final = 0.4  # own choice: with so much more at the high end a fix by itself saves clearly more
OUTLIERS: Final = "outliers"
"""The part of the mean step that uneven steps add; a saving of it is relative to the mean of all complete steps."""


class Saving(Frozen):
    """Step time that a fix gives back: an interval, and the part of the step it comes out of.

    `parts` are all parts that it draws on, with the milliseconds of the recorded step that come out of each at most.
    `shared_low_ms` and `shared_ms` are left out of the ends, because other findings count them. `after` is the part of
    the step that has to get shorter first: workers of a data loader set the pace, and until they are faster this saves
    nothing. `cause_ms` is what is told of its cause, where it may save more at best; else null.
    """

    low_ms: Length
    high_ms: Length
    low_share: Share
    high_share: Share
    of: str
    method: str
    parts: Mapping[str, Length] = {}
    shared_low_ms: Length = 0.0
    shared_ms: Length = 0.0
    after: str | None = None
    cause_ms: Length | None = Field(None, exclude_if=_is_unknown)

    @property
    def pools(self) -> Mapping[str, float]:
        """What comes out of each part of the step at most."""
        return self.parts or {self.of: self.high_ms}

    @property
    def is_rest(self) -> bool:
        """Whether other findings count much of what the fix saves alone: what it saves after those is told as that."""
        return self.shared_ms > _MUCH * self.high_ms


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
    dur_ns: Count
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
    only an edit does. `is_estimated` says whether the finding's saving is what this fix brings; `records` whether it
    changes the next recording only, and saves nothing by itself.
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
    records: bool = False


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
    without a saving explains, `culprit` what the headline names. `phase` is the phase of a server's steps that
    it is about, null where it is of all.
    `time_share` is the part of the step that a finding without a saving is about, where its rule says so.
    `sentence_share` is the one share of the step that the first sentence of `says` tells.
    `of_recording` says that it is about the recording and not about the job.
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
    culprit: str | None = Field(None, exclude_if=operator.not_)
    time_share: float | None = Field(None, exclude_if=operator.not_)
    sentence_share: float | None = Field(None, exclude_if=operator.not_)
    of_recording: bool = False
    phase: str | None = None
    new: bool | None = None

    @property
    def is_most_of_recording(self) -> bool:
        """Whether it says that most of the recording happens once, so that all others are about its smaller part."""
        return self.loss == "once" and self.severity != "low"

    @property
    def lacks_work(self) -> bool:
        """Whether the recording lacks work of the device: the time that seems lost may be none."""
        return self.loss in {"unknown", "compute"}

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
        """The reasons in words, each once; that there is no data is left to those that say why."""
        reasons = [*self.missing.values()]
        known = [reason for reason in reasons if reason.code != "nothing_to_compute_from"]
        return tuple(dict.fromkeys(reason.words for reason in known or reasons))


class Suppressed(Frozen):
    """A rule that fired and was suppressed in the configuration."""

    rule: str
    title: str
    severity: Severity
    reason: str
    until: str | None
