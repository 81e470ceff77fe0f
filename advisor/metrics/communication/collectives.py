"""Collectives of one rank: how many, of what size, how much of them computation hides, and what they slow down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import minus
from advisor.analysis.device.idle import gaps
from advisor.analysis.device.steps import DeviceView, spans
from advisor.analysis.job.rank import trains
from advisor.metrics.metric import Metric, Value, measures
from advisor.model.intervals import Union
from advisor.model.missing import Missing
from advisor.model.profile import named

_SMALL_BYTES: Final = 8 << 20
_MOST_BYTES: Final = 1 << 48  # more than any message has: sums of such sizes stay within 64 bits
_SHORT_NS: Final = 50_000
_ENOUGH: Final = 3
_BESIDE: Final = 0.5  # of a kernel's time that collectives must cover for it to count as slowed down
_DEVICE: Final = ("device_ops",)
_SIZES: Final = ("device_ops", "collectives.bytes")
_NONE: Final = Missing("no_collective_on_device")
_NO_OPS: Final = Missing("training_unknown")
_CALLS: Final = r"^(?:c10d::|record_param_comms$)"
_SHAPE: Final = ["name", "grid", "block", "op_name", "shapes"]


def _collectives(view: DeviceView) -> pl.DataFrame:
    """The device's collectives that start in used steps, with `does` (all_reduce, ...) and `size` in bytes."""
    size = pl.when(pl.col("bytes").is_between(0, _MOST_BYTES)).then("bytes")
    told = view.collectives.select(id="device_op", does=pl.col("op").cast(pl.String), size=size)
    return view.used_ops.filter(pl.col("kind") == "collective").join(told, on="id", how="left", maintain_order="left")


def _on_host(view: DeviceView) -> pl.DataFrame:
    """The host's collectives (gloo, MPI) of the used steps."""
    return view.used_host.filter(pl.col("kind") == "collective")


def _work(view: DeviceView) -> Union:
    return spans(view.ops.filter(pl.col("kind") == "kernel"))


def _longest(view: DeviceView) -> pl.DataFrame:
    found = view.once(_collectives).sort("dur_ns", "start_ns", descending=[True, False])
    return found.select(
        "step", "start_ns", "dur_ns", "op", table=pl.lit("device_ops"), name=pl.col("name").cast(pl.String)
    )


def _host_places(view: DeviceView) -> pl.DataFrame:
    found = view.once(_on_host).sort("dur_ns", "start_ns", descending=[True, False])
    return found.select("step", "start_ns", "dur_ns", table=pl.lit("host_ops"), name=pl.col("name").cast(pl.String))


@measures(
    Metric(
        "collectives_per_step",
        "number",
        "Collectives per step, on the device and on the host.",
        "number of collective kernels and of gloo's or MPI's ranges in the steps / steps",
    ),
    Metric(
        "collective_calls",
        "text",
        "Which collectives, how often per step; the most frequent first.",
        "number by operation / steps",
    ),
    Metric(
        "collectives_in",
        "text",
        "What makes them: `training` or `inference`.",
        "training where an op of a backward pass ran; unknown where no framework op was recorded",
    ),
    Metric("backend", "text", "What carries the collectives, as the process was told.", "init_process_group's backend"),
)
def calls(view: DeviceView) -> Mapping[str, Value]:
    """How many collectives of which kind."""
    if not view.steps.height:
        return {}
    on_host = view.once(_on_host).select(
        does=pl.col("name").cast(pl.String).str.extract(r"^(\w+:\w+)").fill_null("unknown")
    )
    on_device = view.once(_collectives).select(pl.col("does").fill_null("unknown"))
    number = pl.concat([on_device, on_host]).group_by("does").len().sort("len", "does", descending=[True, False])
    trained = trains(view)
    told = ", ".join(f"{does} {n / view.steps.height:.3g}" for does, n in number.rows())
    return {
        "collectives_per_step": float(number["len"].sum()) / view.steps.height,
        "collective_calls": told or _NONE,
        "collectives_in": _NO_OPS if trained is None else "training" if trained else "inference",
        "backend": view.process.get("backend") or Missing("backend_unknown"),
    }


