"""The pages of rules, metrics and kernels, as Markdown, and what one rule measures on a run.

What `advisor rules show` prints and docs/ holds; why a rule fires or does not, as `advisor rules try` answers.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from textwrap import indent
from typing import Final

import polars as pl

from advisor.inputs.names.kernels import explanation, kernel_name
from advisor.metrics import Measurements
from advisor.metrics.metric import METRICS, Metric
from advisor.model.finding import Finding, Value
from advisor.rules.evaluation import MeasuredRun, measured_run, value_of, verdicts
from advisor.rules.expressions import comparisons, parse
from advisor.rules.judge import Judgement, judge, unmet
from advisor.rules.python import used_metrics
from advisor.rules.rule_file import Rule
from advisor.rules.rule_form import Fix
from advisor.rules.wording import outline
from advisor.text import UNKNOWN, count, interval, listing, ms, one_line, percent, quantity
from advisor.vocabulary.limits import SAVED_SHARES
from advisor.vocabulary.rules import UNSEEN
from advisor.vocabulary.severities import GRADES, SEVERITIES, words

_HIGH, _MEDIUM, _LOW = words(SEVERITIES)
SEVERITY: Final = (
    f"The middle of a saving decides the severity: {_HIGH} from {percent(SAVED_SHARES['high'])} of the step, "
    f"{_MEDIUM} from {percent(SAVED_SHARES['medium'])}, else {_LOW}."
)


def rule_page(rule: Rule) -> str:
    """What a rule means, when it fires, what to change, what that is worth, and where its numbers come from."""
    return joined(*_fires(rule), *_worth(rule), *_behind(rule))


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


def _fires(rule: Rule) -> Iterator[str]:
    """What it means, when it fires, and the names and thresholds that it does so by."""
    yield f"# {rule.heading()}"
    symptom = " · a symptom, shown alone only if no cause explains it" if rule.about.symptom else ""
    yield f"`{rule.id}` · confidence {rule.certainty.level}{symptom}"
    yield _line(rule.why)
    yield "## When it fires"
    lines = [f"- fires if `{_line(rule.when)}`"]
    levels = rule.levels.items()
    lines += [f"- {level} {'otherwise' if when is True else f'if `{_line(when)}`'}" for level, when in levels]
    if rule.certainty.lower_if:
        lines.append(f"- confidence one level lower if `{_line(rule.certainty.lower_if)}`")
    yield "\n".join(lines)
    if rule.severity and rule.severity.because:
        yield _line(rule.severity.because)
    if rule.let:
        yield "Names in the conditions and savings of this page:"
        yield indent("\n".join(f"{name}:{_choice(_line(text))}" for name, text in rule.let.items()), "    ")
    if rule.parameters:
        yield "## Parameters"
        of = {name: f"limit of `{of}`: {METRICS[of].meaning}" for name, of in rule.limits.items() if of in METRICS}
        rows = (
            f"| `{name}` | {quantity(x.value, x.unit)} | {x.meaning or of.get(name, '')} |"
            for name, x in rule.parameters.items()
        )
        yield "\n".join(["| parameter | value | meaning |", "| --- | --: | --- |", *rows])


def _choice(text: str) -> str:
    """Of an expression that takes the first of several values each of them with its condition, line by line."""
    if not (several := re.fullmatch("CASE WHEN (.+) ELSE (.+) END", text)):
        return f" {text}"
    pairs = (branch.partition(" THEN ") for branch in several[1].split(" WHEN "))
    return "\n  ".join(["", *(f"{value} if {condition}" for condition, _, value in pairs), f"else {several[2]}"])


def _worth(rule: Rule) -> Iterator[str]:
    if rule.saving:
        yield "## What a fix saves"
        yield from map(_line, rule.saving.method.strip().split("\n"))
        low, high = map(_line, rule.saving.ends)
        ends = (
            f"From `{low}` to `{high}` milliseconds per step, from" if "CASE" not in low + high else "It comes out of"
        )
        yield f"{ends} the part of the step called `{rule.saving.of}`."
        yield SEVERITY
    yield "## What to change"
    yield from map(_fix, rule.fixes)


def _fix(fix: Fix) -> str:
    first = f" (first if `{_line(fix.when)}`)" if fix.when else ""
    first += f" (not if `{_line(fix.unless)}`)" if fix.unless else ""
    known = f" A recording cannot show whether it is in use: {UNSEEN[fix.cannot_show]}." if fix.cannot_show else ""
    known += f" This changes results: {fix.numerics}." if fix.numerics else ""
    known += f" Choose one: {fix.choice}." if fix.choice else ""
    known += f" What it saves: {_line(fix.method)}" if fix.method else ""
    link = f" ([documentation]({fix.link}))" if fix.link else ""
    of = f" ({', '.join(fix.format)} profiles)" if fix.format else ""
    parts = [f"**{fix.framework}**{of}{first}: {_line(outline(fix.do))}{link}{known}"]
    return joined(*parts, *([indent(outline(fix.code).rstrip(), "    ")] if fix.code else [])).rstrip()


def _behind(rule: Rule) -> Iterator[str]:
    if rule.explains:
        yield "## What it explains"
        yield "\n".join(f"- [{other}]({other}.md)" for other in rule.explains)
    if rule.about.outweighs_ms:
        yield f"Each finding that saves at most `{_line(rule.about.outweighs_ms)}` ms also stands under it."
    if rule.about.parts:
        yield "## What its parts are"
        yield "It stands for all of them, unless one covers half of it or more."
        yield "\n".join(f"- [{other}]({other}.md)" for other in rule.about.parts)
    yield "## Sources"
    yield "\n".join(f"- {_line(r.what)}: {r.where}." for r in rule.references)
    rows = ["| case | given | verdict |", "| --- | --- | --- |"]
    for case in rule.cases.values():
        inputs = ", ".join(f"{name} = {value}" for name, value in case.metrics.items()) or "nothing"
        fires = case.fires if isinstance(case.fires, str) else "fires" if case.fires else "silent"
        verdict = f"could not tell: {', '.join(case.not_evaluable)}" if case.not_evaluable else fires
        rows.append(f"| {case.name} | {inputs} | {verdict} |")
    if rule.cases:
        yield "## Cases"
        yield "\n".join(rows)


def _line(text: object) -> str:
    return " ".join(str(text).split())


def joined(*parts: str) -> str:
    """The parts of a page, with empty lines between."""
    return "\n\n".join(parts) + "\n"


_WIDEST: Final = 400  # characters of a value: names of kernels are long
_MOST_STRETCHES: Final = 4
_CUT: Final = 1.01
_SIGNS: Final = {"share": (100, " %"), "ms": (1, " ms"), "us": (1, " \N{MICRO SIGN}s"), "bytes": (1, " B")}
"""How a number of a unit is written with any number of digits: times what, and before what."""


def rule_on_run(rule: Rule, name: str, measurements: Measurements) -> str:
    """Lines of text: the outcome, each number of the rule, each comparison of its condition, and what it says.

    Of a job with several ranks they are of the rank that a finding shows, else of the one that sets the pace.
    """
    run = measured_run(measurements)
    judgement = judge(run, {rule.id: rule}, {})
    teller = judgement.findings[0].scope.told_of if judgement.findings else None
    worker = run.pace if teller is None else teller
    rows = rule.own(run.frames[rule.scope])
    of_worker = [row for row in rows.to_dicts() if row["worker"] == worker] or rows.to_dicts()
    row = of_worker[0]
    several = f", rank {worker} of {count(len(run.workers), 'rank')}" if len(run.workers) > 1 else ""
    # Each comparison with the values of both sides, and whether it holds.
    lines = []
    for first, sign, second in comparisons(rule.texts["when"]):
        values = [_value(rule, side, row) for side in (first, second)]
        holds = _value(rule, f"{first} {sign} {second}", row)
        unit = next((rule.metric(side).unit for side in (first, second) if rule.has_metric(side)), "number")
        sides = f" {sign} ".join(distinct(values, unit))
        lines.append((f"{first} {sign} {second}", f"{sides}: {UNKNOWN if holds is None else 'yes' if holds else 'no'}"))
    (claim,) = verdicts(
        rule, pl.DataFrame([row], infer_schema_length=None)
    )  # not yet held against the part of the step
    steps, length = run.used_steps.get(worker), quantity(row["step_mean_ms"], "ms")
    of = f"a recording of {length}" if steps is None else f"{count(len(steps), 'step')} of {length}"
    parts = (
        [f"{name}{several}, {of}: {_outcome(rule, judgement, run)}", _base(measurements, worker)],
        ["It measures:", *_numbers(rule, row, run)],
        [f"It fires if: {one_line(rule.texts['when'])}", *_columns(lines)],
        *(_finding(finding, claim.high_ms or 0.0) for finding in judgement.findings),
    )
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _base(measurements: Measurements, worker: int) -> str:
    """What shares are parts of: the used steps, which are not at the same time on the host and on the device."""
    of_file = next(part.selection for part in measurements.parts if worker in part.selection.workers)
    view = of_file.of(worker)
    zero_ns = view.process.get("zero_ns") or of_file.profile.start_ns
    steps = {"host": view.host_windows} | ({} if view.device is None else {"device": view.windows})
    times = []
    for of, when in ((of, when) for of, when in steps.items() if when.total):
        ends = [((end - zero_ns) / 1e6 for end in ends) for ends in zip(when.starts, when.ends, strict=True)]
        stretches = ["{:,.3f} to {:,.3f} ms".format(*each) for each in ends]
        times.append(f"{when.total:,} ns on the {of}, {listing(stretches, _MOST_STRETCHES)}")
    return f"A share is a part of {'; and of '.join(times) or 'no step'}."


def _outcome(rule: Rule, judgement: Judgement, run: MeasuredRun) -> str:
    if judgement.findings:
        (finding,) = judgement.findings
        fired, ranks = len(finding.scope.workers), len(run.workers)
        where = f" on {fired} of {count(ranks, 'rank')}" if ranks > 1 and rule.scope == "worker" else ""
        return f"fires{where}, severity {GRADES[finding.severity].word}, confidence {finding.confidence}"
    if judgement.not_evaluable:
        (unknown,) = judgement.not_evaluable
        reasons = [f"{of}: {why.words}" for of, why in unknown.missing.items()]
        return f"{UNKNOWN}: {'; '.join(reasons)}"
    if lacking := unmet(rule, run):
        condition = {key: json.dumps(of).replace('"', "") for key, of in rule.applies.model_dump(mode="json").items()}
        return f"does not apply here; it needs {listing([f'{key}: {condition[key]}' for key in lacking])}"
    return "does not fire"


def _numbers(rule: Rule, row: Mapping[str, Value], run: MeasuredRun) -> Iterator[str]:
    """Every metric of its selections, and the others that it names; of an unknown one the reason."""
    names = [*rule.selected, *sorted(used_metrics(rule) - rule.selected.keys())]
    units = {name: rule.metric(name).unit for name in names}
    why = {name: run.reasons.get(rule.metric(name).name) for name in names}
    reasons = {name: f" ({reason.words})" if (reason := why[name]) else "" for name in names}
    values = (
        (name, UNKNOWN + reasons[name] if row.get(name) is None else quantity(row[name], units[name]) or "none")
        for name in names
    )
    return _columns((name, one_line(value, _WIDEST)) for name, value in values)


def distinct(values: list[Value], unit: str) -> list[str]:
    """Values that are compared, with six digits: so close may they be to a limit."""
    factor, sign = _SIGNS.get(unit, (1, ""))
    return [f"{factor * x:.6g}{sign}" if isinstance(x, float) else quantity(x, unit) for x in values]


def _value(rule: Rule, text: str, row: Mapping[str, Value]) -> Value:
    value: Value = value_of(parse(text, {*row, *rule.params}), row, rule)
    return value


def _finding(finding: Finding, claim_ms: float) -> list[str]:
    lines = ["It says:", f"  {finding.title}", f"  {finding.says}"]
    if saving := finding.saving:
        ends = interval(saving.low_ms, saving.high_ms), percent(saving.high_share)
        lines.append(f"  Fixing this saves {ends[0]} per step, {ends[1]} of it at most.")
        if claim_ms > _CUT * saving.high_ms:
            lines.append(f"  The rule claims {ms(claim_ms)}, but the part `{saving.of}` of the step has no more.")
    lines += [f"  Fix: {one_line(fix.do)}" for fix in finding.fixes[:1]]
    lines += [f"  Where: {one_line(place.name, _WIDEST)} at {place.at_ms:,.3f} ms" for place in finding.where[:1]]
    return lines


def _columns(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    pairs = [*pairs]
    width = max((len(first) for first, _ in pairs), default=0)
    return (f"  {first:{width}}  {second}" for first, second in pairs)
