"""What keeps a serving engine from faster prefills, and how much of each phase is communication."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.phases import steps_by_phase
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.engines import DECODING, PREFILLING
from advisor.metrics.metric import of_devices
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing

_NEEDS: Final = ("device_ops", "device_ops.launch")
_NVIDIA: Final = "TensorRT-LLM, host analysis guide"


def _of(view: DeviceView, phases: Sequence[str]) -> pl.DataFrame:
    return view.once(steps_by_phase).filter(pl.col("phase").is_in(phases))


def _part(rows: pl.DataFrame, part: str, total: str) -> float:
    return float(rows[part].sum()) / max(1, int(rows[total].sum()))


def _prefills(view: DeviceView) -> pl.DataFrame:
    return _of(view, PREFILLING)


def _launch_part(view: DeviceView) -> float:
    rows, late = view.once(_prefills), view.once(launch_gaps)
    own = Intervals.of(rows["first"].to_numpy(), (rows["first"] + rows["period_ns"]).to_numpy())
    return (late & own).total / late.total if late.total else 0.0


def _unknown(view: DeviceView) -> Missing | None:
    return None if view.once(steps_by_phase).height else Missing("no_engine_steps")


def _unknown_prefills(view: DeviceView) -> Missing | None:
    no_prefill = None if view.once(_prefills).height else Missing("no_prefill_step")
    return _unknown(view) or no_prefill or unknown_waits(view)


measure = of_devices(__name__, needs=_NEEDS, unknown=_unknown)
measure_prefills = of_devices(__name__, needs=(*_NEEDS, "host_ops"), unknown=_unknown_prefills)

measure_prefills("prefill_idle_share", lambda view: 1 - _part(view.once(_prefills), "busy_ns", "period_ns")).says(
    "Part of the steps that prefill in which the device idles.",
    "1 - busy time / time from each such step's first op to the next step's first op",
    _NVIDIA,
)
measure_prefills("prefill_launch_share", lambda view: _part(view.once(_prefills), "launching_ns", "host_ns")).says(
    "Part of the steps that prefill in which the host is inside calls that launch.",
    "union of calls that launch kernels or graphs / time from mark to mark on the host",
    _NVIDIA,
)
measure_prefills("prefill_launch_part", _launch_part).says(
    "How much of the waiting for launches lies in steps that prefill.",
    "idle time in host-bound gaps of at most {launch_gap} inside such steps / all of it; 0 without such gaps",
)
measure("decode_communication_share", lambda view: _part(_of(view, DECODING), "communicating_ns", "busy_ns")).says(
    "Communication in decode steps; 0 where none decodes.",
    "time of collectives / busy time, both in decode steps",
    _NVIDIA,
)
measure("prefill_communication_share", lambda view: _part(view.once(_prefills), "communicating_ns", "busy_ns")).says(
    "Communication in steps that prefill; 0 where none prefills.",
    "time of collectives / busy time, both in steps that prefill",
    _NVIDIA,
)
