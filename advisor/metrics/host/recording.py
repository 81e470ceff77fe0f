"""What `advisor record` notes: the cost of recording, lines that take the time, waits for a lock, steps that grow."""

from math import hypot, sqrt
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.host_lines import FEW_SAMPLES, WAITS, Loss, losses, outside_ops, place_of, sampled
from advisor.analysis.device.places import places
from advisor.analysis.device.recording_cost import (
    OP_NS,
    RECORDED,
    long_factor,
    measured_share,
    recorded,
    slowdown,
    unprofiled_long_ms,
    unprofiled_ms,
)
from advisor.analysis.device.unknowns import no_frames
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.stacks import Kind, kinds
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.text import percent
from advisor.vocabulary.limits import LONG_SHARE

_FRAME_NS: Final = 200  # what recording a call of a Python function costs the host

measure = of_devices(__name__)


def _frames(view: DeviceView) -> int:
    kinds = view.once(recorded)
    return kinds.get("python", 0) + kinds.get("module", 0)


def _tracing_share(view: DeviceView) -> float:
    share, kinds = measured_share(view), view.once(recorded)
    cost = _FRAME_NS * _frames(view) + OP_NS * sum(kinds.get(kind, 0) for kind in RECORDED)
    return min(cost / view.total_ns, 1 - (view.share(view.busy) or 0.0)) if share is None else share


def _unprofiled_whole_ms(view: DeviceView) -> float | Missing | None:
    typical, long_ms = unprofiled_ms(view), unprofiled_long_ms(view)
    if isinstance(typical, Missing) or isinstance(long_ms, Missing):
        return typical
    return typical + long_ms if long_ms >= LONG_SHARE * typical else None


measure(
    "profiler_share",
    lambda view: view.share(view.host_spans("overhead") - view.busy),
    where=places(lambda view: view.host.filter(pl.col("kind") == "overhead")),
)
measure("tracing_share", _tracing_share)
measure("recorded_ratio", slowdown)
measure("unprofiled_step_ms", unprofiled_ms)
measure("unprofiled_long_ms", unprofiled_long_ms)
measure("unprofiled_whole_step_ms", _unprofiled_whole_ms)
measure("python_frames_per_step", lambda view: _frames(view) / view.steps.height)


_SIGMAS: Final = 2
_MOST_LINES: Final = 3
_LITTLE: Final = 0.02
_RECORDED: Final = 0.5
_BLOCKS: Final = 4
_OF_WAITS: Final = 1 / 3


def _unknown(view: DeviceView) -> Missing | None:
    if view.process.get("stacks") is None and view.host_samples.is_empty():
        return Missing("no_cpu_samples") if view.is_of_nsight else no_frames(view)
    samples = int(view.once(sampled)["samples"].sum())
    return Missing("few_stack_samples", samples=samples) if samples < FEW_SAMPLES else None


def _top(view: DeviceView) -> Loss | None:
    return next(iter(view.once(losses)), None)


def _share(view: DeviceView) -> float:
    return top.share if (top := view.once(_top)) else 0.0


def _kind(view: DeviceView) -> Kind | None:
    """Of its calls; none where nothing is known of them."""
    top = view.once(_top)
    return next((kind for kind in kinds() if top and kind.name == top.kind and kind.fix), None)


def _ends_ms(view: DeviceView) -> tuple[float, float]:
    """What is saved without the line, in ms: less and more twice the error; of recorded calls half, or all.

    The error has that of the samples, and what another hour may bring. To record Python's calls makes them longer.
    """
    share, step_ms = view.once(_share), view.per_step_ms(view.total_ns) * long_factor(view)
    samples = int(view.once(sampled)["samples"].sum())
    if not samples:
        return _RECORDED * share * step_ms, share * step_ms
    error = _SIGMAS * hypot(sqrt(share * (1 - share) / samples), share * view.once(_unsteadiness))
    return max(0.0, share - error) * step_ms, min(1.0, share + error) * step_ms


