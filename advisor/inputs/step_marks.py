"""What begins the steps: marks, ranges that repeat and hold the work, or what a loop calls once in each."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from advisor.inputs.links import as_steps, containing, matching, profiler_steps
from advisor.inputs.loops import FEWEST, Loop, are_even, loop
from advisor.inputs.names.calls import FRAMEWORK_RANGE, OPTIMIZER_STEP
from advisor.inputs.names.engines import STEP_MARKS
from advisor.inputs.step_periods import RANGES
from advisor.model.clause import Note
from advisor.model.profile import END_NS, TEXT, matches, spans, unnumbered
from advisor.text import percent

WARM_UP: Final = r"(?i)\bwarm[ _-]?(?:ing[ _-]?)?up"
"""Names of ranges for what is done once, before the work that counts."""
_PARTS: Final = (
    r"(?i)(?:layer|block|stage|expert|head|bucket|chunk|shard)s?[ _.:/\[(-]*#"  # a model counts what it is made of
    r"|(?:layer|block)\b"  # or names it
    r"|\bDALI\b|data[ _]?load|prefetch|RunCPU|RunMixed"  # a loader's batches are ahead of the steps
)
_PHASES: Final = r"(?i)backward|optimi[sz]er"  # what a step of training goes through, and no layer by itself does
_EVEN: Final = 0.25  # of the median period: how far the periods of a steady loop lie from it
_REPEATS: Final = 3
_POINT_SHARE: Final = 0.01  # of the time in which ops run, and of the ops
_ENOUGH_SHARE: Final = 0.8  # of the device's work between the first and the last: what a step is made of, is no step
_LEAST_SHARE: Final = 0.2  # own choice: of all of the device's work, of ranges that may be parts of one pass
_ALIKE: Final = 0.8  # of the calls: a loop logs now and then
FEWEST_OPS: Final = 10  # device ops per range: fewer are no training step, unless a CUDA graph is among them
_OF_ENGINE: Final = "step of a serving engine"


class Marks(NamedTuple):
    """Steps as `advisor.inputs.links.steps` takes them, and how they were found; empty where the profile marks them."""

    steps: pl.DataFrame
    how: Note | None = None


def marks(host: pl.DataFrame, device: pl.DataFrame, pattern: str | None) -> Marks:
    """The steps of one process; a UsageError where `pattern` is no regular expression.

    In this order: the ranges that `pattern` names; `ProfilerStep#N`; ranges that repeat and hold the work; from each
    call of `Optimizer.step`, or each request for a batch, to the next; the turns of a loop that shows in the work. A
    single mark is no step where all that it launches are such turns.
    """
    if pattern is not None:
        steps = as_steps(matching(host, pattern))
        return Marks(steps, None if steps.height else Note("no_step_range", pattern=pattern))
    steps = profiler_steps(host)
    if steps.height and not _is_point(steps, host):
        start, length = steps.select("host_start_ns", "host_dur_ns").row(0)
        called = host["start_ns"].gather(device["launch"])
        launched = device.filter(called.is_between(start, start + length), steps.height == 1)
        turns = loop(host, launched) if launched.height else None  # as ten passes in one step of a profiler
        return (_turns(turns, "steps_in_mark") if turns and turns.share == 1 else None) or Marks(steps)
    repeated = repeating(host, device, option=1)
    if repeated.steps.height:
        return repeated
    return _calls(host) or _turns(loop(host, device)) or Marks(steps.clear())


def _is_point(steps: pl.DataFrame, host: pl.DataFrame) -> bool:
    """Whether the only mark holds next to nothing: `prof.step()` at a loop's end opens one that the profiler closes."""
    ops = host.filter(pl.col("kind") == "op").select("start_ns", end=END_NS)
    if steps.height != 1 or not ops.height:
        return False
    start, length = steps.select("host_start_ns", "host_dur_ns").row(0)
    begun, span = ops.select(
        pl.col("start_ns").is_between(start, start + length).sum(), pl.max("end") - pl.min("start_ns")
    ).row(0)
    return bool(length < _POINT_SHARE * span and begun < _POINT_SHARE * ops.height)


