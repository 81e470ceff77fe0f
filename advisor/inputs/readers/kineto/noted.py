"""What `advisor record` adds to a trace: step times without the profiler and with it, cores, worker processes."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from advisor.model.notes import Note

_BUSY = 0.2  # of a recorded step
_SHORTEST_MS, _LONGEST_MS = 1e-6, 1e9  # a nanosecond, 11 days

Time = Annotated[float, msgspec.Meta(ge=_SHORTEST_MS, le=_LONGEST_MS)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_MS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]


class Noted(NamedTuple):
    """Median steps before, after and in the recording, in ms; cores and loader processes; None where not noted.

    `run_delay_ms` is what a recorded step waited for a CPU because of other programs, on average; `own_delay_ms` what
    it waited because of the job itself.
    """

    before_ms: float | None = None
    after_ms: float | None = None
    profiled_ms: float | None = None
    cpus: int | None = None
    loader_workers: int | None = None
    run_delay_ms: float | None = None
    own_delay_ms: float | None = None


class _Unprofiled(msgspec.Struct):
    before_ms: Time | None = None
    after_ms: Time | None = None


class _Profiled(msgspec.Struct):
    step_ms: Time | None = None
    run_delay_ms: Wait | None = None
    own_delay_ms: Wait | None = None


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
    before_ms, after_ms, profiled, job = of.unprofiled.before_ms, of.unprofiled.after_ms, of.profiled, of.job
    delays = profiled.run_delay_ms, profiled.own_delay_ms
    return Noted(before_ms, after_ms, profiled.step_ms, job.cpus, job.loader_workers, *delays)


def busy_machine(of: Noted) -> Note | None:
    """A note where a recorded step waited long for a CPU."""
    if not of.run_delay_ms or not of.profiled_ms or of.run_delay_ms < _BUSY * (of.profiled_ms + of.run_delay_ms):
        return None
    return Note("busy_machine", delay=of.run_delay_ms)
