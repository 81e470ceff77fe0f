"""Makes a long Kineto trace by repeating a short one: the same job, recorded for more steps."""

import gzip
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from isal import igzip

_GAP_US = 1000
_ONCE = ("Iteration Start: PyTorch Profiler", "Record Window End")
_NUMBER = re.compile(
    rb'("(?:ts|id|correlation|[Ee]xternal id|Python (?:parent )?id|Ev Idx)":|"name":"ProfilerStep ?#)(\d+)'
)

Event = dict[str, Any]
Numbers = npt.NDArray[np.int64]


def enlarge(short: Path, long: Path, size_bytes: int) -> None:
    """Write `long`, at least `size_bytes` of text, gzipped; every copy later in time and with its own ids and steps."""
    content = short.read_bytes()
    document = msgspec.json.decode(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    events = document.pop("traceEvents")
    once = [event for event in events if _stands_once(event)]
    template, numbers, strides = _template([event for event in events if not _stands_once(event)])
    unfinished = long.with_suffix(".part")
    with igzip.open(unfinished, "wb", compresslevel=1) as out:
        written = out.write(msgspec.json.encode(document)[:-1] + b',"traceEvents":[\n' + _lines(once))
        while written < size_bytes:
            written += out.write(b",\n" + template % tuple(numbers.tolist()))
            numbers += strides
        out.write(b"\n]}\n")
    unfinished.rename(long)


def _stands_once(event: Event) -> bool:
    return event.get("ph") == "M" or event.get("cat") == "Trace" or event.get("name") in _ONCE


def _lines(events: list[Event]) -> bytes:
    return b",\n".join(msgspec.json.encode(event) for event in events)


def _template(events: list[Event]) -> tuple[bytes, Numbers, Numbers]:
    """The events' text with a placeholder for each number that copies change; those numbers; what a copy adds."""
    text = _lines(events)
    found = _NUMBER.findall(text)
    names = np.array([name.lower().replace(b"parent ", b"") for name, _ in found])
    numbers = np.array([int(number) for _, number in found])
    strides = np.zeros_like(numbers)
    for name in np.unique(names):
        used = (names == name) & (numbers > 0)  # id 0 means none
        strides[used] = np.ptp(numbers[used]) + 1 if used.any() else 0
    starts = names == b'"ts":'
    ends_us = [event["ts"] + event.get("dur", 0) for event in events]
    strides[starts] = int(max(ends_us) - numbers[starts].min()) + _GAP_US
    return _NUMBER.sub(rb"\1%d", text.replace(b"%", b"%%")), numbers, strides
