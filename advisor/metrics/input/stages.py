"""The batches of a loader: their stages, what holds them up, and iterators that are short or begin anew."""

from functools import partial
from typing import Final

import numpy as np
import polars as pl

from advisor.analysis.device.iterators import (
    batches_of_epochs,
    lasting,
    requests_at_once,
    short_requests,
    waits,
)
from advisor.analysis.device.loading_stages import Batch, batch, cores, largest, limit, once, own_part, parts
from advisor.analysis.device.places import as_places, places
from advisor.analysis.device.recording_cost import unprofiled_ms
from advisor.analysis.device.restarts import Restarts, restarts
from advisor.analysis.device.view import DeviceView, bounds, spans, spent_ns, started_in
from advisor.inputs.names.calls import WORKERS_LOADING
from advisor.inputs.names.stacks import TRANSPORT, stage_of
from advisor.metrics.metric import of_devices, tabulates
from advisor.model.clause import Entries, Missing
from advisor.model.intervals import Intervals, Ints
from advisor.vocabulary.kinds import DRIVER_CALLS
from advisor.vocabulary.limits import SLOW_CALL_NS
from advisor.whatif.change import Change, without

_LITTLE: Final = 0.05
_HALF: Final = 0.5
_MOST_NAMES: Final = 3
_SLOW: Final = 4  # own choice: times the mean sample
_SLOW_MS: Final = 50.0  # several stacks: one alone stands for 10 ms or more
_HANDED_MS: Final = 1.0
_PROCESSES: Final = (0, 1, 2, 4, 8, 16)
_SOURCE: Final = "stacks and counts of `advisor record`; DS-Analyzer, arXiv 2007.06775: loading of each stage, measured"

measure = of_devices(__name__, source=_SOURCE)
of_batches = measure.parts_of(batch, without="")  # none was counted
of_lists = measure.parts_of(batch, without=[])
of_gains = measure.parts_of(batch, without=0.0)


def _stage_fix(view: DeviceView) -> str:
    of, (advice, part) = view.once(batch), view.once(once)
    if of and limit(of) != TRANSPORT and part >= _HALF:
        return advice
    return stage.fix if of and (stage := largest(of)) else ""


def _stages(of: Batch) -> Entries:
    every = sorted(parts(of), key=lambda part: -part[1])
    least = _LITTLE * sum(length for _, length in every)
    details = {"transform": ", ".join([*of.names][:_MOST_NAMES]) or None}
    stages = ((stage_of(name).words, length, details.get(name)) for name, length in every if length >= least)
    return [{"name": words, "ms": length, "what": what} for words, length, what in stages]


def _read_alone(of: Batch) -> Entries:
    if not of.cold_ms or of.stages.get("read", 0.0) < _LITTLE * of.load_ms:
        return []
    alone = {"from the disk": of.cold_ms, "from memory": of.warm_ms}
    return [{"name": name, "count": of.files, "bytes": of.file_bytes, "ms": ms} for name, ms in alone.items()]


def _slow_samples(of: Batch) -> Entries:
    least_ms = max(_SLOW_MS, _SLOW * of.alone_ms / max(1, of.samples))
    return [{"name": str(index), "ms": length} for index, length in of.slow if length >= least_ms]


def period_ms(of: Batch, processes: int, floor_ms: float, without_ms: float = 0.0) -> tuple[float, str]:
    """From one batch to the next with so many processes, and what holds that: loading, cores, transport, step.

    `without_ms` is what loading takes less. Processes load beside the step; one of none takes turns with it. `floor_ms`
    is what the cores together take for all that they run for a batch.
    """
    load_ms = max(0.0, of.load_ms - without_ms)
    if processes == 0:
        return of.rest_ms + of.pin_ms + load_ms, "loading" if load_ms > of.rest_ms else "step"
    receive_ms = of.receive_ms if of.workers else min(_HANDED_MS, of.alone_ms)
    ends = {
        "loading": (load_ms + of.send_ms) / processes,
        "cores": max(0.0, floor_ms - without_ms * of.run_ms / max(of.alone_ms, 1e-9)),
        "transport": of.rest_ms + receive_ms if receive_ms > of.rest_ms else 0.0,
        "step": of.rest_ms + receive_ms,
    }
    last = max(ends, key=lambda name: ends[name])
    return ends[last], last


