"""Many small copies between host and device where one would do: each pays for a call of its own."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.places import device_places
from advisor.analysis.device.view import DeviceView
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.whatif import merged, saved

_SMALL_BYTES: Final = 65_536  # 4 µs at 16 GB/s: less than it takes to launch the copy
_VALUE_BYTES: Final = 1024  # reading values one by one is synchronisation, and counts there
_NEEDS: Final = ("device_ops", "device_ops.launch", "device_ops.bytes")


def _small(view: DeviceView) -> pl.DataFrame:
    way = pl.col("copy_kind").cast(pl.String)
    copies = view.used_ops.filter(pl.col("kind") == "memcpy", pl.col("bytes") < _SMALL_BYTES)
    return copies.filter((way == "HtoD") | ((way == "DtoH") & (pl.col("bytes") >= _VALUE_BYTES)))


SMALL_COPIES_PER_STEP = Metric(
    "small_copies_per_step",
    "Copies of under 64 KiB between host and device per step.",
    "copies HtoD, and DtoH of 1 KiB or more / steps",
    "CUDA C++ Best Practices Guide: one large transfer costs far less than many small ones",
    where=lambda view: device_places(view, _small(view)),
)
SMALL_COPY_BYTES_PER_STEP = Metric(
    "small_copy_bytes_per_step",
    "Bytes per step that copies of under 64 KiB move.",
    "sum / steps",
)
SMALL_COPY_GAIN_MS = Metric(
    "small_copy_gain_ms",
    "Step time saved if one copy per step and direction took them all.",
    "replay without those copies and their calls, but the first of each step and direction; where the replay of "
    "the unchanged steps is off by more than 5 %: the time of those copies that no kernel hides",
    "advisor.whatif.replay",
)


@measures(SMALL_COPIES_PER_STEP, SMALL_COPY_BYTES_PER_STEP, SMALL_COPY_GAIN_MS, needs=_NEEDS)
def small_copies(view: DeviceView) -> Values:
    """Small copies and what joining them gives back."""
    if view.used_ops.filter(pl.col("kind") == "memcpy")["bytes"].null_count():
        return Missing("no_copy_sizes")
    copies = _small(view)
    return {
        SMALL_COPIES_PER_STEP: copies.height / view.steps.height,
        SMALL_COPY_BYTES_PER_STEP: float(copies["bytes"].sum()) / view.steps.height,
        SMALL_COPY_GAIN_MS: saved(view, merged(view, copies, "window", "copy_kind")).most_ms,
    }
