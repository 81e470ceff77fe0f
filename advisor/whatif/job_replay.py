"""The job's replay: the operations of all ranks run again, joined at what they meet in, with something changed.

The method is that of ByteDance's straggler study (Lin et al., OSDI 2025, arXiv 2505.05713): replay the operations of
all ranks on their dependencies, once as recorded (T), once with every operation at the typical duration of its group
(T_ideal). T / T_ideal is the job's slow-down by stragglers. Replaying with one worker, stage or type of operation
changed tells what it has to do with it.

The model. Operations of one rank and queue run in order. An operation starts when all it waits for has ended. The
members of an instance (a collective, or a send with its receive) transfer when the last has arrived and end together,
so the transfer takes as long as the shortest member. Typical is the mean for compute and the median for transfers.
Steps that follow each other are one run, so that a rank which comes late out of one begins the next one late. Runs are
replayed each by itself; the ranks begin them as far apart as they did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from advisor.model.arrays import Floats, Ints, Mask
from advisor.model.profile import END_NS

START: Final = "start"
"""The type of the operation that stands for how much later than the first rank a rank begins the step."""

_LEAST_SHARE: Final = 0.001  # of the step; a smaller slow-down is not worth explaining
_ALIKE: Final = ["kind", "type", "group"]  # operations that would take as long as each other if nothing straggled


@dataclass(frozen=True)
class JobReplay:
    """The operations of a job's steps in an order in which they can run; see `replay`.

    `ops` holds the operations and one more of type `START` per rank and step, shape (ops,). Per op: `own` and
    `typical`, its duration without waiting, in ns. `recorded_ms` is the time of each run of `steps` steps in all, by
    run: from the first rank's begin to the last one's end.
    """

    ops: pl.DataFrame
    own: Ints
    typical: Ints
    graph: Graph
    recorded_ms: Floats
    steps: int

    @cached_property
    def runs_ms(self) -> Floats:
        """Replayed time of each run."""
        times: Floats = self.graph.run_ns(self.own) / 1e6
        return times

    @property
    def step_ms(self) -> float:
        """Mean step time of the replay; with nothing changed it is close to the recorded one."""
        return float(self.runs_ms.sum()) / self.steps

    @cached_property
    def ideal(self) -> JobReplay:
        """With every operation at its typical duration."""
        return self.with_typical(np.ones(len(self.own), bool))

    @property
    def error(self) -> float:
        """How far the replayed mean step time is from the recorded one, as a share of it.

        ByteDance leaves out jobs where it is above 5 %.
        """
        return float(self.runs_ms.sum() / self.recorded_ms.sum()) - 1

    @property
    def slowdown(self) -> float:
        """Mean step time over the ideal one: S in equation 1 of the study."""
        return self.step_ms / self.ideal.step_ms

    def explained(self, column: str, tries: int | None = None) -> pl.DataFrame:
        """What each value of a column of `ops` has to do with the slow-down: column, explained_share.

        That is (T - T with only these operations typical) / (T - T_ideal), equation 5 of the study; null where there is
        no slow-down to explain. The shares need not sum to one: two ranks that are equally late explain nothing each by
        itself. The greatest first; with `tries`, of the values whose operations together exceed the typical ones most.
        """
        excess = self.ops.select(column, ns=pl.Series(self.own - self.typical)).drop_nulls()
        by_value = excess.group_by(column).agg(pl.sum("ns")).sort("ns", column, descending=[True, False])
        values = by_value.head(tries or by_value.height)[column].sort()
        loss_ms = self.step_ms - self.ideal.step_ms
        is_slow = loss_ms >= _LEAST_SHARE * self.step_ms
        less = [
            self.step_ms - self.with_typical(self.of(column, value)).step_ms if is_slow else None for value in values
        ]
        shares = pl.DataFrame({column: values, "explained_share": pl.Series(less, dtype=pl.Float64) / loss_ms})
        return shares.sort("explained_share", descending=True, nulls_last=True, maintain_order=True)

    def of(self, column: str, value: object) -> Mask:
        """Which operations have this value."""
        chosen: Mask = (self.ops[column] == value).fill_null(value=False).to_numpy()
        return chosen

    def with_typical(self, chosen: Mask) -> JobReplay:
        """With these operations as long as those like them typically are."""
        return replace(self, own=np.where(chosen, self.typical, self.own))

    def like_others(self, rank: int) -> JobReplay:
        """With a rank's operations as long as those like them are on the mean of the other ranks."""
        ops = self.ops.with_columns(took=pl.Series(self.own))
        others = ops.filter(pl.col("rank") != rank, pl.col("type") != START).group_by(_ALIKE).agg(usual=pl.mean("took"))
        usual = ops.join(others, on=_ALIKE, how="left", maintain_order="left")["usual"].round().cast(pl.Int64)
        changed = usual.fill_null(pl.Series(self.typical)).to_numpy()
        return replace(self, own=np.where(self.of("rank", rank), changed, self.own))

    def scaled(self, chosen: Mask, rest: float | Floats) -> JobReplay:
        """With a part of the time of some operations."""
        part = np.where(chosen, rest, 1.0)
        own, typical = (np.rint(part * times).astype(np.int64) for times in (self.own, self.typical))
        return replace(self, own=own, typical=typical)


