"""What the operating system holds up: loaders that wait for files and locks, threads that get no CPU."""

from __future__ import annotations

from typing import Final

import polars as pl

from advisor.analysis.device.cpu_waits import cpu_waits, delay_share, noted_share
from advisor.analysis.device.host_work import training_ops
from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, spans
from advisor.metrics.old import Metric, Values, measures, time_of
from advisor.model.intervals import EMPTY, Union
from advisor.model.missing import Missing
from advisor.text import ms
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.whatif import ELSE, saved, without

_LOADERS: Final = r"(?i)^pt_data_|data_?load|^tf_data|^dali|prefetch"  # names that frameworks give such threads
_FILES: Final = (
    r"^(?:p?readv?2?(?:64)?|__p?read(?:64)?(?:_chk)?|fread(?:_unlocked)?|getline|fgets|f?open(?:at)?(?:64)?"
    r"|[fl]?stat(?:at)?(?:64)?|statx|readdir(?:64)?|opendir|close|fclose|mmap(?:64)?|munmap|madvise|fsync|sendfile)$"
)
_LOCKS: Final = r"^(?:pthread_(?:mutex|rwlock|spin)_\w*lock\w*|flock|lockf)$"
_RUNNABLE: Final = r"(?i)^(?:running|runnable|ready|preempted)"
_STILL_STARVED: Final = 0.5
_MOST_CALLS: Final = 3


def _of_process(view: DeviceView) -> pl.Expr:
    return pl.col("pid") == pl.lit(view.process.get("pid"), pl.Int64)


def _blocked(view: DeviceView) -> pl.DataFrame:
    """Calls of loading threads that wait for a file or a lock, with what for (`cause`).

    A thread loads that is named so, and the training process' own threads while they ask for a batch.
    """
    loaders = view.threads.filter(pl.col("name").str.contains(_LOADERS)).select("pid", "thread").unique()
    text = pl.col("name").cast(pl.String)
    cause = pl.coalesce(
        pl.when(text.str.contains(pattern)).then(pl.lit(cause))
        for cause, pattern in (("files", _FILES), ("locks", _LOCKS))
    )
    causes = view.os_calls.select("name").unique().with_columns(cause=cause).drop_nulls()
    calls = view.os_calls.join(causes, on="name", maintain_order="left")
    asking = view.host.filter(pl.col("kind") == "input")
    own = calls.filter(_of_process(view), pl.col("thread").is_in(asking["thread"].unique().implode()))
    during = spans(asking)
    start = own["start_ns"].to_numpy()
    inside = during.within(start, start + own["dur_ns"].to_numpy()) > 0
    loading = own.filter(pl.Series(inside, dtype=pl.Boolean))
    return pl.concat([calls.join(loaders, on=["pid", "thread"], how="semi"), loading]).unique(maintain_order=True)


def _waiting_for_input(view: DeviceView) -> Union:
    """When a batch is asked for and the device has nothing to do."""
    return view.host_spans("input") - view.busy


def _longest_blocked(view: DeviceView) -> pl.DataFrame:
    calls = view.once(_blocked)
    start = calls["start_ns"].to_numpy()
    waited = view.once(_waiting_for_input).within(start, start + calls["dur_ns"].to_numpy())
    return as_places(calls.filter(pl.Series(waited > 0, dtype=pl.Boolean)), "os_calls")


LOADER_BLOCKED_SHARE = Metric(
    "loader_blocked_share",
    "Part of the step that waits for a batch while a loading thread waits for a file or a lock.",
    "time in which an input range is open, the device idles, and a thread named as a loader's, or the one that "
    "asks, is in read, open, stat and the like, or takes a lock / step time",
    "OS runtime calls as Nsight Systems records them (--trace=osrt)",
    where=_longest_blocked,
)
LOADER_BLOCKED_MS = time_of("loader_blocked_ms", LOADER_BLOCKED_SHARE, "loader_blocked_share x step_mean_ms")
LOADER_FILE_SHARE = Metric(
    "loader_file_share",
    "Part of the loading threads' blocked time in which a file is waited for; the rest is locks.",
    "time under file calls / time under file calls or locks; 0 without either",
)
LOADER_BLOCKED_CALLS = Metric(
    "loader_blocked_calls",
    "The calls in which loading threads are blocked, the longest first.",
    "time in each call while a batch is waited for, all threads added up, per step",
    unit="text",
)


