"""What charts show: the worst step of a view, and where the time goes by module.

The worst step: what ran on its streams and threads, and why the device idled. By module: device time, or without a
device host time, along the ranges that cause it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.categories import part_times
from advisor.analysis.device.idle import idle_spans
from advisor.analysis.device.view import DeviceView, bounds, positions
from advisor.model.intervals import Intervals, Ints, Mask, above, around, nearest, shared_out
from advisor.model.profile import END_NS, TEXT, Schema, matches, rows_where
from advisor.text import numbered
from advisor.vocabulary.parts import DEVICE_PARTS

MOST_EVENTS: Final = 1_500  # as many as a page has room for; the shortest go first
_MOST_SPANS: Final = 200  # of evidence for one metric
_PIECES: Final = 800  # of the strip: as many as a picture of a step has room for
_HIDDEN: Final = ["python", "overhead"]  # frames of the interpreter: too many to read, and the ops say what they do
_OF_IDLE: Final[Schema] = {"start_ns": pl.Int64, "dur_ns": pl.Int64, "cause": pl.String}
_COLUMNS: Final = ("on_device", "track", "kind", "name", "start_ns", "dur_ns")

Where = Callable[[DeviceView], pl.DataFrame]


@dataclass(frozen=True, eq=False)
class Timeline:
    """One step of one view; times in ns from `start_ns`, the step's start on the file's clock."""

    worker: int
    device: int | None
    step: int | None
    start_ns: int
    dur_ns: int
    recorded: int  # how many events there were
    events: (
        pl.DataFrame
    )  # on_device, track (stream or thread), kind, name, start_ns, dur_ns, depth: MOST_EVENTS, or less
    idle: pl.DataFrame  # start_ns, dur_ns and cause (a part), where the device runs nothing; a quarter of that at most
    strip: pl.DataFrame  # all of the step in 800 pieces: see `_strip`
    parts_ns: Mapping[str, int]  # the time of each part in it, as the accounting of all steps has it
    evidence: Mapping[str, pl.DataFrame]  # start_ns and dur_ns of the places behind a metric
    threads: Mapping[int, str] = field(default_factory=dict)


def worst_step(view: DeviceView, wheres: Mapping[str, Where]) -> Timeline | None:
    """The longest used step of the view; None where it has none. By metric, `wheres` give the places behind it."""
    if not view.steps.height:
        return None
    number = int(view.steps["dur_ns"].arg_max() or 0)
    row = view.steps.row(number, named=True)
    start, length = row["start_ns"], row["dur_ns"]
    device = _rows(_within(view.ops, start, length).with_columns(track="stream", on_device=True), start)
    readable = view.host.filter(~pl.col("kind").is_in(_HIDDEN))
    host = _rows(_within(readable, start, length).with_columns(track="thread", on_device=False), start)
    # At most MOST_EVENTS of them: the longest of the device and of the host, half of each where both have many.
    parts = [device, host]
    if device.height + host.height > MOST_EVENTS:
        of_device = min(device.height, max(MOST_EVENTS // 2, MOST_EVENTS - host.height))
        longest = device.top_k(of_device, by="dur_ns"), host.top_k(MOST_EVENTS - of_device, by="dur_ns")
        parts = [rows.sort("track", "start_ns", "depth") for rows in longest]
    step = Intervals.of([start], [start + length])
    idle = {part: when & step for part, when in view.once(idle_spans).items()} if view.device is not None else {}
    return Timeline(
        worker=view.worker,
        device=view.device,
        step=row["step"] if view.has_marks else None,
        start_ns=start,
        dur_ns=length,
        recorded=device.height + host.height,
        events=pl.concat(rows.with_columns(pl.col("kind", "name").cast(pl.String)) for rows in parts),
        idle=_table_of(idle, start),
        strip=_strip(view, idle, start, length),
        parts_ns={part: int(times[number]) for part, times in view.once(part_times).items() if times[number]},
        threads=thread_names(view.threads),
        evidence={
            name: spans for name, where in wheres.items() if (spans := _spans(view.once(where), start, length)).height
        },
    )


def thread_names(threads: pl.DataFrame) -> dict[int, str]:
    """What threads are called, told apart where several have one name."""
    known = threads.drop_nulls(["thread", "name"]).unique("thread", keep="first", maintain_order=True)
    return dict(zip(known["thread"].to_list(), numbered(known["name"].to_list()), strict=True))


def _within(rows: pl.DataFrame, start: int, length: int) -> pl.DataFrame:
    return rows_where(rows, pl.col("start_ns") < start + length, start < END_NS)


def _rows(rows: pl.DataFrame, start: int) -> pl.DataFrame:
    shifted = rows.with_columns(pl.col("start_ns") - start).select(_COLUMNS)
    ordered = shifted.sort("track", "start_ns", "dur_ns", descending=[False, False, True])
    return ordered.with_columns(depth=_depths(ordered))


def _depths(rows: pl.DataFrame) -> pl.Series:
    """Of the ranges of each one's track that began before it, those still open."""
    start, end = bounds(rows)
    depth = np.arange(len(start))
    edges = [0, *np.flatnonzero(np.diff(rows["track"].fill_null(-1).to_numpy())) + 1, len(start)]
    for first, last in pairwise(edges):
        over = np.searchsorted(np.sort(end[first:last]), start[first:last], side="right")
        depth[first:last] -= first + over
    return pl.Series(np.maximum(depth, 0), dtype=pl.Int64)


