"""A report or a comparison in brief: what is wrong, what it is worth, what to do, and what could not be told."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from shlex import join
from typing import Final

from advisor.model import brief as model
from advisor.model.brief import Brief
from advisor.model.comparison import NEWS_FIRST, Comparison, Side
from advisor.model.finding import Finding, Fix, Place, Value
from advisor.model.report import Report, Run, number
from advisor.present import comparison as compared
from advisor.present.findings import source_lines
from advisor.present.next_recording import RECORDING, missing_options
from advisor.present.report import unknowns
from advisor.present.source import facts, reach
from advisor.present.tables import of_pace
from advisor.present.verdict import title
from advisor.text import first_sentence, plain

_LONGEST_COMMAND: Final = 702  # bytes of JSON: cut, it would not run
_MOST_PARTS: Final = 16
_LEAST_MS: Final = 5e-5  # what is written as nothing


def brief(value: Report | Comparison) -> Brief:
    """All that a brief has room for in the smallest of jobs; whoever writes it leaves out, shortens and rounds."""
    head = {"kind": "brief", "schema_version": model.SCHEMA_VERSION, "advisor_version": value.advisor_version}
    known: dict[str, object] = {**head, "note": model.NOTE, "truncated": False}
    if value.kind == "comparison":
        return Brief.model_validate({**known, "comparison": _change(value)})
    runs = [_job(value, number) for number in range(len(value.runs))]
    return Brief.model_validate({**known, "runs": runs, "unreadable": value.unreadable})


def _job(report: Report, number: int) -> model.Job:
    run = report.runs[number]
    steps = run.source.steps
    # Where this run alone lies: its file where several runs lie in one folder.
    beside = [other for other in report.runs if other.source.path == run.source.path]
    files = sorted({worker.file for worker in run.source.workers})
    return model.Job(
        name=run.name,
        path=run.source.path,
        verdict=run.verdict,
        outcome=run.outcome.code,
        facts=", ".join(facts(run)),
        steps=model.Times(
            marked=steps.marked,
            recorded=steps.count,
            used=steps.used,
            mean_ms=steps.step_mean_ms,
            unprofiled_ms=steps.unprofiled_ms,
        ),
        accounting=_accounting(run),
        trust=run.trust,
        actions=tuple(model.Todo.model_validate(a).model_copy(update={"do": first_sentence(a.do)}) for a in run.listed),
        phases=tuple(map(_phase, of_pace(run))),
        findings=tuple(_problem(f, run, f"/runs/{number}/findings/{at}") for at, f in enumerate(run.findings)),
        could_not_tell=tuple(model.Unknown(why=why, rules=tuple(rules)) for why, rules in unknowns(run.not_evaluable)),
        record=tuple(option.option for option in missing_options(run)),
        next=_next(run, files[0] if len(beside) > 1 and len(files) == 1 else run.source.path),
    )


def _phase(row: Mapping[str, Value]) -> model.Phase:
    names = ("step_ms", "requests", "idle_share", "host_share")
    numbers = {name: value for name in names if isinstance(value := row.get(name), int | float)}
    return model.Phase(phase=str(row["phase"]), steps=int(number(row, "steps")), **({"step_ms": None} | numbers))


def _accounting(run: Run) -> model.Accounting:
    if run.accounting is None:
        return model.Accounting(step_ms=run.source.steps.length_ms, parts_ms={})
    largest = sorted(run.accounting.parts, key=lambda part: -part.ms)[:_MOST_PARTS]
    parts_ms = {part.part: part.ms for part in largest if part.ms > _LEAST_MS}
    return model.Accounting(step_ms=run.accounting.step_ms, parts_ms=parts_ms)


def _problem(finding: Finding, run: Run, pointer: str) -> model.Problem:
    lines = source_lines(finding)
    return model.Problem(
        id=finding.key,
        pointer=pointer,
        title=title(finding, run),
        severity=finding.severity,
        confidence=finding.confidence,
        says=finding.says,
        saving=model.Gain.model_validate(finding.saving) if finding.saving else None,
        evidence={item.metric: item.value for item in finding.evidence if item.value or item.value == 0},
        fix=_remedy(finding.fixes_for(run.source.framework)),
        source=f"{lines[0].path}:{lines[0].line}" if lines else None,
        where=_spot(finding.where[0]) if finding.where else None,
        on=reach(finding, run) or None,
        symptoms=tuple(symptom.rule for symptom in finding.symptoms),
    )


def _remedy(fixes: Sequence[Fix]) -> model.Remedy | None:
    if not fixes:
        return None
    code = plain(fixes[0].code).strip() if fixes[0].code else None
    return model.Remedy(do=fixes[0].do, code=code or None)


def _spot(place: Place) -> model.Spot:
    return model.Spot(
        name=place.name,
        op=place.op or None,
        worker=place.worker,
        step=place.step,
        at_ms=round(place.at_ms, 3),
        dur_ms=place.dur_ns / 1e6,
    )


def _next(run: Run, path: str) -> str | None:
    """The command that the first fix names, or that shows the first finding, or what was recorded and what was not."""
    if run.outcome.code in {"too_little", "loss"} or not run.findings:
        return _command("check", path, "-v")
    first = run.findings[0]
    if command := RECORDING.search(next((fix.do for fix in first.fixes_for(run.source.framework)), "")):
        return command[1]
    if not first.where:
        return _command("rules", "show", first.key)
    return _command("excerpt", path, "--finding", first.key, "-o", "excerpt.json")


def _command(*words: str) -> str | None:
    """A command as a shell reads it; None where it is too long to stand in a brief as a whole."""
    command = join(["advisor", *words])
    return command if len(json.dumps(command)) <= _LONGEST_COMMAND else None


def _change(comparison: Comparison) -> model.Change:
    turns = sorted(comparison.findings, key=lambda change: NEWS_FIRST.index(change.status))
    fixes = [_remedy(of.head.fixes) if of.head and of.status in {"new", "worse"} else None for of in turns]
    moved = [shift for shift in comparison.breakdown if abs(shift.change_ms) > _LEAST_MS]
    parts = sorted(moved, key=lambda shift: -abs(shift.change_ms))
    return model.Change(
        verdict=comparison.verdict,
        says=compared.headline(comparison),
        why=comparison.reason.words,
        obstacle=comparison.obstacle,
        base_ms=comparison.times_ms[0],
        head_ms=comparison.times_ms[1],
        base_steps=comparison.base.steps,
        head_steps=comparison.head.steps,
        step=model.Step.model_validate(comparison.change) if comparison.change else None,
        cause=comparison.cause.part if comparison.cause else None,
        parts=tuple(map(model.Shift.model_validate, parts)),
        findings=tuple(
            model.Turn(id=of.key, status=of.status, title=of.title, fix=fix)
            for of, fix in zip(turns, fixes, strict=True)
        ),
        work=tuple(
            model.Work(
                name=compared.work_name(of), work=of.work, status=compared.work_status(of), change_ms=of.change_ms
            )
            for of in comparison.work
        ),
        cautions=tuple(caution.words for caution in comparison.cautions),
        prediction=_prediction(comparison),
        next=_again(comparison.base, comparison.head),
    )


def _prediction(comparison: Comparison) -> model.Promise | None:
    """What the fixes of all findings that are gone promised together, and what the step got shorter by, if known."""
    known = next((change.prediction for change in comparison.findings if change.prediction), None)
    if known is None or comparison.verdict == "inconclusive":
        return None
    tried = {f"tried_{end}": getattr(known.trial, end) for end in ("low_ms", "high_ms")} if known.trial else {}
    return model.Promise.model_validate(known).model_copy(update=tried)


def _again(base: Side, head: Side) -> str | None:
    if not base.paths or not head.paths:
        return None
    more = [*(("--base", path) for path in base.paths[1:]), *(("--head", path) for path in head.paths[1:])]
    return _command("compare", base.paths[0], head.paths[0], *chain(*more), "-v")
