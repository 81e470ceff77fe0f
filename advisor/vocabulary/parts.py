"""The parts of a step, by parts.yaml: what each is, how it is drawn, and the pools that savings come out of.

Why a device idles, by idle_causes.yaml: the causes, how each is decided, and their words. Each is a part, too.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from advisor.vocabulary.limits import LAUNCH_GAP_NS, table, with_limits

# Parts of a step that savings come out of: see parts.yaml
Pool: TypeAlias = Literal[
    "compute", "memcpy", "memset", "collective", "input", "compile",
    "gc_idle", "allocator_idle", "sync_idle", "launch_gap", "host_busy", "queued_idle", "dependency_idle",
    "paging_idle", "unrecorded_idle",
    "outliers", "callback", "host_ops", "host_work", "own_processes", "skew", "pipeline_wait",
]  # fmt: skip
LONG: Final = "long_steps"  # the part of the mean step that uneven steps add
SKEW: Final = "skew"  # of these, what ranks lose because they are not equally long


UNMARKED: Final = "the time used"  # what sentences call the window of a recording without steps


class Colour(msgspec.Struct, frozen=True):
    """A colour of parts: on a light page, on a dark one, and a terminal's style."""

    light: str
    dark: str
    style: str


class Look(msgspec.Struct, frozen=True):
    """How a part is drawn: its colour, which parts of one kind share, and its glyph in text."""

    colour: Colour
    glyph: str


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the period in the accounting."""

    code: str
    short: str  # for a line
    words: str  # they complete "62 % of each step is ..."
    look: Look
    pools: tuple[str, ...] = ()  # of savings that come out of it
    is_useful: bool = False  # else it is a loss
    remedy: str = ""  # what to do about a loss that no rule judges


class _Parts(msgspec.Struct, forbid_unknown_fields=True):
    colours: dict[str, Colour]
    pools: dict[str, str]
    parts: list[Part]
    stages: dict[str, Look]


_WRITTEN: Final = msgspec.convert(table(__file__, "parts"), _Parts)
POOLS: Final = _WRITTEN.pools
# The parts of the period, disjoint, in the order in which an instant is given to the first of them
PARTS: Final = {part.code: part for part in _WRITTEN.parts}
# How parts of the period are drawn, and stages of loading a batch
LOOKS: Final = {code: part.look for code, part in PARTS.items()} | _WRITTEN.stages
# Parts that take longer while other programs use the CPU: the work of a worker without a device
DELAYED: Final = ("callback", "between", "operators")
WORK: Final = frozenset(pool for part in PARTS.values() if part.is_useful for pool in part.pools)
"""Pools of useful work: a model says how much faster it can be. Of the others the recording shows the time itself."""


def part_short(code: str) -> str:
    """A part of the period in one or two words; a code of another version stands for itself."""
    return PARTS[code].short if code in PARTS else code


def pool_short(pool: str) -> str:
    """The part of the bar that savings of a pool come out of, in one or two words."""
    return next((part.short for part in PARTS.values() if pool in part.pools), pool)


def part_gloss(code: str) -> str:
    """What to add to `part_short`: all of the words, or those that follow it in them."""
    return part_words(code).removeprefix(part_short(code)).strip()


def look(code: str) -> Look:
    """How a part or a stage is drawn; a code of another version like time whose cause nobody knows."""
    return LOOKS[code if code in LOOKS else "unknown"]


def variable(code: str) -> str:
    """The variable of a page's style that holds the colour of a part or a stage."""
    return f"--part-{code if code in LOOKS else 'unknown'}"


def part_words(code: str) -> str:
    """What a part of the period is; a code of another version stands for itself."""
    return PARTS[code].words if code in PARTS else code


class IdleCause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a device idles, as idle_causes.yaml has it."""

    meaning: str
    short: str
    rule: str
    is_host_range: bool = False


# Causes of idle time. Of the host's ranges the first to cover an instant owns it; the rest of a gap has one cause
IDLE_CAUSES: Final = msgspec.convert(table(__file__, "idle_causes"), dict[str, IdleCause])
IDLE_WORDS: Final = {code: cause.short for code, cause in IDLE_CAUSES.items() if code != "host_bound"} | {
    "launch_gap": IDLE_CAUSES["host_bound"].short,
    "host_busy": with_limits("the host launches nothing for over {launch_gap}"),
}
"""Idle time in a timeline, by the codes of `idle_part`."""


DEVICE_PARTS: Final = {"compute": "kernel"} | {part: part for part in ("memcpy", "memset", "collective", "graphics")}
"""By part of the step that the device works in, the kind of its ops; of what overlaps, the first counts."""


def idle_part(cause: str, dur_ns: int) -> str:
    """The cause of idle time as the accounting has it: what the host is late by is launching, or something else."""
    if cause != "host_bound":
        return cause
    return "launch_gap" if dur_ns <= LAUNCH_GAP_NS else "host_busy"


HOST_RANGES: Final = tuple(code for code, cause in IDLE_CAUSES.items() if cause.is_host_range)
"""Kinds of host ops that are causes."""
