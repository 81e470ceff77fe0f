"""What commands share: the kinds of output by suffix, rendering, writing whole files or none, and how far the work is.

Progress goes to standard error: bars of files and runs, lines of trials.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import wraps
from itertools import chain, islice
from pathlib import Path
from secrets import token_hex
from shutil import copymode, get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, Final, ParamSpec, TypeVar

import typer
from typer import Option

from advisor import __version__
from advisor.cli.runners import disarmed
from advisor.errors import AdvisorError, UsageError
from advisor.render.registry import RENDERERS, Request, draw, kinds
from advisor.system.processes import unwound
from advisor.text import bytes_, lapse, one_line, percent

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from advisor.config import Config
    from advisor.model.trials import Gain
    from advisor.options import Options, Progress
    from advisor.render.registry import Value
    from advisor.system.engines import Progress as Amounts
    from advisor.vocabulary.kinds import DocumentKind

# Heavy imports stand inside the functions: `advisor --help` answers at once.

_Choice = TypeVar("_Choice", bound=str)
_Words = ParamSpec("_Words")

CORES = os.cpu_count() or 1
_LITTLE_BYTES = 4 << 20  # as stored: up to 80 MB of a gzipped trace's text
_MANY_FILES = 256

ConfigPath = Annotated[Path | None, Option(help="advisor.yaml to use; by default the nearest at or above this folder.")]
Steps = Annotated[str, Option(help="Steps to use: steady, all, or A:B.")]
StepRange = Annotated[str | None, Option(metavar="REGEX", help="Ranges to take for steps, by their whole name.")]
EngineName = Annotated[str, Option(metavar="ENGINE", help="local, or dask=ADDRESS of a Dask scheduler.")]
Ranks = Annotated[
    str | None,
    Option(metavar="sample:NUMBER", help="Read so many ranks of a job: one per node, then those that others wait for."),
]
Processes = Annotated[int, Option(min=1, help="Processes that read a run; by default one per core.")]


def options_of(config: Path | None, max_size: str | None, ranks: str | None = None, **more: Any) -> Options:  # noqa: ANN401 - as `Options` has them
    """How to read, measure and judge, as the options of a command say it; the settings are the nearest ones."""
    from advisor.options import Options

    return Options(config=config_of(config), max_bytes=bytes_of(max_size), sample=sample_size(ranks), **more)


def sample_size(ranks: str | None) -> int | None:
    """The number in `sample:64`, None where all ranks are to be read; a UsageError where it is neither."""
    if ranks is None:
        return None
    if (number := re.fullmatch(r"sample:([1-9][0-9]{0,8})", ranks)) is None:
        raise UsageError(f"--ranks {ranks}: give how many to read, such as sample:64")
    return int(number[1])


def error_lines(text: str) -> str:
    """The error as wide as the terminal, in one line where there is none; a command at its end has its own line."""
    if not (sys.stderr.isatty() or "COLUMNS" in os.environ):
        return text
    words, _, command = text.rpartition(": `") if text.endswith("`") else ("", "", "")
    lines = fill(words or text, get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)
    return f"{lines}:\n  {command[:-1]}" if words else lines


def spare_start(paths: Iterable[str]) -> None:
    """Have libraries start with less, once no program is to inherit it.

    Pydantic need not look through all installed packages for plugins, and NumPy multiplies no matrices. Polars works on
    one thread where there is little to read: more of them take longer to start than they save.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["POLARS_ENGINE_AFFINITY"] = "in-memory"  # all tables are, and to start another engine takes longer
    if sum(map(_stored_bytes, paths)) < _LITTLE_BYTES:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")


def _stored_bytes(path: str) -> int:
    """Size of a local file or small folder; of anything else, whose size would take time to tell, as much as counts."""
    place = Path(path)
    try:
        files = list(islice(place.rglob("*"), _MANY_FILES)) if place.is_dir() else [place]
        return _LITTLE_BYTES if len(files) == _MANY_FILES else sum(file.stat().st_size for file in files)
    except (OSError, ValueError):  # it is not there, is a link that leads nowhere, or no name
        return _LITTLE_BYTES


MaxSize = Annotated[
    str | None,
    Option(
        metavar="SIZE",
        help="Read no file that is larger, unpacked: 500M, 12G; by default what fits into 70 % of the memory.",
    ),
]


def bytes_of(max_size: str | None) -> int | None:
    """The bytes that `--max-size` allows; None where it is not given."""
    from advisor.system.file_size import size_of

    return None if max_size is None else size_of("--max-size", max_size)


def config_of(path: Path | None) -> Config:
    """The settings of `--config`, or of the nearest advisor.yaml."""
    from advisor.config import find, load

    with suppress(FileNotFoundError):  # a program that was recorded may have removed this folder
        path = path or find(Path.cwd())
    return load(path)


def chosen(option: str, value: str, allowed: tuple[_Choice, ...]) -> _Choice:
    """The value of an option that allows only some."""
    for candidate in allowed:
        if value == candidate:
            return candidate
    raise UsageError(f"{option} {value}: not one of {', '.join(allowed)}")


def outputs(kind: DocumentKind, format_: str, paths: list[Path] | None) -> tuple[str, dict[Path, str]]:
    """What goes to standard output and, by its suffix, into each file; refused before the work if it cannot be."""
    standard, files = chosen("--format", format_, kinds(kind, text_only=True)), dict[Path, str]()
    suffixes = {name: RENDERERS[name].suffixes for name in kinds(kind)}
    for path in paths or []:
        if not path.parent.is_dir():
            raise UsageError(f"-o {path}: there is no folder {path.parent}; make it first")
        if not os.access(path.parent, os.W_OK) and not path.exists():
            raise UsageError(f"-o {path}: the folder {path.parent} cannot be written; choose another")
        fitting = [name for name, of in suffixes.items() if path.name.lower().endswith(of)]
        if not fitting:
            raise UsageError(f"-o {path}: unknown suffix; use one of {' '.join(chain(*suffixes.values()))}")
        files[path] = fitting[0]
    return standard, files


