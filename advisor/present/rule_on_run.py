"""What one rule measures on a run, and why it fires there or does not: the answer of `advisor rules try`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import polars as pl

from advisor.metrics import Measurements
from advisor.model.finding import Finding, Value
from advisor.model.intervals import Intervals
from advisor.rules.evaluation import MeasuredRun, measured_run, value_of, verdicts
from advisor.rules.expressions import comparisons, parse
from advisor.rules.judge import Judgement, judge, unmet
from advisor.rules.python import used_metrics
from advisor.rules.rule_file import Rule
from advisor.text import UNKNOWN, count, interval, listing, ms, one_line, percent, quantity
from advisor.vocabulary.severities import GRADES

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
    parts = (
        [f"{name}{several}, {_steps(row, run, worker)}: {_outcome(rule, judgement, run)}", _base(measurements, worker)],
        ["It measures:", *_numbers(rule, row, run)],
        [f"It fires if: {one_line(rule.texts['when'])}", *_columns(lines)],
        *(_finding(finding, _claim_ms(rule, row)) for finding in judgement.findings),
    )
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _steps(row: Mapping[str, Value], run: MeasuredRun, worker: int) -> str:
    steps, length = run.used_steps.get(worker), quantity(row["step_mean_ms"], "ms")
    return f"a recording of {length}" if steps is None else f"{count(len(steps), 'step')} of {length}"


def _base(measurements: Measurements, worker: int) -> str:
    """What shares are parts of: the used steps, which are not at the same time on the host and on the device."""
    of_file = next(part.selection for part in measurements.parts if worker in part.selection.workers)
    view = of_file.of(worker)
    zero_ns = view.process.get("zero_ns") or of_file.profile.start_ns
    steps = {"host": view.host_windows} | ({} if view.device is None else {"device": view.windows})
    times = [f"{when.total:,} ns on the {of}, {_when(when, zero_ns)}" for of, when in steps.items() if when.total]
    return f"A share is a part of {'; and of '.join(times) or 'no step'}."


def _when(steps: Intervals, zero_ns: int) -> str:
    """The stretches of steps that follow each other, in ms from the recording's start."""
    stretches = [
        f"{(start - zero_ns) / 1e6:,.3f} to {(end - zero_ns) / 1e6:,.3f} ms"
        for start, end in zip(steps.starts, steps.ends, strict=True)
    ]
    return listing(stretches, _MOST_STRETCHES)


def _claim_ms(rule: Rule, row: Mapping[str, Value]) -> float:
    """What the rule's own arithmetic gives at most, before it is held against the part of the step."""
    (verdict,) = verdicts(rule, pl.DataFrame([row], infer_schema_length=None))
    return verdict.high_ms or 0.0


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
        condition = rule.applies.model_dump(mode="json")
        return f"does not apply here; it needs {listing([f'{key}: {_plain(condition[key])}' for key in lacking])}"
    return "does not fire"


def _plain(condition: object) -> str:
    if isinstance(condition, list):
        return f"[{', '.join(map(str, condition))}]"
    return str(condition).lower() if isinstance(condition, bool) else str(condition)


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
    """What a report says of it where no other rule fires."""
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
