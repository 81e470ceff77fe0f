"""Collectives of one rank: how many, of what size, how much of them computation hides, and what they slow down."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.communication import (
    computation,
    device_collectives,
    exposed_ms,
    host_collectives,
    per_step_ms,
)
from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.kernels import PRODUCTS, family
from advisor.metrics.several import Metric, Values, measures
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.text import number

_SHORT_NS: Final = 50_000
_ONE_SHOT: Final = (
    r"(?i)cross_device_reduce|(?:one|two)_?shot|multimem|quick_?reduce|low_?latency|lamport|allreduce_fusion|nvls"
)
"""Kernels that serving engines and PyTorch have for small messages: nothing joins or replaces them."""
_ENOUGH: Final = 3
_BESIDE: Final = 0.5  # of a kernel's time that collectives must cover for it to count as slowed down
_IS_BESIDE: Final = pl.col("covered") >= _BESIDE * pl.col("dur_ns")
_DEVICE: Final = ("device_ops",)
_SIZES: Final = ("device_ops", "collectives.bytes")
_NONE: Final = Missing("no_collective_on_device")
_SHAPE: Final = ["name", "grid", "block", "op_name", "shapes"]


def _longest(view: DeviceView) -> pl.DataFrame:
    return as_places(view.once(device_collectives), "device_ops", op="op")


def _most_exposed(view: DeviceView) -> pl.DataFrame:
    """The collectives that some time of no kernel overlaps, those with the most of it first."""
    ops = view.once(device_collectives)
    start, length = ops["start_ns"].to_numpy(), ops["dur_ns"].to_numpy()
    bare = pl.Series("bare_ns", length - view.once(computation).within(start, start + length))
    exposed = ops.with_columns(bare).filter(pl.col("bare_ns") > 0)
    return as_places(exposed, "device_ops", op="op", by="bare_ns")


COLLECTIVES_PER_STEP = Metric(
    "collectives_per_step",
    "Collectives per step, on the device and on the host.",
    "number of collective kernels and of gloo's or MPI's ranges in the steps / steps",
)
COLLECTIVE_CALLS = Metric(
    "collective_calls",
    "Which collectives, how often per step; the most frequent first.",
    "number by operation / steps",
    unit="text",
)
BACKEND = Metric(
    "backend",
    "The backend of the collectives, as the process asked for it.",
    "init_process_group's backend",
    unit="text",
)


@measures(COLLECTIVES_PER_STEP, COLLECTIVE_CALLS, BACKEND)
def calls(view: DeviceView) -> Values:
    """How many collectives of which kind."""
    on_host = view.once(host_collectives).select(
        does=pl.col("name").cast(pl.String).str.extract(r"^(\w+:\w+)").fill_null("unknown")
    )
    on_device = view.once(device_collectives).select(pl.col("does").fill_null("unknown"))
    kinds = pl.concat([on_device, on_host]).group_by("does").len().sort("len", "does", descending=[True, False])
    by_kind = ", ".join(f"{does} {number(calls / view.steps.height)}" for does, calls in kinds.rows())
    return {
        COLLECTIVES_PER_STEP: float(kinds["len"].sum()) / view.steps.height,
        COLLECTIVE_CALLS: by_kind or _NONE,
        BACKEND: view.process.get("backend") or Missing("backend_unknown"),
    }


COLLECTIVE_BYTES_PER_STEP = Metric(
    "collective_bytes_per_step",
    "Bytes per step that this rank's collectives handle.",
    "sum of bytes (of gathers and scatters: the whole array) / steps",
    "nccl-tests, doc/PERFORMANCE.md",
)
COLLECTIVE_MEDIAN_BYTES = Metric(
    "collective_median_bytes",
    "Bytes of the typical collective.",
    "median of the bytes of the collectives",
    unit="number",
)


@measures(COLLECTIVE_BYTES_PER_STEP, COLLECTIVE_MEDIAN_BYTES, needs=_SIZES)
def sizes(view: DeviceView) -> Values:
    """Sizes of the messages."""
    known = view.once(device_collectives)["size"]
    if not len(known):
        return _NONE
    if known.null_count():
        return Missing("sizes_partly_missing", missing=known.null_count(), collectives=len(known))
    return {
        COLLECTIVE_BYTES_PER_STEP: float(known.sum()) / view.steps.height,
        COLLECTIVE_MEDIAN_BYTES: float(np.median(known.to_numpy())),
    }


COMMUNICATION_MS = Metric(
    "communication_ms",
    "Time per step in which a collective runs on the device, hidden or not, waiting for other ranks included.",
    "union of the collectives inside the steps / steps",
    where=_longest,
)
EXPOSED_COMMUNICATION_MS = Metric(
    "exposed_communication_ms",
    "Time per step in which a collective runs on the device and no other kernel does.",
    "(union of collectives and kernels - union of kernels) inside the steps / steps",
    where=_most_exposed,
)
HIDDEN_COMMUNICATION_MS = Metric(
    "hidden_communication_ms",
    "Time per step in which a collective runs on the device and a kernel hides it.",
    "communication_ms - exposed_communication_ms",
)
OVERLAP_SHARE = Metric(
    "overlap_share",
    "How much of the communication kernels hide.",
    "hidden_communication_ms / communication_ms",
    "Holistic Trace Analysis, communication computation overlap",
)
SHORT_COLLECTIVES_PER_STEP = Metric(
    "short_collectives_per_step",
    "Collectives of less than 50 µs per step: start-up is most of what they take.",
    "number of collective kernels below 50 µs / steps; without kernels for small messages (one-shot, multimem)",
    "all_reduce of 1 KiB to 2 MiB takes 17 to 42 µs on 8 x H100 (dgxc-benchmarking curves)",
)
SHORT_COLLECTIVES_MS = Metric(
    "short_collectives_ms",
    "Time per step in which a collective of less than 50 µs runs and no other kernel does.",
    "(union of them - its overlap with kernels) inside the steps / steps",
)


@measures(
    COMMUNICATION_MS,
    EXPOSED_COMMUNICATION_MS,
    HIDDEN_COMMUNICATION_MS,
    OVERLAP_SHARE,
    SHORT_COLLECTIVES_PER_STEP,
    SHORT_COLLECTIVES_MS,
    needs=_DEVICE,
)
def exposure(view: DeviceView) -> Values:
    """How much of the communication is hidden; zero where there is none."""
    ops = view.once(device_collectives)
    total = per_step_ms(view, spans(ops))
    exposed = exposed_ms(view, ops)
    short = ops.filter(pl.col("dur_ns") < _SHORT_NS, ~matches(_ONE_SHOT))
    return {
        COMMUNICATION_MS: total,
        EXPOSED_COMMUNICATION_MS: exposed,
        HIDDEN_COMMUNICATION_MS: total - exposed,
        OVERLAP_SHARE: (total - exposed) / total if total else _NONE,
        SHORT_COLLECTIVES_PER_STEP: short.height / view.steps.height,
        SHORT_COLLECTIVES_MS: exposed_ms(view, short),
    }


CONTENTION_MS = Metric(
    "contention_ms",
    "Time per step by which kernels take longer while a collective runs beside them.",
    "sum over kernels (name, grid, block, op, shapes) of calls beside a collective (half of their time) x (their"
    " median - median alone) / steps; both medians of at least three calls; without shapes, no products, convolutions "
    "and attention",
    "Daydream (USENIX ATC 2020) on NCCL and kernels that share the multiprocessors",
)
CONTENTION_RATIO = Metric(
    "contention_ratio",
    "How many times as long kernels take beside a collective as alone.",
    "their time beside collectives / the same calls at the median alone",
)


@measures(CONTENTION_MS, CONTENTION_RATIO, needs=_DEVICE)
def contention(view: DeviceView) -> Values:
    """What collectives slow down; nothing where none runs beside a kernel."""
    kernels = _covered(view)
    if not kernels.height:
        return {}
    if not kernels.select(_IS_BESIDE.any()).item():
        return {CONTENTION_MS: 0.0, CONTENTION_RATIO: 1.0}
    both = _beside_and_alone(view, kernels)
    usual = float((both["calls"] * both["without_ns"]).sum())
    if not usual:
        return Missing("no_overlap_sample")
    slower = float((both["calls"] * both["with_ns"]).sum()) - usual
    return {CONTENTION_MS: view.per_step_ms(max(0.0, slower)), CONTENTION_RATIO: (usual + slower) / usual}


def _covered(view: DeviceView) -> pl.DataFrame:
    """The kernels of the used steps, with how long collectives run beside each: `covered`, in ns."""
    running = view.device_spans("collective")
    kernels = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("dur_ns") > 0)
    start = kernels["start_ns"].to_numpy()
    return kernels.with_columns(covered=pl.Series(running.within(start, start + kernels["dur_ns"].to_numpy())))


def _beside_and_alone(view: DeviceView, kernels: pl.DataFrame) -> pl.DataFrame:
    """Median times of equal kernels beside collectives and alone; of those with enough calls of both.

    A grid says how large a product's result is, not how long its sums are: without shapes, products are not compared.
    """
    alone = pl.col("covered") == 0
    known = view.with_host(kernels, "op", op_name="name", shapes="shapes")
    multiplies = pl.Series(family(known["name"]).cast(pl.String).is_in(PRODUCTS))
    return (
        known.filter(pl.col("shapes").is_not_null() | ~multiplies)
        .group_by(_SHAPE)
        .agg(
            calls=_IS_BESIDE.sum().cast(pl.Int64),
            others=alone.sum(),
            with_ns=pl.col("dur_ns").filter(_IS_BESIDE).median(),
            without_ns=pl.col("dur_ns").filter(alone).median(),
        )
        .filter(pl.col("calls") >= _ENOUGH, pl.col("others") >= _ENOUGH)
    )
