"""Copies between host and device: how much, from which memory, what nothing hides, and what the link would allow."""

from typing import Final

import polars as pl

from advisor.analysis.device.links import EFFICIENCY, at_link, is_once, pcie_gbs, unhidden_ns
from advisor.analysis.device.places import device_places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value, of_devices
from advisor.model.missing import Missing
from advisor.whatif import faster, saved

_LEAST_BYTES: Final = 1_000_000  # a smaller copy takes as long to start as to travel


def _copies(view: DeviceView) -> pl.DataFrame:
    return view.used_ops.filter(pl.col("kind") == "memcpy")


def _pageable(view: DeviceView) -> pl.DataFrame:
    return view.once(_copies).filter((pl.col("source_memory") == "pageable") | (pl.col("target_memory") == "pageable"))


def _exposed_ns(view: DeviceView) -> int:
    return (spans(view.once(_pageable)) - view.device_spans("kernel", "collective")).total


def _bytes(view: DeviceView) -> float | Missing:
    sizes = view.once(_pageable)["bytes"]
    return Missing("no_copy_sizes") if sizes.null_count() else float(sizes.sum())


def _bytes_per_step(view: DeviceView) -> Value:
    total = _bytes(view)
    return total if isinstance(total, Missing) else total / view.steps.height


def _gbs(view: DeviceView) -> Value:
    total = _bytes(view)
    return total if isinstance(total, Missing) else total / max(1, int(view.once(_pageable)["dur_ns"].sum()))


def _pageable_at_link(view: DeviceView) -> pl.DataFrame | Missing:
    return at_link(view, view.once(_pageable))


def _pinned_ms(view: DeviceView) -> Value:
    copies = view.once(_pageable_at_link)
    if isinstance(copies, Missing):
        return copies
    rest = float(copies["link_ns"].sum()) / max(1, int(copies["dur_ns"].sum()))
    return view.per_step_ms(view.once(_exposed_ns) * rest)


def _unhidden_ms(view: DeviceView) -> Value:
    copies, pinned_ms = view.once(_pageable_at_link), _pinned_ms(view)
    if isinstance(copies, Missing) or isinstance(pinned_ms, Missing):
        return pinned_ms
    if is_once(view):
        return EFFICIENCY * float(pinned_ms or 0.0)
    return view.per_step_ms(min(view.once(_exposed_ns), unhidden_ns(view, copies)))


def _to_host_part(view: DeviceView) -> float:
    dur, to_host = pl.col("dur_ns"), (pl.col("copy_kind") == "DtoH").fill_null(value=False)
    brought, total = view.once(_pageable).select(brought=dur.filter(to_host).sum(), total=dur.sum()).row(0)
    return float(brought / max(1, total))


def _round_trip_part(view: DeviceView) -> float:
    """Copies to the host are paired with those of as many bytes that next go to the device, as many as there are."""
    copies = view.once(_pageable).filter(pl.col("bytes") >= _LEAST_BYTES).sort("start_ns")
    turns = (
        copies.with_columns(turn=pl.col("copy_kind").rle_id().over("bytes"))
        .group_by("bytes", "turn", maintain_order=True)
        .agg(pl.first("copy_kind"), number=pl.len(), each_ns=pl.mean("dur_ns"))
    )
    later = turns.with_columns(pl.col("copy_kind", "number", "each_ns").shift(-1).over("bytes").name.prefix("next_"))
    back = later.filter(pl.col("copy_kind") == "DtoH", pl.col("next_copy_kind") == "HtoD")
    back_ns = (pl.min_horizontal("number", "next_number") * (pl.col("each_ns") + pl.col("next_each_ns"))).sum()
    return float(back.select(back_ns).item() / max(1, copies["dur_ns"].sum()))


def _large(view: DeviceView) -> pl.DataFrame:
    """Copies between host and device that hardly anything but the link can slow down."""
    pinned = (pl.col("source_memory") == "pinned") | (pl.col("target_memory") == "pinned")
    return view.once(_copies).filter(
        pinned, pl.col("copy_kind").is_in(["HtoD", "DtoH"]), pl.col("bytes") >= _LEAST_BYTES
    )


def _full_link_gain_ms(view: DeviceView) -> Value:
    copies = at_link(view, view.once(_large))
    if isinstance(copies, Missing):
        return copies
    return saved(view, faster(copies, pl.col("dur_ns"), pl.col("link_ns"))).most_ms


_MEASURED: Final = "55.4 of 63 GB/s measured on 8xH200 nodes (stas00/ml-engineering, network/README.md)"

measure = of_devices(__name__, needs=("device_ops",))

measure(
    "pageable_copy_share", lambda view: view.share(spans(view.once(_pageable))), where=device_places(_pageable)
).says(
    "Part of the step in which a copy from or to pageable host memory runs.",
    "union of those copies inside the steps / step time",
)
measure("pageable_copy_bytes_per_step", _bytes_per_step).says(
    "Bytes per step copied from or to pageable host memory.", "sum of the bytes of those copies / steps"
)
measure("pageable_copy_gbs", _gbs, unit="number").says(
    "Rate of the copies from or to pageable host memory, in GB/s.",
    "sum of the bytes of those copies / sum of their times; 0 where there are none",
)
measure("pageable_copy_exposed_ms", lambda view: view.per_step_ms(view.once(_exposed_ns))).says(
    "Time per step in which a copy from or to pageable memory runs and no kernel or collective hides it.",
    "(union of those copies - its overlap with kernels and collectives) / steps",
)
measure("pageable_copy_pinned_ms", _pinned_ms).says(
    "What is left of the exposed time of pageable copies if the same bytes came from pinned memory.",
    "pageable_copy_exposed_ms x sum over the copies of min(copy time, bytes / (0.88 x pcie_gbs)) / copy time",
    _MEASURED,
)
measure("pageable_copy_unhidden_ms", _unhidden_ms).says(
    "What is left of that time if copies of both directions also run at once, and beside all kernels of other steps.",
    "max over the directions of (sum over the copies of min(copy time, bytes / (0.88 x pcie_gbs))) - time of kernels "
    "and collectives, at least 0, at most pageable_copy_exposed_ms; of a recording without steps 0.88 x "
    "pageable_copy_pinned_ms",
    _MEASURED,
)
measure("pageable_to_host_part", _to_host_part).says(
    "How much of the time of pageable copies brings values to the host.",
    "sum of those copies DtoH / sum of all of them; 0 where there are none",
)
measure("pageable_round_trip_part", _round_trip_part).says(
    "How much of the time of large pageable copies brings values to the host and as many bytes back.",
    "of pageable copies of at least 1 MB: time of those DtoH that ones of the same size HtoD follow, and of these, as "
    "many as there are of both / time of all; 0 where there are none",
)
measure("memcpy_ms", lambda view: view.per_step_ms(spans(view.once(_copies)).total)).says(
    "Copy time per step, hidden or not.", "union of the copies / steps"
)
measure("pcie_gbs", pcie_gbs, unit="number").says(
    "Rate of the device's PCIe link in one direction with 16 lanes, in GB/s.", "from the table of GPUs"
)
measure("full_link_gain_ms", _full_link_gain_ms).says(
    "Step time saved at most if pinned copies took what the device's link allows."
)
