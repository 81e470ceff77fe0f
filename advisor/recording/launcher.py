"""Runs a command with every Python process in it hooked, and gathers what they noted."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from advisor.errors import UsageError
from advisor.recording import remover, signals
from advisor.recording.inside import notes
from advisor.system.processes import INHERITED

_INSIDE: Final = Path(notes.__file__).parent
_EVERY_S: Final = 1.0
_ROOM: Final = 1 << 13  # bytes that a process notes
_MOST_NOTED: Final = 1 << 24  # characters of all processes that are read: a dozen times what a thousand note
_PROFILES: Final = ("*.pt.trace.json*", "plugins/profile/*/*.xplane.pb")

Events: TypeAlias = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Options:
    """What to record: `skip` and `active` count steps, `seconds` is the window where no step ends."""

    skip: int = 10
    active: int = 10
    shapes: bool = True
    samples: bool = True
    stacks: bool = False
    memory: bool = False
    stop: bool = False
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the program."""

    exit_code: int  # 128 and the signal's number where a signal ended it
    events: Events  # what each process noted, in its order


def run(
    command: Sequence[str], logdir: Path, options: Options, tell: Callable[[Events], None] = lambda _: None
) -> Outcome:
    """Run the command until it ends, hooked; signals are its own to handle.

    `tell` is called every second with what the processes noted so far. A UsageError where the command cannot be
    started, or `logdir` cannot be used or holds a recording already.
    """
    with signals.holding(), gone_afterwards(folder := _run_folder(logdir, options)):
        process = started(command, env=environment(folder), preexec_fn=signals.released)  # no other thread runs
        while (code := process.poll()) is None:
            if signals.attend(process, _EVERY_S):
                tell(events(folder))
        outlived: Events = ({"event": "outlived", "process": ""},) if remover.signal_hooked(str(folder), 0) else ()
        return Outcome(signals.SIGNALLED - code if code < 0 else code, (*last_events(folder), *outlived))


def environment(folder: Path) -> dict[str, str]:
    """The environment of a hooked program: ours, with the run's folder first on PYTHONPATH."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


def _run_folder(logdir: Path, options: Options) -> Path:
    """A folder that hooks the program's interpreters, in `logdir`, which other nodes may share."""
    is_new = False
    try:
        if holds_recording(logdir):
            raise UsageError(f"-o {logdir}: holds a recording already; give another folder, or delete it")
        is_new = not logdir.exists()
        logdir.mkdir(parents=True, exist_ok=True)
        return hooked(logdir, asdict(options) | {"logdir": str(logdir.resolve())})
    except OSError as error:
        if is_new:
            with suppress(OSError):
                logdir.rmdir()
        raise UsageError(f"-o {logdir}: cannot be written: {error.strerror}; give another folder") from None


@contextmanager
def gone_afterwards(folder: Path, *end: str) -> Iterator[None]:
    """In it, the folder is; then it goes, also if we are killed, and with "end" what it hooks is ended first."""
    command = [sys.executable, "-IS", remover.__file__, str(folder.resolve()), *end]
    options = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL, "cwd": "/", "start_new_session": True}
    process = started(command, **options)
    try:
        yield
    finally:
        process.communicate()  # after Ctrl-C, leaving the process itself would not await its end


def holds_recording(logdir: Path) -> bool:
    """Whether a recorder wrote there, or a profiler for it."""
    return any(next(logdir.glob(pattern), None) for pattern in _PROFILES)


def hooked(parent: Path, config: Mapping[str, Any]) -> Path:
    """A new folder that hooks a program's interpreters as `config` says; elsewhere where PYTHONPATH cannot name it.

    An OSError where `parent` cannot be written; no folder is left there.
    """
    place = None if os.pathsep in str(parent.resolve()) else parent
    folder = Path(tempfile.mkdtemp(prefix=".advisor-", dir=place)).resolve()
    try:
        (folder / "notes").mkdir()
        for path in _INSIDE.rglob("*.py"):  # copytree's own error does not say that the disk is full
            copy = folder / "advisor_inside" / path.relative_to(_INSIDE)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)
        (folder / "advisor_inside/sitecustomize.py").rename(folder / "sitecustomize.py")
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def events(folder: Path) -> Events:
    """What the processes that the folder hooked noted so far, each in its order; or that the folder is gone.

    Of a process whose file holds no note: that it is damaged.
    """
    if not (folder / "notes").is_dir():
        return ({"event": "removed", "process": ""},)
    paths = sorted((folder / "notes").glob("*.jsonl"))
    return tuple(
        event | {"process": path.stem}
        for path in paths
        for event in notes.read(str(path), _MOST_NOTED // len(paths)) or [{"event": "damaged"}]
    )


def last_events(folder: Path) -> Events:
    """The same of a program that has ended; if none of it could note what came of it, also what keeps it from that."""
    noted, room = events(folder), folder / "notes" / "room"
    if {"result", "removed"} & {event["event"] for event in noted}:
        return noted
    number = errno.EMFILE if any(room.parent.glob(f"*.jsonl.{errno.EMFILE}")) else None
    try:
        room.write_bytes(bytes(_ROOM))
        room.unlink()
    except OSError as error:
        number = number or error.errno
    return (*noted, {"event": "failed", "process": "", "number": number}) if number else noted


def started(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - of Popen
    """The user's command, begun; a UsageError where it cannot be started."""
    try:
        return subprocess.Popen(command, **INHERITED, **options)  # noqa: S603 - the user's own
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be started: {error.strerror}; give the command as in a shell") from None
