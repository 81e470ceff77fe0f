"""A copy of a Chrome trace with nothing but what its reader and trace viewers use, its texts masked."""

import gzip
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from advisor.errors import ReadError
from advisor.inputs.chrome_json.repair import repaired
from advisor.inputs.chrome_json.source import Source
from advisor.inputs.chrome_json.trace import Form
from advisor.inputs.secrets import masked_json, owners_in_json
from advisor.system.file_size import most_bytes, too_large

_MEMORY_PER_BYTE: Final = 4.0
_LEVEL: Final = 6  # of gzip
_DAMAGED: Final = "damaged or cut short, so that it cannot be copied in part; record it again, or do not pass it on"
_OF_VIEWERS: Final = ("id", "bp", "s")  # arrows from launches to kernels
_ARGS_OF_VIEWERS: Final = ("name", "labels", "sort_index")  # of processes and threads
_Fields: TypeAlias = dict[str, msgspec.Raw]


def clean_copy(path: Path, target: Path, form: Form[Any, Any], args: Iterable[str]) -> list[str]:
    """Write the copy; the names of the fields around its events that it lacks.

    Args:
        path: The trace.
        target: Where the copy goes.
        form: How its reader decodes it.
        args: The names in `args` that the reader uses.
    """
    text = _content(path)
    event = _Events({field.encode_name for field in msgspec.structs.fields(form.event.type)}, args)
    try:
        if text.lstrip().startswith(b"["):
            copy: Any = event.decoded(text)
            around: _Fields = {}
        else:
            around = msgspec.json.decode(text, type=_Fields)
            events = event.decoded(around.pop("traceEvents", b"[]"))
            header = {name: value for name, value in _header(form, around).items() if value is not None}
            copy = header | {"displayTimeUnit": "ms", "traceEvents": events}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ReadError(_DAMAGED, path) from None
    clean = masked_json(msgspec.json.encode(copy), owners_in_json(text))
    target.write_bytes(gzip.compress(clean, _LEVEL, mtime=0) if path.suffix.lower() == ".gz" else clean)
    return sorted(around.keys() - copy) if around else []


def _content(path: Path) -> bytes:
    """What is in a file, unpacked."""
    most, pieces, size = most_bytes(_MEMORY_PER_BYTE), [], 0
    with path.open("rb") as stream:
        source = Source(stream)
        for piece in source:
            pieces.append(piece)
            if (size := size + len(piece)) > most:
                raise too_large(str(path), most)
    if source.broken:
        raise ReadError(_DAMAGED, path)
    return b"".join(pieces)


def _header(form: Form[Any, Any], around: _Fields) -> dict[str, Any]:
    text = msgspec.json.encode(around)
    for attempt in (text, repaired(text)):
        with suppress(ValueError):
            fields: dict[str, Any] = msgspec.to_builtins(form.header(attempt))
            return fields
    return {}  # nor does the reader read it


class _Events:
    """Decodes events to the fields that are used, with their values as they stand."""

    def __init__(self, fields: set[str], args: Iterable[str]) -> None:
        of_args = _struct("Args", {*args, *_ARGS_OF_VIEWERS})
        of_event = _struct("Event", {*fields, *_OF_VIEWERS} - {"args"}, ("args", of_args | None, None))
        self._event = msgspec.json.Decoder(of_event)
        self._events = msgspec.json.Decoder(list[of_event])  # type: ignore[valid-type]  # a type made of what is given

    def decoded(self, text: bytes | msgspec.Raw) -> list[msgspec.Struct]:
        try:
            return self._events.decode(text)
        except msgspec.ValidationError:
            events = msgspec.json.decode(text, type=list[msgspec.Raw])
            return [event for raw in events if (event := self._sound(raw))]

    def _sound(self, raw: msgspec.Raw) -> msgspec.Struct | None:
        try:
            return self._event.decode(raw)
        except msgspec.ValidationError:  # nor does the reader read it
            return None


def _struct(name: str, fields: Iterable[str], *more: tuple[str, Any, Any]) -> type[msgspec.Struct]:
    """A type of these fields, whose values stay undecoded."""
    raw = [
        (f"f{number}", msgspec.Raw, msgspec.field(default=msgspec.Raw(), name=field))
        for number, field in enumerate(sorted(fields))
    ]
    return msgspec.defstruct(name, [*raw, *more], omit_defaults=True, gc=False)