def repeating(host: pl.DataFrame, device: pl.DataFrame, fewest: int = FEWEST_OPS, **hint: int) -> Marks:
    """The ranges of one thread whose names, digits apart, are alike, and that make up the work.

    There are at least three of them, inside no other range that repeats; they launched ten device ops or more on
    average, or CUDA graphs, and at least 80 % of what kept the device busy between the first of them and the last. In a
    job without a device, its ops count like that.
    None are ranges whose names count layers or are a loader's, or of a thread that launches nothing and whose ranges
    hold unequal numbers of launches: it does not know of them. Nor are those right inside one other range, unless they
    are called steps or make up 20 % of all that kept the device busy: they are parts of one pass.
    Where several kinds do, the one that covers most of the device's busy time, and one that is called warm-up only
    where no other does. A range that is repeated inside a step, an attention call say, launches too little of it. Where
    none does, turns of forward pass, backward pass and update count: each from its first range to the end of its last.
    `hint` are more facts for the note on them. `fewest` is in place of the ten: compiled programs have few ops.
    """
    best, most = Marks(profiler_steps(host.clear())), (False, False, 0)
    candidates = _candidates(host)
    if not candidates.height:
        return best
    # The device's ops, or without a device those of the host, with the thread of each call, and its begin and end.
    calls = host.select("thread", row="id", call_start="start_ns", call_end=END_NS)
    ops = device if device.height else host.filter(pl.col("kind") == "op").with_columns(graph=None, launch="id")
    work = ops.select("start_ns", "dur_ns", "graph", row="launch").drop_nulls("row").join(calls, on="row")
    everything = spans(device if device.height else work).total
    code = "ranges_launch" if device.height else "ranges_hold"
    singles = (rows for _, rows in candidates.group_by("label", maintain_order=True))
    for is_single, ranges in [*((True, rows) for rows in singles), *((False, rows) for rows in _phases(candidates))]:
        label, steps = ranges["label"][0], as_steps(ranges)
        if steps.height < _REPEATS or not are_even(np.sort(steps["host_start_ns"].to_numpy())):
            continue
        covered, between, enough = _coverage(steps, work, fewest, ranges["thread"][0])
        rank = (re.search(WARM_UP, str(label)) is None, is_single, covered)
        least = max(_ENOUGH_SHARE * between, _LEAST_SHARE * everything * _is_enclosed(str(label), ranges, host))
        if enough and covered and rank > most and covered >= least:
            shares = {"inside": covered / between}
            if percent(shares["inside"]) != percent(covered / everything):
                shares["of_all"] = covered / everything
            best, most = Marks(steps, Note(code, ranges=steps.height, label=str(label), **shares, **hint)), rank
    return best


def _candidates(host: pl.DataFrame) -> pl.DataFrame:
    """Ranges of people's own that repeat on a thread and lie in no other such range, with their `label`."""
    is_own = pl.col("kind").is_in(RANGES) & ~matches(FRAMEWORK_RANGE).fill_null(value=False)
    if "nccl" in host.columns:
        is_own &= ~pl.col("nccl").fill_null(value=False)
    label = pl.when(matches(STEP_MARKS)).then(pl.lit(_OF_ENGINE, TEXT)).otherwise(unnumbered())  # whatever their phases
    ranges = host.filter(is_own).with_columns(label=label).filter(~matches(_PARTS, "label"))
    repeated = ranges.filter(pl.len().over("label", "thread") >= _REPEATS)
    if not repeated.height:
        return repeated
    # Ranges of one thread nest: whoever begins before the furthest end so far lies within.
    outer = repeated.sort("thread", "start_ns", "dur_ns", descending=[False, False, True], nulls_last=True).filter(
        (pl.col("start_ns") >= END_NS.cum_max().shift(1).over("thread")).fill_null(value=True)
    )
    several = outer.filter(pl.len().over("label", "thread") >= _REPEATS)
    threads = several.group_by("label", "thread").len().sort("len", "thread", descending=[True, False], nulls_last=True)
    return several.join(threads.unique("label", keep="first"), on=["label", "thread"], how="semi", nulls_equal=True)


