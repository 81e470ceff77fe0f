"""What no reader can do without, and the readers, trace by trace: floor.py whole|chunks|reader|xplane TRACE..."""

import gc
import os
import sys
from pathlib import Path

import msgspec
from isal import igzip

from advisor.inputs.chrome_json.source import Source
from advisor.inputs.chrome_json.trace import Trace
from advisor.inputs.readers import Reading
from advisor.inputs.readers.kineto import read
from advisor.inputs.readers.kineto.fields import KINETO, Event, Header
from advisor.inputs.readers.xplane import read as read_xplane


class Document(Header):
    """A trace file decoded at once, into the reader's own types."""

    traceEvents: list[Event] = msgspec.field(default_factory=list)  # noqa: N815 - the file's spelling


def whole(trace: Path) -> None:
    """Inflate all, decode all: the fewest calls, the most memory."""
    gc.disable()
    msgspec.json.decode(igzip.decompress(trace.read_bytes()), type=Document)


def chunks(trace: Path) -> None:
    """Inflate and decode piece by piece as the reader does, keeping nothing."""
    gc.disable()
    with trace.open("rb") as stream:
        for _events in Trace(trace.name, KINETO).chunks(Source(stream)):
            pass


def reader(trace: Path) -> None:
    """The reader: everything up to the tables of a Profile."""
    with trace.open("rb") as stream:
        read(stream, trace.name, Reading(processes=os.cpu_count() or 1))


def xplane(profile: Path) -> None:
    """The reader of XPlane."""
    with profile.open("rb") as stream:
        read_xplane(stream, profile.name)


if __name__ == "__main__":
    for path in map(Path, sys.argv[2:]):
        {"whole": whole, "chunks": chunks, "reader": reader, "xplane": xplane}[sys.argv[1]](path)
