"""How much of the device time of public recordings the table of kernels' names explains.

    python benchmarks/kernel_names.py

The recordings are those of ../shared/traces with a GPU. Of each: the share of the device time whose family is known,
and of the time in products, whose number format decides their rate, the share whose format is known: by the name, by
the launching op or by XLA's program. Exit 1 if either is below 98 % of the device time of all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import polars as pl

from advisor.analysis.device.kernels import operand_type
from advisor.engine import read
from advisor.errors import AdvisorError
from advisor.inputs.names.kernels import PRODUCTS, classify

TRACES: Final = Path(__file__).parents[2] / "shared/traces"
BAR: Final = 0.98
# a program's own kernels have no family; rows of whole graphs and of a TPU are no kernels of a GPU
NO_LIBRARIES: Final = ("cloverleaf", "saxpy", "cuda-graph.sqlite", "tpu-inference")


def main() -> None:
    """Print a line per recording and the two totals."""
    if not TRACES.exists():
        sys.exit(f"{TRACES}: not there")
    paths = [path for folder in ("kineto", "nsys", "xplane") for path in sorted((TRACES / folder).iterdir())]
    rows = [row for path in paths if not any(word in path.name for word in NO_LIBRARIES) and (row := shares(path))]
    table = pl.DataFrame(rows, orient="row", schema=["recording", "ms", "family", "products", "format"])
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, float_precision=4):
        print(table)
    of = table.select(
        family=pl.col("family").dot("ms") / pl.sum("ms"),
        format=(pl.col("format") * pl.col("products")).dot("ms") / pl.col("products").dot("ms"),
    )
    family, form = of.row(0)
    print(f"family known of {family:.2%} of the device time, number format of {form:.2%} of the time in products")
    sys.exit(int(min(family, form) < BAR))


def shares(path: Path) -> tuple[str, float, float, float, float] | None:
    """The recording, its device time in ms, the shares of known families, of products, and of their known formats."""
    try:
        profile = read(str(path))
    except AdvisorError:
        return None
    ops = profile.device_ops.filter(pl.col("kind").is_in(["kernel", "collective"]))
    total = _ns(ops)
    if not total:
        return None
    host = profile.host_ops.select(op="id", dtypes=pl.col("dtypes").cast(pl.String))
    rows = ops.select("name", "kind", "op", "dur_ns", "operand_type").join(host, on="op", how="left")
    rows = rows.hstack(classify(rows["name"]).select("family", "element_type"))
    operand = pl.col("dtypes").map_elements(operand_type, return_dtype=pl.String)
    product = rows.filter(pl.col("family").is_in(PRODUCTS))
    known = product.filter(pl.coalesce("element_type", operand, pl.col("operand_type").cast(pl.String)).is_not_null())
    unknown = rows.filter(pl.col("kind") != "collective", pl.col("family") == "other")
    product_ns = _ns(product)
    formats = _ns(known) / product_ns if product_ns else 1.0
    return path.name, total / 1e6, 1 - _ns(unknown) / total, product_ns / total, formats


def _ns(rows: pl.DataFrame) -> float:
    return float(rows["dur_ns"].sum())


if __name__ == "__main__":
    main()
