"""What a rule selects by names: ops, kernels, calls, frames, ranges or copies, and the metrics of each selection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import training_ops
from advisor.analysis.device.kernels import kernels, largest, longest
from advisor.analysis.device.places import places
from advisor.analysis.device.unknowns import no_frames, undirected_copies
from advisor.analysis.device.view import ByName, DeviceView, inside, spans
from advisor.metrics.metric import Metric, Rows, Unit, Value
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.missing import Missing
from advisor.model.profile import END_NS
from advisor.text import bytes_, largest_first, ms, ns
from advisor.vocabulary.kinds import DRIVER_CALLS

Kind: TypeAlias = Literal["ops", "kernels", "calls", "frames", "ranges", "copies"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Thread: TypeAlias = Literal["steps", "others"]

MOST_CHARACTERS: Final = 2_000
"""Of a pattern: the names of a large library fit, and matching stays linear in what is matched."""


def _kernels(view: DeviceView) -> pl.DataFrame:
    return view.once(kernels) if view.device is not None else view.ops.clear()


def _copies(view: DeviceView) -> pl.DataFrame:
    return view.with_host(view.used_ops.filter(pl.col("kind") == "memcpy"), "op", op_name="name")


def _no_calls(view: DeviceView) -> Missing | None:
    """Why it is unknown what was called, or None where it is known; without a device there may be no calls."""
    is_known = view.device is None or view.host["kind"].is_in(DRIVER_CALLS).any()
    return None if is_known else Missing("no_cuda_calls")


class _Of(NamedTuple):
    """What a kind of selection is: words, its rows, kinds of host ops (none: of the device), and what it needs."""

    words: str
    meaning: str
    rows: Rows | None = None
    host: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unknown: Callable[[DeviceView], Missing | None] | None = None


_KINDS: Final[dict[Kind, _Of]] = {
    "ops": _Of(
        "framework ops",
        "ops of PyTorch, TensorFlow or JAX on the host; their time is their own, without ops right inside them",
        host=("op",),
        needs=("host_ops",),
    ),
    "kernels": _Of(
        "kernels",
        "compute kernels on the device, without collectives",
        _kernels,
        needs=("device_ops", "device_ops.name"),
    ),
    "calls": _Of(
        "calls of CUDA or HIP",
        "calls of the runtime and the driver on the host, as `cudaLaunchKernel`",
        host=DRIVER_CALLS,
        needs=("host_ops",),
        unknown=_no_calls,
    ),
    "frames": _Of(
        "Python functions",
        "calls of Python functions, with all that runs within them",
        host=("python",),
        needs=("host_ops",),
        unknown=no_frames,
    ),
    "ranges": _Of(
        "ranges of the program",
        "what the program or a library marks: `record_function`, NVTX, `TraceAnnotation`, modules",
        host=("annotation", "module"),
        needs=("host_ops",),
    ),
    "copies": _Of("copies", "copies to, from and within the device", _copies, needs=("device_ops",)),
}


@dataclass(frozen=True)
class _Names:
    """The rows of a device's table by one of its columns of names."""

    rows: Rows
    column: str

    def __call__(self, view: DeviceView) -> ByName:
        return ByName(view.once(self.rows)[self.column])


