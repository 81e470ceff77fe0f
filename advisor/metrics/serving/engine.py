"""Which serving engine runs, which phases its steps have, and what keeps it from faster prefills."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from advisor.analysis.device.idle import launch_gaps
from advisor.analysis.device.phases import steps_by_phase
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.engines import DECODING, ENGINES, PREFILLING
from advisor.metrics.metric import Value, of_devices
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing


def _phases(view: DeviceView) -> Value:
    rows = view.once(steps_by_phase)
    return ", ".join(rows["phase"].unique().sort()) if rows.height else Missing("no_engine_steps")


measure = of_devices(__name__, needs_steps=False)

measure(
    "engine",
    lambda view: next((name for name, of in ENGINES if view.host_like(of).height), Missing("no_engine")),
    unit="text",
).says(
    "The serving engine: `vllm`, `sglang` or `tensorrt_llm`.",
    "the first of them whose name for a step, or whose code, the host's ranges hold",
)
measure("phases", _phases, unit="text").says(
    "The phases of the used steps of a server: `prefill`, `decode`, `mixed`, `verify`; `unnamed` is none of them.",
    "from the marks of the steps, or else from the kernels of forward passes",
)


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


def _no_steps(view: DeviceView) -> Missing | None:
    return None if view.once(steps_by_phase).height else Missing("no_engine_steps")


def _unknown_prefills(view: DeviceView) -> Missing | None:
    no_prefill = None if view.once(_prefills).height else Missing("no_prefill_step")
    return _no_steps(view) or no_prefill or unknown_waits(view)


of_steps = of_devices(__name__, needs=_NEEDS, unknown=_no_steps)
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
of_steps("decode_communication_share", lambda view: _part(_of(view, DECODING), "communicating_ns", "busy_ns")).says(
    "Communication in decode steps; 0 where none decodes.",
    "time of collectives / busy time, both in decode steps",
    _NVIDIA,
)
of_steps("prefill_communication_share", lambda view: _part(view.once(_prefills), "communicating_ns", "busy_ns")).says(
    "Communication in steps that prefill; 0 where none prefills.",
    "time of collectives / busy time, both in steps that prefill",
    _NVIDIA,
)
