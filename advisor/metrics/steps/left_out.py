"""What of the recording is in no step that counts: before the first, after the last, between them, and in start-up."""

from typing import Final, NamedTuple

import polars as pl

from advisor.analysis.device.own_ranges import own_ranges
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.metric import of_devices
from advisor.model.profile import END_NS
from advisor.text import ms

_WORTH_NAMING: Final = 0.01  # of the recording
_REPEATS: Final = 3
_START_UP: Final = "start-up"


class LeftOut(NamedTuple):
    """Time in no step that counts, in ns, by what it is; the largest first."""

    total_ns: int
    parts: dict[str, int]


def left_out(view: DeviceView) -> LeftOut:
    """The parts add up to the recording without the used steps, but for steps that overlap its edges on the device."""
    begin, end = view.recorded
    if not view.complete.height:
        return LeftOut(end - begin, {})
    start = view.complete["start_ns"].to_numpy()
    length = view.complete["dur_ns"].to_numpy()
    first, last = int(start[0]), int((start + length).max())
    is_from_start = view.process.get("work_start_ns") is not None
    in_steps, lasting = int(length.sum()), int(view.lasting["dur_ns"].sum())
    parts = {
        _START_UP if is_from_start else "before the first step" if view.has_marks else "before the work": first - begin,
        "first steps": in_steps - lasting,
        "between steps": last - first - in_steps,
        "after the last step" if view.has_marks else "after the work": end - last,
    }
    before, _, _, after = parts
    for zone, since, until in ((before, begin, first), (after, last, end)):
        for loop, ns in _other_loop(view, since, until).items():
            parts[loop], parts[zone] = parts.get(loop, 0) + ns, parts[zone] - ns
    ordered = sorted(((max(0, ns), what) for what, ns in parts.items()), reverse=True)
    return LeftOut(sum(ns for ns, _ in ordered), {what: ns for ns, what in ordered})


def _other_loop(view: DeviceView, since: int, until: int) -> dict[str, int]:
    """The program's own ranges that repeat in this time, those with most of it, by name; empty without any."""
    inside = view.once(own_ranges).filter(pl.col("start_ns") >= since, until >= END_NS)
    loops = inside.group_by("label").agg(pl.len(), pl.sum("dur_ns")).filter(pl.col("len") >= _REPEATS)
    longest = loops.sort("dur_ns", "label", descending=[True, False]).head(1)
    return {
        f"{times} `{label}`": int(spans(inside.filter(pl.col("label") == label)).total)
        for label, times, _ in longest.rows()
    }


def _share(view: DeviceView) -> float:
    return view.once(left_out).total_ns / max(1, view.recorded_ns)


def _words(view: DeviceView) -> str:
    least = _WORTH_NAMING * view.recorded_ns
    return ", ".join(f"{what} ({ms(ns / 1e6)})" for what, ns in view.once(left_out).parts.items() if ns >= least)


measure = of_devices(__name__)
measure("left_out_share", _share).says(
    "Part of the recording that is in none of the used steps.", "1 - length of the used steps / recorded_ms"
)
measure("left_out_parts", _words, unit="text").says(
    "What of the recording is in none of the used steps.",
    "the time before the first step, after the last, between steps, and of first steps that start up; apart the "
    "program's own ranges that repeat before or after the steps; those of 1 % of the recording or more, "
    "the largest first",
)