def _table_of(idle: Mapping[str, Intervals], start: int) -> pl.DataFrame:
    """The longest idle stretches, each of one part of the step, in their order."""
    rows = pl.DataFrame(
        [(*ends, of) for of, at in idle.items() for ends in zip(at.starts - start, at.ends - at.starts, strict=True)],
        _OF_IDLE,
        orient="row",
    )
    return rows.top_k(MOST_EVENTS // 4, by="dur_ns").sort("start_ns")


def _strip(view: DeviceView, idle: Mapping[str, Intervals], start: int, length: int) -> pl.DataFrame:
    """What the device does over the step: start_ns, dur_ns, part. Each piece shows what in it is most behind.

    So over any stretch each part has as many pieces as it has time, however short its kernels and gaps are (error
    diffusion in one dimension, after Floyd and Steinberg 1976).
    """
    if view.device is None:
        return pl.DataFrame(schema={"start_ns": pl.Int64, "dur_ns": pl.Int64, "part": pl.String})
    pieces = min(_PIECES, length)
    edges = np.arange(pieces + 1, dtype=np.int64) * length // max(1, pieces)
    when = {part: view.device_spans(kind) for part, kind in DEVICE_PARTS.items()} | dict(idle)
    times = np.array([*shared_out(when, start + edges[:-1], start + edges[1:]).values()])
    choice, behind = np.empty(pieces, np.int64), np.zeros(len(when))
    for piece in range(pieces):
        behind += times[:, piece]
        choice[piece] = at = int(np.where(times[:, piece] > 0, behind, -np.inf).argmax())
        behind[at] -= edges[piece + 1] - edges[piece]
    first = np.flatnonzero(np.diff(choice, prepend=-1))
    begins, names = edges[first], [*when]
    ends = np.append(begins[1:], length)
    return pl.DataFrame({"start_ns": begins, "dur_ns": ends - begins, "part": [names[choice[at]] for at in first]})


def _spans(places: pl.DataFrame, start: int, length: int) -> pl.DataFrame:
    if not places.height:
        return pl.DataFrame(schema={"start_ns": pl.Int64, "dur_ns": pl.Int64})
    here = _within(places, start, length).head(_MOST_SPANS)
    return here.select(pl.col("start_ns").cast(pl.Int64) - start, pl.col("dur_ns").cast(pl.Int64))


MOST_FRAMES: Final = 600  # the rest is too small to read
_FRAMES: Final = ("module", "op", "annotation", "input", "collective", "compile")
ENGINE: Final = "autograd::engine::evaluate_function: "
_PREFIX: Final = rf"^(?:{ENGINE}|nn\.Module: )"
_NONE: Final = np.empty(0, np.int64)
_OF_TREE: Final[Schema] = {"parent": pl.Int64, "name": pl.String, "kind": pl.String, "self_ns": pl.Int64}
"""Frames of equal paths, parents before their children; `parent` is a row, -1 at the top."""
# Of device ops: the compiler gave them a path of scopes
_HAS_SCOPES: Final = pl.col("framework_op").cast(pl.String).str.contains("/", literal=True).fill_null(value=False)


def call_tree(view: DeviceView) -> pl.DataFrame:
    """One row per path of frames in the used steps, parents first: what a flame graph is drawn from.

    Columns: id (0, 1, ...), parent (null at the top), name (null: what caused it was not recorded), kind (module, op,
    annotation, ..., or scope: a part of the name that the compiler gave an op), total_ms and self_ms per used step.

    Time is that of kernels, copies and memsets, each counted where they overlap, at the ranges that launched them; of a
    worker without a device it is the host's. What the autograd engine runs counts where the forward op ran: both bear
    one sequence number (PyTorch, `torch.autograd.profiler.emit_nvtx`). Only the MOST_FRAMES largest are rows.
    """
    rows = _by_id(view.host)
    if view.device is None:
        return _table(_grown(rows, *_own_times(view, rows)), max(1, view.steps.height))
    ops = view.used_ops.filter(~_HAS_SCOPES)
    launched = positions(rows, ops.select(pl.coalesce("launch", "op")).to_series())
    tree, scopes = _grown(rows, launched, ops["dur_ns"].to_numpy()), _by_scope(view)
    if scopes.height:
        behind = pl.when(pl.col("parent") >= 0).then(pl.col("parent") + scopes.height).otherwise("parent")
        tree = pl.concat([scopes, tree.with_columns(behind)])
    return _table(tree, max(1, view.steps.height))


def modules(view: DeviceView, ids: pl.Series) -> pl.Series:
    """The class of the module that each of these host ops belongs to; null where none is recorded around it.

    What the autograd engine runs belongs to the module of its forward op.
    """
    rows, host = _by_id(view.host), positions(_by_id(view.host), ids)
    is_module = (rows["kind"] == "module").to_numpy()
    if not is_module.any():
        return pl.repeat(None, len(ids), dtype=pl.String, eager=True)
    parent, engine = _parents(rows), _engine(rows)
    forward = _forward(rows, np.arange(rows.height), parent, is_module, engine)
    module, backward = nearest(is_module, parent), above(forward, nearest(engine, parent))
    at = pl.Series(above(np.where(module >= 0, module, backward), host))
    names = rows["name"].gather(at.set(at < 0, None)).cast(pl.String)
    return names.str.replace(_PREFIX, "").str.replace(r"_\d+$", "")


def _by_scope(view: DeviceView) -> pl.DataFrame:
    """By the scopes in the names of the ops: `jit(train)/dense/dot_general`."""
    ops = view.used_ops.filter(_HAS_SCOPES).group_by(pl.col("framework_op").cast(pl.String)).agg(pl.sum("dur_ns"))
    number, self_ns = dict[tuple[int, str], int](), Counter[int]()
    for name, spent in sorted(ops.rows()):
        at, parts = -1, [part for part in name.rstrip(":").split("/") if part]
        for part in parts[: MOST_FRAMES + 1] or (name,):  # no deeper frame is drawn
            at = number.setdefault((at, part), len(number))
        self_ns[at] += spent
    rows = ((up, part, "op" if i in self_ns else "scope", self_ns[i]) for i, (up, part) in enumerate(number))
    return pl.DataFrame([*rows], _OF_TREE, orient="row")


def _own_times(view: DeviceView, rows: pl.DataFrame) -> tuple[Ints, Ints]:
    """Which rows are frames of the used steps, and what each of them takes outside of those within it, in ns."""
    used = view.used_host.filter(pl.col("kind").is_in(_FRAMES)).select("id", "dur_ns").collect()
    at = positions(rows, used["id"])
    spent = used["dur_ns"].to_numpy().copy()
    parent = _parents(rows)
    outer = nearest(rows["kind"].is_in(_FRAMES).to_numpy(), parent)
    around = above(outer, parent)[at]
    place = np.full(rows.height, -1, np.int64)
    place[at] = np.arange(len(at))
    inside = (around >= 0) & (place[around] >= 0)
    np.subtract.at(spent, place[around[inside]], used["dur_ns"].to_numpy()[inside])
    return at, np.maximum(spent, 0)


def _by_id(host: pl.DataFrame) -> pl.DataFrame:
    return host if host["id"].is_sorted() else host.sort("id")


def _parents(rows: pl.DataFrame) -> Ints:
    return positions(rows, rows["parent"])


def _grown(rows: pl.DataFrame, at: Ints, spent_ns: Ints) -> pl.DataFrame:
    """The tree of the frames around the rows `at`, each of which has spent so much."""
    parent, is_module = _parents(rows), (rows["kind"] == "module").to_numpy()
    is_frame = rows["kind"].is_in(_FRAMES).to_numpy()
    if is_module.any():
        # `forward` around all modules would take the backward pass for its own
        is_frame &= ~(around(is_module, parent) & (rows["kind"] == "annotation").to_numpy())
    frame = nearest(is_frame, parent)
    outer = above(frame, parent)
    if is_module.any():
        engine = _engine(rows)
        outer = np.where(engine & (outer < 0), _forward(rows, frame, parent, is_module, engine), outer)
    owner = above(frame, at)
    owns = np.zeros(rows.height, np.bool_)
    owns[owner[owner >= 0]] = True
    needed = np.flatnonzero(owns | around(owns, outer))
    names = _plain(rows["name"].gather(needed))
    code = names["code"].to_numpy()
    inner = np.full(rows.height, -1, np.int64)
    inner[needed] = np.arange(len(needed))
    node, first, parents = _merged(code, above(inner, outer[needed]))
    rootless = int(spent_ns[owner < 0].sum())
    self_ns = np.zeros(len(first), np.int64)
    np.add.at(self_ns, node[inner[owner[owner >= 0]]], spent_ns[owner >= 0])
    name, kind = (of.cast(pl.String) for of in (names["text"].gather(first), rows["kind"].gather(needed[first])))
    tree = pl.DataFrame({"parent": parents, "name": name, "kind": kind, "self_ns": self_ns})
    if rootless > 0:  # launched by nothing that was recorded
        tree = pl.concat([tree, pl.DataFrame([(-1, None, "op", rootless)], _OF_TREE, orient="row")])
    return tree


def _plain(names: pl.Series) -> pl.DataFrame:
    """Names without what the profiler puts in front (`text`), and the place of each in their order (`code`)."""
    known = names.unique().to_frame("name").with_columns(text=pl.col("name").cast(pl.String).str.replace(_PREFIX, ""))
    code = pl.col("text").rank("dense").cast(pl.Int64).fill_null(0)
    known = known.with_columns(pl.col("text").cast(TEXT), code=code)
    return names.to_frame("name").join(known, on="name", how="left", maintain_order="left", nulls_equal=True)


def _engine(rows: pl.DataFrame) -> Mask:
    calls = rows.select(matches(f"^{ENGINE}")).to_series()
    return np.asarray(calls.fill_null(value=False).to_numpy(), np.bool_)


def _forward(rows: pl.DataFrame, frame: Ints, parent: Ints, is_module: Mask, engine: Mask) -> Ints:
    """Of each row the module around the forward op with its sequence number; -1 where there is none.

    Ops that record nothing for autograd bear the number of the next that does: the last to start is that one.
    """
    module = nearest(is_module, parent)
    recomputed = nearest(engine, parent) >= 0
    forward = pl.Series((above(module, frame) >= 0) & ~recomputed)  # a recomputed op lies inside its own backward
    numbered = rows.select("sequence", "start_ns", row=pl.int_range(pl.len())).filter(forward).drop_nulls("sequence")
    last = numbered.sort("start_ns").unique("sequence", keep="last").select("sequence", "row")
    origin = rows.select("sequence").join(last, on="sequence", how="left", maintain_order="left")["row"]
    return above(module, origin.fill_null(-1).to_numpy())


def _merged(code: Ints, outer: Ints) -> tuple[Ints, Ints, Ints]:
    """Rows of one path are one node: the node of each row, and of each node its first row and its parent node.

    A row with the name of the one around it is the same frame: the engine's call and what it calls, or a recursion.
    """
    if not len(code):
        return _NONE, _NONE, _NONE
    is_first = (outer < 0) | (code != code[outer])
    parent = above(nearest(is_first, outer), outer)
    depth = _depths_of_frames(parent)
    counts = is_first & (depth <= MOST_FRAMES)  # a deeper one is in more frames than are drawn, none smaller than it
    node, codes = np.full(len(code), -1, np.int64), int(code.max()) + 1
    first, parents = node[:0], node[:0]
    for level in _levels(np.flatnonzero(counts), depth):
        up = above(node, parent[level])
        _, at, of = np.unique((up + 1) * codes + code[level], return_index=True, return_inverse=True)
        node[level] = len(first) + of
        first, parents = np.append(first, level[at]), np.append(parents, up[at])
    return node[nearest(counts, parent)], first, parents


def _depths_of_frames(parent: Ints) -> Ints:
    """How many rows are around each. Each round doubles the reach."""
    depth, up = (parent >= 0).astype(np.int64), parent
    while (up >= 0).any():
        depth, up = depth + np.where(up >= 0, depth[up], 0), above(up, up)
    return depth


def _levels(rows: Ints, depth: Ints) -> list[Ints]:
    """The rows by their depth, the outermost first."""
    depth = depth[rows]
    order = np.argsort(depth.astype(np.min_scalar_type(depth.max(initial=0))), kind="stable")  # short ones sort fast
    return np.split(rows[order], np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []


def _table(tree: pl.DataFrame, steps: int) -> pl.DataFrame:
    """The largest frames; what surrounds a frame is no smaller and comes before it, so none loses its parent."""
    total, around = tree["self_ns"].to_numpy().copy(), tree["parent"].to_numpy()
    depth = _depths_of_frames(around)
    for level in reversed(_levels(np.arange(len(total)), depth)):
        inner = level[around[level] >= 0]
        np.add.at(total, around[inner], total[inner])
    largest = np.lexsort((depth, -total))[:MOST_FRAMES]
    largest = largest[total[largest] > 0]
    largest = largest[np.lexsort((-total[largest], depth[largest]))]
    number_of = np.full(len(total), -1, np.int64)
    number_of[largest] = np.arange(len(largest))
    parent = pl.Series(above(number_of, around[largest]), dtype=pl.Int64)
    return tree[largest].select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        parent.set(parent < 0, None).alias("parent"),
        "name",
        "kind",
        total_ms=pl.Series(total[largest] / 1e6 / steps),
        self_ms=pl.col("self_ns") / 1e6 / steps,
    )
