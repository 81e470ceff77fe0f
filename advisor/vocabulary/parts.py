"""The parts of a step: what each is, how it is drawn, and the pools that savings come out of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from advisor.vocabulary.limits import LAUNCH_GAP

Pool: TypeAlias = Literal[
    "compute", "memcpy", "memset", "collective", "input", "compile",
    "gc_idle", "allocator_idle", "sync_idle", "launch_gap", "host_busy", "queued_idle", "dependency_idle",
    "outliers", "callback", "host_ops", "host_work", "skew", "pipeline_wait",
]  # fmt: skip
POOLS: Final[Mapping[str, str]] = {
    "compute": "the time in which kernels run",
    "memcpy": "the time in which copies run, and no kernel",
    "memset": "the time in which only memsets run",
    "collective": "the time in which only communication runs",
    "input": "the wait for the data loader",
    "compile": "the time in which code is compiled",
    "gc_idle": "the time in which the GPU idles during garbage collection",
    "allocator_idle": "the time in which the GPU idles while memory is allocated or freed",
    "sync_idle": "the time in which the GPU idles after the host has waited for it",
    "launch_gap": f"the time in which the GPU waits up to {LAUNCH_GAP} for a launch",
    "host_busy": "the time in which the GPU waits longer for a launch",
    "queued_idle": "the pauses between queued kernels",
    "dependency_idle": "the time in which the GPU waits for another stream, device or rank",
    "outliers": "what uneven steps add to the mean step",
    "callback": "the time in which compiled code calls Python",
    "host_ops": "the framework's ops on the CPU",
    "host_work": "the CPU's work outside of the framework's ops",
    "skew": "the time in which ranks wait for the latest of them",
    "pipeline_wait": "the time in which ranks wait for another to send or receive",
}
"""Parts of a step that savings come out of; no two of them share time, nor two findings the same time of one.

`outliers`, `skew` and `pipeline_wait` are not of one worker's usual steps: the first is what left-out steps add to the
mean of all, the others are the job's. `callback`, `host_ops` and `host_work` are of a worker without a device.
"""

LONG: Final = "long_steps"
"""The part of the mean step that uneven steps add."""

SKEW: Final = "skew"
"""Of these, what ranks lose because they are not equally long."""


@dataclass(frozen=True, slots=True)
class Colour:
    """A colour of parts: on a light page, on a dark one, and a terminal's style."""

    light: str
    dark: str
    style: str


