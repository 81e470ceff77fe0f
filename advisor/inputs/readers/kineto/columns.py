"""From typed trace events to columns: one polars frame per chunk and table, in the trace's own terms.

What category and event names mean, over every generation of PyTorch, stands in names.yaml.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Self, TypeAlias

import msgspec
import numpy as np
import polars as pl

from advisor.inputs.names.calls import host_kinds
from advisor.inputs.readers.kineto import autograd
from advisor.inputs.readers.kineto.fields import Args, Event
from advisor.model.profile import DEVICE_OP_KINDS, HOST_OP_KINDS, MEMORY_KINDS, TEXT, of_distinct, rows_where
from advisor.vocabulary.limits import MOST_RANKS, table

_WRITTEN: Final = table(__file__, "names")
DEVICE_CATEGORIES: Final[dict[str, str]] = _WRITTEN["device"]
HOST_CATEGORIES: Final[dict[str, str]] = _WRITTEN["host"]
LEFT_OUT_CATEGORIES: Final[frozenset[str]] = frozenset(_WRITTEN["left_out"])
NEXT_DATA: Final = r"(?:^|/)torch/utils/data/dataloader\.py\(\d+\): _next_data$"
FETCH: Final = r"(?:^|/)torch/utils/data/_utils/fetch\.py\(\d+\): fetch$"
"""Functions of PyTorch's DataLoader: asked for a batch; loads it in the same process, where there are no workers."""


def copy_kind(name: pl.Expr) -> pl.Expr:
    """HtoD, DtoH, ... from a copy's name, null where it does not say."""
    return name.str.extract(r"\b([HDP]to[HDP])\b").cast(pl.Categorical())


def copy_memory(name: pl.Expr, side: int) -> pl.Expr:
    """Kind of memory at the copy's source (side 1) or target (side 2), from `(Pageable -> Device)`."""
    memory = name.str.extract(r"\((\w+) -> (\w+)\)", side).str.to_lowercase()
    return memory.cast(MEMORY_KINDS, strict=False)


_INTEGER: Final = re.compile(r"-?\d{1,18}")
_LATEST_US: Final = 2.0**52  # in 2112; with a base time and a duration it stays below 2**63 ns
_LONGEST_NS: Final = 2**50  # 13 days
_NO_STREAM: Final = [-1, 0xFFFFFFFF]  # CUPTI's "no stream" or "all of them", with and without a sign
_RANGES: Final = frozenset("XBbS")  # what begins a range; PyTorch writes the first of them alone
_NO_ARGS: Final = Args()
_NO_RAW: Final = msgspec.Raw()
_WITH_OPTIONS: Final = re.compile(r"conv|att(?:entio)?n|index_select|^aten::slice$")

Integer: TypeAlias = type[pl.Int32] | type[pl.Int64]


