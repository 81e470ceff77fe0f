"""What a rule selects by names: ops, kernels, calls, frames, ranges or copies, and the metrics of each selection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import training_ops
from advisor.analysis.device.kernels import kernels, largest, longest
from advisor.analysis.device.places import places
from advisor.analysis.device.unknowns import no_frames
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.metrics.metric import Metric, Unit, Value
from advisor.model.intervals import EMPTY, Union
from advisor.model.missing import Missing
from advisor.model.profile import matches
from advisor.text import largest_first, ms, ns
from advisor.vocabulary.kinds import DRIVER_CALLS

Kind: TypeAlias = Literal["ops", "kernels", "calls", "frames", "ranges", "copies"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Thread: TypeAlias = Literal["steps", "others"]

MOST_CHARACTERS: Final = 2_000
"""Of a pattern: the names of a large library fit, and matching stays linear in what is matched."""


class _Of(NamedTuple):
    """What a kind of selection consists of: words, kinds of host ops (none: device ops), and what it needs."""

    words: str
    host: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unknown: Callable[[DeviceView], Missing | None] | None = None


_KINDS: Final[dict[Kind, _Of]] = {
    "ops": _Of("framework ops", ("op",), ("host_ops",)),
    "kernels": _Of("kernels", needs=("device_ops", "device_ops.name")),
    "calls": _Of("calls of CUDA or HIP", DRIVER_CALLS, ("device_ops.launch",)),
    "frames": _Of("Python functions", ("python",), ("host_ops",), no_frames),
    "ranges": _Of("ranges of the program", ("annotation", "module"), ("host_ops",)),
    "copies": _Of("copies", needs=("device_ops",)),
}


@dataclass(frozen=True)
class Selector:
    """Rows of one kind that fulfil every condition given; an empty condition admits all.

    `names` is a regular expression of polars (Rust's: linear time, no look-around) that a name has to contain. Of
    kernels and copies, `op` is one for the op that launched them. `way` (HtoD, DtoH, DtoD, PtoP) and `memory` (pageable,
    pinned: of the host) are of copies. `thread` is of what runs on the host: that of the steps, or any other. What is
    `within` another selection starts while that goes on; a device op, when it is launched. `exposed` leaves of their
    time only that in which the device runs nothing else.
    """

    kind: Kind
    names: str = ""
    op: str = ""
    way: str = ""
    memory: str = ""
    thread: Thread | None = None
    stream: int | None = None
    within: tuple[Selector, ...] = ()
    outside: tuple[Selector, ...] = ()
    longer_ns: int | None = None
    shorter_ns: int | None = None
    exposed: bool = False

    @property
    def is_of_host(self) -> bool:
        """Whether it selects what runs on the host."""
        return bool(_KINDS[self.kind].host)

    def rows(self, view: DeviceView) -> pl.DataFrame:
        """What starts in a used step; columns of the host's or the device's table, kernels with those of `kernels`."""
        rows = self._host_rows(view) if self.is_of_host else self._device_rows(view)
        if self.longer_ns is not None:
            rows = rows.filter(pl.col("dur_ns") > self.longer_ns)
        if self.shorter_ns is not None:
            rows = rows.filter(pl.col("dur_ns") < self.shorter_ns)
        for others, is_within in ((self.within, True), (self.outside, False)):
            for other in others:
                rows = rows.filter(other._around(view, rows, of_host=self.is_of_host) == is_within)  # noqa: SLF001
        return rows

    def _host_rows(self, view: DeviceView) -> pl.DataFrame:
        rows = view.used_like(self.names, *_KINDS[self.kind].host)
        if self.thread is None:
            return rows
        of_steps = pl.col("thread").is_in(view.once(training_ops)["thread"].unique().implode())
        return rows.filter(of_steps if self.thread == "steps" else ~of_steps)

    def _device_rows(self, view: DeviceView) -> pl.DataFrame:
        if self.kind == "kernels":
            rows = view.once(kernels) if view.device is not None else view.ops.clear()
        else:
            rows = view.used_ops.filter(pl.col("kind") == "memcpy")
            rows = view.with_host(rows, "op", op_name="name")
        if self.names:
            rows = rows.filter(matches(self.names))
        if self.op:
            rows = rows.filter(pl.col("op_name").cast(pl.String).str.contains(self.op))
        if self.stream is not None:
            rows = rows.filter(pl.col("stream") == self.stream)
        if self.way:
            rows = rows.filter(pl.col("copy_kind").cast(pl.String) == self.way)
        if self.memory:
            rows = rows.filter((pl.col("source_memory") == self.memory) | (pl.col("target_memory") == self.memory))
        return rows

    def _around(self, view: DeviceView, rows: pl.DataFrame, *, of_host: bool) -> pl.Series:
        """Whether each of the rows starts, or if it is the device's was launched, while this selection goes on."""
        when = view.once(self.spans)
        if of_host or not self.is_of_host:
            return inside(when, rows)
        called = view.with_host(rows, "launch", called_ns="start_ns")["called_ns"]
        return pl.Series(when.covers(called.fill_null(-1).to_numpy()), dtype=pl.Boolean) & called.is_not_null()

    def spans(self, view: DeviceView) -> Union:
        """When it goes on: the union of its rows' times; an op's time is its own, without ops within it."""
        rows = view.once(self.rows)
        when = _own_spans(view, rows) if self.kind == "ops" else spans(rows)
        if not self.exposed:
            return when
        others = view.busy if self.is_of_host else spans(view.ops.filter(~pl.col("id").is_in(rows["id"].implode())))
        return when - others

    def places(self, view: DeviceView) -> pl.DataFrame:
        """Its longest rows as places to point at."""
        rows = view.once(self.rows)
        return places(view, rows) if self.is_of_host else longest(_with_op(rows))

    def told(self, view: DeviceView) -> str:
        """`a (1.2 ms), b (0.1 ms)`: names with the most time per step; of kernels the ops that launched them."""
        rows = view.once(self.rows)
        if self.kind == "kernels":
            return largest(view, rows)
        times = rows.group_by(pl.col("name").cast(pl.String)).agg(pl.sum("dur_ns")).sort("name").rows()
        return largest_first(times, lambda took: ms(view.per_step_ms(took)))

    @property
    def words(self) -> str:
        """What it selects, as a formula names it."""
        return " ".join((_KINDS[self.kind].words, *self._conditions()))

    def _conditions(self) -> Iterator[str]:
        if self.names:
            yield f"whose name matches {self.names}"
        if self.op:
            yield f"launched by ops whose name matches {self.op}"
        yield from filter(None, (self.way, self.memory and f"of {self.memory} memory"))
        if self.thread:
            yield "on the threads of the steps" if self.thread == "steps" else "on other threads"
        if self.stream is not None:
            yield f"on stream {self.stream}"
        if self.longer_ns is not None:
            yield f"longer than {ns(self.longer_ns)}"
        if self.shorter_ns is not None:
            yield f"shorter than {ns(self.shorter_ns)}"
        yield from (f"within {other.words}" for other in self.within)
        yield from (f"outside of {other.words}" for other in self.outside)
        if self.exposed:
            yield "while the device runs nothing else"

    def metrics(self, name: str) -> Iterator[Metric]:
        """The metrics of the selection: `<name>_share`, `_ms`, `_per_step`, `_count`, `_median_us` and `_names`."""
        kind = _KINDS[self.kind]
        needs = (*kind.needs, *(need for other in (*self.within, *self.outside) for need in _KINDS[other.kind].needs))
        for end, (of, unit, meaning, formula) in _GIVES.items():
            yield Metric(
                f"{name}_{end}",
                meaning.format(words=kind.words),
                formula.format(words=self.words),
                of=_Measured(self, of),
                unit=unit,
                needs=tuple(dict.fromkeys(needs)),
                where=self.places if end == "share" else None,
                topic="selections",
                unknown=kind.unknown,
            )


@dataclass(frozen=True)
class _Measured:
    """One number of a selection; a value of its own, so that it travels to other processes."""

    selector: Selector
    of: Callable[[Selector, DeviceView], Value]

    def __call__(self, view: DeviceView) -> Value:
        return self.of(self.selector, view)


def _share(of: Selector, view: DeviceView) -> Value:
    return view.share(view.once(of.spans))


def _ms(of: Selector, view: DeviceView) -> Value:
    return view.per_step_ms(int(view.once(of.spans).within(view.starts, view.ends).sum()))


def _per_step(of: Selector, view: DeviceView) -> Value:
    return view.once(of.rows).height / view.steps.height


def _count(of: Selector, view: DeviceView) -> Value:
    return view.once(of.rows).height


def _median_us(of: Selector, view: DeviceView) -> Value:
    rows = view.once(of.rows)
    return float(np.median(rows["dur_ns"].to_numpy())) / 1e3 if rows.height else 0.0


_GIVES: Final[dict[str, tuple[Callable[[Selector, DeviceView], Value], Unit, str, str]]] = {
    "share": (
        _share,
        "share",
        "Part of the step in the {words} that the rule selects.",
        "union of the time of {words}, clipped to the used steps (of ops their own, without ops within them) / step time",
    ),
    "ms": (_ms, "ms", "Time per step in the {words} that the rule selects.", "the same time of {words} / steps"),
    "per_step": (_per_step, "number", "Selected {words} per step.", "number of {words} / steps"),
    "count": (_count, "count", "Selected {words} in all used steps.", "number of {words}"),
    "median_us": (
        _median_us,
        "us",
        "Median length of the {words} that the rule selects.",
        "median of the durations of {words}; 0 without any",
    ),
    "names": (Selector.told, "text", "Which {words} the rule selects.", "those of {words} with the most time"),
}
ENDS: Final = tuple(_GIVES)
"""What the names of a selection's metrics end in."""


def _with_op(rows: pl.DataFrame) -> pl.DataFrame:
    return rows if "op" in rows.columns else rows.with_columns(op=pl.lit(None, pl.Int64))


def _own_spans(view: DeviceView, rows: pl.DataFrame) -> Union:
    """The rows' time without that of ops right inside them which are not among them."""
    if not rows.height:
        return EMPTY
    ids = rows["id"].implode()
    children = view.host.filter(pl.col("kind") == "op", pl.col("parent").is_in(ids), ~pl.col("id").is_in(ids))
    own = EMPTY
    for thread in rows["thread"].unique():
        mine, theirs = (table.filter(pl.col("thread").eq_missing(thread)) for table in (rows, children))
        own |= _outside(mine, spans(theirs))
    return own


def _outside(rows: pl.DataFrame, nested: Union) -> Union:
    """The union of rows of one thread less what lies nested in them; those that lie in there count again."""
    again = rows.filter(inside(nested, rows))
    return (spans(rows.filter(~inside(nested, rows))) - nested) | spans(again)
