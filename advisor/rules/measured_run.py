"""A run as the judge sees it: just measured, or out of a store (`advisor/fleet/columns.py`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

import polars as pl

from advisor.metrics.evaluate import Measurements
from advisor.metrics.metric import Scope
from advisor.model.clause import FRAGMENT, Missing


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What the judge asks of a run.

    `format` is the reader's name, and `pace` the worker that sets the job's pace. In a fragment kernels were recorded
    in only a small part of the host's time. `reasons` say why metrics are unknown. `frames` have the rows that rules of
    a scope judge, a column per metric. By worker: its framework, and the numbers of the steps that its values rest on,
    None where it marks none. `places` gives those in the recording behind a metric of a worker, the clearest first.
    """

    format: str
    pace: int
    is_fragment: bool
    reasons: Mapping[str, Missing]
    frames: Mapping[Scope, pl.DataFrame]
    frameworks: Mapping[int, str | None]
    used_steps: Mapping[int, tuple[int, ...] | None]
    places: Callable[[str, int], pl.DataFrame]

    @property
    def workers(self) -> tuple[int, ...]:
        """All workers, ascending."""
        return tuple(sorted(self.used_steps))


def measured_run(measurements: Measurements) -> MeasuredRun:
    """A run that was just measured."""
    profile, views = measurements.selection.profile, measurements.selection.critical
    return MeasuredRun(
        format=profile.format,
        pace=measurements.pace,
        is_fragment=any(note.code == FRAGMENT for note in profile.salvaged),
        reasons=measurements.reasons,
        frames={scope: measurements.rows(scope) for scope in get_args(Scope)},
        frameworks=dict(profile.workers.select("worker", "framework").rows()),
        used_steps={view.worker: tuple(view.steps["step"].to_list()) if view.has_marks else None for view in views},
        places=measurements.places,
    )
