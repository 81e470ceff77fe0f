"""A report or a comparison in brief: what is wrong, what it is worth, what to do, and what could not be told."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from shlex import join
from typing import Final

from advisor.model import brief as model
from advisor.model.action import MOST, Action
from advisor.model.brief import Brief
from advisor.model.comparison import NEWS_FIRST, Comparison, FindingChange, Side, WorkChange
from advisor.model.finding import Evidence, Finding, Fix, Place, Saving, Value
from advisor.model.report import Report, Run, Unreadable
from advisor.present import comparison as compared
from advisor.present.next_recording import missing_options
from advisor.present.phases import of_pace
from advisor.present.ranks import reach
from advisor.present.report import unknowns
from advisor.present.source import facts
from advisor.present.stacks import source_lines
from advisor.present.verdict import title
from advisor.text import first_sentence, one_line, plain, shortened

_SIGNIFICANT: Final = 4
_DECIMALS: Final = 4
_LONGEST_COMMAND: Final = 700  # bytes: cut, it would not run
_RECORDING: Final = re.compile(r"`(advisor record(?: --stacks)? -- COMMAND)`")  # no other: names may be in a fix
_EVERYTHING: Final = 1 << 30
_MOST_PARTS: Final = 16


@dataclass(frozen=True, slots=True)
class Room:
    """How much a brief may hold: of each kind of thing so many, and texts of so many bytes of JSON."""

    runs: int = _EVERYTHING
    findings: int = _EVERYTHING
    details: int = _EVERYTHING
    text: int = _EVERYTHING

    def short(self, text: str) -> str:
        """The text on one line, cut where it takes more bytes."""
        line = one_line(text, self.text)
        while (excess := _bytes(line) - self.text) > 0:
            line = shortened(line, max(1, len(line) - 1 - excess // 12))  # no character takes more than twelve
        return line

    def first(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The first of these texts, each short."""
        return tuple(self.short(text) for text in islice(texts, self.details))


def brief(value: Report | Comparison, room: Room) -> Brief:
    """The value with as much as there is room for; what is missing is left to who knows the rest."""
    new = partial(
        Brief,
        kind="brief",
        schema_version=model.SCHEMA_VERSION,
        advisor_version=room.short(value.advisor_version),
        note=model.NOTE,
        truncated=False,
    )
    if value.kind == "comparison":
        return new(comparison=_change(value, room))
    return new(
        runs=tuple(_job(value, number, room) for number in range(min(room.runs, len(value.runs)))),
        more_runs=_rest(value.runs, room.runs),
        unreadable=tuple(_file(file, room) for file in value.unreadable[: room.details]),
        more_unreadable=_rest(value.unreadable, room.details),
    )


def _bytes(text: str) -> int:
    return len(json.dumps(text)) - 2


def _rest(items: Sequence[object], most: int) -> int:
    return max(0, len(items) - most)


def _file(file: Unreadable, room: Room) -> model.File:
    return model.File(path=room.short(file.path), why=room.short(file.why))


def _job(report: Report, number: int, room: Room) -> model.Job:
    run = report.runs[number]
    reasons = unknowns(run.not_evaluable)
    first = enumerate(run.findings[: room.findings])
    return model.Job(
        name=room.short(run.name),
        path=room.short(run.source.path),
        verdict=room.short(run.verdict),
        outcome=run.outcome.code,
        facts=room.short(", ".join(facts(run))),
        steps=_times(run),
        accounting=_accounting(run, room),
        trust=run.trust,
        actions=tuple(_todo(action, room) for action in run.worthwhile[:MOST]),
        phases=tuple(map(_phase, of_pace(run)[: room.details])),
        findings=tuple(_problem(f, run, f"/runs/{number}/findings/{at}", room) for at, f in first),
        more_findings=room.first(f.key for f in run.findings[room.findings :]),
        could_not_tell=tuple(_unknown(why, rules, room) for why, rules in reasons[: room.details]),
        more_unknown=_rest(reasons, room.details),
        record=room.first(option.option for option in missing_options(run)),
        next=_next(run, _address(run, report)),
    )


