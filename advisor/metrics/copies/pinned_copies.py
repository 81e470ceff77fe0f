"""Copies from pinned memory that hold up the kernels, though they could run beside them."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.places import device_places
from advisor.analysis.device.unknowns import undirected_copies
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.profile import matches
from advisor.whatif import overlapped, saved

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


def _longest(view: DeviceView) -> pl.DataFrame:
    return device_places(view, _copies(view))


EXPOSED_COPY_SHARE = Metric(
    "exposed_copy_share",
    "Part of the step in which data is copied to the device from pinned memory and nothing else runs on it.",
    "union of copies of at least 1 MB from host memory that is not pageable, without its overlap with kernels and "
    "collectives / step time",
    where=_longest,
)
EXPOSED_COPY_MS = time_of("exposed_copy_ms", EXPOSED_COPY_SHARE, "that time / steps")
EXPOSED_COPY_BYTES_PER_STEP = Metric(
    "exposed_copy_bytes_per_step",
    "Bytes per step of the copies to the device that nothing else hides.",
    "sum of their bytes / steps",
)
EXPOSED_COPY_SAME_STREAM_SHARE = Metric(
    "exposed_copy_same_stream_share",
    "Part of the exposed copies' time that is queued in one stream with kernels, which cannot run meanwhile.",
    "time of those copies on streams that run kernels too / time of those copies; 0 without copies",
)
EXPOSED_COPY_OF = Metric(
    "exposed_copy_of",
    "Range or op in which most of the exposed copies were asked for; empty where none was open.",
    "by time of those copies, the outermost range around the launching call that is no step and takes less than "
    "half a step; N for numbers",
    unit="text",
)
EXPOSED_COPY_PARAMETER_SHARE = Metric(
    "exposed_copy_parameter_share",
    "Part of the exposed copies' time that fetches parameters or activations kept in host memory.",
    "those launched inside a range of FSDP or DeepSpeed ZeRO, or by a program of XLA / time of those copies; 0 "
    "without copies",
)
COPY_LEAST_GAIN_MS = Metric(
    "copy_least_gain_ms",
    "Step time that copying ahead saves at least.",
    "replay of the recorded steps with those copies at 30 % of their time; 0 where none can be trusted",
    "own choice: how much is hidden depends on how far ahead the host is",
)
COPY_GAIN_MS = Metric(
    "copy_gain_ms",
    "Step time that copying ahead saves at most.",
    "replay of the recorded steps without those copies, and on top all of those whose launch was not recorded: no "
    "replay holds them; exposed_copy_ms where that is less, or none can be trusted",
)


_OF_EXPOSED: Final = (
    EXPOSED_COPY_SHARE,
    EXPOSED_COPY_MS,
    EXPOSED_COPY_BYTES_PER_STEP,
    EXPOSED_COPY_SAME_STREAM_SHARE,
    EXPOSED_COPY_PARAMETER_SHARE,
    COPY_LEAST_GAIN_MS,
    COPY_GAIN_MS,
)


@measures(*_OF_EXPOSED, EXPOSED_COPY_OF, needs=("device_ops", "device_ops.dur_ns"))
def prefetch(view: DeviceView) -> Values:
    """Copies to the device; zero where all of them are hidden or there are none."""
    if reason := undirected_copies(view):
        return dict.fromkeys((EXPOSED_COPY_SHARE, EXPOSED_COPY_MS, COPY_GAIN_MS), reason)
    copies = _copies(view)
    if not copies.height:
        return dict.fromkeys(_OF_EXPOSED, 0.0) | {EXPOSED_COPY_OF: ""}
    exposed_ns, unplaced = _exposed_ns(view, copies), copies.filter(pl.col("launch").is_null())
    ahead = overlapped(copies, (_EXPOSED_PART, 0.0)).beyond(_exposed_ns(view, unplaced)).at_most(exposed_ns)
    least, most = saved(view, ahead)
    return {
        EXPOSED_COPY_SHARE: exposed_ns / view.total_ns,
        EXPOSED_COPY_MS: view.per_step_ms(exposed_ns),
        EXPOSED_COPY_BYTES_PER_STEP: float(copies["bytes"].sum()) / view.steps.height,
        EXPOSED_COPY_SAME_STREAM_SHARE: _same_stream_share(view, copies),
        **_purpose(view, copies),
        COPY_LEAST_GAIN_MS: least,
        COPY_GAIN_MS: most,
    }


def _exposed_ns(view: DeviceView, copies: pl.DataFrame) -> int:
    """Time in which these copies run and no kernel does."""
    return (spans(copies) - view.device_spans("kernel", "collective")).total


def _same_stream_share(view: DeviceView, copies: pl.DataFrame) -> float:
    streams = view.ops.filter(pl.col("kind") == "kernel")["stream"].unique()
    # XLA's copies run beside its program, which shows where it waits for one's end
    waits = matches("^copy-done$", "hlo_category").fill_null(value=False)
    queued = copies.filter(pl.col("stream").is_in(streams.implode()), ~waits)
    return float(queued["dur_ns"].sum()) / max(1, int(copies["dur_ns"].sum()))


def _purpose(view: DeviceView, copies: pl.DataFrame) -> dict[Metric, Value]:
    """What the ranges around the launching calls tell of the copies."""
    around = _around(view, copies)
    of = around.filter(pl.col("telling")).unique("id", keep="last", maintain_order=True)
    by_name = of.group_by(pl.col("name").str.replace_all(r"\d+", "N")).agg(pl.sum("copy_ns"))
    top = by_name.sort("copy_ns", "name", descending=[True, False])["name"].head(1).to_list()
    gathering = around.filter(pl.col("name").str.contains(_PARAMETERS))["id"]
    parameters = copies.filter(pl.col("id").is_in(gathering.implode()) | pl.col("hlo_module").is_not_null())
    return {
        EXPOSED_COPY_OF: top[0] if top else "",
        EXPOSED_COPY_PARAMETER_SHARE: float(parameters["dur_ns"].sum()) / max(1, int(copies["dur_ns"].sum())),
    }


def _around(view: DeviceView, copies: pl.DataFrame) -> pl.DataFrame:
    """Id and copy_ns of each copy with the name of every range around its launching call, the innermost first."""
    longest_ns = view.total_ns / max(1, view.steps.height) * _ROUND_RANGE
    ranges = view.host.select(
        "parent",
        at="id",
        name=pl.col("name").cast(pl.String),
        telling=pl.col("kind").is_in(_RANGES) & (pl.col("dur_ns") < longest_ns),
    )
    calls = copies.select("id", copy_ns="dur_ns", at="launch").drop_nulls("at")
    now = calls.join(ranges.select("at", "parent"), on="at").select("id", "copy_ns", at="parent").drop_nulls("at")
    levels = [now.clear().join(ranges, on="at")]
    while now.height and len(levels) < _DEEPEST:
        levels.append(now.join(ranges, on="at"))
        now = levels[-1].select("id", "copy_ns", at="parent").drop_nulls("at")
    return pl.concat(levels)
