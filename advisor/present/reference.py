"""The pages of rules, metrics and kernels, as Markdown: what `advisor rules show` prints and docs/ holds."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from textwrap import indent
from typing import Final

from advisor.inputs.names.kernels import explanation, kernel_name
from advisor.metrics.metric import METRICS, Metric
from advisor.rules.rule_file import Rule
from advisor.rules.rule_form import Case, Fix
from advisor.rules.wording import outline
from advisor.text import one_line, percent, quantity
from advisor.vocabulary.limits import SAVED_SHARES
from advisor.vocabulary.rules import UNSEEN
from advisor.vocabulary.severities import SEVERITIES, words

_HIGH, _MEDIUM, _LOW = words(SEVERITIES)
SEVERITY: Final = (
    f"The middle of a saving decides the severity: {_HIGH} from {percent(SAVED_SHARES['high'])} of the step, "
    f"{_MEDIUM} from {percent(SAVED_SHARES['medium'])}, else {_LOW}."
)


def rule_page(rule: Rule) -> str:
    """What a rule means, when it fires, what to change, what that is worth, and where its numbers come from."""
    return joined(
        f"# {rule.heading()}",
        f"`{rule.id}` · confidence {rule.certainty.level}"
        + (" · a symptom, shown alone only if no cause explains it" if rule.about.symptom else ""),
        _line(rule.why),
        "## When it fires",
        _conditions(rule),
        *_names(rule),
        *_parameters(rule),
        *_saving(rule),
        "## What to change",
        *(_fix(fix) for fix in rule.fixes),
        *_explained(rule),
        "## Sources",
        "\n".join(f"- {_line(r.what)}: {r.where}." for r in rule.references),
        *_cases(rule.cases.values()),
    )


def metric_entry(metric: Metric, rules: Iterable[Rule]) -> str:
    """One metric: meaning, unit, formula, source, and what a profile must hold for it.

    Of what a change saves, the rules that save so have the formula.
    """
    saving = [rule for rule in rules if rule.saving and not metric.formula]
    ends = {rule.id: rule.texts["saving.low_ms"] + " " + rule.texts["saving.high_ms"] for rule in saving}
    savers = [id_ for id_, text in ends.items() if re.search(rf"\b{metric.name}\b", text)]
    links = " and ".join(f"[{id_}](rules/{id_}.md#what-a-fix-saves)" for id_ in savers)
    lines = [f"- unit: {metric.unit}", f"- formula: {metric.formula or f'as in {links}'}"]
    lines += [f"- source: {metric.source}"] if metric.source else []
    lines += [f"- needs: {', '.join(f'`{need}`' for need in metric.needs)}"] if metric.needs else []
    return joined(f"## {metric.name}", metric.meaning, "\n".join(lines))


_OF_KERNELS: Final = {
    "family": "It computes {}.",
    "multiplies": "It multiplies no matrices itself.",
    "cores": "It runs on {} cores.",
    "type": "Its number format is {}.",
    "values": "Its number format is {}.",
    "library": "It is of {}.",
    "generation": "It was written for {} or later.",
    "collective": "If it communicates, it is {}.",
}


def kernel_entry(name: str) -> str:
    """What a kernel's name tells, each with what matched in the name and the source of that."""
    name = one_line(name, len(name))
    sentences_of: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for of in explanation(name):
        sentences_of.setdefault((of.matched, of.source), []).append(_OF_KERNELS[of.column].format(of.value))
    lines = [
        f"- {' '.join(sentences)} In its name: {' and '.join(f'`{pattern}`' for pattern in matched)}. Source: {source}."
        for (matched, source), sentences in sentences_of.items()
    ]
    unknown = "No row of `advisor/inputs/names/kernels.yaml` matches this name: what it computes is unknown."
    return joined(f"## {kernel_name(name)}", "\n".join(lines) or unknown)


def _conditions(rule: Rule) -> str:
    lines = [f"- fires if `{_line(rule.when)}`"]
    levels = rule.levels.items()
    lines += [f"- {level} {'otherwise' if when is True else f'if `{_line(when)}`'}" for level, when in levels]
    if rule.certainty.lower_if:
        lines.append(f"- confidence one level lower if `{_line(rule.certainty.lower_if)}`")
    because = rule.severity.because if rule.severity else None
    return "\n".join(lines) + (f"\n\n{_line(because)}" if because else "")


