"""The start: an interpreter of the program is hooked before any of its code runs, once it imports a framework."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Sequence

from .hook import Hook
from .notes import Notes


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
            finds = [getattr(finder, "find_spec", None) for finder in sys.meta_path]
            spec = next(filter(None, (find(name, path, target) for find in finds if find)), None)
        finally:
            self._searching = False
        loader: Any = spec and spec.loader
        original: Any = getattr(loader, "exec_module", None)

        def exec_module(module: Any) -> None:
            original(module)
            self.callbacks[name](module)

        with suppress(AttributeError, TypeError):  # a loader that is no plain object
            if original:
                loader.exec_module = exec_module
        return spec


_SILENT = "99"  # of Kineto, which writes a line to standard error at each start and stop


def start(folder: str) -> None:
    """Hook this interpreter as `config.json` in the run's folder says."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        config = json.load(stream)
    kind = Hook  # records the steps; a trial times them with patches on and off
    if "patches" in config:
        from .trial import Trial

        kind = Trial
    hook = kind(config, Notes(os.path.join(folder, "notes")))
    hook.notes.add("started")
    os.environ.setdefault("KINETO_LOG_LEVEL", _SILENT)
    sys.meta_path.insert(0, AfterImport({name: hook.safely(call) for name, call in hook.frameworks.items()}))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=hook.reset)