@dataclass(frozen=True, slots=True)
class Graph:
    """Who waits for whom, in waves: all that a wave waits for is in the waves before it.

    A unit is an operation that runs by itself, or an instance. Operations are sorted by wave and unit, `edges` (the
    operation waited for) by the unit that waits. `op_cuts`, `unit_cuts` and `edge_cuts` bound the waves;
    `unit` is each operation's unit, `first_edge` where each unit's edges begin. The first wave, of the `START`
    operations, waits for nothing.
    `by_run` sorts the operations by run; `run_cuts` says where each run begins there, `begin_cuts` where in the first
    wave.
    """

    unit: Ints
    edges: Ints
    first_edge: Ints
    op_cuts: Ints
    unit_cuts: Ints
    edge_cuts: Ints
    by_run: Ints
    run_cuts: Ints
    begin_cuts: Ints

    def run_ns(self, durations: Ints) -> Ints:
        """Time of each run, shape (runs,), from durations of shape (ops,): the longest paths."""
        end = self._ends(durations)
        ended = np.maximum.reduceat(end[self.by_run], self.run_cuts)
        longest: Ints = ended - np.minimum.reduceat(end[: self.op_cuts[1]], self.begin_cuts)
        return longest

    def _ends(self, durations: Ints) -> Ints:
        """When each operation ends, shape (ops,)."""
        end = durations.copy()
        for wave in range(1, len(self.op_cuts) - 1):
            ops = slice(self.op_cuts[wave], self.op_cuts[wave + 1])
            units = slice(self.unit_cuts[wave], self.unit_cuts[wave + 1])
            edges = slice(self.edge_cuts[wave], self.edge_cuts[wave + 1])
            ready = np.maximum.reduceat(end[self.edges[edges]], self.first_edge[units] - edges.start)
            end[ops] += ready[self.unit[ops] - units.start]
        return end


def replay(ops: pl.DataFrame, edges: pl.DataFrame | None = None) -> JobReplay | None:
    """The steps of a job, ready to be run again; None where that cannot be.

    That is, where there are none, a run takes no time, or operations wait for each other in a ring.

    `ops` has one row per operation, on one clock:
        op: its id, unique; rank; step; run: optional, of steps that follow each other; else each step is one
        queue: operations of one rank, run and queue run one after the other, by start
        type: what the shares are told by, as "backward" or "all_reduce"
        kind: compute, collective or p2p
        start_ns, dur_ns: as recorded, waiting included
        instance: id, within the step, of the collective or of the send and its receive; null for compute, and where
            what it waits for is not known: then the whole duration counts as transfer
        group: optional, operations that would take as long as each other if nothing straggled; else those of a type
        and any column that tells ranks or operations apart, for `JobReplay.explained`.
    `edges` says what else an operation waits for, across queues: op, after (ids); those to unknown ids are ignored.
    """
    if ops.is_empty():
        return None
    ops = ops.with_columns(run=pl.col("run" if "run" in ops.columns else "step"))
    rows = _rows(ops)
    unit = rows["unit"].to_numpy()
    after, before = _edges(rows, edges)
    wave = _waves(len(rows), unit[before], unit[after])
    if wave is None:
        return None
    order = np.lexsort((unit, wave[unit]))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    rows = rows[order]
    graph = _graph(rows, wave[unit][order], place[after], place[before])
    own, typical = rows["transfer_ns"].to_numpy(), rows["typical_ns"].to_numpy()
    if not (graph.run_ns(own).all() and graph.run_ns(typical).all()):
        return None
    took = ops.group_by("run").agg(ns=END_NS.max() - pl.col("start_ns").min()).sort("run")["ns"]
    return JobReplay(
        rows.drop("row", "unit", "transfer_ns", "typical_ns"),
        own,
        typical,
        graph,
        took.to_numpy() / 1e6,
        ops["step"].n_unique(),
    )


