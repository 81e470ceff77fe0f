"""The form of a rule file: what it may say, and how it is loaded with an error at its file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeAlias

import polars as pl
from pydantic import Field, PrivateAttr, StringConstraints, ValidationError, field_validator

from advisor.errors import RuleError, UsageError, wrong_form
from advisor.metrics.metric import METRICS, Metric
from advisor.model.finding import Confidence
from advisor.model.notes import Note
from advisor.rules import wording
from advisor.rules.expressions import Expression, ExpressionError, parse
from advisor.rules.selections import MOST_SELECTIONS, Name, Saves, Selection, Selections
from advisor.rules.thresholds import Strict, Text, Threshold
from advisor.system.resources import rules_folder
from advisor.text import one_line
from advisor.vocabulary import formerly
from advisor.vocabulary.parts import Pool
from advisor.vocabulary.severities import SEVERITIES, Severity
from advisor.yamltree import FormError, Place, Yaml, content_of, decoded, leads_out

Framework: TypeAlias = Literal["pytorch", "tensorflow", "jax", "cuda", "any"]
"""`cuda` is a program of its own, of no framework. `any` is in `applies` one of which it could not be told."""
Workload: TypeAlias = Literal["training", "inference", "serving", "capture", "benchmark", "unknown"]
Phase: TypeAlias = Literal["prefill", "decode", "mixed", "verify"]
LossCode: TypeAlias = Literal["once", "unrecorded", "unknown", "own_processes"]
"""What a finding explains without a saving: a part of the accounting, or what parts name among their pools."""

Unseen: TypeAlias = Literal["environment", "code", "machine", "data", "option", "elsewhere"]
"""Why a recording cannot show whether a job has a fix already; `vocabulary.rules.UNSEEN` has the words."""

_RULE_LISTS: Final = ("explains", "parts")
_OF_FIXES: Final = ("when", "unless")
_DEVICE: Final = "{{ device }}"
_CASES: Final = re.compile(r"^cases:\n(?:[ #-].*\n|\n)*\Z", re.MULTILINE)
"""The cases where they come last in a file: a third of what there is to parse."""


RECURRING: Final[tuple[Workload, ...]] = ("training", "inference", "serving", "benchmark", "unknown")
"""Kinds of work that go on: all but a capture, which happens once."""


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


class Saving(Saves):
    """Step time that the fix gives back: two expressions, and the part of the step that it comes out of.

    One of `without`, `faster`, `overlapped` and `merged` names a selection: it gives both expressions.

    `beyond` are the parts that it draws on, in order, once the first is used up: without the wait for input the copy of
    the next batch is hidden too. Where `of_ms` is given, no more than that comes out of `of`, and the rest out of
    `beyond`; whichever is more goes first.
    """

    of: Pool
    of_ms: str | None = None
    beyond: tuple[Pool, ...] = ()
    low_ms: str | float
    high_ms: str | float
    method: Text


class Fix(Strict):
    """What to change, with code and the page that documents it.

    Where fixes differ by cause, `when` says of which one this is: an expression over metrics and parameters. Where the
    recording shows that it is made already, `unless` says so; it is false if the rule cannot fire on a job that has it.
    If no recording shows it, `cannot_show` says why. Where they differ by profiler, as advice on recording does,
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
    unless: str | Literal[False] | None = None
    cannot_show: Unseen | None = None
    do: Text
    code: str | None = None
    numerics: Text | None = None
    choice: Text | None = None
    link: Annotated[str, StringConstraints(pattern=r"^https://")] | None = None
    trial: Annotated[Mapping[str, bool | int | str] | None, Field(alias="try")] = None
    estimated: bool = True
    records: bool = False

    @property
    def templates(self) -> tuple[str, ...]:
        """All its texts that hold numbers of the job."""
        arguments = (str(value) for value in (self.trial or {}).values())
        return (self.do, self.code or "", *arguments)


class Reference(Strict):
    """Where a threshold or a claim comes from."""

    what: Text
    where: Text


class Case(Strict):
    """A test of the rule: the metrics that it gives, the rest unknown. `fix` is how the first fix begins."""

    name: Text
    metrics: Annotated[Mapping[str, float | str], Field(alias="given")]
    fires: Severity | Literal[False] | None = None
    saves: tuple[float, float] | None = None
    not_evaluable: tuple[str, ...] | None = None
    fix: Text | None = None
    doubted: bool = False


