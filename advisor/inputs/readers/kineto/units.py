"""Whether the times of a file are in microseconds, as the format says: other writers have used other units."""

from typing import Final

import polars as pl

from advisor.errors import ReadError
from advisor.model.notes import Note

_FEWEST: Final = 100  # ops that show what is usual
_SHORTEST_NS: Final = 100  # that an op takes with its record: PyTorch's shortest ones take several times as long
_LONGEST_NS: Final = 100_000  # that the shortest hundredth of the ops takes: views and allocations take a microsecond
_MANY: Final = 1000
_HUNDREDTH: Final = 0.01
_UNITS: Final = (
    "the times are not in microseconds, as those of a Chrome trace are; multiply `ts` and `dur` by 1,000, or by "
    "1,000,000"
)


def checked(host: pl.DataFrame, name: str) -> Note | None:
    """A note where the times may be in nanoseconds.

    Args:
        host: With `kind`, `thread`, `start_ns` and `dur_ns`.
        name: Of the file.

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
