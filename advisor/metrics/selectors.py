"""What a rule selects by names: what it can be of, with the columns of each kind; its rows, their time and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from operator import or_
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import polars as pl

from advisor.analysis.device.communication import device_collectives
from advisor.analysis.device.host_work import executed, training_ops
from advisor.analysis.device.idle import launch_gaps, no_frames, stalls, undirected_copies, unknown_waits
from advisor.analysis.device.kernels import largest, longest, no_multiprocessors, parts
from advisor.analysis.device.places import places
from advisor.analysis.device.view import ByName, DeviceView, inside, positions, spans, spent_ns
from advisor.metrics.metric import Rows, lacking
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import END_NS, rows_where
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import table

Kind: TypeAlias = Literal[
    "ops", "kernels", "calls", "frames", "ranges", "copies", "collectives", "device_ops", "host_ops"
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Idle: TypeAlias = Literal["launch_gap", "host_busy", "no_kernel"]
IDLE: Final[Mapping[Idle, Callable[[DeviceView], Intervals]]] = {
    "launch_gap": launch_gaps,
    "host_busy": stalls,
    "no_kernel": lambda view: view.windows - view.device_spans("kernel"),
}
"""When the device idles, by cause; or computes nothing, whatever it copies or exchanges."""


class OfKind(NamedTuple):
    """What a kind of selection is."""

    words: str  # that name it in a formula
    columns: Mapping[str, pl.Expr]  # what `where` may speak of
    rows: Rows | None = None  # those of a device; else `host` has kinds of host ops
    host: tuple[str, ...] = ()
    name_column: str = "name"  # what a pattern is held against
    needs: tuple[str, ...] = ()
    unknown: Callable[[DeviceView], Missing | None] | None = None


def with_inner(view: DeviceView, rows: pl.DataFrame) -> pl.DataFrame:
    """Host ops with the number of ops and calls right `inside` each, and of what it launched on the device."""
    within = view.host.filter(pl.col("kind").is_in(["op", *DRIVER_CALLS]))["parent"]
    inner = pl.DataFrame({"id": pl.concat([within, view.ops["op"]])}).group_by("id").agg(inside=pl.len())
    return rows.join(inner, on="id", how="left", maintain_order="left").with_columns(pl.col("inside").fill_null(0))


def _with_ops(rows: Rows) -> Rows:
    """What runs on the device, with the name of the op that launched it."""
    return lambda view: view.with_host(rows(view), "op", op_name="name")


def _unseen(code: str, *kinds: str) -> Callable[[DeviceView], Missing | None]:
    """Why it is unknown what ran on the host of a device: nothing of these kinds was recorded."""
    return lacking(**{code: lambda view: view.device is not None and not view.host["kind"].is_in(kinds).any()})


def _texts(**columns: str) -> dict[str, pl.Expr]:
    return {name: pl.col(column).cast(pl.String) for name, column in columns.items()}


_RANGES: Final = ("annotation", "module", "input")
_OF_PROGRAM: Final = ("op", *_RANGES, "python")
_NO_RANGES: Final = _unseen("no_host_event", *_OF_PROGRAM)
_OF_ALL: Final = {"us": pl.col("dur_ns") / 1e3}
_SIDES: Final = r"^\[\[(\d+), ?(\d+)\]"
_SQUARE: Final = pl.col("shapes").cast(pl.String).str.extract_groups(_SIDES)
_OF_ROWS: Final = pl.col("shapes").cast(pl.String).str.extract_groups(r"^\[\[(\d+), ?(\d+), ?(\d+)\]")
_AGAINST: Final = pl.col("shapes").cast(pl.String).str
_PAIRS: Final = _AGAINST.extract_groups(r"^\[\[(\d\d+), ?1, ?(\d+)\], ?\[(?:1, ?)?(\d\d+), ?\d+\]")
_PAIRED: Final = pl.format("{} {} {}", *(_PAIRS.struct[at] for at in (0, 2, 1))).drop_nulls().unique().implode()
_OF_HOST: Final = {
    **_OF_ALL,
    "inside": pl.col("inside"),
    "square": _SQUARE.struct[0] == _SQUARE.struct[1],
    # each row of one tensor against each of another: those ops, and what takes their results
    "paired": _PAIRS.struct[0].is_not_null()
    | pl.format("{} {} {}", *(_OF_ROWS.struct[at] for at in range(3))).is_in(_PAIRED),
}
_OF_DEVICE: Final = {**_OF_ALL, "stream": pl.col("stream")}
_EQUAL: Final = ("name", "grid", "block")
_BEST: Final = pl.col("dur_ns").quantile(0.1)  # of equal kernels: some run while others change what they share
_OF_KERNELS: Final = {
    **_OF_DEVICE,
    "equal_calls": pl.when(pl.col("grid") > 0).then(pl.len().over(_EQUAL)),
    "times_best": pl.when(pl.col("grid") > 0).then((pl.col("dur_ns").median() / _BEST).over(_EQUAL)),
    **_texts(family="family", group="part", operand="op_dtype", library="library", generation="generation"),
    "type": pl.coalesce("element_type", "op_dtype"),
    "elements": pl.col("elements"),
    "dimensions": pl.col("shape").str.count_matches(",") + 1,
    "compiled": pl.col("hlo_module").is_not_null(),
    **{name: pl.col(name) for name in ("tensor_cores", "alignment", "occupancy", "block", "blocks_per_sm")},
    **{name: pl.col(name) for name in ("registers", "m", "n", "k")},
}
_OF_GRIDS: Final = ("blocks_per_sm", "block", "equal_calls", "times_best")
OF_INPUTS: Final = ("operand", "elements", "dimensions", "m", "n", "k")  # that the inputs of their ops tell
_TEXTS: Final = frozenset({"family", "group", "operand", "library", "generation", "type", "kind", "source", "target"})
_TRUTHS: Final = frozenset({"compiled", "managed", "paired", "square", "tensor_cores"})


@cache
def no_rows(kind: Kind) -> pl.DataFrame:
    """The columns of a kind with their types."""
    names = OF_KIND[kind].columns
    return pl.DataFrame(
        schema={name: pl.String if name in _TEXTS else pl.Boolean if name in _TRUTHS else pl.Float64 for name in names}
    )


OF_KIND: Final[dict[Kind, OfKind]] = {
    "ops": OfKind("framework ops", _OF_HOST, host=("op",), needs=("host_ops",), unknown=_unseen("no_host_op", "op")),
    "kernels": OfKind("kernels", _OF_KERNELS, parts, needs=("device_ops.name",)),
    "calls": OfKind(
        "calls of CUDA or HIP",
        _OF_HOST,
        host=DRIVER_CALLS,
        needs=("host_ops",),
        unknown=_unseen("no_cuda_calls", *DRIVER_CALLS),
    ),
    "frames": OfKind("Python functions", _OF_HOST, host=("python",), unknown=no_frames),
    "ranges": OfKind(
        "ranges of the program",
        _OF_HOST,
        host=_RANGES,
        needs=("host_ops",),
        unknown=lambda view: None if view.is_of_nsight else view.once(_NO_RANGES),
    ),
    "copies": OfKind(
        "copies",
        {
            **_OF_DEVICE,
            "bytes": pl.col("bytes"),
            "compiled": pl.col("hlo_module").is_not_null(),
            "managed": pl.col("source_memory").eq_missing(pl.lit("managed")),
            **_texts(kind="copy_kind", source="source_memory", target="target_memory"),
        },
        _with_ops(lambda view: view.used_ops.filter(pl.col("kind") == "memcpy")),
        needs=("device_ops",),
    ),
    "collectives": OfKind(
        "collectives",
        {**_OF_DEVICE, "bytes": pl.col("size")},
        _with_ops(device_collectives),
        name_column="does",
        needs=("device_ops",),
    ),
    "device_ops": OfKind("ops of the device", _OF_DEVICE, _with_ops(lambda view: view.used_ops), needs=("device_ops",)),
    "host_ops": OfKind("ranges and functions of the host", _OF_HOST, host=_OF_PROGRAM),
}


Thread: TypeAlias = Literal["steps", "others"]

_NODE: Final = r"^[^:\s]+:([A-Z]\w*)$"  # `scope/name:Type`
_CONDITIONS: Final[Mapping[str, str]] = table(__file__, "selectors")
RELATIONS: Final = ("within", "outside", "follows", "right_inside")  # conditions that name other selections
MOST_CHARACTERS: Final = 2_000
"""Of a pattern: the names of a large library fit, and matching stays linear in what is matched."""


@cache
def _names(rows: Rows, column: str) -> Callable[[DeviceView], ByName]:
    """The rows of a device's table by one of its columns of names."""
    return lambda view: ByName(view.once(rows)[column])


