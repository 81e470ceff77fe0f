"""What keeps a serving engine from decoding faster: launches, the host between two steps, sampling, long prefills."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.decoding import decode_steps, decode_time, gaps_between, graph_launches, idle_between
from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.kernels import kernels, longest
from advisor.analysis.device.phases import steps_by_phase, work
from advisor.analysis.device.places import stretches
from advisor.analysis.device.time_by_name import in_words, times_by_range
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.engines import DECODING
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.intervals import Union
from advisor.model.missing import Missing
from advisor.model.profile import matches

_NEEDS: Final = ("device_ops", "device_ops.launch", "host_ops")
_NVIDIA: Final = "TensorRT-LLM, host analysis guide"
_SAMPLES: Final = r"(?i)argmax|multinomial|sampl|top_?k|top_?p|sort|distribution_"


def _unknown(view: DeviceView) -> Missing | None:
    """Why nothing is known of the decode steps, or None."""
    if not view.once(steps_by_phase).height:
        return Missing("no_engine_steps")
    return None if view.once(decode_steps).height else Missing("no_decode_step")


DECODE_IDLE_SHARE = Metric(
    "decode_idle_share",
    "Part of the decode steps in which the device idles.",
    "1 - busy time / time from each decode step's first op to the next step's first op",
    _NVIDIA,
)
DECODE_LAUNCH_SHARE = Metric(
    "decode_launch_share",
    "Part of the decode steps in which the host is inside calls that launch.",
    "union of calls that launch kernels or graphs / time from mark to mark on the host",
    _NVIDIA,
)
DECODE_SINGLE_KERNELS = Metric(
    "decode_single_kernels",
    "Kernels per decode step that no CUDA graph launches.",
    "kernels of the decode steps whose call is no launch of a graph / decode steps",
)
DECODE_LAUNCH_PART = Metric(
    "decode_launch_part",
    "How much of the waiting for launches lies in decode steps.",
    "idle time in host-bound gaps of at most {launch_gap} inside decode steps / all of it; 0 without such gaps",
)


@measures(DECODE_IDLE_SHARE, DECODE_LAUNCH_SHARE, DECODE_SINGLE_KERNELS, DECODE_LAUNCH_PART, needs=_NEEDS)
def launching(view: DeviceView) -> Values:
    """How the decode steps are launched."""
    if why := _unknown(view) or unknown_waits(view):
        return why
    rows, late = view.once(decode_steps), view.once(launch_gaps)
    inside = (late & view.once(decode_time)).total
    return {
        DECODE_IDLE_SHARE: 1 - float(rows["busy_ns"].sum()) / max(1, int(rows["period_ns"].sum())),
        DECODE_LAUNCH_SHARE: float(rows["launching_ns"].sum()) / max(1, int(rows["host_ns"].sum())),
        DECODE_SINGLE_KERNELS: float(rows["single"].sum()) / rows.height,
        DECODE_LAUNCH_PART: inside / late.total if late.total else 0.0,
    }


DECODE_GAP_SHARE = Metric(
    "decode_gap_share",
    "Part of the decode steps in which the device idles between two of them, launches of graphs aside.",
    "idle time from the last op of a decode step to the first of the decode step that follows it, outside calls that "
    "launch graphs / time of the decode steps; gaps of over 10 times the median are pauses and left out",
    _NVIDIA,
    where=lambda view: stretches(Union.of(*view.once(gaps_between)), "between two decode steps"),
)
DECODE_GAP_US = Metric(
    "decode_gap_us",
    "The median gap between two decode steps.",
    "median time from the last op of a decode step to the first of the decode step that follows it",
)
DECODE_GAP_MS = Metric(
    "decode_gap_ms",
    "Time per step in which the device idles between two decode steps.",
    "idle time as in decode_gap_share, launches of graphs included: who schedules ahead launches ahead / steps",
)
DECODE_BUSY_MS = Metric(
    "decode_busy_ms",
    "Time per step in which the device works on decode steps.",
    "busy time of the decode steps / steps",
)
DECODE_GAP_CAUSES = Metric(
    "decode_gap_causes",
    "What the host did in the gaps between decode steps, as far as it was recorded.",
    "the three outermost ranges with the most time in them",
    unit="text",
)


@measures(DECODE_GAP_SHARE, DECODE_GAP_US, DECODE_GAP_MS, DECODE_BUSY_MS, DECODE_GAP_CAUSES, needs=_NEEDS)
def gaps(view: DeviceView) -> Values:
    """What passes between two decode steps."""
    if why := _unknown(view) or unknown_waits(view):
        return why
    idle = view.once(idle_between) & Union.of(view.starts, view.ends)
    before_launch, (opens, closes) = idle - graph_launches(view), view.once(gaps_between)
    return {
        DECODE_GAP_SHARE: before_launch.total / max(1, view.once(decode_time).total),
        DECODE_GAP_US: float(np.median(closes - opens)) / 1e3 if len(opens) else 0.0,
        DECODE_GAP_MS: view.per_step_ms(idle.total),
        DECODE_BUSY_MS: view.per_step_ms(int(view.once(decode_steps)["busy_ns"].sum())),
        DECODE_GAP_CAUSES: in_words(view, times_by_range(view, before_launch)),
    }


GRAPH_LAUNCH_WAIT_SHARE = Metric(
    "graph_launch_wait_share",
    "Part of the step in which the device idles while the host launches a CUDA graph.",
    "idle time during cudaGraphLaunch / step time",
)
GRAPH_LAUNCH_WAIT_MS = time_of(
    "graph_launch_wait_ms", GRAPH_LAUNCH_WAIT_SHARE, "idle time during cudaGraphLaunch / steps"
)


@measures(GRAPH_LAUNCH_WAIT_SHARE, GRAPH_LAUNCH_WAIT_MS, needs=_NEEDS)
def graphs(view: DeviceView) -> Values:
    """Launches of graphs that nothing hides; zero where no graph is launched."""
    if why := unknown_waits(view):
        return why
    wait = (graph_launches(view) - view.busy) & Union.of(view.starts, view.ends)
    return {GRAPH_LAUNCH_WAIT_SHARE: wait.total / view.total_ns, GRAPH_LAUNCH_WAIT_MS: view.per_step_ms(wait.total)}


def sampling_kernels(view: DeviceView) -> pl.DataFrame:
    """Kernels of the decode steps that run after the step's last matrix product, of steps that sample there."""
    of_step = view.once(work).select("id", "mark")
    rows = view.once(kernels).join(of_step, on="id").join(view.once(decode_steps).select("mark"), on="mark")
    is_product = pl.col("family").is_in(["gemm", "gemv"])
    last = pl.col("start_ns").filter(is_product).max().over("mark")
    after = rows.filter(pl.col("start_ns") > last)
    return after.filter(matches(_SAMPLES).any().over("mark")) if after.height else after


