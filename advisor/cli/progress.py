"""Lines on standard error on how trials go; on a terminal the last one is rewritten."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from advisor.text import count, ms, percent

if TYPE_CHECKING:
    from advisor.model.trials import Gain

_EVERY_S: Final = 0.5


class Progress:
    """Says what is tried and the interval so far."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last, self._at = "", 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clear()

    def estimate(self, seconds: float, ideas: int) -> None:
        """What the trials will take."""
        self._line(f"{count(ideas, 'trial')}: about {ms(1e3 * seconds)}, longer on a busy machine")

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
        self._clear()
        sys.stderr.write(f"advisor: {name}{so_far}")
        sys.stderr.flush()

    def _line(self, text: str) -> None:
        self._clear()
        sys.stderr.write(f"advisor: {text}\n")

    def _clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\033[K")