def _stage_gain_ms(view: DeviceView) -> float:
    of = view.once(batch)
    if of is None or not of.stages or largest(of) == stage_of(TRANSPORT):
        return 0.0
    floor_ms, longest_ms = of.cpu_ms / cores(view), max(of.stages.values())
    now_ms = of.period_ms if of.workers else period_ms(of, 0, floor_ms)[0]  # a busy machine delays ready batches too
    shorter_ms = now_ms - period_ms(of, of.workers, floor_ms, longest_ms)[0]
    free_ms = unprofiled_ms(view)
    step_ms = view.per_step_ms(view.total_ns) if isinstance(free_ms, Missing) else free_ms
    return max(0.0, min(shorter_ms * of.per_step, step_ms))


@tabulates("loading_pace")
def _pace(view: DeviceView) -> pl.DataFrame:
    """What a batch takes now, with other numbers of processes, without its longest stages, or ready at once."""
    of, schema = view.once(batch), {"processes": pl.Int64, "without": pl.String, "is_now": pl.Boolean}
    schema |= {"period_ms": pl.Float64, "limit": pl.String}
    if of is None:
        return pl.DataFrame(schema=schema)
    floor_ms = of.cpu_ms / cores(view)
    rows: list[tuple[int, str | None, bool, float, str | None]] = [(of.workers, None, True, of.period_ms, limit(of))]
    rows += [(n, None, False, *period_ms(of, n, floor_ms)) for n in _PROCESSES if n != of.workers]
    rows.sort(key=lambda row: row[0])
    long = [(name, length) for name, length in of.stages.items() if length >= _LITTLE * of.load_ms]
    rows += [(of.workers, name, False, *period_ms(of, of.workers, floor_ms, length)) for name, length in long]
    rows.append((of.workers, "all", False, of.rest_ms, "step"))
    return pl.DataFrame(rows, schema=schema, orient="row")


@tabulates("loading_stage")
def _journey(view: DeviceView) -> pl.DataFrame:
    """Each stage of a batch in the order in which it is passed."""
    of = view.once(batch)
    rows = [(name, stage_of(name).words, length) for name, length in parts(of)] if of else []
    return pl.DataFrame(rows, schema={"stage": pl.String, "words": pl.String, "ms": pl.Float64}, orient="row")


