"""Why a device idles: the causes, how each is decided, and their words. Each is a part of the step too: `parts.py`."""

from dataclasses import dataclass
from typing import Final

from advisor.vocabulary.limits import (
    CODE_LOAD,
    LAUNCH_GAP,
    LAUNCH_GAP_NS,
    LONG_CALL,
    QUEUED_GAP,
    SET_UP,
    SLOW_CALL,
    UNRECORDED_WAIT,
)


@dataclass(frozen=True, slots=True)
class IdleCause:
    """Why a device idles: `meaning` completes "the device idles and ...", `rule` says how it is decided."""

    code: str
    meaning: str
    short: str
    rule: str
    host_range: bool = False


IDLE_CAUSES: Final = {
    cause.code: cause
    for cause in (
        IdleCause(
            "input",
            "the data loader is being asked for the next batch",
            "waits for the data loader",
            "an input range is open",
            host_range=True,
        ),
        IdleCause(
            "compile",
            "code is being compiled",
            "code is being compiled",
            "a compilation range is open",
            host_range=True,
        ),
        IdleCause(
            "start_up",
            "CUDA or HIP sets itself up or loads a kernel",
            "CUDA or HIP starts up",
            f"a call is open that takes {SET_UP} or more before the device's first op, or later, while the device does "
            f"nothing, {CODE_LOAD} or more at the first launch of a kernel, or {LONG_CALL} or more as hardly another; "
            "or the process goes through its program only once, and loads kernels to the end",
            host_range=True,
        ),
        IdleCause(
            "gc",
            "Python's garbage collector runs",
            "Python collects garbage",
            "a garbage collection is open",
            host_range=True,
        ),
        IdleCause(
            "allocator",
            "device memory is being allocated or freed",
            "device memory is allocated or freed",
            "a cudaMalloc, cudaFree or the like is open",
            host_range=True,
        ),
        IdleCause(
            "sync",
            "the host had waited for it and has launched nothing since",
            "the host had waited for the device",
            f"a synchronising call was open when the device ran dry; up to its return, where over {LAUNCH_GAP} follows",
        ),
        IdleCause(
            "host_bound",
            "the host has not yet launched the next op",
            "the next op is not launched yet",
            f"the call that launched the next op has not returned, or did up to {SLOW_CALL} before the op; where over "
            f"{LAUNCH_GAP} follows a wait, from the wait's return",
        ),
        IdleCause(
            "queued",
            "the next op is queued and about to start",
            "the next op is about to start",
            f"that call returned before; the gap is at most {QUEUED_GAP}",
        ),
        IdleCause(
            "dependency",
            "the next op is queued but waits for another stream, device or rank",
            "waits for another stream, device or rank",
            f"that call returned before the device ran dry and over {QUEUED_GAP} ago, or later and "
            f"over {SLOW_CALL} before the op",
        ),
        IdleCause(
            "unrecorded",
            "the next op is queued but waits for work that was not recorded",
            "waits for work that was not recorded",
            f"as dependency, for over {UNRECORDED_WAIT}, and the process uses no other device",
        ),
        IdleCause(
            "unknown",
            "the cause was not recorded",
            "the cause is unknown",
            "the next op's launch was not recorded, or the recording begins or ends there and marks no steps",
        ),
    )
}
"""Causes of idle time. Of the host's ranges the first to cover an instant owns it; the rest of a gap has one cause."""

IDLE_WORDS: Final = {code: cause.short for code, cause in IDLE_CAUSES.items() if code != "host_bound"} | {
    "launch_gap": IDLE_CAUSES["host_bound"].short,
    "host_busy": f"the host launches nothing for over {LAUNCH_GAP}",
}
"""Idle time in a timeline, by the codes of `idle_part`."""


def idle_part(cause: str, dur_ns: int) -> str:
    """The cause of idle time as the accounting has it: what the host is late by is launching, or something else."""
    if cause != "host_bound":
        return cause
    return "launch_gap" if dur_ns <= LAUNCH_GAP_NS else "host_busy"


HOST_RANGES: Final = tuple(cause.code for cause in IDLE_CAUSES.values() if cause.host_range)
"""Kinds of host ops that are causes."""