def _names(rule: Rule) -> Iterator[str]:
    if rule.let:
        yield "Names in the conditions and savings of this page:"
        yield indent("\n".join(f"{name}:{_choice(_line(text))}" for name, text in rule.let.items()), "    ")


def _choice(text: str) -> str:
    """Of an expression that takes the first of several values each of them with its condition, line by line."""
    if not (several := re.fullmatch("CASE WHEN (.+) ELSE (.+) END", text)):
        return f" {text}"
    pairs = (branch.partition(" THEN ") for branch in several[1].split(" WHEN "))
    return "\n  ".join(["", *(f"{value} if {condition}" for condition, _, value in pairs), f"else {several[2]}"])


def _parameters(rule: Rule) -> Iterator[str]:
    if rule.parameters:
        yield "## Parameters"
        of = {name: f"limit of `{of}`: {METRICS[of].meaning}" for name, of in rule.limits.items() if of in METRICS}
        rows = (
            f"| `{name}` | {quantity(x.value, x.unit)} | {x.meaning or of.get(name, '')} |"
            for name, x in rule.parameters.items()
        )
        yield "\n".join(["| parameter | value | meaning |", "| --- | --: | --- |", *rows])


def _saving(rule: Rule) -> Iterator[str]:
    if rule.saving is None:
        return
    yield "## What a fix saves"
    yield from map(_line, rule.saving.method.strip().split("\n"))
    low, high = map(_line, rule.saving.ends)
    ends = f"From `{low}` to `{high}` milliseconds per step, from" if "CASE" not in low + high else "It comes out of"
    yield f"{ends} the part of the step called `{rule.saving.of}`."
    yield SEVERITY


def _fix(fix: Fix) -> str:
    first = f" (first if `{_line(fix.when)}`)" if fix.when else ""
    first += f" (not if `{_line(fix.unless)}`)" if fix.unless else ""
    known = f" A recording cannot show whether it is in use: {UNSEEN[fix.cannot_show]}." if fix.cannot_show else ""
    known += f" This changes results: {fix.numerics}." if fix.numerics else ""
    known += f" Choose one: {fix.choice}." if fix.choice else ""
    link = f" ([documentation]({fix.link}))" if fix.link else ""
    of = f" ({', '.join(fix.format)} profiles)" if fix.format else ""
    parts = [f"**{fix.framework}**{of}{first}: {_line(outline(fix.do))}{link}{known}"]
    return joined(*parts, *([indent(outline(fix.code).rstrip(), "    ")] if fix.code else [])).rstrip()


def _explained(rule: Rule) -> Iterator[str]:
    if rule.explains:
        yield "## What it explains"
        yield "\n".join(f"- [{other}]({other}.md)" for other in rule.explains)
    if rule.about.outweighs_ms:
        yield f"Each finding that saves at most {rule.about.outweighs_ms:g} ms also stands under it."
    if rule.about.parts:
        yield "## What its parts are"
        yield "It stands for all of them, unless one covers half of it or more."
        yield "\n".join(f"- [{other}]({other}.md)" for other in rule.about.parts)


def _cases(cases: Collection[Case]) -> Iterator[str]:
    if cases:
        yield "## Cases"
        yield "\n".join(["| case | given | verdict |", "| --- | --- | --- |", *map(_case, cases)])


def _case(case: Case) -> str:
    inputs = ", ".join(f"{name} = {value}" for name, value in case.metrics.items()) or "nothing"
    fires = case.fires if isinstance(case.fires, str) else "fires" if case.fires else "silent"
    verdict = f"could not tell: {', '.join(case.not_evaluable)}" if case.not_evaluable else fires
    return f"| {case.name} | {inputs} | {verdict} |"


def _line(text: object) -> str:
    return " ".join(str(text).split())


def joined(*parts: str) -> str:
    """The parts of a page, with empty lines between."""
    return "\n\n".join(parts) + "\n"
