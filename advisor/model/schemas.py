"""The columns of a profile's tables, with their types, as tables.yaml has them."""

from typing import Any, Final

import polars as pl
from polars.datatypes import DataType, DataTypeClass

from advisor.vocabulary.limits import table

DEVICE_OP_KINDS: Final = pl.Enum(["kernel", "collective", "memcpy", "memset"])
HOST_OP_KINDS: Final = pl.Enum(
    [
        *("op", "runtime", "sync", "allocator", "input", "collective", "annotation", "module", "python"),
        *("compile", "start_up", "gc", "step", "overhead"),
        "pipeline",  # a stage of the input pipeline at work; `input` is the request that waits for it
    ]
)
MEMORY_KINDS: Final = pl.Enum(["pageable", "pinned", "device", "managed"])
TEXT: Final = pl.Categorical()

Schema = dict[str, DataType | DataTypeClass]
_KINDS: Final[Schema] = {
    "Text": TEXT,
    "DeviceOpKind": DEVICE_OP_KINDS,
    "HostOpKind": HOST_OP_KINDS,
    "MemoryKind": MEMORY_KINDS,
}


def _type(written: Any) -> DataType | DataTypeClass:  # noqa: ANN401 - a word, list or mapping
    if isinstance(written, list):
        return pl.List(_type(*written))
    if isinstance(written, dict):
        return pl.Struct({name: _type(inner) for name, inner in written.items()})
    of_word: DataType | DataTypeClass = _KINDS.get(written) or getattr(pl, written)
    return of_word


_WRITTEN: Final = table(__file__, "tables")
STACKS, BATCHES = (_type(_WRITTEN["structs"][name]) for name in ("stack", "batch"))
"""A stack of Python that was sampled; a batch of sequences."""

SCHEMAS: Final[dict[str, Schema]] = {
    name: {column: _type(written) for column, written in columns.items()}
    for name, columns in _WRITTEN["tables"].items()
}
