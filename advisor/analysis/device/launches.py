"""Calls that launch work, and which of them lack the work in the recording."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from advisor.inputs.periods import LAUNCHING
from advisor.model.intervals import EMPTY, Ints, Union
from advisor.model.profile import matches
from advisor.vocabulary import DRIVER_CALLS

_CAPTURE: Final = r"^(?:cu|cuda|hip)StreamBeginCapture"
_CAPTURE_END: Final = r"^(?:cu|cuda|hip)StreamEndCapture"
_FEW: Final = 0.05  # of a step's launches: a step without so many is incomplete


def launches(host: pl.DataFrame, ops: pl.DataFrame, devices: int) -> pl.DataFrame:
    """Calls that launch kernels or graphs, from the first to the last with a recorded op: start_ns, is_lost.

    None where it is unknown whose they are: other devices have ops too, or as many ops have no call as calls have no
    op. A launch into a graph that is being captured runs nothing, and of a call inside another one of both is recorded.

    Args:
        host: The worker's host ops.
        ops: Device ops of one of its devices.
        devices: How many devices the worker used.
    """
    calls = host.select("id", "parent", "kind", "start_ns", "name").filter(
        pl.col("kind").is_in(DRIVER_CALLS), matches(LAUNCHING)
    )
    has_op = pl.col("id").is_in(ops["launch"].drop_nulls().unique().implode())
    nested = pl.col("parent").is_in(calls["id"].implode()) | pl.col("id").is_in(calls["parent"].drop_nulls().implode())
    rows = calls.with_columns(is_lost=~has_op).filter(has_op | ~nested.fill_null(value=False)).sort("start_ns")
    of_ops = rows.filter(~pl.col("is_lost"))["start_ns"]
    if devices != 1 or not of_ops.len():
        return rows.clear()
    captured = pl.Series(_captures(host).within(rows["start_ns"], rows["start_ns"] + 1) > 0, dtype=pl.Boolean)
    between = rows.filter(~captured).filter(pl.col("start_ns").is_between(of_ops[0], of_ops[-1]))
    return between if between["is_lost"].sum() > ops["launch"].null_count() else between.filter(~pl.col("is_lost"))


def _captures(host: pl.DataFrame) -> Union:
    """When launches go into a graph instead of to the device."""
    begins = host.filter(matches(_CAPTURE))["start_ns"].sort().to_numpy()
    ends = host.filter(matches(_CAPTURE_END))["start_ns"].sort().to_numpy()
    if not len(begins) or not len(ends):
        return EMPTY
    after = np.searchsorted(ends, begins)
    return Union.of(begins[after < len(ends)], ends[after[after < len(ends)]])


def lacks_kernels(starts: Ints, ends: Ints, calls: pl.DataFrame) -> pl.Series:
    """Whether each step on the host lacks kernels of its launches; so does the one after it, whose start is unknown.

    Args:
        starts: When each step begins on the host, in ns, ascending.
        ends: When it ends there.
        calls: As from `launches`.
    """
    moments = (calls["start_ns"].to_numpy(), calls.filter("is_lost")["start_ns"].to_numpy())
    number, absent = (np.searchsorted(at, ends) - np.searchsorted(at, starts) for at in moments)
    lacks = (absent > 0) & (absent >= _FEW * number)
    return pl.Series(lacks | np.concatenate(([False], lacks[:-1])), dtype=pl.Boolean)