of_lists("loading_stages", _stages, unit="names").says(
    "What one batch takes, by stage, the longest first; empty where no batch was counted.",
    "mean time of the loader's fetch in a process that loads, without its waits for a core but those of a worker "
    "because of other programs, x each stage's part of the samples in it, by the calls in their stacks and "
    "`inputs/names/loading_stages.yaml`; and what processes run to hand it over",
)
of_batches("loading_limit", limit, unit="text").says(
    "What holds up the loading: ready (nothing), transport, storage, sleep, lock, delay (no core), work; else empty.",
    "ready: workers keep a step waiting for under 5 %, or loading and sending / workers and receiving each take under "
    "a quarter of the step without the wait. transport: what one process receives, or what workers send / workers, is "
    "above fetch / workers and a quarter of the wait. lock: the thread sleeps for a quarter of the request "
    "or more in no stage that waits, and other threads run meanwhile. storage, sleep: it sleeps for over half of fetch "
    "without waits for a core, half of that in a stage that reads, or in a sleep, or pages of a disk are waited for. "
    "delay: it waits for a core for over a quarter. Else work",
    "own choice of the parts; time of the thread on a core (`CLOCK_THREAD_CPUTIME_ID`), waits for a core "
    "(`/proc/thread-self/schedstat`)",
)
of_gains("loading_delay_part", lambda of: of.delay_ms / of.fetch_ms if of.fetch_ms else 0.0).says(
    "Part of the loading that waits for a core; 0 where it is unknown.", "waits for a core in fetch / fetch"
)
measure("loading_fix", _stage_fix, unit="text").says(
    "How to shorten the longest stage, or the handing over where that holds up the loading; empty where unknown.",
    "the advice for the stage; from a loading_once_part of half on, for that",
)
measure("loading_once_part", lambda view: view.once(once)[1]).says(
    "Part of the loading that opens a shared file, looks rows up, or prepares text for each sample anew, that a "
    "`collate_fn` of the program takes, or that opens small files.",
    "samples with calls that have such an advice in `inputs/names/host_calls.yaml`, of the largest kind / all in which "
    "a batch is made; of small_files, the stage that reads, without sleep and what they take read alone from memory / "
    "the loading",
)
of_gains(
    "alone_gain_ms", lambda of: max(0.0, of.period_ms - period_ms(of, 0, 0.0)[0]) * of.per_step if of.workers else 0.0
).says(
    "What a step gets shorter if the process of the steps loads its batches itself; 0 where it does, or it is unknown.",
    "(time from one batch to the next - time of the step without its request - fetch without waits for a core) x "
    "batches of a step",
)
measure("stage_gain_ms", _stage_gain_ms).says(
    "What a step gets shorter without the longest stage of loading, with as many processes as now; 0 where that is "
    "unknown.",
    "(time from one batch to the next by the measured stages - the same without that stage) x batches of a step, as in "
    "the table loading_pace; at most the step",
)
of_gains("small_files", lambda of: of.files if of.has_small_files else 0.0).says(
    "Files that are opened for a batch, where these are under 1 MiB and one for each second sample or more; else 0.",
    "files that Python opens to read / batches",
    "a disk reads 1 MiB in the time of one seek",
)
of_gains("small_file_bytes", lambda of: int(of.bytes / of.files) if of.has_small_files else 0).says(
    "The mean size of the small files that are opened for a batch; 0 without any.",
    "bytes read (`/proc/self/io`) / files",
)
of_lists("read_alone", _read_alone, unit="names").says(
    "What the files of a batch take when nothing else reads them, from the disk and from memory; empty where reading "
    "is under 5 % of the loading.",
    "files of a batch x time / file of up to 64 that were opened, which `advisor record` reads again behind the steps: "
    "once after `posix_fadvise(DONTNEED)`, and once more",
    "storage that gives less in the job than alone is asked by too few at once; memory gives what a cache would",
)
of_lists("slow_samples", _slow_samples, unit="names").says(
    "The samples that take longest, by their index; empty where none takes 50 ms and four times as long as the mean.",
    "time that the stacks stand for which were sampled one after another while the index was loaded: up to five",
)


_SEVERAL: Final = 2
_ITERATORS: Final = (
    "an iterator begins with a request right after the seed that it draws (aten::empty, random_, item); it ends where "
    "a request takes, or runs, under a tenth of one before, or where the next one begins; with worker processes also "
    "requests, each with a model's ops and no backward pass after it, up to one in which nothing is loaded, and after "
    "which no model runs before the next; short: two or more of fewer "
    "than ten batches, or than four if a backward pass runs before its last request"
)

of_iterators = of_devices(__name__, source=_ITERATORS)


def _used(view: DeviceView) -> pl.DataFrame:
    """The short iterators that the used steps ask."""
    return _iterators(started_in(view.once(short_requests), view.starts, view.ends))


def _iterators(requests: pl.DataFrame) -> pl.DataFrame:
    return requests.group_by("thread", "iterator").agg(
        pl.col("is_end", "trains", "of_workers").any(), batches=(~pl.col("is_end")).sum()
    )


def _part(view: DeviceView, which: str) -> float:
    return view.once(_used)[which].mean() or 0.0  # type: ignore[return-value]


def _first_batch_part(view: DeviceView) -> float:
    epochs = batches_of_epochs(view).to_numpy()
    return 1 / max(1.0, float(np.median(epochs))) if len(epochs) >= _SEVERAL else 0.0


def _loaded(view: DeviceView, requests: pl.DataFrame) -> Change:
    """With the batches of these requests there in time."""
    return without(host=spans(requests), bound_ns=int(waits(view, requests).sum()))


