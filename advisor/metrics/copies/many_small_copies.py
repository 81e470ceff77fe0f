"""Many small copies between host and device where one would do: each pays for a call of its own."""

from typing import Final

import polars as pl

from advisor.analysis.device.places import device_places
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.whatif import merged, saved

_SMALL_BYTES: Final = 65_536  # 4 µs at 16 GB/s: less than it takes to launch the copy
_VALUE_BYTES: Final = 1024  # reading values one by one is synchronisation, and counts there


def _small(view: DeviceView) -> pl.DataFrame:
    way = pl.col("copy_kind").cast(pl.String)
    copies = view.used_ops.filter(pl.col("kind") == "memcpy", pl.col("bytes") < _SMALL_BYTES)
    return copies.filter((way == "HtoD") | ((way == "DtoH") & (pl.col("bytes") >= _VALUE_BYTES)))


def _unknown(view: DeviceView) -> Missing | None:
    has_unsized = view.used_ops.filter(pl.col("kind") == "memcpy")["bytes"].null_count()
    return Missing("no_copy_sizes") if has_unsized else None


measure = of_devices(__name__, needs=("device_ops", "device_ops.launch", "device_ops.bytes"), unknown=_unknown)

measure(
    "small_copies_per_step",
    lambda view: view.once(_small).height / view.steps.height,
    where=lambda view: device_places(view, view.once(_small)),
).says(
    "Copies of under 64 KiB between host and device per step.",
    "copies HtoD, and DtoH of 1 KiB or more / steps",
    "CUDA C++ Best Practices Guide: one large transfer costs far less than many small ones",
)
measure("small_copy_bytes_per_step", lambda view: float(view.once(_small)["bytes"].sum()) / view.steps.height).says(
    "Bytes per step that copies of under 64 KiB move.", "sum / steps"
)
measure(
    "small_copy_gain_ms", lambda view: saved(view, merged(view, view.once(_small), "window", "copy_kind")).most_ms
).says(
    "Step time saved if one copy per step and direction took them all.",
    "replay without those copies and their calls, but the first of each step and direction; where the replay of "
    "the unchanged steps is off by more than 5 %: the time of those copies that no kernel hides",
    "advisor.whatif.replay",
)
