"""The form of a rule file: what it may say, and how it is loaded with an error at its file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from time import thread_time
from typing import Annotated, Any, Final, Literal, Self

import polars as pl
from pydantic import AfterValidator, Field, PrivateAttr, StringConstraints, ValidationError

from advisor.errors import RuleError, UsageError, wrong_form
from advisor.inputs.names.calls import FILE, FIXES
from advisor.metrics.metric import METRICS, Dtype, Metric
from advisor.model.clause import Note
from advisor.rules import wording
from advisor.rules.expressions import Expression, ExpressionError, comparisons, evaluated, expanded, meanings, parse
from advisor.rules.rule_form import About, Applies, Case, Certainty, Fix, Levels, Reference, Saving, Title
from advisor.rules.selections import MOST_SELECTIONS, Name, Selection, Selections, Strict, Text, Threshold
from advisor.system.resources import rules_folder
from advisor.text import did_you_mean, one_line
from advisor.vocabulary import formerly
from advisor.vocabulary.severities import SEVERITIES, Severity
from advisor.yamltree import FormError, Place, Yaml, content_of, decoded, leads_out

_RULE_LISTS: Final = (("explains",), ("about", "parts"))
_CASES: Final = re.compile(r"^cases:\n(?:[ #-].*\n|\n)*\Z", re.MULTILINE)
"""The cases where they come last in a file: a third of what there is to parse."""


class Rule(Strict):
    """One rule file."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    title: Title
    scope: Literal["worker", "run"] = "worker"
    applies: Applies = Applies()
    measure: Annotated[Mapping[Name, Selection], Field(max_length=MOST_SELECTIONS)] = {}
    """What it measures by names; each entry gives the metrics of `selection_numbers.ENDS`."""
    parameters: Annotated[Mapping[str, Threshold], Field(alias="params")] = {}
    let: Annotated[Mapping[Name, str], AfterValidator(lambda let: let if meanings(let) else {})] = {}
    """Names for parts of its expressions; each may be of those before it."""
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
    _shared: Mapping[str, Selection] = PrivateAttr(default_factory=dict)

    @property
    def cases(self) -> dict[int, Case]:
        """The cases by their places in the file, each with the metrics that those around it share."""
        shared: Mapping[str, float | str | None] = {}
        cases = {}
        for place, entry in enumerate(self.entries):
            if entry.name == "shared":
                shared = entry.metrics
                continue
            own = {metric: value for metric, value in {**shared, **entry.metrics}.items() if value is not None}
            cases[place] = entry.model_copy(update={"metrics": own})
        return cases

    def heading(self, device: str = wording.GPU, *, unsure: bool = False) -> str:
        """The title, with what to call the device."""
        title = (unsure and self.certainty.title) or self.title
        return wording.say(title, {wording.DEVICE: device})

    def error(self, at: Sequence[str | int], why: str) -> RuleError:
        """The error that something is wrong at this place, in its file if it was read from one."""
        return self._file.error(at, why) if self._file else RuleError(f"{self.id}: {'.'.join(map(str, at))}: {why}")

    @cached_property
    def selected(self) -> Mapping[str, Metric]:
        """The metrics of its selections, by the name that they have in this rule."""
        gains = self.saving.gains if self.saving else {}
        return Selections(self.id, self.measure, self._shared).metrics(gains)

    def measured(self) -> Iterator[Metric]:
        """Those of them that it uses, unknown of a device or a framework to which it does not apply."""
        only = self.applies.framework if len(self.applies.framework) == 1 else ()
        for name, metric in self.selected.items():
            if name in self.words:
                yield replace(metric, device=self.applies.device, framework="".join({*only} - {"any"}))

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of the rule, the names of what it uses among them."""
        ends = self.saving.ends if self.saving else ()
        return frozenset(re.findall(r"\w+", self.model_dump_json(exclude={"entries", "measure"}) + " ".join(ends)))

    def metric(self, name: str) -> Metric:
        """The metric that the rule calls so."""
        return self.selected.get(name) or METRICS[name]

    def has_metric(self, name: str) -> bool:
        """Whether the rule can call a metric so."""
        return name in self.selected or name in METRICS

    @cached_property
    def types(self) -> Mapping[str, Dtype]:
        """The types of the metrics that the rule or a case of it names, by the names that they have in the rule."""
        of_cases = (name for entry in self.entries for name in (*entry.metrics, *(entry.not_evaluable or ())))
        return {name: self.metric(name).dtype for name in {*self.words, *of_cases} if self.has_metric(name)}

    def own(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of metrics, with those of its selections and what `let` names, by the names that they have in it."""
        columns = [(name, self._column(rows, name)) for name in self.selected]
        rows = rows.hstack([column for name, column in columns if name in self.words or column.count()])
        return self.with_let(rows, self._metrics_of(rows, self.definitions.values()))

    def with_let(self, rows: pl.DataFrame, of: pl.DataFrame) -> pl.DataFrame:
        """The rows with the value of each name of `let`, of metrics that have the names of the rule."""
        values = evaluated(self.definitions, of, self.params) if self.let else {}
        return rows.with_columns(pl.Series(name, each, strict=False) for name, each in values.items())

    def judged(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Of rows of metrics only those that a verdict takes, by the names that they have in the rule."""
        return self._metrics_of(rows, self.expressions().values())

    def _metrics_of(self, rows: pl.DataFrame, expressions: Collection[Expression]) -> pl.DataFrame:
        names = set().union(*(expression.names for expression in expressions)) - self.parameters.keys()
        return pl.DataFrame([rows.to_series().alias(""), *(self._column(rows, name) for name in names)])

    def _column(self, rows: pl.DataFrame, name: str) -> pl.Series:
        metric = self.metric(name)
        column = rows.get_column(metric.name, default=None)
        return pl.Series(name, [None] * rows.height, metric.dtype) if column is None else column.rename(name)

    @property
    def renamed(self) -> list[Note]:
        """A note on each earlier name that the file has."""
        return self._file.renamed if self._file else []

    @property
    def params(self) -> dict[str, float]:
        """The value of every parameter by its name."""
        return {name: parameter.value for name, parameter in self.parameters.items()}

    @property
    def limits(self) -> dict[str, str]:
        """By parameter, the metric that is held against it, or against so much of the step, in a condition."""
        texts = [text for key, text in self.texts.items() if not key.startswith("saving")]
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
    def texts(self) -> dict[str, str]:
        """Every expression of the rule by the key it stands under, with what names of `let` stand for."""
        return {key: expanded(text, self._meanings) for key, text in self.written.items()}

    @property
    def texts_of_fixes(self) -> dict[tuple[int, str], str]:
        """The conditions of the fixes that have one, by their position and key, with what names of `let` stand for."""
        written = ((n, key, getattr(fix, key)) for n, fix in enumerate(self.fixes) for key in ("when", "unless"))
        return {(n, key): expanded(text, self._meanings) for n, key, text in written if text}

    @property
    def written(self) -> dict[str, str]:
        """As `texts`, with the names of `let` as they are written."""
        stated: dict[str, str | bool] = {"when": self.when}
        stated |= {f"severity.{level}": when for level, when in self.levels.items()}
        texts = {key: text if isinstance(text, str) else str(text).lower() for key, text in stated.items()}
        if self.certainty.lower_if:
            texts["confidence.lower_if"] = self.certainty.lower_if
        if self.about.outweighs_ms is not None:
            texts["about.outweighs_ms"] = str(self.about.outweighs_ms)
        if self.saving:
            texts |= dict(zip(("saving.low_ms", "saving.high_ms"), self.saving.ends, strict=True))
            parts = {"saving.of_ms": self.saving.of_ms, "saving.cause_ms": self.saving.cause_ms}
            texts |= {key: text for key, text in parts.items() if text}
        return texts

    @cached_property
    def _meanings(self) -> Mapping[str, str]:
        return meanings(self.let)

    @property
    def definitions(self) -> dict[str, Expression]:
        """What each name of `let` stands for, parsed; a RuleError with its place where that is wrong."""
        return {name: self._parsed(text, "let", name) for name, text in self._meanings.items()}

    def expressions(self) -> dict[str, Expression]:
        """The rule's expressions over metrics and parameters, parsed; a RuleError with its key where one is wrong."""
        return {key: self._parsed(text, *key.split(".")) for key, text in self.texts.items()}

    def fix_conditions(self) -> dict[tuple[int, str], Expression]:
        """The fixes' conditions, parsed, by position and key; a RuleError with its place where one is wrong."""
        return {at: self._parsed(text, "fixes", *at) for at, text in self.texts_of_fixes.items()}

    def _parsed(self, text: str, *at: str | int) -> Expression:
        try:
            return parse(text, METRICS, self.selected, self.parameters)
        except ExpressionError as error:
            raise RuleError(str(error), at) from None


class RuleFile:
    """One file's YAML, without its cases if so; an error in it says at which line."""

    def __init__(self, path: Path, text: str | None = None, *, cases: bool = True) -> None:
        self.path = path
        with _refusing(path):
            text = _text(path) if text is None else text
            read = text if cases else _CASES.sub("cases: []\n", text)
            renamed = formerly.lines_of(text, formerly.METRICS)
            self._yaml = Yaml(formerly.in_text(read, formerly.METRICS) if renamed else read)
        self.data = self._yaml.value
        if not isinstance(self.data, dict):
            raise RuleError(f"{path}:1: a rule file is a mapping that starts with `title:`")
        self.renamed = [self._note(at, old, formerly.METRICS[old]) for old, at in renamed.items()]
        self.data.setdefault("id", path.stem)
        if formerly.RULES:
            # Ids of rules are words of the language too: only where one stands for a rule is it changed.
            spots = [((*keys, n), rule) for keys in _RULE_LISTS for n, rule in enumerate(_list(self.data, *keys))]
            for at, old in [(("id",), self.data.get("id")), *spots]:
                if isinstance(old, str) and old in formerly.RULES:
                    self.renamed.append(self._note(str(self._yaml.line(at)), old, formerly.RULES[old]))
                    inner = self.data if len(at) == 1 else _list(self.data, *at[:-1])
                    inner[at[-1]] = formerly.RULES[old]

    def _note(self, lines: str, old: str, new: str) -> Note:
        return Note("renamed", place=f"{self.path}:{lines}", old=old, new=new)

    def error(self, at: Sequence[str | int], message: str) -> RuleError:
        """The error at the nearest place in the file that is known."""
        return self._error(tuple(at), ": ".join(filter(None, (".".join(map(str, at)), message))))

    def _error(self, at: Place, words: str) -> RuleError:
        return RuleError(f"{self.path}:{self._yaml.line(at)}: {words}")

    def rule(self, shared: tuple[tuple[Path, str], ...] = ()) -> Rule:
        """The rule in the file; `shared` are the files of selections and fixes that it may name, if they were read.

        A RuleError says the first thing that is wrong with its form.
        """
        shared = shared or _shared(self.path.parent)
        try:
            fixes = [_fixes(shared).get(fix, fix) if isinstance(fix, str) else fix for fix in _list(self.data, "fixes")]
            rule = Rule.model_validate(self.data | ({"fixes": fixes} if fixes else {}))
            rule._shared = _selections(shared) if rule.measure else {}  # noqa: SLF001 - of other files
            rule.selected  # noqa: B018 - what it names must be there
        except ValidationError as error:
            raise self._error(*_wrong_form(error, "no such key in a rule")) from None
        except ValueError as error:
            raise self.error(("measure",), str(error)) from None
        rule._file = self  # noqa: SLF001 - it knows where it was read
        return rule


def _wrong_form(error: ValidationError, unknown: str, form: type[Strict] = Rule) -> tuple[Place, str]:
    """As `wrong_form`; of an unknown key of the form, or of one of a rule's selections, the one that comes closest."""
    at, words = wrong_form(error, unknown)
    if len(at) == 3 and at[0] == "measure":  # noqa: PLR2004 - that, the selection's name and its key
        form = Selection
    elif len(at) != 1:
        return at, words
    keys = (field.alias or name for name, field in form.model_fields.items())
    return at, words + (did_you_mean(str(at[-1]), keys) if words.endswith(unknown) else "")


def _list(value: Any, *keys: str) -> list[Any]:  # noqa: ANN401 - whatever a file holds
    """The list that stands under these keys, one in the other; an empty one where none does."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def files(folder: Path) -> list[Path]:
    """The rule files of a folder, by name; a UsageError where there is no such folder."""
    if not os.path.isdir(folder):  # noqa: PTH112 - a name may hold what no folder's does
        raise UsageError(f"{one_line(str(folder), 300)}: no such rule folder")
    return sorted(path for path in folder.glob("*.yaml") if path.name not in {FILE, FIXES})


def _shared(folder: Path) -> tuple[tuple[Path, str], ...]:
    """The files of what rules of a folder may name: the book's, and that folder's; and what they say."""
    paths = [place / name for place in dict.fromkeys((rules_folder(), folder)) for name in (FILE, FIXES)]
    texts = []
    for path in filter(Path.exists, paths):
        with _refusing(path):
            texts.append((path, _text(path)))
    return tuple(texts)


@lru_cache(maxsize=16)
def _selections(shared: tuple[tuple[Path, str], ...]) -> Mapping[str, Selection]:
    """The selections in such files, those of a later one before others of their name."""
    selections: dict[str, Selection] = {}
    for path, yaml in _mappings(shared, FILE):
        for name, written in yaml.value.items():
            try:
                selections[name] = Selection.model_validate(written)
            except ValidationError as error:
                at, words = _wrong_form(error, "no such key in a selection", Selection)
                raise RuleError(f"{path}:{yaml.line((name, *at))}: {name}: {words}") from None
    return selections


@lru_cache(maxsize=16)
def _fixes(shared: tuple[tuple[Path, str], ...]) -> Mapping[str, object]:
    return {name: fix for _, yaml in _mappings(shared, FIXES) for name, fix in yaml.value.items()}


def _mappings(shared: tuple[tuple[Path, str], ...], name: str) -> Iterator[tuple[Path, Yaml]]:
    for path, text in shared:
        if path.name != name:
            continue
        with _refusing(path):
            yaml = Yaml(text)
        if not isinstance(yaml.value, dict):
            raise RuleError(f"{path}:1: {name} is a mapping from a name to what rules share")
        yield path, yaml


_MOST_S: Final = 3.0  # of the processor for the rules of a folder; each shipped one takes 1 ms


def load(folders: Iterable[Path], *, cases: bool = True) -> dict[str, Rule]:
    """The rules of all `*.yaml` files in the folders, by id; a later folder replaces a rule of the same id.

    Judging does without the rules' cases. A RuleError where a file is no rule, or two of one folder have one id; a
    UsageError where a folder does not exist, or has no rule.
    """
    book: dict[str, Rule] = {}
    for folder in folders:
        of_folder: dict[str, Rule] = {}
        paths, shared, end_s = files(folder), _shared(folder), thread_time() + _MOST_S
        for path in paths:
            with _refusing(path):
                text = _text(path)
            rule = _rule(path, text, shared, cases=cases)
            if rule.id in of_folder:
                raise RuleFile(path).error(("id",), f"{rule.id} is the id of another rule in this folder too")
            if thread_time() > end_s:
                why = r"write simpler patterns: each `\w{1,9}` stands for thousands of letters"
                raise RuleFile(path).error(("measure",), f"the rules up to here take over {_MOST_S:g} s; {why}")
            of_folder[rule.id] = rule
        if not of_folder:
            raise UsageError(f"{folder}: no rule in this folder; a rule is a *.yaml file")
        book |= of_folder
    return dict(sorted(book.items()))


def selected(rules: Iterable[Rule]) -> list[Metric]:
    """The metrics of the rules' selections that the rules use, for the measuring where these may apply."""
    return [metric for rule in rules if rule.measure for metric in rule.measured()]


def _text(path: Path) -> str:
    is_own = path.parent != rules_folder()  # installers may link the shipped ones
    if is_own and path.is_symlink() and leads_out(path, path.parent):
        raise FormError("a link that leads out of its folder; put the file itself there")
    return decoded(content_of(path))


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except FormError as error:
        raise RuleError(FormError(error.problem, error.spot or (1,)).of(path)) from None


@lru_cache(maxsize=1_024)
def _rule(path: Path, text: str, shared: tuple[tuple[Path, str], ...], *, cases: bool) -> Rule:
    """The rule in a file that says this: who checks many recordings in one process parses it once."""
    return RuleFile(path, text, cases=cases).rule(shared)
