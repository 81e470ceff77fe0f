"""PyTorch's data loader: in the main process or in workers, and how many of these would keep up."""

import re
from math import ceil
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.cpu_waits import delayed_part
from advisor.analysis.device.host_work import training_ops
from advisor.analysis.device.iterators import (
    HAND_OVER_NS,
    MOST_WORKERS,
    lasting,
    lasting_of_workers,
    requests_at_once,
    waits,
)
from advisor.analysis.device.loading_stages import MOSTLY_ONCE, batch, cores, limit, loading_lines, once
from advisor.analysis.device.places import places, times_by_name
from advisor.analysis.device.recording_cost import unprofiled_ms
from advisor.analysis.device.view import DeviceView, host_bounds, longest_name, spans, started_in
from advisor.inputs.names.calls import FILE_READ, OWN_LOADING, PYTHON_CALL, TAKES_OVER, WORKERS_LOADING
from advisor.metrics.metric import of_devices
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import Intervals, begun
from advisor.model.profile import matches

_LOADS: Final = r"(?i)load|batch|data|input|next|fetch|feed|iter|read|record|sample|queue"
_TAKES: Final = rf"{TAKES_OVER}|(?:^\$|/)(?:threading|connection)\.py(?::\d+ |\(\d+\): )(?:wait|recv\w*|poll|wait_for)$"
_BUILT_IN: Final = r"^<built-in \w+ ([^ >]+).*>$"
_DELAYED: Final = 0.2  # own choice: the part of a recorded step from which its note calls the machine busy
_OF_GRAPH: Final = r":(?:IteratorGetNext|QueueDequeue)\w*$"  # where TensorFlow's graph asks for a batch
_LITTLE: Final = 0.1
_HALF: Final = 0.5
_MOST_LINES: Final = 3
_COMPUTES: Final = ("work", "delay")  # loading that takes a core for all of its time
_ROUNDING: Final = 1e-9  # what arithmetic makes of a whole number of workers

measure = of_devices(__name__)


def _input(view: DeviceView) -> pl.DataFrame:
    return view.host.filter(pl.col("kind") == "input")


def _loaded(view: DeviceView) -> Intervals:
    """When the main process loads: the DataLoader's ranges, or what stands in their place where there are none."""
    has_loader = view.host_like(f"{OWN_LOADING}|{WORKERS_LOADING}", "input").height
    return spans(view.once(lasting) if has_loader else _input(view)) & view.windows


def _wait_share(view: DeviceView, ranges: pl.DataFrame) -> float:
    return int(waits(view, ranges).sum()) / view.total_ns


def _workers_share(view: DeviceView) -> float:
    return _wait_share(view, view.once(lasting_of_workers))


def _at_once(view: DeviceView) -> int:
    return requests_at_once(view, view.once(lasting_of_workers if view.once(_workers_share) else lasting))


def _loading_ms(view: DeviceView) -> float:
    """What one process takes for a batch: where the step waits for workers, it waits for all of them.

    What workers wait for a core is not in it. In the process of the steps it is, as in the recorded step.
    """
    if not view.once(_workers_share):
        return view.per_step_ms(view.once(_loaded).total) / view.once(_at_once)
    of = view.once(batch)
    busy_part = of.busy_part * of.load_ms / of.fetch_ms if of and of.workers else 1.0
    return (view.process.get("loader_workers") or 0) * view.per_step_ms(view.total_ns) * busy_part


def _unknown_workers(view: DeviceView) -> Missing | None:
    """That nobody knows how many the workers are for which the step waits."""
    workers = view.once(_workers)
    return workers if isinstance(workers, Missing) and view.once(_workers_share) else None


def _rest_ms(view: DeviceView) -> float:
    return view.per_step_ms(view.total_ns - int(waits(view, _input(view)).sum()))


def _epoch_part(view: DeviceView) -> float:
    """The part of the wait for workers in steps that ask more often than most, beyond the others' wait.

    The host's steps: it asks ahead of the device, which may see two requests in one of its steps, and none in the next.
    """
    requests = view.once(lasting_of_workers)
    starts, ends = host_bounds(view.steps)
    number, waited = begun(requests["start_ns"], starts, ends), waits(view, requests, (starts, ends))
    starts_epoch = number > np.median(number)
    if not starts_epoch.any() or not waited.sum():
        return 0.0
    beyond = waited[starts_epoch] - np.median(waited[~starts_epoch])
    return float(beyond.clip(0).sum() / waited.sum())


def _calls(view: DeviceView) -> Entries:
    """What of the loading has the most time of its own, other than the loader's ranges.

    Where stacks were sampled, the lines with the most of it, and what they take of a batch.
    """
    parts, loading, of = view.once(loading_lines)[:_MOST_LINES], view.once(_loaded), view.once(batch)
    if parts and of:
        return [{"name": name, "ms": part * of.load_ms} for name, part in parts]
    if not parts:
        own = times_by_name(view, loading).drop_nulls("name").filter(pl.col("self_ns") > _LITTLE * loading.total)
        parts = [(name, own_ns / loading.total) for name, own_ns in own.head(1).rows()]
    return [{"name": name, "share": part} for name, part in parts]


def _line(view: DeviceView) -> str:
    place, part = next(iter(view.once(loading_lines)), ("", 0.0))
    return place if re.search(r":\d", place) and (part >= _HALF or view.once(once)[1] >= MOSTLY_ONCE) else ""