@dataclass(frozen=True)
class Selector:
    """Rows of one kind that fulfil every condition; an empty one admits all."""

    kind: Kind
    names: str = ""  # a regular expression of polars (Rust's: linear time, no look-around) that a name contains
    of: tuple[Selector, ...] = ()  # among the rows that one of these selects, all of its kind
    besides: str = ""  # one that a name does not contain
    call: str = ""  # of an op with its shapes, `aten::mm[[8, 64], [64, 10]]`, or path and result, `jvp()/dot["float"]`
    where: str = ""  # a condition in SQL over the columns of the kind
    op: str = ""  # of what the device runs: a pattern of an op that launched it, or of one around that
    families: tuple[str, ...] = ()  # of kernels: what their names say that they compute
    thread: Thread | None = None  # of what the host runs: that of the steps, or any other
    within: tuple[Selector, ...] = ()  # starts while these go on; a device op, when it is launched
    outside: tuple[Selector, ...] = ()
    follows: tuple[Selector, ...] = ()  # the next op of its stream after one of these
    right_inside: tuple[Selector, ...] = ()  # of what the host runs: what is around it
    exposed: bool = False  # only the time in which the device (without one, XLA) runs nothing else
    idle: tuple[Idle, ...] = ()  # only that in which it idles for one of these causes; `no_kernel`: it computes nothing

    @property
    def is_of_host(self) -> bool:
        """Whether it selects what runs on the host."""
        return bool(OF_KIND[self.kind].host)

    def rows(self, view: DeviceView) -> pl.DataFrame:
        """What starts in a used step; columns of the host's or the device's table, kernels with those of `kernels`."""
        if self.of:
            rows = pl.concat([view.once(each.rows) for each in self.of]).unique("id", maintain_order=True)
        else:
            of_kind = OF_KIND[self.kind].rows
            rows = self._device_rows(view, of_kind) if of_kind else self._host_rows(view)
        if rows.is_empty():  # as of most rules
            return rows
        if self.besides:
            rows = rows.filter(~_among(ByName(rows["name"]).like(self.besides), rows.height))
        if self.where:
            rows = with_inner(view, rows) if self._asks("inside") else rows
            columns = rows.select(**{name: of for name, of in OF_KIND[self.kind].columns.items() if self._asks(name)})
            rows = rows_where(rows, columns.select(pl.sql_expr(self.where).alias("is_selected")).to_series())
        if self.right_inside:
            around = pl.concat([view.once(other.rows)["id"] for other in self.right_inside])
            rows = rows.filter(pl.col("parent").is_in(around.implode()))
        if self.follows:
            # The ids of the ops that come next on their stream after one of `follows`.
            first = pl.concat([view.once(other.rows)["id"] for other in self.follows]).implode()
            ops = view.used_ops.select("id", before=pl.col("id").shift(1).over("stream", order_by="start_ns"))
            rows = rows.filter(pl.col("id").is_in(ops.filter(pl.col("before").is_in(first))["id"].implode()))
        for others, is_within in ((self.within, True), (self.outside, False)):
            for other in others:
                rows = rows.filter(other._around(view, rows, of_host=self.is_of_host) == is_within)  # noqa: SLF001
        return rows

    def _host_rows(self, view: DeviceView) -> pl.DataFrame:
        rows = view.used_like(self.names, *OF_KIND[self.kind].host)
        if self.call:
            texts = {name: pl.col(name).cast(pl.String) for name in ("name", "shapes", "stack", "dtypes")}
            path = pl.format("{}{}", texts["stack"].str.extract("^([^;]*)"), texts["dtypes"].fill_null(""))
            call = pl.coalesce(pl.format("{}{}", texts["name"], texts["shapes"]), path)
            rows = rows.filter(call.str.contains(self.call))
        if self.thread is None:
            return rows
        of_steps = pl.col("thread").is_in(view.once(training_ops)["thread"].unique().implode())
        return rows.filter(of_steps if self.thread == "steps" else ~of_steps)

    def _device_rows(self, view: DeviceView, of_kind: Rows) -> pl.DataFrame:
        rows = view.once(of_kind)
        column = OF_KIND[self.kind].name_column
        places = [view.once(_names(of_kind, column)).like(self.names)] if self.names else []
        places += [_launched_by(view, of_kind, self.op)] if self.op else []
        if any(of.is_empty() for of in places):  # as of most rules
            return rows.clear()
        of_families = [pl.col("family").cast(pl.String).is_in(self.families)] if self.families else []
        return rows_where(rows, *(_among(of, rows.height) for of in places), *of_families)

    def _around(self, view: DeviceView, rows: pl.DataFrame, *, of_host: bool) -> pl.Series:
        """Whether each of the rows starts, or if it is the device's was launched, while this selection goes on."""
        when = view.once(self.open)
        if of_host or not self.is_of_host or view.device is None:
            return inside(when, rows)
        called = view.with_host(rows, "launch", called_ns="start_ns")["called_ns"]
        return pl.Series(when.covers(called.fill_null(-1).to_numpy()), dtype=pl.Boolean) & called.is_not_null()

    def open(self, view: DeviceView) -> Intervals:
        """When it goes on, of ops with all that runs within them."""
        rows = view.once(self.rows)
        return EMPTY if rows.is_empty() else self._rest(view, spans(rows))

    def spans(self, view: DeviceView) -> Intervals:
        """Its time: the union of its rows' times; an op's time is its own, without ops within it."""
        if self.kind != "ops" or view.once(self.rows).is_empty():
            return self.open(view)
        own = _own(view, view.once(self.rows))
        return self._rest(view, Intervals.of(own["start_ns"], own["end_ns"]))

    def _rest(self, view: DeviceView, when: Intervals) -> Intervals:
        if not when.total:
            return EMPTY
        if self.idle:
            return when & reduce(or_, (view.once(IDLE[cause]) for cause in self.idle))
        if not self.exposed:
            return when
        rows = view.once(self.rows)
        if view.device is None and self.is_of_host:
            return when - (view.host_spans("compile") | view.once(executed))
        others = view.busy if self.is_of_host else spans(view.ops.filter(~pl.col("id").is_in(rows["id"].implode())))
        return when - others

    def steps(self, view: DeviceView) -> Intervals:
        """The used steps: on the host for what runs there, but where its time is the device's; else on the device.

        The device runs after the host: of a recording of one step, the host's first ops lie before the device's step.
        """
        return view.host_windows if self.is_of_host and not self.exposed and not self.idle else view.windows

    def ranges(self, view: DeviceView) -> pl.DataFrame:
        """When each of its rows goes on: id, start_ns, end_ns; of ops a row per stretch without ops right inside."""
        rows = view.once(self.rows)
        return _own(view, rows) if self.kind == "ops" else rows.select("id", "start_ns", end_ns=END_NS)

    def places(self, view: DeviceView) -> pl.DataFrame:
        """Its longest rows as places to point at."""
        return (places(self.rows) if self.is_of_host else longest(self.rows))(view)

    def largest(self, view: DeviceView) -> Entries:
        """The names with the most time per step; of kernels their ops, of nodes their types."""
        rows = view.once(self.rows)
        if rows.is_empty():  # as of most rules
            return []
        if self.kind == "ops":
            own = _own(view, rows).select("id", "start_ns", dur_ns=pl.col("end_ns") - pl.col("start_ns"))
            rows = own.join(rows.select("id", "name"), on="id")
        if self.exposed or self.idle:
            rows = rows.with_columns(spent_ns(rows, view.once(self.spans)).alias("dur_ns"))
        if not self.is_of_host:
            return largest(view, rows)
        names = pl.col("name").cast(pl.String).str.replace(_NODE, "$1")
        return view.largest(rows.group_by(names).agg(pl.sum("dur_ns")).rows())

    @property
    def words(self) -> str:
        """What it selects, as a formula names it."""
        return " ".join((OF_KIND[self.kind].words, *self._conditions()))

    def _conditions(self) -> Iterator[str]:
        for condition, words in _CONDITIONS.items():
            if value := getattr(self, condition):
                yield words.format(_value_words(value))

    @property
    def _related(self) -> list[Selector]:
        return [other for key in RELATIONS for other in getattr(self, key)]

    def _all(self) -> Iterator[Selector]:
        """This selection and all that it names."""
        yield self
        for other in (*self.of, *self._related):
            yield from other._all()  # noqa: SLF001

    @property
    def needs(self) -> tuple[str, ...]:
        """What a recording must have, for it and for what it names."""
        own: tuple[str, ...] = ("device_ops.source_memory",) if self._asks("source") else ()
        own += ("host_ops.shapes",) if self.call or any(map(self._asks, OF_INPUTS)) else ()
        own += ("device_ops.grid",) if any(map(self._asks, _OF_GRIDS)) else ()
        own += ("device_ops.occupancy",) if self._asks("occupancy") else ()
        own += ("device_ops", "device_ops.launch") if self._waits else ()
        return tuple(dict.fromkeys((*(need for each in self._all() for need in OF_KIND[each.kind].needs), *own)))

    @property
    def _waits(self) -> bool:
        """Whether it asks why the device idles."""
        return bool({*self.idle} - {"no_kernel"})

    def _asks(self, column: str) -> bool:
        return bool(self.where) and column in re.findall(r"\w+", self.where)

    def unknown(self, view: DeviceView) -> Missing | None:
        """Why it cannot be told of a view, if so."""
        if self.of and all(each.unknown(view) for each in self.of):
            return self.of[0].unknown(view)
        reasons = [each.unknown for each in self._related] + ([] if self.of else [OF_KIND[self.kind].unknown])
        reasons += [_unlinked] if self.op else []
        reasons += [undirected_copies] if self.kind == "copies" and self._asks("kind") else []
        reasons += [_unsized] if self.kind == "copies" and self._asks("bytes") else []
        reasons += [no_multiprocessors] if self._asks("blocks_per_sm") else []
        reasons += [unknown_waits] if self._waits else []
        return next((why for of in reasons if of and (why := view.once(of))), None)


