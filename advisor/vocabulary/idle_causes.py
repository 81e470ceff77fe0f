"""Why a device idles: the causes, how each is decided, and their words. Each is a part of the step too: `parts.py`."""

from typing import Final

import msgspec

from advisor.vocabulary.limits import LAUNCH_GAP_NS, table, with_limits


class IdleCause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a device idles, as idle_causes.yaml has it."""

    meaning: str
    short: str
    rule: str
    is_host_range: bool = False


IDLE_CAUSES: Final = msgspec.convert(table(__file__, "idle_causes"), dict[str, IdleCause])
"""Causes of idle time. Of the host's ranges the first to cover an instant owns it; the rest of a gap has one cause."""

IDLE_WORDS: Final = {code: cause.short for code, cause in IDLE_CAUSES.items() if code != "host_bound"} | {
    "launch_gap": IDLE_CAUSES["host_bound"].short,
    "host_busy": with_limits("the host launches nothing for over {launch_gap}"),
}
"""Idle time in a timeline, by the codes of `idle_part`."""


def idle_part(cause: str, dur_ns: int) -> str:
    """The cause of idle time as the accounting has it: what the host is late by is launching, or something else."""
    if cause != "host_bound":
        return cause
    return "launch_gap" if dur_ns <= LAUNCH_GAP_NS else "host_busy"


HOST_RANGES: Final = tuple(code for code, cause in IDLE_CAUSES.items() if cause.is_host_range)
"""Kinds of host ops that are causes."""
