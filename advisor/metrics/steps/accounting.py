"""The accounting: each nanosecond of the step is useful work or a loss with its cause.

Findings and verdict rest on it.
"""

from dataclasses import replace
from functools import reduce
from operator import sub
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.categories import owned_spans
from advisor.analysis.device.communication import host_collectives, host_exposed
from advisor.analysis.device.cpu_waits import cpu_waits, delayed_part, noted_ms
from advisor.analysis.device.host_lines import host_lines, long_lines
from advisor.analysis.device.host_work import callbacks, holder, running
from advisor.analysis.device.idle import CAUSES, gaps, idle_for, launch_gaps, stalls
from advisor.analysis.device.tf_data import builds
from advisor.analysis.device.unknowns import DOUBTFUL, unknown_idle, unknown_kernels
from advisor.analysis.device.unrecorded_work import lacks_kernels
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import JIT_CALL
from advisor.metrics.metric import of_devices, tabulates
from advisor.model.arrays import Ints
from advisor.model.intervals import Intervals, shared_out
from advisor.vocabulary.idle_causes import HOST_RANGES
from advisor.vocabulary.limits import LAUNCH_GAP_NS
from advisor.vocabulary.parts import DELAYED, LONG, PARTS

_LEAST_RECORDED: Final = 0.05
"""Of a window without steps: with less of it in ops or waits, the recording does not tell what the job does."""

_DEVICE_PARTS: Final = {"compute": "kernel", "memcpy": "memcpy", "memset": "memset", "collective": "collective"}
_WAITS: Final = ("input", "collective", "compile", "pipeline_build")
_DELAYS: Final = {"other_programs": "run_delay_ms", "own_processes": "own_delay_ms"}
_PARTS_SCHEMA: Final = {
    "part": pl.String,
    "time_ns": pl.Int64,
    "share": pl.Float64,
    "range": pl.String,
    "range_share": pl.Float64,
    "lines": pl.String,
}


@tabulates("step_part")
def step_parts(view: DeviceView) -> pl.DataFrame:
    """The accounting of each complete step, one row per part that takes time in it: step, part, share."""
    alike = view.outliers.is_empty()
    every = view if alike else replace(view, steps=view.complete, _computed={})
    length = np.maximum(every.steps["dur_ns"].to_numpy(), 1)
    times = {**dict.fromkeys(PARTS, np.zeros(len(length))), **every.once(_parts)}
    share = np.array([*times.values()]) / length
    part, step = np.nonzero(share > 0)
    codes = pl.Series([*times], dtype=pl.String)
    return pl.DataFrame({"step": every.steps["step"][step], "part": codes[part], "share": share[part, step]})


@tabulates("accounting")
def accounting(view: DeviceView) -> pl.DataFrame:
    """One row per part that takes time in the used steps: part, time_ns (in all of them), share (of them).

    The times add up to the used steps to the nanosecond. `range` is that of the program's own ranges in which most of
    the part lies, `range_share` how much of the part; null where there is none, or where host ranges say nothing of it.
    `lines` are those of the program with half of the host's own time or more, empty where that is around the ops of the
    training; null where no stacks were sampled, and for other parts. Where lines that run in some steps only make
    these long, there is a row of that part, without time of the used steps.
    """
    times = {part: int(time.sum()) for part, time in view.once(_parts).items()}
    when = view.once(_on_cpu_spans) if view.device is None else view.once(_idle_spans)
    ranges = {part: holder(view, time) for part, time in when.items() if times.get(part)}
    rows = [
        (
            code,
            times[code],
            times[code] / view.total_ns,
            *(ranges.get(code) or (None, None)),
            _lines(view, code),
        )
        for code in sorted((code for code, time in times.items() if time), key=[*PARTS].index)  # each has an entry
    ]
    if rows and (lines := view.once(long_lines)):
        rows.append((LONG, 0, 0.0, None, None, lines))
    return pl.DataFrame(rows, schema=_PARTS_SCHEMA, orient="row")


def _lines(view: DeviceView, part: str) -> str | None:
    """The lines of a part; a device that idles around the training's own ops waits for more than Python."""
    if part not in {"between", "host_busy"}:
        return None
    lines = view.once(host_lines)
    return lines if part == "between" else lines or None


def _parts(view: DeviceView) -> dict[str, Ints]:
    """The time of each part in each used step; in every step the parts add up to its length, or there are none."""
    if view.once(lacks_kernels):  # the device may work while it seems idle
        return {}
    return _on_cpu(view) if view.device is None else _busy(view) | _idle(view)


