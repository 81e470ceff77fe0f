"""Waits of a step for other threads, processes and hosts, where Python's functions were recorded."""

from typing import Final

from advisor.analysis.device.host_work import (
    between_ops,
    logging_frames,
    saving_frames,
    thread_waits,
    waiting_calls,
    waiting_function,
)
from advisor.analysis.device.places import places
from advisor.analysis.device.time_by_name import in_words, times_by_name
from advisor.analysis.device.unknowns import no_frames
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.missing import Missing

_SILENT_SHARE: Final = 0.05  # of the recording, as for idle time of unknown cause


def _waiting(view: DeviceView) -> Intervals:
    if view.device is not None:
        return EMPTY
    elsewhere = view.host_spans("op", "collective") | spans(saving_frames(view)) | spans(logging_frames(view))
    return (between_ops(view, view.steps) & thread_waits(view)) - elsewhere


def _unknown(view: DeviceView) -> Missing | None:
    """Without marked steps, what waits for long may be idle."""
    if view.device is not None:
        return None
    if why := no_frames(view):
        return why
    waiting = view.once(_waiting)
    share = waiting.total / view.total_ns
    is_known = view.has_marks or share < _SILENT_SHARE
    return None if is_known else Missing("thread_wait", share=share, range=waiting_function(view, waiting))


measure = of_devices(__name__, unknown=_unknown)
measure(
    "thread_wait_share",
    lambda view: view.once(_waiting).total / view.total_ns,
    where=lambda view: places(view, waiting_calls(view)),
).says(
    "Part of the step in which a worker without a device waits for another thread, process or host, or for time.",
    "time of the built-in functions acquire, sleep, poll, select, epoll_wait and recv* on the steps' thread, outside "
    "of ops of any thread, input, compilation, collectives, logging and saving / step time; 0 with a device",
    "own choice: without marked steps unknown from 5 % on, because what waits may be idle",
)
measure(
    "waiting_calls",
    lambda view: in_words(view, times_by_name(view, view.once(_waiting)).drop_nulls("name")),
    unit="text",
).says(
    "In which functions the step waits so, each with the function of the user's own code around it.",
    "those with the most time, then the others",
)
