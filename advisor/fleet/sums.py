"""Checksums of a table's files in a folder, which Parquet seldom has: a changed byte is an error, never a number.

They lie beside the files, under a name that Delta Lake leaves alone. A file whose writer was killed before it noted
them has none, and is taken as it is. Object stores have checksums of their own.
"""

import os
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_NOTES: Final = "_sums"


def note(table: Path, live: Collection[str]) -> None:
    """Note the checksums of the files with these names, where none is; forget those of files that are gone."""
    (table / _NOTES).mkdir(exist_ok=True)
    noted = {note.name: note for note in (table / _NOTES).iterdir()}
    for file in table.glob("week=*/*"):
        if noted.pop(file.name, None) is None and file.name in live:
            with suppress(FileNotFoundError):  # another writer has compacted the table, or is as far
                partial = table / _NOTES / f"{file.name}.{os.getpid()}"
                partial.write_bytes(_sum(file))
                partial.replace(partial.with_suffix(""))
    for orphan in noted.values():
        orphan.unlink(missing_ok=True)


def changed(table: Path, live: Collection[str]) -> Iterator[str]:
    """Those of the files with these names that are not as they were written."""
    for file in table.glob("week=*/*"):
        with suppress(FileNotFoundError):  # no checksum, or gone since
            if file.name in live and (table / _NOTES / file.name).read_bytes() != _sum(file):
                yield str(file.relative_to(table))


def _sum(file: Path) -> bytes:
    return b"%08x" % zlib.crc32(file.read_bytes())
