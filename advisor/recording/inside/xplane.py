"""TensorFlow's and JAX's profilers, and the plane without events in which their file has what was measured."""

from __future__ import annotations

import glob
import json
import os
from typing import Any, Callable, Dict

from .profilers import OURS, Profiler

PLANE = "/advisor:"
"""What the plane's name begins with; the block follows it, as JSON."""

_PLANES, _NAME = b"\x0a", b"\x12"  # XSpace.planes and XPlane.name, which protobuf lets follow whatever is there
_SEVEN_BITS, _MORE = 0x7F, 0x80  # of a number's bytes


class XplaneProfiler(Profiler):
    """A profiler that writes its recording when it stops."""

    def __init__(self, folder: str, begin: Callable[[str], Any], end: Callable[[], Any]) -> None:
        self.folder, self.begin, self.end = folder, begin, end
        self.profiling = False

    def start(self) -> None:
        with OURS:
            self.begin(self.folder)
        self.profiling = True

    def halt(self) -> None:
        if self.profiling:
            self.profiling = False
            self.end()

    def export(self, block: Dict[str, Any]) -> str:
        """As `Profiler.export`; all is written by now but the block."""
        add(self.folder, block)
        return self.folder


def add(folder: str, block: Dict[str, Any]) -> None:
    """Add the block to the newest profile below the folder; nothing is left of it where the disk is full."""
    paths = glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb"))
    if not paths:
        return
    path = max(paths, key=os.path.getmtime)
    plane = _field(_NAME, (PLANE + json.dumps(block)).encode())
    size = os.path.getsize(path)
    try:
        with open(path, "ab") as stream:
            stream.write(_field(_PLANES, plane))
    except OSError:
        os.truncate(path, size)


def _field(tag: bytes, data: bytes) -> bytes:
    size, digits = len(data), []
    while size > _SEVEN_BITS:
        digits.append(size & _SEVEN_BITS | _MORE)
        size >>= 7
    return tag + bytes([*digits, size]) + data
