"""Time that some steps lose where the others make the same calls at once: the host's thread has no core then.

Steps that launch the same ops in the same order are laid over each other, launch by launch; without a device, op by op.
What one takes beyond the median of all, and twice as long, has no cause in the work: a cause in it comes back at its
place. With a device only the time counts in which that idles.
"""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_work import training_ops
from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, bounds, host_bounds, outermost
from advisor.metrics.metric import lacking, of_devices
from advisor.model.clause import Missing
from advisor.vocabulary.limits import LAUNCH_GAP_NS

_FEWEST_STEPS: Final = 4
_OTHER_CAUSES: Final = ("compile", "start_up", "gc", "allocator", "collective")


_COLUMNS: Final = ("start_ns", "dur_ns", "step", "place", "lost_ms")


def _launches(view: DeviceView) -> pl.DataFrame:
    """The calls that launch the device's ops, by the ops' names."""
    ops = view.ops.select("name", id="launch").drop_nulls("id").unique("id", keep="first", maintain_order=True)
    return view.host.select("id", "start_ns", "dur_ns").join(ops, on="id").sort("start_ns")


def _ops_of_shapes(view: DeviceView) -> pl.DataFrame:
    """The ops that run in no other, by their names and shapes."""
    ops = view.once(training_ops).filter(pl.col("kind") == "op", pl.col("shapes").is_not_null())
    return outermost(ops).with_columns(name=pl.format("{} {}", "name", "shapes")).sort("start_ns")


def _losses(view: DeviceView) -> pl.DataFrame | Missing:
    """Those of over 1 ms, with the launch of the step that each is before (`place`), and what it adds to the mean step.

    Missing where fewer than four steps, or not all of them, launch the same.
    """
    begin, until = host_bounds(view.lasting)
    calls = view.once(_ops_of_shapes if view.device is None else _launches)
    start, returned = bounds(calls)
    step = np.searchsorted(begin, start, side="right") - 1
    rows = [np.flatnonzero((step == number) & (start < end)) for number, end in enumerate(until)]
    names = [calls["name"].gather(of_step).to_list() for of_step in rows]
    if len(rows) < _FEWEST_STEPS or not names[0] or any(of_step != names[0] for of_step in names):
        return Missing("steps_launch_differently")
    end = returned[np.array(rows)]
    before = np.column_stack((np.maximum(begin, np.concatenate((begin[:1], end[:-1, -1]))), end[:, :-1]))
    causes = view.host_spans(*_OTHER_CAUSES)
    known = causes | (view.host_spans("input") if view.device is None else view.busy)
    took = end - before - known.within(before.ravel(), end.ravel()).reshape(end.shape)
    usual = np.rint(np.median(took, axis=0)).astype(np.int64)
    beyond = took - usual
    is_noted = view.device is None and view.process.get("run_delay_ms") is not None
    of, place = np.nonzero((beyond > np.maximum(usual, LAUNCH_GAP_NS)) & (not is_noted))
    columns = before[of, place], (end - before)[of, place], of, place, beyond[of, place] / 1e6 / len(rows)
    return pl.DataFrame(dict(zip(_COLUMNS, columns, strict=True)))


def _places(view: DeviceView) -> pl.DataFrame:
    losses = view.once(_losses)
    return pl.DataFrame(schema=_COLUMNS) if isinstance(losses, Missing) else losses


def _most_at_one_place(losses: pl.DataFrame) -> float:
    of_places = losses.group_by("place").agg(pl.sum("lost_ms"))["lost_ms"].to_numpy()
    return float(of_places.max() / of_places.sum()) if len(of_places) else 0.0


_lacks = lacking(no_shapes=lambda view: view.device is None and not view.once(_ops_of_shapes).height)
measure = of_devices(__name__, needs=("host_ops",), unknown=_lacks).parts_of(_losses)
measure(
    "core_lost_ms",
    lambda losses: float(losses["lost_ms"].sum()),
    where=as_places(_places, "host_ops", name=pl.lit("the host stops")),
).says(
    "Time per step in which the device idles where it does not in other steps, though the host makes the same calls; "
    "without a device, what ops take beyond other steps.",
    "of steps that launch the same ops in the same order: the time between the returns of two launches in which the "
    "device idles, outside of compilation, start-up, garbage collection, allocation and collectives, beyond its median "
    "over the steps, where that is over 1 ms and over the median; summed / steps. Without a device: of steps that run "
    "the same ops on the same shapes, the time between the ends of two ops, outside of requests for input too; 0 if "
    "`advisor record` noted the waits for a core, which other rules judge",
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