@measures(LOADER_BLOCKED_SHARE, LOADER_BLOCKED_MS, LOADER_FILE_SHARE, LOADER_BLOCKED_CALLS, needs=("os_calls",))
def blocked_loaders(view: DeviceView) -> Values:
    """Files and locks that loaders wait for while training waits for them."""
    calls, waiting = view.once(_blocked), view.once(_waiting_for_input)
    blocked = spans(calls) & waiting
    share = view.share(blocked) or 0.0
    files = view.share(spans(calls.filter(pl.col("cause") == "files")) & waiting) or 0.0
    return {
        LOADER_BLOCKED_SHARE: share,
        LOADER_BLOCKED_MS: view.per_step_ms(share * view.total_ns),
        LOADER_FILE_SHARE: files / share if share else 0.0,
        LOADER_BLOCKED_CALLS: _by_name(view, calls, waiting & Union.of(view.starts, view.ends)),
    }


def _by_name(view: DeviceView, calls: pl.DataFrame, when: Union) -> str:
    """The names of the calls with the most time per step during `when`, and that time."""
    start = calls["start_ns"].to_numpy()
    times = (
        calls.select(name=pl.col("name").cast(pl.String))
        .with_columns(ns=pl.Series(when.within(start, start + calls["dur_ns"].to_numpy())))
        .filter(pl.col("ns") > 0)
        .group_by("name")
        .agg(pl.sum("ns"))
        .sort("ns", "name", descending=[True, False])
    )
    return ", ".join(f"{name} ({ms(view.per_step_ms(ns))})" for name, ns in times.head(_MOST_CALLS).rows())


def _starved(view: DeviceView) -> pl.DataFrame | None:
    """When a training thread had work and no CPU; None where that looks the same as waiting."""
    threads = view.once(training_ops)["thread"].unique()
    training = _of_process(view) & pl.col("thread").is_in(threads.implode())
    away = view.off_cpu.filter(training)
    state = pl.col("state").cast(pl.String)
    stated = away.filter(state.is_not_null())
    if stated.height:
        return stated.filter(state.str.contains(_RUNNABLE))
    calls = view.os_calls.filter(training)
    if not calls.height:
        return None if away.height else away
    waiting = spans(calls) | spans(view.host.filter(pl.col("kind").is_in(DRIVER_CALLS)))
    start = away["start_ns"].to_numpy()
    own = (spans(away) - waiting).within(start, start + away["dur_ns"].to_numpy())
    return away.filter(pl.Series(own == away["dur_ns"].to_numpy(), dtype=pl.Boolean))


def _longest_starved(view: DeviceView) -> pl.DataFrame:
    away = _starved(view)
    if away is None:
        return pl.DataFrame()
    begin, end = view.starts, view.ends
    start = away["start_ns"].to_numpy()
    inside = Union.of(begin, end).within(start, start + away["dur_ns"].to_numpy()) > 0 if len(begin) else start < 0
    used = away.filter(pl.Series(inside, dtype=pl.Boolean))
    moved = pl.when(pl.col("cpu") != pl.col("next_cpu")).then(pl.format(", then on CPU {}", "next_cpu")).fill_null("")
    where = pl.format("off CPU {}", pl.col("cpu").cast(pl.String).fill_null("?"))
    return as_places(used, "off_cpu", name=pl.concat_str(where, moved))


CPU_STARVED_SHARE = Metric(
    "cpu_starved_share",
    "Part of the step in which a launching thread could run, is on no CPU, and the device idles.",
    "time off CPU in state Running or the like, of threads that launch or bear steps, outside device work / step "
    "time; where no states were recorded, absences that no OS or CUDA call covers any part of",
    "thread scheduling as Nsight Systems records it (--cpuctxsw=process-tree)",
    where=_longest_starved,
)
CPU_MIGRATIONS_PER_STEP = Metric(
    "cpu_migrations_per_step",
    "How often per step a launching thread goes on with another CPU than before.",
    "those absences in the steps with another CPU after than before / steps",
)
CPU_STARVED_GAIN_MS = Metric(
    "cpu_starved_gain_ms",
    "Step time saved if launching threads always had a CPU.",
    f"replay without the host's time in those absences{ELSE}cpu_starved_share x step_mean_ms",
    "advisor.whatif.replay",
)
CPU_STARVED_LEAST_GAIN_MS = Metric(
    "cpu_starved_least_gain_ms",
    "Step time saved if half of the absences went.",
    f"replay with half of that time{ELSE}0",
    "half: own choice",
)