def _rows(ops: pl.DataFrame) -> pl.DataFrame:
    """The operations and the ranks' begins, with row, unit (the first row of the instance), transfer_ns, typical_ns."""
    begins = (
        ops.sort("run", "start_ns", maintain_order=True)
        .unique(["run", "rank"], maintain_order=True)
        .with_columns(pl.lit(None).alias(name) for name in ("op", "queue", "instance"))
        .with_columns(
            type=pl.lit(START),
            group=pl.lit(START),
            kind=pl.lit("compute"),
            dur_ns=pl.col("start_ns") - pl.col("start_ns").min().over("run"),
        )
    )
    known = ops.with_columns(
        pl.col("type", "kind").cast(pl.Categorical),
        pl.col("dur_ns").clip(lower_bound=0),
        group=pl.col("group" if "group" in ops.columns else "type").cast(pl.Categorical),
    )
    together, instance = pl.col("instance").is_not_null(), ["step", "instance"]
    transfer = pl.col("transfer_ns")
    usual = pl.when(pl.col("kind") == "compute").then(transfer.mean()).otherwise(transfer.median())
    return (
        pl.concat([begins, known], how="diagonal_relaxed")
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
        .with_columns(
            unit=pl.when(together).then(pl.col("row").first().over(instance)).otherwise("row"),
            transfer_ns=pl.when(together).then(pl.col("dur_ns").min().over(instance)).otherwise("dur_ns"),
        )
        .with_columns(typical_ns=usual.round().cast(pl.Int64).over(_ALIKE))
    )


def _edges(rows: pl.DataFrame, explicit: pl.DataFrame | None) -> tuple[Ints, Ints]:
    """Rows that wait, and the rows that they wait for: by queue, as in `explicit`, and else for their rank's begin."""
    line = ["run", "rank", "queue"]
    queued = (
        rows.filter(pl.col("op").is_not_null())
        .sort(*line, "start_ns", "op")
        .select("row", before=pl.col("row").shift(1).over(line))
        .drop_nulls()
    )
    edges = [queued]
    if explicit is not None:
        ids = rows.select("op", "row").drop_nulls()
        awaited = explicit.join(ids, on="op").join(ids.select(after="op", before="row"), on="after")
        edges.append(awaited.select("row", "before"))
    waiting = pl.concat(edges)
    begins = rows.filter(pl.col("op").is_null()).select("run", "rank", before="row")
    first = rows.filter(pl.col("op").is_not_null()).join(waiting, on="row", how="anti").join(begins, on=["run", "rank"])
    both = pl.concat([waiting, first.select("row", "before")])
    return both["row"].to_numpy(), both["before"].to_numpy()


def _waves(units: int, before: Ints, after: Ints) -> Ints | None:
    """The wave of each unit, one more than that of the latest it waits for; None where some wait in a ring."""
    order = np.argsort(before, kind="stable")
    targets, first = after[order], np.searchsorted(before[order], np.arange(units + 1))
    missing = np.bincount(after, minlength=units)
    wave = np.full(units, -1)
    front, number = np.flatnonzero(missing == 0), 0
    while len(front):
        wave[front] = number
        count = first[front + 1] - first[front]
        reached = targets[np.repeat(first[front] - np.cumsum(count) + count, count) + np.arange(count.sum())]
        np.subtract.at(missing, reached, 1)
        front = np.unique(reached)
        front, number = front[missing[front] == 0], number + 1
    return wave if (wave >= 0).all() else None


def _graph(rows: pl.DataFrame, wave: Ints, after: Ints, before: Ints) -> Graph:
    """The graph of rows that are sorted by wave and unit; `after` and `before` are the ends of the edges."""
    is_first = np.diff(rows["unit"].to_numpy(), prepend=-1) != 0
    unit = np.cumsum(is_first) - 1
    waves = np.arange(wave[-1] + 2)
    edge_order = np.argsort(unit[after], kind="stable")
    waiting = unit[after][edge_order]
    run = rows["run"].to_numpy()
    by_run = np.argsort(run, kind="stable")
    unit_cuts = np.searchsorted(wave[is_first], waves)
    return Graph(
        unit=unit,
        edges=before[edge_order],
        first_edge=np.searchsorted(waiting, np.arange(unit[-1] + 1)),
        op_cuts=np.searchsorted(wave, waves),
        unit_cuts=unit_cuts,
        edge_cuts=np.searchsorted(waiting, unit_cuts),
        by_run=by_run,
        run_cuts=_firsts(run[by_run]),
        begin_cuts=_firsts(run[wave == 0]),
    )


def _firsts(values: Ints) -> Ints:
    """Where each of sorted values occurs first."""
    return np.flatnonzero(np.diff(values, prepend=values[0] - 1))
