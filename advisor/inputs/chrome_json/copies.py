"""A copy of a Chrome trace with nothing but what its reader and trace viewers use, its texts masked."""

import gzip
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from advisor.errors import ReadError
from advisor.inputs.chrome_json.source import Source
from advisor.inputs.chrome_json.trace import Form, Trace
from advisor.secrets import masked_json, owners_in_json
from advisor.system.file_size import most_bytes

_MEMORY_PER_BYTE: Final = 1.0
_LEVEL: Final = 6  # of gzip
DAMAGED: Final = "damaged or cut short, so that it cannot be copied in part; record it again, or do not pass it on"
_OF_VIEWERS: Final = ("id", "bp", "s")  # arrows from launches to kernels
_NONE: Final = msgspec.Raw()  # of a field that is kept undecoded
_ARGS_OF_VIEWERS: Final = ("name", "labels", "sort_index")  # of processes and threads


def clean_copy(
    path: Path, target: Path, max_bytes: int | None, original: Form[Any, Any], args: Iterable[str]
) -> list[str]:
    """Write the copy, a stretch of events at a time; what it lacks, in words."""
    max_bytes = max_bytes or most_bytes(_MEMORY_PER_BYTE, path.stat().st_size)
    with ExitStack() as files:
        stream = files.enter_context(path.open("rb"))
        owners = owners_in_json(Trace(str(path), original, max_bytes).limited(Source(stream)))
        stream.seek(0)
        # The same form, with the values of events as they stand, and only those that are used.
        of_args = _struct("Args", {*args, *_ARGS_OF_VIEWERS})
        kind: Any = original.event.type
        fields = {field.encode_name for field in msgspec.structs.fields(kind)} - {"args"}
        event = _struct("Event", {*fields, *_OF_VIEWERS}, ("args", of_args | None, None))
        undecoded = Form(event, original.empty, what=original.what, last=original.last, lenient=original.header)
        trace = Trace(str(path), undecoded, max_bytes)
        out: Any = files.enter_context(target.open("wb"))
        if path.suffix.lower() == ".gz":
            out = files.enter_context(gzip.GzipFile("", "wb", _LEVEL, out, mtime=0))
        for piece in _pieces(trace, Source(stream)):
            out.write(masked_json(piece, owners))
    if any(note.code in {"ends_early", "gzip_damaged", "gzip_cut_off"} for note in trace.salvaged):
        raise ReadError(DAMAGED, path)
    return ["other fields of the file, of its events and of their args"]


def _pieces(trace: Trace[Any, Any], source: Source) -> Iterator[bytes]:
    """The copy as JSON. The fields that stand before the events tell what the file is, and come first here too."""
    before: dict[str, Any] = {}
    between = b""
    for number, events in enumerate(trace.chunks(source)):
        if not number:
            before = _fields(trace.header)
            yield msgspec.json.encode({"displayTimeUnit": "ms", **before})[:-1] + b',"traceEvents":['
        if events:
            yield between + msgspec.json.encode(events)[1:-1]
            between = b",\n"
    after = {name: value for name, value in _fields(trace.header).items() if name not in before}
    yield b"]" + (b"," + msgspec.json.encode(after)[1:] if after else b"}")


def _fields(header: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(header).items() if value not in (None, [], _NONE)}


def _struct(name: str, fields: Iterable[str], *more: tuple[str, Any, Any]) -> Any:  # noqa: ANN401 - a type
    """A type of these fields, whose values stay undecoded."""
    raw = [
        (field if field == "name" else f"f{number}", msgspec.Raw, msgspec.field(default=msgspec.Raw(), name=field))
        for number, field in enumerate(sorted(fields))
    ]
    return msgspec.defstruct(name, [*raw, *more], omit_defaults=True, gc=False)
