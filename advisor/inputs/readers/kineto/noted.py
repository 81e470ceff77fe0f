"""What `advisor record` adds to a trace: step times without the profiler and with it, cores, worker processes."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

_SHORTEST_MS, _LONGEST_MS = 1e-6, 1e9  # a nanosecond, 11 days

Time = Annotated[float, msgspec.Meta(ge=_SHORTEST_MS, le=_LONGEST_MS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]


class Noted(NamedTuple):
    """Median steps before, after and in the recording, in ms; cores and loader processes; None where not noted."""

    before_ms: float | None = None
    after_ms: float | None = None
    profiled_ms: float | None = None
    cpus: int | None = None
    loader_workers: int | None = None


class _Unprofiled(msgspec.Struct):
    before_ms: Time | None = None
    after_ms: Time | None = None


class _Profiled(msgspec.Struct):
    step_ms: Time | None = None


class _Job(msgspec.Struct):
    cpus: Count | None = None
    loader_workers: Count | None = None


class _Block(msgspec.Struct):
    format: Literal[1]
    unprofiled: _Unprofiled
    profiled: _Profiled
    job: _Job = msgspec.field(default_factory=_Job)


def noted(block: object) -> Noted:
    """What the block says; nothing of another format, or of one that is malformed in any part."""
    try:
        of = msgspec.convert(block, _Block)
    except msgspec.ValidationError:
        return Noted()
    times = of.unprofiled
    return Noted(times.before_ms, times.after_ms, of.profiled.step_ms, of.job.cpus, of.job.loader_workers)
