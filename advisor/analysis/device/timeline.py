"""The worst step of a view as it can be drawn: what ran on its streams and threads, and why the device idled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.idle import CAUSES, gaps
from advisor.analysis.device.view import DeviceView
from advisor.model.profile import END_NS
from advisor.text import numbered

MOST_EVENTS: Final = 1_500  # as many as a page has room for; the shortest go first
_MOST_SPANS: Final = 200  # of evidence for one metric
_HIDDEN: Final = ["python", "overhead"]  # frames of the interpreter: too many to read, and the ops say what they do
_COLUMNS: Final = ("on_device", "track", "kind", "name", "start_ns", "dur_ns")

Where = Callable[[DeviceView], pl.DataFrame]


@dataclass(frozen=True, eq=False)
class Timeline:
    """One step of one view; times in ns from `start_ns`, the step's start on the file's clock.

    `events` has on_device, track (stream or thread), kind, name, start_ns, dur_ns and depth (how many ranges of the
    same track enclose it), at most MOST_EVENTS of `recorded`. `idle` has start_ns, dur_ns and cause for every stretch
    in which the device runs nothing. `evidence` holds start_ns and dur_ns of the places behind a metric. `threads` are
    the names of threads, where they are known.
    """

    worker: int
    device: int | None
    step: int | None
    start_ns: int
    dur_ns: int
    recorded: int
    events: pl.DataFrame
    idle: pl.DataFrame
    evidence: Mapping[str, pl.DataFrame]
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
    return Timeline(
        worker=view.worker,
        device=view.device,
        step=row["step"] if view.has_marks else None,
        start_ns=start,
        dur_ns=length,
        recorded=device.height + host.height,
        events=pl.concat(rows.with_columns(pl.col("kind", "name").cast(pl.String)) for rows in parts),
        idle=_idle(view, number, start),
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
    return rows.filter(pl.col("start_ns") < start + length, start < END_NS)


def _rows(rows: pl.DataFrame, start: int) -> pl.DataFrame:
    shifted = rows.with_columns(pl.col("start_ns") - start).select(_COLUMNS)
    ordered = shifted.sort("track", "start_ns", "dur_ns", descending=[False, False, True])
    return ordered.with_columns(depth=_depths(ordered))


def _depths(rows: pl.DataFrame) -> pl.Series:
    """Of the ranges of each one's track that began before it, those still open."""
    start = rows["start_ns"].to_numpy()
    _, order = np.unique(np.concatenate((start, start + rows["dur_ns"].to_numpy())), return_inverse=True)
    of_track = (rows["track"].fill_null(-1).rle_id().to_numpy() * (len(order) + 1)).astype(np.int64)
    began, ended = order.reshape(2, -1) + of_track
    open_ = np.arange(len(start)) - np.searchsorted(np.sort(ended), began, side="right")
    return pl.Series(np.maximum(open_, 0), dtype=pl.Int64)


def _idle(view: DeviceView, window: int, start: int) -> pl.DataFrame:
    """Idle stretches of the window with the cause that accounts for most of each; none where there is no device."""
    if view.device is None:
        return pl.DataFrame(schema={"start_ns": pl.Int64, "dur_ns": pl.Int64, "cause": pl.String})
    idle = view.once(gaps).filter(pl.col("window") == window)
    parts = idle.select(f"{cause}_ns" for cause in CAUSES).to_numpy()
    cause = pl.Series([CAUSES[i] for i in parts.argmax(axis=1)], dtype=pl.String)
    rows = idle.select(pl.col("start_ns") - start, dur_ns=pl.col("end_ns") - pl.col("start_ns"), cause=cause)
    return rows.top_k(MOST_EVENTS // 4, by="dur_ns").sort("start_ns")


def _spans(places: pl.DataFrame, start: int, length: int) -> pl.DataFrame:
    if not places.height:
        return pl.DataFrame(schema={"start_ns": pl.Int64, "dur_ns": pl.Int64})
    here = _within(places, start, length).head(_MOST_SPANS)
    return here.select(pl.col("start_ns").cast(pl.Int64) - start, pl.col("dur_ns").cast(pl.Int64))
