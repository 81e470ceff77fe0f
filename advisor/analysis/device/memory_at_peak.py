"""What held the device's memory when it was fullest."""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.call_tree import ENGINE
from advisor.analysis.device.view import DeviceView
from advisor.model.intervals import above, nearest, nest

_MOST_ROWS: Final = 12
_STEP: Final = "Optimizer.step"
_KINDS: Final = ("op", "module", "annotation")
_OF_BLOCKS: Final = ["thread", "at_ns", "bytes", "address", "allocated_bytes", "framework_op", "region"]
_SCHEMA: Final = {"what": pl.String, "op": pl.String, "within": pl.String, "blocks": pl.Int64, "bytes": pl.Int64}


def blocks_at_peak(view: DeviceView) -> pl.DataFrame:
    """The memory held at the peak, by what asked for it, the most first; empty where the blocks cannot be told apart.

    Columns: what (op; `others` for all smaller ones together; `earlier` for what was there before the recording), op
    (the outermost around the request, such as aten::conv2d), within (the class of its module, the backward pass, the
    optimizer, or XLA's and TensorFlow's region), blocks, bytes. What differs only in a number behind an underscore is
    one row. The bytes add up to the peak.
    """
    events = view.allocations.select(_OF_BLOCKS).drop_nulls(["allocated_bytes", "address"])
    events = events.sort("at_ns", maintain_order=True)
    if not events.height:
        return pl.DataFrame(schema=_SCHEMA)
    at = int(events["allocated_bytes"].to_numpy().argmax())
    last = events.head(at + 1).unique("address", keep="last", maintain_order=True).filter(pl.col("bytes") > 0)
    by = _requests(view, last).group_by("op", "within").agg(blocks=pl.len(), bytes=pl.sum("bytes"))
    by = by.sort("bytes", "op", "within", descending=[True, False, False], nulls_last=True)
    smaller = by.slice(_MOST_ROWS).select(pl.sum("blocks", "bytes").cast(pl.Int64))
    earlier = int(events["allocated_bytes"][at]) - int(by["bytes"].sum())
    rows = [
        by.head(_MOST_ROWS).with_columns(what=pl.lit("op")),
        smaller.with_columns(what=pl.lit("others")),
        pl.DataFrame({"what": ["earlier"], "bytes": [earlier]}),
    ]
    return (
        pl.concat([pl.DataFrame(schema=_SCHEMA), *(r.cast({"bytes": pl.Int64}) for r in rows)], how="diagonal_relaxed")
        .filter(pl.col("bytes") > 0)
        .select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())
    )


def _requests(view: DeviceView, blocks: pl.DataFrame) -> pl.DataFrame:
    """The blocks with `op` and `within`: as the recorder gives them, or by the ranges that were open on the thread."""
    around = _around(view, blocks)
    of_range = pl.when(around["is_op"]).then(around["op"].str.strip_prefix(ENGINE))
    return blocks.select(
        "bytes",
        op=pl.coalesce(pl.col("framework_op").cast(pl.String).str.replace_all(r"_\d+", "_*"), of_range),
        within=pl.coalesce(
            pl.col("region").cast(pl.String),
            around["module"].str.replace(r"_\d+$", ""),
            pl.when(around["engine"].is_not_null()).then(pl.lit("backward pass")),
            pl.when(around["optimizer"].is_not_null()).then(pl.lit("optimizer")),
        ),
    )


def _around(view: DeviceView, blocks: pl.DataFrame) -> pl.DataFrame:
    """What was open around each block's request: names of op, module, engine and optimizer, and is_op (of `op`)."""
    ranges = view.host.select("thread", "start_ns", "dur_ns", "kind", "name").filter(_open(view.host, blocks))
    rows = ranges.filter(pl.col("kind").is_in(_KINDS), pl.col("thread").is_in(blocks["thread"].unique().implode()))
    moments = blocks.select(
        "thread", start_ns="at_ns", dur_ns=pl.lit(0, pl.Int64), kind=pl.lit("block"), name=pl.lit("")
    )
    spans = pl.concat([rows.with_columns(pl.col("kind", "name").cast(pl.String)), moments])
    start = spans["start_ns"].to_numpy()
    # a block's instant follows the ranges that begin with it: they come first, and so are around it
    parent = nest(spans["thread"].fill_null(-1).to_numpy(), start, start + spans["dur_ns"].to_numpy())
    kind, name = spans["kind"], spans["name"].str.replace(r"^nn\.Module: ", "")
    is_op = (kind == "op").to_numpy()
    outermost = nearest(~(is_op & (above(is_op.astype(np.int64), parent) == 1)), parent)
    engine = name.str.starts_with(ENGINE).to_numpy()
    optimizer = name.str.starts_with(_STEP).to_numpy()
    of_blocks = parent[rows.height :]
    around = {
        "op": above(outermost, of_blocks),
        "module": above(nearest((kind == "module").to_numpy(), parent), of_blocks),
        "engine": above(nearest(engine, parent), of_blocks),
        "optimizer": above(nearest(optimizer, parent), of_blocks),
    }
    names = {key: name.gather(at.clip(0)).set(pl.Series(at < 0), None) for key, at in around.items()}
    return pl.DataFrame({**names, "is_op": np.append(is_op, False)[around["op"]]})


def _open(host: pl.DataFrame, blocks: pl.DataFrame) -> pl.Series:
    """Which of the ranges were open, on whatever thread, when one of the blocks was requested."""
    at, start = blocks["at_ns"].sort().to_numpy(), host["start_ns"].to_numpy()
    end = start + np.maximum(host["dur_ns"].to_numpy(), 1)  # one without length is open for the instant
    return pl.Series(np.searchsorted(at, start) < np.searchsorted(at, end), dtype=pl.Boolean)
