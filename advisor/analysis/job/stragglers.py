"""What-if for stragglers: the job's steps run again with operations at their typical duration.

The method is that of ByteDance's study (Lin et al., OSDI 2025, arXiv 2505.05713): replay the operations of all ranks on
their dependencies, once as recorded (T), once with every operation at the typical duration of its group (T_ideal).
T / T_ideal is the job's slow-down by stragglers. Replaying with one worker, stage or type of operation changed tells
what it has to do with it.

The model. Operations of one rank and queue run in order. An operation starts when all it waits for has ended. The
members of an instance (a collective, or a send with its receive) transfer when the last has arrived and end together,
so the transfer takes as long as the shortest member. Typical is the mean for compute and the median for transfers.
Steps are replayed each by itself; the ranks begin as far apart as they did. Where a step follows another, how late a
rank begins can be what made it late in the step before: that is told by `carried`, and counts there alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from advisor.model.arrays import Floats, Ints, Mask
from advisor.model.profile import END_NS

START: Final = "start"
"""The type of the operation that stands for how much later than the first rank a rank begins the step."""

_CELLS: Final = 4_000_000  # operations times what-ifs that are evaluated at once: 32 MB an array
_LEAST_SHARE: Final = 0.001  # of the step; a smaller slow-down is not worth explaining


@dataclass(frozen=True, slots=True)
class Replay:
    """The operations of a job's steps in an order in which they can run; see `replay`.

    `ops` holds the operations and one more of type `START` per rank and step, shape (ops,). Per op: `recorded` and
    `typical`, its duration without waiting, in ns. `steps` has one row per step: step, recorded_ms, step_ms (as
    replayed) and ideal_ms. A step's time is that of the rank which takes longest from its own begin to its own end.
    """

    ops: pl.DataFrame
    recorded: Ints
    typical: Ints
    graph: Graph
    steps: pl.DataFrame

    @property
    def step_ms(self) -> float:
        """Mean step time of the replay with nothing changed."""
        return _mean(self.steps["step_ms"])

    @property
    def ideal_ms(self) -> float:
        """Mean step time with every operation at its typical duration."""
        return _mean(self.steps["ideal_ms"])

    @property
    def error(self) -> float:
        """How far the replayed mean step time is from the recorded one, as a share of it.

        ByteDance leaves out jobs where it is above 5 %.
        """
        return self.step_ms / _mean(self.steps["recorded_ms"]) - 1

    @property
    def slowdown(self) -> float:
        """Mean step time over the ideal one: S in equation 1 of the study."""
        return self.step_ms / self.ideal_ms

    @property
    def by_rank(self) -> pl.DataFrame:
        """`by("rank")`."""
        return self.by("rank")

    @property
    def by_type(self) -> pl.DataFrame:
        """`by("type")`."""
        return self.by("type")

    def by(self, column: str) -> pl.DataFrame:
        """What each value of a column of `ops` has to do with the slow-down: column, slowdown, explained_share.

        `slowdown` is T with only these operations as recorded, over T_ideal (equations 2 and 4 of the study).
        `explained_share` is (T - T with only these operations typical) / (T - T_ideal), as its equation 5; null where
        there is no slow-down to explain. The shares need not sum to one: two ranks that are equally late explain
        nothing each by itself. Sorted by share, then slow-down, the greatest first. Times are means over the steps.
        """
        values, alone, without = self._each(column)
        frame = pl.DataFrame(
            {
                column: values,
                "slowdown": alone.mean(axis=0) / (self.ideal_ms * 1e6),
                "explained_share": self._share(without.mean(axis=0) / 1e6),
            }
        )
        return frame.sort("explained_share", "slowdown", descending=True, nulls_last=True, maintain_order=True)

    def _each(self, column: str) -> tuple[pl.Series, Floats, Floats]:
        """Values of the column; T by step and value, in ns: with only these as recorded, with only these typical."""
        codes, values = _codes(self.ops[column])
        parts = list(_chunks(len(values), max(1, _CELLS // max(1, len(self.ops)))))
        members = [codes[:, None] == np.arange(part.start, part.stop) for part in parts]
        alone = [self.graph.step_ns(_durations_where(member, self.recorded, self.typical)) for member in members]
        without = [self.graph.step_ns(_durations_where(member, self.typical, self.recorded)) for member in members]
        empty = np.empty((self.steps.height, 0))
        return values, np.concatenate([empty, *alone], axis=1), np.concatenate([empty, *without], axis=1)

    def _share(self, without_ms: Floats) -> list[float | None]:
        loss_ms = self.step_ms - self.ideal_ms
        if loss_ms < _LEAST_SHARE * self.step_ms:
            return [None] * len(without_ms)
        return [float(share) for share in (self.step_ms - without_ms) / loss_ms]


@dataclass(frozen=True, slots=True)
class Graph:
    """Who waits for whom, in waves: all that a wave waits for is in the waves before it.

    A unit is an operation that runs by itself, or an instance. Operations are sorted by wave and unit, `edges` (the
    operation waited for) by the unit that waits. `op_cuts`, `unit_cuts` and `edge_cuts` bound the waves;
    `unit` is each operation's unit, `first_edge` where each unit's edges begin. The first wave, of the `START`
    operations, waits for nothing.
    `views` sorts the operations by step and rank; `view_cuts` and `step_cuts` say where each begins, `begins` which
    operation begins each view. `behind` is by how much the latest rank came late out of the step before each, in ns; -1
    where that is not known.
    """

    unit: Ints
    edges: Ints
    first_edge: Ints
    op_cuts: Ints
    unit_cuts: Ints
    edge_cuts: Ints
    views: Ints
    view_cuts: Ints
    step_cuts: Ints
    begins: Ints
    behind: Ints

    def step_ns(self, durations: Ints) -> Ints:
        """Time of each step, shape (steps, what-ifs), from durations of shape (ops, what-ifs): the longest paths.

        That is from the last rank's end of the step before to the last rank's end; where the former is not known, the
        longest time from a rank's own begin to its own end.
        """
        end = np.empty_like(durations)
        end[: self.op_cuts[1]] = durations[: self.op_cuts[1]]
        for wave in range(1, len(self.op_cuts) - 1):
            ops = slice(self.op_cuts[wave], self.op_cuts[wave + 1])
            units = slice(self.unit_cuts[wave], self.unit_cuts[wave + 1])
            edges = slice(self.edge_cuts[wave], self.edge_cuts[wave + 1])
            ready = np.maximum.reduceat(end[self.edges[edges]], self.first_edge[units] - edges.start, axis=0)
            end[ops] = ready[self.unit[ops] - units.start] + durations[ops]
        ended = np.maximum.reduceat(end[self.views], self.view_cuts, axis=0)
        own = np.maximum.reduceat(ended - end[self.begins], self.step_cuts, axis=0)
        onward = np.maximum.reduceat(ended, self.step_cuts, axis=0) - self.behind[:, None]
        longest: Ints = np.where(self.behind[:, None] < 0, own, onward)
        return longest


def replay(
    ops: pl.DataFrame,
    edges: pl.DataFrame | None = None,
    *,
    constant: Collection[str] = (),
    carried: pl.DataFrame | None = None,
) -> Replay | None:
    """The steps of a job, ready to be run again; None where that cannot be.

    That is, where there are none, a step takes no time, or operations wait for each other in a ring.

    `ops` has one row per operation:
        op: its id, unique; rank; step
        queue: operations of one rank, step and queue run one after the other, by start
        type: what the shares are told by, as "backward" or "all_reduce"
        kind: compute, collective or p2p
        start_ns, dur_ns: as recorded, waiting included; the clocks of the ranks may differ by a constant
        instance: id, within the step, of the collective or of the send and its receive; null for compute, and where
            what it waits for is not known: then the whole duration counts as transfer
        stage: optional, the pipeline stage of the rank
        group: optional, operations that would take as long as each other if nothing straggled; else those of a type
        and any column that tells ranks or operations apart, for `Replay.by`.
    `edges` says what else an operation waits for, across queues: op, after (ids); those to unknown ids are ignored.
    `constant` are types that keep their recorded duration in the ideal too. `carried` says for steps that follow
    another how much later than the first rank to begin each rank came out of the step before: step, rank, carried_ns.
    """
    if ops.is_empty():
        return None
    rows = _rows(ops, constant, carried)
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
    recorded, typical = rows["transfer_ns"].to_numpy(), rows["typical_ns"].to_numpy()
    times = graph.step_ns(np.stack((recorded, typical), axis=1)) / 1e6
    if not times.all():
        return None
    steps = _recorded(ops, rows).with_columns(step_ms=times[:, 0], ideal_ms=times[:, 1])
    return Replay(rows.drop("row", "unit", "transfer_ns", "typical_ns", "carried_ns"), recorded, typical, graph, steps)


def _rows(ops: pl.DataFrame, constant: Collection[str], carried: pl.DataFrame | None) -> pl.DataFrame:
    """The operations and the ranks' begins, with row, unit (the first row of the instance), transfer_ns, typical_ns.

    `carried_ns` is of the ranks' begins what they brought along; null where that is not known, and of operations.
    """
    defaults = {"stage": pl.lit(None, pl.Int64), "group": pl.col("type").cast(pl.String)}
    together = pl.col("instance").is_not_null()
    instance = ["step", "instance"]
    known = (
        ops.with_columns(pl.col("type").cast(pl.String), pl.col("dur_ns").clip(lower_bound=0))
        .with_columns(value.alias(name) for name, value in defaults.items() if name not in ops.columns)
        .with_columns(transfer_ns=pl.when(together).then(pl.col("dur_ns").min().over(instance)).otherwise("dur_ns"))
    )
    begins = _with_carried(_begins(known), carried)
    rows = pl.concat([begins, known], how="diagonal").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    brought = pl.col("carried_ns").fill_null(0)
    transfer = pl.col("transfer_ns") - brought
    usual = pl.when(pl.col("kind") == "compute").then(transfer.mean()).otherwise(transfer.median())
    typical = usual.round().cast(pl.Int64).over("kind", "type", "group") + brought
    return rows.with_columns(
        unit=pl.when(together).then(pl.col("row").first().over(instance)).otherwise("row"),
        typical_ns=pl.when(pl.col("type").is_in(list(constant))).then("transfer_ns").otherwise(typical),
    )


def _begins(ops: pl.DataFrame) -> pl.DataFrame:
    """One operation per rank and step that takes as long as the rank begins after the first one.

    The ranks' clocks are set by the ends of the instances, which coincide: by the median over those of a rank.
    """
    end = END_NS
    together = pl.when(pl.col("instance").is_not_null()).then(end.mean().over("step", "instance"))
    return (
        ops.with_columns(ahead=end - together)
        .with_columns(pl.col("ahead").median().over("rank").fill_null(0).round().cast(pl.Int64))
        .group_by("step", "rank", maintain_order=True)
        .agg(pl.exclude("start_ns", "ahead").first(), (pl.col("start_ns") - pl.col("ahead")).min())
        .with_columns(
            pl.lit(START).alias("type"),
            pl.lit(START).alias("group"),
            pl.lit("compute").cast(ops["kind"].dtype).alias("kind"),
            pl.lit(None, ops["op"].dtype).alias("op"),
            pl.lit(None, ops["queue"].dtype).alias("queue"),
            pl.lit(None, ops["instance"].dtype).alias("instance"),
            (pl.col("start_ns") - pl.col("start_ns").min().over("step")).alias("transfer_ns"),
        )
        .with_columns(dur_ns=pl.col("transfer_ns"))
        .select(ops.columns)
    )


def _with_carried(begins: pl.DataFrame, carried: pl.DataFrame | None) -> pl.DataFrame:
    """The ranks' begins with `carried_ns`, at most what they are late; known of all ranks of a step or of none."""
    if carried is None:
        return begins.with_columns(carried_ns=pl.lit(None, pl.Int64))
    begins = begins.join(carried, on=["step", "rank"], how="left", maintain_order="left")
    known = pl.col("carried_ns").is_not_null().all().over("step")
    return begins.with_columns(carried_ns=pl.when(known).then(pl.col("carried_ns").clip(0, pl.col("transfer_ns"))))