class Rule(Strict):
    """One rule file."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    title: Text
    scope: Literal["worker", "run"] = "worker"
    applies: Applies = Applies()
    measure: Annotated[Mapping[Name, Selection], Field(max_length=MOST_SELECTIONS)] = {}
    """What it measures by names; each entry gives the metrics of `selectors.ENDS`."""
    parameters: Annotated[Mapping[str, Threshold], Field(alias="params")] = {}
    when: str | bool
    severity: Mapping[Severity, str | bool]
    capped: bool = True
    """Whether the severity is at most what the saving carries."""
    confidence: Confidence
    doubt: str | None = None
    """Where it holds, the confidence is one level lower."""
    doubtful_title: Text | None = None
    """The title then."""
    saving: Saving | None = None
    loss: LossCode | None = None
    """The part of the period that the finding explains without a saving."""
    about: str | None = None
    """A metric whose value is the number of the one rank which a rule of scope `run` is about."""
    leads: bool = False
    """At high severity its finding comes first: it speaks of time that no saving reckons with."""
    symptom: bool = False
    explains: tuple[str, ...] = ()
    covers: str | None = None
    """A metric in ms: the time per step that the finding is about."""
    parts: tuple[str, ...] = ()
    """Rules about parts of what this one covers: it stands for them unless one of them is most of it."""
    shows: tuple[str, ...] = ()
    says: Text
    why: Text
    fixes: Annotated[tuple[Fix, ...], Field(min_length=1)]
    references: Annotated[tuple[Reference, ...], Field(min_length=1)]
    cases: tuple[Case, ...]
    _file: RuleFile | None = PrivateAttr(None)
    _shared: Mapping[str, Selection] = PrivateAttr(default_factory=dict)

    @field_validator("title", "doubtful_title")
    @classmethod
    def _sayable(cls, title: str | None) -> str | None:
        if title and "{" in title.replace(_DEVICE, "") and (unknown := wording.names(title) - {wording.DEVICE}):
            raise ValueError(f"a title has no values but {{{{ device }}}}: {', '.join(sorted(unknown))}")
        return title

    def heading(self, device: str = wording.GPU, *, doubted: bool = False) -> str:
        """The title, with what to call the device."""
        title = self.doubtful_title if doubted and self.doubtful_title else self.title
        return wording.say(title, {wording.DEVICE: device})

    def unsayable(self, why: str) -> RuleError:
        """The error that its sentence cannot be said, where the file has the sentence."""
        return self._file.error(("says",), why) if self._file else RuleError(f"{self.id}: says: {why}")

    @cached_property
    def selected(self) -> Mapping[str, Metric]:
        """The metrics of its selections, by the name that they have in this rule."""
        gains = self.saving.gains if self.saving else {}
        return Selections(self.id, self.measure, self._shared).metrics(gains)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of the rule, the names of what it uses among them."""
        return frozenset(re.findall(r"\w+", self.model_dump_json(exclude={"cases", "measure"})))

    def metric(self, name: str) -> Metric:
        """The metric that the rule calls so."""
        return self.selected.get(name) or METRICS[name]

    def has_metric(self, name: str) -> bool:
        """Whether the rule can call a metric so."""
        return name in self.selected or name in METRICS

    def own(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of metrics, with those of the rule's selections by the names that they have in the rule."""
        if not self.measure:
            return rows
        unknown = pl.Series([None] * rows.height)
        return rows.with_columns(
            rows.get_column(metric.name, default=unknown).cast(metric.dtype).alias(name)
            for name, metric in self.selected.items()
        )

    @property
    def renamed(self) -> list[Note]:
        """A note on each earlier name that the file has."""
        return self._file.renamed if self._file else []

    @property
    def params(self) -> dict[str, float]:
        """The value of every parameter by its name."""
        return {name: parameter.value for name, parameter in self.parameters.items()}

    def adjusted(self, params: Mapping[str, float], severity: Severity | None) -> Self:
        """The same rule with other values of parameters, or always at one severity, whatever it saves."""
        forced = {"severity": {severity: True}, "capped": False} if severity else {}
        changed = {name: self.parameters[name].model_copy(update={"value": value}) for name, value in params.items()}
        return self.model_copy(update={"parameters": {**self.parameters, **changed}, **forced})

    @property
    def texts(self) -> dict[str, str | bool | float]:
        """Every expression of the rule by the key it stands under."""
        texts: dict[str, str | bool | float] = {"when": self.when}
        texts |= {f"severity.{level}": self.severity[level] for level in SEVERITIES if level in self.severity}
        if self.doubt:
            texts["doubt"] = self.doubt
        if self.saving:
            texts |= {"saving.low_ms": self.saving.low_ms, "saving.high_ms": self.saving.high_ms}
            texts |= {"saving.of_ms": self.saving.of_ms} if self.saving.of_ms else {}
        return texts

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
        texts = {(n, key): text for n, fix in enumerate(self.fixes) for key in _OF_FIXES if (text := getattr(fix, key))}
        parsed = {}
        for (index, key), text in texts.items():
            try:
                parsed[index, key] = parse(text, known)
            except ExpressionError as error:
                raise RuleError(str(error), ("fixes", index, key)) from None
        return parsed


class RuleFile:
    """One file's YAML; an error in it says at which line."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        with _refusing(path):
            text = _text(path) if text is None else text
            self._yaml = Yaml(formerly.in_text(text, formerly.METRICS))
        self.data = self._yaml.value
        if not isinstance(self.data, dict):
            raise RuleError(f"{path}:1: a rule file is a mapping that starts with `id:`")
        self.renamed = [
            self._note(at, old, formerly.METRICS[old]) for old, at in formerly.lines_of(text, formerly.METRICS).items()
        ]
        if formerly.RULES:
            self._take_ids_of_now()

    def _note(self, lines: str, old: str, new: str) -> Note:
        return Note("renamed", place=f"{self.path}:{lines}", old=old, new=new)

    def _take_ids_of_now(self) -> None:
        """Ids of rules are words of the language too: only where one stands for a rule is it changed."""
        spots = [((key, n), rule) for key in _RULE_LISTS for n, rule in enumerate(_list(self.data.get(key)))]
        for at, old in [(("id",), self.data.get("id")), *spots]:
            if isinstance(old, str) and old in formerly.RULES:
                self.renamed.append(self._note(str(self._yaml.line(at)), old, formerly.RULES[old]))
                inner = self.data if len(at) == 1 else self.data[at[0]]
                inner[at[-1]] = formerly.RULES[old]

    def error(self, at: Sequence[str | int], message: str) -> RuleError:
        """The error at the nearest place in the file that is known."""
        return self._error(tuple(at), ": ".join(filter(None, (".".join(map(str, at)), message))))

    def _error(self, at: Place, words: str) -> RuleError:
        return RuleError(f"{self.path}:{self._yaml.line(at)}: {words}")

    def rule(self, shared: Mapping[str, Selection] | None = None) -> Rule:
        """The rule in the file; `shared` are selections that it may name beside its own.

        Raises:
            RuleError: the first thing that is wrong with its form.
        """
        try:
            rule = Rule.model_validate(self.data)
            rule._shared = shared or {}  # noqa: SLF001 - selections of other files
            rule.selected  # noqa: B018 - what it names must be there
        except ValidationError as error:
            raise self._error(*wrong_form(error, "no such key in a rule")) from None
        except ValueError as error:
            raise self.error(("measure",), str(error)) from None
        rule._file = self  # noqa: SLF001 - it knows where it was read
        return rule


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def files(folder: Path) -> list[Path]:
    """The rule files of a folder, by name.

    Raises:
        UsageError: there is no such folder.
    """
    if not os.path.isdir(folder):  # noqa: PTH112 - a name may hold what no folder's does
        raise UsageError(f"{one_line(str(folder), 300)}: no such rule folder")
    return sorted(folder.glob("*.yaml"))


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
        of_folder: dict[str, Rule] = {}
        for path in files(folder):
            with _refusing(path):
                text = _text(path)
            rule = _rule(path, text if cases else _CASES.sub("cases: []\n", text))
            if rule.id in of_folder:
                raise RuleFile(path).error(("id",), f"{rule.id} is the id of another rule in this folder too")
            of_folder[rule.id] = rule
        if not of_folder:
            raise UsageError(f"{folder}: no rule in this folder; a rule is a *.yaml file")
        book |= of_folder
    return dict(sorted(book.items()))


def selected(rules: Iterable[Rule]) -> list[Metric]:
    """The metrics of the rules' selections that the rules use, for the measuring."""
    return [metric for rule in rules if rule.measure for name, metric in rule.selected.items() if name in rule.words]


def _text(path: Path) -> str:
    if path.parent != rules_folder() and leads_out(path, path.parent):  # installers may link the shipped ones
        raise FormError("a link that leads out of its folder; put the rule itself there")
    return decoded(content_of(path))


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except FormError as error:
        raise RuleError(FormError(error.problem, error.spot or (1,)).of(path)) from None


@lru_cache(maxsize=1_024)
def _rule(path: Path, text: str) -> Rule:
    """The rule in a file that says this: who checks many recordings in one process parses it once."""
    return RuleFile(path, text).rule()
