"""Writes recordings: whole or not at all, under a name that is free."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import shutil
import sys
from contextlib import suppress
from typing import Any, Callable

_LEVEL = 1  # of gzip: a trace is compressed while the program waits
_PIECE, _MOST = 1 << 16, 1 << 24  # what a trace says of the job stands before its events: long for many groups of ranks
_EVENTS = b'"traceEvents"'
_ENDING = ".pt.trace.json.gz"
_END = 4096
_TAIL = 64
_NAMES = re.compile(rb'("(?:host_name|trace_id|traceName)"\s*:\s*)"(?:[^"\\]|\\.)*"')


def compressed(folder: str, name: str, export: Callable[[str], Any], block: dict[str, Any]) -> str:
    """Have `export` write a JSON trace; add the block to it and compress it. The path of the recording.

    A trace's own metadata is dropped once the profiler stopped, so that the block goes in behind the first brace.
    An OSError leaves nothing over.
    """
    place = os.path.join(folder, ".%s.%d" % (name, os.getpid()))  # profilers leave files of their own behind
    plain, packed = os.path.join(place, "trace.json"), os.path.join(place, "trace.json.gz")
    try:
        os.makedirs(place, exist_ok=True)
        os.chmod(place, 0o700)  # the program's umask may leave no right to what it makes
        export(plain)
        _require_end(plain)
        with open(plain, "rb") as source, gzip.GzipFile(packed, "wb", _LEVEL, mtime=0) as target:
            head = piece = source.read(_PIECE)  # what stands before the events, and some of them
            while piece and _EVENTS not in head and len(head) < _MOST:
                piece = source.read(_PIECE)
                head += piece
            head, brace, rest = _unnamed(head).partition(b"{")
            comma = b"" if rest.lstrip()[:1] == b"}" else b","
            target.write(head + brace + b'"advisor": ' + json.dumps(block).encode() + comma + rest)
            middle = max(0, os.path.getsize(plain) - source.tell() - _END)
            while middle > 0:
                piece = source.read(min(middle, 1 << 20))
                target.write(piece)
                middle -= len(piece)
            target.write(_unnamed(source.read()))
        os.chmod(packed, os.stat(packed).st_mode | 0o600)
        path = os.path.join(folder, free_name(folder, name, _ENDING) + _ENDING)  # two jobs may write into one folder
        os.replace(packed, path)
        return path
    finally:
        for part in (plain, packed):
            with suppress(OSError):
                os.remove(part)
        with suppress(OSError):
            os.rmdir(place)  # the other way opens it, which the program's limit may not allow
        shutil.rmtree(place, ignore_errors=True)


def _unnamed(text: bytes) -> bytes:
    """The begin or the end of a trace without what Kineto says there of the machine and its paths."""
    return _NAMES.sub(rb'\1""', text)


def _require_end(path: str) -> None:
    """Kineto says nothing of a full disk, nor of limits of files: its trace has no end then, or is not there."""
    os.close(os.open(os.path.dirname(path), os.O_RDONLY))  # raises where no file may be opened
    import resource  # only Unix has it

    end, size = b"", 0
    if os.path.exists(path):
        os.chmod(path, 0o600)
        with open(path, "rb") as stream:
            size = os.path.getsize(path)
            stream.seek(max(0, size - _TAIL))
            end = stream.read()
    if not end.rstrip().endswith(b"}"):
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        room = max(size, shutil.disk_usage(os.path.dirname(path)).free)  # it may be removed once it cannot be written
        number = errno.EFBIG if 0 <= most <= room else errno.ENOSPC
        raise OSError(number, os.strerror(number), path)


def free_name(folder: str, name: str, ending: str) -> str:
    """The name, with a number where another process of the job took it; a file of it is there now."""
    number = 1
    while True:
        free = name if number == 1 else "%s-%d" % (name, number)
        try:
            with open(os.path.join(folder, free + ending), "xb"):
                return free
        except FileExistsError:
            number += 1


def process_name() -> str:
    """`rank3` of a job's process, else the script's name."""
    rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID")
    if rank and rank.isdigit():
        return "rank" + rank
    main = getattr(sys.modules.get("__main__"), "__file__", None) or sys.argv[0] if hasattr(sys, "argv") else ""
    stem = os.path.splitext(os.path.basename(main or ""))[0]
    if stem == "__main__":
        stem = os.path.basename(os.path.dirname(main))
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)
    return name.strip("-")[:60] or "program"
