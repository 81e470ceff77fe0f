"""What the operating system holds up: loaders that wait for files and locks, training threads that get no CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from advisor.intervals import Union
from advisor.lanes.hostwork import minus, training_ops
from advisor.lanes.lens import Lane, spans
from advisor.lanes.replay import trusted_replay
from advisor.metrics.registry import Metric, Missing, Value, measures
from advisor.text import ms

_LOADERS: Final = r"(?i)^pt_data_|data_?load|^tf_data|^dali|prefetch"  # names that frameworks give such threads
_FILES: Final = (
    r"^(?:p?readv?2?(?:64)?|__p?read(?:64)?(?:_chk)?|fread(?:_unlocked)?|getline|fgets|f?open(?:at)?(?:64)?"
    r"|[fl]?stat(?:at)?(?:64)?|statx|readdir(?:64)?|opendir|close|fclose|mmap(?:64)?|munmap|madvise|fsync|sendfile)$"
)
_LOCKS: Final = r"^(?:pthread_(?:mutex|rwlock|spin)_\w*lock\w*|flock|lockf)$"
_RUNNABLE: Final = r"(?i)^(?:running|runnable|ready|preempted)"
_STILL_STARVED: Final = 0.5
_NAMED: Final = 3
_CALLS: Final = ("runtime", "sync", "allocator")
_WHY_UNTOLD: Final = Missing(
    "neither the scheduler's reasons nor OS calls were recorded: waiting cannot be told from being made to wait"
)
_ELSE: Final = "; where the replay of the unchanged steps is off by more than 5 %: "


def _of_process(lane: Lane) -> pl.Expr:
    return pl.col("pid") == pl.lit(lane.process.get("pid"), pl.Int64)


def _blocked(lane: Lane) -> pl.DataFrame:
    """Calls of loading threads that wait for a file or a lock, with what for (`cause`).

    A thread loads that is named so, and the training process' own threads while they ask for a batch.
    """
    named = lane.threads.filter(pl.col("name").str.contains(_LOADERS)).select("pid", "thread").unique()
    text = pl.col("name").cast(pl.String)
    cause = pl.coalesce(
        pl.when(text.str.contains(pattern)).then(pl.lit(cause))
        for cause, pattern in (("files", _FILES), ("locks", _LOCKS))
    )
    causes = lane.os_calls.select("name").unique().with_columns(cause=cause).drop_nulls()
    calls = lane.os_calls.join(causes, on="name", maintain_order="left")
    asking = lane.host.filter(pl.col("kind") == "input")
    own = calls.filter(_of_process(lane), pl.col("thread").is_in(asking["thread"].unique().implode()))
    during = spans(asking)
    start = own["start_ns"].to_numpy()
    inside = during.within(start, start + own["dur_ns"].to_numpy()) > 0
    loading = own.filter(pl.Series(inside, dtype=pl.Boolean))
    return pl.concat([calls.join(named, on=["pid", "thread"], how="semi"), loading]).unique(maintain_order=True)


def _waiting_for_input(lane: Lane) -> Union:
    """When a batch is asked for and the device has nothing to do."""
    return minus(lane.host_spans("input"), lane.busy)


def _longest_blocked(lane: Lane) -> pl.DataFrame:
    found = lane.once(_blocked)
    start = found["start_ns"].to_numpy()
    waited = lane.once(_waiting_for_input).within(start, start + found["dur_ns"].to_numpy())
    held = found.filter(pl.Series(waited > 0, dtype=pl.Boolean)).sort("dur_ns", "start_ns", descending=[True, False])
    return held.select("start_ns", "dur_ns", table=pl.lit("os_calls"), name=pl.col("name").cast(pl.String))


@measures(
    Metric(
        "loader_blocked_share",
        "share",
        "Part of the step that waits for a batch while a loading thread waits for a file or a lock.",
        "time in which an input range is open, the device idles, and a thread named as a loader's, or the one that "
        "asks, is in read, open, stat and the like, or takes a lock / step time",
        "OS runtime calls as Nsight Systems records them (--trace=osrt)",
        ("os_calls",),
        _longest_blocked,
    ),
    Metric(
        "loader_blocked_ms", "ms", "The same, per step.", "loader_blocked_share x step_mean_ms", needs=("os_calls",)
    ),
    Metric(
        "loader_file_share",
        "share",
        "Part of that time in which a file is waited for; the rest is locks.",
        "time under file calls / time under file calls or locks; 0 without either",
        needs=("os_calls",),
    ),
    Metric(
        "loader_blocked_calls",
        "text",
        "The calls, the longest first.",
        "time in each call while a batch is waited for, all threads added up, per step",
        needs=("os_calls",),
    ),
)
def blocked_loaders(lane: Lane) -> Mapping[str, Value]:
    """Files and locks that loaders wait for while training waits for them."""
    if not lane.total_ns:
        return {}
    found, waiting = lane.once(_blocked), lane.once(_waiting_for_input)
    held = spans(found) & waiting
    share = lane.share(held) or 0.0
    files = lane.share(spans(found.filter(pl.col("cause") == "files")) & waiting) or 0.0
    windows = waiting & Union.of(lane.starts, lane.ends)
    start = found["start_ns"].to_numpy()
    by_name = (
        found.select(name=pl.col("name").cast(pl.String))
        .with_columns(ns=pl.Series(windows.within(start, start + found["dur_ns"].to_numpy())))
        .filter(pl.col("ns") > 0)
        .group_by("name")
        .agg(pl.sum("ns"))
        .sort("ns", "name", descending=[True, False])
        .head(_NAMED)
    )
    return {
        "loader_blocked_share": share,
        "loader_blocked_ms": lane.per_step_ms(share * lane.total_ns),
        "loader_file_share": files / share if share else 0.0,
        "loader_blocked_calls": ", ".join(f"{name} ({ms(lane.per_step_ms(ns))})" for name, ns in by_name.rows()),
    }


def _starved(lane: Lane) -> pl.DataFrame | None:
    """When a training thread had work and no CPU; None where that cannot be told from waiting."""
    threads = lane.once(training_ops)["thread"].unique()
    mine = _of_process(lane) & pl.col("thread").is_in(threads.implode())
    away = lane.off_cpu.filter(mine)
    state = pl.col("state").cast(pl.String)
    told = away.filter(state.is_not_null())
    if told.height:
        return told.filter(state.str.contains(_RUNNABLE))
    calls = lane.os_calls.filter(mine)
    if not calls.height:
        return None if away.height else away
    waiting = spans(calls) | spans(lane.host.filter(pl.col("kind").is_in(_CALLS)))
    start = away["start_ns"].to_numpy()
    own = minus(spans(away), waiting).within(start, start + away["dur_ns"].to_numpy())
    return away.filter(pl.Series(own == away["dur_ns"].to_numpy(), dtype=pl.Boolean))


def _longest_starved(lane: Lane) -> pl.DataFrame:
    found = _starved(lane)
    if found is None:
        return pl.DataFrame()
    begin, end = lane.starts, lane.ends
    start = found["start_ns"].to_numpy()
    inside = Union.of(begin, end).within(start, start + found["dur_ns"].to_numpy()) > 0 if len(begin) else start < 0
    held = found.filter(pl.Series(inside, dtype=pl.Boolean)).sort("dur_ns", "start_ns", descending=[True, False])
    moved = pl.when(pl.col("cpu") != pl.col("next_cpu")).then(pl.format(", then on CPU {}", "next_cpu")).fill_null("")
    left = pl.format("off CPU {}", pl.col("cpu").cast(pl.String).fill_null("?"))
    return held.select("start_ns", "dur_ns", table=pl.lit("off_cpu"), name=pl.concat_str(left, moved))


@measures(
    Metric(
        "cpu_starved_share",
        "share",
        "Part of the step in which a training thread could run, is on no CPU, and the device idles.",
        "time off CPU in state Running or the like, of threads that launch or bear steps, outside device work / step "
        "time; where no states were recorded, absences that no OS or CUDA call covers any part of",
        "thread scheduling as Nsight Systems records it (--cpuctxsw=process-tree)",
        ("device_ops", "device_ops.launch", "off_cpu"),
        _longest_starved,
    ),
    Metric(
        "cpu_migrations_per_step",
        "number",
        "How often per step such a thread goes on elsewhere than where it was.",
        "those absences in the steps with another CPU after than before / steps",
        needs=("device_ops", "device_ops.launch", "off_cpu"),
    ),
    Metric(
        "cpu_starved_gain_ms",
        "ms",
        "Step time given back if those threads always had a CPU.",
        f"replay without the host's time in those absences{_ELSE}cpu_starved_share x step_mean_ms",
        "advisor.lanes.replay",
        ("device_ops", "device_ops.launch", "off_cpu"),
    ),
    Metric(
        "cpu_starved_least_gain_ms",
        "ms",
        "Step time given back if half of the absences went.",
        f"replay with half of that time{_ELSE}0",
        "half: own choice",
        ("device_ops", "device_ops.launch", "off_cpu"),
    ),
)
def starving(lane: Lane) -> Mapping[str, Value]:
    """Training threads that were ready and not scheduled, as far as the device idled for it."""
    if not lane.total_ns:
        return {}
    names = ("cpu_starved_share", "cpu_migrations_per_step", "cpu_starved_gain_ms", "cpu_starved_least_gain_ms")
    found = _starved(lane)
    if found is None:
        return dict.fromkeys(names, _WHY_UNTOLD)
    away = spans(found)
    lost = minus(away, lane.busy)
    share = lane.share(lost) or 0.0
    start = found["start_ns"].to_numpy()
    inside = Union.of(lane.starts, lane.ends).within(start, start + 1) > 0
    moved = found.filter(pl.Series(inside, dtype=pl.Boolean), pl.col("cpu") != pl.col("next_cpu"))
    trusted = lane.once(trusted_replay) if share else None
    bound = lane.per_step_ms(share * lane.total_ns)
    return {
        "cpu_starved_share": share,
        "cpu_migrations_per_step": moved.height / lane.steps.height,
        "cpu_starved_gain_ms": trusted.saved_ms(trusted.without_host(away)) if trusted else bound,
        "cpu_starved_least_gain_ms": trusted.saved_ms(trusted.without_host(away, _STILL_STARVED)) if trusted else 0.0,
    }