def _edges(rows: pl.DataFrame, explicit: pl.DataFrame | None) -> tuple[Ints, Ints]:
    """Rows that wait, and the rows that they wait for: by queue, as in `explicit`, and else for their rank's begin."""
    line = ["step", "rank", "queue"]
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
    begins = rows.filter(pl.col("op").is_null()).select("step", "rank", before="row")
    first = (
        rows.filter(pl.col("op").is_not_null()).join(waiting, on="row", how="anti").join(begins, on=["step", "rank"])
    )
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
    views = np.lexsort((rows["rank"].to_numpy(), rows["step"].to_numpy()))
    view = rows.select("step", "rank")[views]
    begin = (view["step"] != view["step"].shift(1)).fill_null(value=True).to_numpy()
    view_begin = begin | (view["rank"] != view["rank"].shift(1)).fill_null(value=True).to_numpy()
    is_begin = rows["op"].is_null().to_numpy()[views]
    unit_cuts = np.searchsorted(wave[is_first], waves)
    brought = rows["carried_ns"].fill_null(-1).to_numpy()
    return Graph(
        unit=unit,
        edges=before[edge_order],
        first_edge=np.searchsorted(waiting, np.arange(unit[-1] + 1)),
        op_cuts=np.searchsorted(wave, waves),
        unit_cuts=unit_cuts,
        edge_cuts=np.searchsorted(waiting, unit_cuts),
        views=views,
        view_cuts=np.flatnonzero(view_begin),
        step_cuts=np.flatnonzero(begin[view_begin]),
        begins=views[is_begin],
        behind=np.maximum.reduceat(brought[views[is_begin]], np.flatnonzero(begin[view_begin])),
    )


