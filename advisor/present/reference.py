"""The reference pages of rules and metrics, as Markdown: what `advisor rules show` prints and docs/ holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import indent
from typing import Final

from advisor.metrics.metric import Metric
from advisor.rules.book import Case, Fix, Rule

_SYMPTOM: Final = " · a symptom, shown alone only where no cause explains it"
_HEAD: Final = (
    "A finding is a rule that fired. Every threshold can be changed in `advisor.yaml`; "
    "see [writing a rule](../writing-a-rule.md)."
)


def rule_page(rule: Rule) -> str:
    """What a rule means, when it fires, what to change, what that is worth, and where its numbers come from."""
    return _joined(
        f"# {rule.title}",
        f"`{rule.id}` · confidence {rule.confidence}"
        + (" · a symptom, shown alone only where no cause explains it" if rule.symptom else ""),
        " ".join(rule.why.split()),
        "## When it fires",
        _conditions(rule),
        *_saving(rule),
        "## What to change",
        *(_fix(fix) for fix in rule.fixes),
        *_explained(rule),
        "## Sources",
        "\n".join(f"- {' '.join(r.what.split())}: {r.where}." for r in rule.references),
        "## Cases",
        "\n".join(["| case | given | verdict |", "| --- | --- | --- |", *map(_case, rule.cases)]),
    )


def rules_index(rules: Iterable[Rule]) -> str:
    """The table of all rules."""
    rows = [
        f"| [{r.id}]({r.id}.md) | {r.title} | {' or '.join(r.severity)} | {r.saving.of if r.saving else 'none'} |"
        for r in rules
    ]
    table = ["| rule | says | severity | saving comes out of |", "| --- | --- | --- | --- |", *rows]
    return _joined("# Rules", _HEAD, "\n".join(table))


def metric_entry(metric: Metric) -> str:
    """One metric: meaning, unit, formula, source, and what a profile must hold for it."""
    lines = [f"- unit: {metric.unit}", f"- formula: {metric.formula}"]
    lines += [f"- source: {metric.source}"] if metric.source else []
    lines += [f"- needs: {', '.join(f'`{need}`' for need in metric.needs)}"] if metric.needs else []
    return _joined(f"## {metric.name}", metric.meaning, "\n".join(lines))


def metrics_page(metrics: Mapping[str, Metric]) -> str:
    """All metrics, by name."""
    head = (
        "Every number is per device, over the steps used (`--steps`); the row of a worker is that of the device whose "
        "steps take longest. A share is a part of step time unless its formula says otherwise. A number that cannot be "
        "told is null, with the reason, and no rule takes it for good news."
    )
    return _joined("# Metrics", head, *(metric_entry(metrics[name]).strip() for name in sorted(metrics)))


def _conditions(rule: Rule) -> str:
    lines = [f"- fires when `{' '.join(str(rule.when).split())}`"]
    lines += [f"- {level} {'otherwise' if when is True else f'when `{when}`'}" for level, when in rule.severity.items()]
    lines += [f"- `{name}` is {value:g}" for name, value in rule.params.items()]
    return "\n".join(lines)


def _saving(rule: Rule) -> Iterator[str]:
    if rule.saving is None:
        return
    yield "## What a fix gives back"
    yield " ".join(rule.saving.method.split())
    low, high = (" ".join(str(text).split()) for text in (rule.saving.low_ms, rule.saving.high_ms))
    yield f"From `{low}` to `{high}` milliseconds a step, out of the part of the step called `{rule.saving.of}`."


def _fix(fix: Fix) -> str:
    first = f" (first where `{' '.join(fix.when.split())}`)" if fix.when else ""
    first += f" (not where `{' '.join(fix.unless.split())}`)" if fix.unless else ""
    link = f" ([documentation]({fix.link}))" if fix.link else ""
    of = f" ({', '.join(fix.format)} profiles)" if fix.format else ""
    parts = [f"**{fix.framework}**{of}{first}: {' '.join(fix.do.split())}{link}"]
    return _joined(*parts, *([indent(fix.code.rstrip(), "    ")] if fix.code else [])).rstrip()


def _explained(rule: Rule) -> Iterator[str]:
    if rule.explains:
        yield "## What it explains"
        yield "\n".join(f"- [{other}]({other}.md)" for other in rule.explains)


def _case(case: Case) -> str:
    given = ", ".join(f"{name} = {value}" for name, value in case.given.items()) or "nothing"
    verdict = f"could not tell: {', '.join(case.not_evaluable)}" if case.not_evaluable else case.fires or "silent"
    return f"| {case.name} | {given} | {verdict} |"


def _joined(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"
