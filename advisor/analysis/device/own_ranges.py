"""Ranges that a program sets itself, `record_function("scores")` say: which of them holds most of some time."""

import re
from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device.host_work import training_ops
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import FRAMEWORK_RANGE
from advisor.model.intervals import Intervals
from advisor.model.profile import matches

_LIBRARY: Final = r"::|^(?:Torch-Compiled |Compiled|TorchDynamo|Pregraph|\[pl\])"
_PLAIN: Final = r"^[a-z_][a-z0-9_ .-]*$"  # XLA and TensorFlow set ranges of all names, but hardly of such
_XLA: Final = ("jax", "tensorflow")
_MOST: Final = 0.5  # of the time
_NEARLY_ALL: Final = 0.9  # of the steps: a range around nearly all of a step says nothing of a part of it


class Holder(NamedTuple):
    """A range, by its name without its numbers, and the share of the time that lies in it."""

    name: str
    share: float


def holder(view: DeviceView, when: Intervals) -> Holder | None:
    """The shortest of the program's own ranges that holds more than half of the time `when`; None where none does."""
    ranges = view.once(own_ranges)
    long_enough = ranges.group_by("label").agg(pl.sum("dur_ns")).filter(pl.col("dur_ns") > _MOST * when.total)
    holders = []
    for (label,), of_label in ranges.join(long_enough, on="label", how="semi").group_by("label", maintain_order=True):
        covered = spans(of_label)
        length, share = covered.within(view.starts, view.ends).sum(), (covered & when).total / max(1, when.total)
        if share > _MOST and length <= _NEARLY_ALL * view.total_ns:
            holders.append((int(length), Holder(str(label), share)))
    return min(holders)[1] if holders else None


def is_own(view: DeviceView, name: str) -> bool:
    """Whether a range of this name may be the program's own, not one of its framework or of a library."""
    is_foreign = re.search(FRAMEWORK_RANGE, name) or re.search(_LIBRARY, name)
    return not is_foreign and bool(view.process.get("framework") not in _XLA or re.search(_PLAIN, name))


def own_ranges(view: DeviceView) -> pl.DataFrame:
    """The program's own ranges on the training threads: label, start_ns, dur_ns; without those that mark the steps."""
    marks = view.complete.select(start_ns="host_start_ns", dur_ns="mark_ns")
    ranges = view.once(training_ops).filter(pl.col("kind") == "annotation")
    ranges = ranges.filter(~matches(FRAMEWORK_RANGE), ~matches(_LIBRARY))
    if view.process.get("framework") in _XLA:
        ranges = ranges.filter(matches(_PLAIN))
    label = pl.col("name").cast(pl.String).str.replace_all(r"\d+", "#")
    return ranges.join(marks, on=marks.columns, how="anti").select("start_ns", "dur_ns", label=label)
