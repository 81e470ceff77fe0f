"""Executions of XLA's programs on threads of the host: whether they keep up with the steps, and steps made of them."""

from typing import Final

import numpy as np
import polars as pl

from advisor.inputs.loops import FEWEST
from advisor.inputs.names.calls import JIT_CALL
from advisor.model.arrays import Ints
from advisor.model.intervals import Intervals
from advisor.model.profile import END_NS, matches

_SENDS: Final = r"Executable::ExecuteHelper"  # within that range, whatever the class is called
_MOST: Final = 0.8
_NO: Final = pl.lit(None, pl.Int64)
_OVERLAP: Final = 0.2  # of the time of all: programs that run beside each other take turns in nothing


def executions(host: pl.DataFrame) -> pl.DataFrame:
    """Each run of a program on the host, in order of time: id (row of its first op), run, program, start_ns, end_ns."""
    end = END_NS
    ops = host.filter(pl.col("kind") == "op", pl.col("run").is_not_null()).sort("start_ns", "id")
    return (
        ops.group_by("run", "program", maintain_order=True)
        .agg(pl.first("id"), pl.min("start_ns"), end_ns=end.max())
        .sort("start_ns", "id")
    )


def sent_by(marks: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """The executions that the steps but the last dispatch; what these steps send is what is run first."""
    runs = executions(host).filter(pl.col("start_ns") >= marks["host_start_ns"].min())
    during = pl.col("start_ns").is_between(marks["host_start_ns"].min(), marks["host_start_ns"].max(), closed="left")
    name = pl.col("name").cast(pl.String)
    calls = host.filter(during)
    helpers = calls.filter(name.str.contains(_SENDS)).height
    return runs.head(helpers or calls.filter(name.str.contains(JIT_CALL)).height)


def is_late(marks: pl.DataFrame, sent: pl.DataFrame) -> bool:
    """Whether the steps end before 80 % of what they dispatch has run: they are steps of dispatching only."""
    begin = marks["host_start_ns"].to_numpy()
    end = begin + marks["host_dur_ns"].to_numpy()
    work = Intervals.of(sent["start_ns"].to_numpy(), sent["end_ns"].to_numpy())
    return bool(work.within(begin[:1], end[-1:]).sum() < _MOST * work.total)


def in_place_of(marks: pl.DataFrame, sent: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """The executions that stand for these steps: of the program that runs longest, one or equally many per step.

    None where they do not run one after another, or their number does not fit.
    """
    main = _longest(sent)
    per_step, rest = divmod(sent.filter(pl.col("program") == main).height, marks.height - 1)
    runs = executions(host).filter(pl.col("program") == main, pl.col("start_ns") >= marks["host_start_ns"].min())
    if rest or not per_step or _overlaps(runs):
        return _until_next(runs.clear())
    last = runs.gather_every(per_step, per_step - 1)
    return _until_next(runs.gather_every(per_step).head(last.height).with_columns(last["end_ns"]))


def repeated(host: pl.DataFrame) -> pl.DataFrame:
    """The executions of the one program that runs for 80 % of the time of all: at least four, one after another."""
    runs = executions(host)
    if not runs.height:
        return _until_next(runs)
    main = runs.filter(pl.col("program") == _longest(runs))
    is_loop = main.height >= FEWEST and _busy_ns(main) >= _MOST * _busy_ns(runs) and not _overlaps(main)
    return _until_next(main if is_loop else main.clear())


def of_runs(host: pl.DataFrame, steps: Ints, owner: Ints, timed: Ints) -> Ints:
    """The step of each host op (-1: none) where those of one execution are of the same one.

    That is the step that some op of it has; else, where nothing tells on which thread the program was called, the step
    during which it began.

    Args:
        host: With `run`, null for what is of no program.
        steps: What is known without the executions.
        owner: Row of the range that each op leads back to, over the threads.
        timed: The step during which each op begins.
    """
    rows = np.flatnonzero(host["run"].is_not_null().to_numpy())
    callers = host["thread"].is_in(host.filter(matches(JIT_CALL))["thread"].unique().implode()).to_numpy()
    none = pl.when(pl.col("known") >= 0).then("known")
    ops = pl.DataFrame({"run": host["run"].gather(rows), "start": host["start_ns"].gather(rows)}).with_columns(
        known=pl.Series(steps[rows]), timed=pl.Series(timed[rows]), called=pl.Series(callers[owner[rows]])
    )
    first = pl.col("timed").sort_by("start").first()
    of_run = ops.select(
        step=pl.coalesce(none.min().over("run"), pl.when(~pl.col("called").any().over("run")).then(first.over("run")))
    )["step"].fill_null(-1)
    filled = steps.copy()
    filled[rows] = of_run.to_numpy()
    return filled


def _longest(runs: pl.DataFrame) -> str:
    total = runs.group_by("program").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    return str(total.sort("ns", "program", descending=[True, False])["program"].cast(pl.String)[0])


def _busy_ns(runs: pl.DataFrame) -> int:
    return Intervals.of(runs["start_ns"].to_numpy(), runs["end_ns"].to_numpy()).total


def _overlaps(runs: pl.DataFrame) -> bool:
    start, end = runs["start_ns"].to_numpy(), runs["end_ns"].to_numpy()
    return bool(np.maximum(end[:-1] - start[1:], 0).sum() > _OVERLAP * (end - start).sum())


def _until_next(runs: pl.DataFrame) -> pl.DataFrame:
    """As ranges: each ends where the next begins at the latest."""
    end = pl.min_horizontal("end_ns", pl.col("start_ns").shift(-1))
    return runs.select("id", "start_ns", name="program", dur_ns=end - pl.col("start_ns"), group=_NO, step_num=_NO)
