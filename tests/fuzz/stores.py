"""Stores of a fleet whose tables are older than others, swapped, cut or changed: an error, or the report of before."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import suppress
from datetime import date
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from advisor.config import Config
from advisor.errors import AdvisorError
from advisor.fleet import verify
from advisor.fleet.columns import TABLES
from advisor.fleet.ingest import ingest, rejudge
from advisor.fleet.store import Store
from advisor.fleet.weekly import weekly
from tests.fleet import Here, trace
from tests.fuzz.trees import spoilt

_TODAY = date(2026, 11, 21)
_ROUNDS = 3  # of ingest: what a table can be older by


@cache
def _sound() -> Path:
    """A folder with profiles and a store of them, for all cases of a process, which removes it at its end."""
    held = tempfile.TemporaryDirectory(prefix="advisor-fuzz-")
    atexit.register(held.cleanup)
    folder = Path(held.name)
    for number in range(_ROUNDS):
        trace(folder / "root" / f"job{number}", number)
        ingest([str(folder / "root")], Store(str(folder / "store")), Here(), today=_TODAY)
    return folder


def case(random: Random, folder: Path) -> Path:
    """Writes a store: `exact` where what is there is whole, only not of one time; `spoilt` where bytes are."""
    exact = random.random() < 0.6
    store = folder / ("exact" if exact else "spoilt")
    shutil.copytree(_sound() / "store", store)
    for name in random.sample(TABLES, random.randint(1, 3)):
        if exact:
            _exchange(store, name, random)
        else:
            _spoil(store / name, random)
    return store


def _exchange(store: Path, name: str, random: Random) -> None:
    """The table is gone, another lies in its place, or it lacks its last commits."""
    logs = sorted((store / name / "_delta_log").glob("*.json"))
    match random.randrange(4):
        case 0:
            shutil.rmtree(store / name)
        case 1:
            shutil.rmtree(store / name)
            shutil.copytree(_sound() / "store" / random.choice(TABLES), store / name)
        case _:
            for log in logs[random.randint(0, len(logs)) :]:
                log.unlink()


def _spoil(table: Path, random: Random) -> None:
    files = sorted(file for file in table.rglob("*") if file.is_file())
    for _ in range(random.randint(1, 3)):
        file = random.choice(files)
        match random.randrange(3):
            case 0:
                file.unlink(missing_ok=True)
            case 1 if file.exists():
                file.write_bytes(spoilt(file.read_bytes(), random))
            case _:
                other = random.choice(files)
                file.write_bytes(other.read_bytes() if other.exists() and random.random() < 0.5 else b"")


def _report(path: Path) -> dict[str, Any]:
    """What the week's report says, whatever order the rows of the store are in."""
    report = weekly(Store(str(path)), Config().fleet)
    hours = {name: round(value, 12) for name, value in report.total.model_dump(exclude_none=True).items()}
    return {"hours": hours, "rules": {rule.rule: rule.runs for rule in report.rules}, "coverage": report.coverage}


def check(path: Path) -> None:
    """Every command that reads a store; a report that differs from that of the sound store is wrong.

    Raises:
        AssertionError: a restored store gives another report.
    """
    verify._MOMENT_S = 0.0  # noqa: SLF001 - nobody is about to write
    for look in (lambda: verify.verify(Store(str(path))), lambda: rejudge(Store(str(path)), Here(), today=_TODAY)):
        with suppress(AdvisorError):
            look()
    try:
        report = _report(path)
    except AdvisorError:
        report = None
    if path.name == "exact":
        assert report in (None, _report(_sound() / "store")), "a restored store gives another report"
    try:
        ingest([str(_sound() / "root")], Store(str(path)), Here(), today=_TODAY)
    except AdvisorError:
        return
    if path.name == "exact":
        assert _report(path) == _report(_sound() / "store"), "ingest does not mend it"
