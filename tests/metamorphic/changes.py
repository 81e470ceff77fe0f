"""Ways to record the same job otherwise: each makes another Kineto document of one, and none changes what is true."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

Event = dict[str, Any]
Document = dict[str, Any]
Change = Callable[[Document], Document]

_DEVICE: Final = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset", "gpu_user_annotation"}
_OPS: Final = _DEVICE - {"gpu_user_annotation"}
_STEP: Final = re.compile(r"^ProfilerStep\s*#\s*\d+$")
_SHAPES: Final = re.compile(r"^(?:Input (?:Dims|type|Strides)|Concrete Inputs)$")
_STACKS: Final = re.compile(r"^(?:Call stack|Python .*id|Module .*)$")
_SIZES: Final = re.compile(r"^(?:bytes|memory bandwidth .*|In msg nelems|Out msg nelems|In split size|Out split size)$")
_FEWEST: Final = 4


def _timed(document: Document) -> Iterator[Event]:
    return (event for event in document["traceEvents"] if event.get("ph") == "X" and "dur" in event)


def _is_step(event: Event) -> bool:
    return _STEP.match(str(event.get("name"))) is not None and event.get("cat") not in _DEVICE


def _with(document: Document, change: Callable[[Event], Event | None]) -> Document:
    events = (change(dict(event)) for event in document["traceEvents"])
    return document | {"traceEvents": [event for event in events if event is not None]}


def permuted_ids(document: Document) -> Document:
    """Other numbers for threads and streams."""

    def change(event: Event) -> Event:
        if isinstance(event.get("tid"), int) and event["tid"]:
            event["tid"] = 900_001 - event["tid"] if event.get("cat") in _DEVICE else event["tid"] ^ 0x5A5
        if isinstance(stream := event.get("args", {}).get("stream"), int) and event.get("cat") in _DEVICE:
            event["args"] = event["args"] | {"stream": 900_001 - stream}
        return event

    return _with(document, change)


def clock_of_device(offset_us: float) -> Change:
    """The device's clock is off by so much."""

    def change(event: Event) -> Event:
        is_arrival = event.get("ph") == "f" and event.get("cat") in {"ac2g", "async_gpu"}
        if event.get("cat") in _DEVICE or is_arrival:
            event["ts"] = float(event["ts"]) + offset_us
        return event

    return lambda document: _with(document, change)


def other_namespaces(document: Document) -> Document:
    """A fork of the libraries: their kernels' namespaces lie in another one."""

    def change(event: Event) -> Event:
        if event.get("cat") in _OPS and "::" in event["name"]:
            event["name"] = re.sub(r"^(void )?(?=\w+::)", r"\1acme::", event["name"])
        return event

    return _with(document, change)


def marks(part: float) -> Change:
    """Marks that end after this part of their time; above 1, that reach towards the next one if there is room."""

    def change(document: Document) -> Document:
        begins = sorted(float(event["ts"]) for event in _timed(document) if _is_step(event))
        after = dict(pairwise(begins))

        def resized(event: Event) -> Event:
            if "dur" in event and _is_step(event):
                start, length = float(event["ts"]), float(event["dur"])
                room = after.get(start, start + length) - start
                event["dur"] = length * part if part < 1 else max(length, min(room, length * part))
            return event

        return _with(document, resized)

    return change


def idle_process(document: Document) -> Document:
    """Another process that was recorded too, and does nothing."""
    spans = [(float(event["ts"]), float(event["ts"]) + float(event["dur"])) for event in _timed(document)]
    start, end = min(a for a, _ in spans), max(b for _, b in spans)
    beat = {"ph": "X", "cat": "user_annotation", "name": "heartbeat", "pid": 77_001, "tid": 77_001, "args": {}}
    beats = [beat | {"ts": start + i * (end - start) / 5, "dur": 1.0} for i in range(5)]
    return document | {"traceEvents": [*document["traceEvents"], *beats]}


def scaled(factor: float) -> Change:
    """A machine that is slower or faster by so much in all it does."""

    def change(document: Document) -> Document:
        zero = min(float(event["ts"]) for event in _timed(document))

        def stretched(event: Event) -> Event:
            if event.get("ts") is not None and event.get("ph") != "M":
                event["ts"] = zero + (float(event["ts"]) - zero) * factor
            if "dur" in event:
                event["dur"] = float(event["dur"]) * factor
            return event

        return _with(document, stretched)

    return change


def without_annotations(document: Document) -> Document:
    """Nothing that people or the framework marked: no steps, no optimizer, no loader."""
    gone = {"user_annotation", "gpu_user_annotation"}
    return _with(document, lambda event: None if event.get("cat") in gone or _is_step(event) else event)


def _without(pattern: re.Pattern[str]) -> Change:
    def change(event: Event) -> Event:
        if "args" in event and isinstance(event["args"], dict):
            event["args"] = {name: value for name, value in event["args"].items() if not pattern.match(name)}
        return event

    return lambda document: _with(document, change)


def without_stacks(document: Document) -> Document:
    """No Python frames, and no stacks on ops."""
    frames = _with(document, lambda event: None if event.get("cat") == "python_function" else event)
    return _without(_STACKS)(frames)


without_shapes: Change = _without(_SHAPES)
without_sizes: Change = _without(_SIZES)


def cut_steps(document: Document) -> Document | None:
    """The recording begins amid the second step and ends amid the last but one; None where too few would remain."""
    steps = sorted((float(e["ts"]), float(e["dur"])) for e in _timed(document) if _is_step(e))
    if len(steps) < _FEWEST + 3:
        return None
    begin, end = steps[1][0] + steps[1][1] / 2, steps[-2][0] + steps[-2][1] / 2
    return _between(document, begin, end)


def halves(document: Document) -> list[Document] | None:
    """One recording in two files, the second from where the first ends; None where a half has too few steps."""
    starts = sorted(float(event["ts"]) for event in _timed(document) if _is_step(event))
    if len(starts) < 2 * _FEWEST:
        return None
    middle = starts[len(starts) // 2]
    return [_between(document, float("-inf"), middle), _between(document, middle, float("inf"))]


def _between(document: Document, begin: float, end: float) -> Document:
    """What begins in that time; a device op goes with the call that launched it."""
    calls = {
        event["args"]["correlation"]: float(event["ts"])
        for event in _timed(document)
        if event.get("cat") not in _DEVICE and event.get("args", {}).get("correlation")
    }

    def change(event: Event) -> Event | None:
        if event.get("ph") == "M" or event.get("ts") is None:
            return event
        at = float(event["ts"])
        if event.get("cat") in _OPS:
            at = calls.get(event.get("args", {}).get("correlation"), at)
        return event if begin <= at < end else None

    return _with(document, change)


KEPT: Final[dict[str, Change]] = {
    "other numbers of threads and streams": permuted_ids,
    "the device's clock 300 ms ahead": clock_of_device(300_000),
    "the device's clock 300 ms behind": clock_of_device(-300_000),
    "kernels in another namespace": other_namespaces,
    "narrower marks": marks(0.9),
    "wider marks": marks(1.5),
    "an idle process beside": idle_process,
    "times x 0.95": scaled(0.95),
    "times x 1.05": scaled(1.05),
}
"""Changes under which a verdict stays what it is."""

WITHHELD: Final[dict[str, Callable[[Document], Document | list[Document] | None]]] = {
    "no annotations": without_annotations,
    "no shapes": without_shapes,
    "no stacks": without_stacks,
    "no sizes": without_sizes,
    "cut steps": cut_steps,
    "a file in two": halves,
}
"""Changes that take something away: a verdict stays, or is withheld with the reason."""
