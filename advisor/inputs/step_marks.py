"""What begins the steps: marks, ranges that repeat and hold the work, or what a loop calls once in each.

The loops themselves follow: the same sequence of kernels, copies or ops again and again.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from advisor.inputs.links import as_steps, containing, matching, profiler_steps
from advisor.inputs.names.calls import FRAMEWORK_RANGE, OPTIMIZER_STEP
from advisor.inputs.names.engines import STEP_MARKS
from advisor.inputs.names.kernels import family
from advisor.inputs.step_periods import RANGES
from advisor.model.clause import Note
from advisor.model.intervals import Ints
from advisor.model.profile import END_NS, TEXT, matches, spans, unnumbered
from advisor.text import percent
from advisor.vocabulary.limits import LAUNCH_GAP_NS

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


class Loop(NamedTuple):
    """When each turn begins and, where known, the last ends on the host; a turn's ops; the part of all work, 0..1."""

    starts: Ints
    ops: int
    share: float
    end_ns: int | None = None


def marks(host: pl.DataFrame, device: pl.DataFrame, pattern: str | None) -> Marks:
    """The steps of one process.

    In this order: the ranges that `pattern` names; `ProfilerStep#N`; ranges that repeat and hold the work; from each
    call of `Optimizer.step`, or each request for a batch, to the next; the turns of a loop that shows in the work. A
    single mark is no step where all that it launches are such turns.

    Raises:
        UsageError: `pattern` is no regular expression.
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
    """Whether the only mark holds next to nothing: `prof.step()` at a loop's end opens one that the profiler closes.

    It is short, and few ops begin in it: a long start-up before the only step makes no point of that.
    """
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

    As many ops run from one call to the next as so many calls earlier, but not as one call earlier. Where most calls of
    a turn run as many ops as each other, each is a step, which now and then runs more: validation, say.
    """
    ops = np.sort(host.filter(pl.col("kind") == "op")["start_ns"].to_numpy())
    between = np.diff(np.searchsorted(ops, calls["host_start_ns"].to_numpy()))
    turns = range(1, len(between) // _REPEATS + 1)
    turn = next((k for k in turns if (between[k:] == between[:-k]).mean() >= _ALIKE), 1)
    is_mostly_alike = 2 * np.unique(between[:turn], return_counts=True)[1].max() > turn
    return calls if is_mostly_alike else calls.gather_every(turn)


def confidence(steps: pl.DataFrame) -> str:
    """How sure the steps are: an even loop repeats itself."""
    period = np.diff(steps["host_start_ns"].to_numpy())
    spread = np.median(np.abs(period - np.median(period)))
    return "medium" if spread <= _EVEN * np.median(period) else "low"


TAKES_MEMORY: Final = r"^(?:(?:cuda|hip)Malloc|cuMemAlloc|(?:cu|hip)MemCreate)(?:[^H]|$)"
"""Calls for memory of the device, none of the host."""
FEWEST: Final = 4  # turns: three whole periods between their beginnings
_NEARLY_ALL: Final = 0.95  # own choice, of the work: beside layers run at least an embedding and a head
_LONG: Final = 3  # times the median turn
_MOST_LONG: Final = 0.5  # of the time in such turns: with more, these turns are a part of what repeats
_NEXT_TO_NOTHING: Final = 0.05  # own choice, of a turn: as of steps, from where on waiting for input is a finding
_MOST_TRIES: Final = 64  # sequences to look for, the rarest first
_MANY: Final = 10  # own choice: turns alike in a row, whatever the same ops do before and after
_MOST_PARTS: Final = 8  # own choice: places of an anchor in a turn; schemes of time steps have two to six stages
_FEWEST_OPS: Final = 2  # of a turn: the same op again and again is no sequence
_ANY_WAIT: Final = r"^(?:(?:cuda|hip)|cu)(?:Device|Thread|Ctx|Stream)Synchronize"
_FULL_WAIT: Final = r"^(?:(?:cuda|hip)(?:Device|Thread)|cuCtx)Synchronize"
_GIVES_MEMORY: Final = r"^(?:(?:cuda|hip)Free|cuMem(?:Free|Release)|hipMemRelease)"
_OF_FRAMEWORK: Final = r"\bat::|\bc10::|tensorflow::|Eigen::|^triton_|cutlass|cudnn|^nccl"  # kernels of models
_OF_LAYERS: Final = r"(?i)gemm|gemv|mat_?mul|mul_?mat|attention|attn|softmax|norm|embed|rope|conv(?:olution|2d|_)"
_OF_NO_MODEL: Final = {"elementwise", "reduction", "copy", "cast"}
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def loop(host: pl.DataFrame, device: pl.DataFrame) -> Loop | None:
    """The longest sequence of work that repeats, at least four times, and makes up the recording; None without one.

    The sequence is that of the device's work as it is launched; without a device, that of the outermost ops of the
    thread that runs most of them. Where several loops follow each other and make it up together, the one that takes
    most time. Layers repeat as steps do. What tells them apart is that host and device meet in each step, or that the
    host copies a result back and nothing else follows the loop, or that many turns of kernels that no model has are
    nearly all of the work; on a CPU, that nothing runs before and after a loop but what is in it. Pages of managed
    memory move when they are touched, and no turn moves the same ones.
    """
    device = device.filter((pl.col("source_memory") != "managed").fill_null(value=True))
    if device.height:  # the ops of the device with most of them, by when they are launched
        work = device.with_columns(called_ns=pl.coalesce(host["start_ns"].gather(device["launch"]), "start_ns"))
        busiest = device.group_by("device").len().sort("len", "device", descending=[True, False])["device"].head(1)
        work = work.filter(pl.col("device").is_in(busiest.implode(), nulls_equal=True))
    else:  # the ops inside no other op, of the thread on which such ops take most time
        ops = host.filter(pl.col("kind") == "op")
        work = ops.filter(~pl.col("parent").fill_null(-1).is_in(ops["id"].implode())).with_columns(called_ns="start_ns")
        longest = work.group_by("thread").agg(pl.sum("dur_ns")).sort("dur_ns", "thread", descending=[True, False])
        work = work.filter(pl.col("thread").eq_missing(longest["thread"].first()))
    work = work.sort("called_ns", "start_ns")
    for least_share in (_ENOUGH_SHARE, _LEAST_SHARE)[: 1 + (device.height > 0)]:
        loops = _loops(host, work, 0, work.height, least_share)
        if sum(each.share for each in loops) >= _ENOUGH_SHARE:
            return max(loops, key=lambda each: int(each.starts[-1] - each.starts[0]))
    return None


def _loops(host: pl.DataFrame, work: pl.DataFrame, first: int, end: int, least_share: float) -> list[Loop]:
    """The loops among these rows of the work, each with so much of it, in order of time."""
    symbols = work["name"].to_physical().to_numpy()[first:end]
    on_device = "device" in work.columns
    called_ns, began_ns = (work[column].to_numpy() for column in ("called_ns", "start_ns"))

    def even(begins: Ints) -> bool:  # of a device by when its work began: the host runs ahead until the queue is full
        return are_even(began_ns[first + begins], 0 if on_device else _inside(work, first + begins))

    for at in _anchors(symbols):
        begins, length, until = _turns_around(symbols, at, even)
        if length < _FEWEST_OPS:
            continue
        before, turns, after = np.split(symbols, [begins[0], until])
        begins, until = begins + first, until + first
        # The part of the kernels' time, or where there are none of all, that is between these rows.
        kernels = work.with_row_index().filter(pl.col("kind").is_in(["kernel", "collective", "op"]))
        inside = pl.col("index").is_between(begins[0], until, closed="left")
        share = float(kernels.select(pl.col("dur_ns").filter(inside).sum() / pl.col("dur_ns").sum()).item() or 0)
        is_last = set(after) <= set(turns)
        meets = (
            _are_all(host, work, begins, share) or _meets(host, work, begins, is_last=is_last)
            if on_device
            else is_last and set(before) <= set(turns)
        )
        if share >= least_share and meets:
            starts = called_ns[begins]
            ran_ns = 0 if on_device else _inside(work, begins)
            earlier, later = ((first, int(begins[0])), (until, end))
            loops = (_loops(host, work, *rows, least_share) for rows in (earlier, later))
            silence_ns, turn_ns = np.median(np.diff(starts) - ran_ns), np.median(np.diff(starts))
            is_all = not on_device and until > begins[-1] and silence_ns <= _NEXT_TO_NOTHING * turn_ns
            end_ns = int(work.select(END_NS).to_series()[int(until) - 1]) if is_all else None
            return [*next(loops), Loop(starts, length, share, end_ns), *next(loops)]
    return []


def are_even(starts: Ints, ran_ns: Ints | int = 0) -> bool:
    """Whether turns of usual length hold most of the time, but for the first, which may be cold; else they are parts.

    A pause between groups of them delimits what repeats. `ran_ns` of each turn is surely none: its ops run meanwhile.
    """
    turns_ns = np.diff(starts)
    pauses_ns = np.where(turns_ns > _LONG * np.median(turns_ns[1:]), turns_ns - ran_ns, 0)
    return bool(pauses_ns[1:].sum() <= _MOST_LONG * turns_ns[1:].sum())


def _inside(work: pl.DataFrame, begins: Ints) -> Ints:
    """From the first op's begin to the last one's end, of each turn but the last."""
    begun, ended = work["start_ns"].to_numpy(), work.select(END_NS).to_series().to_numpy()
    ran_ns: Ints = ended[begins[1:] - 1] - begun[begins[:-1]]
    return ran_ns


def _anchors(symbols: Ints) -> list[Ints]:
    """Where what comes equally often comes, one for each number of times, the rarest first: the longest sequences."""
    order = np.argsort(symbols, kind="stable")
    _, first, times = np.unique(symbols[order], return_index=True, return_counts=True)
    counts = np.unique(times[times >= FEWEST])[:_MOST_TRIES]
    groups = (np.flatnonzero(times == count) for count in counts)
    earliest = (group[np.argmin(order[first[group]])] for group in groups)
    return [order[first[each] : first[each] + times[each]] for each in earliest]


def _turns_around(symbols: Ints, anchors: Ints, even: Callable[[Ints], bool]) -> tuple[Ints, int, int]:
    """Where the turns around these places begin, how many symbols one has, and where the last that is whole ends.

    They have 0 where they are not alike. The first may be another: it sets up what the others use. A turn may hold
    several of the places, as a time step of three stages along each axis does: the fewest with which turns are alike
    and fill the time. Other loops may pass these places too: many turns that are alike in a row are enough.
    """
    mixed: npt.NDArray[np.uint64] = (symbols.astype(np.uint64) + np.uint64(1)) * _MIX
    mixed ^= mixed >> np.uint64(31)
    weighted = np.multiply(mixed, np.arange(len(symbols), dtype=np.uint64))  # sums wrap around, as hashes may
    sums, places = (np.append(np.uint64(0), np.cumsum(of, dtype=np.uint64)) for of in (mixed, weighted))

    def hashes(begins: Ints, ends: Ints) -> npt.NDArray[np.uint64]:
        return places[ends] - places[begins] - begins.astype(np.uint64) * (sums[ends] - sums[begins])

    may_begin_unlike = True
    for every in range(1, min(_MOST_PARTS, (len(anchors) - 1) // (FEWEST - 1)) + 1):
        at = anchors[::every]
        of_turn = np.unique(hashes(at[:-1], at[1:]), return_inverse=True)[1]
        usual = np.flatnonzero(of_turn == np.argmax(np.bincount(of_turn[1:])))
        first, last = int(usual[0]), int(usual[-1])
        if np.count_nonzero(usual) >= _ALIKE * (len(at) - 2) and (may_begin_unlike or not first):
            at = at[: last + 2]
        elif len(usual) >= max(_MANY, _ALIKE * (last + 1 - first)):
            at = at[first : last + 2]
        else:
            continue
        length = int(at[-1] - at[-2])
        begins = at - _lead(symbols, at, length)
        if even(begins):
            end = begins[-1:] + length
            is_complete = end[0] <= len(symbols) and hashes(begins[-1:], end) == hashes(begins[-2:-1], begins[-1:])
            return begins, length, int(end[0]) if is_complete else int(begins[-1])
        may_begin_unlike = False
    return anchors, 0, 0


def _lead(symbols: Ints, at: Ints, length: int) -> int:
    """How many symbols before these places, the first too, are of the turn: so far back all places agree."""
    most = int(min(length - 1, at[0]))
    for back in range(1, most + 1):
        is_alike = symbols[at - back] == symbols[at[-1] - back]
        if not is_alike[0] or is_alike.mean() < _ALIKE:
            return back - 1
    return most


def is_without_framework(host: pl.DataFrame, device: pl.DataFrame) -> bool:
    """Whether neither ranges nor kernels are of a framework: the program calls CUDA itself, and has no layers."""
    return not ((host["kind"] == "op").any() or device.select(matches(_OF_FRAMEWORK).any()).item())


def _are_all(host: pl.DataFrame, work: pl.DataFrame, begins: Ints, share: float) -> bool:
    """Whether the turns are many, nearly all of the work, and of no model: a time step of a scheme needs no wait.

    No model of a framework has kernels of single values and their sums alone; the updates of its parameters have other
    grids each.
    """
    is_many = share >= _NEARLY_ALL and len(begins) >= _MANY
    is_plain = is_without_framework(host, work) and not work.select(matches(_OF_LAYERS).any()).item()
    if is_plain or (host["kind"] == "op").any():
        return is_plain and is_many
    kinds = work.filter(pl.col("kind") == "kernel").select("name", "grid").unique()
    return is_many and not kinds["name"].is_duplicated().any() and set(family(kinds["name"])) <= _OF_NO_MODEL


def _meets(host: pl.DataFrame, work: pl.DataFrame, begins: Ints, *, is_last: bool) -> bool:
    """Whether host and device meet in most turns: a wait for all of it, the copy of a result, or a graph's launch.

    A graph is captured with its parameters: the same one does not run another layer. Where nothing else follows, they
    also meet where the device idles until the host has made what is copied to it. In a program without a framework,
    which has no layers, they do where the host waits for a stream, or the device idles for long. Turns in most of which
    a framework takes more memory of the device, and gives none back, are layers of a first pass: a step's is reused.
    """
    is_plain = is_without_framework(host, work)
    wait = _ANY_WAIT if is_plain else _FULL_WAIT
    calls = (host.filter(matches(of).fill_null(value=False)) for of in (wait, TAKES_MEMORY, _GIVES_MEMORY))
    starts = work["called_ns"].to_numpy()[begins]
    waited, takes, gives = (np.diff(np.searchsorted(np.sort(c["start_ns"].to_numpy()), starts)) > 0 for c in calls)
    if not is_plain and (takes & ~gives).mean() >= _ALIKE:
        return False
    idle_ns = pl.col("start_ns") - END_NS.cum_max().shift(1)
    kind, memory = pl.col("copy_kind").cast(pl.String), pl.col("source_memory").cast(pl.String)
    handover = (kind == "HtoD") & (memory == "pageable") & is_last
    results, graphs, pauses = (
        work.select(rows.fill_null(value=False)).to_series().arg_true()
        for rows in (kind == "DtoH", pl.col("graph").is_not_null(), (idle_ns > LAUNCH_GAP_NS) & (handover | is_plain))
    )
    copied, launched = (np.diff(np.searchsorted(rows, begins)) > 0 for rows in (results, graphs))
    paused = np.diff(np.searchsorted(pauses, begins, side="right")) > 0
    return bool((waited | launched | paused | (copied & is_last)).mean() >= _ALIKE)
