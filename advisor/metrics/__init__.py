"""Named numbers computed from a Profile's tables. Importing this package registers every metric."""

from __future__ import annotations

from advisor.metrics import (
    breakdown,
    device,
    fusion,
    grids,
    idle,
    kernels,
    layouts,
    memory,
    precision,
    prefetch,
    steps,
    syncs,
    tensorcores,
    transfers,
    whatif,
)
from advisor.metrics.registry import METRICS, Measurements, Metric, dtypes, measure

__all__ = [
    "METRICS",
    "Measurements",
    "Metric",
    "breakdown",
    "device",
    "dtypes",
    "fusion",
    "grids",
    "idle",
    "kernels",
    "layouts",
    "measure",
    "memory",
    "precision",
    "prefetch",
    "steps",
    "syncs",
    "tensorcores",
    "transfers",
    "whatif",
]
