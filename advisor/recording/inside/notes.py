"""Notes of one process for the launcher: a line of JSON per event, in a file per process."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

_open, _dumps = open, json.dumps  # before a program replaces them
_MOST = 1 << 20  # characters; a dozen times what a process notes


class Notes:
    """Appends events to a file of this process below `folder`; without a folder, to a list."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []

    def add(self, event: str, **facts: Any) -> None:
        """Append an event; a full disk, or what the program did to Python, costs the note and nothing else."""
        entry = dict(facts, event=event, pid=os.getpid())
        if self.folder is None:
            self.events.append(entry)
            return
        path = os.path.join(self.folder, "%s-%d.jsonl" % (os.uname().nodename, os.getpid()))
        with suppress(Exception):
            try:
                with _open(path, "a", encoding="utf-8") as stream:
                    os.chmod(path, 0o600)  # the program's umask may leave no right to it
                    stream.write(_dumps(entry) + "\n")
            except OSError as error:
                os.mkdir("%s.%s" % (path, error.errno))  # a folder is made where no file may be opened

    def values(self, event: str, fact: str) -> list[Any]:
        """What each process that noted this event gave as this fact, the last time."""
        try:
            paths = [os.path.join(self.folder or "", name) for name in os.listdir(self.folder or "")]
        except OSError:
            return []
        noted = ([e.get(fact) for e in read(path) if e["event"] == event] for path in paths)
        return [values[-1] for values in noted if values]


def read(path: str, most: int = _MOST) -> list[dict[str, Any]]:
    """The events of one process; a line cut by a full disk is left out, as is whatever the program put there."""
    events = []
    with suppress(OSError), open(path, encoding="utf-8", errors="replace", opener=_at_once) as stream:
        for line in stream.read(min(most, _MOST)).split("\n"):
            with suppress(ValueError, RecursionError):
                events.append(json.loads(line))
    known = [event for event in events if isinstance(event, dict) and isinstance(event.get("event"), str)]
    return [event for event in known if isinstance(event.get("pid"), int)]


def _at_once(path: str, flags: int) -> int:
    """Opens a pipe too, which would wait for a writer, and no link, which may lead to what has no end."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
