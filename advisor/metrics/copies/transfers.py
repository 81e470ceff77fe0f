"""Copies between host and device: how much, from which memory, and how much of it nothing hides."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.places import device_places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import Value
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing

_PCIE_EFFICIENCY: Final = 0.88  # of the link's rate that a pinned copy reaches
_PCIE_SOURCE: Final = "55.4 of 63 GB/s measured on 8xH200 nodes (stas00/ml-engineering, network/README.md)"
_NO_SIZES: Final = Missing("no_copy_sizes")


def _pageable(ops: pl.DataFrame) -> pl.DataFrame:
    either = (pl.col("source_memory") == "pageable") | (pl.col("target_memory") == "pageable")
    return ops.filter((pl.col("kind") == "memcpy") & either)


def _to_host(copies: pl.DataFrame) -> pl.DataFrame:
    return copies.filter((pl.col("copy_kind") == "DtoH").fill_null(value=False))


def _longest_pageable(view: DeviceView) -> pl.DataFrame:
    return device_places(view, _pageable(view.used_ops))


PAGEABLE_COPY_SHARE = Metric(
    "pageable_copy_share",
    "Part of the step in which a copy from or to pageable host memory runs.",
    "union of those copies inside the steps / step time",
    where=_longest_pageable,
)
PAGEABLE_COPY_BYTES_PER_STEP = Metric(
    "pageable_copy_bytes_per_step",
    "Bytes per step copied from or to pageable host memory.",
    "sum of the bytes of those copies / steps",
)
PAGEABLE_COPY_EXPOSED_MS = Metric(
    "pageable_copy_exposed_ms",
    "Time per step in which a copy from or to pageable memory runs and no kernel or collective hides it.",
    "(union of those copies - its overlap with kernels and collectives) / steps",
)
PAGEABLE_COPY_PINNED_MS = Metric(
    "pageable_copy_pinned_ms",
    "What is left of the exposed time of pageable copies if the same bytes came from pinned memory.",
    "pageable_copy_exposed_ms x min(1, (bytes / (0.88 x PCIe rate)) / copy time)",
    _PCIE_SOURCE,
)
PAGEABLE_TO_HOST_PART = Metric(
    "pageable_to_host_part",
    "How much of the time of pageable copies brings values to the host.",
    "sum of those copies DtoH / sum of all of them; 0 where there are none",
)
MEMCPY_MS = Metric("memcpy_ms", "Copy time per step, hidden or not.", "union of the copies / steps")


@measures(
    PAGEABLE_COPY_SHARE,
    PAGEABLE_COPY_BYTES_PER_STEP,
    PAGEABLE_COPY_EXPOSED_MS,
    PAGEABLE_COPY_PINNED_MS,
    PAGEABLE_TO_HOST_PART,
    MEMCPY_MS,
    needs=("device_ops",),
)
def transfers(view: DeviceView) -> Values:
    """Copies in the used steps; a step without pageable copies has zero of them."""
    pageable = _pageable(view.used_ops)
    copies = spans(pageable)
    exposed = (copies - view.device_spans("kernel", "collective")).total
    return {
        PAGEABLE_COPY_SHARE: view.share(copies),
        PAGEABLE_COPY_BYTES_PER_STEP: _bytes_per_step(view, pageable),
        PAGEABLE_COPY_EXPOSED_MS: view.per_step_ms(exposed),
        PAGEABLE_COPY_PINNED_MS: _pinned_ms(view, pageable, exposed),
        PAGEABLE_TO_HOST_PART: int(_to_host(pageable)["dur_ns"].sum()) / max(1, int(pageable["dur_ns"].sum())),
        MEMCPY_MS: view.per_step_ms(spans(view.used_ops.filter(pl.col("kind") == "memcpy")).total),
    }


def _bytes_per_step(view: DeviceView, pageable: pl.DataFrame) -> Value:
    sizes = pageable["bytes"]
    return _NO_SIZES if sizes.null_count() else float(sizes.sum()) / view.steps.height


def _pinned_ms(view: DeviceView, pageable: pl.DataFrame, exposed_ns: int) -> Value:
    if not pageable.height:
        return 0.0
    if pageable["bytes"].null_count():
        return _NO_SIZES
    if view.gpu is None or view.gpu.pcie_gbs is None:
        return Missing("pcie_rate_unknown")
    pinned_ns = float(pageable["bytes"].sum()) / (_PCIE_EFFICIENCY * view.gpu.pcie_gbs)  # GB/s is bytes per ns
    return view.per_step_ms(exposed_ns * min(1.0, pinned_ns / max(1, int(pageable["dur_ns"].sum()))))
