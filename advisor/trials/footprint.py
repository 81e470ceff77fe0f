"""What running a program again would change: the files that it writes, and what it tells trackers of experiments."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from advisor.errors import UsageError
from advisor.text import bytes_

Snapshot: TypeAlias = Mapping[str, tuple[int, int]]
"""Time of the last change in ns and size by path."""

TEMPORARY: Final = "advisor-try-"
"""What the name of a trial's own folder begins with; the program may be started where that lies."""

_MOST_FILES: Final = 100_000
_LARGEST_COPY: Final = 4 << 30
_OURS: Final = "advisor-logs"
_APART: Final = frozenset({".git", "__pycache__", ".venv", "venv", "node_modules", _OURS})


def offline(folder: Path) -> dict[str, str]:
    """What switches trackers of experiments to offline; each has its variable, TensorBoard writes files only."""
    return {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": (folder / "mlruns").as_uri(),
        "COMET_START_ONLINE": "0",
        "COMET_OFFLINE_DIRECTORY": str(folder),
        "NEPTUNE_MODE": "offline",
        "CLEARML_OFFLINE_MODE": "1",
    }


def snapshot(folder: Path) -> Snapshot:
    """The files below a folder as they are, so many at most; links are not followed."""
    states: dict[str, tuple[int, int]] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _APART and not name.startswith(TEMPORARY)]
        for path in (Path(place, name) for name in names):
            with suppress(OSError):
                state = path.lstat()
                states[str(path.relative_to(folder))] = state.st_mtime_ns, state.st_size
            if len(states) >= _MOST_FILES:
                return states
    return states


def written(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """The paths that are new or changed."""
    return tuple(sorted(path for path, state in after.items() if before.get(path) != state))


def open_now(folder: Path) -> set[str]:
    """The files below a folder that processes have open for writing: once the program has ended, others write them."""
    names = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError, ValueError):
            path, flags = link.readlink(), link.parents[1].joinpath("fdinfo", link.name).read_text("ascii")
            if path.is_relative_to(folder) and int(flags.partition("flags:")[2].split()[0], 8) & os.O_ACCMODE:
                names.add(str(path.relative_to(folder)))
    return names


def copied(folder: Path, target: Path) -> Path:
    """A copy of a working folder; links lead where they led.

    Raises:
        UsageError: it is too large to copy, or there is no room or no right to.
    """
    size = sum(size for _, size in snapshot(folder).values())
    if size > _LARGEST_COPY:
        raise UsageError(
            f"--scratch: {folder} has {bytes_(size)}, and at most {bytes_(_LARGEST_COPY)} are copied; "
            "start in a smaller folder, or link the data into it"
        )
    try:
        shutil.copytree(folder, target, ignore=shutil.ignore_patterns(*_APART, f"{TEMPORARY}*"), symlinks=True)
    except OSError as error:
        _, _, why = error.args[0][0] if isinstance(error, shutil.Error) else (0, 0, error)  # of the first file
        raise UsageError(f"--scratch: {folder} cannot be copied: {why}; set TMPDIR, or start elsewhere") from None
    for path in target.rglob("*"):
        if path.is_symlink() and not path.readlink().is_absolute():
            source = folder / path.relative_to(target)
            path.unlink()
            path.symlink_to(source.parent / source.readlink())
    return target
