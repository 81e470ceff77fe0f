"""What kernels would take if they were run otherwise, from the device's peaks, and what that gives back."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.hardware import Gpu
from advisor.lens import Lane
from advisor.replay import UNPROFILED, trusted_replay

REPLAYED: Final = "; replayed; without a replay that can be trusted, 0 at least and what the kernels lose at most"
"""Ends the formula of a gain from `gains_ms`."""

_LONG_GAP_NS: Final = 1_000_000  # in a longer gap between calls the host does something else


def gains_ms(lane: Lane, found: pl.DataFrame, slowest: pl.Expr, fastest: pl.Expr) -> tuple[float, float]:
    """Step time given back, at least and at most, if each of these kernels took `slowest` or `fastest` ns instead.

    At least: by replay of the recorded steps, where a host or another stream that sets the pace does not notice faster
    kernels. At most: the same, or more in a replay whose host is twice as fast as the profiler let it be and never
    waits for a batch. Where no replay can be trusted: nothing at least, and at most what the kernels lose.
    """
    left = found.select(slow=_whole(slowest), fast=_whole(fastest), id="id", now="dur_ns")
    trusted = lane.once(trusted_replay)
    if trusted is None:
        return 0.0, max(0.0, lane.per_step_ms(float((left["now"] - left["fast"]).sum())))
    ids, slow, fast = (left[column].to_numpy() for column in ("id", "slow", "fast"))
    low = trusted.saved_ms(trusted.with_durations(ids, slow))
    unhindered = trusted.without_host(lane.host_spans("input")).with_launches(UNPROFILED, _LONG_GAP_NS)
    return low, max(low, *(one.saved_ms(one.with_durations(ids, fast)) for one in (trusted, unhindered)))


def memory_ns(nbytes: pl.Expr, gpu: Gpu | None, share: float) -> pl.Expr:
    """Time to move so many bytes at this share of the device's memory bandwidth; 0 where either is not known."""
    rate = gpu.memory_bandwidth_gbs if gpu else None  # GB/s is bytes per ns
    return (nbytes / (share * rate)).fill_null(0.0) if rate else pl.lit(0.0)


def _whole(ns: pl.Expr) -> pl.Expr:
    return ns.cast(pl.Float64).round().cast(pl.Int64)
