"""The words of the field, each in one place: what a code means, how it is measured, and how it is drawn.

Code works with codes and numbers; `present/` and the rules' YAML turn them into sentences with what stands here.
Limits that sort time into categories stand here too; limits that fire a finding stand in its rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from advisor.text import ns

# ------------------------------------------------------------------------------------------------------------- limits

LAUNCH_GAP_NS: Final = 1_000_000
"""The longest gap that counts as the price of launching: in a longer one the host does something else."""

QUEUED_GAP_NS: Final = 5_000
"""A queued op starts this soon after the one before it (p90 of queued gaps in public H100 and B200 traces)."""

SLOW_CALL_NS: Final = 50_000
"""A runtime call that takes longer waits for something (HolisticTraceAnalysis' outlier threshold)."""

_LIMITS: Final = {
    "{launch_gap}": ns(LAUNCH_GAP_NS),
    "{queued_gap}": ns(QUEUED_GAP_NS),
    "{slow_call}": ns(SLOW_CALL_NS),
}
_GAP, _PAUSE, _SLOW = _LIMITS.values()


def with_limits(text: str) -> str:
    """A formula or a rule's text in which `{launch_gap}`, `{queued_gap}` and `{slow_call}` stand for these limits."""
    for name, limit in _LIMITS.items():
        text = text.replace(name, limit)
    return text


POINT_TO_POINT: Final = ("send", "recv")
"""Operations between two ranks, whatever the size of their group."""

XLA_FRAMEWORKS: Final = ("tensorflow", "jax")
"""Frameworks that compile with XLA, and whose users know XProf's pages."""

DRIVER_CALLS: Final = ("runtime", "sync", "allocator")
"""Kinds of host ops that are calls of CUDA's or HIP's API."""


# --------------------------------------------------------------------------------------------- categories of the step

CATEGORIES: Final = {
    "compute": "kernels run",
    "memcpy": "copies run, and no kernel",
    "memset": "only memsets run",
    "collective": "communication runs that no computation overlaps",
    "launch": "the device waits while the host is in a CUDA or HIP call",
    "input": "the step waits for the data loader",
    "compile": "the step waits for code to be compiled",
    "host": "the step waits for other host code",
    "other": "nothing that was recorded runs",
}
"""Categories that the frameworks' own tools sort a step into, in the order of PyTorch's, with what happens in each.

Metrics are called after them. What is shown is the accounting.
"""


# ----------------------------------------------------------------------------------------------------- causes of idle


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
            f"a synchronising call was open when the device ran dry; up to its return, where over {_GAP} follows",
        ),
        IdleCause(
            "host_bound",
            "the host has not yet launched the next op",
            "the next op is not launched yet",
            f"the call that launched the next op has not returned, or did up to {_SLOW} before the op; where over "
            f"{_GAP} follows a wait, from the wait's return",
        ),
        IdleCause(
            "queued",
            "the next op is queued and about to start",
            "the next op is about to start",
            f"that call returned before; the gap is at most {_PAUSE}",
        ),
        IdleCause(
            "dependency",
            "the next op is queued but waits for another stream or rank",
            "waits for another stream or rank",
            f"that call returned before the device ran dry and over {_PAUSE} ago, or later and over {_SLOW} before the "
            "op",
        ),
        IdleCause(
            "unrecorded",
            "the next op is queued but waits for work that was not recorded",
            "waits for work that was not recorded",
            f"as dependency, for over {_GAP}, and the process uses no other device",
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
    "host_busy": f"the host launches nothing for over {_GAP}",
}
"""Idle time in a timeline, by the codes of `idle_part`."""


def idle_part(cause: str, dur_ns: int) -> str:
    """The cause of idle time as the accounting has it: what the host is late by is launching, or something else."""
    if cause != "host_bound":
        return cause
    return "launch_gap" if dur_ns <= LAUNCH_GAP_NS else "host_busy"


HOST_RANGES: Final = tuple(cause.code for cause in IDLE_CAUSES.values() if cause.host_range)
"""Kinds of host ops that are causes."""


# ------------------------------------------------------------------------------------------------------- kinds of work

WORKLOADS: Final = {
    "training": "training",
    "inference": "inference",
    "serving": "serving",
    "capture": "capture of CUDA graphs",
    "benchmark": "one kernel repeated",
}
"""Kinds of work as a report names them."""

SIGNS: Final = {
    "backward_ops": "ops of a backward pass",
    "backward_kernels": "kernels of a backward pass or an update of parameters",
    "optimizer_calls": "calls of an optimizer",
    "training_ranges": "ranges named after training",
    "engine_steps": "steps of a serving engine",
    "engine_code": "code of a serving engine",
    "speculation": "speculative decoding",
    "cache_kernels": "kernels that read or write a cache of keys and values",
    "inference_kernels": "kernels of inference only",
    "inference_ranges": "ranges named after inference",
    "forward_only": "matrix products without autograd",
    "graph_capture": "half of the host's time or more in captures",
    "one_kernel": "one kernel takes nearly all of the time, again and again",
    "option": "the option `--workload`",
}
"""What shows a kind of work."""


