"""How busy the cores are before a run, and what keeps that from making the program many times as slow."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_LOOK_S: Final = 0.5
_BUSY: Final = 0.2  # of the cores' time: less is the machine's own
_IDLE: Final = slice(3, 5)  # idle, and idle while a disk is waited for


def busy_share() -> float | None:
    """The share of the time of this process's cores that programs use now; None where the system does not say."""
    ticks_before, idle_before = cpu_time(_lines(), _cores())
    time.sleep(_LOOK_S)
    ticks, idle = cpu_time(_lines(), _cores())
    return 1 - (idle - idle_before) / (ticks - ticks_before) if ticks > ticks_before else None


def cpu_time(lines: Iterable[str], cores: Iterable[int]) -> tuple[int, int]:
    """The ticks of these cores since they were started, and those idle, of the lines of `/proc/stat` (proc(5))."""
    names = {f"cpu{core}" for core in cores}
    each = [[int(ticks) for ticks in line.split()[1:9]] for line in lines if line.split(" ", 1)[0] in names]
    return sum(map(sum, each)), sum(sum(ticks[_IDLE]) for ticks in each)


def calming(share: float | None) -> Mapping[str, str]:
    """Variables of a program that others keep from its cores; none on a quiet machine, or where it has its own.

    Threads that share an op spin until all are done. One that has no core keeps the others spinning until they lose
    theirs: at a load of 11 on two cores the median step of a script took 2.7 s, and 26 ms with threads that sleep.
    """
    is_busy = share is not None and share > _BUSY and "OMP_WAIT_POLICY" not in os.environ
    return {"OMP_WAIT_POLICY": "passive"} if is_busy else {}


def _cores() -> Iterable[int]:
    available = getattr(os, "sched_getaffinity", None)
    return available(0) if available else range(os.cpu_count() or 1)


def _lines() -> list[str]:
    try:
        return _STAT.read_text("ascii").splitlines()
    except OSError:
        return []
