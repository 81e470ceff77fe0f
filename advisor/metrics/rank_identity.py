"""Metrics whose value is a rank: its number, and that of the device where a rank drives several."""

from __future__ import annotations

from typing import NamedTuple

from advisor.analysis.job.job import Job
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric
from advisor.model.missing import Missing


class Identity(NamedTuple):
    """The two metrics that identify one rank of a job."""

    rank: Metric
    device: Metric

    @classmethod
    def of(cls, name: str, meaning: str, formula: str) -> Identity:
        """The metrics `name` and `name_device`."""
        of_device = f"{name}: its device, where a rank drives several."
        return cls(
            Metric(name, meaning, formula, unit="rank"),
            Metric(f"{name}_device", of_device, "the number that the recording gives it"),
        )

    def values(self, job: Job, position: int) -> dict[Metric, Value]:
        """The rank at this position of the job."""
        rank = job.ranks[position]
        several = job.several_devices and rank.device is not None
        return {self.rank: rank.worker, self.device: rank.device if several else Missing("one_device_per_rank")}
