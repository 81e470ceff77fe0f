"""One plane of an XSpace: its lines, the names that its events share, and their stats as columns.

Field numbers: XPlane{1 id, 2 name, 3 lines, 4 event_metadata, 5 stat_metadata, 6 stats}; XLine{1 id, 2 name, 3
timestamp_ns, 4 events}; XEvent{1 metadata_id, 2 offset_ps or 5 num_occurrences, 3 duration_ps, 4 stats};
XStat{1 metadata_id, 2 double, 3 uint64, 4 int64, 5 str, 6 bytes, 7 ref into stat_metadata}; XEventMetadata{1 id, 2
name, 4 display_name, 5 stats}; XStatMetadata{1 id, 2 name}. Source: xplane.proto of openxla/xla (tsl/profiler).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from advisor.inputs.readers.xplane.names import HOST_PLANES
from advisor.inputs.readers.xplane.wire import Buffer, Field, Fields, Message
from advisor.model.intervals import Ints, Mask
from advisor.model.profile import TEXT
from advisor.system.file_size import DEVICE_OP, HOST_OP, Room

_LINES, _EVENTS = 3, 4
_DOUBLE, _INT, _STR, _BYTES, _REF = 2, 4, 5, 6, 7
LATEST_NS: Final = (1 << 62) - (1 << 54)  # in 2115; with an offset and a base time it stays below 2**63
_LATEST_PS: Final = 1 << 62  # 53 days
_LONGEST_NS: Final = 1 << 50  # 13 days
_AT_ONCE: Final = 1 << 17  # events whose columns are held together, beside what is made of them
_HALF_NS: Final = 500  # in ps
_LONGEST_TEXT: Final = 8_192  # bytes of a name, which many events share: an op's with its shapes; more helps nobody


class Line(NamedTuple):
    """A thread or stream."""

    id: int
    name: str


class Names(NamedTuple):
    """What the events or stats of a plane are called: rows of ids in ascending order, with their texts."""

    ids: Ints
    names: list[str]
    labels: list[str]
    stats: Fields  # owner: row

    def rows(self, ids: Ints) -> Ints:
        """Row of each id; the number of rows where there is none."""
        at = np.searchsorted(self.ids, ids)
        if not len(self.ids):
            return np.zeros(len(ids), np.int64)
        return np.where(self.ids[np.minimum(at, len(self.ids) - 1)] == ids, at, len(self.ids))


class _Borne(NamedTuple):
    """Values of stats: row of the event, row of the stat's name, and which kind of value stands where."""

    row: npt.NDArray[np.int32]
    stat: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    value: npt.NDArray[np.uint64]
    length: npt.NDArray[np.int32]


_NOTHING_BORNE: Final = _Borne(
    np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, np.uint64), np.empty(0, np.int32)
)


