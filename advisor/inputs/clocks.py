"""Times of the device: those that no stream can have, and how far its clock is off from the host's.

That shows where an op begins before its launch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.errors import ReadError
from advisor.inputs.names.calls import DEVICE_WAIT, LAUNCHING
from advisor.model.clause import Clause, Missing, Note
from advisor.model.intervals import Ints
from advisor.model.profile import END_NS, matches, rows_where
from advisor.vocabulary.limits import BACKLOG_NS

_LATENCY_NS: Final = 5_000  # from a call to its op on an idle device, at least: 4 to 45 us in 60 public recordings
_ALIKE_NS: Final = 50_000  # latencies of one kind of op on an idle device differ by less, all of them by twice that
_CLUSTER: Final = 3  # calls that agree: fewer are pairs that do not belong together
_STRAY_SHARE: Final = 0.05  # of the calls
_IDLE_NS: Final = 20_000  # after so long without work nothing of the device's own holds an op up
_ENOUGH: Final = 8
_IDLE_SHARE: Final = 0.25  # of the ops that end an idle gap: so many set out at once where the clock alone is off
_PROMPT_NS: Final = 10_000  # from the end of an op to the begin of one in the queue; 3,000 is usual
_MANY: Final = 100  # own choice: so many show what is usual
_QUEUE_WAITS: Final = "queue_waits"
_APART_NS: Final = 100_000_000  # of two devices' offsets (own choice): no step waits so long for another device
_BUCKETS: Final = 16
_LEAST_DRIFT_NS: Final = 100_000  # over the recording
_STRAIGHT: Final = 0.1  # of the drift: how far its times lie from a line
_MOST_RATE: Final = 2e-3  # quartz is within 1e-4; delays that grow faster are those of a queue that fills

_STREAM_WAIT: Final = rf"{DEVICE_WAIT}|^(?:cuda|hip|cu)StreamSynchronize"

LONGEST_NS: Final = 1 << 50  # 13 days: no recording is longer
_LONG_NS: Final = 1_000_000
_SHORTEST_NS: Final = 500  # kernels; the median is 1,700 or more in 54 recordings
ROUNDED_NS: Final = 2_000  # old versions round starts and lengths to microseconds
_USUAL_NS: Final = 5_000  # own choice: others of the name, where a kernel is shorter than any
_MANY_TIMES, _SUSPECT_NS = 20, 10_000_000_000  # own choice
_AGAIN: Final = "no device does that: record or export it again"
_FEW, _FEW_SHARE = 3, 0.01  # wrong ops, and of all (own choice): none of 400 public recordings has any
_MOST: Final = 0.5  # of the ops of a name: then the others are wrong too, which nothing follows


def are_many(wrong: int, rows: int) -> bool:
    """Whether so many rows are wrong that nobody can believe the others."""
    return wrong > max(_FEW, _FEW_SHARE * rows)


def near(rows: pl.DataFrame, salvaged: list[Note]) -> pl.DataFrame:
    """The events of the time in which most of them lie: one whose start was never set is years off."""
    is_near = (pl.col("start_ns") - pl.col("start_ns").quantile(0.5, "higher")).abs() <= LONGEST_NS
    placed = rows.filter(is_near, pl.col("dur_ns") <= LONGEST_NS)
    placed = placed.filter(pl.col("dur_ns") <= longest_ns([placed]))
    if placed.height < rows.height:
        salvaged.append(Note("untimed_events", events=rows.height - placed.height))
    return placed


def longest_ns(tables: Sequence[pl.DataFrame]) -> int:
    """The longest event that is possible among these rows: a few that outlast all others taken together are wrong."""
    few = int(max(_FEW, _FEW_SHARE * sum(table.height for table in tables))) + 1
    lengths = sorted((length for table in tables for length in table["dur_ns"].top_k(few)), reverse=True)[:few]
    possible = LONGEST_NS
    for longer, limit in pairwise(lengths):
        if longer > max(_SUSPECT_NS, _MANY_TIMES * limit):
            others = pl.concat(table.select("start_ns", "dur_ns").filter(pl.col("dur_ns") <= limit) for table in tables)
            if longer > _MANY_TIMES * others.select(END_NS.max() - pl.col("start_ns").min()).item():
                possible = limit
    return possible


def sound(device: pl.DataFrame, name: str, salvaged: list[Note]) -> pl.DataFrame:
    """The ops without those of impossible lengths; a note says so."""
    if (wrong := impossible(device, name)).any():
        salvaged.append(Note("unsound_ops", rows=int(wrong.sum()), ops=device.height))
    return rows_where(device, pl.lit(~wrong))


def impossible(device: pl.DataFrame, name: str) -> pl.Series:
    """Whether an op ends after a later one of its stream, or is a kernel far shorter than others of its name.

    A stream ends its ops in the order that it begins them. Those that one call launches are of a graph: they run on
    several queues under the name of one stream. More than a few such ops, or kernels that take no time as a rule, are a
    ReadError.
    """
    stream = [name for name in ("process", "device", "stream") if name in device.columns]
    next_end = END_NS.reverse().cum_min().reverse().shift(-1).over(stream, order_by=["start_ns", END_NS])
    has_call_alone = pl.col("correlation").is_null() | (pl.len().over(*stream, "correlation") == 1)
    is_in_row = pl.col("stream").is_not_null() & pl.col("graph").is_null() & has_call_alone
    is_kernel, is_short = pl.col("kind") == "kernel", pl.col("dur_ns") < _SHORTEST_NS
    usual_ns = pl.col("dur_ns").filter(~is_short).median().over("name")
    kernels = pl.col("dur_ns").filter(is_kernel)
    is_rule = (kernels.median() < _SHORTEST_NS) & (kernels.len() >= _MANY)
    takes_none = is_kernel & is_short & ((usual_ns >= _USUAL_NS) | is_rule)
    outlasts = is_in_row & (next_end + ROUNDED_NS < END_NS)
    single = device.select("name", wrong=(outlasts | takes_none).fill_null(value=False))
    wrong = single.select(pl.col("wrong") | (pl.col("wrong").mean().over("name") > _MOST)).to_series()
    if are_many(int(wrong.sum()), device.height):
        many = f"{wrong.sum():,} of {device.height:,} device ops"
        raise ReadError(f"{many} end after a later one of their stream, or take no time; {_AGAIN}", name)
    return wrong


class Skew(NamedTuple):
    """How far a device's clock is ahead of the host's."""

    offset_ns: int = 0  # at `zero_ns`
    rate: float = 0.0  # more per ns after it
    zero_ns: int = 0
    bends: tuple[tuple[int, int], ...] = ()  # how a clock wanders: times and what comes on top, between two the line

    def at(self, times: Ints) -> Ints:
        """How far it is ahead at these times, in ns."""
        bends = np.array(self.bends or ((0, 0),), np.float64)
        more = self.rate * (times - self.zero_ns) + np.interp(times, bends[:, 0], bends[:, 1])
        ahead: Ints = self.offset_ns + np.rint(more).astype(np.int64)
        return ahead


@dataclass(frozen=True)
class Alignment:
    """Device ops on the host's clock, notes on what was changed, and why host and device cannot be joined."""

    device: pl.DataFrame
    skews: Mapping[int, Skew] = field(default_factory=dict)
    notes: tuple[Clause, ...] = ()
    drift: Missing | None = None

    @property
    def lacks(self) -> Mapping[str, Missing]:
        """What is not known for that reason."""
        table = "device_ops" if self.drift and self.drift.code == _QUEUE_WAITS else "device_ops.launch"
        return {table: self.drift} if self.drift else {}

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
    skews = {number: _skew(device.with_columns(called=calls), host, number) for number in numbers}
    off = {number: _shared(skew, skews.values()) for number, skew in skews.items() if skew != Skew()}
    moved = _moved(device, off) if off else device
    early = (moved["start_ns"] < calls).fill_null(value=False)
    apart = moved.with_columns(
        pl.when(early).then(None).otherwise(pl.col(link)).alias(link) for link in ("launch", "op") if early.any()
    )
    rate = max((abs(skew.rate) for skew in off.values()), default=0.0)
    drift = Missing("clocks_drift", drift=rate * int(np.ptp(device["start_ns"].to_numpy())) / 1e6) if rate else None
    if device.select(name for name in ("process", "device") if name in device.columns).n_unique() <= 1:
        drift = drift or _apart(apart, host, calls) or _late(apart, host)  # a call waits for its own device
    drift = drift or _unjoined(apart, host)
    notes: list[Clause] = [
        Note("clock_ahead" if skew.offset_ns > 0 else "clock_behind", device=number, offset=abs(skew.offset_ns) / 1e6)
        for number, skew in off.items()
        if not skew.rate
    ]
    notes += [Note("early_ops", ops=int(early.sum()))] if early.any() else []
    return Alignment(apart, off, (*notes, drift) if drift else (*notes,), drift)


