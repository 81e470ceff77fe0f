"""TensorFlow's and JAX's profilers, and the plane without events in which their file has what was measured."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, BinaryIO, Callable, Dict, Optional

from .files import free_name, process_name
from .profilers import OURS, Profiler
from .stacks import LOADING

PLANE = "/advisor:"  # what the plane's name begins with; the block follows it, as JSON
_PLANES, _NAME = b"\x0a", b"\x12"  # XSpace.planes and XPlane.name, which protobuf lets follow whatever is there
_HOSTNAMES, _BYTES = b"\x22", 2  # XSpace.hostnames; how all fields of an XSpace are written
_ENDING = ".xplane.pb"
_SEVEN_BITS, _MORE = 0x7F, 0x80  # of a number's bytes


class XplaneProfiler(Profiler):
    """A profiler that writes its recording when it stops."""

    def __init__(self, folder: str, begin: Callable[[str], Any], end: Callable[[], Any]) -> None:
        self.folder, self.begin, self.end = folder, begin, end
        self.profiling = False

    def start(self) -> None:
        with OURS:
            self.begin(self.folder)
        self.profiling, LOADING.range = True, self.range

    def halt(self) -> None:
        if self.profiling:
            self.profiling, LOADING.range = False, None
            self.end()

    def export(self, block: Dict[str, Any]) -> str:
        """As `Profiler.export`; all is written by now but the block."""
        if path := add(self.folder, block):
            unname(self.folder, path)
        return self.folder


def add(folder: str, block: Dict[str, Any]) -> Optional[str]:
    """Add the block to the newest profile below the folder, if any, whose path it gives; not where the disk is full."""
    paths = glob.glob(os.path.join(folder, "plugins", "profile", "*", "*" + _ENDING))
    if not paths:
        return None
    path = max(paths, key=os.path.getmtime)
    plane = _field(_NAME, (PLANE + json.dumps(block)).encode())
    size = os.path.getsize(path)
    try:
        with open(path, "ab") as stream:
            stream.write(_field(_PLANES, plane))
    except OSError:
        os.truncate(path, size)
    return path


def unname(folder: str, path: str) -> None:
    """Take the name of the host, which profilers write into a profile and call it by, out of it and off its files."""
    with open(path, "r+b") as stream:
        _mask_hosts(stream, os.path.getsize(path))
    run, host = os.path.dirname(path), os.path.basename(path)[: -len(_ENDING)]
    name = free_name(run, process_name(), _ENDING)
    of_host = re.compile(r"(?:^|(?<=\.))" + re.escape(host) + r"(?=\.)")
    for place in (run, folder):  # TensorFlow writes a file of events beside
        for file in os.listdir(place):
            renamed = of_host.sub(lambda _: name, file)
            if renamed != file:
                os.replace(os.path.join(place, file), os.path.join(place, renamed))


def _mask_hosts(stream: BinaryIO, size: int) -> None:
    """Put an `x` in place of each letter of XSpace.hostnames: that takes no room on the disk."""
    while True:
        tag, length, shift, more = stream.read(1), 0, 0, True
        while more:
            byte = stream.read(1)
            if not byte or tag[0] & 7 != _BYTES:  # at the end, or no XSpace
                return
            length |= (byte[0] & _SEVEN_BITS) << shift
            shift, more = shift + 7, bool(byte[0] & _MORE)
        end = min(size, stream.tell() + length)
        if tag == _HOSTNAMES:
            stream.write(b"x" * (end - stream.tell()))
        stream.seek(end)


def _field(tag: bytes, data: bytes) -> bytes:
    size, digits = len(data), []
    while size > _SEVEN_BITS:
        digits.append(size & _SEVEN_BITS | _MORE)
        size >>= 7
    return tag + bytes([*digits, size]) + data
