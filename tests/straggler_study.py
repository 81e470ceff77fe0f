"""The operations of ByteDance's published traces (StragglerAnalysis) for `advisor.whatif.job_replay`.

One model chunk per stage, data parallelism not overlapped, as in trace SE. What waits for what is told from the names:
the trace itself records no dependency.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from advisor.model.intervals import Ints
from advisor.whatif.job_replay import START, JobReplay

TRACES: Final = Path(__file__).resolve().parents[2] / "shared/traces/stragglers"

POINT_TO_POINT: Final = ["forward-send", "forward-recv", "backward-send", "backward-recv"]
BY_STAGE: Final = ["params-all-gather", "grads-reduce-scatter"]  # among all data-parallel ranks of a stage
BY_PIPELINE: Final = ["embedding-grads-all-reduce"]  # between the first and the last stage of a pipeline
BY_ALL: Final = ["optimizer-clip-main-grad"]  # the norm of all gradients
ALONE: Final = ["layernorm-grads-all-reduce"]  # with whom is not told


def in_queues(ops: pl.DataFrame, edges: pl.DataFrame) -> tuple[pl.DataFrame, Ints, Ints]:
    """What `replay` takes, of operations that have an `op` (id) and a `queue`.

    Operations of one rank, run and queue run one after the other, by start, the first after the rank's begin; `edges`
    says what else they wait for: op, after (ids).
    """
    line = ["run", "rank", "queue"]
    begins = ops.group_by("run", "rank").agg(pl.min("start_ns"), pl.first("step")).sort("run", "rank")
    begins = begins.with_columns(
        dur_ns=pl.col("start_ns") - pl.col("start_ns").min().over("run"),
        type=pl.lit(START),
        kind=pl.lit("compute"),
        row=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    known = ops.with_columns(row=begins.height + pl.int_range(pl.len(), dtype=pl.Int64))
    queued = known.join(begins.select("run", "rank", begin="row"), on=["run", "rank"]).sort(*line, "start_ns", "op")
    queued = queued.select("row", before=pl.coalesce(pl.col("row").shift(1).over(line), "begin"))
    waits = edges.join(known.select("op", "row"), on="op").join(known.select(after="op", before="row"), on="after")
    both = pl.concat([queued, waits.select("row", "before")])
    rows = pl.concat([begins, known], how="diagonal_relaxed").drop("row")
    return rows, both["row"].to_numpy(), both["before"].to_numpy()


def operations(trace: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The operations and what they wait for beyond their queue's order."""
    kind = pl.col("type")
    direction = kind.str.extract("^(forward|backward)")
    rows = pl.read_parquet(trace).with_row_index("op").with_columns(type=pl.col("optype").cast(pl.String))
    instance = (
        pl.when(kind.is_in(POINT_TO_POINT))
        .then(pl.format("{} {} of {}", direction, "seq_id", "dp_rank"))
        .when(kind.is_in(BY_STAGE))
        .then(pl.format("{} {} of {}", "type", "seq_id", "stage"))
        .when(kind.is_in(BY_PIPELINE))
        .then(pl.format("{} of {}", "type", "dp_rank"))
        .when(kind.is_in(BY_ALL))
        .then("type")
    )
    collective = kind.is_in([*BY_STAGE, *BY_PIPELINE, *BY_ALL, *ALONE])
    ops = rows.select(
        pl.col("op").cast(pl.Int64),
        pl.col("rank", "step", "seq_id", "dp_rank").cast(pl.Int64),
        run=pl.col("step").cast(pl.Int64),
        group=pl.lit(0),
        stage=pl.col("stage").cast(pl.Int64),
        queue=pl.when(kind.is_in(POINT_TO_POINT)).then("type").otherwise(pl.lit("main")),
        type="type",
        kind=pl.when(kind.is_in(POINT_TO_POINT))
        .then(pl.lit("p2p"))
        .when(collective)
        .then(pl.lit("collective"))
        .otherwise(pl.lit("compute")),
        start_ns=_ns("start_ts"),
        dur_ns=_ns("duration"),
        instance=instance,
        told_as=kind.str.replace("^(forward|backward)-(send|recv)$", "${1}-pp-comm"),
    )
    return ops, _waits(ops)


def _ns(seconds: str) -> pl.Expr:
    return (pl.col(seconds).cast(pl.Float64) * 1e9).round().cast(pl.Int64)


def _waits(ops: pl.DataFrame) -> pl.DataFrame:
    at = ["step", "rank", "seq_id"]
    found = []
    for direction in ("forward", "backward"):
        compute, send, receive = (
            ops.filter(pl.col("type") == f"{direction}-{what}").select(*at, "op")
            for what in ("compute", "send", "recv")
        )
        earlier = compute.with_columns(pl.col("seq_id") + 1)
        found += [
            send.join(compute, on=at).select("op", after="op_right"),
            compute.join(receive, on=at).select("op", after="op_right"),
            receive.join(earlier, on=at).select("op", after="op_right"),
        ]
    return pl.concat([*found, _first_backward(ops)])


def _first_backward(ops: pl.DataFrame) -> pl.DataFrame:
    """The first transfer of gradients is queued before the last forward pass that precedes the first backward pass."""
    view = ["step", "rank"]
    compute = ops.filter(pl.col("type").is_in(["forward-compute", "backward-compute"])).sort("start_ns")
    last_but_one = compute.group_by(view, maintain_order=True).agg(
        after=pl.col("op").gather(pl.col("type").eq("backward-compute").arg_max().cast(pl.Int64) - 2),
        ahead=pl.col("type").eq("backward-compute").arg_max(),
    )
    first = ops.filter(pl.col("type").is_in(["backward-send", "backward-recv"]), pl.col("seq_id") == 0)
    ahead = last_but_one.filter(pl.col("ahead") >= 2).explode("after")
    return first.join(ahead, on=view).select("op", "after")


def explained(job: JobReplay, column: str) -> dict[object, float | None]:
    """By value of a column of the operations, what these explain of the slow-down, the greatest first."""
    values = job.ops[column].drop_nulls().unique().sort()
    shares = {value: job.explained(job.of(column, value)) for value in values}
    return dict(sorted(shares.items(), key=lambda share: -(share[1] or 0)))