def _moved(device: pl.DataFrame, off: Mapping[int, Skew]) -> pl.DataFrame:
    start, number = device["start_ns"].to_numpy(), device["device"].fill_null(-1).to_numpy()
    ahead = np.zeros(len(start), np.int64)
    for device_number, skew in off.items():
        ahead = np.where(number == device_number, skew.at(start), ahead)
    return device.with_columns(start_ns=pl.Series(start - ahead, dtype=pl.Int64))


def _apart(device: pl.DataFrame, host: pl.DataFrame, called: pl.Series) -> Missing | None:
    """Why the clocks cannot be joined where calls that wait for a device return long before its work has ended."""
    names = _STREAM_WAIT if device["stream"].n_unique() == 1 else DEVICE_WAIT
    waits = _outlasting(device.with_columns(called=called), host.filter(matches(names)))
    early = int((waits > _LONG_NS).sum())
    is_apart = early >= max(_CLUSTER, _STRAY_SHARE * len(waits))
    return Missing("clocks_apart", early=early, waits=len(waits)) if is_apart else None


def _outlasting(device: pl.DataFrame, host: pl.DataFrame) -> pl.Series:
    """By how much the work `called` before each of these calls that wait ends after its return."""
    work = device.select("called", ends=END_NS).drop_nulls().sort("called").with_columns(pl.col("ends").cum_max())
    waits = host.filter(pl.col("kind") == "sync").sort("start_ns")
    returns = waits.join_asof(work, left_on="start_ns", right_on="called", strategy="backward")
    return returns.select(pl.col("ends") - END_NS).to_series()


