"""What commands share: the kinds of output by suffix, rendering, writing whole files or none, progress on screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.config import Config
    from advisor.files import Progress
    from advisor.fleet.engines import Progress as RunProgress
    from advisor.present.document import Kind
    from advisor.render.registry import Value

# Heavy imports stand inside the functions: `advisor --help` answers at once.

_Choice = TypeVar("_Choice", bound=str)

ConfigPath = Annotated[
    Path | None, typer.Option("--config", help="advisor.yaml to use; by default the nearest at or above this folder.")
]


def config_of(path: Path | None) -> Config:
    """The settings of `--config`, or of the nearest advisor.yaml."""
    from advisor.config import find, load

    return load(path or find(Path.cwd()))


def chosen(option: str, value: str, allowed: tuple[_Choice, ...]) -> _Choice:
    """The value of an option that allows only some."""
    for candidate in allowed:
        if value == candidate:
            return candidate
    raise UsageError(f"{option} {value}: not one of {', '.join(allowed)}")


def kinds_of(paths: list[Path] | None, allowed: tuple[str, ...]) -> dict[Path, str]:
    """Each file that a command is to write, with what to write into it, by its suffix."""
    return {path: _kind_of(path, allowed) for path in paths or []}


def _kind_of(path: Path, allowed: tuple[str, ...]) -> str:
    from advisor.render.registry import RENDERERS

    for name in allowed:
        if path.suffix.lower() in RENDERERS[name].suffixes:
            return name
    known = " ".join(suffix for name in allowed for suffix in RENDERERS[name].suffixes)
    raise UsageError(f"-o {path}: nothing that is written here has that suffix; use one of {known}")


def formats(shown: Kind) -> tuple[str, ...]:
    """The kinds of text that can show a report, comparison or week on standard output."""
    from advisor.render.registry import kinds

    return kinds(shown, text_only=True)


def file_kinds(shown: Kind) -> tuple[str, ...]:
    """The kinds of files that can show it."""
    from advisor.render.registry import kinds

    return kinds(shown)


def content(value: Value, kind: str, links: str | None = None) -> bytes:
    """What goes into a file; a picture is of the first run. `links` says where the reports of runs lie."""
    from advisor.render.registry import Request, draw

    return draw(Request(value, links=links), kind)


def rendered(value: Value, kind: str, *, verbose: bool, links: str | None = None) -> str:
    """A report, comparison or week as text; in the colours and the width of the terminal, where it is for one."""
    from advisor.render.registry import Request, draw
    from advisor.render.terminal import this_screen

    return draw(Request(value, verbose=verbose, links=links, screen=this_screen()), kind).decode()


def write(path: Path, content: bytes) -> None:
    """Write beside the target, then rename: a reader never sees half a report."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"-o {path}: cannot be written: {error.strerror}") from None


@contextmanager
def progress_of_files() -> Iterator[Progress]:
    """A progress bar on standard error for large files; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    from advisor.inputs.storage import size

    with Bar(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=Console(stderr=True), transient=True
    ) as bar:

        def started(file: str) -> Callable[[int], object]:
            task = bar.add_task(Path(file).name, total=size(file))
            return lambda count: bar.advance(task, count)

        yield started


@contextmanager
def progress_of_runs() -> Iterator[RunProgress]:
    """A bar that counts runs, on standard error; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:

        def started(runs: int) -> Callable[[int], object]:
            task = bar.add_task("runs", total=runs)
            return lambda count: bar.advance(task, count)

        yield started
