"""What a selection measures, its share of the step, how often it runs, how long and its names, and what changes save.

A change takes the selected rows away, makes them faster, hides them behind kernels, or makes one of several.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias, get_args

import polars as pl

from advisor.analysis.device.communication import bytes_per_step
from advisor.analysis.device.host_work import training_ops
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.metrics.metric import BY_NAME, SAVED_ENDS, Metric, Value, end_of
from advisor.metrics.selectors import OF_KIND, Kind, Selector
from advisor.model.clause import Missing
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import matches
from advisor.text import percent
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import table
from advisor.whatif.change import Change, Interval, between, faster, loss, merged, overlapped, saved, together, without

_OF_NUMBERS: Final[Mapping[str, Mapping[str, str]]] = table(__file__, "selection_numbers")


@dataclass(frozen=True)
class Measured:
    """One number of a selection; a value of its own, so that it travels to other processes."""

    selector: Selector
    end: str

    def __call__(self, view: DeviceView) -> Value:
        """The number of this view."""
        return _GIVES[self.end](self.selector, view)


def metrics(selector: Selector, name: str) -> Iterator[Metric]:
    """The metrics of a selection, those of ENDS that its kind has: `<name>_share`, `<name>_ms` and so on."""
    kind, words, needs = OF_KIND[selector.kind].words, selector.words, selector.needs
    for end in ENDS:
        if _OF_KINDS.get(end, selector.kind) == selector.kind:
            about = _OF_NUMBERS[end]
            yield Metric(
                f"{name}_{end}",
                about["meaning"].format(words=kind),
                Measured(selector, end),
                about["formula"].replace("{words}", words),
                unit="count" if end == "count" else BY_NAME,
                needs=needs,
                where=selector.places if end == "share" else None,
                topic="selections",
                unknown=selector.unknown,
            )


def _part(of: Selector, view: DeviceView, when: Intervals) -> Value:
    steps = of.steps(view)
    return (when & steps).total / steps.total if steps.total else None


_GIVES: Final[Mapping[str, Callable[[Selector, DeviceView], Value]]] = {
    "share": lambda of, view: _part(of, view, view.once(of.spans)),
    "ms": lambda of, view: view.per_step_ms((view.once(of.spans) & of.steps(view)).total),
    "whole_share": lambda of, view: _part(of, view, view.once(of.open)),
    "per_step": lambda of, view: view.once(of.rows).height / view.steps.height,
    "runs_per_step": lambda of, view: view.once(of.rows)["run"].n_unique() / view.steps.height,
    "repeats": lambda of, view: view.once(of.rows).height / max(1, view.once(of.rows).n_unique(["name", "shapes"])),
    "bytes_per_step": lambda of, view: bytes_per_step(view, view.once(of.rows)),
    "steps_share": lambda of, view: (
        view.once(of.rows)["window"].n_unique() / view.steps.height if view.has_marks else Missing("no_marks")
    ),
    "count": lambda of, view: view.once(of.rows).height,
    "median_us": lambda of, view: view.once(of.rows).select(pl.median("dur_ns").fill_null(0) / 1e3).item(),
    "names": Selector.largest,
}
_OF_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("whole_share", "repeats"), "ops"),
    "runs_per_step": "kernels",
    "bytes_per_step": "copies",
}
"""Those that selections of one kind alone have."""
ENDS: Final = tuple(_GIVES)  # what the names of a selection's metrics end in


Way: TypeAlias = Literal["without", "faster", "shorter", "overlapped", "merged", "fused"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)
OF_DEVICE: Final[tuple[Way, ...]] = ("overlapped", "merged", "fused")  # those that only what runs on the device can be


@dataclass(frozen=True)
class Better:
    """A change to what is selected; of what is `faster` or `shorter` with these parts of the time left."""

    selector: Selector
    way: Way
    rest: tuple[float, float] = (0.0, 0.0)

    def __call__(self, view: DeviceView) -> Interval:
        """What it saves per step."""
        if view.once(self.selector.rows).is_empty():
            return Interval(0.0, 0.0)
        return saved(view, _CHANGES[self.way](self, view))

    def metrics(self, name: str) -> Iterator[Metric]:
        """`<name>_least_gain_ms` and `<name>_gain_ms`."""
        way, (least, most) = _WORDS[self.way], map(percent, self.rest)
        rest = f" {least} of their time are left at least saved, {most} at most." if any(self.rest) else ""
        for position, (end, words) in enumerate(SAVED_ENDS.items()):
            yield Metric(
                f"{name}_{end}_ms",
                f"Step time that is saved {words} if what the rule selects {way['words']}.",
                partial(end_of, self, position),
                f"of {self.selector.words}: {way['method']}{rest}",
                needs=self.selector.needs,
                topic="selections",
                unknown=self.selector.unknown,
            )


def _without(of: Better, view: DeviceView) -> Change:
    rows = view.once(of.selector.rows)
    if of.selector.kind == "calls":
        return without(calls=rows["id"], bound_ns=view.used_ns(spans(rows) - view.busy))
    if not of.selector.is_of_host:
        bare_ns = view.used_ns(spans(rows) - view.device_spans("kernel", "collective"))
        alone_ns = view.used_ns(spans(rows)) if of.selector.kind == "kernels" else bare_ns
        return without(calls=rows["launch"], ops=rows, bound_ns=(alone_ns, alone_ns))
    when, calls, launched = _work(view, rows)
    if of.selector.idle:
        return _waited_for(of, view, when)
    bound_ns = view.used_ns(when if view.device is None else spans(launched))
    return without(host=when, calls=calls["id"], ops=launched, bound_ns=(bound_ns, bound_ns))


def _faster(of: Better, view: DeviceView) -> Change:
    rows = view.once(of.selector.rows)
    if not of.selector.is_of_host:
        shorter = faster(rows, *(pl.col("dur_ns") * part for part in of.rest))
        return shorter if of.rest[1] else between(shorter, _without(of, view))  # of what is gone nothing is launched
    if view.device is None:
        took_ns = view.used_ns(view.once(of.selector.spans))
        return loss(*((1 - part) * took_ns for part in of.rest))
    when, _, launched = _work(view, rows)
    if of.selector.idle:
        return _waited_for(of, view, when)
    kernels = faster(launched, *(pl.col("dur_ns") * part for part in of.rest))
    return together(without(host=when, rest=of.rest), kernels)


def _fused(of: Better, view: DeviceView) -> Change:
    """One for each that follow each other: twice as long as the longest, and as long as the shortest.

    Of ops functions may remain, random numbers do: what they take beyond the shortest, which reads and writes as much.
    """
    rows, dur = view.once(of.selector.rows), pl.col("dur_ns")
    computes, draws = (matches(rf"^aten::(?:{names})_?$") for names in (f"{_FUNCTIONS}|{_DRAWS}", _DRAWS))
    computed = pl.when(computes).then(dur).otherwise(0).sum()  # of ops: kernels have no such names
    beyond = pl.when(draws).then(dur - dur.min().over("run")).otherwise(0).sum()
    is_first = pl.int_range(pl.len()).over("run") == 0
    slow, fast = (
        pl.when(is_first).then(pl.min_horizontal(dur.sum(), single).over("run")).otherwise(0)
        for single in (2 * pl.max_horizontal(dur.max(), computed), dur.min() + beyond)
    )
    return faster(rows, slow, fast)


def _waited_for(of: Better, view: DeviceView, when: Intervals) -> Change:
    """Less of the work for which the device idles."""
    idle_ns = view.used_ns(view.once(of.selector.spans))
    return without(host=when if idle_ns else EMPTY, rest=of.rest, bound_ns=idle_ns)


def _work(view: DeviceView, rows: pl.DataFrame) -> tuple[Intervals, pl.DataFrame, pl.DataFrame]:
    """What ops of the steps' threads do: when, the calls that they make, and the device ops that these launch."""
    rows = rows.join(view.once(training_ops).select("id"), on="id", how="semi")
    every = view.host.filter(pl.col("kind").is_in(DRIVER_CALLS)) if rows.height else view.host.clear()
    calls = every.clear()
    for thread in rows["thread"].unique():
        own_rows, of_thread = (table.filter(pl.col("thread").eq_missing(thread)) for table in (rows, every))
        calls = calls.vstack(of_thread.filter(inside(spans(own_rows), of_thread)))
    return spans(rows), calls, view.used_ops.filter(pl.col("launch").is_in(calls["id"].implode()))


_FUNCTIONS: Final = "tanh|sigmoid|exp|expm1|exp2|log|log1p|log2|pow|sin|cos|erf|softplus|gelu|silu|mish"
_DRAWS: Final = "bernoulli|uniform|normal|log_normal|random|exponential|geometric|cauchy"


_CHANGES: Final[Mapping[Way, Callable[[Better, DeviceView], Change]]] = {
    "without": _without,
    "faster": _faster,
    "shorter": _faster,
    "overlapped": lambda of, view: overlapped(view.once(of.selector.rows)),
    "merged": lambda of, view: merged(
        view, view.once(of.selector.rows), "window", "copy_kind" if of.selector.kind == "copies" else "stream"
    ),
    "fused": _fused,
}
_WORDS: Final[Mapping[Way, Mapping[str, str]]] = table(__file__, "selection_gains")
METHODS: Final[Mapping[Way, str]] = {way: words["method"] for way, words in _WORDS.items()}
"""How the saving of each change is computed, for readers of a rule."""
