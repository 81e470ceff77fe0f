"""What moves data: the collectives of one device, and how long no kernel hid them; copies at the rate of their link."""

from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView, spans
from advisor.model.clause import Missing
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import matches

C10D_CALLS: Final = r"^(?:c10d::|record_param_comms$)"  # what PyTorch itself records of a request for a collective
MOST_BYTES: Final = 1 << 48  # more than any message has: sums of such sizes stay within 64 bits


def device_collectives(view: DeviceView) -> pl.DataFrame:
    """The device's collectives that start in used steps, with `does` (all_reduce, ...) and `size` in bytes."""
    size = pl.when(pl.col("bytes").is_between(0, MOST_BYTES)).then("bytes")
    facts = view.collectives.select(id="device_op", does=pl.col("op").cast(pl.String), size=size)
    return view.used_ops.filter(pl.col("kind") == "collective").join(facts, on="id", how="left", maintain_order="left")


def host_collectives(view: DeviceView) -> pl.DataFrame:
    """The host's collectives (gloo, MPI) of the used steps."""
    return view.used_host.filter(pl.col("kind") == "collective").collect()


def host_exposed(view: DeviceView, collectives: pl.DataFrame) -> Intervals:
    """When some of these host collectives run and no op of the framework does on another thread."""
    if not collectives.height:
        return EMPTY
    others = ~pl.col("thread").is_in(view.once(host_collectives)["thread"].unique().implode())
    ops = view.host.filter(pl.col("kind") == "op", others & ~matches(C10D_CALLS))
    return spans(collectives) - spans(ops)


def exposed_ms(view: DeviceView, collectives: pl.DataFrame) -> float:
    """Time per step in which some of these run and no kernel does."""
    return view.used_ms(spans(collectives) - view.device_spans("kernel"))


IS_PAGEABLE: Final = (pl.col("source_memory") == "pageable") | (pl.col("target_memory") == "pageable")
"""Of a copy: from or to ordinary host memory."""
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


_PINNING: Final = (0.26, 0.62)  # ns per byte of cudaHostAlloc in public recordings; CuPy 0.36 (dask-cuda, issue 106)


def pinning_ns(view: DeviceView, copies: pl.DataFrame) -> tuple[float, float]:
    """To pin the host memory of pageable copies, at least and at most; where the work repeats it is pinned once."""
    size = float(copies.filter(IS_PAGEABLE)["bytes"].sum()) if is_once(view) else 0.0
    return _PINNING[0] * size, _PINNING[1] * size


def unhidden_ns(view: DeviceView, copies: pl.DataFrame) -> float:
    """What no kernel can hide of copies with `link_ns`, all steps: the link has a way for each direction.

    Of work that is done once, kernels need what is copied before them, and copies what kernels computed: all of it.
    """
    if is_once(view):
        return float(copies["link_ns"].sum())
    ways: list[float] = copies.group_by("copy_kind").agg(pl.sum("link_ns"))["link_ns"].to_list()
    computing_ns = view.used_ns(view.device_spans("kernel", "collective"))
    return max([0.0, *(way - computing_ns for way in ways)])
