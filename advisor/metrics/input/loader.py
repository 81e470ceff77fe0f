"""PyTorch's data loader: in the main process or in workers, and how many of these would keep up."""

import re
from math import ceil
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.cpu_waits import delay_share, delayed_part
from advisor.analysis.device.host_work import training_ops
from advisor.analysis.device.iterators import (
    HAND_OVER_NS,
    MOST_WORKERS,
    lasting,
    lasting_of_workers,
    requests_at_once,
    slowed_part,
    waits,
)
from advisor.analysis.device.loading_stages import batch, cores, loading_line, loading_lines, pace_limit
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


def _slowed_ms(view: DeviceView) -> float:
    others_ms = delay_share(view) * view.per_step_ms(view.total_ns)
    return max(0.0, view.once(slowed_part) * view.once(_rest_ms) - others_ms)


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
        if view.once(pace_limit) in _COMPUTES and advised is not None:
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
measure("unnamed_input", _unnamed, unit="text").says(
    "What the steps wait for as for input, where nothing in its name says that it loads anything; else empty.",
    "name of the input ranges with the most time in the used steps, if it holds none of "
    "load, batch, data, dataset, input, next, fetch, feed, iter, read, record, sample, queue",
    "JAX has no loader: the reader tells it by its place before the first dispatch of a step",
)
measure("file_input", _file_input, unit="text").says(
    "The function that reads files for the longest in the steps' own thread, where no data loader was recorded; else "
    "empty.",
    "name of the input ranges with the most time in the used steps, if it is such a function: numpy, PIL, torch.load, "
    "h5py, pandas, pyarrow, gzip, zipfile, json.load, torchvision.io, soundfile, cv2",
    "PyTorch's profiler with_stack=True; where each step reads, outside of modules and ops",
)
measure(
    "single_process_input_share",
    lambda view: _wait_share(view, view.once(lasting)),
    needs=("device_ops.start_ns",),
    where=places(lasting),
).says(
    "Part of the step in which the main process itself loads the next batch and nothing else goes on; batches of short "
    "iterators are in short_iterator_share.",
    "time of enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ outside device work and calls / step time",
    "the range that PyTorch's DataLoader records when num_workers is 0; without ranges its function fetch",
)
measure("worker_input_share", _workers_share, where=places(lasting_of_workers)).says(
    "Part of the step that waits for the DataLoader's worker processes and nothing else goes on; batches of short "
    "iterators are in short_iterator_share.",
    "time of enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__ outside device work and calls / step time",
    "the range that PyTorch's DataLoader records when num_workers is above 0",
)
of_loading("loading_ms", _loading_ms).says(
    "Time that one process takes to load what a step takes of one loader.",
    "union of enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ without short iterators, or of what loads "
    "where there is no DataLoader, in the used steps / used steps / max(1, batches_at_once); where the step waits for "
    "workers, loader_workers x step time x the part of it in which they load and wait for no core that the job itself "
    "has: 1 where `advisor record` did not count it",
    "n workers that are waited for deliver a batch per step: each takes n steps for one",
)
measure("batches_at_once", lambda view: at_once if (at_once := view.once(_at_once)) > 1 else 0, unit="count").says(
    "Batches that a step asks for before a model runs on any of them; 0 where it asks for one.",
    "median number of requests in a step without ops of layers or of a backward pass between them",
    "zip(loader_a, loader_b) asks for two",
)
measure("slowed_ops_ms", _slowed_ms).says(
    "What the rest of a step takes longer beside its loading: as its ops do, than the fastest of their kind.",
    "(step time - wait for input) x the part of ops beyond the fastest - waits for a core because of other "
    "programs, which stay. That is, of outermost ops outside of requests, "
    "those of one name and one shape together, called five times or more: the time of all less that of the fastest for "
    "each / the time of all; 0 with a device, without input, and where PyTorch's ops have no shapes",
    "own measurement, loops on two cores: of four, ops took 12-117 ms a step, the rest by this 4.4-14.9, and 3.1-11.5 "
    "with one batch made once",
)
measure("loader_workers", _workers, unit="count").says(
    "Worker processes that the DataLoader has.",
    "0 where the main process loads; else as advisor record notes it",
    "torch.utils.data.DataLoader.num_workers",
)
of_loading("workers_needed", _needed, unit="count").says(
    "Loader processes that keep up with the rest of the step.",
    "loading_ms / (step time - wait for the loader), rounded up; loader_workers where batches may be ready: "
    "the loop waits for one for 2 ms or less on average, and for as long as other programs keep it from a CPU",
    "a worker loads one batch in loading_ms; the loop asks for one as often as the rest of the step takes. 2 ms: own "
    "measurement; a ready batch of 24 kB took 1.1 to 1.5 ms to take over under the profiler (PyTorch 2.13, two cores)",
)
measure("batches_of_fit", lambda view: int(view.process.get("marker") == "fit"), unit="count").says(
    "1 where Keras' `fit` takes the batches; else 0.",
    "what ends a step, as advisor record notes it",
    "keras.callbacks.CallbackList.on_train_batch_end",
)
measure("workers_factor", _factor, unit="ratio").says(
    "How many times as many worker processes keep up with the rest of the step.",
    "step time / (step time - worker_input_share * step time); 1 where the batches are ready, as in workers_needed; "
    "unknown where first_requests_only",
    "the range that PyTorch's DataLoader records when num_workers is above 0",
)
measure("first_requests_only", _first_requests, unit="count").says(
    "1 where the one request for a batch of worker processes, or of a graph of TensorFlow, that was recorded may hold "
    "the start of what loads; else 0.",
    "whether one enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__, IteratorGetNext or QueueDequeue was "
    "recorded, and not by advisor record",
    "what loads starts before the first batch; advisor record starts after a warm-up",
)
of_loading("workers_advised", _advised, unit="count").says(
    "Loader processes that the advice names.",
    "workers_needed, but at most 16; where advisor record notes the cores, no more than load a batch as fast as these "
    "can run all work of a step: loading_ms, without what other programs take of it, / (that work / cpus), rounded up, "
    "with the work as in workers_pace_ms; and of loading whose limit is work or delay, no more than cpus",
    "16: own choice, a common number of cores for each GPU of a node; loading that waits for a disk takes no core",
)
of_loading("workers_pace_ms", _pace_ms).says(
    "Time in which the advised processes load the batches of a step, where they share the cores with the step's rest.",
    "the larger of loading_ms / workers_advised and the work of a step / cpus. The work is what all threads and child "
    "processes of the job ran in a step, as advisor record counts beside its samples, longer by what recording makes "
    "the step longer; else, in a recorded step, if other programs delayed it by less than a fifth; else "
    "max(1, batches_at_once) x loading_ms + step time - wait for the loader, the latter on all cores without a device. "
    "Where the cores are not known: four, without a device two",
    "own model: no core idles; without the noted work, both compute all the time, and without a device the "
    "framework's threads take all cores",
)
measure("loading_calls", _calls, unprofiled=True).says(
    "What takes most of the loading, as far as it was recorded; empty where nothing was.",
    "where stacks were sampled, the lines with the most samples in which a batch is made, of the workers if there are "
    "any, each with its part of a batch's time; else of the main process the range with the most time outside those "
    "within it in the loader's ranges, with its part of the loading",
    "stacks of `advisor record`, Python's calls with with_stack=True, else framework ops",
)
measure("loading_line", loading_line, unit="text").says(
    "The line of the program in which most of the loading passes; empty where none is known.",
    "the first of loading_calls, if it has half of the loading, or from a loading_once_part of a third on; else the "
    "line with most samples that wait for what another thread or a pool's process makes",
)
measure("loading_thread_part", _thread_part).says(
    "How much of the loading is a wait for another thread or process, which loads already.",
    "time of calls in the loader's ranges that take from a queue, a future or a pipe of Python's library / time of the "
    "loader's ranges in the used steps; 0 where Python's calls were not recorded",
    "queue.Queue.get, threading.Condition.wait, concurrent.futures.Future.result, multiprocessing.connection",
)
measure("cpus", lambda view: view.process.get("cpus") or Missing("machine_unknown"), unit="count").says(
    "Cores that the process may use.",
    "cores of its affinity and of its container's quota / processes of the job on this host, as advisor record notes",
)
measure("epoch_wait_part", _epoch_part).says(
    "Part of the wait for worker processes that passes where an epoch ends and the next one begins.",
    "steps of the host with more requests for a batch than most: their wait beyond the others' median / all wait for "
    "workers",
    "the last request of an epoch ends it, and the next one starts the workers anew without persistent_workers=True",
)
