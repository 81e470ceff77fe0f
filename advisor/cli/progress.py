"""How far the work is, on standard error: bars of files and runs, lines of trials."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import typer

from advisor.text import bytes_, lapse, percent

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from advisor.model.trials import Gain
    from advisor.options import Progress
    from advisor.system.engines import Progress as Amounts

_EVERY_S: Final = 0.5
_LINE_S: Final = 30.0


class TrialProgress:
    """Says what is tried and the interval so far; on a terminal the last line is rewritten."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last, self._at = "", 0.0

    def tell(self, name: str, gain: Gain | None) -> None:
        """What is tried now, with what is known of it."""
        if not self._live:
            if name != self._last:
                sys.stderr.write(f"advisor: trying: {name}\n")
                self._last = name
            return
        if time.monotonic() - self._at < _EVERY_S:
            return
        self._at = time.monotonic()
        so_far = f", so far {percent(gain.ratio)} of the step, ±{percent(gain.half_width)}" if gain else ""
        self.close()
        sys.stderr.write(f"advisor: {name}{so_far}")
        sys.stderr.flush()

    def close(self) -> None:
        """Take the line away that was to be rewritten."""
        if self._live:
            sys.stderr.write("\r\033[K")


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