of_iterators(
    "short_iterators",
    lambda view: view.once(_used).height,
    where=places(lambda view: view.host.join(view.once(short_requests), on="id", how="semi", maintain_order="left")),
    unit="count",
).says("Iterators of few batches that the steps make of their data loaders.", "those that begin in a used step")
of_iterators(
    "short_iterator_batches",
    lambda view: _iterators(view.once(short_requests)).select(pl.median("batches")).item() or 0.0,
).says(
    "Batches that a short iterator of a data loader brings.",
    "median of the requests to each, without the one at its end; 0 without any",
)
of_iterators(
    "short_iterator_share", lambda view: int(waits(view, view.once(short_requests)).sum()) / view.total_ns
).says(
    "Part of the step that loads batches of short iterators, or waits for them, and nothing else goes on.",
    "time of requests to them, and if worker processes load, from the seed on that is drawn before these start up "
    "to the next op, outside device work and calls / step time",
)
of_iterators.gain("short_iterator", lambda view: _loaded(view, view.once(short_requests))).says(
    "Step time saved if batches of short iterators were in memory."
)
of_iterators.gain("single_process", lambda view: _loaded(view, view.once(lasting))).says(
    "Step time saved if the batches that the main process loads for other iterators were there in time."
)
of_iterators("first_batch_part", _first_batch_part).says(
    "Part of the batches that are the first of an iterator, which no process loads ahead.",
    "1 / median of the batches of iterators that are not short, and begin and end in the recording; 0 "
    "with fewer than two",
)
for _name, _column, _meaning, _which in (
    ("iterators_drained", "is_end", "are asked for batches until they have no more", "a request that brings no batch"),
    ("iterators_of_workers", "of_workers", "get their batches from worker processes", "requests to processes"),
    ("iterators_train", "trains", "are epochs of the training", "a backward pass before their last request"),
):
    of_iterators(_name, partial(_part, which=_column), unit="share").says(
        f"How many of the short iterators {_meaning}.", f"those with {_which} / short iterators; 0 without any"
    )


_TAKES: Final = r"^aten::select$"
_COLLATES: Final = r"^aten::(?:stack|cat)$"
_MOSTLY: Final = 0.5  # own choice: of the loading
_FEW_SAMPLES: Final = 8  # own choice: labels apart from their samples are fewer

of_requests = of_devices(__name__)


def _requests(view: DeviceView) -> pl.DataFrame:
    return started_in(view.once(lasting).sort("start_ns"), view.starts, view.ends)


def _collating(view: DeviceView) -> float:
    requests = view.once(_requests)
    copies = spent_ns(requests, spans(view.host_like(_COLLATES, "op"))).to_numpy()
    return float(np.median(copies / np.maximum(1, requests["dur_ns"].to_numpy()))) if requests.height else 0.0


def _indexed(view: DeviceView) -> float:
    if view.once(own_part) >= _MOSTLY:
        return 0.0
    requests = view.once(_requests)
    takes = started_in(view.used_like(_TAKES, "op").drop("window").sort("start_ns"), *bounds(requests))
    samples = takes.height / max(1, requests.height)
    loading_ns = float(requests.select(pl.median("dur_ns").fill_null(0)).item())
    is_quick = samples >= _FEW_SAMPLES and (1 - view.once(_collating)) * loading_ns <= samples * SLOW_CALL_NS
    return samples if is_quick else 0.0


of_requests(
    "batches_per_step", lambda v: v.once(_requests).height / v.steps.height / requests_at_once(v, v.once(_requests))
).says(
    "Batches that the main process loads in a step of one loader.",
    "requests to its data loaders, without those to short iterators / steps / max(1, batches_at_once)",
)
of_requests("indexed_samples", _indexed).says(
    "Samples, or tensors of them, that the loader takes one by one from tensors in memory for a batch.",
    "aten::select in the loader's ranges / requests, if there are 8 or more, and loading without copies takes up to "
    "{slow_call} for each, and stacks of `advisor record` show no lines of the program for half of it; else 0",
    "no file is read, nor anything decoded, in {slow_call}: TensorDataset, for example",
)
of_requests("collating_part", _collating).says(
    "Part of the loading in which the main process copies samples into a batch.",
    "median over the loader's requests of the time in aten::stack and aten::cat; 0 without any",
)