def _thread_part(view: DeviceView) -> float:
    loading = view.once(_loaded)
    takes = view.once(training_ops).filter(pl.col("kind").is_in(["python", "input"]), matches(_TAKES))
    return spans(takes).part_of(loading)


def _workers(view: DeviceView) -> int | Missing:
    noted = view.process.get("loader_workers")
    if view.once(lasting_of_workers).height:
        return int(noted) if noted else Missing("workers_unknown")
    return 0 if view.host_like(OWN_LOADING, "input").height else Missing("no_loader")


def _cores_ms(view: DeviceView) -> float:
    """What the cores together take for all that they run in a step; where it was not noted, as if nothing waited.

    So it is, too, where other programs delayed the job: loading that gets no core does not wait for a disk.
    """
    loaded_ms, available = view.once(_at_once) * view.once(_loading_ms), cores(view)
    noted_ms = view.process.get("cpu_ms") if delayed_part(view, "run_delay_ms") < _DELAYED else None
    if of := view.once(batch):
        step_ms, free_ms = view.per_step_ms(view.total_ns), unprofiled_ms(view)
        noted_ms = of.cpu_ms * of.per_step * (1.0 if isinstance(free_ms, Missing) else step_ms / free_ms)
    return float(noted_ms or loaded_ms + view.once(_rest_ms) * (available if view.device is None else 1)) / available


def _is_ready(view: DeviceView) -> bool:
    """Whether the workers' batches may be there when the loop asks for them, so that they are only handed over.

    A worker takes part in that: other programs keep it from a CPU for as long as the thread that asks.
    """
    requests = started_in(view.once(lasting_of_workers).sort("start_ns"), view.starts, view.ends)
    delayed_ns = float(view.process.get("run_delay_ms") or 0) * 1e6 * view.steps.height
    return requests.height > 0 and int(requests["dur_ns"].sum()) <= HAND_OVER_NS * requests.height + delayed_ns


def _processes(loading_ms: float, pace_ms: float) -> int | None:
    """Processes that together load a batch in `pace_ms`."""
    return ceil(loading_ms / pace_ms * (1 - _ROUNDING)) if pace_ms > 0 else None


def _needed(view: DeviceView) -> int | Missing | None:
    return view.once(_workers) if view.once(_is_ready) else _processes(view.once(_loading_ms), view.once(_rest_ms))


def _first_requests(view: DeviceView) -> int:
    """How fast others load shows from the second request on: in the first they start."""
    requests = view.host_like(f"{WORKERS_LOADING}|{_OF_GRAPH}", "input")
    return int(requests.height == 1 and not view.process.get("loader_workers"))


def _factor(view: DeviceView) -> float | Missing | None:
    if view.once(_first_requests):
        return Missing("first_request_only")
    waiting = view.once(_workers_share)
    return 1.0 if view.once(_is_ready) else 1 / (1 - waiting) if waiting < 1 else None


def _advised(view: DeviceView) -> int | Missing | None:
    advised, of = view.once(_needed), view.once(batch)
    if view.process.get("cpus") and advised and not view.once(_is_ready):
        part = of.alone_ms / max(of.load_ms, 1e-9) if of else 1.0  # no worker brings the cores that other programs keep
        advised = _processes(part * view.once(_loading_ms), max(view.once(_rest_ms), view.once(_cores_ms)))
        if of and limit(of) in _COMPUTES and advised is not None:
            advised = min(advised, cores(view))
    return min(MOST_WORKERS, advised) if isinstance(advised, int) else advised


def _pace_ms(view: DeviceView) -> float | Missing | None:
    advised = view.once(_advised)
    if not isinstance(advised, int):
        return advised
    return max(view.once(_loading_ms) / max(1, advised), view.once(_cores_ms))


def _most_input(view: DeviceView) -> str:
    """The name of the input ranges with the most time; empty where there are none."""
    return longest_name(view.used_host.filter(pl.col("kind") == "input").select("name", "dur_ns").collect())


def _file_input(view: DeviceView) -> str:
    most = view.once(_most_input)
    return re.sub(_BUILT_IN, r"\1 (built-in)", most) if re.search(FILE_READ, most) else ""


def _unnamed(view: DeviceView) -> str:
    most = view.once(_most_input)
    if not most or re.search(_LOADS, most) or re.search(FILE_READ, most):
        return ""
    frame = re.fullmatch(PYTHON_CALL, most)
    return f"{frame[2]} ({frame[1]})" if frame else most


of_loading = of_devices(__name__, unknown=_unknown_workers)
measure("unnamed_input", _unnamed, unit="text")
measure("file_input", _file_input, unit="text")
measure(
    "single_process_input_share",
    lambda view: _wait_share(view, view.once(lasting)),
    needs=("device_ops.start_ns",),
    where=places(lasting),
)
measure("worker_input_share", _workers_share, where=places(lasting_of_workers))
of_loading("loading_ms", _loading_ms)
measure("batches_at_once", lambda view: at_once if (at_once := view.once(_at_once)) > 1 else 0, unit="count")
measure("loader_workers", _workers, unit="count")
of_loading("workers_needed", _needed, unit="count")
measure("workers_factor", _factor, unit="ratio")
measure("first_requests_only", _first_requests, unit="count")
of_loading("workers_advised", _advised, unit="count")
of_loading("workers_pace_ms", _pace_ms)
measure("loading_calls", _calls)
measure("loading_line", _line, unit="text")
measure("loading_thread_part", _thread_part)
measure("cpus", lambda view: view.process.get("cpus") or Missing("machine_unknown"), unit="count")
measure("epoch_wait_part", _epoch_part)
