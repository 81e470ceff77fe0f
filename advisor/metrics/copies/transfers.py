"""Copies between host and device: how much, from which memory, and how much of it nothing hides."""

from typing import Final

import polars as pl

from advisor.analysis.device.places import device_places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value, of_devices
from advisor.model.missing import Missing

_PCIE_EFFICIENCY: Final = 0.88  # of the link's rate that a pinned copy reaches


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


def _pinned_ms(view: DeviceView) -> Value:
    pageable, total = view.once(_pageable), _bytes(view)
    if not pageable.height or isinstance(total, Missing):
        return total
    if view.gpu is None or view.gpu.pcie_gbs is None:
        return Missing("pcie_rate_unknown")
    pinned_ns = total / (_PCIE_EFFICIENCY * view.gpu.pcie_gbs)  # GB/s is bytes per ns
    return view.per_step_ms(view.once(_exposed_ns) * min(1.0, pinned_ns / max(1, int(pageable["dur_ns"].sum()))))


def _to_host_part(view: DeviceView) -> float:
    dur, to_host = pl.col("dur_ns"), (pl.col("copy_kind") == "DtoH").fill_null(value=False)
    brought, total = view.once(_pageable).select(brought=dur.filter(to_host).sum(), total=dur.sum()).row(0)
    return float(brought / max(1, total))


measure = of_devices(__name__, needs=("device_ops",))

measure(
    "pageable_copy_share",
    lambda view: view.share(spans(view.once(_pageable))),
    where=lambda view: device_places(view, view.once(_pageable)),
).says(
    "Part of the step in which a copy from or to pageable host memory runs.",
    "union of those copies inside the steps / step time",
)
measure("pageable_copy_bytes_per_step", _bytes_per_step).says(
    "Bytes per step copied from or to pageable host memory.", "sum of the bytes of those copies / steps"
)
measure("pageable_copy_exposed_ms", lambda view: view.per_step_ms(view.once(_exposed_ns))).says(
    "Time per step in which a copy from or to pageable memory runs and no kernel or collective hides it.",
    "(union of those copies - its overlap with kernels and collectives) / steps",
)
measure("pageable_copy_pinned_ms", _pinned_ms).says(
    "What is left of the exposed time of pageable copies if the same bytes came from pinned memory.",
    "pageable_copy_exposed_ms x min(1, (bytes / (0.88 x PCIe rate)) / copy time)",
    "55.4 of 63 GB/s measured on 8xH200 nodes (stas00/ml-engineering, network/README.md)",
)
measure("pageable_to_host_part", _to_host_part).says(
    "How much of the time of pageable copies brings values to the host.",
    "sum of those copies DtoH / sum of all of them; 0 where there are none",
)
measure("memcpy_ms", lambda view: view.per_step_ms(spans(view.once(_copies)).total)).says(
    "Copy time per step, hidden or not.", "union of the copies / steps"
)
