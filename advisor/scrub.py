"""A copy of a recording without environment, user, host and secrets, which is checked to the same findings."""

import os
import shutil
import stat
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from advisor.errors import ReadError, UsageError
from advisor.inputs.chrome_json.copies import clean_copy
from advisor.inputs.discover import discover, is_recording
from advisor.inputs.readers import format_of, reader
from advisor.secrets import masked_text
from advisor.system.processes import unwound
from advisor.text import one_line

_RECORDING: Final = "give one recording: a file, or a folder of Parquet tables"


def scrub(path: Path, target: Path, max_bytes: int | None = None) -> list[str]:
    """Write a copy of the recording at `path`, a file or a folder of Parquet tables, to `target`.

    The tables, or fields around the events, that are not in the copy because nothing reads them. A ReadError where it
    is no recording, damaged, or larger than `max_bytes` or the memory; a UsageError where it is a log, or `target` is a
    recording, or cannot be written.
    """
    runs, rejected = discover([str(path)])
    if rejected or len(runs) != 1 or [*map(Path, runs[0].files)] != [path]:
        raise ReadError(rejected[0].why if rejected else _RECORDING, path)
    kind = format_of(runs[0].format)
    module = reader(kind.name)
    if of_chrome := getattr(module, "COPIED", None):
        write = partial(clean_copy, original=of_chrome[0], args=of_chrome[1])
    elif find_spec(name := f"{module.__name__}.copies"):
        write = import_module(name).clean_copy
    else:
        raise UsageError(
            f"{path}: {kind.title} cannot be scrubbed; pass on its report instead: `advisor check FILE -o report.html`"
        )
    try:
        is_new = not os.path.lexists(target)
        is_other = is_new or (stat.S_ISREG(target.lstat().st_mode) and not is_recording(target))
        if not is_other or target.resolve().is_relative_to(path.resolve()):
            raise UsageError(f"-o {target}: is a recording, or no regular file; give another name")
        # A random name, which nobody can put a link at.
        with unwound(), TemporaryDirectory(prefix=".", dir=target.parent) as folder:
            clean = Path(folder) / target.name
            dropped = write(path, clean, max_bytes)
            if path.is_file():  # who may read it stays who may
                shutil.copymode(path, clean)
            clean.replace(target)
    except OSError as error:
        raise UsageError(f"-o {target}: cannot be written: {error.strerror}") from None
    return [one_line(masked_text(name), 80) for name in dropped]
