"""What a recording notes of machine and program: numbers alone, no name and no argument."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from .batches import Batches

_QUOTA = "/sys/fs/cgroup/cpu.max"


def cpus() -> int:
    """Cores for this process: of its affinity and its container's quota, shared by the job's processes on this host."""
    available = getattr(os, "sched_getaffinity", None)
    cores = len(available(0)) if available else os.cpu_count() or 1
    try:
        with open(_QUOTA, encoding="ascii") as stream:
            quota, period = stream.read().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # no quota, or `max`
    try:
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    except ValueError:
        processes = 1
    return max(1, cores // max(1, processes))


class LoaderWatch:
    """Notes the worker processes of the DataLoader that gave the last batch, and what the first batches hold.

    Attributes:
        workers: How many; None where no batch came from a DataLoader.
        batches: Of the main process, while nothing is profiled.
    """

    def __init__(self) -> None:
        self.workers: int | None = None
        self.batches = Batches()
        self.owner: Any = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        self.original: Any = getattr(self.owner, "__next__", None)

    def start(self) -> None:
        """Watch from here."""
        if self.original is None:
            return
        original, watch = self.original, self

        @functools.wraps(original)
        def watched(self: Any) -> Any:
            watch.workers = getattr(self, "_num_workers", None)
            batch, is_profiled = original(self), getattr(sys.modules["torch"].autograd, "_profiler_enabled", bool)
            watch.batches.add(batch, profiled=bool(is_profiled()))
            return batch

        self.owner.__next__ = watched

    def stop(self) -> None:
        """Leave the iterators as they were."""
        if self.original is not None:
            self.owner.__next__ = self.original
