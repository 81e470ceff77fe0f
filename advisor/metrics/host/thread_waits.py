"""Waits of a step for other threads, processes and hosts, where Python's functions were recorded."""

from __future__ import annotations

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
from advisor.metrics.old import Metric, Values, measures
from advisor.model.missing import Missing

_SILENT_SHARE: Final = 0.05  # of the recording, as for idle time of unknown cause

THREAD_WAIT_SHARE = Metric(
    "thread_wait_share",
    "Part of the step in which a worker without a device waits for another thread, process or host, or for time.",
    "time of the built-in functions acquire, sleep, poll, select, epoll_wait and recv* on the steps' thread, outside "
    "of ops of any thread, input, compilation, collectives, logging and saving / step time; 0 with a device",
    "own choice: without marked steps unknown from 5 % on, because what waits may be idle",
    where=lambda view: places(view, waiting_calls(view)),
)
WAITING_CALLS = Metric(
    "waiting_calls",
    "In which functions that is, each with the function of the user's own code around it.",
    "those with the most time, then the others",
    unit="text",
)


@measures(THREAD_WAIT_SHARE, WAITING_CALLS)
def waits(view: DeviceView) -> Values:
    """Waits in functions of Python."""
    if view.device is not None:
        return {THREAD_WAIT_SHARE: 0.0, WAITING_CALLS: ""}
    if why := no_frames(view):
        return why
    elsewhere = view.host_spans("op", "collective") | spans(saving_frames(view)) | spans(logging_frames(view))
    waiting = (between_ops(view, view.steps) & thread_waits(view)) - elsewhere
    share = waiting.total / view.total_ns
    if not view.has_marks and share >= _SILENT_SHARE:
        return Missing("thread_wait", share=share, range=waiting_function(view, waiting))
    return {
        THREAD_WAIT_SHARE: share,
        WAITING_CALLS: in_words(view, times_by_name(view, waiting).drop_nulls("name")),
    }