def _unjoined(device: pl.DataFrame, host: pl.DataFrame) -> Missing | None:
    """Why nothing links the two where calls launch, and no kernel has the number of any call."""
    kernels = device.filter(pl.col("kind").is_in(["kernel", "collective"]))
    launches = host.select(matches(LAUNCHING).sum()).item() or 0
    is_joined = kernels["launch"].count() or kernels["op"].count()
    is_apart = min(kernels.height, launches) >= _CLUSTER and not is_joined
    return Missing("calls_unjoined", launches=launches, kernels=kernels.height) if is_apart else None


def _late(device: pl.DataFrame, host: pl.DataFrame) -> Missing | None:
    """Why the times cannot be right where queued ops often begin late on an idle device: nothing holds them up."""
    returned = host.select(END_NS).to_series().gather(device["launch"])
    ops = device.select("start_ns", end=END_NS, returned=returned).sort("start_ns")
    ops = ops.with_columns(waits=pl.col("start_ns") - pl.col("end").cum_max().shift(1))
    queued = ops.filter(pl.col("returned") < pl.col("start_ns") - pl.col("waits"))["waits"]
    late = queued.filter(queued > _PROMPT_NS)
    is_often = len(queued) >= _MANY and len(late) > _IDLE_SHARE * len(queued)
    is_long = is_often and late.sum() > _STRAY_SHARE * np.ptp(ops["start_ns"].to_numpy())
    return Missing(_QUEUE_WAITS, late=len(late), queued=len(queued)) if is_long else None


def _shared(skew: Skew, of_all: Iterable[Skew]) -> Skew:
    """With the least offset near its own: those devices have one clock, and what the others show holds a wait too."""
    offsets = (other.offset_ns for other in of_all if other.offset_ns and other.rate == skew.rate)
    return skew._replace(offset_ns=min((at for at in offsets if abs(at - skew.offset_ns) <= _APART_NS), default=0))