@measures(
    Metric(
        "collective_bytes_per_step",
        "number",
        "Bytes per step that this rank's collectives handle.",
        "sum of bytes (of gathers and scatters: the whole array) / steps",
        "nccl-tests, doc/PERFORMANCE.md",
        _SIZES,
    ),
    Metric(
        "collective_median_bytes",
        "number",
        "Bytes of the typical collective.",
        "median of the bytes of the collectives",
        needs=_SIZES,
    ),
    Metric(
        "small_message_share",
        "share",
        "Part of those bytes in messages below 8 MiB.",
        "bytes in collectives below 8 MiB / bytes in collectives",
        "half of an 8 x H100 node's bandwidth is reached at 32 MiB (dgxc-benchmarking curves)",
        _SIZES,
    ),
)
def sizes(view: DeviceView) -> Mapping[str, Value]:
    """Sizes of the messages."""
    found = view.once(_collectives)["size"]
    if not len(found):
        return dict.fromkeys(("collective_bytes_per_step", "collective_median_bytes", "small_message_share"), _NONE)
    if found.null_count():
        why = Missing("sizes_partly_missing", missing=found.null_count(), collectives=len(found))
        return dict.fromkeys(("collective_bytes_per_step", "collective_median_bytes", "small_message_share"), why)
    total = float(found.sum())
    return {
        "collective_bytes_per_step": total / view.steps.height,
        "collective_median_bytes": float(np.median(found.to_numpy())),
        "small_message_share": float(found.filter(found < _SMALL_BYTES).sum()) / total if total else None,
    }


@measures(
    Metric(
        "communication_ms",
        "ms",
        "Time per step in which a collective runs on the device, hidden or not, waiting for other ranks included.",
        "union of the collectives inside the steps / steps",
        needs=_DEVICE,
        where=_longest,
    ),
    Metric(
        "exposed_communication_ms",
        "ms",
        "The part of it in which no kernel runs.",
        "(union of collectives and kernels - union of kernels) inside the steps / steps",
        needs=_DEVICE,
        where=_longest,
    ),
    Metric(
        "hidden_communication_ms",
        "ms",
        "The part of it that kernels hide.",
        "communication_ms - exposed_communication_ms",
        needs=_DEVICE,
    ),
    Metric(
        "overlap_share",
        "share",
        "How much of the communication kernels hide.",
        "hidden_communication_ms / communication_ms",
        "Holistic Trace Analysis, communication computation overlap",
        _DEVICE,
    ),
    Metric(
        "short_collectives_per_step",
        "number",
        "Collectives of less than 50 us per step: start-up is most of what they take.",
        "number of collective kernels below 50 us / steps",
        "all_reduce of 1 KiB to 2 MiB takes 17 to 42 us on 8 x H100 (dgxc-benchmarking curves)",
        _DEVICE,
    ),
    Metric(
        "short_collectives_ms",
        "ms",
        "Time per step in which one of them runs and no kernel does.",
        "(union of them - its overlap with kernels) inside the steps / steps",
        needs=_DEVICE,
    ),
)
def exposure(view: DeviceView) -> Mapping[str, Value]:
    """How much of the communication is hidden; zero where there is none."""
    if not view.steps.height:
        return {}
    found = view.once(_collectives)
    running, work = spans(found), view.once(_work)
    total = _per_step(view, running)
    exposed = _per_step(view, minus(running, work))
    short = found.filter(pl.col("dur_ns") < _SHORT_NS)
    return {
        "communication_ms": total,
        "exposed_communication_ms": exposed,
        "hidden_communication_ms": total - exposed,
        "overlap_share": (total - exposed) / total if total else _NONE,
        "short_collectives_per_step": short.height / view.steps.height,
        "short_collectives_ms": _per_step(view, minus(spans(short), work)),
    }


