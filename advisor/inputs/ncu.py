"""Counters of kernels as `ncu --csv --page raw` prints them: what limits each."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import dropwhile
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from advisor.errors import ReadError
from advisor.inputs.names.kernels import kernel_name
from advisor.inputs.storage import head_of

Numbers: TypeAlias = Mapping[str, float]

_MOST_BYTES: Final = 64 << 20
_TIME: Final = "gpu__time_duration.sum"
_STALL: Final = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio")
_CYCLES: Final = "smsp__average_warp_latency_per_inst_issued.ratio"
_ISSUED: Final = "smsp__issue_active.avg.per_cycle_active"
_OCCUPANCY: Final = "sm__maximum_warps_per_active_cycle_pct"
_ACHIEVED: Final = "sm__warps_active.avg.pct_of_peak_sustained_active"
_THREADS: Final = (
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
)
_WARP: Final = 32  # threads
_WAVES: Final = "launch__waves_per_multiprocessor"
_LIMITS: Final = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "block size",
    "launch__occupancy_limit_blocks": "blocks",
}
# What is moved, and what the threads ask for. The difference is printed too (`derived__..._excessive`), but some
# versions scale it to thousands or millions and do not say so.
_SECTORS: Final = ("memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal")
_WAVEFRONTS: Final = ("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal")
_CONFLICTS: Final = (
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
)
_READ: Final = {
    *(_TIME, _CYCLES, _ISSUED, _OCCUPANCY, _ACHIEVED, *_THREADS, _WAVES, *_LIMITS, *_SECTORS, *_WAVEFRONTS, *_CONFLICTS)
}  # of up to thousands of columns
_DECIMAL_COMMA: Final = re.compile(r"\d[\d.]*,(?:\d{1,2}|\d{4,})")
_WORK: Final = frozenset({"selected", "not_selected"})  # warps that could go on
_HOW: Final = "write it with `ncu --set full --csv --page raw`"


class Counters(NamedTuple):
    """What limits a kernel, the mean over its launches by their time; None where the CSV does not have it."""

    issued: float | None = None  # instructions per cycle and scheduler, 0..1
    stall: str | None = None  # what warps wait for most: long_scoreboard, barrier, ...
    stalled: float | None = None  # part of the cycles between two instructions of a warp that it waits so
    excess: float | None = None  # part of the sectors of global memory that are moved though no thread asks for them
    conflicts: float | None = None  # part of the accesses of shared memory that conflicts of banks add
    occupancy: float | None = None  # part of a multiprocessor's warps that the launch allows, 0..1
    limit: str | None = None  # what allows no more
    achieved: float | None = None  # part of a multiprocessor's warps that were there, 0..1
    threads: float | None = None  # part of a warp's threads that an instruction is for, 0..1
    waves: float | None = None  # blocks over those that the device takes at once


def base_name(symbol: str) -> str:
    """What a person calls the kernel, without namespaces: ncu leaves them out by default, traces have them."""
    return kernel_name(symbol).rpartition("::")[2]


def read(path: str) -> dict[str, Counters]:
    """The counters of each kernel, by its `base_name`; a ReadError where the file cannot be read, or is no such CSV."""
    text = head_of(path, _MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ReadError(f"more than {_MOST_BYTES >> 20} MiB: profile fewer kernels, `ncu --launch-count 100`", path)
    launches: dict[str, list[Numbers]] = defaultdict(list)
    try:
        for name, numbers in _launches(text.decode("utf-8-sig", errors="replace"), path):
            launches[base_name(name)].append(numbers)
    except csv.Error as error:
        raise ReadError(f"{error}; {_HOW}", path) from error
    if not launches or not any(_TIME in launch for of in launches.values() for launch in of):
        raise ReadError(f"no table of kernels with their time and counters; {_HOW}", path)
    return {name: _counters(_mean(of)) for name, of in launches.items()}


def _launches(text: str, path: str) -> Iterable[tuple[str, Numbers]]:
    """Each launch's kernel and numbers: of a row per launch, or where each counter has a row, of those of one ID."""
    of_id: dict[object, tuple[str, dict[str, float]]] = {}
    table = csv.reader(dropwhile(lambda line: not line.startswith('"ID"'), io.StringIO(text, newline="")))
    names = next(table, [])
    for at, fields in enumerate(table):
        if any(map(_DECIMAL_COMMA.fullmatch, fields)):
            raise ReadError(f"its numbers have decimal commas; {_HOW}, under LC_ALL=C", path)
        row = dict(zip(names, fields, strict=False))  # a table may be wide, and most of it not there
        name, counter = row.get("Kernel Name"), row.get("Metric Name")
        if name:  # a row of units has none
            own = {counter: row.get("Metric Value", "")} if counter else row
            launch = of_id.setdefault((row.get("ID"), name) if counter else at, (name, {}))[1]
            for each in own.keys() & _READ | set(filter(_STALL.fullmatch, own)):
                with suppress(ValueError):  # `1,234.5` is a number, `n/a` is none
                    value = float(own[each].replace(",", ""))
                    launch |= {each: value} if abs(value) < 1e15 else {}  # noqa: PLR2004 - nor is NaN one
    return of_id.values()


def _mean(launches: Iterable[Numbers]) -> Numbers:
    weighed: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for launch in launches:
        for name, value in launch.items():
            weighed[name].append((value, max(launch.get(_TIME, 0.0), 1e-9)))
    columns = {name: np.array(of) for name, of in weighed.items()}
    return {name: float(np.average(of[:, 0], weights=of[:, 1])) for name, of in columns.items()}


def _counters(of: Numbers) -> Counters:
    stalls = {match[1]: value for name, value in of.items() if (match := _STALL.fullmatch(name))}
    waits = {name: value for name, value in stalls.items() if name not in _WORK}
    stall = max(waits, key=lambda name: waits[name], default=None)
    cycles = of.get(_CYCLES) or sum(stalls.values())
    limits = {what: of[name] for name, what in _LIMITS.items() if name in of}
    threads = [of[name] for name in _THREADS if name in of]
    conflicts = _ratio(of, *reversed(_CONFLICTS))
    return Counters(
        issued=of.get(_ISSUED),
        stall=stall,
        stalled=min(1.0, waits[stall] / cycles) if stall and cycles else None,
        excess=_excess(of, *_SECTORS),
        conflicts=_excess(of, *_WAVEFRONTS) if conflicts is None else conflicts,
        occupancy=of[_OCCUPANCY] / 100 if _OCCUPANCY in of else None,
        limit=min(limits, key=lambda what: limits[what], default=None),
        achieved=of[_ACHIEVED] / 100 if _ACHIEVED in of else None,
        threads=min(threads) / _WARP if threads else None,
        waves=of.get(_WAVES),
    )


def _ratio(of: Numbers, part: str, base: str) -> float | None:
    return max(0.0, min(1.0, of[part] / of[base])) if part in of and of.get(base) else None


def _excess(of: Numbers, moved: str, ideal: str) -> float | None:
    needed = _ratio(of, ideal, moved)
    return None if needed is None else 1 - needed
