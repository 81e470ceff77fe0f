"""The phases of servers held against each other."""

from collections.abc import Iterable, Sequence
from typing import Final

from advisor.comparing.steps import pace
from advisor.model.comparison import PhaseChange, PhaseTimes
from advisor.model.report import Run, number
from advisor.vocabulary.workloads import PHASES

_DECODE: Final = "decode"
_NUMBERS: Final = ("step_ms", "idle_share", "launch_share", "communication_share")


def phase_changes(base: Sequence[Run], head: Sequence[Run], ranks: frozenset[int]) -> tuple[PhaseChange, ...]:
    """Each phase that a side has; means over its runs."""
    pairs = ((phase, _times(base, ranks, phase), _times(head, ranks, phase)) for phase in PHASES)
    return tuple(PhaseChange(phase=name, base=before, head=after) for name, before, after in pairs if before or after)


def compared_phase(runs: Iterable[Run]) -> str | None:
    """The phase whose steps alone are compared: to decode, where steps of a run prefill too and all runs decode.

    How long a prefill takes is up to the prompts, and how many there are, to chance.
    """
    phases = [{row.get("phase") for row in run.metrics.get("step", ())} for run in runs]
    mixes = any(len(of - {None}) > 1 for of in phases)
    return _DECODE if mixes and all(_DECODE in of for of in phases) else None


def _times(runs: Sequence[Run], ranks: frozenset[int], phase: str) -> PhaseTimes | None:
    of_phase = ((run, row) for run in runs for row in run.metrics.get("phase", ()) if row.get("phase") == phase)
    rows = [row for run, row in of_phase if row.get("worker") == pace(run, ranks)]
    steps = sum(number(row, "steps") for row in rows)
    if not steps:
        return None
    means = {name: sum(number(row, name) * number(row, "steps") for row in rows) / steps for name in _NUMBERS}
    return PhaseTimes(steps=int(steps), **means)
