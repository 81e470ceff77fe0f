"""Managed memory: kernels that wait until the driver has moved the pages that they touch."""

from typing import Final

import polars as pl

from advisor.analysis.device.links import page_moves, paging
from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.metrics.metric import of_devices
from advisor.model.intervals import Intervals

_PCIE_EFFICIENCY: Final = 0.88  # of the link's rate that a prefetch reaches, as a copy of pinned memory does
# Between two pages that a kernel waits for lies the handling of a fault: in an addition of vectors that takes 0.6 ms
# with the pages there and 110 ms without (A100, 512 MiB), all gaps but one are shorter.
_SERVICE_NS: Final = 500_000


def _faulting(view: DeviceView) -> Intervals:
    return view.once(paging).bridged(_SERVICE_NS) & view.device_spans("kernel")


def _waiting(view: DeviceView) -> pl.DataFrame:
    """The kernels that pages move for, most time first."""
    kernels = view.used_ops.filter(pl.col("kind") == "kernel")
    begins = kernels["start_ns"].to_numpy()
    waits = view.once(_faulting).within(begins, begins + kernels["dur_ns"].to_numpy())
    return kernels.with_columns(wait_ns=pl.Series(waits)).filter(pl.col("wait_ns") > 0).sort("wait_ns", descending=True)


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    rows = view.once(page_moves)
    brought = rows.filter(inside(view.device_spans("kernel"), rows))
    link = view.gpu.pcie_gbs if view.gpu else None
    prefetch_ns = int(brought["bytes"].sum()) / (_PCIE_EFFICIENCY * link) if link else spans(brought).total
    ends = (max(0.0, view.once(of).total - prefetch_ns) for of in (paging, _faulting))
    low_ms, high_ms = map(view.per_step_ms, ends)
    return low_ms, high_ms


measure = of_devices(__name__, needs=("device_ops",))
measure(
    "page_wait_share", lambda view: view.share(view.once(_faulting)), where=as_places(_waiting, "device_ops", op="op")
).says(
    "Part of the step in which kernels run while pages of managed memory move to the device for them.",
    "union of migrations to the device within kernels, with the time of up to 0.5 ms between two of them / step time",
)
measure("paged_bytes_per_step", lambda view: int(view.once(page_moves)["bytes"].sum()) / view.steps.height).says(
    "Bytes of managed memory per step that move to the device.", "sum of the bytes of migrations to the device / steps"
)
measure("page_moves_per_step", lambda view: view.once(page_moves).height / view.steps.height).says(
    "Migrations of managed memory to the device per step.", "number of them / steps"
)
measure.saving("prefetch", lambda view: view.once(_ends_ms)).says("a prefetch of the pages")
