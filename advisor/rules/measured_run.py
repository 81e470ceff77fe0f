"""The questions that the judge has about a run; one just measured answers them, and so does one that was stored."""

from collections.abc import Mapping
from typing import Protocol

import polars as pl

from advisor.metrics.metric import Scope
from advisor.model.missing import Missing


class MeasuredRun(Protocol):
    """A run as the judge sees it."""

    @property
    def format(self) -> str:
        """The reader's name."""

    @property
    def workers(self) -> tuple[int, ...]:
        """All workers, ascending."""

    @property
    def pace(self) -> int:
        """The worker that sets the job's pace."""

    @property
    def is_fragment(self) -> bool:
        """Whether kernels were recorded in only a small part of the host's time."""

    @property
    def reasons(self) -> Mapping[str, Missing]:
        """Per metric that is unknown, why."""

    def rows(self, scope: Scope) -> pl.DataFrame:
        """The rows that rules of this scope judge, a column per metric."""

    def framework(self, worker: int) -> str | None:
        """The worker's framework, if it is known."""

    def used_steps(self, worker: int) -> tuple[int, ...] | None:
        """The numbers of the steps that the worker's values rest on; None where it marks no steps."""

    def places(self, metric: str, worker: int) -> pl.DataFrame:
        """Places in the recording behind a value, the clearest first; empty if there are none."""
