"""Collectives of one rank: how many, of what size, how much of them computation hides, and what they slow down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.hostwork import minus
from advisor.intervals import Union
from advisor.lens import Lane, spans
from advisor.metrics.registry import Metric, Missing, Value, measures

_SMALL_BYTES: Final = 8 << 20
_SHORT_NS: Final = 50_000  # start-up alone takes 20 to 40 us on a node
_ENOUGH: Final = 3
_BESIDE: Final = 0.5  # of a kernel's time that a collective must cover for it to be slowed down
_DEVICE: Final = ("device_ops",)
_SIZES: Final = ("device_ops", "collectives.bytes")
_NONE: Final = Missing("no collective ran on this device in the steps that are used")


def _collectives(lane: Lane) -> pl.DataFrame:
    """The device's collectives that start in used steps, with op, bytes and group_size where known."""
    told = lane.collectives.select(id="device_op", op=pl.col("op").cast(pl.String), size="bytes")
    return lane.used_ops.filter(pl.col("kind") == "collective").join(told, on="id", how="left", maintain_order="left")


def _on_host(lane: Lane) -> pl.DataFrame:
    return lane.used_host.filter(pl.col("kind") == "collective")


def _work(lane: Lane) -> Union:
    return spans(lane.ops.filter(pl.col("kind") == "kernel"))


def _longest(lane: Lane) -> pl.DataFrame:
    """The collectives of the used steps that took longest."""
    found = lane.once(_collectives).sort("dur_ns", "start_ns", descending=[True, False])
    return found.select(
        "step", "start_ns", "dur_ns", "op_right" if "op_right" in found.columns else "launch",
        table=pl.lit("device_ops"), name=pl.col("name").cast(pl.String),
    )  # fmt: skip
