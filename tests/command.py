"""The `advisor` command in this process: what it prints and its exit code, without the price of a new interpreter."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from advisor.cli import main


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
