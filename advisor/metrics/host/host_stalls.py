"""Host work that leaves the device idle on end, and what it did meanwhile."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_work import (
    optimizer_work,
    thread_waits,
    waiting_function,
    waits_for_results,
)
from advisor.analysis.device.idle import stalls
from advisor.analysis.device.time_by_name import in_words, times_by_range
from advisor.analysis.device.unknowns import unknown_waits
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.calls import RESULT_WAIT
from advisor.metrics.metric import of_devices
from advisor.model.intervals import Intervals
from advisor.model.missing import Missing
from advisor.whatif import ELSE, Change, saved, without

_REST_OF_STALL: Final = (0.5, 0.0)
_NEEDS: Final = ("device_ops", "device_ops.launch", "host_ops")
_SILENT_SHARE: Final = 0.05  # of the recording, as for idle time of unknown cause


def _ran(view: DeviceView) -> pl.DataFrame:
    return times_by_range(view, view.once(stalls))


def _unknown(view: DeviceView) -> Missing | None:
    if why := view.once(unknown_waits):
        return why
    silent = int(view.once(_ran).filter(pl.col("name").is_null())["self_ns"].sum()) / view.total_ns
    if view.steps.height == 1 and silent >= _SILENT_SHARE:
        return Missing("silent_host", share=silent)
    return _awaited(view, view.once(stalls))


def _awaited(view: DeviceView, idle: Intervals) -> Missing | None:
    """Most of the time, the host waits for a result: what it waits for launches late, and is not the host's work.

    Where no step is marked, a host that waits for another thread or for a socket may have nothing to do.
    """
    waiting = idle & view.once(waits_for_results)
    resting = idle & view.once(thread_waits)
    if not view.has_marks and _is_most(resting, idle):
        return Missing("thread_wait", share=resting.total / view.total_ns, range=waiting_function(view, resting))
    if not _is_most(waiting, idle):
        return None
    longest = view.host_like(RESULT_WAIT, "python", "annotation").sort("dur_ns", descending=True)
    return Missing("result_wait", share=waiting.total / view.total_ns, range=str(longest["name"][0]))


def _is_most(part: Intervals, total: Intervals) -> bool:
    return bool(part.total and 2 * part.total >= total.total)


def _part_of_stalls(view: DeviceView, when: Intervals) -> float:
    idle = view.once(stalls)
    return (when & idle).total / max(1, idle.total)


def _launching(view: DeviceView) -> Intervals:
    """Calls that launched something, and the framework ops right around them: no other thread could do this work."""
    calls = view.host_of(view.ops["launch"])
    around = view.host_of(calls["parent"]).filter(pl.col("kind") == "op")
    inner = view.host.lazy().filter(pl.col("kind") == "op").select("parent").collect()
    return spans(pl.concat([calls, around.filter(~pl.col("id").is_in(inner["parent"].implode()))]))


def _unstalled(view: DeviceView) -> Change:
    idle = view.once(stalls) - _launching(view)
    return without(host=idle, rest=_REST_OF_STALL, bound_ns=idle.total)


of_stalls = of_devices(__name__, needs=_NEEDS, unknown=_unknown)
of_stalls("stall_causes", lambda view: in_words(view, view.once(_ran)), unit="text").says(
    "What the host did while the device idled for over {launch_gap} on end, as far as it was recorded.",
    "the three outermost ranges with the most time in host-bound gaps of over {launch_gap}, of those that lie in them "
    "for half of their time or more; otherwise by their own time; and the time in which none was open",
)
of_stalls("stall_update_part", lambda view: _part_of_stalls(view, view.once(optimizer_work))).says(
    "How much of the idle time of over {launch_gap} on end passes while the host updates parameters.",
    "host-bound gaps of over {launch_gap} inside `Optimizer.step#`, behind its closure's backward pass if there is one"
    " / all of them; 0 without such gaps",
)
of_stalls.saving("stall", lambda view: saved(view, _unstalled(view))).says(
    "moving the host's work out of gaps of over {launch_gap}",
    f"replay with half of the host's time in those gaps, but for launching{ELSE}0",
    f"replay without the host's time in those gaps, but for launching{ELSE}the gaps without that",
    "half: own choice",
    "",
)
