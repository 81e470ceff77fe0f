"""The collectives of one device: which ran in the used steps, and for how long no kernel hid them."""

from typing import Final

import polars as pl

from advisor.analysis.device.view import DeviceView, spans
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import matches

C10D_CALLS: Final = r"^(?:c10d::|record_param_comms$)"
"""What PyTorch itself records of a request for a collective."""

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