SAMPLING_SHARE = Metric(
    "sampling_share",
    "Part of the decode steps in which kernels sample.",
    "time of the kernels after a decode step's last matrix product, if one of them sorts, draws or takes the largest "
    "/ time of the decode steps",
    where=lambda view: longest(view.once(sampling_kernels)),
)
SAMPLING_KERNELS = Metric("sampling_kernels", "Kernels per decode step that sample.", "their number / decode steps")
SAMPLING_MS = Metric("sampling_ms", "Time per step of kernels that sample.", "their time / steps")


@measures(SAMPLING_SHARE, SAMPLING_KERNELS, SAMPLING_MS, needs=_NEEDS)
def sampling(view: DeviceView) -> Values:
    """What the choice of the next tokens costs the device."""
    if why := _unknown(view):
        return why
    rows = view.once(sampling_kernels)
    time = spans(rows).total
    return {
        SAMPLING_SHARE: time / max(1, view.once(decode_time).total),
        SAMPLING_KERNELS: rows.height / view.once(decode_steps).height,
        SAMPLING_MS: view.per_step_ms(time),
    }


PREFILL_STALL_MS = Metric(
    "prefill_stall_ms",
    "The longest time for which prefills hold up requests that decode.",
    "longest run of prefill and mixed steps after a decode step, before one with more requests than they had, on the "
    "device",
    "generation stalls: Sarathi-Serve (OSDI 2024)",
)
PREFILL_STALL_RATIO = Metric(
    "prefill_stall_ratio",
    "How many typical decode steps the longest stall by prefills lasts.",
    "prefill_stall_ms / median decode step",
)


@measures(PREFILL_STALL_MS, PREFILL_STALL_RATIO, needs=_NEEDS)
def stalls(view: DeviceView) -> Values:
    """How long requests that decode wait for the prefills of others; zero where none does."""
    if why := _unknown(view):
        return why
    rows = view.once(steps_by_phase)
    if rows["requests"].null_count():
        return Missing("no_request_counts")
    runs = rows.with_columns(decodes=pl.col("phase").is_in(DECODING)).with_columns(run=pl.col("decodes").rle_id())
    by_run = runs.group_by("run").agg(
        pl.first("decodes"), ns=pl.sum("period_ns"), most=pl.sum("requests"), next=pl.first("requests")
    )
    by_run = by_run.sort("run").with_columns(before=pl.col("run").shift(1), after=pl.col("next").shift(-1))
    stalled = by_run.filter(~pl.col("decodes"), pl.col("before").is_not_null(), pl.col("after") > pl.col("most"))
    longest_ns = int(stalled["ns"].max() or 0)  # type: ignore[arg-type]  # integers
    usual = float(np.median(view.once(decode_steps)["period_ns"].to_numpy()))
    return {PREFILL_STALL_MS: longest_ns / 1e6, PREFILL_STALL_RATIO: longest_ns / max(1.0, usual)}
