"""What the operating system holds up: loaders that wait for files and locks, threads that get no CPU, lost cores.

A core is lost where some steps take longer at a place than the others, which make the same calls there: the host's
thread has no core then. Steps that launch the same ops in the same order are laid over each other, launch by launch;
without a device, op by op. What one takes beyond the median of all, and twice as long, has no cause in the work: a
cause in it comes back at its place. With a device only the time counts in which that idles.
"""

from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.cpu_waits import cpu_waits, delay_share, noted_share
from advisor.analysis.device.host_work import longest_wait, of_process, off_cpu, training_ops
from advisor.analysis.device.places import as_places
from advisor.analysis.device.view import DeviceView, bounds, host_bounds, inside, outermost, spans, spent_ns, started_in
from advisor.metrics.metric import lacking, of_devices
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import EMPTY, Intervals
from advisor.vocabulary.limits import LAUNCH_GAP_NS
from advisor.whatif.change import Interval, saved, without

_LOADERS: Final = r"(?i)^pt_data_|data_?load|^tf_data|^dali|prefetch"  # names that frameworks give such threads
_FILES: Final = (
    r"^(?:p?readv?2?(?:64)?|__p?read(?:64)?(?:_chk)?|fread(?:_unlocked)?|getline|fgets|f?open(?:at)?(?:64)?"
    r"|[fl]?stat(?:at)?(?:64)?|statx|readdir(?:64)?|opendir|close|fclose|mmap(?:64)?|munmap|madvise|fsync|sendfile)$"
)
_LOCKS: Final = r"^(?:pthread_(?:mutex|rwlock|spin)_\w*lock\w*|flock|lockf)$"
_RUNNABLE: Final = r"(?i)^(?:running|runnable|ready|preempted)"
_MOVED: Final = pl.col("cpu") != pl.col("next_cpu")
_STILL_STARVED: Final = 0.5


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
    own = calls.filter(of_process(view), pl.col("thread").is_in(asking["thread"].unique().implode()))
    loading = own.filter(spent_ns(own, spans(asking)) > 0)
    return pl.concat([calls.join(loaders, on=["pid", "thread"], how="semi"), loading]).unique(maintain_order=True)


def _waiting_for_input(view: DeviceView) -> Intervals:
    """When a batch is asked for and the device has nothing to do."""
    return view.host_spans("input") - view.busy


def _waits_for_loaders(view: DeviceView) -> Intervals:
    return spans(view.once(_blocked)) & view.once(_waiting_for_input)


def _blocking_calls(view: DeviceView) -> Entries:
    calls = view.once(_blocked)
    waited = calls.select("name", spent_ns(calls, view.once(_waiting_for_input) & view.windows))
    return view.largest(waited.cast({"name": pl.String}).filter(pl.col("ns") > 0).group_by("name").sum().rows())


def _blocking(view: DeviceView) -> pl.DataFrame:
    calls = view.once(_blocked)
    return calls.filter(spent_ns(calls, view.once(_waiting_for_input)) > 0)


of_loaders = of_devices(__name__, needs=("os_calls",))
of_loaders.time(
    "loader_blocked", lambda view: view.once(_waits_for_loaders), where=as_places(_blocking, "os_calls")
).says(
    "that waits for a batch while a loading thread waits for a file or a lock",
    "time in which an input range is open, the device idles, and a thread named as a loader's, or the one that "
    "asks, is in read, open, stat and the like, or takes a lock",
    "OS runtime calls as Nsight Systems records them (--trace=osrt)",
)
of_loaders(
    "loader_file_share",
    lambda view: spans(view.once(_blocked).filter(cause="files")).part_of(view.once(_waits_for_loaders) & view.windows),
).says(
    "Part of the loading threads' blocked time in which a file is waited for; the rest is locks.",
    "time under file calls / time under file calls or locks; 0 without either",
)
of_loaders("loader_blocked_calls", _blocking_calls).says(
    "The calls in which loading threads are blocked, the longest first.",
    "time in each call while a batch is waited for, all threads added up, per step",
)


of_devices(__name__)("system_wait_calls", lambda view: view.largest(longest_wait(view, view.windows))).says(
    "The call of the system in which the job waits half of the time: for somebody to type, a child process or time.",
    "time in calls such as getc, sleep and waitpid of the threads that launch or bear steps, if over half of the steps",
)