@dataclass(frozen=True, eq=False)
class Stats:
    """Stats of `height` events by name; those not asked for were not kept."""

    height: int
    _columns: Mapping[str, _Borne]
    _buffer: Buffer
    _texts: Names

    @property
    def names(self) -> list[str]:
        """The stats that are borne by any."""
        return list(self._columns)

    def values(self, stat: str) -> list[int | float | str]:
        """The stat's values in order, each as what it is."""
        column = self._columns[stat]
        texts = iter(self._text(column).drop_nulls().to_list())
        doubles = column.value.view(np.float64).tolist()
        integers = np.where(column.kind == _INT, column.value.view(np.int64).astype(object), column.value).tolist()
        is_text = np.isin(column.kind, [_STR, _REF])
        entries = zip(column.kind.tolist(), is_text.tolist(), doubles, integers, strict=True)
        return [
            next(texts, "") if text else double if kind == _DOUBLE else integer
            for kind, text, double, integer in entries
            if kind != _BYTES
        ]

    def has(self, stat: str) -> Mask:
        """Which events bear the stat; shape (height,)."""
        rows = np.zeros(self.height, bool)
        if stat in self._columns:
            rows[self._columns[stat].row] = True
        return rows

    def number(self, stat: str, dtype: type[pl.Int64 | pl.Float64] = pl.Int64) -> pl.Series:
        """The stat as a number, null where an event has none; unsigned ones beyond 2**63 wrap around."""
        values = np.zeros(self.height, np.float64 if dtype == pl.Float64 else np.int64)
        known = np.zeros(self.height, bool)
        if (column := self._columns.get(stat)) is not None:
            numeric = ~np.isin(column.kind, [_STR, _BYTES, _REF])
            rows, value = column.row[numeric], column.value[numeric]
            is_double = column.kind[numeric] == _DOUBLE
            with np.errstate(invalid="ignore", over="ignore"):
                double, integers = value.view(np.float64), value.view(np.int64)
                sound = ~is_double | np.isfinite(double)
                values[rows] = np.where(is_double & sound, double, integers)
            known[rows] = sound
        return pl.select(pl.when(pl.Series(known)).then(pl.Series(values))).to_series().cast(dtype)

    def text(self, stat: str) -> pl.Series:
        """The stat as text, null where an event has none."""
        if stat not in self._columns:
            return pl.repeat(None, self.height, dtype=TEXT, eager=True)
        return self._text(self._columns[stat])

    def _text(self, column: _Borne) -> pl.Series:
        """References name one text many times; the others stand in the file as often as they are used."""
        is_ref, is_str = column.kind == _REF, column.kind == _STR
        texts = pl.Series([*self._texts.names, None], dtype=pl.String).cast(TEXT)
        referred = texts.gather(self._texts.rows(column.value[is_ref].view(np.int64)))
        starts = column.value[is_str].view(np.int64)
        spelt = self._buffer.texts(starts, starts + column.length[is_str])
        at = np.full(self.height, len(referred) + len(spelt))
        at[column.row[is_ref]] = np.arange(len(referred))
        at[column.row[is_str]] = len(referred) + np.arange(len(spelt))
        return pl.concat([referred, spelt.cast(TEXT), pl.Series([None], dtype=TEXT)]).gather(at)


class Events(NamedTuple):
    """Events of some lines in file order."""

    line: Ints  # row of `Plane.lines`
    what: Ints  # row of the plane's names
    start_ns: Ints  # rounded once, as the end is: what follows or encloses an event still does
    dur_ns: Ints
    stats: Stats
    of_names: Stats

    def number(self, stat: str, dtype: type[pl.Int64 | pl.Float64] = pl.Int64) -> pl.Series:
        """The stat of each event, or else of its name."""
        own, of_name = self.stats.number(stat, dtype), self.of_names.number(stat, dtype)
        return own if of_name.null_count() == len(of_name) else either(own, of_name.gather(self.what))

    def text(self, stat: str) -> pl.Series:
        """The stat of each event, or else of its name."""
        own, of_name = self.stats.text(stat), self.of_names.text(stat)
        return own if of_name.null_count() == len(of_name) else either(own, of_name.gather(self.what))