@dataclass(slots=True)
class Columns:
    """The events of one trace, gathered chunk by chunk."""

    untimed: int = 0  # events left out because they bear no valid start and length
    is_of_autograd: bool = False  # the autograd profiler before Kineto wrote them
    foreign: set[str] = field(default_factory=set)  # of ranges that neither writes: examples of category or name
    _frames: dict[str, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))

    def add(self, events: Iterable[Event]) -> None:
        """Append one chunk's events, each category to its table; flow arrows and labels are not needed."""
        categories: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            categories[event.cat].append(event)
        for category, members in categories.items():
            if category in DEVICE_CATEGORIES:
                self._frames["device"].append(self._timed(self._device_frame(DEVICE_CATEGORIES[category], members)))
            elif category in HOST_CATEGORIES:
                self._frames["host"].append(self._timed(self._host_frame(HOST_CATEGORIES[category], members)))
            elif category in {None, "cpu_instant_event"}:
                memory = self._memory_frame([e for e in members if e.name == "[memory]"])
                self._frames["memory"].append(rows_where(memory, pl.col("at_ns").is_not_null()))
                if not memory.height:
                    host, device = autograd.rows(members)
                    self.is_of_autograd = self.is_of_autograd or bool(host or device)
                    self._frames["host"] += [self._timed(self._host_frame("op", host))] if host else []
                    self._frames["device"] += [self._timed(self._device_frame("kernel", device))] if device else []
                    self._note_foreign(members)
            elif category == autograd.ARROWS:
                self._frames["arrows"].append(self._timed(self._host_frame("runtime", autograd.calls(members))))
            elif category not in LEFT_OUT_CATEGORIES:
                self._note_foreign(members)

    def _note_foreign(self, events: Iterable[Event]) -> None:
        example = next((e for e in events if e.ph in _RANGES and not autograd.wrote(e)), None)
        if example is not None and (words := example.cat or example.name):
            self.foreign.add(words)

    def extend(self, later: Self) -> None:
        """Append the columns of events that follow in the file."""
        self.untimed += later.untimed
        self.is_of_autograd = self.is_of_autograd or later.is_of_autograd
        self.foreign |= later.foreign
        for name, frames in later._frames.items():
            self._frames[name] += frames

    def by_rank(self) -> dict[int | None, Self]:
        """The events of each rank, where a tool merged their files and all events say whose they are; else of None."""
        tables = {name: [f for f in self._frames[name] if f.height] for name in ("device", "host", "memory")}
        labels = [
            f.get_column("rank", default=pl.Series([None])).unique() for f in chain.from_iterable(tables.values())
        ]
        ranks = pl.Series([*set[int | None]().union(*labels)], dtype=pl.Int32).sort()
        if len(ranks) <= 1 or ranks.null_count():
            return {None: self}
        each = ({name: [f.filter(rank=rank) for f in of] for name, of in tables.items()} for rank in ranks)
        return {rank: replace(self, _frames=defaultdict(list, of)) for rank, of in zip(ranks, each, strict=True)}

    @property
    def device(self) -> pl.DataFrame:
        """Kernels, copies and memsets in file order."""
        empty = self._device_frame("kernel", []).with_columns(
            **self._collective_columns([]), bytes=pl.Series([], dtype=pl.Int64)
        )
        rows = pl.concat([empty, *self._frames["device"]], how="diagonal")
        return autograd.own_time(rows) if self.is_of_autograd else rows

    @property
    def host(self) -> pl.DataFrame:
        """Framework ops, runtime calls, annotations and Python frames in file order."""
        launches = [] if self._frames["device"] else self._frames["arrows"]
        rows = pl.concat([self._host_frame("op", []), *self._frames["host"], *launches], how="diagonal", rechunk=True)
        self._frames["host"] = []  # a second copy of the longest table
        if self.is_of_autograd or rows["shapes"].is_not_null().any():
            rows = autograd.with_ranges(rows)
        # Kinds of host ops from those that they start as; each distinct name is judged once.
        refined = host_kinds(pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String))
        return rows.with_columns(
            kind=of_distinct(rows.select("kind", "name"), lambda of: of.select(refined=refined))["refined"]
        )

    @property
    def memory(self) -> pl.DataFrame:
        """Allocations and frees."""
        return pl.concat([self._memory_frame([]), *self._frames["memory"]], how="diagonal", rechunk=True)

    def _timed(self, frame: pl.DataFrame) -> pl.DataFrame:
        placed = rows_where(frame, pl.col("start_ns").is_not_null() & pl.col("dur_ns").is_between(0, _LONGEST_NS))
        self.untimed += frame.height - placed.height
        return placed

    def _device_frame(self, kind: str, events: list[Event]) -> pl.DataFrame:
        args = _args(events)
        frame = {
            "kind": pl.repeat(kind, len(events), dtype=DEVICE_OP_KINDS, eager=True),
            **_spans(events),
            "device": _views([a.device for a in args], [e.pid for e in events], pl.Int32),
            "stream": _views([a.stream for a in args], [e.tid for e in events]),
            "correlation": _ints(args, "correlation"),
            "external_id": _external_ids(args),
            "graph": _ints(args, "graph"),
            **_ranks(args),
        }
        if kind != "kernel":
            return pl.DataFrame(frame | {"bytes": _integers([a.bytes for a in args])})
        frame |= {
            "grid": _products([a.grid for a in args]),
            "block": _products([a.block for a in args], pl.Int32),
            "registers": _ints(args, "registers", pl.Int32),
            "shared_bytes": _ints(args, "shared_bytes", pl.Int32),
            "occupancy_percent": pl.Series([a.occupancy_percent for a in args], dtype=pl.Float64),
            "blocks_per_sm": pl.Series([a.blocks_per_sm for a in args], dtype=pl.Float64),
        }
        if any(a.collective for a in args):
            frame |= self._collective_columns(args)
        return pl.DataFrame(frame)

    def _collective_columns(self, args: Sequence[Args]) -> dict[str, pl.Series]:
        texts, numbers = ("collective", "dtype", "description", "ranks"), ("elements_in", "elements_out")
        # The other end of a send or recv; some writers name both ends.
        by_source = [a.collective == "recv" or a.target_rank is None for a in args]
        peers = [a.source_rank if of else a.target_rank for a, of in zip(args, by_source, strict=True)]
        return {
            **{column: pl.Series(list(map(attrgetter(column), args)), dtype=pl.String) for column in texts},
            **{column: _ints(args, column) for column in numbers},
            "group": pl.Series([None if a.group is None else str(a.group) for a in args], dtype=pl.String),
            "group_size": _ints(args, "group_size", pl.Int32),
            "sequence": _ints(args, "collective_sequence"),
            "peer": _integer_series(peers, pl.Int32),
        }

    def _host_frame(self, kind: str, events: list[Event]) -> pl.DataFrame:
        args = _args(events)
        frame = {
            "kind": pl.repeat(kind, len(events), dtype=HOST_OP_KINDS, eager=True),
            **_spans(events),
            "pid": _integers([e.pid for e in events]).cast(pl.Int32, strict=False),
            "thread": _integers([e.tid for e in events]),
            "correlation": _ints(args, "correlation"),
            "external_id": _external_ids(args),
            **_ranks(args),
        }
        if kind in {"op", "annotation"}:
            frame |= {
                "sequence": _ints(args, "sequence"),
                "shapes": _raw_texts([a.shapes for a in args]),
                "dtypes": _raw_texts([a.dtypes for a in args]),
                "details": _raw_texts(_options(events, args)),
                "stack": pl.Series([a.stack or None for a in args], dtype=pl.String).cast(TEXT),
            }
        return pl.DataFrame(frame)

    def _memory_frame(self, events: list[Event]) -> pl.DataFrame:
        args = _args(events)
        return pl.DataFrame(
            {
                "at_ns": _nanoseconds([e.ts for e in events]),
                "thread": _integers([e.tid for e in events]),
                "device": _ints(args, "device_id", pl.Int32),
                "bytes": _ints(args, "size"),
                **{of: _ints(args, of) for of in ("device_type", "address", "allocated_bytes", "reserved_bytes")},
                **_ranks(args),
            }
        )


