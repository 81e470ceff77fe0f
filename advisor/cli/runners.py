r"""What a CI runner would read as a command is text to it, whatever names a trace holds.

GitHub's, Azure's and TeamCity's runners look for `##[...]`, `##vso[...]` and `##teamcity[...]` anywhere in a line and
for `::...::` at its start, on both streams, GitLab's for `section_start:...`. The first character of such a mark is
written as `\u0023` and so on: a reader of JSON gets the same text, a person sees what it was.
"""

import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO, cast

from advisor.errors import UsageError

_MARKS: Final = re.compile(
    r"#(?=#\w*\[)|(?<![^\r\n])(?P<before>[^\S\r\n]*):(?=:)|s(?=ection_(?:start|end):\d)", re.IGNORECASE
)


def disarmed(text: str) -> str:
    """The text without marks that start a command of GitHub's, GitLab's, Azure's or TeamCity's runner."""
    return _MARKS.sub(lambda mark: f"{mark['before'] or ''}\\u{ord(mark[0][-1]):04x}", text)


class Disarmed:
    """A text stream that writes no mark of a command; else the stream that it stands for: None if that is closed."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream, self._is_closed = stream or io.StringIO(), stream is None
        self.why: str | None = None  # it could not be written

    def write(self, text: str) -> int:
        """As the stream does."""
        with self._writing():
            self.stream.write(disarmed(text))
        self.why = "it is closed" if self._is_closed else self.why
        return len(text)

    def flush(self) -> None:
        """The same."""
        with self._writing():
            self.stream.flush()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Remembers a full disk for `require_written`: libraries hide errors, and Python prints one at its end."""
        try:
            yield
        except BrokenPipeError:  # the reader has seen enough
            raise
        except OSError as error:
            self.why, self.stream = error.strerror, io.StringIO()

    def writelines(self, lines: list[str]) -> None:
        """The same."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the stream
        if name == "buffer":  # a way around `write`
            raise AttributeError(name)
        return getattr(self.stream, name)


def guard() -> None:
    """From here on, standard output and standard error start no command."""
    sys.stdout, sys.stderr = (
        stream if isinstance(stream, Disarmed) else cast("TextIO", Disarmed(stream))
        for stream in (sys.stdout, sys.stderr)
    )


def require_surroundings(number: int | None = None) -> None:
    """Nothing, where there are a current folder and threads for polars, which panics without; else a UsageError."""
    if number == errno.EMFILE:
        raise UsageError("too many open files; allow more: `ulimit -n 4096`")
    if re.fullmatch(r"\s*\+?0+\s*", os.environ.get("POLARS_MAX_THREADS", "")):
        raise UsageError("POLARS_MAX_THREADS is 0; unset it, or set it to the threads to use")
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder was removed; change to another one") from None


def require_written() -> None:
    """Raise a UsageError where not all of standard output could be written."""
    if not sys.stdout.closed:  # the server of a protocol closes it, once its client leaves
        sys.stdout.flush()
    if isinstance(sys.stdout, Disarmed) and sys.stdout.why:
        raise UsageError(f"standard output cannot be written: {sys.stdout.why}")


def hint(line: str) -> None:
    """A warning of GitHub's runner, else a line on standard error."""
    if not os.environ.get("GITHUB_ACTIONS"):
        sys.stderr.write(f"advisor: {line}\n")
        return
    stream = sys.stdout.stream if isinstance(sys.stdout, Disarmed) else sys.stdout
    data = disarmed(line).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    stream.write(f"::warning title=gpu-advisor::{data}\n")
