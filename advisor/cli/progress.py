"""How far the work is, on standard error: bars of files and runs, lines of trials."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from advisor.text import count, lapse, ms, percent

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

    from advisor.model.trials import Gain
    from advisor.options import Progress
    from advisor.system.engines import Progress as RunProgress

_EVERY_S: Final = 0.5
_LINE_S: Final = 30.0


class TrialProgress:
    """Says what is tried and the interval so far; on a terminal the last line is rewritten."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last, self._at = "", 0.0

    def estimate(self, seconds: float, ideas: int) -> None:
        """What the trials that fit into the time will take."""
        about = f"about {ms(1e3 * seconds)} more, longer on a busy machine" if ideas else "none fits into the time left"
        self._line(f"{count(ideas, 'trial')}: {about}")

    def tell(self, name: str, gain: Gain | None) -> None:
        """What is tried now, with what is known of it."""
        if not self._live:
            if name != self._last:
                self._line(f"trying: {name}")
                self._last = name
            return
        if time.monotonic() - self._at < _EVERY_S:
            return
        self._at = time.monotonic()
        so_far = f", so far {percent(gain.ratio)} of the step, ±{percent(gain.half_width)}" if gain else ""
        self.close()
        sys.stderr.write(f"advisor: {name}{so_far}")
        sys.stderr.flush()

    def _line(self, text: str) -> None:
        self.close()
        sys.stderr.write(f"advisor: {text}\n")

    def close(self) -> None:
        """Take the line away that was to be rewritten."""
        if self._live:
            sys.stderr.write("\r\033[K")


@contextmanager
def progress_of_files() -> Iterator[Progress]:
    """A progress bar on standard error for large files; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn

    from advisor.inputs.storage import size

    with _bar(TextColumn("{task.description}"), BarColumn(), DownloadColumn()) as bar:
        yield lambda file: partial(bar.advance, bar.add_task(Path(file).name, total=size(file)))


@contextmanager
def progress_of_runs() -> Iterator[RunProgress]:
    """A bar that counts runs, on standard error; a line now and then where that is no terminal."""
    if not sys.stderr.isatty():
        yield lines_of_runs
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    with _bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        yield lambda runs: partial(bar.advance, bar.add_task("runs", total=runs))


def _bar(*columns: ProgressColumn) -> Bar:
    from rich.console import Console
    from rich.progress import Progress as Bar

    return Bar(*columns, console=Console(stderr=True), transient=True)


def lines_of_runs(runs: int) -> Callable[[int], object]:
    """Writes how many of the runs are done every half a minute, for a log."""
    done, start = 0, time.monotonic()
    last = start

    def advance(count: int) -> None:
        nonlocal done, last
        done, now = done + count, time.monotonic()
        if now - last >= _LINE_S and done < runs:
            last, rest = now, (now - start) / done * (runs - done)
            typer.echo(f"advisor: {done:,} of {runs:,} runs, about {lapse(rest * 1e9)} left", err=True)

    return advance
