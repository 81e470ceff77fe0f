"""The phases of a serving engine."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.phases import phases, steps_by_phase
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import tabulates
from advisor.vocabulary.idle_causes import HOST_RANGES

_OF_HOST: Final = [f"{cause}_ns" for cause in ("host_bound", "sync", *HOST_RANGES)]


@tabulates("phase")
def of_engine(view: DeviceView) -> pl.DataFrame:
    """One row per phase of a server's steps: see `analysis.device.phases`.

    And host_share: idle time that the host causes, as a share of the phase's time on the device.
    """
    rows = phases(view)
    if not rows.height:
        return rows.with_columns(host_share=pl.lit(None, pl.Float64))
    return rows.join(_host_shares(view), on="phase", how="left", maintain_order="left")


def _host_shares(view: DeviceView) -> pl.DataFrame:
    """Per phase, the idle time of the host in the steps in which it begins: phase, host_share."""
    steps, idle = view.once(steps_by_phase), view.once(gaps)
    begins = idle["start_ns"].to_numpy()
    at = np.searchsorted(steps["first"].to_numpy(), begins, side="right") - 1
    at = np.where(begins < (steps["first"] + steps["period_ns"]).to_numpy()[at], at, -1)
    of_step = idle.select(row=pl.Series(at), late_ns=pl.sum_horizontal(_OF_HOST)).group_by("row").agg(pl.sum("late_ns"))
    joined = steps.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64)).join(of_step, on="row", how="left")
    share = (pl.sum("late_ns") / pl.sum("period_ns")).clip(0, 1)
    return joined.group_by("phase").agg(host_share=share)
