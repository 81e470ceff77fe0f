"""The `advisor` command in this process: what it prints and its exit code, without the price of a new interpreter."""

from __future__ import annotations

import gc
import io
import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

import pytest

from advisor.cli import main

# What a shell starts as `advisor`: it has the words done elsewhere, prints what came of them and ends with their code.
CLIENT = """#!{python} -SE
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
line.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
line.shutdown(socket.SHUT_WR)
out, error, code = json.load(line.makefile(encoding="utf-8"))
sys.stdout.write(out)
sys.stderr.write(error)
sys.exit(code)
"""


def advisor(*words: object, cwd: Path, env: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    """What the command does with these words in the folder; `env` is its whole environment, by default ours.

    Warnings are errors, as in all tests.
    """
    out, error = _terminal(), _terminal()
    with (
        _process([str(word) for word in words], env),
        chdir(cwd),
        redirect_stdout(out),
        redirect_stderr(error),
        pytest.raises(SystemExit) as end,
    ):
        main()
    code = end.value.code
    assert isinstance(code, int | None)
    return CompletedProcess([*words], code or 0, _text(out), _text(error))


@contextmanager
def service() -> Iterator[str]:
    """The text of an executable `advisor` for shells: this process does what they say, one call after the other."""
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        address = f"{folder}/advisor"
        door.bind(address)
        door.listen()
        serving = threading.Thread(target=_serve, args=[door], daemon=True)
        serving.start()
        yield CLIENT.format(python=sys.executable, address=address)
        door.shutdown(socket.SHUT_RDWR)
        serving.join()


def _serve(door: socket.socket) -> None:
    while True:
        try:
            line, _ = door.accept()
        except OSError:  # the door is shut
            return
        with line, line.makefile("rw", encoding="utf-8") as text:
            words, folder, environment = json.load(text)
            done = advisor(*words, cwd=folder, env=environment)
            json.dump([done.stdout, done.stderr, done.returncode], text)


@contextmanager
def _process(words: list[str], env: Mapping[str, str] | None) -> Iterator[None]:
    """What a command changes of its process, or finds there, is as before afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["advisor", *words])
        if env is not None:
            patch.setattr("os.environ", dict(env))
        threshold = gc.get_threshold()
        yield
        gc.set_threshold(*threshold)


def _terminal() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
