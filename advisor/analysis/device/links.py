"""What copies between host and device take at the rate of the link between them."""

from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView, spans
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals

EFFICIENCY: Final = 0.88  # of the link's rate that a pinned copy reaches
LARGE_BYTES: Final = 1_000_000  # a smaller copy takes as long to start as to travel


def pcie_gbs(view: DeviceView) -> float | Missing:
    """The rate of the device's link in one direction, in GB/s."""
    return view.gpu.pcie_gbs if view.gpu and view.gpu.pcie_gbs else Missing("pcie_rate_unknown")


def at_link(view: DeviceView, copies: pl.DataFrame) -> pl.DataFrame | Missing:
    """The copies with `link_ns`: what each takes from or to pinned memory, if the link gives what the device can."""
    rate = pcie_gbs(view)
    if isinstance(rate, Missing):
        return rate if copies.height else copies.with_columns(link_ns="dur_ns")
    if copies["bytes"].null_count():
        return Missing("no_copy_sizes")
    at_rate = pl.col("bytes") / (EFFICIENCY * rate)  # GB/s is bytes per ns
    return copies.with_columns(link_ns=pl.min_horizontal("dur_ns", at_rate))


def bytes_per_step(view: DeviceView, copies: pl.DataFrame) -> float | Missing:
    """What these copies of the used steps move in a step."""
    sizes = copies["bytes"]
    return Missing("no_copy_sizes") if sizes.null_count() else float(sizes.sum()) / view.steps.height


def at_fastest_rate(copies: pl.DataFrame) -> pl.Expr:
    """What each of the copies takes, in ns, at the highest rate of a large one among them: the link carries that."""
    rate = copies.filter(pl.col("bytes") >= LARGE_BYTES).select((pl.col("bytes") / pl.col("dur_ns")).max()).item()
    return pl.min_horizontal("dur_ns", pl.col("bytes") / (rate or 0.0)).fill_null(pl.col("dur_ns"))


def page_moves(view: DeviceView, way: str = "HtoD") -> pl.DataFrame:
    """Pages of managed memory that the driver moves to the device, or this way, in the used steps."""
    return view.used_ops.filter(kind="memcpy", source_memory="managed", copy_kind=way)


def paging(view: DeviceView) -> Intervals:
    """When such pages move while a kernel runs: it waits for them."""
    return spans(view.once(page_moves)) & view.device_spans("kernel")


def is_once(view: DeviceView) -> bool:
    """Whether nothing shows that the work repeats, so that no copy runs beside the kernels of another step."""
    return view.steps.height == 1 and not view.has_marks


def unhidden_ns(view: DeviceView, copies: pl.DataFrame) -> float:
    """What no kernel can hide of copies with `link_ns`, all steps: the link has a way for each direction.

    Of work that is done once, kernels need what is copied before them, and copies what kernels computed: all of it.
    """
    if is_once(view):
        return float(copies["link_ns"].sum())
    ways: list[float] = copies.group_by("copy_kind").agg(pl.sum("link_ns"))["link_ns"].to_list()
    computing_ns = view.used_ns(view.device_spans("kernel", "collective"))
    return max([0.0, *(way - computing_ns for way in ways)])