def _unexplained(view: DeviceView) -> Missing | None:
    """Without states, a thread that waits, or that the system gets a page for, looks as one that gets no CPU does."""
    away = view.once(off_cpu)
    return None if away.is_empty() or away["state"].count() else Missing("waiting_unexplained")


def _starved(view: DeviceView) -> pl.DataFrame:
    """When a training thread had work and no CPU."""
    return view.once(off_cpu).filter(pl.col("state").cast(pl.String).str.contains(_RUNNABLE))


def _idle(view: DeviceView) -> Intervals:
    return spans(view.once(_starved)) - view.busy


def _absences(view: DeviceView) -> pl.DataFrame:
    """Those of used steps, with the `place` that a report names."""
    away = view.once(_starved)
    used = away.filter(spent_ns(away, view.windows) > 0)
    moved = pl.when(_MOVED).then(pl.format(", then on CPU {}", "next_cpu")).fill_null("")
    where = pl.format("off CPU {}", pl.col("cpu").cast(pl.String).fill_null("?"))
    return used.with_columns(place=pl.concat_str(where, moved))


def _scheduled(view: DeviceView) -> Interval:
    idle_ns = view.used_ns(view.once(_idle))
    away = spans(view.once(_starved)) if idle_ns else EMPTY
    return saved(view, without(host=away, rest=(_STILL_STARVED, 0.0), bound_ns=idle_ns))


of_threads = of_devices(__name__, needs=("device_ops", "device_ops.launch", "off_cpu"), unknown=_unexplained)
of_threads.share("cpu_starved_share", _idle, where=as_places(_absences, "off_cpu", name=pl.col("place"))).says(
    "Part of the step in which a launching thread could run, is on no CPU, and the device idles.",
    "time off CPU in state Running or the like, of threads that launch or bear steps, outside device work / step time",
    "thread scheduling as Nsight Systems records it (--cpuctxsw=process-tree)",
)
of_threads(
    "cpu_migrations_per_step",
    lambda view: int(inside(view.windows, view.once(_starved).filter(_MOVED)).sum()) / view.steps.height,
).says(
    "How often per step a launching thread goes on with another CPU than before.",
    "those absences in the steps with another CPU after than before / steps",
)
of_threads.saving("cpu_starved", _scheduled).says("a CPU for each launching thread at any time")

measure = of_devices(__name__)
measure("run_delay_share", delay_share).says(
    "Part of the recorded step in which the host's threads waited for a CPU. With `advisor record`: because of other "
    "programs. Without it: a lower bound, from ops that do no work; 0 where there are too few of these.",
    "run_delay_ms of the recorded steps, at most what the used steps exceed the recorder's median without it by, / "
    "step time; else of views and their like, which take a microsecond or a few, waits / (waits + other time): those "
    "of over 0.1 ms and 20 medians, if five or more, less two standard errors of their number, as long each as the "
    "mean of all but the longest; 0 if they come more often than every 0.2 ms of such ops",
    "/proc/thread-self/schedstat, the time that a thread was ready and did not run; of it, as much as the job "
    "did not get of its cores; 0.1 ms: of 100,000 views and their like in 31 public recordings one takes longer; own "
    "choice: the other numbers",
)
measure("own_delay_share", lambda view: noted_share(view, "own_delay_ms")).says(
    "Part of the recorded step in which the thread that ends it waited for a CPU because the job has more to run than "
    "it has cores.",
    "own_delay_ms of the recorded steps / step time, at most 1; 0 where `advisor record` noted none",
    "/proc/thread-self/schedstat, the time that a thread was ready and did not run; without run_delay_ms",
)
of_samples = measure.parts_of(cpu_waits, without=0)
of_samples("waiting_views", lambda sample: sample.waits, unit="count").says(
    "Views and other ops without work that took so long that their thread cannot have had a CPU; 0 where `advisor "
    "record` noted such waits.",
    "ops as in run_delay_share that take over 0.1 ms and 20 medians",
)
of_samples("longest_waiting_view_ms", lambda sample: sample.longest_ns / 1e6).says(
    "The longest of the waiting_views.", "its duration"
)


_FEWEST_STEPS: Final = 4
_OTHER_CAUSES: Final = ("compile", "start_up", "gc", "allocator", "collective")


_COLUMNS: Final = ("start_ns", "dur_ns", "step", "place", "lost_ms")


def _launches(view: DeviceView) -> pl.DataFrame:
    """The calls that launch the device's ops, by the ops' names."""
    ops = view.ops.select("name", id="launch").drop_nulls("id").unique("id", keep="first", maintain_order=True)
    return view.host.select("id", "start_ns", "dur_ns").join(ops, on="id").sort("start_ns")


