"""Times of the device: those that no stream can have, and how far its clock is off from the host's.

That shows where an op begins before its launch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.inputs.names.calls import DEVICE_WAIT
from advisor.model.arrays import Floats, Ints
from advisor.model.clause import Clause
from advisor.model.missing import Missing
from advisor.model.notes import Note
from advisor.model.profile import END_NS, matches, rows_where
from advisor.vocabulary.limits import BACKLOG_NS

_LATENCY_NS: Final = 5_000  # from a call to its op on an idle device, at least: 4 to 45 us in 60 public recordings
_ALIKE_NS: Final = 50_000  # latencies of one kind of op on an idle device differ by less, all of them by twice that
_CLUSTER: Final = 3  # calls that agree: fewer are pairs that do not belong together
_STRAY_SHARE: Final = 0.05  # of the calls
_IDLE_NS: Final = 20_000  # after so long without work nothing of the device's own holds an op up
_ENOUGH: Final = 8
_IDLE_SHARE: Final = 0.25  # of the ops that end an idle gap: so many set out at once where the clock alone is off
_APART_NS: Final = 100_000_000  # of two devices' offsets (own choice): no step waits so long for another device
_BUCKETS: Final = 16
_LEAST_DRIFT_NS: Final = 100_000  # over the recording
_STRAIGHT: Final = 0.1  # of the drift: how far its times lie from a line
_MOST_RATE: Final = 2e-3  # quartz is within 1e-4; delays that grow faster are those of a queue that fills

_STREAM_WAIT: Final = rf"{DEVICE_WAIT}|^(?:cuda|hip|cu)StreamSynchronize"

LONGEST_NS: Final = 1 << 50
"""13 days: no recording is longer."""
_LONG_NS: Final = 1_000_000
_LONGER: Final = 20  # own choice: times the median of its name
_SHORTEST_NS: Final = 500  # kernels; the median is 1,700 or more in 54 recordings
_OTHERS: Final = 3  # of its stream: a kernel may start while the one before it ends


def near(rows: pl.DataFrame, salvaged: list[Note]) -> pl.DataFrame:
    """The events of the time in which most of them lie: one whose start was never set is years off."""
    is_near = (pl.col("start_ns") - pl.col("start_ns").quantile(0.5, "higher")).abs() <= LONGEST_NS
    placed = rows.filter(is_near, pl.col("dur_ns") <= LONGEST_NS)
    if placed.height < rows.height:
        salvaged.append(Note("untimed_events", events=rows.height - placed.height))
    return placed


def sound(device: pl.DataFrame, salvaged: list[Note]) -> pl.DataFrame:
    """The ops without those of impossible times; a note says so, and that no GPU runs kernels in so little time."""
    typical_ns = device.filter(pl.col("kind") == "kernel")["dur_ns"].median()
    if isinstance(typical_ns, float) and typical_ns < _SHORTEST_NS:
        salvaged.append(Note("short_kernels", typical=typical_ns / 1e6))
    if (wrong := impossible(device)).any():
        salvaged.append(Note("unsound_ops", rows=int(wrong.sum()), ops=device.height))
    return rows_where(device, pl.lit(~wrong))


def impossible(device: pl.DataFrame) -> pl.Series:
    """Whether an op is far longer than others of its name, and several of its stream start before it ends.

    A stream runs one op after the other, but for those of a graph: the start or the end of such an op is wrong.
    """
    rows = device.select("name", "start_ns", "dur_ns", row=pl.int_range(pl.len()))
    long = rows.filter(pl.col("dur_ns") >= _LONG_NS)
    typical = rows.join(long.select("name").unique(), on="name").group_by("name").agg(typical_ns=pl.median("dur_ns"))
    suspects = long.join(typical, on="name").filter(pl.col("dur_ns") > _LONGER * pl.col("typical_ns"))
    if suspects.is_empty():
        return pl.repeat(value=False, n=device.height, eager=True, dtype=pl.Boolean)
    stream = pl.struct(name for name in ("process", "device", "stream") if name in device.columns)
    later_ns = pl.col("start_ns").shift(-_OTHERS).over(stream, order_by="start_ns")
    is_in_row = pl.col("stream").is_not_null() & pl.col("graph").is_null()
    overlaps = device.select(((later_ns < END_NS) & is_in_row).fill_null(value=False)).to_series()
    return overlaps & pl.int_range(device.height, eager=True).is_in(suspects["row"].implode())


class Skew(NamedTuple):
    """How far a device's clock is ahead of the host's: `offset_ns` at `zero_ns`, and `rate` more per ns after it."""

    offset_ns: int = 0
    rate: float = 0.0
    zero_ns: int = 0

    def at(self, times: Ints) -> Ints:
        """How far it is ahead at these times, in ns."""
        ahead: Ints = self.offset_ns + np.rint(self.rate * (times - self.zero_ns)).astype(np.int64)
        return ahead


@dataclass(frozen=True)
class Alignment:
    """Device ops on the host's clock, notes on what was changed, and why host and device cannot be joined."""

    device: pl.DataFrame
    skews: Mapping[int, Skew] = field(default_factory=dict)
    notes: tuple[Clause, ...] = ()
    drift: Missing | None = None

    def moved(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Other rows with the device's times, on the host's clock."""
        return _moved(rows, self.skews) if self.skews else rows

    def unlinked(self, device: pl.DataFrame) -> pl.DataFrame:
        """The ops without their calls where the clocks drift: no time between the two is known."""
        return device.with_columns(launch=pl.lit(None, pl.Int64)) if self.drift else device


def align(device: pl.DataFrame, host: pl.DataFrame) -> Alignment:
    """Move the ops of each device to the host's clock, and unlink what still begins before its call.

    No op begins before the call that launches it, and one that finds the device idle begins within some 10 us. Calls
    whose delays agree on less show an offset of the clock; delays that lie on a line, a drift.
    """
    calls = host["start_ns"].gather(device["launch"])
    numbers = device["device"].drop_nulls().unique().sort().to_list()
    skews = {number: _skew(device.with_columns(called=calls), number) for number in numbers}
    off = {number: _shared(skew, skews.values()) for number, skew in skews.items() if skew != Skew()}
    moved = _moved(device, off) if off else device
    early = (moved["start_ns"] < calls).fill_null(value=False)
    apart = moved.with_columns(
        pl.when(early).then(None).otherwise(pl.col(link)).alias(link) for link in ("launch", "op") if early.any()
    )
    drift = _drift(device, off.values()) or _apart(apart, host, calls)
    notes = (*_notes(off, int(early.sum())), *([drift] if drift else []))
    return Alignment(apart, off, notes, drift)


def _moved(device: pl.DataFrame, off: Mapping[int, Skew]) -> pl.DataFrame:
    start, number = device["start_ns"].to_numpy(), device["device"].fill_null(-1).to_numpy()
    ahead = np.zeros(len(start), np.int64)
    for device_number, skew in off.items():
        ahead = np.where(number == device_number, skew.at(start), ahead)
    return device.with_columns(start_ns=pl.Series(start - ahead, dtype=pl.Int64))


def _notes(off: Mapping[int, Skew], early: int) -> Iterator[Note]:
    for number, skew in off.items():
        if not skew.rate:
            code = "clock_ahead" if skew.offset_ns > 0 else "clock_behind"
            yield Note(code, device=number, offset=abs(skew.offset_ns) / 1e6)
    if early:
        yield Note("early_ops", ops=early)


def _drift(device: pl.DataFrame, off: Iterable[Skew]) -> Missing | None:
    rate = max((abs(skew.rate) for skew in off), default=0.0)
    return Missing("clocks_drift", drift=rate * int(np.ptp(device["start_ns"].to_numpy())) / 1e6) if rate else None


def _apart(device: pl.DataFrame, host: pl.DataFrame, called: pl.Series) -> Missing | None:
    """Why the clocks cannot be joined where calls that wait for a device return long before its work has ended."""
    if device.select("device", *(name for name in ("process",) if name in device.columns)).n_unique() > 1:
        return None  # a call waits for the work of its own process and current device
    names = _STREAM_WAIT if device["stream"].n_unique() == 1 else DEVICE_WAIT
    waits = host.filter(pl.col("kind") == "sync").filter(matches(names))
    work = device.select(ends=END_NS, called=called).drop_nulls().sort("called").with_columns(pl.col("ends").cum_max())
    returns = waits.sort("start_ns").join_asof(work, left_on="start_ns", right_on="called", strategy="backward")
    early = int((returns["ends"] - returns.select(END_NS).to_series() > _LONG_NS).sum())
    is_apart = early >= max(_CLUSTER, _STRAY_SHARE * returns.height)
    return Missing("clocks_apart", early=early, waits=returns.height) if is_apart else None


def _shared(skew: Skew, of_all: Iterable[Skew]) -> Skew:
    """With the least offset near its own: those devices have one clock, and what the others show holds a wait too."""
    offsets = (other.offset_ns for other in of_all if other.offset_ns and other.rate == skew.rate)
    return skew._replace(offset_ns=min((at for at in offsets if abs(at - skew.offset_ns) <= _APART_NS), default=0))


def _skew(device: pl.DataFrame, number: int) -> Skew:
    own = device.filter(pl.col("device") == number).sort("start_ns")
    idle = pl.col("start_ns") - END_NS.cum_max().shift(1) >= _IDLE_NS
    linked = own.with_columns(idle=idle.fill_null(value=True)).filter(
        pl.col("called").is_not_null(), ~pl.col("launch").is_duplicated()
    )
    if not linked.height:
        return Skew()
    called, start, alone = (linked[column].to_numpy() for column in ("called", "start_ns", "idle"))
    rate, zero = _rate(called[alone], (start - called)[alone]), int(start[0])
    delay = start - called - Skew(0, rate, zero).at(start)
    offset = _offset(delay, delay[alone], called[alone])
    return Skew(offset, rate, zero) if offset or rate else Skew()


def _offset(delay: Ints, alone: Ints, called: Ints) -> int:
    """How far delays are off: all of them, and those of ops that found the device idle, with the times of their calls.

    Calls over a longer time than a queue may hold up are no queue's either where all of them agree, however few.
    """
    base = _base(np.sort(delay))
    prompt = (np.abs(alone - base) <= _ALIKE_NS).sum()
    is_apart = len(alone) >= _CLUSTER and np.ptp(alone) <= 2 * _ALIKE_NS and np.ptp(called) > BACKLOG_NS
    late = base > BACKLOG_NS and (is_apart or prompt >= max(_ENOUGH, _IDLE_SHARE * len(alone)))
    return base - _LATENCY_NS if base < 0 or late else 0


def _base(delay: Ints) -> int:
    """The least delay that three calls agree on; strays before it are pairs that do not belong together."""
    if len(delay) < _CLUSTER:
        return int(delay[0])
    agree = np.flatnonzero(delay[_CLUSTER - 1 :] - delay[: 1 - _CLUSTER] <= _ALIKE_NS)
    first = int(agree[0]) if len(agree) else 0
    return int(delay[first]) if first <= _STRAY_SHARE * len(delay) else 0


def _rate(called: Ints, delay: Ints) -> float:
    """By how much a clock drifts, per ns: Theil and Sen's slope of the least delays; 0 where they lie on no line.

    A sound clock's least delays on an idle device are alike however long the recording is; those behind a queue that
    fills lie on no line, or on a steep one.
    """
    if len(called) < _ENOUGH:
        return 0.0
    at, least = _least_delays(called, delay)
    if len(at) < _ENOUGH:
        return 0.0
    i, j = np.triu_indices(len(at), 1)
    slope = float(np.median((least[j] - least[i]) / (at[j] - at[i])))
    apart = least - slope * at
    drift = abs(slope) * float(at[-1] - at[0])
    spread = float(np.median(np.abs(apart - np.median(apart))))
    is_clock = abs(slope) <= _MOST_RATE and drift >= _LEAST_DRIFT_NS and spread <= _STRAIGHT * drift
    return slope if is_clock else 0.0


def _least_delays(called: Ints, delay: Ints) -> tuple[Floats, Floats]:
    """The call with the least delay in each of 16 stretches of the recording that holds any: when, and how much."""
    bucket = (called - called.min()) * _BUCKETS // (int(np.ptp(called)) + 1)
    order = np.lexsort((delay, bucket))
    chosen = order[np.unique(bucket[order], return_index=True)[1]]
    return (called[chosen] - called.min()).astype(np.float64), delay[chosen].astype(np.float64)
