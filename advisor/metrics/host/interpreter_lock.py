"""Waits for Python's lock: the main thread sleeps between its ops while another thread of Python runs."""

from typing import Final

import polars as pl

from advisor.analysis.device.host_lines import WAITS, outside_ops, place_of, sampled
from advisor.analysis.device.unknowns import no_frames
from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.text import percent

_MOST: Final = 3


def _unknown(view: DeviceView) -> Missing | None:
    if view.process.get("threads") is None:
        return no_frames(view) or Missing("few_stack_samples", samples=0)
    return None


def _sleep(view: DeviceView) -> float:
    """The part of the time in which the main thread sleeps for nothing that is known while others run."""
    stacks = view.once(sampled)
    waits_ns = int(stacks.filter(pl.col("kind").is_in(WAITS))["ns"].sum())
    sleeps = float(view.process["sleep_share"] or 0) - waits_ns / max(1, int(stacks["ns"].sum()))
    others = sum(float(thread["share"]) for thread in view.process["threads"] or ())
    return max(0.0, min(sleeps, others))


def _threads(view: DeviceView) -> str:
    threads = sorted(view.process["threads"] or (), key=lambda thread: -thread["share"])[:_MOST]
    return ", ".join(f"{place_of(thread)} ({percent(thread['share'])} of the time)" for thread in threads)


measure = of_devices(__name__, unknown=_unknown)
measure("main_sleep_share", lambda view: view.process["sleep_share"]).says(
    "Part of the sampled time, without its waits for a CPU, in which the main thread does not run.",
    "1 - CPU time / (time while stacks were sampled - waits for a CPU), as `advisor record` notes",
    "/proc/self/task/*/schedstat",
)
measure("lock_wait_share", lambda view: min(view.once(_sleep), view.once(outside_ops))).says(
    "Part of the step in which the main thread waits, as far as is known, for Python's lock (GIL), which another has.",
    "the lesser of lock_sleep_share and the recorded time outside of the framework's "
    "ops, or with a device in which that idles",
    "a thread that waits for the lock sleeps (CPython, `ceval_gil`), and so does one that waits for the threads of an "
    "op, but within the op",
)
measure("lock_sleep_share", _sleep).says(
    "Part of the step in which the main thread sleeps while other threads of Python run.",
    "the lesser of main_sleep_share without the time in lines that wait for something else, and what other threads run",
    "as main_sleep_share",
)
measure("lock_threads", _threads, unit="text").says(
    "The other threads of Python that run most, where they are, and how much of the time they run.",
    "CPU time of each thread while stacks were sampled (`/proc/self/task/*/schedstat`), and its most frequent line",
)
