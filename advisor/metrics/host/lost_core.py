"""Time that some steps lose where the others make the same calls at once: the host's thread has no core then.

Steps that launch the same ops in the same order are laid over each other, launch by launch. What one takes beyond the
median of all, while the device idles, has no cause in the work: a cause in it comes back at its place.
"""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.arrays import Ints
from advisor.model.missing import Missing
from advisor.vocabulary.limits import LAUNCH_GAP_NS

_FEWEST_STEPS: Final = 4
_OTHER_CAUSES: Final = ("compile", "start_up", "gc", "allocator", "collective")


class Losses(NamedTuple):
    """One row per loss: from when until when, in which step, before which launch of it, and its length in ns."""

    start: Ints
    end: Ints
    step: Ints
    place: Ints
    length: Ints


_NOTHING: Final = Losses(*(np.empty(0, np.int64) for _ in range(5)))


def _losses(view: DeviceView) -> Losses | None:
    """Those of over 1 ms; None where fewer than four steps, or not all of them, launch the same."""
    steps = view.complete
    begin, until = steps["host_start_ns"].to_numpy(), (steps["host_start_ns"] + steps["host_dur_ns"]).to_numpy()
    ops = view.ops.select("name", id="launch").drop_nulls("id").unique("id", keep="first", maintain_order=True)
    calls = view.host.select("id", "start_ns", "dur_ns").join(ops, on="id").sort("start_ns")
    start, returned = calls["start_ns"].to_numpy(), (calls["start_ns"] + calls["dur_ns"]).to_numpy()
    step = np.searchsorted(begin, start, side="right") - 1
    rows = [np.flatnonzero((step == number) & (start < end)) for number, end in enumerate(until)]
    names = [calls["name"].gather(of_step).to_list() for of_step in rows]
    if len(rows) < _FEWEST_STEPS or not names[0] or any(of_step != names[0] for of_step in names):
        return None
    end = returned[np.array(rows)]
    before = np.column_stack((np.maximum(begin, np.concatenate((begin[:1], end[:-1, -1]))), end[:, :-1]))
    known = view.busy | view.host_spans(*_OTHER_CAUSES)
    idle = end - before - known.within(before.ravel(), end.ravel()).reshape(end.shape)
    beyond = idle - np.rint(np.median(idle, axis=0)).astype(np.int64)
    of, place = np.nonzero(beyond > LAUNCH_GAP_NS)
    return Losses(before[of, place], end[of, place], of, place, beyond[of, place])


def _unknown(view: DeviceView) -> Missing | None:
    return Missing("steps_launch_differently") if view.once(_losses) is None else None


def _known(view: DeviceView) -> Losses:
    losses = view.once(_losses)
    return _NOTHING if losses is None else losses


def _stretches(view: DeviceView) -> pl.DataFrame:
    losses = _known(view)
    return pl.DataFrame({"start_ns": losses.start, "dur_ns": losses.end - losses.start})


def _most_at_one_place(view: DeviceView) -> float:
    losses = _known(view)
    return float(np.bincount(losses.place, losses.length).max(initial=0) / max(1, losses.length.sum()))


measure = of_devices(__name__, needs=("device_ops", "device_ops.launch", "host_ops"), unknown=_unknown)
measure(
    "core_lost_ms",
    lambda view: float(_known(view).length.sum()) / view.complete.height / 1e6,
    where=as_places(_stretches, "host_ops", name=pl.lit("the host stops")),
).says(
    "Time per step in which the device idles where it does not in other steps, though the host makes the same calls.",
    "of steps that launch the same ops in the same order: the time between the returns of two launches in which the "
    "device idles, outside of compilation, start-up, garbage collection, allocation and collectives, beyond its median "
    "over the steps, where that is over 1 ms; summed / complete steps",
    "own simulated jobs whose host loses its core at random: 0.98 to 1.02 of what that costs; at most 0.7 % of the "
    "step in public recordings of 20 jobs, but for one with 2.3 %, and one whose first step alone stops",
)
measure("core_lost_places", lambda view: len(np.unique(_known(view).place)), unit="count").says(
    "Before how many launches of the step the host stops so.",
    "number of different launches that core_lost_ms is before",
)
measure("core_lost_steps", lambda view: len(np.unique(_known(view).step)), unit="count").says(
    "In how many steps the host stops so.", "number of steps with time in core_lost_ms"
)
measure("core_lost_top_part", _most_at_one_place).says(
    "Part of that time before the launch of the step that has most of it: what a program does at times has its place.",
    "the most time of core_lost_ms before one launch of the step / all of it; 0 without any",
)