@dataclass(frozen=True)
class Selector:
    """Rows of one kind that fulfil every condition given; an empty condition admits all.

    `names` is a regular expression of polars (Rust's: linear time, no look-around) that a name has to contain,
    `besides` one that it must not. Of kernels and copies, `op` is one for the op that launched them. `families` are of
    kernels: what their names say that they compute. `way` (HtoD, DtoH, DtoD, PtoP) and `memory` (pageable, pinned,
    managed: on either side) and the sizes are of copies. `thread` is of what runs on the host: that of the steps, or
    any other. What is `within` another selection starts while that goes on; a device op, when it is launched. `exposed`
    leaves of their time only that in which the device runs nothing else.
    """

    kind: Kind
    names: str = ""
    besides: str = ""
    op: str = ""
    families: tuple[str, ...] = ()
    way: str = ""
    memory: str = ""
    least_bytes: int | None = None
    most_bytes: int | None = None
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
        if self.besides:
            rows = rows.filter(~_is_like(ByName(rows["name"]), self.besides, rows.height))
        rows = rows.filter(*self._sizes())
        for others, is_within in ((self.within, True), (self.outside, False)):
            for other in others:
                rows = rows.filter(other._around(view, rows, of_host=self.is_of_host) == is_within)  # noqa: SLF001
        return rows

    def _sizes(self) -> Iterator[pl.Expr]:
        if self.longer_ns is not None:
            yield pl.col("dur_ns") > self.longer_ns
        if self.shorter_ns is not None:
            yield pl.col("dur_ns") < self.shorter_ns
        if self.least_bytes is not None:
            yield pl.col("bytes") >= self.least_bytes
        if self.most_bytes is not None:
            yield pl.col("bytes") <= self.most_bytes

    def _host_rows(self, view: DeviceView) -> pl.DataFrame:
        rows = view.used_like(self.names, *_KINDS[self.kind].host)
        if self.thread is None:
            return rows
        of_steps = pl.col("thread").is_in(view.once(training_ops)["thread"].unique().implode())
        return rows.filter(of_steps if self.thread == "steps" else ~of_steps)

    def _device_rows(self, view: DeviceView) -> pl.DataFrame:
        of_kind = _KINDS[self.kind].rows or _kernels
        rows = view.once(of_kind)
        patterns = (("name", self.names), ("op_name", self.op))
        like = (
            _is_like(view.once(_Names(of_kind, column)), reasons, rows.height)
            for column, reasons in patterns
            if reasons
        )
        return rows.filter(*like, *self._of_device())

    def _of_device(self) -> Iterator[pl.Expr]:
        if self.families:
            yield pl.col("family").cast(pl.String).is_in(self.families)
        if self.stream is not None:
            yield pl.col("stream") == self.stream
        if self.way:
            yield pl.col("copy_kind").cast(pl.String) == self.way
        if self.memory:
            yield (pl.col("source_memory") == self.memory) | (pl.col("target_memory") == self.memory)

    def _around(self, view: DeviceView, rows: pl.DataFrame, *, of_host: bool) -> pl.Series:
        """Whether each of the rows starts, or if it is the device's was launched, while this selection goes on."""
        when = view.once(self.open)
        if of_host or not self.is_of_host:
            return inside(when, rows)
        called = view.with_host(rows, "launch", called_ns="start_ns")["called_ns"]
        return pl.Series(when.covers(called.fill_null(-1).to_numpy()), dtype=pl.Boolean) & called.is_not_null()

    def open(self, view: DeviceView) -> Intervals:
        """When it goes on, of ops with all that runs within them."""
        return self._rest(view, spans(view.once(self.rows)))

    def spans(self, view: DeviceView) -> Intervals:
        """Its time: the union of its rows' times; an op's time is its own, without ops within it."""
        if self.kind != "ops":
            return self.open(view)
        own = _own(view, view.once(self.rows))
        return self._rest(
            view, Intervals.of(own["start_ns"].to_numpy(), own["end_ns"].to_numpy()) if own.height else EMPTY
        )

    def _rest(self, view: DeviceView, when: Intervals) -> Intervals:
        if not self.exposed:
            return when
        rows = view.once(self.rows)
        others = view.busy if self.is_of_host else spans(view.ops.filter(~pl.col("id").is_in(rows["id"].implode())))
        return when - others

    def ranges(self, view: DeviceView) -> pl.DataFrame:
        """When each of its rows goes on: id, start_ns, end_ns; of ops a row per stretch without ops right inside."""
        rows = view.once(self.rows)
        return _own(view, rows) if self.kind == "ops" else rows.select("id", "start_ns", end_ns=END_NS)

    def places(self, view: DeviceView) -> pl.DataFrame:
        """Its longest rows as places to point at."""
        rows = view.once(self.rows)
        return places(view, rows) if self.is_of_host else longest(rows)

    def in_words(self, view: DeviceView) -> str:
        """`a (1.2 ms), b (0.1 ms)`: names with the most time per step; of kernels the ops that launched them."""
        rows = view.once(self.rows)
        if self.kind == "kernels":
            return largest(view, rows)
        if self.kind == "ops":
            own = _own(view, rows).select("id", dur_ns=pl.col("end_ns") - pl.col("start_ns"))
            rows = own.join(rows.select("id", "name"), on="id")
        times = rows.group_by(pl.col("name").cast(pl.String)).agg(pl.sum("dur_ns")).sort("name").rows()
        return largest_first(times, lambda took: ms(view.per_step_ms(took)))

    @property
    def words(self) -> str:
        """What it selects, as a formula names it."""
        return " ".join((_KINDS[self.kind].words, *self._conditions()))

    def _conditions(self) -> Iterator[str]:
        for condition, (words, form) in _CONDITIONS.items():
            value = getattr(self, condition)
            if value not in {None, "", ()} and value is not False:
                yield words.format(form(value))

    def _all(self) -> Iterator[Selector]:
        """This selection and all that it names."""
        yield self
        for other in (*self.within, *self.outside):
            yield from other._all()  # noqa: SLF001

    @property
    def needs(self) -> tuple[str, ...]:
        """What a recording must have, for it and for what it names."""
        of_copies = ("device_ops.source_memory",) if self.memory else ()
        return tuple(dict.fromkeys((*(need for each in self._all() for need in _KINDS[each.kind].needs), *of_copies)))

    def unknown(self, view: DeviceView) -> Missing | None:
        """Why it cannot be told of a view, if so."""
        reasons = {each.kind: _KINDS[each.kind].unknown for each in self._all()}
        if self.way:
            reasons["copies"] = undirected_copies
        return next((why for of in reasons.values() if of and (why := view.once(of))), None)

    def metrics(self, name: str) -> Iterator[Metric]:
        """The metrics of the selection: `<name>_share`, `_ms`, `_per_step`, `_count`, `_median_us` and `_names`."""
        for end, (_, unit, meaning, formula) in _GIVES.items():
            yield Metric(
                f"{name}_{end}",
                meaning.format(words=_KINDS[self.kind].words),
                formula.replace("{words}", self.words),
                of=Measured(self, end),
                unit=unit,
                needs=self.needs,
                where=self.places if end == "share" else None,
                topic="selections",
                unknown=self.unknown,
            )


