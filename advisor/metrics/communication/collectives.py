"""Collectives of one rank: how many, of what size, how much of them computation hides, and what they slow down."""

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
from advisor.analysis.device.view import DeviceView, spans, spent_ns
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
_NONE: Final = Missing("no_collective_on_device")
_SHAPE: Final = ["name", "grid", "block", "op_name", "shapes"]


def _bare(view: DeviceView) -> pl.DataFrame:
    """The collectives that some time of no kernel overlaps, with how much: `bare_ns`."""
    ops = view.once(device_collectives)
    bare = ops["dur_ns"] - spent_ns(ops, view.once(computation))
    return ops.with_columns(bare.alias("bare_ns")).filter(pl.col("bare_ns") > 0)


def _kinds(view: DeviceView) -> pl.DataFrame:
    """How many collectives of which kind, the most frequent first: does, len."""
    on_host = view.once(host_collectives).select(
        does=pl.col("name").cast(pl.String).str.extract(r"^(\w+:\w+)").fill_null("unknown")
    )
    on_device = view.once(device_collectives).select(pl.col("does").fill_null("unknown"))
    return pl.concat([on_device, on_host]).group_by("does").len().sort("len", "does", descending=[True, False])


def _calls(view: DeviceView) -> str | Missing:
    kinds = view.once(_kinds).rows()
    return ", ".join(f"{does} {number(calls / view.steps.height)}" for does, calls in kinds) or _NONE


def _no_sizes(view: DeviceView) -> Missing | None:
    known = view.once(device_collectives)["size"]
    if not len(known):
        return _NONE
    missing = known.null_count()
    return Missing("sizes_partly_missing", missing=missing, collectives=len(known)) if missing else None


def _total_ms(view: DeviceView) -> float:
    return per_step_ms(view, spans(view.once(device_collectives)))


def _exposed_ms(view: DeviceView) -> float:
    return exposed_ms(view, view.once(device_collectives))


def _hidden_ms(view: DeviceView) -> float:
    return view.once(_total_ms) - view.once(_exposed_ms)


def _short(view: DeviceView) -> pl.DataFrame:
    return view.once(device_collectives).filter(pl.col("dur_ns") < _SHORT_NS, ~matches(_ONE_SHOT))


def _no_kernel(view: DeviceView) -> Missing | None:
    return None if view.once(_covered).height else Missing("nothing_to_compute_from")


def _contention(view: DeviceView) -> tuple[float, float] | Missing:
    """What kernels take beside collectives, in ns, and what the same calls take alone; both 0 where none does."""
    if not view.once(_covered).select(_IS_BESIDE.any()).item():
        return 0.0, 0.0
    both = _beside_and_alone(view)
    beside, alone = (float((both["calls"] * both[column]).sum()) for column in ("with_ns", "without_ns"))
    return (beside, alone) if alone else Missing("no_overlap_sample")


def _contention_ms(view: DeviceView) -> Value:
    times = view.once(_contention)
    return times if isinstance(times, Missing) else view.per_step_ms(max(0.0, times[0] - times[1]))


def _contention_ratio(view: DeviceView) -> Value:
    times = view.once(_contention)
    return times if isinstance(times, Missing) else times[0] / times[1] if times[1] else 1.0


def _covered(view: DeviceView) -> pl.DataFrame:
    """The kernels of the used steps, with how long collectives run beside each: `covered`, in ns."""
    running = view.device_spans("collective")
    kernels = view.used_ops.filter(pl.col("kind") == "kernel", pl.col("dur_ns") > 0)
    return kernels.with_columns(covered=spent_ns(kernels, running))


def _beside_and_alone(view: DeviceView) -> pl.DataFrame:
    """Median times of equal kernels beside collectives and alone; of those with enough calls of both.

    A grid says how large a product's result is, not how long its sums are: without shapes, products are not compared.
    """
    alone, kernels = pl.col("covered") == 0, view.once(_covered)
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


measure = of_devices(__name__)
of_sizes = of_devices(__name__, needs=("device_ops", "collectives.bytes"), unknown=_no_sizes)
of_device = of_devices(__name__, needs=("device_ops",))
of_kernels = of_devices(__name__, needs=("device_ops",), unknown=_no_kernel)
measure("collectives_per_step", lambda view: float(view.once(_kinds)["len"].sum()) / view.steps.height).says(
    "Collectives per step, on the device and on the host.",
    "number of collective kernels and of gloo's or MPI's ranges in the steps / steps",
)
measure("collective_calls", _calls, unit="text").says(
    "Which collectives, how often per step; the most frequent first.", "number by operation / steps"
)
measure("backend", lambda view: view.process.get("backend") or Missing("backend_unknown"), unit="text").says(
    "The backend of the collectives, as the process asked for it.", "init_process_group's backend"
)
of_sizes(
    "collective_bytes_per_step", lambda view: float(view.once(device_collectives)["size"].sum()) / view.steps.height
).says(
    "Bytes per step that this rank's collectives handle.",
    "sum of bytes (of gathers and scatters: the whole array) / steps",
    "nccl-tests, doc/PERFORMANCE.md",
)
of_sizes(
    "collective_median_bytes",
    lambda view: float(np.median(view.once(device_collectives)["size"].to_numpy())),
    unit="number",
).says("Bytes of the typical collective.", "median of the bytes of the collectives")
of_device(
    "communication_ms", lambda view: view.once(_total_ms), where=as_places(device_collectives, "device_ops", op="op")
).says(
    "Time per step in which a collective runs on the device, hidden or not, waiting for other ranks included.",
    "union of the collectives inside the steps / steps",
)
of_device(
    "exposed_communication_ms",
    lambda view: view.once(_exposed_ms),
    where=as_places(_bare, "device_ops", op="op", by="bare_ns"),
).says(
    "Time per step in which a collective runs on the device and no other kernel does.",
    "(union of collectives and kernels - union of kernels) inside the steps / steps",
)
of_device("hidden_communication_ms", _hidden_ms).says(
    "Time per step in which a collective runs on the device and a kernel hides it.",
    "communication_ms - exposed_communication_ms",
)
of_device(
    "overlap_share", lambda view: _hidden_ms(view) / view.once(_total_ms) if view.once(_total_ms) else _NONE
).says(
    "How much of the communication kernels hide.",
    "hidden_communication_ms / communication_ms",
    "Holistic Trace Analysis, communication computation overlap",
)
of_device("short_collectives_per_step", lambda view: _short(view).height / view.steps.height).says(
    "Collectives of less than 50 µs per step: start-up is most of what they take.",
    "number of collective kernels below 50 µs / steps; without kernels for small messages (one-shot, multimem)",
    "all_reduce of 1 KiB to 2 MiB takes 17 to 42 µs on 8 x H100 (dgxc-benchmarking curves)",
)
of_device("short_collectives_ms", lambda view: exposed_ms(view, _short(view))).says(
    "Time per step in which a collective of less than 50 µs runs and no other kernel does.",
    "(union of them - its overlap with kernels) inside the steps / steps",
)
of_kernels("contention_ms", _contention_ms).says(
    "Time per step by which kernels take longer while a collective runs beside them.",
    "sum over kernels (name, grid, block, op, shapes) of calls beside a collective (half of their time) x (their"
    " median - median alone) / steps; both medians of at least three calls; without shapes, no products, convolutions "
    "and attention",
    "Daydream (USENIX ATC 2020) on NCCL and kernels that share the multiprocessors",
)
of_kernels("contention_ratio", _contention_ratio).says(
    "How many times as long kernels take beside a collective as alone.",
    "their time beside collectives / the same calls at the median alone",
)