_ANEW: Final = (
    "the request that ends an epoch takes over {worker_join}, because the processes end in it, the iterator of the "
    "next one draws a seed for its processes (aten::random_, in no other op), and a request to processes follows "
    "without a backward pass in between"
)

of_restarts = of_devices(__name__, source=_ANEW)


def _restarts(view: DeviceView) -> Restarts:
    return restarts(view.host)


def _begins(view: DeviceView) -> Ints:
    """The used steps, by row, in which the loop waits for the first batch of new processes."""
    return np.flatnonzero(view.once(_restarts).waiting.within(view.starts, view.ends))


def _apart(view: DeviceView) -> int:
    numbers = view.steps["step"].to_numpy()[view.once(_begins)]
    return int(np.median(np.diff(numbers))) if len(numbers) > 1 else 0


def _idle_ns(view: DeviceView, when: Intervals) -> Ints:
    """Of each used step the time then, in ns, outside device work and calls."""
    return (when - (view.busy | view.host_spans("collective", *DRIVER_CALLS))).within(view.starts, view.ends)


def _anew_ns(view: DeviceView) -> float:
    again = view.once(_restarts)
    return float(_idle_ns(view, again.ending | again.starting).sum())


def _extra_wait_ns(view: DeviceView) -> float:
    """How much longer than in the other steps the loop waits for the first batches."""
    begins = view.once(_begins)
    usual = _idle_ns(view, spans(view.host_like(WORKERS_LOADING, "input")))
    others = np.delete(usual, begins)
    typical = int(np.median(others)) if len(others) else 0
    return float((_idle_ns(view, view.once(_restarts).waiting)[begins] - typical).clip(0).sum())


def _outlier_part(view: DeviceView) -> float:
    again = view.once(_restarts)
    starts, ends = bounds(view.outliers)
    beyond = (ends - starts - np.median(view.ends - view.starts)).clip(0).sum()
    anew = (again.ending | again.starting | again.waiting).within(starts, ends).sum()
    return float(min(anew / beyond, 1)) if beyond else 0.0


def _start_ns(view: DeviceView) -> int:
    return (view.once(_restarts).first - view.busy).total


of_starts = of_devices(__name__, source=_ANEW, needs_steps=False)
of_starts("worker_start_ms", lambda view: _start_ns(view) / 1e6).says(
    "Time before the first batch in which the data loader starts its worker processes.",
    "from the first seed that the first iterator draws to its first request, outside device work; 0 where the "
    "processes were there before",
)
of_starts("worker_start_share", lambda view: _start_ns(view) / max(1, view.recorded_ns)).says(
    "Part of the recording in which the data loader starts its worker processes.", "worker_start_ms / the recording"
)
of_restarts(
    "worker_restarts",
    lambda view: len(view.once(_begins)),
    where=as_places(lambda view: view.steps[view.once(_begins)], "steps"),
    unit="count",
).says(
    "Steps in which an epoch begins with new worker processes of the data loader.",
    "used steps in which the loop waits for the first batch of such processes",
)
of_restarts("epoch_steps", _apart, unit="count").says(
    "Steps from one epoch that begins with new worker processes to the next; 0 where fewer than two do.",
    "median of the distances",
)
of_restarts("worker_restart_ms", lambda view: view.per_step_ms(_anew_ns(view))).says(
    "Time per step in which the loader's processes end and the next epoch's are started.",
    "the request that ends an epoch, and from the first seed that the next iterator draws to its first request, "
    "outside device work and calls, in the used steps / used steps",
)
of_restarts("first_batch_wait_ms", lambda view: view.per_step_ms(_extra_wait_ns(view))).says(
    "What waiting for the first batch of new worker processes adds to the mean step.",
    "sum over the first requests of max(0, wait outside device work and calls - median of the other steps' waits) / "
    "used steps",
)
of_restarts("outlier_restart_part", _outlier_part).says(
    "Part of what the long steps take longer that new worker processes of the data loader take.",
    "in the steps left out: worker processes end, start or are waited for at first / (steps - median of the used "
    "steps), 1 at most; 0 without any",
)
