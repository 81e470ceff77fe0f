"""What a selection measures: its share of the step, how often it runs, how long, and which names it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Metric, Unit, Value
from advisor.metrics.selection_kinds import KINDS, OF_KIND, Kind
from advisor.metrics.selectors import Selector
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing


@dataclass(frozen=True)
class Measured:
    """One number of a selection; a value of its own, so that it travels to other processes."""

    selector: Selector
    end: str

    def __call__(self, view: DeviceView) -> Value:
        """The number of this view."""
        return _GIVES[self.end].of(self.selector, view)


def metrics(selector: Selector, name: str) -> Iterator[Metric]:
    """The metrics of a selection, those of ENDS that its kind has: `<name>_share`, `<name>_ms` and so on."""
    kind, words, needs = OF_KIND[selector.kind].words, selector.words, selector.needs
    for end, give in _GIVES.items():
        if selector.kind in (give.kinds or KINDS):
            yield Metric(
                f"{name}_{end}",
                Measured(selector, end),
                {"meaning": give.meaning.format(words=kind), "formula": give.formula.replace("{words}", words)},
                unit=give.unit,
                needs=needs,
                where=selector.places if end == "share" else None,
                topic="selections",
                unknown=selector.unknown,
            )


def _part(of: Selector, view: DeviceView, when: Intervals) -> Value:
    steps = of.steps(view)
    return (when & steps).total / steps.total if steps.total else None


def _median_us(of: Selector, view: DeviceView) -> Value:
    rows = view.once(of.rows)
    return float(np.median(rows["dur_ns"].to_numpy())) / 1e3 if rows.height else 0.0


def _steps_share(of: Selector, view: DeviceView) -> Value:
    return view.once(of.rows)["window"].n_unique() / view.steps.height if view.has_marks else Missing("no_marks")


def _repeats(of: Selector, view: DeviceView) -> Value:
    rows = view.once(of.rows)
    return rows.height / max(1, rows.select("name", "shapes").n_unique())


def _bytes_per_step(of: Selector, view: DeviceView) -> Value:
    rows = view.once(of.rows)
    return Missing("no_copy_sizes") if rows["bytes"].null_count() else float(rows["bytes"].sum()) / view.steps.height


class _Give(NamedTuple):
    """A metric of a selection: its value, and what it is; `kinds` are those that have it, all where none is given."""

    of: Callable[[Selector, DeviceView], Value]
    unit: Unit
    meaning: str
    formula: str
    kinds: tuple[Kind, ...] = ()


_GIVES: Final[dict[str, _Give]] = {
    "share": _Give(
        lambda of, view: _part(of, view, view.once(of.spans)),
        "share",
        "Part of the step in the {words} that the rule selects.",
        "union of the time of {words}, in the used steps (of ops their own, without ops right inside) / step time",
    ),
    "ms": _Give(
        lambda of, view: view.per_step_ms((view.once(of.spans) & of.steps(view)).total),
        "ms",
        "Time per step in the {words} that the rule selects.",
        "the same time of {words} / steps",
    ),
    "whole_share": _Give(
        lambda of, view: _part(of, view, view.once(of.open)),
        "share",
        "Part of the step in the {words} that the rule selects, with all within them.",
        "union of the ranges of {words}, in the used steps / step time",
        ("ops",),
    ),
    "per_step": _Give(
        lambda of, view: view.once(of.rows).height / view.steps.height,
        "number",
        "Selected {words} per step.",
        "number of {words} / steps",
    ),
    "runs_per_step": _Give(
        lambda of, view: view.once(of.rows)["run"].n_unique() / view.steps.height,
        "number",
        "Selected {words} per step, those counted once that follow each other.",
        "runs of {words} in a row on a stream over equally many elements / steps",
        ("kernels",),
    ),
    "repeats": _Give(
        _repeats,
        "number",
        "How often each of the selected {words} runs with inputs of one size.",
        "number of {words} / different names and shapes of them; 0 without any",
        ("ops",),
    ),
    "bytes_per_step": _Give(
        _bytes_per_step,
        "number",
        "Bytes per step of the {words} that the rule selects.",
        "sum of the bytes of {words} / steps",
        ("copies",),
    ),
    "steps_share": _Give(
        _steps_share,
        "share",
        "Part of the steps that have {words} that the rule selects.",
        "steps with {words} / steps",
    ),
    "count": _Give(
        lambda of, view: view.once(of.rows).height, "count", "Selected {words} in all used steps.", "number of {words}"
    ),
    "median_us": _Give(
        _median_us,
        "us",
        "Median length of the {words} that the rule selects.",
        "median of the durations of {words}; 0 without any",
    ),
    "names": _Give(Selector.in_words, "text", "Which {words} the rule selects.", "those of {words} with the most time"),
}
ENDS: Final = tuple(_GIVES)
"""What the names of a selection's metrics end in."""