def _words_of(others: Iterable[Selector]) -> str:
    return " and ".join(other.words for other in others)


_CONDITIONS: Final[dict[str, tuple[str, Callable[..., str]]]] = {
    "names": ("whose name matches {}", str),
    "besides": ("but not {}", str),
    "families": ("that compute {}", " or ".join),
    "op": ("launched by ops whose name matches {}", str),
    "way": ("{}", str),
    "memory": ("of {} memory", str),
    "least_bytes": ("of at least {}", bytes_),
    "most_bytes": ("of at most {}", bytes_),
    "thread": ("on {}", {"steps": "the threads of the steps", "others": "other threads"}.__getitem__),
    "stream": ("on stream {}", str),
    "longer_ns": ("longer than {}", ns),
    "shorter_ns": ("shorter than {}", ns),
    "within": ("within {}", _words_of),
    "outside": ("outside of {}", _words_of),
    "exposed": ("while the device runs nothing else", str),
}
"""What a formula says of each condition that is given."""


@dataclass(frozen=True)
class Measured:
    """One number of a selection; a value of its own, so that it travels to other processes."""

    selector: Selector
    end: str

    def __call__(self, view: DeviceView) -> Value:
        """The number of this view."""
        return _GIVES[self.end][0](self.selector, view)


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
        "union of the time of {words}, in the used steps (of ops their own, without ops right inside) / step time",
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
    "names": (Selector.in_words, "text", "Which {words} the rule selects.", "those of {words} with the most time"),
}
ENDS: Final = tuple(_GIVES)
"""What the names of a selection's metrics end in."""


def _is_like(names: ByName, pattern: str, height: int) -> pl.Series:
    """Which of so many rows have a name that matches."""
    among = np.zeros(height, bool)
    among[names.like(pattern).to_numpy()] = True
    return pl.Series(among, dtype=pl.Boolean)


def _own(view: DeviceView, ops: pl.DataFrame) -> pl.DataFrame:
    """The stretches of each op outside of those right inside it: id, start_ns and end_ns.

    A stretch begins with the op or where one inside ends, and ends where the next one begins or with the op.
    """
    columns = {"start": pl.col("start_ns"), "end": END_NS}
    within = view.host.filter(pl.col("kind") == "op", pl.col("parent").is_in(ops["id"].implode()))
    inner, outer = (
        within.select(pl.col("parent").cast(ops["id"].dtype).alias("id"), **columns),
        ops.select("id", **columns),
    )
    starts = pl.concat([outer.select("id", at="start"), inner.select("id", at="end")]).sort("id", "at")
    ends = pl.concat([outer.select("id", at="end"), inner.select("id", at="start")]).sort("id", "at")
    pairs = starts.select("id", start_ns="at").hstack(ends.select(end_ns="at"))
    return pairs.filter(pl.col("end_ns") > pl.col("start_ns"))