def _unsteadiness(view: DeviceView) -> float:
    """The relative error of a line's time from one hour to another, as far as blocks of steps and waits show it."""
    delay_ms, pace_ms = view.process.get("unprofiled_delay_ms") or 0.0, view.process.get("pace_ms") or ()
    ends_ms = [ms for ms in (view.process.get("before_ms"), view.process.get("after_ms")) if ms]
    blocks_ms = [*ends_ms, *(float(np.median(block)) for block in np.array_split(pace_ms, _BLOCKS) if len(block))]
    if not ends_ms:
        return 0.0
    waits = delay_ms / (delay_ms + float(np.mean(ends_ms)))
    return hypot(float(np.std(blocks_ms) / np.mean(blocks_ms)), _OF_WAITS * waits)


def _others(view: DeviceView) -> str:
    others = [loss for loss in view.once(losses)[1:] if loss.share >= _LITTLE]
    return ", ".join(f"{loss.place} ({percent(loss.share)})" for loss in others[:_MOST_LINES])


of_lines = of_devices(__name__, unknown=_unknown)
of_lines("line_share", _share)
of_lines("known_line_share", lambda view: view.once(_share) if view.once(_kind) else 0.0)
of_lines("line_place", lambda view: top.place if (top := view.once(_top)) else "", unit="text")
of_lines("line_words", lambda view: kind.words if (kind := view.once(_kind)) else "", unit="text")
of_lines("line_fix", lambda view: kind.fix if (kind := view.once(_kind)) else "", unit="text")
of_lines("line_is_needed", lambda view: int(bool((top := view.once(_top)) and top.is_needed)), unit="count")
of_lines("other_lines", _others, unit="text")
of_lines.saving("line", lambda view: view.once(_ends_ms))


_MOST: Final = 3


def _unknown_threads(view: DeviceView) -> Missing | None:
    is_known = view.process.get("threads") is not None
    return None if is_known else no_frames(view) or Missing("few_stack_samples", samples=0)


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


of_threads = of_devices(__name__, unknown=_unknown_threads)
of_threads("main_sleep_share", lambda view: view.process["sleep_share"])
of_threads("lock_wait_share", lambda view: min(view.once(_sleep), view.once(outside_ops)))
of_threads("lock_sleep_share", _sleep)
of_threads("lock_threads", _threads, unit="text")


_ENDS: Final = 2  # pieces at either end: the first and the last tenth
_STEADY: Final = 0.7  # of pairs of pieces, those of which the later one is longer, less those of which it is shorter


def _unknown_pace(view: DeviceView) -> Missing | None:
    return None if view.process.get("pace_ms") else Missing("short_pace")


def _pace_ends_ms(view: DeviceView) -> tuple[float, float]:
    """The step at the begin and at the end of the run; the former twice if it does not grow steadily."""
    pace = np.asarray(view.process["pace_ms"], np.float64)
    first, last = float(np.median(pace[:_ENDS])), float(np.median(pace[-_ENDS:]))
    longer = np.sign(pace[None, :] - pace[:, None])[np.triu_indices(len(pace), 1)]
    is_steady = len(longer) > 0 and longer.mean() >= _STEADY
    return (first, last) if is_steady else (first, first)


def _growth(view: DeviceView) -> float:
    first, last = view.once(_pace_ends_ms)
    return last / first


of_pace = of_devices(__name__, unknown=_unknown_pace)
of_pace("step_growth", _growth, unit="ratio")
of_pace("growth_first_ms", lambda view: view.once(_pace_ends_ms)[0])
of_pace("growth_last_ms", lambda view: view.once(_pace_ends_ms)[1])
of_pace("growth_first_step", lambda view: view.process["pace_steps"][0], unit="count")
of_pace("growth_last_step", lambda view: view.process["pace_steps"][-1], unit="count")
