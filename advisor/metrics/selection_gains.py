"""What a change to selected rows saves: without them, faster, behind kernels, or several of them in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import polars as pl

from advisor.analysis.device.host_work import training_ops
from advisor.analysis.device.view import DeviceView, inside, spans
from advisor.metrics.metric import Metric
from advisor.metrics.selectors import Selector
from advisor.model.intervals import Intervals
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.whatif import WORDS, Change, Interval, faster, loss, merged, overlapped, saved, together, without

Way: TypeAlias = Literal["without", "faster", "overlapped", "merged"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)
OF_DEVICE: Final[tuple[Way, ...]] = ("overlapped", "merged")
"""Those that only what runs on the device can be."""


@dataclass(frozen=True)
class Better:
    """A change to what is selected; `times` as fast, at least and at most, if that is `faster`."""

    selector: Selector
    way: Way
    times: tuple[float, float] = (1.0, 1.0)

    def __call__(self, view: DeviceView) -> Interval:
        """What it saves per step."""
        return saved(view, _WAYS[self.way].change(self, view))

    def metrics(self, name: str) -> Iterator[Metric]:
        """`<name>_least_gain_ms` and `<name>_gain_ms`."""
        way, (least, most) = _WAYS[self.way], self.times
        formula = way.formula.format(words=self.selector.words, least=f"{least:g}", most=f"{most:g}")
        for position, (end, words) in enumerate((("least_gain", "at least"), ("gain", "at most"))):
            yield Metric(
                f"{name}_{end}_ms",
                f"Step time that is saved {words} if what the rule selects {way.words}.",
                formula,
                of=_End(self, position),
                needs=self.selector.needs,
                topic="selections",
                unknown=self.selector.unknown,
            )


@dataclass(frozen=True)
class _End:
    better: Better
    position: int

    def __call__(self, view: DeviceView) -> float:
        return view.once(self.better)[self.position]


def _without(of: Better, view: DeviceView) -> Change:
    rows = view.once(of.selector.rows)
    if of.selector.kind == "calls":
        return without(calls=rows["id"], bound_ns=_within(view, spans(rows) - view.busy))
    if not of.selector.is_of_host:
        bare_ns = _within(view, spans(rows) - view.device_spans("kernel", "collective"))
        alone_ns = _within(view, spans(rows)) if of.selector.kind == "kernels" else bare_ns
        return without(calls=rows["launch"], ops=rows, bound_ns=(alone_ns, alone_ns))
    work = _work(view, rows)
    bound_ns = _within(view, work.when if view.device is None else spans(work.launched))
    return without(host=work.when, calls=work.calls["id"], ops=work.launched, bound_ns=(bound_ns, bound_ns))


def _faster(of: Better, view: DeviceView) -> Change:
    rows, rests = view.once(of.selector.rows), tuple(1 / times for times in of.times)
    if not of.selector.is_of_host:
        return faster(rows, *(pl.col("dur_ns") * part for part in rests))
    if view.device is None:
        took_ns = _within(view, view.once(of.selector.spans))
        return loss(*((1 - part) * took_ns for part in rests))
    work = _work(view, rows)
    host = without(host=work.when, rest=(rests[0], rests[1]))
    return together(host, faster(work.launched, *(pl.col("dur_ns") * part for part in rests)))


class _Work(NamedTuple):
    """What ops of the steps' threads do: when, the calls that they make, and the device ops that these launch."""

    when: Intervals
    calls: pl.DataFrame
    launched: pl.DataFrame


def _work(view: DeviceView, rows: pl.DataFrame) -> _Work:
    rows = rows.join(view.once(training_ops).select("id"), on="id", how="semi")
    every = view.host.filter(pl.col("kind").is_in(DRIVER_CALLS)) if rows.height else view.host.clear()
    calls = every.clear()
    for thread in rows["thread"].unique():
        own_rows, of_thread = (table.filter(pl.col("thread").eq_missing(thread)) for table in (rows, every))
        calls = calls.vstack(of_thread.filter(inside(spans(own_rows), of_thread)))
    return _Work(spans(rows), calls, view.used_ops.filter(pl.col("launch").is_in(calls["id"].implode())))


def _within(view: DeviceView, when: Intervals) -> float:
    return float(when.within(view.starts, view.ends).sum())


METHODS: Final[dict[Way, str]] = {
    "without": (
        "The recorded steps are replayed without it, without the calls that it makes and without what these launch. "
        "If the replay cannot be trusted, the saving is its own time."
    ),
    "faster": (
        "The recorded steps are replayed with it so many times as fast, at the least and at the most. If the replay "
        "cannot be trusted, the least is nothing, and the most is the time that it loses."
    ),
    "overlapped": (
        "The recorded steps are replayed with all of it behind kernels. If the replay cannot be trusted, the least is "
        "nothing, and the most is its time."
    ),
    "merged": (
        "The recorded steps are replayed with the first of each step and stream in place of all. If the replay cannot "
        "be trusted, the saving is the time of the others that no kernel hides."
    ),
}
"""How the saving of each change is computed, for readers of a rule."""


class _Of(NamedTuple):
    words: str
    formula: str
    change: Callable[[Better, DeviceView], Change]


_WAYS: Final[dict[Way, _Of]] = {
    "without": _Of(
        "is left out",
        f"the steps without {{words}}, their calls and what these launch{WORDS['without_work']}",
        _without,
    ),
    "faster": _Of(
        "is faster",
        f"{{words}} {{least}} times as fast at least, {{most}} times at most{WORDS['faster']}",
        _faster,
    ),
    "overlapped": _Of(
        "runs while kernels do",
        f"{{words}} behind kernels{WORDS['overlapped']}",
        lambda of, view: overlapped(view.once(of.selector.rows)),
    ),
    "merged": _Of(
        "is done at once",
        f"the first of {{words}} in each step and stream in place of all{WORDS['merged']}",
        lambda of, view: merged(view, view.once(of.selector.rows), "window", "stream"),
    ),
}