def _busy(view: DeviceView) -> dict[str, Ints]:
    """What runs on the device; of what overlaps the first counts."""
    running = {part: view.device_spans(kind) for part, kind in _DEVICE_PARTS.items()}
    return shared_out(running, view.starts, view.ends)


def _idle(view: DeviceView) -> dict[str, Ints]:
    """What the device waits for; where too much of it is unknown, nothing of it is known but the host's ranges."""
    idle = view.once(gaps)
    causes = {cause: _by_step(view, idle, idle[f"{cause}_ns"].to_numpy()) for cause in CAUSES}
    if view.total_ns and view.once(unknown_idle):
        causes["unknown"] = np.sum([causes["unknown"], *(causes.pop(cause) for cause in DOUBTFUL)], axis=0)
    if "host_bound" in causes:
        late = idle["host_bound_ns"].to_numpy()
        short = _by_step(view, idle, np.where(late <= LAUNCH_GAP_NS, late, 0))
        causes |= {"launch_gap": short, "host_busy": causes.pop("host_bound") - short}
    return causes


def _idle_spans(view: DeviceView) -> dict[str, Intervals]:
    """When the device waits for its host, by the part that this is."""
    others = {cause: idle_for(view, cause) for cause in (*HOST_RANGES, "sync")}
    return {"launch_gap": view.once(launch_gaps), "host_busy": view.once(stalls), **others}


def _by_step(view: DeviceView, idle: pl.DataFrame, time: Ints) -> Ints:
    """The time of the gaps in each step."""
    total = np.zeros(view.steps.height, np.int64)
    np.add.at(total, idle["window"].to_numpy(), time)
    return total


def _on_cpu(view: DeviceView) -> dict[str, Ints]:
    """The time of each part without a device, where enough was recorded."""
    times = {part: when.within(view.starts, view.ends) for part, when in view.once(_on_cpu_spans).items()}
    dispatch = spans(view.host_like(JIT_CALL)).within(view.starts, view.ends)  # of programs too small to last
    known = sum(int(time.sum()) for part, time in times.items() if part != "between") + int(dispatch.sum())
    if not view.has_marks and known < _LEAST_RECORDED * view.total_ns:
        return {}  # another thread or process may work all the while
    return _without_delays(view, times)


def _on_cpu_spans(view: DeviceView) -> dict[str, Intervals]:
    """Without a device: what is no wait is the framework's ops, Python that they call, or what lies between them.

    Communication beside which another thread computes is no wait.
    """
    owned = {part: when for part, when in owned_spans(view) if part in _WAITS}
    owned["collective"] = owned["collective"] & host_exposed(view, view.once(host_collectives))
    owned["pipeline_build"] = owned["compile"] & view.once(builds)
    owned["compile"] = owned["compile"] - owned["pipeline_build"]
    rest = ("between", view.windows)
    for part, when in (("callback", spans(view.once(callbacks))), ("operators", view.once(running)), rest):
        owned[part] = reduce(sub, owned.values(), when)
    return owned


def _without_delays(view: DeviceView, times: dict[str, Ints]) -> dict[str, Ints]:
    """With the waits for a CPU, noted or sampled, taken in equal parts out of the work they lengthen."""
    part = delayed_part(view, *_DELAYS.values())
    if not part:
        return times
    working = {code: time for code, time in times.items() if code in DELAYED}
    shorter = {code: time - (part * time).astype(np.int64) for code, time in working.items()}
    waits = np.sum([*working.values()], axis=0) - np.sum([*shorter.values()], axis=0)
    if view.once(cpu_waits):
        return times | shorter | {"no_cpu": waits}
    of_others, of_own = (noted_ms(view, delay) for delay in _DELAYS.values())
    others = np.rint(waits * (of_others / (of_others + of_own))).astype(np.int64)
    return times | shorter | {"other_programs": others, "own_processes": waits - others}


# of TensorFlow and JAX more than memcpy_share where the call that copies returns only when it is done
of_devices(__name__, needs=("device_ops",), unknown=unknown_kernels)(
    "exposed_memcpy_share", lambda view: int(view.once(_parts)["memcpy"].sum()) / view.total_ns
).says(
    "Part of the step in which a copy runs and no kernel, whatever the host does meanwhile.",
    "(union of kernels and copies - union of kernels) inside the steps / step time",
)