@measures(
    CPU_STARVED_SHARE,
    CPU_MIGRATIONS_PER_STEP,
    CPU_STARVED_GAIN_MS,
    CPU_STARVED_LEAST_GAIN_MS,
    needs=("device_ops", "device_ops.launch", "off_cpu"),
)
def starving(view: DeviceView) -> Values:
    """Training threads that were ready and not scheduled, as far as the device idled for it."""
    absences = _starved(view)
    if absences is None:
        return Missing("waiting_unexplained")
    away = spans(absences)
    idle = away - view.busy
    share = view.share(idle) or 0.0
    start = absences["start_ns"].to_numpy()
    inside = Union.of(view.starts, view.ends).within(start, start + 1) > 0
    moved = absences.filter(pl.Series(inside, dtype=pl.Boolean), pl.col("cpu") != pl.col("next_cpu"))
    absent = without(host=away if share else EMPTY, rest=(_STILL_STARVED, 0.0), bound_ns=share * view.total_ns)
    least, most = saved(view, absent)
    return {
        CPU_STARVED_SHARE: share,
        CPU_MIGRATIONS_PER_STEP: moved.height / view.steps.height,
        CPU_STARVED_GAIN_MS: most,
        CPU_STARVED_LEAST_GAIN_MS: least,
    }


RUN_DELAY_SHARE = Metric(
    "run_delay_share",
    "Part of the recorded step in which the host's threads waited for a CPU. With `advisor record`: because of other "
    "programs. Without it: a lower bound, from ops that do no work; 0 where there are too few of these.",
    "run_delay_ms of the recorded steps, at most what the used steps exceed the recorder's median without it by, / "
    "step time; else of views and their like, which take a "
    "microsecond or a few, waits / (waits + other time): those of over 0.1 ms and 20 medians, if five or more, less "
    "two standard errors of their number, as long each as the mean of all but the longest; 0 if they come more often "
    "than every 0.2 ms of such ops",
    "/proc/thread-self/schedstat, the time that a thread was ready and did not run; of it, as much as the job did not "
    "get of its cores; 0.1 ms: of 100,000 views and their like in 31 public recordings one takes longer; own choice: "
    "the other numbers",
)
WAITING_VIEWS = Metric(
    "waiting_views",
    "Views and other ops without work that took so long that their thread cannot have had a CPU; 0 where `advisor "
    "record` noted such waits.",
    "ops as in run_delay_share that take over 0.1 ms and 20 medians",
    unit="count",
)
LONGEST_WAITING_VIEW_MS = Metric("longest_waiting_view_ms", "The longest of them.", "its duration")
OWN_DELAY_SHARE = Metric(
    "own_delay_share",
    "Part of the recorded step in which the thread that ends it waited for a CPU because the job has more to run than "
    "it has cores.",
    "own_delay_ms of the recorded steps / step time, at most 1; 0 where `advisor record` noted none",
    "/proc/thread-self/schedstat, the time that a thread was ready and did not run; without run_delay_ms",
)


@measures(RUN_DELAY_SHARE, OWN_DELAY_SHARE, WAITING_VIEWS, LONGEST_WAITING_VIEW_MS)
def cpu_shortage(view: DeviceView) -> Values:
    """What the host's threads wait for a CPU; zero where nothing tells."""
    sample = view.once(cpu_waits)
    return {
        RUN_DELAY_SHARE: delay_share(view),
        OWN_DELAY_SHARE: noted_share(view, "own_delay_ms"),
        WAITING_VIEWS: sample.waits if sample else 0,
        LONGEST_WAITING_VIEW_MS: sample.longest_ns / 1e6 if sample else 0.0,
    }
