"""The columns of a profile's tables, with their types, as tables.yaml has them."""

from typing import Any, Final

import polars as pl
from polars.datatypes import DataType, DataTypeClass

from advisor.vocabulary.limits import table

_WRITTEN: Final = table(__file__, "tables")
_KINDS: Final = {of: pl.Enum(kinds) for of, kinds in _WRITTEN["kinds"].items()}
DEVICE_OP_KINDS, HOST_OP_KINDS, MEMORY_KINDS = _KINDS.values()
TEXT: Final = pl.Categorical()

Schema = dict[str, DataType | DataTypeClass]


def _type(written: Any) -> DataType | DataTypeClass:  # noqa: ANN401 - a word, list or mapping
    if isinstance(written, list):
        return pl.List(_type(*written))
    if isinstance(written, dict):
        return pl.Struct({name: _type(inner) for name, inner in written.items()})
    return TEXT if written == "Text" else _KINDS.get(written) or getattr(pl, written)


STACKS, BATCHES = (_type(_WRITTEN["structs"][name]) for name in ("stack", "batch"))
"""A stack of Python that was sampled; a batch of sequences."""

SCHEMAS: Final[dict[str, Schema]] = {
    name: {column: _type(written) for column, written in columns.items()}
    for name, columns in _WRITTEN["tables"].items()
}
