"""The start: an interpreter of the program is hooked before any of its code runs."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from .hook import Hook
from .imports import AfterImport
from .notes import Notes

_SILENT = "99"  # of Kineto, which writes a line to standard error at each start and stop


def start(folder: str) -> None:
    """Hook this interpreter as `config.json` in the run's folder says."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        config = json.load(stream)
    hook = _hook(config, Notes(os.path.join(folder, "notes")))
    hook.notes.add("started")
    os.environ.setdefault("KINETO_LOG_LEVEL", _SILENT)
    sys.meta_path.insert(0, AfterImport({name: hook.safely(call) for name, call in hook.frameworks.items()}))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=hook.reset)


def _hook(config: dict[str, Any], notes: Notes) -> Hook:
    """What to do with the steps: record them, or time them with patches on and off."""
    if "patches" not in config:
        return Hook(config, notes)
    from .trial import Trial

    return Trial(config, notes)