PHASES: Final = {
    "prefill": "prefill",
    "decode": "decode",
    "mixed": "prefill and decode",
    "verify": "check of drafts",
    "unnamed": "not known",
}
"""Phases of a server's steps as a report names them."""


# -------------------------------------------------------------------------------------------------------------- pools

POOLS: Final = {
    "compute": "the time in which kernels run",
    "memcpy": "the time in which copies run, and no kernel",
    "memset": "the time in which only memsets run",
    "collective": "the time in which only communication runs",
    "input": "the wait for the data loader",
    "compile": "the time in which code is compiled",
    "gc_idle": "the time in which the GPU idles during garbage collection",
    "allocator_idle": "the time in which the GPU idles while memory is allocated or freed",
    "sync_idle": "the time in which the GPU idles after the host has waited for it",
    "launch_gap": f"the time in which the GPU waits up to {_GAP} for a launch",
    "host_busy": "the time in which the GPU waits longer for a launch",
    "queued_idle": "the pauses between queued kernels",
    "dependency_idle": "the time in which the GPU waits for another stream or rank",
    "outliers": "what uneven steps add to the mean step",
    "callback": "the time in which compiled code calls Python",
    "host_ops": "the framework's ops on the CPU",
    "host_work": "the CPU's work outside of the framework's ops",
    "skew": "the time in which ranks wait for the latest of them",
    "pipeline_wait": "the time in which ranks wait for another to send or receive",
}
"""Parts of a step that savings come out of; no two findings are promised the same time of one."""

SKEW: Final = "skew"
"""Of these, what ranks lose because they are not equally long."""


# --------------------------------------------------------------------------------------------------------- accounting

HEALTHY_SHARE: Final = 0.9
"""With so much of the period in useful work that no finding shortens, and no loss to name, a job is called healthy.

Own choice: public traces of jobs that experts call healthy are at work for 91 to 99 % of their time.
"""


@dataclass(frozen=True, slots=True)
class Look:
    """How a part is drawn: a colour variable of the page; a terminal's glyph, and the style that it has there."""

    colour: str
    glyph: str
    style: str


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


SHAPES: Final = {"high": "▲", "medium": "◆", "low": "●"}
"""How a severity is drawn in text."""

_GREY: Final = "white"
UNKNOWN_LOOK: Final = Look("unknown", "/", _GREY)
"""Of time whose cause nobody knows, and of parts of another version."""

