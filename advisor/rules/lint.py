"""What makes a rule trustworthy: every name known, every parameter used, and its own cases right."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import polars as pl

from advisor.errors import RuleError
from advisor.metrics.metric import METRICS
from advisor.recording.inside.patches import check_use
from advisor.rules import wording
from advisor.rules.evaluation import fixes_in_order, verdicts
from advisor.rules.rule_file import Case, Rule, RuleFile, files
from advisor.vocabulary.formerly import RULES

Problem: TypeAlias = tuple[tuple[str | int, ...], str]
"""Where in the file, as keys and indices, and what is wrong there."""


def lint(
    folder: Path, metrics: Mapping[str, type[pl.DataType]], known_rules: Collection[str], *, documented: bool = False
) -> list[str]:
    """Everything that is wrong with the rule files of a folder, one `path:line: message` each.

    Args:
        folder: Where the `*.yaml` files are.
        metrics: Every metric with its type.
        known_rules: Ids of other rules that `explains` may name.
        documented: Whether to ask for what the shipped rules have: a unit and a meaning of every parameter; of every
            fix whether a recording shows it, and then a case of a job that has it already.
    """
    lines: list[str] = []
    files = [*_files(folder, lines)]
    rules = {}
    for file in files:
        try:
            rules[file.path] = file.rule()
        except RuleError as error:
            lines.append(str(error))
    ids = {*known_rules, *(rule.id for rule in rules.values())}
    for file in files:
        if file.path in rules:
            rule = rules[file.path]
            known = {**metrics, **{name: metric.dtype for name, metric in rule.selected.items()}}
            lines += [str(file.error(at, message)) for at, message in _problems(rule, known, ids)]
            problems = (*_undocumented(rule), *_uncovered(rule, known)) if documented else ()
            lines += [str(file.error(at, message)) for at, message in problems]
            if rule.id != RULES.get(file.path.stem, file.path.stem):
                lines.append(str(file.error(("id",), f"{rule.id}: the file must be named {rule.id}.yaml")))
    return lines + [f"{folder}: {message}" for message in _cycles({rule.id: rule for rule in rules.values()})]


def _files(folder: Path, lines: list[str]) -> Iterator[RuleFile]:
    for path in files(folder):
        try:
            yield RuleFile(path)
        except RuleError as error:
            lines.append(str(error))


def _problems(rule: Rule, metrics: Mapping[str, type[pl.DataType]], ids: Collection[str]) -> Iterator[Problem]:
    try:
        expressions = rule.expressions(metrics)
        conditions = rule.fix_conditions(metrics)
        of_sentence = wording.names(rule.says)
        of_fixes = set().union(*(wording.names(text) for fix in rule.fixes for text in fix.templates))
    except RuleError as error:
        yield error.at, error.problem
        return
    except ValueError as error:
        yield ("says",), str(error)
        return
    yield from _name_problems(rule, metrics, ids, of_sentence)
    for name in sorted(of_fixes - {*metrics, *rule.params}):
        yield ("fixes",), f"unknown metric or parameter {name!r}"
    yield from _about_problems(rule.about, metrics)
    choices = Counter((fix.choice, fix.framework) for fix in rule.fixes if fix.choice)
    for (choice, framework), fixes in choices.items():
        if fixes == 1:
            yield ("fixes",), f"choice {choice!r}: no other fix for {framework} is of this choice"
    yield from _trial_problems(rule)
    used = (of_sentence | of_fixes).union(
        *(expression.names for expression in (*expressions.values(), *conditions.values()))
    )
    for name in rule.params:
        if name not in used:
            yield ("params", name), "this parameter is not used"
    judged = {name for key, e in expressions.items() if not key.startswith("saving") for name in e.names}
    yield from _case_problems(rule, metrics, judged)


def _undocumented(rule: Rule) -> Iterator[Problem]:
    for name, parameter in rule.parameters.items():
        if parameter.unit is None or parameter.meaning is None:
            yield ("params", name), "write its unit and meaning beside it: {value: 0.05, unit: share, meaning: ...}"
    for index, fix in enumerate(rule.fixes):
        if fix.when is None and fix.unless is None and fix.cannot_show is None:
            yield ("fixes", index), "write when a job has it already: `unless: METRIC > 0`, or `cannot_show: REASON`"


def _uncovered(rule: Rule, metrics: Iterable[str]) -> Iterator[Problem]:
    """Fixes that a job may have already, without a case of such a job."""
    for (index, key), condition in rule.fix_conditions(metrics).items():
        rows = (case.metrics for case in rule.cases if condition.names <= case.metrics.keys() | rule.params.keys())
        if key == "unless" and not any(condition.over(pl.DataFrame([row]), rule.params)[0] for row in rows):
            yield ("fixes", index, "unless"), "no case of a job that has this fix already"


def _name_problems(
    rule: Rule, metrics: Collection[str], ids: Collection[str], of_sentence: set[str]
) -> Iterator[Problem]:
    for name in sorted(of_sentence - {*metrics, *rule.params, *wording.PHRASES[True], wording.DEVICE}):
        yield ("says",), f"unknown metric or parameter {name!r}"
    for name in rule.params:
        if name in metrics:
            yield ("params", name), "this is the name of a metric"
    for name in rule.selected.keys() & METRICS.keys():
        yield ("measure",), f"{name} is a metric of all rules: call the selection otherwise"
    for key in ("title", "doubtful_title"):
        if rule.id in (getattr(rule, key) or ""):
            yield (key,), "leave out the rule's id: reports write it after the title"
    for index, name in enumerate(rule.shows):
        if name not in metrics:
            yield ("shows", index), f"unknown metric {name!r}"
    yield from _other_rules(rule, metrics, ids)
    if True not in rule.severity.values():
        yield ("severity",), "one level must be `true`, for rows that reach no other"


def _other_rules(rule: Rule, metrics: Collection[str], ids: Collection[str]) -> Iterator[Problem]:
    """What stands on its relations to other rules."""
    for key in ("explains", "parts"):
        for index, other in enumerate(getattr(rule, key)):
            if other not in ids:
                yield (key, index), f"no rule has the id {other!r}"
    if rule.covers is not None and rule.covers not in metrics:
        yield ("covers",), f"unknown metric {rule.covers!r}"
    if rule.parts and rule.covers is None:
        yield ("parts",), "name the metric that says how much of it each part is: `covers: METRIC`"


def _about_problems(about: str | None, metrics: Mapping[str, type[pl.DataType]]) -> Iterator[Problem]:
    if about is not None and about not in metrics:
        yield ("about",), f"unknown metric {about!r}"
    elif about is not None and metrics[about] != pl.Int64:
        yield ("about",), f"{about!r} is not the number of a rank: name a metric with the unit `rank`"


def _trial_problems(rule: Rule) -> Iterator[Problem]:
    """A patch that does not exist, or arguments that do not fit; of a template only that the argument exists."""
    for index, fix in enumerate(rule.fixes):
        if fix.trial is None:
            continue
        arguments = {name: value for name, value in fix.trial.items() if name != "patch"}
        try:
            check_use(str(fix.trial.get("patch")), arguments)
        except ValueError as error:
            yield ("fixes", index, "try"), str(error)


def _case_problems(rule: Rule, metrics: Mapping[str, type[pl.DataType]], judged: set[str]) -> Iterator[Problem]:
    if not any(case.fires for case in rule.cases):
        yield ("cases",), "no case in which the rule fires"
    if not any(case.fires is False for case in rule.cases):
        yield ("cases",), "no case in which the rule does not fire"
    if judged - rule.params.keys() and not any(case.not_evaluable for case in rule.cases):
        yield ("cases",), "no case in which the rule cannot be judged (not_evaluable)"
    known = metrics_of(rule, metrics)
    for index, case in enumerate(rule.cases):
        unknown = sorted(case.metrics.keys() - metrics.keys())
        message = f"unknown metric {unknown[0]!r}" if unknown else failure(rule, case, known)
        if message:
            yield ("cases", index), f"case {case.name!r}: {message}"


def metrics_of(rule: Rule, metrics: Mapping[str, type[pl.DataType]]) -> Mapping[str, type[pl.DataType]]:
    """The metrics that the rule or a case of it names; with all the others a verdict takes six times as long."""
    words = set(re.findall(r"\w+", rule.model_dump_json()))
    return {name: dtype for name, dtype in metrics.items() if name in words}


def failure(rule: Rule, case: Case, metrics: Mapping[str, type[pl.DataType]]) -> str | None:
    """How the rule's verdict on the case differs from what the case demands, None where it does not."""
    row = pl.DataFrame({name: [case.metrics.get(name)] for name in metrics}, schema=dict(metrics), strict=False)
    verdict = verdicts(rule, row)[0]
    if case.not_evaluable is not None:
        missing = set(verdict.missing)
        return None if missing >= set(case.not_evaluable) and missing else f"it is {verdict.outcome}"
    if verdict.outcome == "not_evaluable":
        return f"not evaluable without {', '.join(verdict.missing)}"
    if (verdict.severity or False, verdict.doubted) != (case.fires, case.doubted):
        return f"fires {verdict.severity or False}{', doubted' if verdict.doubted else ''}, not {case.fires}"
    if case.saves and not _close(case.saves, (verdict.low_ms, verdict.high_ms)):
        return f"saves {verdict.low_ms} to {verdict.high_ms} ms, not {case.saves[0]} to {case.saves[1]}"
    return _sentence_failure(rule, case, row.row(0, named=True)) if case.fires else None


