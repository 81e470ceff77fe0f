"""The parts of a rule: where it applies, what it saves, how sure that is, what to change, and its cases."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from advisor.model.finding import Confidence
from advisor.rules import wording
from advisor.rules.selections import Saves, Strict, Text, number
from advisor.vocabulary.parts import Pool
from advisor.vocabulary.severities import Severity

Framework: TypeAlias = Literal["pytorch", "tensorflow", "jax", "cuda", "any"]
"""`cuda` is a program of its own, of no framework. `any` is in `applies` one of which it could not be told."""
Workload: TypeAlias = Literal["training", "inference", "serving", "capture", "benchmark", "collectives", "unknown"]
Phase: TypeAlias = Literal["prefill", "decode", "mixed", "verify"]
# What a finding explains without a saving: a part of the accounting, or what parts name among their pools
LossCode: TypeAlias = Literal[
    "once", "compute", "unrecorded", "unknown", "own_processes", "other_programs", "long_steps"
]
# Why a recording cannot show whether a job has a fix already; `vocabulary.rules.UNSEEN` has the words
Unseen: TypeAlias = Literal["environment", "code", "machine", "data", "option", "elsewhere"]
Part: TypeAlias = str | float  # how much of a metric counts: a number, or an expression over parameters and shares
Terms: TypeAlias = str | Mapping[str, Part]  # a metric in ms, or a share of the step; or several, each with its part


RECURRING: Final[tuple[Workload, ...]] = ("training", "inference", "serving", "benchmark", "unknown")
"""Kinds of work that go on: all but a capture, which happens once."""


def _sayable(title: str) -> str:
    if "{" in title.replace("{{ device }}", "") and (unknown := wording.names(title) - {wording.DEVICE}):
        raise ValueError(f"a title has no values but {{{{ device }}}}: {', '.join(sorted(unknown))}")
    wording.say(title, {wording.DEVICE: "GPU"})  # a ValueError where it cannot be said
    return title


Title: TypeAlias = Annotated[Text, AfterValidator(_sayable)]


class Applies(Strict):
    """Where a rule makes sense; elsewhere it is not applicable, and silent. An absent condition admits all."""

    framework: tuple[Framework, ...] = ()
    format: tuple[str, ...] = ()
    device: bool | None = None
    distributed: bool | None = None  # a job is if it has several ranks or any collective
    tpu: bool | None = None  # false: about what only GPUs have, as calls of CUDA or HIP, streams, pinned memory
    min_capability: float | None = None
    workload: tuple[Workload, ...] = RECURRING  # of a job that mixes several kinds of work, one suffices
    phase: tuple[Phase, ...] = ()  # of a server's steps; where its phases are unknown the rule cannot be judged
    known: tuple[str, ...] = ()  # metrics that only some recordings tell: elsewhere the rule is silent


class Ends(Strict):
    """What is saved: a change, and how much of its two ends counts."""

    change: str | None = None  # `foreach` saves `foreach_least_gain_ms` to `foreach_gain_ms`
    least: Terms | None = None  # in place of the change, or several to add up, each a part; else as `most`
    most: Terms | None = None  # the same; a share is that part of the step
    limit: Terms | None = None  # neither end is more
    low: Part = 1.0  # of that end, what counts
    high: Part = 1.0  # the same
    sure: str | None = None  # where it does not hold, the low end is 0

    @property
    def ends(self) -> tuple[str, str]:
        """The expressions of the low and the high end, in ms."""
        most = self.most or f"{self.change}_gain_ms"
        least = self.least or (f"{self.change}_least_gain_ms" if self.change else most)
        low, high = _times(self.low, self._limited(least)), _times(self.high, self._limited(most))
        return f"CASE WHEN {self.sure} THEN {low} ELSE 0 END" if self.sure else low, high

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of a metric that counts."""
        terms = (terms for terms in (self.least, self.most, self.limit) if isinstance(terms, Mapping))
        return (self.low, self.high, *(part for each in terms for part in each.values()))

    def _limited(self, terms: Terms) -> str:
        saved, limit = _sum(terms), _sum(self.limit) if self.limit else ""
        return f"CASE WHEN {limit} < {saved} THEN {limit} ELSE {saved} END" if limit else saved

    @model_validator(mode="after")
    def _names_what_is_saved(self) -> Self:
        if why := self._problem():
            raise ValueError(why)
        return self

    def _problem(self) -> str | None:
        is_complete = (self.change is None) != (self.most is None)
        return None if is_complete else "name what is saved: `change: NAME`, or `most: METRIC` and `least: METRIC`"


