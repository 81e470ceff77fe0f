"""Summaries for TensorBoard that TensorFlow's callbacks write between the steps' work."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.places import places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices

_WRITES: Final = r"(?:^EagerLocalExecute: |:)(?:Write\w*Summary|FlushSummaryWriter)$"


def _callbacks(view: DeviceView) -> pl.DataFrame:
    """The ops that write, each from the end of what its thread did before: the callback prepares it there."""
    rows = view.host_like(_WRITES)
    return pl.concat([rows.clear(), *_with_silence(view, rows)])


def _with_silence(view: DeviceView, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    for writes in rows.partition_by("thread"):
        before = view.host.filter(pl.col("thread") == writes["thread"][0], pl.col("kind") != "python")
        ends = np.sort((before["start_ns"] + before["dur_ns"]).to_numpy())
        start = writes["start_ns"].to_numpy()
        since = np.where(start >= ends[0], ends[np.searchsorted(ends, start, side="right") - 1], start)
        silent = pl.Series(start - since)
        yield writes.with_columns(pl.col("start_ns") - silent, pl.col("dur_ns") + silent)


def _share(view: DeviceView) -> float | None:
    callbacks = spans(view.once(_callbacks))
    return view.share(callbacks if view.device is None else callbacks - view.busy)


of_devices(__name__, framework="tensorflow")(
    "summary_share", _share, where=lambda view: places(view, view.once(_callbacks))
).says(
    "Part of the step that passes in callbacks that write summaries for TensorBoard.",
    "ops named Write...Summary and FlushSummaryWriter, each with its thread's silence before it; with a device only "
    "while it idles / step time",
)