@dataclass(eq=False)
class Plane:
    """A plane, held as its bytes; `untimed` and `malformed` count events that were left out."""

    buffer: Buffer
    room: Room = field(default_factory=partial(Room, ""))  # of all planes of a file
    untimed: int = 0
    malformed: int = 0
    cut_lines: int = 0
    _top: Message = field(init=False)

    def __post_init__(self) -> None:
        self._top = self.buffer.split(0, self.buffer.size, _LINES)

    @property
    def complete(self) -> bool:
        """Whether the plane's own list of fields could be read to its end."""
        return self._top.complete

    @cached_property
    def name(self) -> str:
        """Such as /host:CPU or /device:GPU:0."""
        return next((self._text(f) for f in self._top.fields if f.number == 2 and f.end >= 0), "")  # noqa: PLR2004

    @cached_property
    def stats(self) -> dict[str, int | float | str]:
        """The plane's own stats."""
        spans = [f for f in self._top.fields if f.number == 6 and f.end >= 0]  # noqa: PLR2004
        start, end = (np.array([f[i] for f in spans], np.int64) for i in (1, 2))
        owner, number = np.arange(len(spans)), np.full(len(spans), 6)
        every = self._chosen(self._stat_names.names)
        borne = self._borne_of(Fields(owner, number, start.view(np.uint64), end - start), every)
        stats = self._stats(list(borne), len(spans))
        return {stat: value for stat in stats.names for value in stats.values(stat)[-1:]}

    @cached_property
    def names(self) -> Names:
        """Names of the plane's events; `labels` are their display names."""
        return self._names(4)

    @cached_property
    def _stat_names(self) -> Names:
        return self._names(5)

    @property
    def line_count(self) -> int:
        """How many lines there are, of which none has been read for it."""
        return len(self._top.starts)

    @cached_property
    def lines(self) -> list[Line]:
        """The plane's lines in file order; what stands in front of their events tells them."""
        lines = []
        for start, end in zip(self._top.starts.tolist(), self._top.ends.tolist(), strict=True):
            fields = {of.number: of for of in self.buffer.head(start, end, _EVENTS)}
            names = (self._text(fields[number]) for number in (11, 2) if number in fields)  # its display name first
            lines.append(Line(_signed(fields[1].value) if 1 in fields else 0, next(filter(None, names), "")))
        return lines

    def events(self, lines: Collection[int], stat_names: Collection[str]) -> Iterator[Events]:
        """The events of these lines (rows of `lines`) with the stats named in `wanted`, so many at a time."""
        each = HOST_OP if self.name in HOST_PLANES else DEVICE_OP
        begins, ends_ = self._top.starts.tolist(), self._top.ends.tolist()
        chosen = [self.buffer.split(begins[line], ends_[line], _EVENTS) for line in lines]
        self.cut_lines += sum(not message.complete for message in chosen)
        stamps = ([_signed(f.value) for f in message.fields if f.number == 3 and f.end < 0] for message in chosen)  # noqa: PLR2004
        began = np.array([next(iter(at), 0) for at in stamps], np.int64)
        row = np.repeat(np.arange(len(chosen)), [len(message.starts) for message in chosen])
        starts, ends = (
            np.concatenate([getattr(m, side) for m in chosen] or [np.empty(0, np.int64)]) for side in ("starts", "ends")
        )
        del chosen
        stats = self._chosen(stat_names)
        of_names = self._stats(list(self._borne_of(self.names.stats, stats)), len(self.names.ids) + 1)
        number = np.array(lines, np.int64)
        for at in range(0, max(1, len(starts)), _AT_ONCE):
            of_line = row[at : at + _AT_ONCE]
            some = self._events(starts[at : at + _AT_ONCE], ends[at : at + _AT_ONCE], began[of_line], stats)
            self.room.take(len(some.line), each, len(starts) - at - len(of_line))
            yield some._replace(line=number[of_line[some.line]], of_names=of_names)

    def _events(self, starts: Ints, ends: Ints, began: Ints, chosen: Mask) -> Events:
        """The events at these places, whose line has its timestamp in `began`; their `line` is their place instead."""
        ids, offset, length = (np.zeros(len(starts), np.uint64) for _ in range(3))
        placed, bad, borne = np.zeros(len(starts), bool), np.zeros(len(starts), bool), list[_Borne]()
        for fields, broken in self.buffer.fields(starts, ends):
            for number, column in ((1, ids), (2, offset), (3, length)):
                fields.put(number, column)
            placed[fields.owner[fields.number == 2]] = True  # noqa: PLR2004 - writers write an offset of 0, too
            bad[fields.owner[fields.number == 5]] = True  # noqa: PLR2004 - a sum over events, which has no time of its own
            bad[broken] = True
            self.malformed += len(broken)
            borne += self._borne_of(fields.messages(4), chosen)
        timed = placed & (offset < _LATEST_PS) & (length < _LATEST_PS) & (began >= 0) & (began <= LATEST_NS)
        from_ps = np.where(timed, offset, 0).astype(np.int64)
        to_ps = from_ps + np.where(timed, length, 0).astype(np.int64)
        start = (from_ps + _HALF_NS) // 1000
        dur = (to_ps + _HALF_NS) // 1000 - start
        timed &= dur <= _LONGEST_NS
        self.untimed += int((~timed & ~bad).sum())
        valid = np.flatnonzero(timed & ~bad)
        place = np.full(len(starts), -1, np.int32)
        place[valid] = np.arange(len(valid))
        what = self.names.rows(ids[valid].view(np.int64))
        stats, nothing = self._stats(borne, len(valid), place), Stats(0, {}, self.buffer, self._stat_names)
        return Events(valid, what, (began + start)[valid], dur[valid], stats, nothing)

    def _names(self, number: int) -> Names:
        """The map of event or stat names under this field number of the plane."""
        entries = [f for f in self._top.fields if f.number == number and f.end >= 0]
        starts, ends = (np.array([f[i] for f in entries], np.int64) for i in (1, 2))
        fields, _ = self.buffer.all_fields(starts, ends)
        keys, values = np.zeros(len(entries), np.uint64), fields.messages(2)
        fields.put(1, keys)
        ids, last = np.unique(keys.view(np.int64)[::-1], return_index=True)
        entry = len(entries) - 1 - last  # of two with the same id the later one counts
        row = np.full(len(entries), -1)
        row[entry] = np.arange(len(ids))
        inner, _ = self.buffer.all_fields(values.start, values.end)
        inner = inner._replace(owner=row[values.owner[inner.owner]])
        inner = inner.where(inner.owner >= 0)
        names, labels = (texts(self.buffer, inner.messages(number), len(ids)) for number in (2, 4))
        return Names(ids, names, labels, inner.messages(5))

    def _text(self, span: Field) -> str:
        return self.buffer.text(span.value, span.end) if span.end >= 0 else ""

    def _chosen(self, stat_names: Collection[str]) -> Mask:
        """Which stats (rows of their names, and one for those without) are wanted."""
        known = frozenset(stat_names)
        return np.array([*(name in known for name in self._stat_names.names), False])

    def _borne_of(self, spans: Fields, chosen: Mask) -> Iterator[_Borne]:
        """The chosen ones of the stats at these places; `spans.owner` is the row of what bears each."""
        ids = np.zeros(len(spans.owner), np.uint64)
        for fields, _ in self.buffer.fields(spans.start, spans.end):
            fields.put(1, ids)
            values = fields.where(fields.number != 1)
            stat = self._stat_names.rows(ids.view(np.int64)[values.owner])
            place = np.flatnonzero(chosen[stat])
            yield _Borne(
                spans.owner[values.owner[place]].astype(np.int32),
                stat[place].astype(np.int32),
                values.number[place].clip(0, 127).astype(np.int8),
                values.value[place],
                values.length[place].clip(max=1 << 30).astype(np.int32),
            )

    def _stats(self, parts: list[_Borne], height: int, place: npt.NDArray[np.int32] | None = None) -> Stats:
        """The stats of `height` rows; `place` tells the row of each event, -1 where it was left out."""
        borne = _Borne(*map(np.concatenate, zip(*parts, strict=True))) if parts else _NOTHING_BORNE
        if place is not None:
            borne = borne._replace(row=place[borne.row])
        stat = borne.stat.astype(np.min_scalar_type(len(self._stat_names.ids)))  # of 16 bits it is sorted in one pass
        order = np.argsort(stat, kind="stable")
        stats, first = np.unique(stat[order], return_index=True)
        columns = {}
        for stat, rows in zip(stats.tolist(), np.split(order, first[1:]), strict=False):
            places = rows[borne.row[rows] >= 0]
            columns[self._stat_names.names[stat]] = _Borne._make(of[places] for of in borne)
        return Stats(height, columns, self.buffer, self._stat_names)


def texts(buffer: Buffer, spans: Fields, height: int) -> list[str]:
    """The text of each of so many rows, empty where none of these fields has it."""
    of_rows = [""] * height
    for row, start, end in zip(spans.owner.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True):
        of_rows[row] = buffer.text(start, min(end, start + _LONGEST_TEXT))
    return of_rows


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def either(first: pl.Series, second: pl.Series) -> pl.Series:
    """The first where it is known, else the second."""
    return first if second.null_count() == len(second) else pl.select(pl.coalesce(first, second)).to_series()
