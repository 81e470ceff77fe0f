"""Garbage collections of Python, marked in the recording as they happen."""

from __future__ import annotations

import gc
import sys
from typing import Any, Dict, List

from .lines import call_of
from .profilers import Profiler

_YOUNG = 0  # a generation that is collected in microseconds, thousands of times


class Collections:
    """Marks each collection but the youngest objects' between `begin` and `end`; those that the program asks for apart.

    Their names are those by which readers know them.
    """

    def __init__(self, profiler: Profiler) -> None:
        self.profiler = profiler
        self.ranges: List[Any] = []

    def begin(self) -> None:
        """Mark from here."""
        gc.callbacks.append(self._called)

    def end(self) -> None:
        """Mark no more."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: Dict[str, int]) -> None:
        if info["generation"] == _YOUNG:
            return
        if phase == "start":
            is_called = (call_of(sys._getframe(1)) or "").endswith("collect")
            self.ranges.append(self.profiler.range("gc.collect" if is_called else "Python GC"))
            self.ranges[-1].__enter__()
        elif self.ranges:
            self.ranges.pop().__exit__(None, None, None)
