"""The commands of a page of the docs, run as they are written; what they print stands below them."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from advisor.cli import main

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
RECORDING = re.compile(r" (fixtures/(?!tutorial)[\w.-]+)")
FILE = re.compile(r"```yaml\n# ([\w./-]+\.yaml)\n(.*?)```", re.DOTALL)
TERMINAL = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1", "PATH": os.environ.get("PATH", "")}


def transcript(page: str) -> str:
    """The page with what its commands print now, all in one copy of the fixtures.

    A line that begins with `$ advisor` is a command. As in a shell, `| head -12` keeps the first lines, `> FILE` keeps
    none, and `; echo $?` adds the exit code.

    Args:
        page: Markdown whose blocks of `console` hold commands and output. A block of `yaml` that begins with a comment
            of its path is that file.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "fixtures/tutorial", Path(folder, "fixtures/tutorial"))
        for recording in {Path(name) for name in RECORDING.findall(page)}:
            Path(folder, recording).symlink_to(ROOT / recording)
        with chdir(folder):
            for name, text in FILE.findall(page):
                Path(name).parent.mkdir(exist_ok=True)
                Path(name).write_text(text, "utf-8")
            return BLOCK.sub(lambda block: "".join(_lines(block[0])), page)


def _lines(block: str) -> Iterator[str]:
    for line in block.splitlines():
        if line.startswith("$ "):
            yield f"{line}\n"
            yield _output(line.removeprefix("$ "))


def _output(line: str) -> str:
    command, _, after = line.partition("; ")
    command, is_hidden, _ = command.partition(" > ")
    command, _, head = command.partition(" | head -")
    lines, code = _run(shlex.split(command)[1:])
    shown = [] if is_hidden else lines[: int(head)] if head else lines
    return "".join(shown) + (f"{code}\n" if after == "echo $?" else "")


def _run(words: list[str]) -> tuple[list[str], int]:
    """The lines that a command prints, and its exit code."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with _terminal(words), redirect_stdout(out), redirect_stderr(out):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    assert isinstance(out.buffer, io.BytesIO)
    text = "\n".join(line.rstrip() for line in out.buffer.getvalue().decode().splitlines())
    return [f"{line}\n" for line in text.splitlines()], code


@contextmanager
def _terminal(words: list[str]) -> Iterator[None]:
    with patch.object(sys, "argv", ["advisor", *words]), patch.dict(os.environ, TERMINAL, clear=True):
        yield
