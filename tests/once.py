"""Recordings that many tests check: each file is read once in a process, and measured once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from advisor.inputs.discover import Recording
from advisor.metrics import Metric, Part
from advisor.model.profile import Profile
from advisor.model.report import Unreadable
from advisor.options import Options
from advisor.runs import files

Outcome: TypeAlias = tuple[list[Part], list[Unreadable]]

LIMIT = 80  # recordings in memory with their events
_parts, _read = files.parts, files._read  # noqa: SLF001 - where the engine reads a file, for whatever purpose
_latest: dict[object, Outcome] = {}


def parts(recording: Recording, options: Options, selected: Sequence[Metric] = ()) -> Outcome:
    """The measurements of each file, as `files.parts` has them; those of the latest recordings are at hand.

    For tests of what is made of measurements, not of how they come about.
    """
    key = (
        recording,
        _stamps(recording.copies or recording.files),
        options.steps,
        options.step_range,
        options.max_bytes,
        tuple((metric.name, metric.of) for metric in selected),
    )
    outcome = _latest.pop(key, None) or _parts(recording, options, selected)
    _latest[key] = outcome
    if len(heavy := [known for known, (read, _) in _latest.items() if any(p.place_rows is None for p in read)]) > LIMIT:
        del _latest[heavy[0]]
    return [*outcome[0]], [*outcome[1]]


def read(file: files._File, _: Callable[[int], object]) -> Profile | Unreadable:
    """The profile of a file, as `files._read` has it; those of the latest files are at hand."""
    return _at_hand(file, _stamps([file.at]))


@lru_cache(LIMIT)
def _at_hand(file: files._File, _: tuple[object, ...]) -> Profile | Unreadable:
    return _read(file, lambda _: None)


def _stamps(paths: Sequence[str]) -> tuple[object, ...]:
    """What tells a file from another at its place; of what is no file, an object that equals no other."""
    return tuple((Path(p).stat().st_mtime_ns, Path(p).stat().st_size) if Path(p).is_file() else object() for p in paths)
