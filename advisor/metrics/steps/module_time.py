"""The time of the steps by module or scope, as a tree."""

from __future__ import annotations

import polars as pl

from advisor.analysis.device.call_tree import call_tree
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import tabulates


@tabulates("call_tree")
def calls(view: DeviceView) -> pl.DataFrame:
    """One row per path of frames, parents first: id, parent, name, kind, total_ms and self_ms per used step."""
    return call_tree(view)
