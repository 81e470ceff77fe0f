"""Copies between host and device: how much, from which memory, and how much of it nothing hides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.lanes.hostwork import device_places
from advisor.lanes.lens import Lane, spans
from advisor.metrics.registry import Metric, Missing, Value, measures

_PCIE_EFFICIENCY: Final = 0.88  # of the link's rate that a pinned copy reaches
_PCIE_SOURCE: Final = "55.4 of 63 GB/s measured on 8xH200 nodes (stas00/ml-engineering, network/README.md)"
_NEEDS: Final = ("device_ops",)
_NO_SIZES: Final = Missing("the copies bear no sizes")


def _pageable(ops: pl.DataFrame) -> pl.DataFrame:
    either = (pl.col("source_memory") == "pageable") | (pl.col("target_memory") == "pageable")
    return ops.filter((pl.col("kind") == "memcpy") & either)


def _longest_pageable(lane: Lane) -> pl.DataFrame:
    return device_places(lane, _pageable(lane.used_ops))


@measures(
    Metric(
        "pageable_copy_share",
        "share",
        "Part of the step in which a copy from or to pageable host memory runs.",
        "union of those copies inside the steps / step time",
        needs=_NEEDS,
        where=_longest_pageable,
    ),
    Metric(
        "pageable_copy_bytes_per_step",
        "number",
        "Bytes per step copied from or to pageable host memory.",
        "sum of the bytes of those copies / steps",
        needs=_NEEDS,
    ),
    Metric(
        "pageable_copy_exposed_ms",
        "ms",
        "Time per step in which such a copy runs and no kernel or collective hides it.",
        "(union of those copies - its overlap with kernels and collectives) / steps",
        needs=_NEEDS,
    ),
    Metric(
        "pageable_copy_pinned_ms",
        "ms",
        "What is left of that time if the same bytes came from pinned memory.",
        "pageable_copy_exposed_ms x min(1, (bytes / (0.88 x PCIe rate)) / copy time)",
        _PCIE_SOURCE,
        _NEEDS,
    ),
    Metric("memcpy_ms", "ms", "Copy time per step, hidden or not.", "union of the copies / steps", needs=_NEEDS),
)
def transfers(lane: Lane) -> Mapping[str, Value]:
    """Copies in the used steps; a step without pageable copies has zero of them."""
    if not lane.total_ns:
        return {}
    pageable = _pageable(lane.used_ops)
    copies = spans(pageable)
    hiding = spans(lane.ops.filter(pl.col("kind").is_in(["kernel", "collective"])))
    exposed = copies.total - int(hiding.within(copies.starts, copies.ends).sum())
    return {
        "pageable_copy_share": lane.share(copies),
        "pageable_copy_bytes_per_step": _bytes_per_step(lane, pageable),
        "pageable_copy_exposed_ms": lane.per_step_ms(exposed),
        "pageable_copy_pinned_ms": _pinned_ms(lane, pageable, exposed),
        "memcpy_ms": lane.per_step_ms(spans(lane.used_ops.filter(pl.col("kind") == "memcpy")).total),
    }


def _bytes_per_step(lane: Lane, pageable: pl.DataFrame) -> Value:
    sizes = pageable["bytes"]
    return _NO_SIZES if sizes.null_count() else float(sizes.sum()) / lane.steps.height


def _pinned_ms(lane: Lane, pageable: pl.DataFrame, exposed_ns: int) -> Value:
    if not pageable.height:
        return 0.0
    if pageable["bytes"].null_count():
        return _NO_SIZES
    if lane.gpu is None or lane.gpu.pcie_gbs is None:
        return Missing("the device's PCIe rate is not known")
    pinned_ns = float(pageable["bytes"].sum()) / (_PCIE_EFFICIENCY * lane.gpu.pcie_gbs)  # GB/s is bytes per ns
    return lane.per_step_ms(exposed_ns * min(1.0, pinned_ns / max(1, int(pageable["dur_ns"].sum()))))
