"""Time that some steps lose where the others make the same calls at once: the host's thread has no core then.

Steps that launch the same ops in the same order are laid over each other, launch by launch. What one takes beyond the
median of all, while the device idles, has no cause in the work: a cause in it comes back at its place.
"""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, bounds, host_bounds
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.vocabulary.limits import LAUNCH_GAP_NS

_FEWEST_STEPS: Final = 4
_OTHER_CAUSES: Final = ("compile", "start_up", "gc", "allocator", "collective")


_COLUMNS: Final = ("start_ns", "dur_ns", "step", "place", "lost_ms")


def _losses(view: DeviceView) -> pl.DataFrame | Missing:
    """Those of over 1 ms, with the launch of the step that each is before (`place`), and what it adds to the mean step.

    Missing where fewer than four steps, or not all of them, launch the same.
    """
    begin, until = host_bounds(view.complete)
    ops = view.ops.select("name", id="launch").drop_nulls("id").unique("id", keep="first", maintain_order=True)
    calls = view.host.select("id", "start_ns", "dur_ns").join(ops, on="id").sort("start_ns")
    start, returned = bounds(calls)
    step = np.searchsorted(begin, start, side="right") - 1
    rows = [np.flatnonzero((step == number) & (start < end)) for number, end in enumerate(until)]
    names = [calls["name"].gather(of_step).to_list() for of_step in rows]
    if len(rows) < _FEWEST_STEPS or not names[0] or any(of_step != names[0] for of_step in names):
        return Missing("steps_launch_differently")
    end = returned[np.array(rows)]
    before = np.column_stack((np.maximum(begin, np.concatenate((begin[:1], end[:-1, -1]))), end[:, :-1]))
    known = view.busy | view.host_spans(*_OTHER_CAUSES)
    idle = end - before - known.within(before.ravel(), end.ravel()).reshape(end.shape)
    beyond = idle - np.rint(np.median(idle, axis=0)).astype(np.int64)
    of, place = np.nonzero(beyond > LAUNCH_GAP_NS)
    columns = before[of, place], (end - before)[of, place], of, place, beyond[of, place] / 1e6 / len(rows)
    return pl.DataFrame(dict(zip(_COLUMNS, columns, strict=True)))


def _places(view: DeviceView) -> pl.DataFrame:
    losses = view.once(_losses)
    return pl.DataFrame(schema=_COLUMNS) if isinstance(losses, Missing) else losses


def _most_at_one_place(losses: pl.DataFrame) -> float:
    of_places = losses.group_by("place").agg(pl.sum("lost_ms"))["lost_ms"].to_numpy()
    return float(of_places.max() / of_places.sum()) if len(of_places) else 0.0


measure = of_devices(__name__, needs=("device_ops", "device_ops.launch", "host_ops")).parts_of(_losses)
measure(
    "core_lost_ms",
    lambda losses: float(losses["lost_ms"].sum()),
    where=as_places(_places, "host_ops", name=pl.lit("the host stops")),
).says(
    "Time per step in which the device idles where it does not in other steps, though the host makes the same calls.",
    "of steps that launch the same ops in the same order: the time between the returns of two launches in which the "
    "device idles, outside of compilation, start-up, garbage collection, allocation and collectives, beyond its median "
    "over the steps, where that is over 1 ms; summed / complete steps",
    "own simulated jobs whose host loses its core at random: 0.98 to 1.02 of what that costs; at most 0.7 % of the "
    "step in public recordings of 20 jobs, but for one with 2.3 %, and one whose first step alone stops",
)
measure("core_lost_places", lambda losses: losses["place"].n_unique(), unit="count").says(
    "Before how many launches of the step the host stops so.",
    "number of different launches that core_lost_ms is before",
)
measure("core_lost_steps", lambda losses: losses["step"].n_unique(), unit="count").says(
    "In how many steps the host stops so.", "number of steps with time in core_lost_ms"
)
measure("core_lost_top_part", _most_at_one_place).says(
    "Part of that time before the launch of the step that has most of it: what a program does at times has its place.",
    "the most time of core_lost_ms before one launch of the step / all of it; 0 without any",
)
