"""The form of a rule file: what it may say, and how it is loaded with an error at its file and line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from advisor.errors import RuleError, UsageError, form_in_words
from advisor.model.finding import SEVERITIES, Confidence, Severity
from advisor.rules import wording
from advisor.rules.expressions import Expression, ExpressionError, comparisons, parse
from advisor.rules.thresholds import Strict, Text, Threshold, number
from advisor.vocabulary.parts import Pool
from advisor.yamltree import Tree

Framework: TypeAlias = Literal["pytorch", "tensorflow", "jax", "cuda", "any"]
"""`cuda` is a program of its own, of no framework. `any` is in `applies` one of which it could not be told."""
Workload: TypeAlias = Literal["training", "inference", "serving", "capture", "benchmark", "unknown"]
Phase: TypeAlias = Literal["prefill", "decode", "mixed", "verify"]
LossCode: TypeAlias = Literal["once", "unrecorded", "unknown", "own_processes"]
"""What a finding explains without a saving: a part of the accounting, or what parts name among their pools."""

Unseen: TypeAlias = Literal["environment", "code", "machine", "data", "option", "elsewhere"]
"""Why a recording cannot show whether a job has a fix already; `vocabulary.rules.UNSEEN` has the words."""

_OF_FIXES: Final = ("when", "unless")
_VERDICT: Final = ("fires", "saves", "not_evaluable", "fix", "lower")
_SHARED: Final = "shared"
_DEVICE: Final = "{{ device }}"
_CASES: Final = re.compile(r"^cases:\n(?:[ #-].*\n|\n)*\Z", re.MULTILINE)
"""The cases where they come last in a file: a third of what there is to parse."""


RECURRING: Final[tuple[Workload, ...]] = ("training", "inference", "serving", "benchmark", "unknown")
"""Kinds of work that go on: all but a capture, which happens once."""


def _sayable(title: str) -> str:
    if "{" in title.replace(_DEVICE, "") and (unknown := wording.names(title) - {wording.DEVICE}):
        raise ValueError(f"a title has no values but {{{{ device }}}}: {', '.join(sorted(unknown))}")
    return title


_Title: TypeAlias = Annotated[Text, AfterValidator(_sayable)]


class Applies(Strict):
    """Where a rule makes sense; elsewhere it is not applicable, and silent. An absent condition admits all.

    A job is distributed if it has several ranks or any collective. `tpu: false` is about what only GPUs have: calls of
    CUDA or HIP, streams, multiprocessors, pinned memory. `workload` are kinds of work; of a job that mixes several,
    one suffices. `phase` are phases of a server's steps; of a server whose phases are unknown the rule cannot be
    judged, and it does not apply to other inference.
    """

    framework: tuple[Framework, ...] = ()
    format: tuple[str, ...] = ()
    device: bool | None = None
    distributed: bool | None = None
    tpu: bool | None = None
    min_capability: float | None = None
    workload: tuple[Workload, ...] = RECURRING
    phase: tuple[Phase, ...] = ()


class Saving(Strict):
    """Step time that the fix gives back: two expressions, and the part of the step that it comes out of.

    `then_from` are the parts that it draws on, in order, once the first is used up: without the wait for input the copy
    of the next batch is hidden too. Where `of_ms` is given, no more than that comes out of `of`, and the rest out of
    `then_from`; whichever is more goes first.
    """

    of: Pool
    of_ms: str | None = None
    then_from: tuple[Pool, ...] = ()
    low_ms: str | float
    high_ms: str | float
    method: Text


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
    title: _Title | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_level(cls, written: object) -> object:
        return {"level": written} if isinstance(written, str) else written


class About(Strict):
    """What a finding is about.

    `rank` is a metric: the number of the one rank that a rule of scope `run` is about. `time` is a metric in ms: the
    time per step, for this rule and each of `parts`, which are rules about parts of that time. It stands for them
    unless one of them is most of it. `loss` is the part of the period that it explains without a saving. A `symptom` is
    shown alone only if no cause explains it.
    """

    rank: str | None = None
    time: str | None = None
    parts: tuple[str, ...] = ()
    loss: LossCode | None = None
    symptom: bool = False


_Link: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=r"^(https://)?[\w.-]+\.\w+(/\S*)?$"),
    AfterValidator(lambda link: f"https://{link.removeprefix('https://')}"),
]
"""A page, with or without its `https://`."""


class Fix(Strict):
    """What to change, with code and the page that documents it.

    Where fixes differ by cause, `when` says of which one this is: an expression over metrics and parameters. Where the
    recording shows that it is made already, `unless` says so. If no recording shows it, `cannot_show` says why. With
    neither, the rule cannot fire on a job that has it. Where they differ by profiler, as advice on recording does,
    `format` says for whose profiles this one is. `workload` are the kinds of work that it is for; by default all.
    `do` and `code` are templates as `says` is: they hold this job's numbers. `numerics` says how results change.
    Fixes of one `choice` exclude each other.
    `try` names a patch of `advisor try` with its arguments, whose texts are templates too. `estimated` is false where
    the rule's saving is not what this fix brings. `records` is true where it only makes the next recording show more.
    """

    framework: Annotated[Framework, Field(alias="for")]
    format: tuple[str, ...] = ()
    workload: tuple[Workload, ...] = ()
    when: str | None = None
    unless: str | None = None
    cannot_show: Unseen | None = None
    do: Text
    code: str | None = None
    numerics: Text | None = None
    choice: Text | None = None
    link: _Link | None = None
    trial: Annotated[Mapping[str, bool | int | str] | None, Field(alias="try")] = None
    estimated: bool = True
    records: bool = False

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

    `fires` is the severity if the rule states levels, else whether it fires; `lower` whether the confidence is a level
    lower; `fix` how the first fix begins. In a file it is `name: {metric: value, fires: false}`. An entry called
    `shared` has the metrics of the cases after it; null takes one away.
    """

    name: Text
    metrics: Annotated[_Metrics, Field(default_factory=dict)]
    fires: Severity | bool = True
    saves: tuple[float, float] | None = None
    not_evaluable: tuple[str, ...] | None = None
    fix: Text | None = None
    lower: bool = False

    @model_validator(mode="before")
    @classmethod
    def _of_pair(cls, written: object) -> object:
        if (
            not isinstance(written, dict)
            or len(written) != 1
            or not isinstance(inner := next(iter(written.values())), dict)
        ):
            raise ValueError("write its name, the metrics that it gives, and what comes of them: `name: {metric: 0.2}`")
        verdict = {key: inner[key] for key in _VERDICT if key in inner}
        return {"name": next(iter(written)), "metrics": {key: inner[key] for key in inner.keys() - verdict}, **verdict}


