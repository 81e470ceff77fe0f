"""Two hundred kernels of public traces against the roofs of their GPUs; writes docs/roofs.md.

    python benchmarks/roofs.py

The traces are those of ../shared/traces that one process of PyTorch wrote. Of each, the kernels with the most time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path
from statistics import median
from typing import Any, Final

import polars as pl

from advisor.analysis.device.kernels import kernels
from advisor.analysis.device.roofs import calls
from advisor.analysis.device.selection import select_steps
from advisor.analysis.device.view import DeviceView
from advisor.engine import read
from advisor.inputs.names.kernels import kernel_name
from advisor.text import percent

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs/roofs.md"
TRACES: Final = ROOT.parent / "shared/traces/kineto"
ROWS: Final = 200
MOST_OF_NAME: Final = 60
LARGE_NS: Final = 10_000
HEAD: Final = """# Kernels against the roof

{rows} kernels of public traces, those with the most time of each trace in turn. The roof is the least time that the GPU
allows for the work of the launching op: its FLOPs at the dense peak of the type, or its bytes at the memory bandwidth,
whichever takes longer. "Reached" is that time as a share of the time of all kernels of the op. Of {unknown} kernels the
work or the peak is unknown: custom and compiled kernels have no formula, graphs have no ops, and old recordings lack
the options of convolutions. Small ops reach little, because a kernel takes some microseconds to begin and to end. Made
by `python benchmarks/roofs.py`; the formulas are in `advisor/analysis/device/op_work.py`.

| class | reached, median | kernels with a roof of 10 µs or more |
| --- | ---: | ---: |
{classes}

| GPU | kernel | class | op | type | limit | roof, µs | reached |
| --- | --- | --- | --- | --- | --- | ---: | ---: |
"""


def main() -> None:
    """Write the page."""
    of_traces = [rows(view) for path in sorted(TRACES.iterdir()) if (view := device(path))]
    turns = chain.from_iterable(zip_longest(*of_traces))
    table = list(islice(filter(None, turns), ROWS))
    table.sort(key=lambda row: (row["gpu"], -row["dur_ns"]))
    unknown = sum(row["reached"] is None for row in table)
    head = HEAD.format(rows=len(table), unknown=unknown, classes="\n".join(classes(table)))
    PAGE.write_text(head + "\n".join(map(line, table)) + "\n", "utf-8")


def device(path: Path) -> DeviceView | None:
    """The trace's first device; None where none was used."""
    file = min(path.iterdir())
    view = select_steps(read(str(file))).views[0]
    return view if view.device is not None and view.total_ns else None


def rows(view: DeviceView) -> list[dict[str, Any]]:
    """A row per kernel and op, the most time first."""
    roofs = view.once(calls).select("dtype", "roof_ns", "computes", "reached", "matrix_ns", op="id", of_op="dur_ns")
    ran = view.once(kernels).filter(pl.col("name").is_not_null()).join(roofs, on="op", how="left")
    by = ran.group_by("name", "op_name", "shape", "family").agg(
        pl.sum("dur_ns"),
        pl.first("dtype", "op_dtype", "element_type", "computes"),
        pl.mean("roof_ns"),
        reached=pl.col("roof_ns").sum() / pl.col("of_op").sum(),
        known=pl.col("roof_ns").count() == pl.len(),
    )
    known = pl.when("known")
    by = by.with_columns(roof_ns=known.then("roof_ns"), reached=known.then(pl.col("reached").clip(upper_bound=1.0)))
    gpu = view.facts.get("name") or (view.gpu.model if view.gpu else "unknown")
    longest_first = by.sort("dur_ns", "name", "shape", descending=[True, False, False])
    return longest_first.with_columns(pl.col("name", "family").cast(pl.String), gpu=pl.lit(gpu)).to_dicts()


def classes(table: list[dict[str, Any]]) -> Iterator[str]:
    """The median of each class."""
    large = [row for row in table if row["reached"] and row["roof_ns"] >= LARGE_NS]
    known = pl.DataFrame([{name: row[name] for name in ("family", "reached")} for row in large])
    counts = Counter(known["family"])
    for family, number in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        shares = known.filter(pl.col("family") == family)["reached"].to_list()
        yield f"| {family} | {percent(median(shares))} | {number} |"


def line(row: dict[str, Any]) -> str:
    """One kernel."""
    name = kernel_name(str(row["name"])).replace("|", "\\|")[:MOST_OF_NAME]
    op = " ".join(str(row[part]) for part in ("op_name", "shape") if row[part])
    dtype = row["dtype"] or row["element_type"] or row["op_dtype"] or ""
    limit = "" if row["reached"] is None else "compute" if row["computes"] else "memory"
    roof = "" if row["reached"] is None else f"{row['roof_ns'] / 1e3:,.1f}"
    reached = "unknown" if row["reached"] is None else percent(row["reached"])
    cells = (row["gpu"], f"`{name}`", row["family"], f"`{op}`" if op else "", dtype, limit, roof, reached)
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
