"""The kernels of a report as CSV: a row per kernel, launching op and module, grid and block, of all used steps."""

import csv
import io
import re
from typing import Final

from advisor.model.finding import Value
from advisor.model.report import Report
from advisor.text import one_line

_COLUMNS: Final = (
    *("run", "worker", "device", "name", "op", "module", "shapes"),
    *("grid", "block", "registers", "shared_bytes", "family"),
    *("verdict", "calls", "total_ms", "min_us", "mean_us", "max_us", "blocks_per_sm", "sm_efficiency"),
    *("occupancy", "tflops", "possible_tflops", "gbs", "possible_gbs", "reached"),
)
_FORMULA: Final = re.compile(r"(?:^|(?<=;))\s*[=+\-@\uff1d\uff0b\uff0d\uff20\ufe66]")
"""A spreadsheet computes a cell that begins so; some take a semicolon for the end of one."""


def render(report: Report) -> str:
    """One table of all runs; an empty field is not known."""
    file = io.StringIO()
    writer = csv.DictWriter(file, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for run in report.runs:
        for row in run.metrics.get("kernel_group", ()):
            writer.writerow({name: _field(value) for name, value in {"run": run.name, **row}.items()})
    return file.getvalue()


def _field(value: Value) -> Value:
    if not isinstance(value, str):
        return value
    return _FORMULA.sub(r"'\g<0>", one_line(value))
