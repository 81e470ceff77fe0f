"""How each device is used over the recording: kernels, filled multiprocessors, copies."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.view import DeviceView
from advisor.metrics.kernels.kernel_times import filled
from advisor.metrics.metric import tabulates

_PARTS: Final = 60  # a chart has room for them


@tabulates("over_time")
def over_time(view: DeviceView) -> pl.DataFrame:
    """One row per sixtieth of the time from the first used step's start to the last one's end.

    Columns: part (0, 1, ...), at_ms from the start, kernels and copies (shares of the part in which any runs), and
    sm_efficiency as the metric of that name; null where no kernel's blocks are known.
    """
    schema = {"part": pl.Int64, "at_ms": pl.Float64, "kernels": pl.Float64, "copies": pl.Float64}
    if not len(view.starts) or not view.ops.height or view.ends[-1] - view.starts[0] < _PARTS:
        return pl.DataFrame(schema=schema | {"sm_efficiency": pl.Float64})
    edges = np.linspace(view.starts[0], view.ends[-1], _PARTS + 1).astype(np.int64)
    length = np.diff(edges)
    kernels, copies = (
        view.device_spans(*kinds).within(edges[:-1], edges[1:]) / length
        for kinds in (("kernel", "collective"), ("memcpy",))
    )
    rows = {"part": np.arange(_PARTS), "at_ms": (edges[:-1] - edges[0]) / 1e6, "kernels": kernels, "copies": copies}
    times, integral = view.once(filled)
    is_known = len(times) and view.ops["blocks_per_sm"].count()
    efficiency = np.diff(np.interp(edges, times, integral)) / length if is_known else [None] * _PARTS
    return pl.DataFrame(rows, schema).with_columns(pl.Series("sm_efficiency", efficiency, pl.Float64))
