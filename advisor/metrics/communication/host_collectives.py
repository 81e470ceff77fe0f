"""Collectives that the host carries out: their time, what hides it, and the copies that they need."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.communication import host_collectives, host_exposed, per_step_ms
from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, spans
from advisor.analysis.job.job import Job
from advisor.analysis.job.rank import Rank
from advisor.inputs.names.calls import REDUCTION
from advisor.metrics.several import Metric, Values, measures, measures_ranks
from advisor.model.intervals import Intervals
from advisor.model.profile import matches

_FEW_BYTES_NS: Final = 1_000_000
_MOST_MORE: Final = 0.1  # calls: a window may begin or end amid the calls of a step

HOST_COLLECTIVE_MS = Metric(
    "host_collective_ms",
    "Time per step in which a collective runs on the host (gloo, MPI).",
    "union of those ranges / steps",
)
HOST_COLLECTIVE_IDLE_MS = Metric(
    "host_collective_idle_ms",
    "Time per step in which the device runs no kernel, and a host collective or a copy for it is under way.",
    "(union of those ranges and copies - kernels and collectives of the device) inside the steps / steps",
    needs=("device_ops",),
)
HOST_COLLECTIVE_COPY_BYTES_PER_STEP = Metric(
    "host_collective_copy_bytes_per_step",
    "Bytes per step that are copied between device and host for collectives of the host.",
    "bytes of copies launched in c10d calls or by the threads that run such collectives / steps",
    needs=("device_ops",),
)


@measures(HOST_COLLECTIVE_MS, HOST_COLLECTIVE_IDLE_MS, HOST_COLLECTIVE_COPY_BYTES_PER_STEP)
def through_the_host(view: DeviceView) -> Values:
    """Collectives that the host carries out; zero where there are none."""
    ranges = view.once(host_collectives)
    copies = _copies_for(view, ranges)
    on_device = view.device_spans("kernel", "collective")
    idle = (spans(ranges) | spans(copies)) - on_device
    sized = not copies["bytes"].null_count()
    return {
        HOST_COLLECTIVE_MS: view.per_step_ms(spans(ranges).total),
        HOST_COLLECTIVE_IDLE_MS: per_step_ms(view, idle),
        HOST_COLLECTIVE_COPY_BYTES_PER_STEP: float(copies["bytes"].sum()) / view.steps.height if sized else None,
    }


HOST_COLLECTIVE_EXPOSED_MS = Metric(
    "host_collective_exposed_ms",
    "Time per step in which a collective runs on the host and no framework op on another thread.",
    "(union of those ranges - union of the ops of other threads, c10d's own left out) inside the steps / steps",
    where=lambda view: as_places(view.once(host_collectives), "host_ops"),
)
HOST_COLLECTIVE_EXPOSED_SHARE = Metric(
    "host_collective_exposed_share",
    "Part of the step in which a collective runs on the host and no framework op on another thread.",
    "host_collective_exposed_ms / step_mean_ms",
)
HOST_TRANSFER_EXPOSED_MS = Metric(
    "host_transfer_exposed_ms",
    "Time per step in which collectives on the host may do more than wait for other ranks, and no op computes.",
    "min(host_collective_exposed_ms, sum over the places of a step of the shortest call there)",
    "no less was needed than the shortest call; what is longer waits, for a late rank or for a CPU",
)
HOST_TRANSFER_EXPOSED_SHARE = Metric(
    "host_transfer_exposed_share",
    "Part of the step in which collectives on the host may do more than wait for other ranks, and no op computes.",
    "host_transfer_exposed_ms / step_mean_ms",
)
HOST_TRANSFER_MOST_MS = Metric(
    "host_transfer_most_ms",
    "Time per step in host collectives on the rank that spends the least in them: the others wait for the rest.",
    "min over the ranks of (union of those ranges inside the used steps / steps), of ranks whose calls are as "
    "many, give or take one or a tenth",
    "who comes last does not wait: moving the data takes no longer than that rank's calls, whatever the clocks say",
)
SHORT_HOST_REDUCTIONS_PER_STEP = Metric(
    "short_host_reductions_per_step",
    "Reductions per step on the host that move few bytes.",
    "places of a step whose shortest all_reduce or reduce_scatter takes less than 1 ms",
    "1-3 GB/s with Gloo: 1 ms is enough for 1 to 3 MB",
)


@measures(HOST_TRANSFER_EXPOSED_MS, HOST_TRANSFER_EXPOSED_SHARE, SHORT_HOST_REDUCTIONS_PER_STEP)
def transfers_on_host(view: DeviceView) -> Values:
    """What the network takes at most, whoever is late."""
    calls = view.once(host_collectives)
    place = pl.int_range(pl.len()).over("window", "name", order_by="start_ns")
    places = calls.with_columns(place=place).group_by("name", "place").agg(pl.min("dur_ns"))
    exposed_ns = int(host_exposed(view, calls).within(view.starts, view.ends).sum())
    moving_ns = min(exposed_ns, int(places["dur_ns"].sum()) * view.steps.height)
    short = places.filter(matches(REDUCTION), pl.col("dur_ns") < _FEW_BYTES_NS)
    return {
        HOST_TRANSFER_EXPOSED_MS: view.per_step_ms(moving_ns),
        HOST_TRANSFER_EXPOSED_SHARE: moving_ns / view.total_ns,
        SHORT_HOST_REDUCTIONS_PER_STEP: short.height,
    }


@measures_ranks(HOST_TRANSFER_MOST_MS)
def transfers_of_ranks(job: Job, position: int) -> Values:
    """What moving the data takes at most, by the rank that waits the least."""
    of_ranks = job.once(_in_calls)
    own, ms = of_ranks[position]
    alike = [ms for calls, ms in of_ranks if abs(calls - own) <= max(1, _MOST_MORE * own) and ms is not None]
    return {HOST_TRANSFER_MOST_MS: None if ms is None else min(alike)}


def _in_calls(job: Job) -> list[tuple[int, float | None]]:
    """Of each rank: how many host collectives its used steps hold, and ms per step in them, null without a step."""
    return [_in_calls_of(rank) for rank in job.ranks]


def _in_calls_of(rank: Rank) -> tuple[int, float | None]:
    steps = rank.steps.filter("used")["step"]
    calls = rank.calls.filter("on_host", pl.col("step").is_in(steps.implode()))
    times = Intervals.of(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
    return calls.height, times.total / 1e6 / steps.len() if steps.len() else None


@measures(HOST_COLLECTIVE_EXPOSED_MS, HOST_COLLECTIVE_EXPOSED_SHARE)
def exposed_on_host(view: DeviceView) -> Values:
    """Host collectives that no computation of the host hides; zero where there are none."""
    exposed = host_exposed(view, view.once(host_collectives))
    return {
        HOST_COLLECTIVE_EXPOSED_MS: per_step_ms(view, exposed),
        HOST_COLLECTIVE_EXPOSED_SHARE: view.share(exposed),
    }


def _copies_for(view: DeviceView, ranges: pl.DataFrame) -> pl.DataFrame:
    """Copies between device and host for collectives on the host."""
    copies = view.used_ops.filter(pl.col("copy_kind").cast(pl.String).is_in(["DtoH", "HtoD"]))
    if not ranges.height:
        return copies.clear()
    copies = view.with_host(copies, "launch", thread="thread", called_ns="start_ns")
    requests = spans(view.host_like("^c10d::"))
    at = copies["called_ns"].fill_null(-1).to_numpy()
    of_backend = pl.col("thread").is_in(ranges["thread"].unique().implode())
    return copies.filter(pl.Series(requests.within(at, at + 1) > 0, dtype=pl.Boolean) | of_backend)
