"""Step times that `advisor record` adds to a trace: without the profiler and with it."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

_SHORTEST_MS, _LONGEST_MS = 1e-6, 1e9  # a nanosecond, 11 days

Time = Annotated[float, msgspec.Meta(ge=_SHORTEST_MS, le=_LONGEST_MS)]


class StepTimes(NamedTuple):
    """Median steps before, after and in the recording, in ms; None where they were not timed."""

    before_ms: float | None = None
    after_ms: float | None = None
    profiled_ms: float | None = None


class _Unprofiled(msgspec.Struct):
    before_ms: Time | None = None
    after_ms: Time | None = None


class _Profiled(msgspec.Struct):
    step_ms: Time | None = None


class _Block(msgspec.Struct):
    format: Literal[1]
    unprofiled: _Unprofiled
    profiled: _Profiled


def step_times(block: object) -> StepTimes:
    """The times in the block; none of another format, or of one that is malformed in any part."""
    try:
        times = msgspec.convert(block, _Block)
    except msgspec.ValidationError:
        return StepTimes()
    return StepTimes(times.unprofiled.before_ms, times.unprofiled.after_ms, times.profiled.step_ms)
