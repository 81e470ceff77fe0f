"""Runs the program once, hooked, and ends whatever it started; what running it again would change.

That is the files that it writes, and what it tells trackers of experiments.
"""

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, BinaryIO, Final, TypeAlias

from msgspec import Meta, ValidationError, convert, defstruct

from advisor.errors import UsageError
from advisor.model.clause import Missing
from advisor.recording.launcher import environment, events, hooked, last_events, started
from advisor.recording.remover import signal_hooked
from advisor.recording.signals import FOR_PROGRAMS, handling, undivided
from advisor.secrets import masked_json, masked_text
from advisor.text import bytes_, one_line

Events: TypeAlias = Sequence[Mapping[str, Any]]
Watch: TypeAlias = Callable[[Events], int | None]  # of what was noted so far: after how many blocks to end, or None
_PAUSE_S: Final = 0.1
_PAUSES: Final = 9  # times as long as reading what was noted, which so takes a tenth of the time at most
_GRACE_S: Final = 10.0
_ADOPTS: Final = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_TAIL: Final = 4096  # bytes of what the program printed last
_MOST_PRINTED: Final = 1 << 24  # bytes of it that are on the disk
_Time: TypeAlias = Annotated[float, Meta(ge=1e-6, le=1e9)]
_Real: TypeAlias = Annotated[float, Meta(ge=-1e300, le=1e300)]  # which leaves out what is no number
_Facts: TypeAlias = dict[str, _Real | int | str]
_FORMS: Final = {  # of events that the hook of a trial notes; the program may note others of their names
    "block": defstruct("_", [("number", int), ("on", bool), ("step_ms", _Time)]),
    "ready": defstruct("_", [("seconds", _Time), ("digest", _Real | None), ("device", str), ("hits", dict[str, int])]),
    "patch": defstruct("_", [("name", str), ("hits", int), ("refusals", list[tuple[str, _Facts]]), ("proof", _Facts)]),
    "failed": defstruct("_", [("number", int | None)]),
}