def _phases(candidates: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Of each thread whose ranges take turns, a phase of training among them, the turns as ranges of their own."""
    for _, rows in candidates.sort("start_ns").group_by("thread", maintain_order=True):
        labels = rows["label"].cast(pl.String)
        phases = labels.unique(maintain_order=True)
        turns, size = len(labels) // len(phases), len(phases)
        if turns < _REPEATS or not phases.str.contains(_PHASES).any() or (labels[size:] != labels[:-size]).any():
            continue
        first, last = (rows[at : turns * size].gather_every(size) for at in (0, size - 1))
        dur_ns = last.select(END_NS).to_series() - first["start_ns"]
        yield first.with_columns(dur_ns=dur_ns, label=pl.lit(" + ".join(phases), TEXT))


def _is_enclosed(label: str, ranges: pl.DataFrame, host: pl.DataFrame) -> bool:
    """Whether one range of people's own is right around all of these, and they are not called steps."""
    around = ranges["parent"].unique()
    if len(around) > 1 or around.null_count() or re.search(r"(?i)step|iter|batch|epoch|request", label):
        return False
    is_own = pl.col("kind").is_in(RANGES) & ~matches(FRAMEWORK_RANGE)
    return not host.filter(pl.col("id") == around[0], is_own).is_empty()


def _coverage(steps: pl.DataFrame, work: pl.DataFrame, fewest: int, thread: int | None) -> tuple[int, int, bool]:
    """Busy time from launches inside the ranges of a thread, and from all between the first and the last, in ns.

    And whether the ranges launched enough to be steps: by the thread itself, or by others about as often in each.
    """
    end = pl.col("host_start_ns") + pl.col("host_dur_ns")
    first, last = steps.select(pl.min("host_start_ns"), end.max().alias("end")).row(0)
    inside = work.filter(containing(steps, work["call_start"], work["call_end"]).is_not_null())
    between = work.filter((work["call_start"] >= first) & (work["call_end"] <= last))
    of = np.searchsorted(steps["host_start_ns"].to_numpy(), inside["call_start"].to_numpy(), side="right") - 1
    launches = np.bincount(of, minlength=steps.height)
    is_even = bool(np.median(np.abs(launches - np.median(launches))) <= _EVEN * np.median(launches))
    is_known = is_even or bool((inside["thread"] == thread).any())
    enough = inside.height >= fewest * steps.height or inside["graph"].count() >= steps.height
    return spans(inside).total, spans(between).total, is_known and enough


def _calls(host: pl.DataFrame) -> Marks | None:
    """A step from each call of `Optimizer.step`, or each request for a batch, to the next.

    Where both repeat, the rarer one counts: several batches make a step where gradients are accumulated, several
    optimizers step once each where there are more of them than one. A call is a point in time: how long it takes says
    nothing of the step.
    """
    kind, name = pl.col("kind"), pl.col("name").cast(pl.String)
    ways = {
        "steps_by_optimizer": host.filter(kind == "annotation", name.str.contains(OPTIMIZER_STEP)),
        "steps_by_requests": host.filter(kind == "input"),
    }
    # Of several optimizers the one that steps often enough to tell the steps: others do in some steps only.
    often = {code: rows.filter(pl.len().over("name") >= FEWEST) for code, rows in ways.items()}
    each = {code: often[code] if often[code]["name"].n_unique() == 1 else rows for code, rows in ways.items()}
    repeated = [(calls, code) for code, rows in each.items() if (calls := as_steps(rows)).height >= FEWEST]
    loops = [(steps, code) for calls, code in repeated if (steps := _once_a_step(calls, host)).height >= FEWEST]
    if not loops:
        return None
    steps, code = min(loops, key=lambda loop: loop[0].height)
    return Marks(_numbered(steps), Note(code, confidence=confidence(steps)))


def _turns(turns: Loop | None, code: str = "steps_by_work") -> Marks | None:
    """A step from each begin of a sequence of work that repeats to the next."""
    if turns is None:
        return None
    steps = _numbered(pl.DataFrame({"host_start_ns": turns.starts}))
    if turns.end_ns is not None:
        steps = steps.with_columns(host_dur_ns=pl.Series(np.diff(turns.starts, append=turns.end_ns)))
    how = confidence(steps)
    return Marks(steps, Note(code, turns=steps.height, ops=turns.ops, share=turns.share, confidence=how))


def _numbered(begins: pl.DataFrame) -> pl.DataFrame:
    """Steps that begin at these times and last until the next."""
    return begins.with_columns(step=pl.int_range(pl.len(), dtype=pl.Int32)).select(
        "step", "host_start_ns", name=pl.format("step {}", "step"), host_dur_ns=pl.lit(0, pl.Int64)
    )


def _once_a_step(calls: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """The first of the calls that one step makes: those of a generator's and a discriminator's optimizer take turns.

    As many ops run from one call to the next as so many calls earlier, but not as one call earlier.
    """
    ops = np.sort(host.filter(pl.col("kind") == "op")["start_ns"].to_numpy())
    between = np.diff(np.searchsorted(ops, calls["host_start_ns"].to_numpy()))
    turns = range(1, len(between) // _REPEATS + 1)
    turn = next((k for k in turns if (between[k:] == between[:-k]).mean() >= _ALIKE), 1)
    is_mostly_alike = 2 * np.unique(between[:turn], return_counts=True)[1].max() > turn  # each a step
    return calls if is_mostly_alike else calls.gather_every(turn)


def confidence(steps: pl.DataFrame) -> str:
    """How sure the steps are: an even loop repeats itself."""
    period = np.diff(steps["host_start_ns"].to_numpy())
    spread = np.median(np.abs(period - np.median(period)))
    return "medium" if spread <= _EVEN * np.median(period) else "low"
