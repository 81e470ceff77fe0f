"""Compares `advisor check` on an Nsight Systems export of about 500 MB with merely reading the columns it needs.

The floor is a process that reads those columns, all rows of them, into polars the way the reader does, and nothing
else: which they are is taken down while the reader reads the small export that the large one is made of. Ratios are of
CPU seconds, the least of the rounds, because other work on the machine stretches the seconds of a clock.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl
from kineto import BIN, CACHE, HERE, Cost, _machine, _measure
from polars.datatypes import DataTypeClass

if TYPE_CHECKING:
    from advisor.inputs.readers.nsys.tables import Where

RECORDED: Final = HERE.parents[1] / "shared/traces/nsys/llm-2.7b-a100-nvtx.sqlite"
FLOOR: Final = "floor: the needed columns, all rows"
ASKED: Final = "the rows the reader asks for"
CHECK: Final = "advisor check"
WITHOUT: Final = "advisor check, tables that nothing needs dropped"
SIZE: Final = {"kernels": 200_000, "os_events": 2_000_000, "samples": 3_000_000}
_TYPES: Final[dict[str, DataTypeClass]] = {"integer": pl.Int64, "real": pl.Float64, "text": pl.String}


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, default=RECORDED, help="a small export with kernels and OS calls")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--floor", nargs=2, metavar=("EXPORT", "COLUMNS"), help=argparse.SUPPRESS)
    parser.add_argument("--peers", action="store_true", help="nothing: no other tool reads exports of this size whole")
    options = parser.parse_args()
    if options.floor:
        floor(Path(options.floor[0]), json.loads(options.floor[1]))
        return
    if not options.input.is_file():
        print(f"{options.input}: not here, so nothing is measured; give an export with --input")
        return
    whole, lean = _enlarged(options.input)
    asked = needed(whole)
    all_rows = [[table, columns, None] for table, columns, _ in asked]
    reading = [sys.executable, __file__, "--floor", str(whole)]
    advisor = [str(BIN / "advisor"), "check", "-f", "json"]
    commands = {
        FLOOR: [*reading, json.dumps(all_rows)],
        ASKED: [*reading, json.dumps(asked)],
        CHECK: [*advisor, str(whole)],
        WITHOUT: [*advisor, str(lean)],
        f"{CHECK}, {options.input.stat().st_size / 1e6:.0f} MB": [*advisor, str(options.input)],
    }
    print(f"{_machine()}\n\n{options.input.name} enlarged to {whole.stat().st_size / 1e6:.0f} MB, ", end="")
    print(f"{lean.stat().st_size / 1e6:.0f} MB without what nothing needs; rounds: {options.rounds}\n", flush=True)
    _print(_measure(commands, options.rounds))
    print(f"\nThe reports of both are {'the same' if _same(whole, lean) else 'NOT THE SAME'}.")


def floor(export: Path, columns: list[tuple[str, dict[str, str], Where]]) -> None:
    """Read columns of an export into polars and keep them."""
    from advisor.inputs.readers.nsys.tables import opened  # noqa: PLC0415 - the parent must stay small: a child counts its size

    with opened(export, export.name) as tables:
        _kept = [
            tables.rows(name, {column: _TYPES[kind] for column, kind in kinds.items()}, where=where)
            for name, kinds, where in columns
        ]


def needed(export: Path) -> list[tuple[str, dict[str, str], Where]]:
    """What the reader asks an export for: table, columns with their types, and which rows; found out in a process."""
    script = f"import json, nsys, pathlib; print(json.dumps(nsys._asked(pathlib.Path({str(export)!r}))))"
    told = subprocess.run([sys.executable, "-c", script], cwd=HERE, check=True, capture_output=True, text=True)
    asked = json.loads(told.stdout)
    return [(table, columns, tuple(ids) if isinstance(ids, list) else ids) for table, columns, ids in asked]


def needed_tables(asked: list[tuple[str, dict[str, str], Where]]) -> list[str]:
    """Names of the tables asked for, each of those that versions of the exporter call differently."""
    return sorted({name for table, _, _ in asked for name in table.split("|")})


def _asked(export: Path) -> list[tuple[str, dict[str, str], Where]]:
    from advisor.inputs.readers.nsys import read, tables  # noqa: PLC0415 - as in `floor`

    asked: list[tuple[str, dict[str, str], Where]] = []
    kinds = {dtype: kind for kind, dtype in _TYPES.items()}
    rows = tables.Export.rows

    def noted(
        self: tables.Export,
        table: str,
        types: tables.Types,
        *,
        needs: tuple[str, ...] | None = None,
        where: Where = None,
    ) -> pl.DataFrame:
        asked.append((table, {column: kinds[dtype] for column, dtype in types.items()}, where))
        return rows(self, table, types, needs=needs, where=where)

    tables.Export.rows = noted  # type: ignore[method-assign]  # to listen
    read(export, export.name)
    return asked


def _enlarged(short: Path) -> tuple[Path, Path]:
    """The large export, and a copy without the tables that the reader does not ask for; made once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    content = hashlib.sha256(short.read_bytes() + (HERE / "enlarge_nsys.py").read_bytes() + repr(SIZE).encode())
    whole = CACHE / f"nsys-{content.hexdigest()[:12]}.sqlite"
    if not whole.exists():
        make = f"import enlarge_nsys as e, pathlib, sys; e.enlarge(*map(pathlib.Path, sys.argv[1:]), **{SIZE!r})"
        subprocess.run([sys.executable, "-c", make, short, whole], cwd=HERE, check=True)
    tables = needed_tables(needed(whole))
    lean = whole.with_name(f"{whole.stem}-{hashlib.sha256(repr(tables).encode()).hexdigest()[:6]}-lean.sqlite")
    if not lean.exists():
        make = "import enlarge_nsys as e, pathlib, sys; e.keep_only(*map(pathlib.Path, sys.argv[1:3]), sys.argv[3:])"
        subprocess.run([sys.executable, "-c", make, whole, lean, *tables], cwd=HERE, check=True)
    return whole, lean


def _same(one: Path, other: Path) -> bool:
    """Whether two exports get the same report, names of files apart."""
    told = []
    for export in (one, other):
        command = [str(BIN / "advisor"), "check", str(export), "-f", "json"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        told.append(said.replace(str(export), "").replace(export.stem, ""))
    return told[0] == told[1]


def _print(costs: dict[str, list[Cost]]) -> None:
    least = {name: min(cost.cpu_s for cost in runs) for name, runs in costs.items()}
    print("| what | least CPU s | times the floor | least s | peak MB |\n| --- | ---: | ---: | ---: | ---: |")
    for name, runs in costs.items():
        wall, peak = min(run.wall_s for run in runs), max(run.peak_mb for run in runs)
        print(f"| {name} | {least[name]:.2f} | {least[name] / least[FLOOR]:.2f} | {wall:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
