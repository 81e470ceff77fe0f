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
from advisor.analysis.device.view import DeviceView, bounds, host_bounds, inside, outermost, spans, spent_ns
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
of_loaders.time("loader_blocked", lambda view: view.once(_waits_for_loaders), where=as_places(_blocking, "os_calls"))
of_loaders(
    "loader_file_share",
    lambda view: spans(view.once(_blocked).filter(cause="files")).part_of(view.once(_waits_for_loaders) & view.windows),
)
of_loaders("loader_blocked_calls", _blocking_calls)


of_devices(__name__)("system_wait_calls", lambda view: view.largest(longest_wait(view, view.windows)))


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
of_threads.share("cpu_starved_share", _idle, where=as_places(_absences, "off_cpu", name=pl.col("place")))
of_threads(
    "cpu_migrations_per_step",
    lambda view: int(inside(view.windows, view.once(_starved).filter(_MOVED)).sum()) / view.steps.height,
)
of_threads.saving("cpu_starved", _scheduled)

measure = of_devices(__name__)
measure("run_delay_share", delay_share)
measure("own_delay_share", lambda view: noted_share(view, "own_delay_ms"))
of_samples = measure.parts_of(cpu_waits, without=0)
of_samples("waiting_views", lambda sample: sample.waits, unit="count")
of_samples("longest_waiting_view_ms", lambda sample: sample.longest_ns / 1e6)


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
    calls = view.once(_ops_of_shapes if view.device is None else _launches)
    start, returned = bounds(calls)
    step = np.searchsorted(begin, start, side="right") - 1
    rows = [np.flatnonzero((step == number) & (start < end)) for number, end in enumerate(until)]
    names = [calls["name"].gather(of_step).to_list() for of_step in rows]
    if len(rows) < _FEWEST_STEPS or not names[0] or any(of_step != names[0] for of_step in names):
        return Missing("steps_launch_differently")
    end = returned[np.array(rows)]
    before = np.column_stack((np.maximum(begin, np.concatenate((begin[:1], end[:-1, -1]))), end[:, :-1]))
    causes = view.host_spans(*_OTHER_CAUSES)
    known = causes | (view.host_spans("input") if view.device is None else view.busy)
    took = end - before - known.within(before.ravel(), end.ravel()).reshape(end.shape)
    usual = np.rint(np.median(took, axis=0)).astype(np.int64)
    beyond = took - usual
    is_noted = view.device is None and view.process.get("run_delay_ms") is not None
    of, place = np.nonzero((beyond > np.maximum(usual, LAUNCH_GAP_NS)) & (not is_noted))
    columns = before[of, place], (end - before)[of, place], of, place, beyond[of, place] / 1e6 / len(rows)
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
)
of_lost_cores("core_lost_places", lambda losses: losses["place"].n_unique(), unit="count")
of_lost_cores("core_lost_steps", lambda losses: losses["step"].n_unique(), unit="count")
of_lost_cores("core_lost_top_part", _most_at_one_place)