def _todo(action: Action, room: Room) -> model.Todo:
    names = ("step_ms", "low_ms", "high_ms", "then_low_ms", "then_high_ms")
    times = {name: _rounded(getattr(action, name)) for name in names}
    return model.Todo(do=room.short(first_sentence(action.do)), findings=room.first(action.findings), **times)


def _times(run: Run) -> model.Times:
    steps = run.source.steps
    mean_ms, unprofiled_ms = _rounded(steps.step_mean_ms), _rounded(steps.unprofiled_ms)
    return model.Times(
        marked=steps.marked, recorded=steps.count, used=steps.used, mean_ms=mean_ms, unprofiled_ms=unprofiled_ms
    )


def _phase(row: Mapping[str, Value]) -> model.Phase:
    names = ("step_ms", "requests", "idle_share", "host_share")
    numbers = {name: _rounded(value) for name in names if isinstance(value := row.get(name), int | float)}
    return model.Phase(phase=str(row["phase"]), steps=int(row["steps"] or 0), **({"step_ms": None} | numbers))


def _accounting(run: Run, room: Room) -> model.Accounting:
    """The parts of the step that are not empty."""
    if run.accounting is None:
        return model.Accounting(step_ms=_rounded(run.source.steps.length_ms), parts_ms={})
    largest = sorted(run.accounting.parts, key=lambda part: -part.ms)[:_MOST_PARTS]
    parts = {room.short(part.part): _digits(part.ms) for part in largest}
    return model.Accounting(
        step_ms=_rounded(run.accounting.step_ms), parts_ms={code: ms for code, ms in parts.items() if ms}
    )


def _problem(finding: Finding, run: Run, pointer: str, room: Room) -> model.Problem:
    lines = source_lines(finding)
    return model.Problem(
        id=room.short(finding.key),
        pointer=pointer,
        title=room.short(title(finding, run)),
        severity=finding.severity,
        confidence=finding.confidence,
        says=room.short(finding.says),
        saving=_gain(finding.saving, room) if finding.saving else None,
        evidence=_numbers(finding.evidence, room),
        fix=_remedy(finding.fixes_for(run.source.framework), room),
        source=room.short(f"{lines[0].path}:{lines[0].line}") if lines else None,
        where=_spot(finding.where[0], room) if finding.where else None,
        on=room.short(where) if (where := reach(finding, run)) else None,
        symptoms=room.first(symptom.rule for symptom in finding.symptoms),
    )


def _gain(saving: Saving, room: Room) -> model.Gain:
    low, high, share = (_digits(value) for value in (saving.low_ms, saving.high_ms, saving.high_share))
    return model.Gain(low_ms=low, high_ms=high, high_share=share, of=room.short(saving.of))


def _numbers(evidence: Iterable[Evidence], room: Room) -> dict[str, Value]:
    """By metric, without lists that are empty."""
    filled = [item for item in evidence if item.value not in {None, ""}]
    return {room.short(item.metric): _value(item, room) for item in filled[: room.details]}


def _value(evidence: Evidence, room: Room) -> Value:
    value = evidence.value
    return room.short(value) if isinstance(value, str) else _rounded(value)


def _remedy(fixes: Sequence[Fix], room: Room) -> model.Remedy | None:
    """The first fix; a snippet is there as a whole or not at all."""
    if not fixes:
        return None
    code = plain(fixes[0].code).strip() if fixes[0].code else None
    return model.Remedy(do=room.short(fixes[0].do), code=code if code and _bytes(code) <= room.text else None)


def _spot(place: Place, room: Room) -> model.Spot:
    return model.Spot(
        name=room.short(place.name),
        op=room.short(place.op) if place.op else None,
        worker=place.worker,
        step=place.step,
        at_ms=round(place.at_ms, 3),
        dur_ms=_digits(place.dur_ns / 1e6),
    )


def _unknown(why: str, rules: Sequence[str], room: Room) -> model.Unknown:
    return model.Unknown(why=room.short(why), rules=room.first(rules), more_rules=_rest(rules, room.details))


