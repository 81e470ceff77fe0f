"""What keeps a serving engine from faster prefills, and how much of each phase is communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.phases import steps_by_phase
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.engines import DECODING, PREFILLING
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures
from advisor.model.intervals import Union
from advisor.model.missing import Missing

_NEEDS: Final = ("device_ops", "device_ops.launch", "host_ops")
_NVIDIA: Final = "TensorRT-LLM, host analysis guide"

PREFILL_IDLE_SHARE = Metric(
    "prefill_idle_share",
    "Part of the steps that prefill in which the device idles.",
    "1 - busy time / time from each such step's first op to the next step's first op",
    _NVIDIA,
)
PREFILL_LAUNCH_SHARE = Metric(
    "prefill_launch_share",
    "Part of the steps that prefill in which the host is inside calls that launch.",
    "union of calls that launch kernels or graphs / time from mark to mark on the host",
    _NVIDIA,
)
PREFILL_LAUNCH_PART = Metric(
    "prefill_launch_part",
    "How much of the waiting for launches lies in steps that prefill.",
    "idle time in host-bound gaps of at most {launch_gap} inside such steps / all of it; 0 without such gaps",
)


@measures(PREFILL_IDLE_SHARE, PREFILL_LAUNCH_SHARE, PREFILL_LAUNCH_PART, needs=_NEEDS)
def launching(view: DeviceView) -> Values:
    """How steps with prompts are launched."""
    rows = _of(view, PREFILLING)
    if not rows.height:
        return Missing("no_prefill_step") if view.once(steps_by_phase).height else Missing("no_engine_steps")
    if why := unknown_waits(view):
        return why
    late = view.once(launch_gaps)
    own = Union.of(rows["first"].to_numpy(), (rows["first"] + rows["period_ns"]).to_numpy())
    return {
        PREFILL_IDLE_SHARE: 1 - _part(rows, "busy_ns", "period_ns"),
        PREFILL_LAUNCH_SHARE: _part(rows, "launching_ns", "host_ns"),
        PREFILL_LAUNCH_PART: (late & own).total / late.total if late.total else 0.0,
    }


DECODE_COMMUNICATION_SHARE = Metric(
    "decode_communication_share",
    "Communication in decode steps; 0 where none decodes.",
    "time of collectives / busy time, both in decode steps",
    _NVIDIA,
)
PREFILL_COMMUNICATION_SHARE = Metric(
    "prefill_communication_share",
    "Communication in steps that prefill; 0 where none prefills.",
    "time of collectives / busy time, both in steps that prefill",
    _NVIDIA,
)


@measures(DECODE_COMMUNICATION_SHARE, PREFILL_COMMUNICATION_SHARE, needs=("device_ops", "device_ops.launch"))
def communication(view: DeviceView) -> Values:
    """How much of the device's work in each phase is communication."""
    if not view.once(steps_by_phase).height:
        return Missing("no_engine_steps")
    phases = {DECODE_COMMUNICATION_SHARE: DECODING, PREFILL_COMMUNICATION_SHARE: PREFILLING}
    shares: dict[Metric, Value] = {
        metric: _part(_of(view, of), "communicating_ns", "busy_ns") for metric, of in phases.items()
    }
    return shares


def _of(view: DeviceView, phases: Sequence[str]) -> pl.DataFrame:
    return view.once(steps_by_phase).filter(pl.col("phase").is_in(phases))


def _part(rows: pl.DataFrame, part: str, total: str) -> float:
    return float(rows[part].sum()) / max(1, int(rows[total].sum()))
