"""Loops without marks: the same sequence of kernels, copies or ops again and again."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from advisor.inputs.names.kernels import family
from advisor.model.intervals import Ints
from advisor.model.profile import END_NS, matches
from advisor.vocabulary.limits import LAUNCH_GAP_NS

TAKES_MEMORY: Final = r"^(?:(?:cuda|hip)Malloc|cuMemAlloc|(?:cu|hip)MemCreate)(?:[^H]|$)"
"""Calls for memory of the device, none of the host."""
FEWEST: Final = 4  # turns: three whole periods between their beginnings
_ALIKE: Final = 0.8  # of the turns: a loop logs now and then
_ENOUGH_SHARE: Final = 0.8  # of the work: what a step is made of repeats too, but leaves the rest of the step out
_LEAST_SHARE: Final = 0.2  # of the work: one of several loops
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


class Loop(NamedTuple):
    """When each turn begins and, where known, the last ends on the host; a turn's ops; the part of all work, 0..1."""

    starts: Ints
    ops: int
    share: float
    end_ns: int | None = None


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

    No model has kernels of single values and their sums alone; the updates of its parameters have other grids each.
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