def _views(first: list[int | str | None], second: list[int | str | None], dtype: Integer = pl.Int64) -> pl.Series:
    """Device or stream numbers: the argument where given, else the row the event was drawn on."""
    views = _integers([b if a is None else a for a, b in zip(first, second, strict=True)])
    return views.replace(_NO_STREAM, None).cast(dtype, strict=False)


def _integers(values: list[int | str | None]) -> pl.Series:
    """The integers in `7`, `"7"` or `"stream 7"`; each distinct value is parsed once."""
    numbers = {value: value if isinstance(value, int) else None for value in set(values)}
    texts = ((value, _INTEGER.search(value)) for value in numbers if isinstance(value, str))
    numbers |= {value: int(digits[0]) for value, digits in texts if digits}
    return _integer_series(list(map(numbers.__getitem__, values)))


def _args(events: list[Event]) -> list[Args]:
    return [event.args or _NO_ARGS for event in events]


def _spans(events: list[Event]) -> dict[str, pl.Series]:
    return {
        "name": pl.Series([e.name or "" for e in events], dtype=pl.String).cast(TEXT),
        "start_ns": _nanoseconds(list(map(attrgetter("ts"), events))),
        "dur_ns": _nanoseconds(list(map(attrgetter("dur"), events))),
    }


def _nanoseconds(microseconds: list[float | None]) -> pl.Series:
    """Null where absent or out of range. Whole and fractional parts apart: one product would lose 100s of ns."""
    us = np.array(microseconds, np.float64)
    inside = np.abs(us) <= _LATEST_US
    us = np.where(inside, us, 0.0)
    floor = np.floor(us)
    ns = pl.Series(floor.astype(np.int64) * 1000 + np.rint((us - floor) * 1000).astype(np.int64))
    return ns if inside.all() else pl.select(pl.when(pl.Series(inside)).then(ns)).to_series()


def _ints(args: Sequence[Args], attribute: str, dtype: Integer = pl.Int64) -> pl.Series:
    return _integer_series(list(map(attrgetter(attribute), args)), dtype)


def _integer_series(values: list[int | None], dtype: Integer = pl.Int64) -> pl.Series:
    """Null where a number does not fit."""
    return pl.Series(values, dtype=dtype, strict=False)


def _ranks(args: Sequence[Args]) -> dict[str, pl.Series]:
    """Whose event each is, where any says it."""
    ranks = [a.rank if isinstance(a.rank, int) and 0 <= a.rank < MOST_RANKS else None for a in args]
    return {"rank": _integer_series(ranks, pl.Int32)} if any(rank is not None for rank in ranks) else {}


def _external_ids(args: Sequence[Args]) -> pl.Series:
    ids = _ints(args, "external_id")
    return ids.zip_with(ids.is_not_null(), _ints(args, "external_id_2020")) if ids.null_count() else ids


_AXES: Final = 3


def _products(sizes: list[Any], dtype: Integer = pl.Int64) -> pl.Series:
    """Grid or block size as one number; null where it is not given as x, y and z."""
    return _integer_series([s[0] * s[1] * s[2] if type(s) is list and len(s) == _AXES else None for s in sizes], dtype)


def _raw_texts(raws: list[msgspec.Raw]) -> pl.Series:
    """JSON fragments as they stand in the file; absent ones are null. All are decoded at once: JSON holds no NUL."""
    texts = b"\0".join(raws).decode("utf-8", "replace").split("\0")
    return pl.Series([text or None for text in texts[: len(raws)]], dtype=pl.String).cast(TEXT)


def _options(events: Sequence[Event], args: Sequence[Args]) -> list[msgspec.Raw]:
    """The values of inputs that are no tensors, of ops whose work depends on them."""
    names = {event.name for event in events}
    depends = {name for name in names if name and _WITH_OPTIONS.search(name)}
    return [a.options if event.name in depends else _NO_RAW for event, a in zip(events, args, strict=True)]