def _sentence_failure(rule: Rule, case: Case, row: Mapping[str, object]) -> str | None:
    """As `failure`, of what the rule says and advises where it fires."""
    values = {**row, **rule.params, **wording.PHRASES[True], wording.DEVICE: wording.GPU}
    fixes = fixes_in_order(rule, row)
    try:
        wording.say(rule.says, values)
        advice = [wording.say(text, values) for fix in fixes for text in (fix.do, fix.code or "")]
    except ValueError as error:
        return f"it cannot be put in words: {error}"
    first = advice[0] if advice else ""
    return None if first.startswith(case.fix or "") else f"its first fix is {first[:40]!r}, not {case.fix!r}"


def _close(expected: tuple[float, float], actual: tuple[float | None, float | None]) -> bool:
    return all(
        b is not None and math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3) for a, b in zip(expected, actual, strict=True)
    )


def _cycles(rules: Mapping[str, Rule]) -> Iterator[str]:
    """`explains` must form no circle: a cause cannot be its own symptom."""
    for start in rules:
        causes, ahead = set(), list(rules[start].explains)
        while ahead:
            rule = ahead.pop()
            if rule == start:
                yield f"{start} explains itself over a circle of rules"
                break
            if rule in rules and rule not in causes:
                causes.add(rule)
                ahead += rules[rule].explains
