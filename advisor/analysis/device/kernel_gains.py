"""What a step takes if kernels ran otherwise, or if host work and its kernels were left out."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.replay import UNPROFILED, Replay, trusted_replay
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.inputs.hardware import Gpu
from advisor.model.intervals import Union
from advisor.model.missing import Missing
from advisor.vocabulary.limits import LAUNCH_GAP_NS

REPLAYED: Final = "; replayed; without a replay that can be trusted, 0 at least and what the kernels lose at most"
"""Ends the formula of a gain from `gains_ms`."""

NEGLIGIBLE: Final = 0.002
"""Of the step: what is not worth a replay."""


def gains_ms(view: DeviceView, kernels: pl.DataFrame, slowest: pl.Expr, fastest: pl.Expr) -> tuple[float, float]:
    """Step time given back, at least and at most, if each of these kernels took `slowest` or `fastest` ns instead.

    At least: by replay of the recorded steps, where a host or another stream that sets the pace does not notice faster
    kernels. At most: the same, or more in a replay whose host is twice as fast as the profiler let it be and never
    waits for a batch. Where no replay can be trusted, or it is about less than 0.2 % of the step: nothing at least, and
    at most what the kernels lose. Without a device the ops of the host lose what they lose.
    """
    if not kernels.height:
        return 0.0, 0.0
    durations = kernels.select(slow=_integer(slowest), fast=_integer(fastest), id="id", now="dur_ns")
    most_ns = max(0.0, float((durations["now"] - durations["fast"]).sum()))
    if view.device is None:  # one op after another: what they lose, the step loses
        least_ns = float((durations["now"] - durations["slow"]).sum())
        return max(0.0, view.per_step_ms(least_ns)), view.per_step_ms(most_ns)
    replays = view.once(worlds)
    if not replays or most_ns < NEGLIGIBLE * view.total_ns:
        return 0.0, view.per_step_ms(most_ns)
    ids, slow, fast = (durations[column].to_numpy() for column in ("id", "slow", "fast"))
    recorded, before_ms = replays[0]
    low = max(0.0, before_ms - recorded.with_durations(ids, slow).step_ms)
    return low, max(low, *(before_ms - world.with_durations(ids, fast).step_ms for world, before_ms in replays))


def memory_ns(nbytes: pl.Expr, gpu: Gpu | None, share: float) -> pl.Expr:
    """Time to move so many bytes at this share of the device's memory bandwidth; 0 where either is not known."""
    rate = gpu.memory_bandwidth_gbs if gpu else None  # GB/s is bytes per ns
    return (nbytes / (share * rate)).fill_null(0.0) if rate else pl.lit(0.0)


def no_peaks(view: DeviceView) -> Missing:
    """Why it is not known how fast the device multiplies which type: it has no name, or one the table lacks."""
    name = view.facts.get("name")
    if not name:
        return Missing("gpu_unknown")
    return Missing("peaks_unknown", name=str(name))


def worlds(view: DeviceView) -> list[tuple[Replay, float]]:
    """The steps as recorded, and with a host that profiler and loader do not hinder, each with its step time in ms."""
    trusted = view.once(trusted_replay)
    if trusted is None:
        return []
    unhindered = trusted.without_host(view.host_spans("input")).with_launches(UNPROFILED, LAUNCH_GAP_NS)
    return [(world, world.step_ms) for world in (trusted, unhindered)]


def _integer(ns: pl.Expr) -> pl.Expr:
    return ns.cast(pl.Float64).round().cast(pl.Int64)


def work_gain_ms(view: DeviceView, when: Union) -> float:
    """Step time saved if the host left out what it does at these times, with the kernels that it calls for."""
    if view.device is None or not when.total:
        return view.per_step_ms(float(when.within(view.starts, view.ends).sum()))
    calls = view.host.filter(pl.col("kind").is_in(["runtime", "sync"]))
    calls = calls.filter(inside(when, calls))
    kernels = view.used_ops.join(calls.select(launch="id"), on="launch", how="semi")
    trusted = view.once(trusted_replay)
    if trusted is None:
        return view.per_step_ms(float(spans(kernels).within(view.starts, view.ends).sum()))
    ids = kernels["id"].to_numpy()
    without = trusted.without_host(when).without_calls(calls["id"].to_numpy())
    return trusted.saved_ms(without.with_durations(ids, np.zeros_like(ids)))
