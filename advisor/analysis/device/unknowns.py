"""What a recording cannot show of a device, and why: the causes of idle time, the direction of copies, Python."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import CAUSES, at_edges, gaps
from advisor.analysis.device.launches import launched
from advisor.analysis.device.unrecorded_work import lacks_kernels
from advisor.analysis.device.view import DeviceView, spans
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing
from advisor.vocabulary.idle_causes import HOST_RANGES

_UNKNOWN_SHARE: Final = 0.05  # of the step: with more idle time of unknown cause, no cause's share is known
_FRAMEWORKS: Final = ("tensorflow", "jax", "pytorch")


def no_frames(view: DeviceView) -> Missing | None:
    """Why Python's functions were not recorded, or None where they were."""
    if (view.host["kind"] == "python").any():
        return None
    if view.is_of_nsight:
        return Missing("no_python_calls")
    framework = view.process.get("framework")
    if framework == "pytorch" and view.process.get("cpus") is not None:  # `advisor record` notes them
        return Missing("no_python_calls_recorder")
    if framework == "pytorch" and view.host["stack"].count():
        return Missing("no_python_calls_lines")
    return Missing(f"no_python_calls_{framework}" if framework in _FRAMEWORKS else "no_python_calls")


def unknown_waits(view: DeviceView) -> Missing | None:
    """Why it is unknown what the device waited for, or None where it is known."""
    if view.device is None or not view.total_ns:
        return None
    if view.once(lacks_kernels):
        return Missing("kernels_not_recorded", launches=view.host.filter(launched()).height)
    if not view.ops["launch"].count():
        return Missing("no_launches_tpu" if (view.facts.get("name") or "").startswith("TPU") else "no_cuda_calls")
    return view.once(unknown_idle)


def unknown_idle(view: DeviceView) -> Missing | None:
    """Why the causes of the idle time are unknown, or None where they are known.

    What lies at the edges of a recording without steps casts no doubt on the gaps between ops, where these are longer.
    """
    idle, startup = view.once(gaps), view.once(start_up)[0]
    between, length = idle.filter(~at_edges(idle, view)), pl.col("end_ns") - pl.col("start_ns")
    prevail = 2 * int(between.select(length).sum().item()) > int(idle.select(length).sum().item())
    unknown = int((between if prevail else idle)["unknown_ns"].sum()) / view.total_ns
    rest = unknown if prevail else unknown - startup
    if rest + startup < _UNKNOWN_SHARE:
        return None
    is_startup = rest < min(_UNKNOWN_SHARE, startup)
    return Missing("cuda_start_up", share=startup) if is_startup else Missing("idle_cause_unknown", share=rest)


def start_up(view: DeviceView) -> tuple[float, str]:
    """Share of the time in which the process sets CUDA or HIP up, and that in words; steps begin after it."""
    if view.has_marks or not view.ops.height:
        return 0.0, ""
    first = int(view.ops["start_ns"].min())  # type: ignore[arg-type]  # integers
    before = Intervals.of(view.starts, np.minimum(view.ends, first))
    calls = view.host.filter(pl.col("kind").is_in(["runtime", "sync"]), pl.col("start_ns") < first)
    setting_up = (spans(calls) & before) - view.host_spans(*HOST_RANGES)
    if not calls.height or not setting_up.total:
        return 0.0, ""
    longest = calls.sort("dur_ns", descending=True)["name"].cast(pl.String)[0]
    return setting_up.total / view.total_ns, f"CUDA or HIP starts up, longest in {longest}"


def undirected_copies(view: DeviceView) -> Missing | None:
    """Why it is unknown what is copied to and from the host, or None where it is known."""
    if not view.total_ns:
        return None
    copies = view.used_ops.filter(pl.col("kind") == "memcpy", pl.col("copy_kind").is_null())
    share = float(spans(copies).within(view.starts, view.ends).sum()) / view.total_ns
    return Missing("copy_direction_unknown", share=share) if share >= _UNKNOWN_SHARE else None


DOUBTFUL: Final = tuple(cause for cause in CAUSES if cause not in {*HOST_RANGES, "unknown"})
"""Causes of idle time of which nothing is told where too much of it has an unknown one."""
