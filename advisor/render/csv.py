"""Tables of a report as CSV: ranks, or kernels by launching op and module, grid and block, of all used steps."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from advisor.model.finding import Value
from advisor.model.report import Report, Row, Run, number
from advisor.text import one_line
from advisor.vocabulary.parts import PARTS

_KERNELS: Final = (
    *("worker", "device", "name", "op", "module", "shapes"),
    *("grid", "block", "registers", "shared_bytes", "family"),
    *("verdict", "calls", "total_ms", "min_us", "mean_us", "max_us", "blocks_per_sm", "sm_efficiency"),
    *("occupancy", "tflops", "possible_tflops", "gbs", "possible_gbs", "reached"),
)
_PARTS_MS: Final = [f"{part}_ms" for part in PARTS]
_RANKS: Final = (
    *("rank", "worker", "device", "name", "node"),
    *("steps", "step_mean_ms", "own_step_ms", "wait_ms", "device_busy_share", *_PARTS_MS),
)
_FORMULA: Final = re.compile(r"(?:^|(?<=;))\s*[=+\-@\uff1d\uff0b\uff0d\uff20\ufe66]")
"""A spreadsheet computes a cell that begins so; some take a semicolon for the end of one."""


def kernels(report: Report) -> str:
    """One table of all runs; an empty field is not known."""
    return _lines(report, _KERNELS, lambda run: run.metrics.get("kernel_group", ()))


def ranks(report: Report) -> str:
    """A row per rank and device of all runs, with the milliseconds of each part of its mean step."""
    return _lines(report, _RANKS, _ranks)


def _ranks(run: Run) -> Iterator[Row]:
    of_worker: dict[Value, Row] = {of.worker: {"rank": of.rank, "name": of.name} for of in run.source.workers}
    nodes = {row["rank"]: row.get("node") for row in run.metrics.get("pace", ())}
    parts = defaultdict[tuple[Value, Value], dict[str, float]](lambda: dict.fromkeys(_PARTS_MS, 0.0))
    for row in run.metrics.get("accounting", ()):
        parts[row["worker"], row["device"]][f"{row['part']}_ms"] = number(row, "share")
    for place, row in enumerate(run.metrics.get("device", ())):
        shares, step_ms = parts[row["worker"], row["device"]], number(row, "step_mean_ms")
        of_part = {part: share * step_ms for part, share in shares.items()}
        yield {**row, **of_worker.get(row["worker"], {}), "node": nodes.get(place), **of_part}


def _lines(report: Report, columns: Sequence[str], rows: Callable[[Run], Iterable[Row]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, ("run", *columns), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for run in report.runs:
        for of in rows(run):
            row = {**of, "run": run.name}
            texts = {name: one_line(value) for name, value in row.items() if isinstance(value, str)}
            writer.writerow(row | {name: _FORMULA.sub(r"'\g<0>", text) for name, text in texts.items()})
    return file.getvalue()
