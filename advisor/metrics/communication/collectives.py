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
from advisor.metrics.metric import Value, of_devices
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


def _kinds(view: DeviceView) -> pl.DataFrame:
    """How many collectives of each kind (`does`) the used steps have, on the device and on the host: `len`."""
    on_host = view.once(host_collectives).select(
        does=pl.col("name").cast(pl.String).str.extract(r"^(\w+:\w+)").fill_null("unknown")
    )
    on_device = view.once(device_collectives).select(pl.col("does").fill_null("unknown"))
    return pl.concat([on_device, on_host]).group_by("does").len().sort("len", "does", descending=[True, False])


def _calls(view: DeviceView) -> Value:
    kinds = view.once(_kinds).rows()
    return ", ".join(f"{does} {number(calls / view.steps.height)}" for does, calls in kinds) or _NONE


def _unknown_sizes(view: DeviceView) -> Missing | None:
    known = view.once(device_collectives)["size"]
    if not len(known):
        return _NONE
    missing = known.null_count()
    return Missing("sizes_partly_missing", missing=missing, collectives=len(known)) if missing else None


def _total_ms(view: DeviceView) -> float:
    return per_step_ms(view, spans(view.once(device_collectives)))


def _all_exposed_ms(view: DeviceView) -> float:
    return exposed_ms(view, view.once(device_collectives))


def _hidden_ms(view: DeviceView) -> float:
    return view.once(_total_ms) - view.once(_all_exposed_ms)


def _short(view: DeviceView) -> pl.DataFrame:
    return view.once(device_collectives).filter(pl.col("dur_ns") < _SHORT_NS, ~matches(_ONE_SHOT))


def _covered(view: DeviceView) -> pl.DataFrame:
    """The kernels of the used steps, with how long collectives run beside each: `covered`, in ns."""
    running = view.device_spans("collective")
    kernels = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("dur_ns") > 0)
    start = kernels["start_ns"].to_numpy()
    return kernels.with_columns(covered=pl.Series(running.within(start, start + kernels["dur_ns"].to_numpy())))


def _unknown_contention(view: DeviceView) -> Missing | None:
    kernels = view.once(_covered)
    if not kernels.height:
        return Missing("nothing_to_compute_from")
    is_unknown = kernels.select(_IS_BESIDE.any()).item() and not view.once(_beside_and_alone)[1]
    return Missing("no_overlap_sample") if is_unknown else None


def _contention_ms(view: DeviceView) -> float:
    beside_ns, alone_ns = view.once(_beside_and_alone)
    return view.per_step_ms(max(0.0, beside_ns - alone_ns))


def _contention_ratio(view: DeviceView) -> float:
    beside_ns, alone_ns = view.once(_beside_and_alone)
    return beside_ns / alone_ns if alone_ns else 1.0


def _beside_and_alone(view: DeviceView) -> tuple[float, float]:
    """The ns of the kernels beside collectives, and of as many of the same alone, at their medians; 0 where none is so.

    Both of at least three calls. A grid says how large a product's result is, not how long its sums are: without
    shapes, products are not compared.
    """
    alone = pl.col("covered") == 0
    known = view.with_host(view.once(_covered), "op", op_name="name", shapes="shapes")
    multiplies = pl.Series(family(known["name"]).cast(pl.String).is_in(PRODUCTS))
    of_kernel = known.filter(pl.col("shapes").is_not_null() | ~multiplies).group_by(_SHAPE)
    both = of_kernel.agg(
        calls=_IS_BESIDE.sum().cast(pl.Int64),
        others=alone.sum(),
        with_ns=pl.col("dur_ns").filter(_IS_BESIDE).median(),
        without_ns=pl.col("dur_ns").filter(alone).median(),
    ).filter(pl.col("calls") >= _ENOUGH, pl.col("others") >= _ENOUGH)
    beside_ns, alone_ns = both.select(pl.col("with_ns", "without_ns") * pl.col("calls")).sum().row(0)
    return beside_ns, alone_ns


measure = of_devices(__name__)
measure(
    "collectives_per_step",
    "Collectives per step, on the device and on the host.",
    "number of collective kernels and of gloo's or MPI's ranges in the steps / steps",
    lambda view: float(view.once(_kinds)["len"].sum()) / view.steps.height,
)
measure(
    "collective_calls",
    "Which collectives, how often per step; the most frequent first.",
    "number by operation / steps",
    _calls,
    unit="text",
)
measure(
    "backend",
    "The backend of the collectives, as the process asked for it.",
    "init_process_group's backend",
    lambda view: view.process.get("backend") or Missing("backend_unknown"),
    unit="text",
)
sized = of_devices(__name__, needs=("device_ops", "collectives.bytes"), unknown=_unknown_sizes)
sized(
    "collective_bytes_per_step",
    "Bytes per step that this rank's collectives handle.",
    "sum of bytes (of gathers and scatters: the whole array) / steps",
    lambda view: float(view.once(device_collectives)["size"].sum()) / view.steps.height,
    source="nccl-tests, doc/PERFORMANCE.md",
)
sized(
    "collective_median_bytes",
    "Bytes of the typical collective.",
    "median of the bytes of the collectives",
    lambda view: float(np.median(view.once(device_collectives)["size"].to_numpy())),
    unit="number",
)
on_device = of_devices(__name__, needs=_DEVICE)
on_device(
    "communication_ms",
    "Time per step in which a collective runs on the device, hidden or not, waiting for other ranks included.",
    "union of the collectives inside the steps / steps",
    lambda view: view.once(_total_ms),
    where=_longest,
)
on_device(
    "exposed_communication_ms",
    "Time per step in which a collective runs on the device and no other kernel does.",
    "(union of collectives and kernels - union of kernels) inside the steps / steps",
    lambda view: view.once(_all_exposed_ms),
    where=_most_exposed,
)
on_device(
    "hidden_communication_ms",
    "Time per step in which a collective runs on the device and a kernel hides it.",
    "communication_ms - exposed_communication_ms",
    _hidden_ms,
)
on_device(
    "overlap_share",
    "How much of the communication kernels hide.",
    "hidden_communication_ms / communication_ms",
    lambda view: _hidden_ms(view) / view.once(_total_ms) if view.once(_total_ms) else _NONE,
    source="Holistic Trace Analysis, communication computation overlap",
)
on_device(
    "short_collectives_per_step",
    "Collectives of less than 50 µs per step: start-up is most of what they take.",
    "number of collective kernels below 50 µs / steps; without kernels for small messages (one-shot, multimem)",
    lambda view: _short(view).height / view.steps.height,
    source="all_reduce of 1 KiB to 2 MiB takes 17 to 42 µs on 8 x H100 (dgxc-benchmarking curves)",
)
on_device(
    "short_collectives_ms",
    "Time per step in which a collective of less than 50 µs runs and no other kernel does.",
    "(union of them - its overlap with kernels) inside the steps / steps",
    lambda view: exposed_ms(view, _short(view)),
)
beside = of_devices(__name__, needs=_DEVICE, unknown=_unknown_contention)
beside(
    "contention_ms",
    "Time per step by which kernels take longer while a collective runs beside them.",
    "sum over kernels (name, grid, block, op, shapes) of calls beside a collective (half of their time) x (their"
    " median - median alone) / steps; both medians of at least three calls; without shapes, no products, convolutions "
    "and attention",
    _contention_ms,
    source="Daydream (USENIX ATC 2020) on NCCL and kernels that share the multiprocessors",
)
beside(
    "contention_ratio",
    "How many times as long kernels take beside a collective as alone.",
    "their time beside collectives / the same calls at the median alone",
    _contention_ratio,
)