class Rule(Strict):
    """One rule file."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    title: _Title
    scope: Literal["worker", "run"] = "worker"
    applies: Applies = Applies()
    parameters: Annotated[Mapping[str, Threshold], Field(alias="params")] = {}
    when: str | bool
    severity: Levels | None = None
    """Where it is not decided by what is saved."""
    certainty: Annotated[Certainty, Field(alias="confidence")] = Certainty()
    saving: Saving | None = None
    about: About = About()
    explains: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    says: Text
    why: Text
    fixes: Annotated[tuple[Fix, ...], Field(min_length=1)]
    references: Annotated[tuple[Reference, ...], Field(min_length=1)]
    entries: Annotated[tuple[Case, ...], Field(alias="cases")]
    _file: RuleFile | None = PrivateAttr(None)

    @property
    def cases(self) -> dict[int, Case]:
        """The cases by their places in the file, each with the metrics that those around it share."""
        shared: Mapping[str, float | str | None] = {}
        cases = {}
        for place, entry in enumerate(self.entries):
            if entry.name == _SHARED:
                shared = entry.metrics
                continue
            own = {metric: value for metric, value in {**shared, **entry.metrics}.items() if value is not None}
            cases[place] = entry.model_copy(update={"metrics": own})
        return cases

    def heading(self, device: str = wording.GPU, *, unsure: bool = False) -> str:
        """The title, with what to call the device."""
        title = (unsure and self.certainty.title) or self.title
        return wording.say(title, {wording.DEVICE: device})

    def unsayable(self, why: str) -> RuleError:
        """The error that its sentence cannot be said, where the file has the sentence."""
        return self._file.error(("says",), why) if self._file else RuleError(f"{self.id}: says: {why}")

    @property
    def params(self) -> dict[str, float]:
        """The value of every parameter by its name."""
        return {name: parameter.value for name, parameter in self.parameters.items()}

    @property
    def limits(self) -> dict[str, str]:
        """By parameter, the metric that is held against it, or against so much of the step, in a condition."""
        texts = [str(text) for key, text in self.texts.items() if not key.startswith("saving")]
        sides = (sides for text in (*texts, *self.texts_of_fixes.values()) for sides in comparisons(text))
        return {second.removesuffix(" * step_mean_ms"): first for first, _, second in sides if first.isidentifier()}

    def adjusted(self, params: Mapping[str, float], severity: Severity | None) -> Self:
        """The same rule with other values of parameters, or always at one severity, whatever it saves."""
        forced = {"severity": Levels.model_validate({severity: True})} if severity else {}
        changed = {name: self.parameters[name].model_copy(update={"value": value}) for name, value in params.items()}
        return self.model_copy(update={"parameters": {**self.parameters, **changed}, **forced})

    @property
    def levels(self) -> dict[Severity, str | bool]:
        """When it has which severity, the highest first; empty if what is saved decides."""
        every = {level: getattr(self.severity, level, None) for level in SEVERITIES}
        return {level: when for level, when in every.items() if when is not None}

    @property
    def texts(self) -> dict[str, str | bool | float]:
        """Every expression of the rule by the key it stands under."""
        texts: dict[str, str | bool | float] = {"when": self.when}
        texts |= {f"severity.{level}": when for level, when in self.levels.items()}
        if self.certainty.lower_if:
            texts["confidence.lower_if"] = self.certainty.lower_if
        if self.saving:
            texts |= {"saving.low_ms": self.saving.low_ms, "saving.high_ms": self.saving.high_ms}
            texts |= {"saving.of_ms": self.saving.of_ms} if self.saving.of_ms else {}
        return texts

    @property
    def texts_of_fixes(self) -> dict[tuple[int, str], str]:
        """The conditions of the fixes that have one, by their position and key."""
        return {(n, key): text for n, fix in enumerate(self.fixes) for key in _OF_FIXES if (text := getattr(fix, key))}

    def expressions(self, metrics: Iterable[str]) -> dict[str, Expression]:
        """The rule's expressions, parsed; `metrics` are the names they may use beside the rule's parameters.

        Raises:
            RuleError: one of them cannot be used; the message starts with its key.
        """
        known = {*metrics, *self.params}
        parsed = {}
        for key, text in self.texts.items():
            try:
                parsed[key] = parse(text if isinstance(text, bool) else str(text), known)
            except ExpressionError as error:
                raise RuleError(str(error), tuple(key.split("."))) from None
        return parsed

    def fix_conditions(self, metrics: Iterable[str]) -> dict[tuple[int, str], Expression]:
        """The conditions of the fixes that have one, parsed, by their position and key.

        Raises:
            RuleError: one of them cannot be used; the message starts with its place, `fixes.0.when`.
        """
        known = {*metrics, *self.params}
        parsed = {}
        for (index, key), text in self.texts_of_fixes.items():
            try:
                parsed[index, key] = parse(text, known)
            except ExpressionError as error:
                raise RuleError(str(error), ("fixes", index, key)) from None
        return parsed


class RuleFile:
    """One file's YAML; an error in it says at which line."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        try:
            self._tree = Tree(path.read_text("utf-8") if text is None else text)
            self.data = self._tree.values()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            kind = "" if type(error) is yaml.MarkedYAMLError else "not valid YAML: "  # those are our own
            raise RuleError(f"{path}:{line}: {kind}{error.problem or 'the text ends early'}") from None
        except RecursionError:
            raise RuleError(f"{path}:1: nested too deep; a rule needs four levels") from None
        except OSError as error:
            raise RuleError(f"{path}:1: cannot be read: {error.strerror}") from None
        except (ValueError, yaml.YAMLError) as error:
            raise RuleError(f"{path}:1: not valid YAML: {' '.join(str(error).split())}") from None
        if not isinstance(self.data, dict):
            raise RuleError(f"{path}:1: a rule file is a mapping that starts with `title:`")

    def error(self, at: Sequence[str | int], message: str) -> RuleError:
        """The error at the nearest place in the file that is known."""
        place, lines = tuple(at), self._tree.lines()
        while place not in lines:
            place = place[:-1]
        name = ".".join(str(part) for part in at)
        return RuleError(f"{self.path}:{lines[place]}: {f'{name}: ' if name else ''}{message}")

    def rule(self) -> Rule:
        """The rule in the file.

        Raises:
            RuleError: the first thing that is wrong with its form.
        """
        try:
            rule = Rule.model_validate({"id": self.path.stem, **self.data})
        except ValidationError as error:
            # A misspelt key is both unknown and missing: the place where it stands helps more.
            first = min(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
            raise self.error(first["loc"], _in_words(first)) from None
        rule._file = self  # noqa: SLF001 - it knows where it was read
        return rule


def _in_words(error: Any) -> str:  # noqa: ANN401 - pydantic's error dictionary
    return "no such key in a rule" if error["type"] == "extra_forbidden" else form_in_words(error)


def load(folders: Iterable[Path], *, cases: bool = True) -> dict[str, Rule]:
    """The rules of all `*.yaml` files in the folders, by id; a later folder replaces a rule of the same id.

    Args:
        folders: Where the files are.
        cases: Whether to read the rules' cases too, which judging does without.

    Raises:
        RuleError: a file that is no rule, or two files of one folder with one id.
        UsageError: a folder that does not exist, or has no rule.
    """
    book: dict[str, Rule] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such rule folder")
        of_folder: dict[str, Rule] = {}
        for path in sorted(folder.glob("*.yaml")):
            rule = _rule(path, _text(path, cases=cases))
            if rule.id in of_folder:
                raise RuleFile(path).error(("id",), f"{rule.id} is the id of another rule in this folder too")
            of_folder[rule.id] = rule
        if not of_folder:
            raise UsageError(f"{folder}: no rule in this folder; a rule is a *.yaml file")
        book |= of_folder
    return dict(sorted(book.items()))


def _text(path: Path, *, cases: bool) -> str | None:
    """What the file says; None where it cannot be read, which `RuleFile` words."""
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError):
        return None
    return text if cases else _CASES.sub("cases: []\n", text)


@lru_cache(maxsize=1_024)
def _rule(path: Path, text: str | None) -> Rule:
    """The rule in a file that says this: who checks many recordings in one process parses it once."""
    return RuleFile(path, text).rule()
