"""Steps of a loop that marks none, told by what it calls once in each."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.inputs.links import as_steps, profiler_steps

_OPTIMIZER: Final = r"^Optimizer\.step#"
FEWEST: Final = 4  # calls: three whole periods between them
_EVEN: Final = 0.25  # of the median period: how far the periods of a steady loop lie from it


class Inferred(NamedTuple):
    """Steps as `advisor.inputs.links.steps` takes them, and how they were told; none, and nothing."""

    marks: pl.DataFrame
    how: str


def inferred(host: pl.DataFrame) -> Inferred:
    """A step from each call of `Optimizer.step`, or each request for a batch, to the next.

    Where both repeat, the rarer one counts: several batches make a step where gradients are accumulated, several
    optimizers step once each where there are more of them than one.
    """
    kind, name = pl.col("kind"), pl.col("name").cast(pl.String)
    ways = {
        "call of Optimizer.step": host.filter(kind == "annotation", name.str.contains(_OPTIMIZER)),
        "request for a batch": host.filter(kind == "input"),
    }
    repeated = [(as_steps(rows), what) for what, rows in ways.items() if rows.height >= FEWEST]
    loops = [(marks, what) for marks, what in repeated if marks.height >= FEWEST]
    if not loops:
        return Inferred(profiler_steps(host.clear()), "")
    marks, what = min(loops, key=lambda loop: loop[0].height)
    numbered = marks.with_columns(step=pl.int_range(pl.len(), dtype=pl.Int32)).with_columns(
        name=pl.format("step {}", "step")
    )
    how = f"no steps are marked: one is taken from each {what} to the next, {confidence(marks)} confidence"
    return Inferred(numbered, how)


def confidence(marks: pl.DataFrame) -> str:
    """How sure the steps are: an even loop repeats itself."""
    period = np.diff(marks["host_start_ns"].to_numpy())
    spread = np.median(np.abs(period - np.median(period)))
    return "medium" if spread <= _EVEN * np.median(period) else "low"