class Saving(Saves, Ends):
    """Step time that the fix gives back, and the part of the step that it comes out of.

    One of the ways of `Saves` names a selection of the rule, which is the change then.
    """

    of: Pool
    of_ms: str | None = None  # no more comes out of `of`, the rest out of `then_from`; the larger goes first
    cause_ms: str | None = None  # what the sentence tells of the cause, where the high end may be more
    then_from: tuple[Pool, ...] = ()  # drawn on in order, once the first is used up: copies, once input is there
    without_device: Ends | None = None  # for jobs that use none
    known: str | None = None  # where it does not hold there is no estimate
    low_ms: str | float | None = None  # in place of all these, two expressions
    high_ms: str | float | None = None
    method: Text

    @property
    def ends(self) -> tuple[str, str]:
        """The expressions of the low and the high end, in ms."""
        if self.low_ms is not None:
            return str(self.low_ms), str(self.high_ms)
        low, high = super().ends
        if self.without_device:
            pairs = zip(self.without_device.ends, (low, high), strict=True)
            low, high = (f"CASE WHEN devices_used = 0 THEN {on_host} ELSE {end} END" for on_host, end in pairs)
        if self.known:
            low, high = (f"CASE WHEN {self.known} THEN {end} END" for end in (low, high))
        return low, high

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of a metric that counts."""
        return (*super().parts, *(self.without_device.parts if self.without_device else ()))

    def _problem(self) -> str | None:
        if self.low_ms is None and self.high_ms is None:
            return super()._problem()
        is_alone = None not in {self.low_ms, self.high_ms} and self.change is None and self.most is None
        return None if is_alone else "`low_ms` and `high_ms` stand together, and in place of `change` and `most`"


def _sum(terms: Terms) -> str:
    parts = {terms: 1.0} if isinstance(terms, str) else terms
    of_step = {name: f"{name} * step_mean_ms" if name.endswith("_share") else name for name in parts}
    return " + ".join(_times(part, of_step[name]) for name, part in parts.items())


def _times(part: Part, expression: str) -> str:
    if part in {0, 1}:
        return expression if part else "0"
    return f"{_factor(part)} * {_factor(expression)}"


def _factor(expression: Part) -> str:
    text = expression if isinstance(expression, str) else f"{expression:g}"
    return f"({text})" if set(text) & set("+-") or text.startswith("CASE") else text


class Levels(Strict):
    """The severity of a rule that saves no time: the first level that holds, and why it is no matter of time."""

    high: str | bool | None = None
    medium: str | bool | None = None
    low: str | bool | None = None
    because: Text | None = None


class Certainty(Strict):
    """How sure the saving is: one level lower where `lower_if` holds, and `title` is the finding's title then."""

    level: Confidence = "medium"
    lower_if: str | None = None
    title: Title | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_level(cls, written: object) -> object:
        return {"level": written} if isinstance(written, str) else written


