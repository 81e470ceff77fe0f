"""What the other ranks of a job need to know of one: small tables that stay when a rank's own events are let go."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl

from advisor.analysis.device.cpu_waits import NO_SAMPLE, Workless, workless
from advisor.analysis.device.host_work import BACKWARD, running
from advisor.analysis.device.view import DeviceView, bounds, spans, window_of
from advisor.inputs.hardware import Gpu
from advisor.model.intervals import EMPTY, Intervals
from advisor.model.profile import END_NS

CALLS: Final = {  # texts are few and repeat with each step: a large job has millions of calls
    "on_host": pl.Boolean,
    "step": pl.Int32,  # the step in whose window it starts, null outside of all
    "stream": pl.Int64,
    "op": pl.Categorical,
    "group": pl.Categorical,
    "description": pl.Categorical,  # what the group is for, as its maker calls it
    "ranks": pl.Categorical,
    "group_size": pl.Int32,
    "sequence": pl.Int64,
    "bytes": pl.Int64,
    "peer": pl.Int32,  # global rank at the other end of a send or recv
    "dtype": pl.Categorical,
    "of_buffers": pl.Boolean,  # a broadcast that DistributedDataParallel's forward makes; null where not told
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}

_EVENT_NS: Final = 10_000  # an op that starts so soon after another device's ended had waited for it
_NEVER: Final = 1 << 62


@dataclass(frozen=True, eq=False)
class Rank:
    """One view of a job, reduced to what comparing ranks needs; times on its own file's clock.

    `steps` has a row per complete step: step, start_ns, dur_ns, host_start_ns, used, work_ns (a kernel that is no
    collective runs), ops_ns (without a device: an op runs and no collective), input_ns (the device idles while the
    loader is asked), kernels (number of them), first_ns (start of the first one, null where there is none), called_ns
    (start of the call that launched it, null where unknown).
    """

    worker: int
    device: int | None
    facts: Mapping[str, Any]  # the worker's row
    gpu: Gpu | None
    visible: int | None  # devices that the process sees; None where the recording does not tell
    steps: pl.DataFrame
    calls: pl.DataFrame  # a row per collective, see CALLS
    work: Intervals  # when other kernels run
    kernels: pl.DataFrame  # by name, grid and block in the used steps: number, median_ns, total_ns
    peer_waits: Intervals = EMPTY  # when its device waits for another of its process
    used: tuple[int, ...] = ()  # devices on which its process ran anything, copies too
    workless: Workless = NO_SAMPLE  # ops that show whether its threads had a CPU
    log: pl.DataFrame = field(default_factory=pl.DataFrame)  # its collectives, as `collective_log` of a profile
    trains: bool | None = None  # whether a backward pass ran in the recording; None where no framework op tells

    @property
    def world_size(self) -> int | None:
        """How many ranks the job has, as its launcher set it."""
        return self.facts.get("world_size")


def rank_of(view: DeviceView) -> Rank:
    """The view reduced to a Rank."""
    work = view.device_spans("kernel")
    ran = view.used_kernels
    kernels = ran.group_by("name", "grid", "block").agg(
        number=pl.len(), median_ns=pl.median("dur_ns"), total_ns=pl.sum("dur_ns")
    )
    # The view's collectives; those of the host where the worker used no device.
    if view.device is None:
        calls = view.host.filter(pl.col("kind") == "collective")
        op = pl.col("name").cast(pl.String).str.extract(r"^\w+:(\w+)")
        known = calls.select("start_ns", end_ns=END_NS, on_host=True, op=op, stream=pl.col("thread"))
    else:
        collectives = view.collectives.rename({"device_op": "id"}).with_columns(pl.col("op").cast(pl.String))
        ops = view.with_host(view.ops.filter(pl.col("kind") == "collective"), "launch", called_ns="start_ns")
        forward = spans(view.host_like(r"^DistributedDataParallel\.forward$"))
        inside = pl.Series(forward.covers(ops["called_ns"].fill_null(0).to_numpy()), dtype=pl.Boolean)
        in_forward = pl.when(pl.col("called_ns").is_not_null()).then(inside)
        ops = ops.select("id", "start_ns", "stream", end_ns=END_NS, in_forward=in_forward)
        known = ops.join(collectives, on="id", how="left", maintain_order="left").with_columns(
            on_host=False, of_buffers=(pl.col("op") == "broadcast") & pl.col("in_forward")
        )
    absent = [pl.lit(None).alias(name) for name in CALLS if name not in known.columns]
    known = known.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in CALLS.items())
    window = window_of(known, *bounds(view.complete))
    return Rank(
        worker=view.worker,
        device=view.device,
        facts=view.process,
        gpu=view.gpu,
        visible=view.visible.height or None,
        used=view.used,
        steps=_steps(view, work),
        calls=known.with_columns(step=view.complete["step"].gather(window)).sort("start_ns", maintain_order=True),
        work=work,
        kernels=kernels.with_columns(pl.col("name").cast(pl.String)).sort("name", "grid", "block"),
        peer_waits=_peer_waits(view),
        workless=view.once(workless),
        log=view.collective_log.with_columns(pl.col("op").cast(pl.String)),
        trains=trains(view),
    )


def _steps(view: DeviceView, work: Intervals) -> pl.DataFrame:
    steps = view.complete
    start, end = bounds(steps)
    # ops of a worker without a device are its work
    on_host = view.once(running) - view.host_spans("collective") if view.device is None else EMPTY
    # Per step, how many kernels start in it, when the first one does, and when the host called for that one.
    kernels = view.ops.filter(pl.col("kind") == "kernel").select("start_ns", "launch").sort("start_ns", "launch")
    low, high = (kernels["start_ns"].search_sorted(pl.Series(side)) for side in (start, end))
    first = kernels[pl.select(pl.when(high > low).then(low)).to_series()]
    first = view.with_host(first, "launch", called_ns="start_ns")
    return steps.select("step", "start_ns", "dur_ns", "host_start_ns").with_columns(
        used=pl.col("step").is_in(view.steps["step"].implode()),
        work_ns=pl.Series(work.within(start, end)),
        ops_ns=pl.Series(on_host.within(start, end)),
        input_ns=pl.Series((view.host_spans("input") - view.busy).within(start, end)),
        kernels=(high - low).cast(pl.Int64),
        first_ns=first["start_ns"],
        called_ns=first["called_ns"],
    )


def _peer_waits(view: DeviceView) -> Intervals:
    """When the device idles though its next op is launched, which starts just after another device's op has ended.

    Traces seldom say which stream waits for which; see `whatif.dependencies`, which tells it so of one device's.
    """
    beside = view.process_ops.filter(pl.col("device").ne_missing(pl.lit(view.device, pl.Int32)))
    if beside.is_empty() or not view.busy.total:
        return EMPTY
    idle, resumes = view.busy.ends[:-1], view.busy.starts[1:]
    ended = np.sort(beside.select(END_NS).to_series().to_numpy())
    done = np.concatenate(([0], ended))[np.searchsorted(ended, resumes, side="right")]
    ops = view.with_host(view.ops.sort("start_ns"), "launch", called_ns="start_ns")
    at = np.searchsorted(ops["start_ns"].to_numpy(), resumes)
    called = ops["called_ns"].fill_null(_NEVER).to_numpy()[at]
    since = np.maximum(idle, called)
    waited = (since < done - _EVENT_NS) & (resumes - done <= _EVENT_NS)
    return Intervals.of(since[waited], resumes[waited])


def trains(view: DeviceView) -> bool | None:
    """Whether a backward pass ran; None where no framework op tells."""
    if not (view.host["kind"] == "op").any():
        return None
    return not view.host_like(BACKWARD, "op").is_empty()
