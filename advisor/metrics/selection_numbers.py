"""What a selection measures: its share of the step, how often it runs, how long, and which names it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from advisor.analysis.device.links import bytes_per_step
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import BY_NAME, Metric, Value
from advisor.metrics.selection_kinds import OF_KIND, Kind
from advisor.metrics.selectors import Selector
from advisor.model.clause import Missing
from advisor.model.intervals import Intervals
from advisor.vocabulary.limits import table

_WORDS: Final[Mapping[str, Mapping[str, str]]] = table(__file__, "selection_numbers")


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
            about = _WORDS[end]
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


def _steps_share(of: Selector, view: DeviceView) -> Value:
    return view.once(of.rows)["window"].n_unique() / view.steps.height if view.has_marks else Missing("no_marks")


_GIVES: Final[Mapping[str, Callable[[Selector, DeviceView], Value]]] = {
    "share": lambda of, view: _part(of, view, view.once(of.spans)),
    "ms": lambda of, view: view.per_step_ms((view.once(of.spans) & of.steps(view)).total),
    "whole_share": lambda of, view: _part(of, view, view.once(of.open)),
    "per_step": lambda of, view: view.once(of.rows).height / view.steps.height,
    "runs_per_step": lambda of, view: view.once(of.rows)["run"].n_unique() / view.steps.height,
    "repeats": lambda of, view: view.once(of.rows).height / max(1, view.once(of.rows).n_unique(["name", "shapes"])),
    "bytes_per_step": lambda of, view: bytes_per_step(view, view.once(of.rows)),
    "steps_share": _steps_share,
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
ENDS: Final = tuple(_GIVES)
"""What the names of a selection's metrics end in."""
