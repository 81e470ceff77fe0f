"""The time of the steps by module or scope, as a tree."""

from __future__ import annotations

import polars as pl

from advisor.lanes.calltree import call_tree
from advisor.lanes.lens import Lane
from advisor.metrics.registry import tabulates


@tabulates("call_tree")
def calls(lane: Lane) -> pl.DataFrame:
    """One row per path of frames, parents first: id, parent, name, kind, total_ms and self_ms per used step."""
    return call_tree(lane)