def _skew(device: pl.DataFrame, host: pl.DataFrame, number: int) -> Skew:
    own = device.filter(pl.col("device") == number).select("start_ns", "dur_ns", "launch", "called").sort("start_ns")
    idle = pl.col("start_ns") - END_NS.cum_max().shift(1) >= _IDLE_NS
    linked = own.with_columns(idle=idle.fill_null(value=True)).filter(
        pl.col("called").is_not_null(), ~pl.col("launch").is_duplicated()
    )
    if not linked.height:
        return Skew()
    called, start, alone = (linked[column].to_numpy() for column in ("called", "start_ns", "idle"))
    rate, zero = _rate(called[alone], (start - called)[alone]), int(start[0])
    delay = start - called - Skew(0, rate, zero).at(start)
    threads = host["thread"].gather(linked["launch"]).unique().implode()
    beyond = _outlasting(own, host.filter(pl.col("thread").is_in(threads), matches(_STREAM_WAIT)))
    offset = _offset(delay, delay[alone], called[alone], beyond.drop_nulls().to_numpy())
    bends = _bends(start, delay - offset, offset) if offset < 0 and not rate else ()
    return Skew(offset, rate, zero, bends) if offset or rate else Skew()


def _bends(start: Ints, delay: Ints, offset: int) -> tuple[tuple[int, int], ...]:
    """Where a clock wanders: its distance from `offset` in each of 16 stretches in which ops begin before their calls.

    None where that is much the same in all of them, or in too few.
    """
    stretch = (start - start.min()) * _BUCKETS // (int(np.ptp(start)) + 1)
    parts = [(start[of], np.sort(delay[of])) for of in (stretch == number for number in np.unique(stretch))]
    least = [(int(np.median(at)), _base(delays) - _LATENCY_NS) for at, delays in parts]
    bends = tuple((at, more) for at, more in least if more + _LATENCY_NS + offset < 0)
    is_apart = len(bends) >= _ENOUGH and np.ptp([more for _, more in bends]) > _ALIKE_NS
    return bends if is_apart else ()


def _offset(delay: Ints, alone: Ints, called: Ints, beyond: Ints) -> int:
    """How far delays are off: all of them, and those of ops that found the device idle, with the times of their calls.

    Calls over a longer time than a queue may hold up are no queue's either where all of them agree, however few. Nor is
    what holds work up by which calls that wait for it return too early (`beyond`, how much before its end).
    """
    base = _base(np.sort(delay))
    prompt = (np.abs(alone - base) <= _ALIKE_NS).sum()
    is_apart = len(alone) >= _CLUSTER and np.ptp(alone) <= 2 * _ALIKE_NS and np.ptp(called) > BACKLOG_NS
    is_awaited = beyond.max(initial=0) <= base and (base - beyond <= BACKLOG_NS).sum() >= _CLUSTER <= prompt
    late = base > BACKLOG_NS and (is_apart or is_awaited or prompt >= max(_ENOUGH, _IDLE_SHARE * len(alone)))
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
    # The call with the least delay in each of 16 stretches of the recording that holds any: when, and how much.
    bucket = (called - called.min()) * _BUCKETS // (int(np.ptp(called)) + 1)
    order = np.lexsort((delay, bucket))
    chosen = order[np.unique(bucket[order], return_index=True)[1]]
    at, least = (called[chosen] - called.min()).astype(np.float64), delay[chosen].astype(np.float64)
    if len(at) < _ENOUGH:
        return 0.0
    i, j = np.triu_indices(len(at), 1)
    slope = float(np.median((least[j] - least[i]) / (at[j] - at[i])))
    apart = least - slope * at
    drift = abs(slope) * float(at[-1] - at[0])
    spread = float(np.median(np.abs(apart - np.median(apart))))
    is_clock = abs(slope) <= _MOST_RATE and drift >= _LEAST_DRIFT_NS and spread <= _STRAIGHT * drift
    return slope if is_clock else 0.0