@lru_cache(maxsize=4_096)
def interned(*of: Any, **conditions: Any) -> Selector:  # noqa: ANN401 - those of a selector
    """The one selector that is so: what several rules select is computed once (`DeviceView.once` goes by identity)."""
    return Selector(*of, **conditions)


def _unlinked(view: DeviceView) -> Missing | None:
    """Why it is unknown which ops launched the device's work: no row of it leads to one, or bears its name."""
    known = view.used_ops.select((pl.col("op").is_not_null() | pl.col("framework_op").is_not_null()).any())
    return Missing("no_host_op") if view.used_ops.height and not known.item() else None


def _unsized(view: DeviceView) -> Missing | None:
    sizes = view.used_ops.filter(pl.col("kind") == "memcpy")["bytes"]
    return Missing("no_copy_sizes") if sizes.null_count() else None


def _value_words(value: object) -> str:
    """The value of a condition, as a formula names it."""
    if not isinstance(value, tuple):
        return str(value)
    return (" and " if isinstance(value[0], Selector) else " or ").join(
        str(getattr(each, "words", each)) for each in value
    )


def _launched_by(view: DeviceView, of_kind: Rows, pattern: str) -> pl.Series:
    """The numbers of the device's rows with such an op, or within one, when they were launched."""
    own, ops = view.once(_names(of_kind, "op_name")).like(pattern), view.host_like(pattern, "op")
    if ops.is_empty():
        return own
    is_such = np.zeros(view.host.height + 1, bool)  # the last is no op: what lies around the outermost ones
    is_such[positions(view.host, ops["id"])] = True
    launchers = view.once(of_kind)["op"]
    is_within = np.zeros(len(launchers), bool)
    for at in view.outward(launchers):
        is_within |= is_such[at]
    is_within[own.to_numpy()] = True
    return pl.Series(np.flatnonzero(is_within), dtype=pl.UInt32)


def _among(places: pl.Series, height: int) -> pl.Series:
    """Which of so many rows have one of these places."""
    among = np.zeros(height, bool)
    among[places.to_numpy()] = True
    return pl.Series(among, dtype=pl.Boolean)


def _own(view: DeviceView, ops: pl.DataFrame) -> pl.DataFrame:
    """The stretches of each op outside of those right inside it: id, start_ns and end_ns.

    A stretch begins with the op or where one inside ends, and ends where the next one begins or with the op.
    """
    columns = {"start": pl.col("start_ns"), "end": END_NS}
    within = view.host.filter(pl.col("kind") == "op", pl.col("parent").is_in(ops["id"].implode()))
    inner = within.select(pl.col("parent").cast(ops["id"].dtype).alias("id"), **columns)
    outer = ops.select("id", **columns)
    starts = pl.concat([outer.select("id", at="start"), inner.select("id", at="end")]).sort("id", "at")
    ends = pl.concat([outer.select("id", at="end"), inner.select("id", at="start")]).sort("id", "at")
    pairs = starts.select("id", start_ns="at").hstack(ends.select(end_ns="at"))
    return pairs.filter(pl.col("end_ns") > pl.col("start_ns"))
