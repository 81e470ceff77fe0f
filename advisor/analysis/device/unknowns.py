"""What a recording cannot show of a device, and why: the causes of idle time, the direction of copies, Python."""

from typing import Final

import polars as pl

from advisor.analysis.device.idle import CAUSES, at_edges, gaps
from advisor.analysis.device.launches import LAUNCHED, lacks_kernels
from advisor.analysis.device.view import DeviceView, spans
from advisor.model.missing import Missing
from advisor.vocabulary.idle_causes import HOST_RANGES

_UNKNOWN_SHARE: Final = 0.05  # of the step: with more idle time of unknown cause, no cause's share is known
_FRAMEWORKS: Final = ("tensorflow", "jax", "pytorch")


def no_frames(view: DeviceView) -> Missing | None:
    """Why Python's functions were not recorded, or None where they were."""
    if (view.host["kind"] == "python").any():
        return None
    if view.is_of_nsight or view.is_of_one_run:
        return Missing("not_in_timeline" if view.is_of_one_run else "no_python_calls")
    framework = view.process.get("framework")
    if framework == "pytorch" and view.process.get("cpus") is not None:  # `advisor record` notes them
        return Missing("no_python_calls_recorder")
    if framework == "pytorch" and view.host["stack"].count():
        return Missing("no_python_calls_lines")
    return Missing(f"no_python_calls_{framework}" if framework in _FRAMEWORKS else "no_python_calls")


def unknown_kernels(view: DeviceView) -> Missing | None:
    """Why it is unknown when kernels ran, or None where it is known."""
    launches = view.host.filter(LAUNCHED).height if view.once(lacks_kernels) else 0
    return Missing("kernels_not_recorded", launches=launches) if launches else None


def unknown_waits(view: DeviceView) -> Missing | None:
    """Why it is unknown what the device waited for, or None where it is known."""
    if view.device is None or not view.total_ns:
        return None
    if why := unknown_kernels(view):
        return why
    if not view.ops["launch"].count():
        return Missing("no_launches_tpu" if (view.facts.get("name") or "").startswith("TPU") else "no_cuda_calls")
    return view.once(unknown_idle)


def unknown_idle(view: DeviceView) -> Missing | None:
    """Why the causes of the idle time are unknown, or None where they are known.

    What lies at the edges of a recording without steps casts no doubt on the gaps between ops, where these are longer.
    """
    idle = view.once(gaps)
    between, length = idle.filter(~at_edges(idle, view)), pl.col("end_ns") - pl.col("start_ns")
    prevail = 2 * int(between.select(length).sum().item()) > int(idle.select(length).sum().item())
    unknown = int((between if prevail else idle)["unknown_ns"].sum()) / view.total_ns
    return Missing("idle_cause_unknown", share=unknown) if unknown >= _UNKNOWN_SHARE else None


def undirected_copies(view: DeviceView) -> Missing | None:
    """Why it is unknown what is copied to and from the host, or None where it is known."""
    if not view.total_ns:
        return None
    copies = view.used_ops.filter(pl.col("kind") == "memcpy", pl.col("copy_kind").is_null())
    share = view.used_ns(spans(copies)) / view.total_ns
    return Missing("copy_direction_unknown", share=share) if share >= _UNKNOWN_SHARE else None


DOUBTFUL: Final = tuple(cause for cause in CAUSES if cause not in {*HOST_RANGES, "unknown"})
"""Causes of idle time of which nothing is told where too much of it has an unknown one."""