def _recorded(ops: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Recorded time of each step, by step, as `Graph.step_ns` tells it; of each rank its own clock alone matters."""
    took = END_NS.max() - pl.col("start_ns").min()
    begins = rows.filter(pl.col("op").is_null()).select("step", "rank", "transfer_ns", "carried_ns")
    views = ops.group_by("step", "rank").agg(took.alias("took")).join(begins, on=["step", "rank"])
    onward = (pl.col("transfer_ns") + pl.col("took")).max() - pl.col("carried_ns").max()
    step_ms = pl.coalesce(onward, pl.col("took").max()) / 1e6
    return views.group_by("step").agg(recorded_ms=step_ms).sort("step")


def _codes(column: pl.Series) -> tuple[Ints, pl.Series]:
    """Each row's value as an index into the values, which are sorted; -1 for null."""
    values = column.drop_nulls().unique().sort()
    known = pl.DataFrame({"value": values, "code": np.arange(len(values))})
    codes = column.to_frame("value").join(known, on="value", how="left", maintain_order="left")["code"]
    return codes.fill_null(-1).to_numpy(), values


def _chunks(count: int, size: int) -> Iterator[range]:
    return (range(at, min(count, at + size)) for at in range(0, count, size))


def _durations_where(chosen: Mask, these: Ints, others: Ints) -> Ints:
    picked: Ints = np.where(chosen, these[:, None], others[:, None])
    return picked


def _mean(values: pl.Series) -> float:
    return float(values.to_numpy().mean())
