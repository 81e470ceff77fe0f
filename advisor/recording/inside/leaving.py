"""Ends the program after its recording, where `--stop` says so."""

from __future__ import annotations

import os
import sys
import time

from .notes import Notes

_PATIENCE_S = 30.0
_PAUSE_S = 0.05


def leave(notes: Notes) -> None:
    """Wait for the other ranks of this machine to finish theirs, then end without running any handler of the program.

    SystemExit would run them: some write a checkpoint over a good one.
    """
    ranks = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or "1"
    until = time.monotonic() + _PATIENCE_S
    while notes.count("result") < int(ranks) and time.monotonic() < until:
        time.sleep(_PAUSE_S)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(0)
