"""Copies from pinned memory that hold up the kernels, though they could run beside them."""

from typing import Final

import polars as pl

from advisor.analysis.device.places import device_places
from advisor.analysis.device.unknowns import undirected_copies
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.intervals import Intervals
from advisor.model.profile import matches
from advisor.whatif import Interval, overlapped, saved

_LEAST_BYTES: Final = 1_000_000  # scalars and small tensors are not worth a stream
_EXPOSED_PART: Final = 0.3  # of a prefetched copy: only a host that is a whole copy ahead hides all of it
_ROUND_RANGE: Final = 0.5  # of a step: what is open that long is around everything, and tells of no copy
_DEEPEST: Final = 64
_RANGES: Final = ["op", "annotation", "module", "input"]
_PARAMETERS: Final = r"(?i)^FSDP::|FullyShardedDataParallel\.|^DeepSpeedZeRO|partition_parameters|_fetch_sub_module"


def _copies(view: DeviceView) -> pl.DataFrame:
    """Large copies to the device, none of them from pageable memory: those cannot run beside anything."""
    return view.used_ops.filter(
        pl.col("kind") == "memcpy",
        pl.col("copy_kind") == "HtoD",
        pl.col("source_memory").eq("pageable").not_().fill_null(value=True),
        pl.col("bytes") >= _LEAST_BYTES,
    )


def _exposed(view: DeviceView, copies: pl.DataFrame) -> Intervals:
    """When these copies run and no kernel or collective does."""
    return spans(copies) - view.device_spans("kernel", "collective")


def _computing(view: DeviceView) -> pl.DataFrame:
    return view.used_ops.filter(pl.col("kind").is_in(["kernel", "collective"]))


def _exposed_ns(view: DeviceView) -> int:
    return _exposed(view, view.once(_copies)).total


def _part_of_copies(view: DeviceView, some: pl.DataFrame) -> float:
    return float(some["dur_ns"].sum()) / max(1, int(view.once(_copies)["dur_ns"].sum()))


def _queued(view: DeviceView) -> pl.DataFrame:
    """The copies on streams that run kernels too."""
    streams = view.ops.filter(pl.col("kind") == "kernel")["stream"].unique()
    # XLA's copies run beside its program, which shows where it waits for one's end
    waits = matches("^copy-done$", "hlo_category").fill_null(value=False)
    return view.once(_copies).filter(pl.col("stream").is_in(streams.implode()), ~waits)


def _purpose(view: DeviceView) -> str:
    of = view.once(_around).filter(pl.col("telling")).unique("id", keep="last", maintain_order=True)
    by_name = of.group_by(pl.col("name").str.replace_all(r"\d+", "N")).agg(pl.sum("copy_ns"))
    return next(iter(by_name.sort("copy_ns", "name", descending=[True, False])["name"]), "")


def _of_parameters(view: DeviceView) -> pl.DataFrame:
    gathering = view.once(_around).filter(pl.col("name").str.contains(_PARAMETERS))["id"]
    return view.once(_copies).filter(pl.col("id").is_in(gathering.implode()) | pl.col("hlo_module").is_not_null())


def _around(view: DeviceView) -> pl.DataFrame:
    """Id and copy_ns of each copy with the name of every range around its launching call, the innermost first."""
    longest_ns = view.total_ns / max(1, view.steps.height) * _ROUND_RANGE
    ranges = view.host.select(
        "parent",
        at="id",
        name=pl.col("name").cast(pl.String),
        telling=pl.col("kind").is_in(_RANGES) & (pl.col("dur_ns") < longest_ns),
    )
    calls = view.once(_copies).select("id", copy_ns="dur_ns", at="launch").drop_nulls("at")
    now = calls.join(ranges.select("at", "parent"), on="at").select("id", "copy_ns", at="parent").drop_nulls("at")
    levels = [now.clear().join(ranges, on="at")]
    while now.height and len(levels) < _DEEPEST:
        levels.append(now.join(ranges, on="at"))
        now = levels[-1].select("id", "copy_ns", at="parent").drop_nulls("at")
    return pl.concat(levels)


def _gains(view: DeviceView) -> Interval:
    copies, exposed_ns = view.once(_copies), view.once(_exposed_ns)
    unplaced_ns = _exposed(view, copies.filter(pl.col("launch").is_null())).total
    # parameters that stay on the device need no kernel to hide behind
    needless_ns = _exposed(view, _of_parameters(view)).total
    hiding_ns = (spans(_computing(view)) - spans(copies)).total
    change = overlapped(copies, (_EXPOSED_PART, 0.0)).beyond(unplaced_ns)
    return saved(view, change.at_most(min(exposed_ns, needless_ns + hiding_ns)))


measure = of_devices(__name__, needs=("device_ops", "device_ops.dur_ns"), unknown=undirected_copies)

measure("exposed_copy_share", lambda view: view.once(_exposed_ns) / view.total_ns, where=device_places(_copies)).says(
    "Part of the step in which data is copied to the device from pinned memory and nothing else runs on it.",
    "union of copies of at least 1 MB from host memory that is not pageable, without its overlap with kernels and "
    "collectives / step time",
)
measure("exposed_copy_ms", lambda view: view.per_step_ms(view.once(_exposed_ns))).says(
    "Time per step in which data is copied to the device from pinned memory and nothing else runs on it.",
    "that time / steps",
)
measure("exposed_copy_bytes_per_step", lambda view: float(view.once(_copies)["bytes"].sum()) / view.steps.height).says(
    "Bytes per step of the copies to the device that nothing else hides.", "sum of their bytes / steps"
)
measure("exposed_copy_same_stream_share", lambda view: _part_of_copies(view, _queued(view))).says(
    "Part of the exposed copies' time that is queued in one stream with kernels, which cannot run meanwhile.",
    "time of those copies on streams that run kernels too / time of those copies; 0 without copies",
)
measure("exposed_copy_of", _purpose, unit="text").says(
    "Range or op in which most of the exposed copies were asked for; empty where none was open.",
    "by time of those copies, the outermost range around the launching call that is no step and takes less than "
    "half a step; N for numbers",
)
measure("exposed_copy_parameter_share", lambda view: _part_of_copies(view, _of_parameters(view))).says(
    "Part of the exposed copies' time that fetches parameters or activations kept in host memory.",
    "those launched inside a range of FSDP or DeepSpeed ZeRO, or by a program of XLA / time of those copies; 0 "
    "without copies",
)
measure.saving("copy", _gains).says("copying ahead")
