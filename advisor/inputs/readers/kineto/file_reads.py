"""Functions of Python that read files in each step: the input of a job without a data loader."""

from typing import Final

import numpy as np
import polars as pl

from advisor.inputs.links import innermost
from advisor.inputs.names.calls import FILE_READ, OPTIMIZER_STEP
from advisor.inputs.step_periods import PRODUCTS
from advisor.model.profile import matches
from advisor.model.schemas import HOST_OP_KINDS

_LEAST_SHARE: Final = 0.05  # of the steps, from where on waiting for input is a finding
_FEWEST_STEPS: Final = 3


def with_file_reads(host: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """With calls that read files as kind `input`, where no request for a batch was recorded and every step reads.

    Only calls on the thread that bears the steps that a product follows in their step, and outside of modules and ops:
    what a model reads may be its weights. What only some steps read may be anything: a checkpoint, a table.
    """
    is_read = host.select((pl.col("kind") == "python") & matches(FILE_READ)).to_series()
    complete = steps.filter(pl.col("incomplete").is_null()).unique("host_start_ns").sort("host_start_ns")
    if not is_read.any() or complete.height < _FEWEST_STEPS or (host["kind"] == "input").any():
        return host
    bears_steps = (pl.col("kind") == "step") | matches(OPTIMIZER_STEP)
    reads = host.filter(is_read, pl.col("thread").is_in(host.filter(bears_steps)["thread"].implode()))
    holds = is_read | host.select(pl.col("kind").is_in(["module", "op"]) | matches(OPTIMIZER_STEP)).to_series()
    reads = reads.filter(innermost(host, reads["parent"], holds).is_null())
    products = np.sort(host.filter(pl.col("kind") == "op", matches(PRODUCTS))["start_ns"].to_numpy())
    start, length = (complete[column].to_numpy() for column in ("host_start_ns", "host_dur_ns"))
    begins, took = (reads[column].to_numpy() for column in ("start_ns", "dur_ns"))
    at = np.searchsorted(start, begins, side="right") - 1
    ends = (start + length)[at]
    feeds = (at >= 0) & (np.searchsorted(products, begins) < np.searchsorted(products, ends))
    is_each = len(np.unique(at[feeds])) == complete.height
    if not is_each or took[feeds].sum() < _LEAST_SHARE * length.sum():
        return host
    is_load = pl.col("id").is_in(reads["id"].filter(pl.Series(feeds)).implode())
    return host.with_columns(kind=pl.when(is_load).then(pl.lit("input", HOST_OP_KINDS)).otherwise("kind"))
