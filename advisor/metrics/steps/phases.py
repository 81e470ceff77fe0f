"""The phases of a serving engine."""

from __future__ import annotations

import polars as pl

from advisor.analysis.device.phases import phases
from advisor.analysis.device.steps import DeviceView
from advisor.metrics.metric import tabulates


@tabulates("phase")
def of_engine(view: DeviceView) -> pl.DataFrame:
    """One row per phase of a serving engine's steps, from their marks: see `analysis.device.phases`."""
    return phases(view)