def output_option(kind: DocumentKind, *, more: str = "") -> Any:  # noqa: ANN401 - what typer says of its options
    """The option `--output`, for what can show this."""
    suffixes = " ".join(RENDERERS[name].suffixes[0] for name in kinds(kind) if RENDERERS[name].suffixes)
    return Option("--output", "-o", help=f"Also write a file; the suffix says what: {suffixes}{more}. Repeatable.")


def format_option(kind: DocumentKind, more: str = "") -> Any:  # noqa: ANN401 - as above
    """The option `--format`, for what can show this as text."""
    words = f"Standard output: {', '.join(kinds(kind, text_only=True))}{more}."
    return Option("--format", "-f", metavar="FORMAT", help=words)


def rendered(value: Value, kind: str, *, verbose: bool, links: str | None = None) -> str:
    """A report, comparison or week as text; in the colours and the width of the terminal, where it is for one."""
    from advisor.render.terminal import this_screen

    return draw(Request(value, verbose=verbose, links=links, screen=this_screen()), kind).decode()


def show(value: Value, files: dict[Path, str], kind: str, *, verbose: bool = False) -> None:
    """Write it into each file as what its suffix says, and to standard output as the other kind."""
    write({path: draw(Request(value), of_file) for path, of_file in files.items()})
    sys.stdout.write(rendered(value, kind, verbose=verbose))


def make(folder: Path) -> None:
    """The folder, and those above it, where they are not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made: {error.strerror}") from None


def write(contents: Mapping[Path, bytes]) -> None:
    """Write beside the targets, then rename: all of them whole, or none. Into what is no file as a shell."""
    from advisor.inputs.discover import is_recording

    partials: dict[Path, Path] = {}
    with unwound(), ExitStack() as clearing:
        try:
            for path, content in contents.items():
                if is_recording(path):
                    raise UsageError(f"-o {path}: is a recording; give another name")
                if path.exists() and not path.is_file():
                    with suppress(UnicodeDecodeError):  # a picture or packed: no text, in which a runner looks
                        content = disarmed(content.decode()).encode()  # noqa: PLW2901 - standard output, perhaps of a CI
                    path.write_bytes(content)
                    continue
                target = Path(os.path.realpath(path))  # a link stays one, and the file that it leads to stays whole
                partial = target.with_name(f".{token_hex(8)}")  # short, and a name that nobody can put a link at
                with partial.open("xb") as file:
                    clearing.callback(partial.unlink, missing_ok=True)
                    if target.exists():  # who may read it stays who may
                        copymode(target, partial)
                    file.write(content)
                partials[path] = partial
            for path, partial in partials.items():
                partial.replace(os.path.realpath(path))
        except OSError as error:
            raise UsageError(f"-o {path}: cannot be written: {error.strerror}") from None


def answers_in_json(command: Callable[_Words, None]) -> Callable[_Words, None]:
    """The command; where it is to answer in JSON, an error is an answer too, beside its line on standard error."""

    @wraps(command)
    def answering(*words: _Words.args, **options: _Words.kwargs) -> None:
        try:
            command(*words, **options)
        except AdvisorError as error:
            if options.get("format_") in {"json", "brief"}:
                from advisor.model.brief import Failure

                answer = Failure(advisor_version=__version__, error=one_line(str(error)), exit_code=error.exit_code)
                sys.stdout.write(answer.model_dump_json(ensure_ascii=True) + "\n")
            raise

    return answering


_LINE_S: Final = 30.0


@contextmanager
def progress_of_trials() -> Iterator[Callable[[str, Gain | None], None]]:
    """Told of what is tried and of its gain so far: one line that changes on a terminal, else a line for each."""
    last = ""

    def tell(name: str, gain: Gain | None) -> None:
        nonlocal last
        if live:
            so_far = f", so far {percent(gain.ratio)} of the step, ±{percent(gain.half_width)}" if gain else ""
            live.update(Text(f"advisor: {name}{so_far}"))
        elif name != last:
            sys.stderr.write(f"advisor: trying: {name}\n")
        last = name

    if not sys.stderr.isatty():
        live = None
        yield tell
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as live:
        yield tell


@contextmanager
def progress_of_files() -> Iterator[Progress]:
    """How much of all files is read."""
    from advisor.inputs.storage import size

    with progress_of("read", bytes_) as add:
        yield lambda file: add(size(file) or 0)


@contextmanager
def progress_of(what: str, form: Callable[[int], str] = "{:,}".format) -> Iterator[Amounts]:
    """One bar for all, on standard error; a line every half a minute where that is no terminal."""
    done, total, start = 0, 0, time.monotonic()
    last = start

    def add(amount: int) -> Callable[[int], object]:
        nonlocal total
        total += amount
        return advance

    def advance(amount: int) -> None:
        nonlocal done, last
        done, now = done + amount, time.monotonic()
        so_far = f"{form(done)} of {form(total)} {what}"
        if bar:
            bar.update(bar.task_ids[0], completed=done, total=total, description=so_far)
        elif now - last >= _LINE_S and 0 < done < total:
            last, rest = now, (now - start) / done * (total - done)
            typer.echo(f"advisor: {so_far}, about {lapse(rest * 1e9)} left", err=True)

    with _bar() as bar:
        yield add


def _bar() -> AbstractContextManager[Bar | None]:
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    bar.add_task("")
    return bar