class About(Strict):
    """What a finding is about."""

    rank: str | None = None  # a metric: the number of the one rank that a rule of scope `run` is about
    culprit: str | None = None  # a metric of text: what the headline names, such as a line
    time: str | None = None  # a metric in ms per step, of this rule and each of `parts`
    parts: tuple[str, ...] = ()  # rules about parts of that time; it stands for them unless one is most of it
    loss: LossCode | None = None  # the part of the period that it explains without a saving
    recording: bool = False  # it is only about the recording
    symptom: bool = False  # it is shown alone only if no cause explains it
    outweighs_ms: Part | None = None  # what saves no more than this stands under it


_Link: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=r"^(https://)?[\w.-]+\.\w+(/\S*)?$"),
    AfterValidator(lambda link: f"https://{link.removeprefix('https://')}"),
]
"""A page, with or without its `https://`."""


class Fix(Strict):
    """What to change, with code and the page that documents it; `do` and `code` hold the job's numbers, as `says` does.

    With neither `unless` nor `cannot_show`, the rule cannot fire on a job that has it. Fixes of one `choice` exclude
    each other.
    """

    framework: Annotated[Framework, Field(alias="for")]
    format: tuple[str, ...] = ()  # for whose profiles it is, where fixes differ by that, as advice on recording does
    workload: tuple[Workload, ...] = ()  # the kinds of work that it is for; by default all
    when: str | None = None  # for which cause it is: an expression over metrics and parameters
    unless: str | None = None  # the recording shows that it is made already
    cannot_show: Unseen | None = None  # why no recording shows that
    do: Text
    code: str | None = None
    numerics: Text | None = None  # how results change
    choice: Text | None = None
    link: _Link | None = None
    trial: Annotated[Mapping[str, bool | int | str] | None, Field(alias="try")] = None  # a patch, with arguments
    estimated: bool = True  # false: the rule's saving is not what it brings
    records: bool = False  # it only makes the next recording show more
    method: Text | None = None  # in place of the saving's, where this fix stands first and has reasons of its own

    @model_validator(mode="before")
    @classmethod
    def _of_mapping(cls, written: object) -> object:
        if isinstance(written, str):
            raise ValueError(f"no fix of fixes.yaml is called {written!r}")  # noqa: TRY004 - pydantic takes no other
        return written

    @property
    def templates(self) -> tuple[str, ...]:
        """All its texts that hold numbers of the job."""
        arguments = (str(value) for value in (self.trial or {}).values())
        return (self.do, self.code or "", *arguments)


class Reference(Strict):
    """Where a threshold or a claim comes from: `source: claim`."""

    what: Text
    where: Text

    @model_validator(mode="before")
    @classmethod
    def _of_pair(cls, written: object) -> object:
        if isinstance(written, dict) and len(written) == 1:
            ((source, claim),) = written.items()
            return {"what": claim, "where": source}
        return written


_Metrics: TypeAlias = Mapping[str, Annotated[float | str | None, BeforeValidator(number)]]


class Case(Strict):
    """A test of the rule: the metrics that it gives, the rest unknown; and what must come of them.

    In a file it is `name: {metric: value, fires: false}`. An entry called `shared` has the metrics of the cases after
    it; null takes one away.
    """

    name: Text
    metrics: Annotated[_Metrics, Field(default_factory=dict)]
    fires: Severity | bool = True  # the severity if the rule states levels, else whether it fires
    saves: tuple[float, float] | None = None
    not_evaluable: tuple[str, ...] | None = None
    fix: Text | None = None  # how the first one begins
    lower: bool = False  # the confidence is a level lower

    @model_validator(mode="before")
    @classmethod
    def _of_pair(cls, written: object) -> object:
        if (
            not isinstance(written, dict)
            or len(written) != 1
            or not isinstance(inner := next(iter(written.values())), dict)
        ):
            raise ValueError("write its name, the metrics that it gives, and what comes of them: `name: {metric: 0.2}`")
        verdict = {key: inner[key] for key in ("fires", "saves", "not_evaluable", "fix", "lower") if key in inner}
        return {
            "name": next(iter(written)),
            "metrics": {key: inner[key] for key in inner if key not in verdict},
            **verdict,
        }