@measures(
    Metric(
        "host_collective_ms",
        "ms",
        "Time per step in which a collective runs on the host (gloo, MPI).",
        "union of those ranges / steps",
    ),
    Metric(
        "host_collective_idle_ms",
        "ms",
        "Time per step in which the device runs no kernel, and a host collective or a copy for it is under way.",
        "(union of those ranges and copies - kernels and collectives of the device) inside the steps / steps",
        needs=_DEVICE,
    ),
    Metric(
        "host_collective_copy_bytes_per_step",
        "number",
        "Bytes per step that are copied between device and host for these collectives.",
        "bytes of copies launched in c10d calls or by the threads that run such collectives / steps",
        needs=_DEVICE,
    ),
)
def through_the_host(view: DeviceView) -> Mapping[str, Value]:
    """Collectives that the host carries out; zero where there are none."""
    if not view.steps.height:
        return {}
    ranges = view.once(_on_host)
    copies = _copies_for(view, ranges)
    on_device = spans(view.ops.filter(pl.col("kind").is_in(["kernel", "collective"])))
    idle = minus(spans(ranges) | spans(copies), on_device)
    sized = not copies["bytes"].null_count()
    return {
        "host_collective_ms": view.per_step_ms(spans(ranges).total),
        "host_collective_idle_ms": _per_step(view, idle),
        "host_collective_copy_bytes_per_step": float(copies["bytes"].sum()) / view.steps.height if sized else None,
    }


@measures(
    Metric(
        "host_collective_exposed_ms",
        "ms",
        "Time per step in which a collective runs on the host and no framework op on another thread.",
        "(union of those ranges - union of the ops of other threads, c10d's own left out) inside the steps / steps",
        where=_host_places,
    ),
    Metric(
        "host_collective_exposed_share",
        "share",
        "The same as a part of the step.",
        "host_collective_exposed_ms / step_mean_ms",
    ),
)
def exposed_on_host(view: DeviceView) -> Mapping[str, Value]:
    """Host collectives that no computation of the host hides; zero where there are none."""
    if not view.total_ns:
        return {}
    ranges = view.once(_on_host)
    its_own = named(_CALLS)
    others = ~pl.col("thread").is_in(ranges["thread"].unique().implode())
    ops = view.host.filter(pl.col("kind") == "op", others & ~its_own) if ranges.height else view.host.clear()
    exposed = minus(spans(ranges), spans(ops))
    return {
        "host_collective_exposed_ms": _per_step(view, exposed),
        "host_collective_exposed_share": view.share(exposed),
    }


@measures(
    Metric(
        "collective_call_ms",
        "ms",
        "Time per step that the host spends in calls of collectives for the device, as far as they were recorded.",
        "union of c10d:: ops, record_param_comms and the calls that launch collectives, inside the steps / steps",
    ),
    Metric(
        "collective_call_idle_ms",
        "ms",
        "Time per step for which the device idles at most because of these calls.",
        "min(collective_call_ms, host-bound and queued idle time per step)",
    ),
)
def calling(view: DeviceView) -> Mapping[str, Value]:
    """What collectives cost the host; zero where none of their calls was recorded."""
    if not view.total_ns:
        return {}
    launching = view.once(_collectives)["launch"].drop_nulls().unique()
    if view.device is None or not launching.len():
        return {"collective_call_ms": 0.0, "collective_call_idle_ms": 0.0}
    calls = view.host.filter(named(_CALLS) | pl.col("id").is_in(launching.implode()))
    taken = _per_step(view, spans(calls))
    idle = view.once(gaps).select(pl.sum("host_bound_ns") + pl.sum("queued_ns")).item()
    return {"collective_call_ms": taken, "collective_call_idle_ms": min(taken, view.per_step_ms(idle))}