@dataclass(frozen=True, slots=True)
class Look:
    """How a part is drawn: its colour, which parts of one kind share, and its glyph in text."""

    colour: Colour
    glyph: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the period in the accounting: `words` complete "62 % of each step is ...", `short` is for a line.

    `pools` are those of savings that come out of it. What is not useful is a loss; `remedy` is what to do about one
    that no rule judges.
    """

    code: str
    short: str
    words: str
    look: Look
    pools: tuple[str, ...] = ()
    is_useful: bool = False
    remedy: str = ""


# Blue where the device works, warm where it waits for the host, grey where nobody knows.
_COMPUTE: Final = Colour("#3b4fd8", "#8495ff", "cyan")
_MEMCPY: Final = Colour("#7d8bf0", "#5767d6", "magenta")
_MEMSET: Final = Colour("#b4bdf5", "#3a458f", "bright_magenta")
_COLLECTIVE: Final = Colour("#1d2875", "#b0bbff", "blue")
_INPUT: Final = Colour("#e08a1e", "#f0a04b", "red")
_LAUNCH: Final = Colour("#f0cf45", "#f2dc72", "yellow")
_HOST: Final = Colour("#b8391b", "#e2552f", "bright_red")
_COMPILE: Final = Colour("#0a5c52", "#258a76", "bright_yellow")
_GC: Final = Colour("#7442ad", "#8036b4", "bright_blue")
_ALLOCATOR: Final = Colour("#84553d", "#a8794f", "bright_green")
_SYNC: Final = Colour("#c44a8f", "#f6a9ce", "green")
_DEPENDENCY: Final = Colour("#3399b4", "#4ba3c9", "bright_cyan")
_QUEUED: Final = Colour("#adb4c2", "#6d6f85", "white")
_UNKNOWN: Final = Colour("#dde1e8", "#333944", "white")

PARTS: Final = {
    part.code: part
    for part in (
        Part("compute", "kernels", "kernels at work", Look(_COMPUTE, "█"), ("compute",), is_useful=True),
        Part("memcpy", "copies", "copies that no kernel overlaps", Look(_MEMCPY, "▓"), ("memcpy",)),
        Part("memset", "memsets", "memsets that no kernel overlaps", Look(_MEMSET, "▒"), ("memset",)),
        Part(
            "collective",
            "communication",
            "communication that no computation overlaps",
            Look(_COLLECTIVE, "░"),
            ("collective", "skew", "pipeline_wait"),
        ),
        Part("input", "input", "waiting for the data loader", Look(_INPUT, "─"), ("input",)),
        Part(
            "compile",
            "compilation",
            "waiting for code to be compiled",
            Look(_COMPILE, "┄"),
            ("compile", "once"),
            remedy="Record later steps; if those compile too, keep the shapes of the inputs and all Python arguments.",
        ),
        Part(
            "pipeline_build",
            "pipeline start",
            "the start of a tf.data pipeline, whose functions are built",
            Look(_INPUT, "╌"),
            ("compile", "once"),
            remedy="Make the dataset and its iterator once, before the loop.",
        ),
        Part("gc", "garbage collection", "waiting for Python's garbage collector", Look(_GC, "%"), ("gc_idle",)),
        Part(
            "allocator",
            "allocation",
            "waiting for device memory to be allocated or freed",
            Look(_ALLOCATOR, "+"),
            ("allocator_idle",),
        ),
        Part(
            "sync",
            "synchronising",
            "idle time after the host has waited for the device",
            Look(_SYNC, "~"),
            ("sync_idle",),
        ),
        Part(
            "launch_gap",
            "launching",
            f"idle time of up to {LAUNCH_GAP} each before the next launch",
            Look(_LAUNCH, "═"),
            ("launch_gap",),
        ),
        Part(
            "host_busy",
            "host",
            f"idle time in which the host launches nothing for over {LAUNCH_GAP}",
            Look(_HOST, "·"),
            ("host_busy",),
        ),
        Part("queued", "pauses", "pauses before ops that are queued", Look(_QUEUED, ":"), ("queued_idle",)),
        Part(
            "dependency",
            "dependencies",
            "waiting for another stream, device or rank",
            Look(_DEPENDENCY, "="),
            ("dependency_idle",),
        ),
        Part("unrecorded", "work not recorded", "waiting for work that was not recorded", Look(_QUEUED, "?")),
        Part(
            "start_up",
            "start-up",
            "the start of CUDA or HIP and the loading of kernels, which happen once",
            Look(_COMPILE, "^"),
            ("once",),
            remedy="Record later, after a warm-up.",
        ),
        Part("unknown", "cause not recorded", "idle time whose cause was not recorded", Look(_UNKNOWN, "/")),
        Part("callback", "Python callbacks", "Python that compiled code calls", Look(_GC, "%"), ("callback",)),
        Part(
            "no_cpu",
            "no CPU",
            "waiting for a CPU",
            Look(_DEPENDENCY, "n"),
            remedy="Record on a quiet machine, or give the job more cores.",
        ),
        Part(
            "other_programs",
            "other programs",
            "waiting for a CPU that other programs use",
            Look(_DEPENDENCY, "o"),
            remedy="Record on a quiet machine.",
        ),
        Part("own_processes", "own processes", "waiting for a CPU that the job itself keeps busy", Look(_SYNC, "x")),
        Part("between", "outside of ops", "host time outside of the framework's ops", Look(_HOST, "·"), ("host_work",)),
        Part(LONG, "long steps", "what long steps take more than usual ones", Look(_GC, "!"), ("outliers",)),
        Part("operators", "ops", "ops at work on the CPU", Look(_COMPUTE, "█"), ("host_ops",), is_useful=True),
    )
}
"""The parts of the period, disjoint, in the order in which an instant is given to the first of them."""

LOOKS: Final = {
    **{code: part.look for code, part in PARTS.items()},
    "network": Look(_COLLECTIVE, "░"),
    "read": Look(_INPUT, "─"),
    "sleep": Look(_QUEUED, "."),
    "wait": Look(_SYNC, "~"),
    "decode": Look(_HOST, "▓"),
    "transform": Look(_COMPUTE, "█"),
    "collate": Look(_LAUNCH, "="),
    "transport": Look(_DEPENDENCY, ">"),
    "pin": Look(_MEMCPY, "▒"),
}
"""How parts of the period are drawn, and stages of loading a batch."""

DELAYED: Final = ("callback", "between", "operators")
"""Parts that take longer while other programs use the CPU: the work of a worker without a device."""

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