PARTS: Final = {
    part.code: part
    for part in (
        Part("compute", "kernels", "kernels at work", Look("compute", "█", "cyan"), ("compute",), is_useful=True),
        Part("memcpy", "copies", "copies that no kernel overlaps", Look("memcpy", "▓", "magenta"), ("memcpy",)),
        Part(
            "memset", "memsets", "memsets that no kernel overlaps", Look("memset", "▒", "bright_magenta"), ("memset",)
        ),
        Part(
            "collective",
            "communication",
            "communication that no computation overlaps",
            Look("collective", "░", "blue"),
            ("collective", "skew", "pipeline_wait"),
        ),
        Part("input", "input", "waiting for the data loader", Look("input", "─", "red"), ("input",)),
        Part(
            "compile",
            "compilation",
            "waiting for code to be compiled",
            Look("compile", "┄", "bright_yellow"),
            ("compile", "once"),
            remedy="Record later steps; if those compile too, keep the shapes of the inputs and all Python arguments.",
        ),
        Part(
            "pipeline_build",
            "pipeline start",
            "the start of a tf.data pipeline, whose functions are built",
            Look("input", "╌", "red"),
            ("compile", "once"),
            remedy="Make the dataset and its iterator once, before the loop.",
        ),
        Part(
            "gc",
            "garbage collection",
            "waiting for Python's garbage collector",
            Look("gc", "%", "bright_blue"),
            ("gc_idle",),
        ),
        Part(
            "allocator",
            "allocation",
            "waiting for device memory to be allocated or freed",
            Look("allocator", "+", "bright_green"),
            ("allocator_idle",),
        ),
        Part(
            "sync",
            "waits",
            "idle time after the host has waited for the device",
            Look("sync", "~", "green"),
            ("sync_idle",),
        ),
        Part(
            "launch_gap",
            "launching",
            f"idle time of up to {_GAP} each before the next launch",
            Look("launch", "═", "yellow"),
            ("launch_gap",),
        ),
        Part(
            "host_busy",
            "host",
            f"idle time in which the host launches nothing for over {_GAP}",
            Look("host", "·", "bright_red"),
            ("host_busy",),
        ),
        Part("queued", "pauses", "pauses before ops that are queued", Look("queued", ":", _GREY), ("queued_idle",)),
        Part(
            "dependency",
            "dependencies",
            "waiting for another stream, device or rank",
            Look("dependency", "=", "bright_cyan"),
            ("dependency_idle",),
        ),
        Part("unrecorded", "work not recorded", "waiting for work that was not recorded", Look("queued", "?", _GREY)),
        Part(
            "start_up",
            "start-up",
            "the start of CUDA or HIP, which happens once",
            Look("compile", "^", "bright_yellow"),
            ("once",),
        ),
        Part("unknown", "cause not recorded", "idle time whose cause was not recorded", UNKNOWN_LOOK),
        Part(
            "callback",
            "Python callbacks",
            "Python that compiled code calls",
            Look("gc", "%", "bright_blue"),
            ("callback",),
        ),
        Part(
            "no_cpu",
            "no CPU",
            "waiting for a CPU",
            Look("dependency", "n", "bright_cyan"),
            remedy="Record on a quiet machine, or give the job more cores.",
        ),
        Part(
            "other_programs",
            "other programs",
            "waiting for a CPU that other programs use",
            Look("dependency", "o", "bright_cyan"),
            remedy="Record on a quiet machine.",
        ),
        Part(
            "own_processes",
            "own processes",
            "waiting for a CPU that the job itself keeps busy",
            Look("sync", "x", "green"),
        ),
        Part(
            "between",
            "outside of ops",
            "host time outside of the framework's ops",
            Look("host", "·", "bright_red"),
            ("host_work",),
        ),
        Part("operators", "ops", "ops at work on the CPU", Look("compute", "█", "cyan"), ("host_ops",), is_useful=True),
    )
}
"""The parts of the period, disjoint, in the order in which an instant is given to the first of them."""

DELAYED: Final = ("callback", "between", "operators")
"""Parts that take longer while other programs use the CPU: the work of a worker without a device."""

WORK: Final = frozenset(pool for part in PARTS.values() if part.is_useful for pool in part.pools)
"""Pools of useful work: a model says how much faster it can be. Of the others the recording shows the time itself."""


def part_short(code: str) -> str:
    """A part of the period in one or two words; a code of another version stands for itself."""
    return PARTS[code].short if code in PARTS else code


def part_gloss(code: str) -> str:
    """What to add to `part_short`: all of the words, or those that follow it in them."""
    return part_words(code).removeprefix(part_short(code)).strip()


def look(code: str) -> Look:
    """How a part of the period is drawn."""
    return PARTS[code].look if code in PARTS else UNKNOWN_LOOK


def part_words(code: str) -> str:
    """What a part of the period is; a code of another version stands for itself."""
    return PARTS[code].words if code in PARTS else code


# ------------------------------------------------------------------------------------------------------ left-out steps

LEFT_OUT: Final = {
    "no_end": "the recording ends before the step does",
    "no_device_work": "none of its device work was recorded",
    "kernels_absent": "it or the step before it launched kernels that were not recorded",
    "ended_early": "the recording ended before the device work did",
    "began_before": "it began before the recording, which lacks its first launches",
    "file_cut": "the file ends early and may lack device work",
    "outside": "outside --steps",
    "compiled": "code was compiled",
    "queue_filling": "the first recorded step, {length:ms}: the device's queue was still empty",
    "first_uses": "the first recorded step, {length:ms}: start-up and first uses of kernels take {of:ms} of it",
    "cold_ops": "the first recorded step, {length:ms}: its usual ops take {of:ms} longer",
    "outlier": "an outlier of {length:ms}; the median is {of:ms}",
}
"""Why a recorded step is not used: `length` is the step's, `of` the time that the code speaks of."""

START_UP: Final = ("queue_filling", "first_uses", "cold_ops")
"""Why a first step is left out whose length the steps after it do not have."""


# ------------------------------------------------------------------------------- why no recording shows what is in use

UNSEEN: Final = {
    "environment": "it has no environment variables",
    "code": "it shows what ran, not how the program asks for it",
    "machine": "it does not show how the machine is set up",
    "data": "it does not show how the data are stored",
    "option": "no profiler records this option",
    "elsewhere": "the answer lies outside of it",
}
"""Why a recording cannot show whether a job has a fix already."""

SIDES: Final = {
    ">=": "at",
    ">": "above",
    "<": "below",
    "<=": "up to",
    "=": "at",
    "<>": "other than",
    "!=": "other than",
}
"""Where a rule fires, by how its condition compares a metric with a limit."""