@measures(
    Metric(
        "contention_ms",
        "ms",
        "Time per step by which kernels take longer while a collective runs beside them.",
        "sum over kernels (name, grid, block, op, shapes) of calls beside a collective (half of their time) x (their"
        " median - median alone) / steps; both medians of at least three calls",
        "Daydream (USENIX ATC 2020) on NCCL and kernels that share the multiprocessors",
        _DEVICE,
    ),
    Metric(
        "contention_ratio",
        "ratio",
        "How many times as long these kernels take beside a collective.",
        "their time beside collectives / the same calls at the median alone",
        needs=_DEVICE,
    ),
)
def contention(view: DeviceView) -> Mapping[str, Value]:
    """What collectives slow down; nothing where none runs beside a kernel."""
    running = spans(view.ops.filter(pl.col("kind") == "collective"))
    ran = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("dur_ns") > 0)
    if not ran.height:
        return {}
    start = ran["start_ns"].to_numpy()
    covered = pl.Series(running.within(start, start + ran["dur_ns"].to_numpy()))
    beside, alone = pl.col("covered") >= _BESIDE * pl.col("dur_ns"), pl.col("covered") == 0
    ran = ran.with_columns(covered=covered)
    if not ran.select(beside.any()).item():
        return {"contention_ms": 0.0, "contention_ratio": 1.0}
    known = ran.join(view.host.select(op="id", op_name="name", shapes="shapes"), on="op", how="left")
    both = (
        known.group_by(_SHAPE)
        .agg(
            calls=beside.sum().cast(pl.Int64),
            others=alone.sum(),
            with_ns=pl.col("dur_ns").filter(beside).median(),
            without_ns=pl.col("dur_ns").filter(alone).median(),
        )
        .filter(pl.col("calls") >= _ENOUGH, pl.col("others") >= _ENOUGH)
    )
    usual = float((both["calls"] * both["without_ns"]).sum())
    if not usual:
        why = Missing("no_overlap_sample")
        return {"contention_ms": why, "contention_ratio": why}
    slower = float((both["calls"] * both["with_ns"]).sum()) - usual
    return {"contention_ms": view.per_step_ms(max(0.0, slower)), "contention_ratio": (usual + slower) / usual}


@measures(
    Metric(
        "peer_copy_ms",
        "ms",
        "Time per step in which a copy from one device to another runs.",
        "union of the PtoP copies / steps",
        needs=_DEVICE,
    ),
    Metric(
        "peer_copy_gbs",
        "number",
        "Bandwidth of these copies in GB/s.",
        "sum of their bytes / sum of their times",
        needs=_DEVICE,
    ),
)
def between_devices(view: DeviceView) -> Mapping[str, Value]:
    """Copies that the devices make among themselves."""
    if not view.steps.height:
        return {}
    copies = view.used_ops.filter(pl.col("copy_kind").cast(pl.String) == "PtoP")
    taken = int(copies["dur_ns"].sum())
    known = taken and not copies["bytes"].null_count()
    return {
        "peer_copy_ms": view.per_step_ms(spans(copies).total),
        "peer_copy_gbs": float(copies["bytes"].sum()) / taken if known else Missing("no_device_copy_sizes"),
    }


def _per_step(view: DeviceView, union: Union) -> float:
    return view.per_step_ms(float(union.within(view.starts, view.ends).sum()))


def _copies_for(view: DeviceView, ranges: pl.DataFrame) -> pl.DataFrame:
    """Copies between device and host for collectives on the host."""
    copies = view.used_ops.filter(pl.col("copy_kind").cast(pl.String).is_in(["DtoH", "HtoD"]))
    if not ranges.height:
        return copies.clear()
    called = view.host.select("id", thread="thread", called_ns="start_ns")
    copies = copies.join(called, left_on="launch", right_on="id", how="left")
    asked = spans(view.host.filter(named("^c10d::")))
    at = copies["called_ns"].fill_null(-1).to_numpy()
    of_backend = pl.col("thread").is_in(ranges["thread"].unique().implode())
    return copies.filter(pl.Series(asked.within(at, at + 1) > 0, dtype=pl.Boolean) | of_backend)