def _next(run: Run, path: str) -> str | None:
    """The command that the first fix names, or that shows the first finding, or what was recorded and what was not."""
    if run.outcome.code in {"too_little", "loss"} or not run.findings:
        return _command("check", path, "-v")
    first = run.findings[0]
    if command := _RECORDING.search(next((fix.do for fix in first.fixes_for(run.source.framework)), "")):
        return command[1]
    if not first.where:
        return _command("rules", "show", first.key)
    return _command("excerpt", path, "--finding", first.key, "-o", "excerpt.json")


def _address(run: Run, report: Report) -> str:
    """Where this run alone lies: its file where several runs lie in one folder."""
    beside = [other for other in report.runs if other.source.path == run.source.path]
    files = sorted({worker.file for worker in run.source.workers})
    return files[0] if len(beside) > 1 and len(files) == 1 else run.source.path


def _command(*words: str) -> str | None:
    """A command as a shell reads it; None where it is too long to stand in a brief as a whole."""
    command = join(["advisor", *words])
    return command if _bytes(command) <= _LONGEST_COMMAND else None


def _change(comparison: Comparison, room: Room) -> model.Change:
    turns = sorted(comparison.findings, key=lambda change: NEWS_FIRST.index(change.status))
    moved = [shift for shift in comparison.breakdown if _digits(shift.change_ms)]
    parts = sorted(moved, key=lambda shift: -abs(shift.change_ms))[: room.details]
    step = comparison.change
    return model.Change(
        verdict=comparison.verdict,
        says=room.short(compared.headline(comparison)),
        why=room.short(comparison.reason.words),
        obstacle=comparison.obstacle,
        base_ms=_rounded(comparison.times_ms[0]),
        head_ms=_rounded(comparison.times_ms[1]),
        base_steps=comparison.base.steps,
        head_steps=comparison.head.steps,
        step=model.Step(ratio=_digits(step.ratio), low=_digits(step.low), high=_digits(step.high)) if step else None,
        cause=room.short(comparison.cause.part) if comparison.cause else None,
        parts=tuple(model.Shift(part=room.short(shift.part), change_ms=_digits(shift.change_ms)) for shift in parts),
        findings=tuple(_turn(change, room) for change in turns[: room.findings]),
        more_findings=_rest(turns, room.findings),
        work=tuple(_work(change, room) for change in comparison.work[: room.findings]),
        more_work=_rest(comparison.work, room.findings),
        cautions=room.first(caution.words for caution in comparison.cautions),
        prediction=_prediction(comparison),
        next=_again(comparison.base, comparison.head),
    )


def _turn(change: FindingChange, room: Room) -> model.Turn:
    """What became of a finding; of one that is new or worse also its fix."""
    blamed = change.head if change.status in {"new", "worse"} else None
    return model.Turn(
        id=room.short(change.key),
        status=change.status,
        title=room.short(change.title),
        fix=_remedy(blamed.fixes, room) if blamed else None,
    )


def _prediction(comparison: Comparison) -> model.Promise | None:
    """What the fixes of all findings that are gone promised together, and what the step got shorter by, if known."""
    known = next((change.prediction for change in comparison.findings if change.prediction), None)
    if known is None or comparison.verdict == "inconclusive":
        return None
    low, high, measured = map(_digits, (known.low_ms, known.high_ms, known.measured_ms))
    least, most = map(_digits, (known.trial.low_ms, known.trial.high_ms)) if known.trial else (None, None)
    return model.Promise(
        low_ms=low, high_ms=high, measured_ms=measured, findings=known.findings, tried_low_ms=least, tried_high_ms=most
    )


def _again(base: Side, head: Side) -> str | None:
    """The command that shows the comparison in full."""
    if not base.paths or not head.paths:
        return None
    more = [*(("--base", path) for path in base.paths[1:]), *(("--head", path) for path in head.paths[1:])]
    return _command("compare", base.paths[0], head.paths[0], *chain(*more), "-v")


def _work(change: WorkChange, room: Room) -> model.Work:
    return model.Work(
        name=room.short(compared.work_name(change)),
        work=change.work,
        status=compared.work_status(change),
        change_ms=_digits(change.change_ms),
    )


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else _digits(value)


def _digits(value: float) -> float:
    """Four significant digits, none behind the fourth decimal: a tenth of a microsecond, of milliseconds."""
    return round(float(f"{value:.{_SIGNIFICANT}g}"), _DECIMALS)