@dataclass(frozen=True)
class Program:
    """What is run, where, with which variables; `folder` takes what belongs to a run."""

    command: Sequence[str]
    folder: Path
    cwd: Path = field(default_factory=Path.cwd)  # as it was before a run that may remove it
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that is over: `line` is the last one that it printed; `is_late` says that its time was over first."""

    exit_code: int
    events: Events
    line: str
    seconds: float
    is_late: bool = False

    def why(self, code: str) -> Missing:
        """Why it showed nothing: no folder, no room, no time, a failure, or what the code says if it ran well."""
        kinds = {event["event"]: event for event in self.events}
        if "removed" in kinds:
            return Missing("folder_gone")
        failed = kinds["failed"]["number"] if "failed" in kinds else None
        if failed in (errno.ENOSPC, errno.EDQUOT):
            return Missing("no_room", error=os.strerror(failed))
        if self.is_late:
            code = "run_stuck" if self.exit_code == -signal.SIGKILL else "run_cut"
            return Missing(code, limit=1e3 * self.seconds)
        return Missing("program_failed" if self.exit_code else code, code=self.exit_code, line=self.line)


def run(program: Program, config: Mapping[str, Any], variables: Mapping[str, str], until: float, watch: Watch) -> Ended:
    """Run the program until it ends, or until `until` on the monotonic clock; after Ctrl-C nothing of it is left.

    A UsageError where it cannot be started, or the temporary folder cannot be written.
    """
    if not program.cwd.is_dir():  # an earlier run may have removed it
        return Ended(1, ({"event": "removed"},), "", 0.0)
    try:
        (program.folder / "limit").unlink(missing_ok=True)
        folder = hooked(program.folder, dict(config, limit=str(program.folder / "limit")))
    except OSError as error:
        raise UsageError(f"{program.folder.parent}: cannot be written: {error.strerror}; set TMPDIR") from None
    inherited = {**environment(folder), **program.variables, **variables}
    began, process = time.monotonic(), None
    try:
        with _orphans_ended(), (folder / "output").open("a+b") as stream:
            streams = {"stdin": subprocess.DEVNULL, "stdout": stream, "stderr": subprocess.STDOUT}
            try:
                with undivided():  # in a session of its own: Ctrl-C is for us alone, and the session can be ended
                    process = started(
                        program.command, env=inherited, cwd=program.cwd, start_new_session=True, **streams
                    )
                with _signals_passed_on(process.pid, folder):
                    while process.poll() is None and (looked := time.monotonic()) < until:
                        _tell(program.folder / "limit", watch(_formed(events(folder))))
                        if stream.seek(0, os.SEEK_END) > _MOST_PRINTED:
                            stream.truncate(0)
                        with suppress(subprocess.TimeoutExpired):
                            process.wait(max(_PAUSE_S, _PAUSES * (time.monotonic() - looked)))
                    is_late = process.poll() is None
            finally:
                if process:
                    _end(process)
            line = _last_line(stream)
        # Without secrets and halves of letters: all in one pass, as the program may note any number.
        noted = ",\n".join(json.dumps(event, ensure_ascii=False) for event in _formed(last_events(folder)))
        sound = json.loads(masked_json(f"[{noted}]".encode(errors="replace")))
        return Ended(process.returncode, sound, line, time.monotonic() - began, is_late)
    finally:
        signal_hooked(str(folder), signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _orphans_ended() -> Iterator[None]:
    """In it, on Linux, what loses its parent becomes ours; then it is ended, whatever its environment and session."""
    mark = getattr(ctypes.CDLL(None), "prctl", lambda *_: None)
    mark(_ADOPTS, 1)
    before = _children()
    try:
        yield
    finally:
        while orphans := _children() - before:
            for pid in orphans:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        mark(_ADOPTS, 0)


def _children() -> set[int]:
    """Our children in other sessions; those of our own are of who called us."""
    pids = set[int]()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended, or a child just now
            pids |= {pid for pid in map(int, path.read_text("ascii").split()) if os.getsid(pid) != os.getsid(0)}
    return pids


@contextmanager
def _signals_passed_on(session: int, folder: Path) -> Iterator[None]:
    """Signals are the program's to handle, which is in a session of its own; it stops where we are stopped."""

    def pass_on(number: int, _: FrameType | None) -> None:
        _signal(session, number)

    def stop(*_: object) -> None:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            _signal(session, number)
            signal_hooked(str(folder), number)
            if number == signal.SIGSTOP:
                os.kill(os.getpid(), number)

    with handling({**dict.fromkeys(FOR_PROGRAMS, pass_on), signal.SIGTSTP: stop}):
        yield


def _tell(limit: Path, blocks: int | None) -> None:
    if blocks is not None and not limit.exists():
        partial = limit.with_suffix(".part")
        with suppress(OSError):  # the disk is full: then it ends by itself, or with its time
            partial.write_text(str(blocks), "utf-8")
            partial.replace(limit)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and the rest of its session: kindly first, so that launchers end their ranks."""
    try:
        if process.poll() is None:
            _signal(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
    finally:  # also after a second Ctrl-C
        _signal(process.pid, signal.SIGKILL)
        process.wait()


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _last_line(output: BinaryIO) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL))
    lines = output.read(_TAIL).decode("utf-8", "replace").split("\n")
    return one_line(masked_text(next((line.strip() for line in reversed(lines) if line.strip()), "")), 200)


def _formed(noted: Iterable[Mapping[str, Any]]) -> Events:
    """Those that have the form of what the hook notes."""
    formed = []
    for event in noted:
        with suppress(ValidationError):
            convert(event, _FORMS.get(event["event"], dict))
            formed.append(event)
    return formed


Snapshot: TypeAlias = Mapping[str, tuple[int, int]]  # time of the last change in ns and size by path
TEMPORARY: Final = "advisor-try-"  # of the name of a trial's own folder; the program may be started where that lies
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
    """A copy of a working folder, links leading where they led; a UsageError where it is too large, or cannot be."""
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
