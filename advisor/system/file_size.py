"""How large a file may be: what fits into the memory that this process may use, or what the user allows."""

import os
import re
import resource
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from advisor.errors import ReadError, UsageError

_SHARE: Final = 0.7  # of the memory: the rest is for the interpreter, its libraries, and what else runs
_PER_STORED: Final = 128  # bytes of memory per byte as stored: rows of sound files take up to 105, those of bombs 300
_UNPACKED: Final = 64  # bytes per byte as stored: traces have up to 35, copies of one event 330
_LEAST: Final = 1_000_000_000  # a check of any recording may take so much
_BEFORE: Final = 170_000_000  # that a check takes without any row
# Bytes of memory that a row takes to be read, and to be measured; of half a million bare kernels, 1.5 of bare ranges
DEVICE_OP: Final = 400, 1_600
HOST_OP: Final = 500, 200
_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_SIZES: Final = {"GiB": 30, "MiB": 20, "KiB": 10, "bytes": 0}
_UNITS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def most_bytes(memory_per_byte: float, stored: int | None = None) -> int:
    """How many bytes, unpacked, fit into 70 % of the memory when reading takes so much each; of so many as `stored`."""
    most = int(_SHARE * usable_memory() / memory_per_byte)
    return most if stored is None else min(most, max(_LEAST, _UNPACKED * stored))


def memory_for(path: str, max_bytes: int | None) -> int:
    """The memory that a check of this recording, if it is not compressed as a whole, may take."""
    stored = sum(file.stat().st_size for file in (Path(path), *Path(path).glob("*.parquet")) if file.is_file())
    most = max(_LEAST, _PER_STORED * stored) if stored and not path.endswith(".gz") else most_bytes(1)
    return max(min(most, most_bytes(1)), max_bytes or 0)


@dataclass(slots=True)
class Room:
    """The memory that a recording may take; without any, its rows are not counted."""

    name: str
    memory: int | None = None
    _takes: tuple[int, ...] = (_BEFORE, _BEFORE)

    def take(self, rows: int, each: tuple[int, int], more: int = 0) -> None:
        """Count rows before they become tables, as few bytes can hold many; `more` are likely to follow."""
        full = max(before + (rows + more) * part for before, part in zip(self._takes, each, strict=True))
        self._takes = tuple(before + rows * part for before, part in zip(self._takes, each, strict=True))
        if self.memory is not None and max(self._takes) > self.memory:
            most = f"takes {full / 1e9:,.2g} GB of memory, over the {self.memory / 1e9:,.2g} GB for a file of its size"
            raise ReadError(f"{most}; record fewer steps, or allow more with --max-size", self.name)


def usable_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or less where a control group or a limit says so."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    limits = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    return min(machine, *limits, *_of_cgroups(_OWN_CGROUPS, _CGROUPS))


@lru_cache(maxsize=1)  # each file of a run asks
def _of_cgroups(own_groups: Path, cgroups: Path) -> list[int]:
    """What this process's control groups, and those around them, limit its memory to; versions 1 and 2."""
    limits = list[int]()
    for line in own_groups.read_text().splitlines() if own_groups.exists() else ():  # only Linux has any
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = cgroups / "memory" if controllers else cgroups
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            with suppress(OSError, ValueError):  # there is none, or it is `max`
                if folder.is_relative_to(root) and (limit := int((folder / name).read_text())):
                    limits.append(limit)
    return limits


def size_of(option: str, text: str) -> int:
    """The bytes of `500M`, `12G` or `12 GiB`, in powers of 1,024; a UsageError where it is no size."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None or not float(match[1]):
        raise UsageError(f"{option} {text}: not a size; write it as 500M or 12G")
    return int(float(match[1]) * 1024 ** _UNITS[match[2].upper()])


def too_large(name: str, most: int) -> ReadError:
    """The error of a file that is larger than allowed."""
    unit, power = next((unit, power) for unit, power in _SIZES.items() if most >= 1 << power)
    limit = f"{most / 2**power:,.3g} {unit}"
    return ReadError(
        f"larger than {limit} unpacked, the limit here; allow more with --max-size, if there "
        "is the memory for it, or record fewer steps",
        name,
    )