def _ops_of_shapes(view: DeviceView) -> pl.DataFrame:
    """The ops that run in no other, by their names and shapes."""
    ops = view.once(training_ops).filter(pl.col("kind") == "op", pl.col("shapes").is_not_null())
    return outermost(ops).with_columns(name=pl.format("{} {}", "name", "shapes")).sort("start_ns")


def _losses(view: DeviceView) -> pl.DataFrame | Missing:
    """Those of over 1 ms, with the launch of the step that each is before (`place`), and what it adds to the mean step.

    Missing where fewer than four steps, or not all of them, launch the same.
    """
    begin, until = host_bounds(view.lasting)
    calls = started_in(view.once(_ops_of_shapes if view.device is None else _launches), begin, until)
    each = np.bincount(calls["window"].to_numpy(), minlength=len(until))
    names = calls["name"].cast(pl.String).to_list()
    if len(until) < _FEWEST_STEPS or not each[0] or np.ptp(each) or names != names[: each[0]] * len(until):
        return Missing("steps_launch_differently")
    end = bounds(calls)[1].reshape(len(until), -1)
    before = np.column_stack((np.maximum(begin, np.concatenate((begin[:1], end[:-1, -1]))), end[:, :-1]))
    causes = view.host_spans(*_OTHER_CAUSES)
    known = causes | (view.host_spans("input") if view.device is None else view.busy)
    took = end - before - known.within(before.ravel(), end.ravel()).reshape(end.shape)
    usual = np.rint(np.median(took, axis=0)).astype(np.int64)
    beyond = took - usual
    is_noted = view.device is None and view.process.get("run_delay_ms") is not None
    of, place = np.nonzero((beyond > np.maximum(usual, LAUNCH_GAP_NS)) & (not is_noted))
    columns = before[of, place], (end - before)[of, place], of, place, beyond[of, place] / 1e6 / len(until)
    return pl.DataFrame(dict(zip(_COLUMNS, columns, strict=True)))


def _places(view: DeviceView) -> pl.DataFrame:
    losses = view.once(_losses)
    return pl.DataFrame(schema=_COLUMNS) if isinstance(losses, Missing) else losses


def _most_at_one_place(losses: pl.DataFrame) -> float:
    of_places = losses.group_by("place").agg(pl.sum("lost_ms"))["lost_ms"].to_numpy()
    return float(of_places.max() / of_places.sum()) if len(of_places) else 0.0


_no_shapes = lacking(no_shapes=lambda view: view.device is None and not view.once(_ops_of_shapes).height)
of_lost_cores = of_devices(__name__, needs=("host_ops",), unknown=_no_shapes).parts_of(_losses)
of_lost_cores(
    "core_lost_ms",
    lambda losses: float(losses["lost_ms"].sum()),
    where=as_places(_places, "host_ops", name=pl.lit("the host stops")),
).says(
    "Time per step in which the device idles where it does not in other steps, though the host makes the same calls; "
    "without a device, what ops take beyond other steps.",
    "of steps that launch the same ops in the same order: the time between the returns of two launches in which the "
    "device idles, outside of compilation, start-up, garbage collection, allocation and collectives, beyond its median "
    "over the steps, where that is over 1 ms and over the median; summed / steps. Without a device: of steps that run "
    "the same ops on the same shapes, the time between the ends of two ops, outside of requests for input too; 0 if "
    "`advisor record` noted the waits for a core, which other rules judge",
    "own simulated jobs whose host loses its core at random: 0.98 to 1.02 of what that costs; at most 0.7 % of the "
    "step in public recordings of 20 jobs, but for one with 2.3 %, and one whose first step alone stops",
)
of_lost_cores("core_lost_places", lambda losses: losses["place"].n_unique(), unit="count").says(
    "Before how many launches of the step the host stops so.",
    "number of different launches that core_lost_ms is before",
)
of_lost_cores("core_lost_steps", lambda losses: losses["step"].n_unique(), unit="count").says(
    "In how many steps the host stops so.", "number of steps with time in core_lost_ms"
)
of_lost_cores("core_lost_top_part", _most_at_one_place).says(
    "Part of that time before the launch of the step that has most of it: what a program does at times has its place.",
    "the most time of core_lost_ms before one launch of the step / all of it; 0 without any",
)
