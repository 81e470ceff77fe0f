"""Exports of the autograd profiler, which PyTorch had before Kineto: events without a category, told by their row.

`torch.autograd.profiler.profile(use_kineto=False)` still writes the rows of the host. Versions before 1.9 also wrote
what an op took on the GPU, between two CUDA events around it, under the op's name. Layout:
torch/autograd/profiler.py, `EventList.export_chrome_trace`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from advisor.inputs.readers.kineto.fields import Args, Event
from advisor.model.intervals import nearest, nest

_HOST: Final = "CPU functions"
_DEVICE: Final = "CUDA functions"
ARROWS: Final = "cpu_to_cuda"  # the category of its arrows, the only one
_THREADS: Final = 1 << 10  # that an op's number tells apart
_OP: Final = r"::|Backward\d*$|^(?:Optimizer\.|enumerate\()"  # other names are those of the program's own ranges
_PREFIX: Final = "aten::"  # since PyTorch 1.7
_LATEST_US: Final = 2.0**42  # in ns and with a thread it stays below 2**63


def wrote(event: Event) -> bool:
    """Whether an event is one of the profiler's rows."""
    return event.pid in {_HOST, _DEVICE}


def rows(events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """Ops and ranges on the host, and ops on the GPU, in order; an op and its time there have one external id."""
    host, device, number = list[Event](), list[Event](), None
    for event in events:
        if event.ph != "X" or not wrote(event):
            continue
        ts, thread, is_host = event.ts, event.tid, event.pid == _HOST
        if is_host:
            is_placed = ts is not None and isinstance(thread, int) and 0 <= ts < _LATEST_US
            number = int(1000 * ts) * _THREADS + thread % _THREADS if is_placed else None  # type: ignore[operator]
        row = None if is_host else thread  # of each device one
        event = Event(event.ph, None, event.name, row, thread, ts, event.dur, Args(external_id=number))  # noqa: PLW2901
        (host if is_host else device).append(event)
    return host, device


def calls(arrows: Sequence[Event]) -> list[Event]:
    """The launches that the arrows from ops to the GPU stand for, where it wrote nothing of the GPU itself."""
    return [Event("X", None, "cudaLaunchKernel", None, e.tid, e.ts, 0.0) for e in arrows if e.ph == "s"]


def with_ranges(host: pl.DataFrame) -> pl.DataFrame:
    """With the kind of the program's own ranges, which have no inputs, in a file of early Kineto without categories."""
    names = host["name"].cast(pl.String)
    if not names.str.starts_with(_PREFIX).any() or (host["kind"] == "annotation").any():
        return host
    is_range = (pl.col("kind") == "op") & pl.col("shapes").is_null() & ~names.str.contains(_OP)
    kind = pl.when(is_range).then(pl.lit("annotation", host.schema["kind"])).otherwise("kind")
    return host.with_columns(kind=kind)


def own_time(device: pl.DataFrame) -> pl.DataFrame:
    """The outermost ops on the GPU of which half or more is their own time: what an op calls is timed in it again."""
    start, dur = device["start_ns"].to_numpy(), device["dur_ns"].to_numpy()
    around = nest(device["device"].fill_null(-1).to_numpy(), start, start + dur)
    own = 2 * np.bincount(around + 1, weights=dur, minlength=len(dur) + 1)[1:] <= dur
    outer = np.append(nearest(own, around), -1)[around]
    return device.filter(pl.Series(own & (outer < 0), dtype=pl.Boolean))
