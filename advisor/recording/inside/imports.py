"""Calls a function once a module has been imported, and changes nothing else of its import."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Sequence


class AfterImport:
    """A finder that finds nothing itself: it has the real loader call back after it executed a module."""

    def __init__(self, callbacks: dict[str, Callable[[Any], None]]) -> None:
        self.callbacks = callbacks
        self._searching = False

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The spec that the other finders give, with a loader that calls back."""
        if self._searching or name not in self.callbacks:
            return None
        self._searching = True
        try:
            spec = next(filter(None, (_spec(finder, name, path, target) for finder in sys.meta_path)), None)
        finally:
            self._searching = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._wrap(spec.loader, self.callbacks[name])
        return spec

    def _wrap(self, loader: Any, callback: Callable[[Any], None]) -> None:
        original = loader.exec_module

        def exec_module(module: Any) -> None:
            original(module)
            callback(module)

        try:
            loader.exec_module = exec_module
        except (AttributeError, TypeError):  # a loader that is no plain object
            pass


def _spec(finder: Any, name: str, path: Sequence[str] | None, target: Any) -> ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    return find(name, path, target) if find else None
