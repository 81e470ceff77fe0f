"""What the savings that a report promised came to, and whether a finding that is not there is gone or only hidden."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from advisor.model.comparison import Effect, FindingChange, Prediction
from advisor.model.finding import Evidence, Operator
from advisor.model.reason import Reason
from advisor.model.remarks import remark
from advisor.model.report import Run
from advisor.model.trials import Trials

_AS_LONG: Final = 0.8  # of the time behind a finding: with so much of it left, only the step around it grew
_HALF: Final = 0.5  # of the least predicted saving: a step that got shorter by less did not get what was promised
_WAITS: Final = frozenset(
    ("input", "launch_gap", "sync_idle", "host_busy", "queued_idle", "dependency_idle", "collective", "memcpy")
)
"""Parts of the step that disappear behind a longer one."""

_OF_STEP: Final = re.compile(r"Part of .*\bthe (?:recorded )?step\b")  # what such a share means
_AT_LEAST: Final[Operator] = ">="
_LOWER: Final = frozenset({_AT_LEAST, ">"})


def predictions(
    changes: Sequence[FindingChange],
    runs: tuple[Run, Run],
    times_ms: tuple[float | None, ...],
    trials: Trials | None = None,
) -> list[FindingChange]:
    """The changes, what only hides called so, what is gone with what its fix promised and a trial measured.

    `runs` are the first of the base and of the head, `times_ms` the steps of both that the verdict is about; None where
    a side has none.
    """
    before, after = times_ms
    if not before or not after:
        return list(changes)
    base, head = runs
    shorter_ms = before - after
    known = [_uncovered(change, base, head) for change in changes]
    known = [_hidden(change, known, runs, shorter_ms / before) for change in known]
    gone = {change.rule: change.base.saving for change in known if change.status == "gone" and change.base}
    promised = {rule: saving for rule, saving in gone.items() if saving}
    prediction = Prediction(
        low_ms=before * sum(saving.low_share for saving in promised.values()),
        high_ms=before * sum(saving.high_share for saving in promised.values()),
        measured_ms=shorter_ms,
        findings=len(promised),
        trial=_effect(trials, promised, before),
    )
    return [
        change.model_copy(update={"prediction": prediction})
        if change.status == "gone" and change.base and change.base.saving
        else change
        for change in known
    ]


def _effect(trials: Trials | None, rules: Collection[str], step_ms: float) -> Effect | None:
    """What a trial of the fixes of these findings says of the base's step."""
    if trials is None or (known := trials.gain_of(rules)) is None:
        return None
    gain, findings = known
    return Effect(low_ms=step_ms * (1 - gain.high), high_ms=step_ms * (1 - gain.low), findings=findings)


def _hidden(
    change: FindingChange, changes: Sequence[FindingChange], runs: tuple[Run, Run], shorter: float
) -> FindingChange:
    """The change; `hidden` in place of `gone` where its time is still there, or may be behind a new bottleneck."""
    if change.status != "gone" or change.base is None:
        return change
    times = _as_long(change.key, *runs)
    why = remark("dwarfed", base=times[0], head=times[1]) if times else _masked(change, changes, shorter)
    return change.model_copy(update={"status": "hidden", "why": why}) if why else change


def _uncovered(change: FindingChange, base: Run, head: Run) -> FindingChange:
    """The change; `uncovered` in place of `new` where its time was there before, in a longer step."""
    times = _as_long(change.key, head, base) if change.status == "new" else None
    if times is None:
        return change
    return change.model_copy(update={"status": "uncovered", "why": remark("dominant", base=times[1], head=times[0])})


def _as_long(key: str, run: Run, other: Run) -> tuple[float, float] | None:
    """The time behind a run's finding and the same of the other run, if that is as long or longer; else None.

    Every other number that decides whether the rule fires has to be within its limit there too.
    """
    finding = next((finding for finding in run.findings if finding.key == key), None)
    numbers = [item for item in finding.evidence if item.limit is not None] if finding else []
    times = [(_ms(run, item), _ms(other, item)) for item in numbers if _is_time(item)]
    both = [(here, there) for here, there in times if here and there is not None]
    is_as_long = bool(both) and all(there >= _AS_LONG * here for here, there in both)
    is_within = all(_is_within(item, other) for item in numbers if not _is_time(item))
    return both[0] if is_as_long and is_within else None


def _is_time(item: Evidence) -> bool:
    """Whether a number is time of the step of which the rule asks for enough."""
    is_of_step = item.unit == "ms" or (item.unit == "share" and bool(_OF_STEP.match(item.meaning)))
    return is_of_step and item.signs.get("fires", _AT_LEAST) in _LOWER


def _is_within(item: Evidence, run: Run) -> bool:
    """Whether the run's number is on the side of the limit on which the rule fires; true where it has none."""
    value, sign = run.of_pace.get(item.metric), item.signs.get("fires", _AT_LEAST)
    if not isinstance(value, int | float) or item.limit is None:
        return True
    return value >= item.limit if sign in _LOWER else value <= item.limit


def _ms(run: Run, item: Evidence) -> float | None:
    """A number of the worker that sets the run's pace, in ms of the recorded step."""
    value = run.of_pace.get(item.metric)
    if not isinstance(value, int | float):
        return None
    return float(value) if item.unit == "ms" else float(value) * (run.source.steps.step_mean_ms or 0.0)


def _masked(change: FindingChange, changes: Sequence[FindingChange], shorter: float) -> Reason | None:
    """A wait that is not there while the step did not get shorter: something new takes as long."""
    saving = change.base.saving if change.base else None
    if saving is None or saving.of not in _WAITS or shorter >= _HALF * saving.low_share:
        return None
    for other in changes:
        grown = other.head.saving if other.status in {"new", "worse"} and other.head else None
        if grown and grown.high_share >= saving.low_share:
            return remark("masked", title=other.title)
    return None
