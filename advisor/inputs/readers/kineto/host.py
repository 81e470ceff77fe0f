"""What Kineto's host ranges leave to be told: whether their times are in microseconds, whose they are, what is read.

Other writers have used other units; tools that merge recordings put several processes into one file; and functions of
Python that read files in each step are the input of a job without a data loader.
"""

from typing import Final

import numpy as np
import polars as pl

from advisor.errors import ReadError
from advisor.inputs.links import innermost
from advisor.inputs.names.calls import FILE_READ, OPTIMIZER_STEP
from advisor.inputs.step_periods import PRODUCTS
from advisor.model.clause import Note
from advisor.model.intervals import begun
from advisor.model.profile import HOST_OP_KINDS, matches
from advisor.vocabulary.kinds import DRIVER_CALLS

_FEWEST: Final = 100  # ops that show what is usual
_SHORTEST_NS: Final = 100  # that an op takes with its record: PyTorch's shortest ones take several times as long
_LONGEST_NS: Final = 100_000  # that the shortest hundredth of the ops takes: views and allocations take a microsecond
_MANY: Final = 1000
_HUNDREDTH: Final = 0.01
_UNITS: Final = (
    "the times are not in microseconds, as those of a Chrome trace are; multiply `ts` and `dur` by 1,000, or by "
    "1,000,000"
)
_DOES: Final = {"op": "work", "collective": "work", "step": "step"}
_LEAST_SHARE: Final = 0.05  # of the steps, from where on waiting for input is a finding
_FEWEST_STEPS: Final = 3


def checked(host: pl.DataFrame, name: str) -> Note | None:
    """A note where the times may be in nanoseconds.

    Raises:
        ReadError: no op takes so little time: the times are in milliseconds or seconds.
    """
    ops = host.lazy().filter(pl.col("kind") == "op").select("thread", "start_ns", "dur_ns").collect()
    if ops.height < _FEWEST:
        return None
    if _typical_ns(ops["dur_ns"]) < _SHORTEST_NS or _apart_ns(ops) < _SHORTEST_NS:
        raise ReadError(f"the typical op takes under {_SHORTEST_NS} ns: {_UNITS}", name)
    shortest_ns = ops["dur_ns"].quantile(_HUNDREDTH) or 0.0
    return Note("long_ops", shortest=shortest_ns / 1e6) if ops.height >= _MANY and shortest_ns >= _LONGEST_NS else None


def _typical_ns(lengths: pl.Series) -> float:
    """The median of those above zero: old versions round to microseconds."""
    typical = lengths.filter(lengths > 0).median()
    return float(typical) if isinstance(typical, int | float) else float(_SHORTEST_NS)


def _apart_ns(ops: pl.DataFrame) -> float:
    """The time from one op to the next on the thread that has most of them, on average."""
    threads = ops.group_by("thread").agg(
        pl.len().alias("ops"), span=(pl.col("start_ns") + pl.col("dur_ns")).max() - pl.col("start_ns").min()
    )
    busiest = threads.sort("ops", "span").row(-1, named=True)
    return float(busiest["span"] / busiest["ops"])


def outsiders(host: pl.DataFrame, device: pl.DataFrame) -> pl.Series:
    """Ids of the processes that are not the device's: they run ops or steps of their own, and launch nothing on it.

    Some writers give the calls, the steps or a few frames of one process another id, so that a process counts as
    another only where those that launch have all that it has: ops, steps or both. Empty where nothing is linked.
    """
    does = host.select("pid", "kind").unique().cast({"kind": pl.String})
    does = does.select("pid", does=pl.col("kind").replace_strict(_DOES, default=None)).drop_nulls().unique()
    if does["pid"].n_unique() <= 1:
        return does["pid"].clear()
    calls = host.filter(pl.col("kind").is_in(DRIVER_CALLS) & (pl.col("correlation") > 0))
    launching = pl.col("pid").is_in(calls.join(device, on="correlation", how="semi")["pid"].unique().implode())
    own = does.filter(launching)["does"].unique()
    rest = does.filter(~launching).group_by("pid").agg(pl.col("does").is_in(own.implode()).all())
    return rest.filter("does")["pid"].sort()


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
    products = host.filter(pl.col("kind") == "op", matches(PRODUCTS))["start_ns"]
    start, length = (complete[column].to_numpy() for column in ("host_start_ns", "host_dur_ns"))
    begins, took = (reads[column].to_numpy() for column in ("start_ns", "dur_ns"))
    at = np.searchsorted(start, begins, side="right") - 1
    ends = (start + length)[at]
    feeds = (at >= 0) & (begun(products, begins, ends) > 0)
    is_each = len(np.unique(at[feeds])) == complete.height
    if not is_each or took[feeds].sum() < _LEAST_SHARE * length.sum():
        return host
    is_load = pl.col("id").is_in(reads["id"].filter(pl.Series(feeds)).implode())
    return host.with_columns(kind=pl.when(is_load).then(pl.lit("input", HOST_OP_KINDS)).otherwise("kind"))
