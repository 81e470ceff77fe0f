"""The stacks that a recording samples: of the process whose steps are timed, and of the loader's worker processes.

While a process samples, a file named after it says so; its workers look for that file before each batch, and keep what
they sampled in a file beside it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, Collection, Dict, List, Optional

from . import real_time as time
from .loading import Loading, read_alone
from .sampling import ENOUGH, MEAN_NS, Sampler
from .torch_steps import uncounted
from .wrapping import wrap

_MOST_S = 10
_FEW = 10  # samples: too few for a pace
_EVERY_S = 0.3  # a worker writes down what it sampled

LOADING = Loading()  # what this process loads while it samples, and asks of its workers


class Stacks:
    """Samples while the steps are timed, unless no `samples` are wanted; `steps` ended meanwhile."""

    def __init__(self, folder: Optional[str] = None, *, samples: bool = True) -> None:
        self.folder, self.has_samples = folder, samples
        self.sampler = Sampler(LOADING.sample)
        self.steps = 0
        self._until_s = 0.0

    def lacking_ms(self, stretch: float) -> float:
        """How much longer it takes until there are enough samples, at the pace so far, at most.

        Of too few samples the pace is that of steps, which waits for a CPU make so many times as long.
        """
        sampler = self.sampler
        each_ns = sampler.span_ns / sampler.samples if sampler.samples >= _FEW else MEAN_NS * stretch
        return min(_MOST_S * 1e3, max(0, ENOUGH - sampler.samples) * each_ns / 1e6)

    @property
    def is_over(self) -> bool:
        """Whether there are enough samples, or there will be none, or the limit is reached."""
        is_late = bool(self._until_s) and time.monotonic() >= self._until_s
        return not self.sampler.is_on or self.sampler.samples >= ENOUGH or is_late

    def limit(self) -> None:
        """Nothing else is to be done: from here on, the samples take a limited time."""
        self._until_s = time.monotonic() + _MOST_S

    def resume(self) -> None:
        """Sample from here; where that cannot be, nothing is sampled."""
        if not self.has_samples or not self.sampler.start():
            return
        LOADING.begin()
        if self.folder:
            with open(_flag(self.folder, os.getpid()), "w", encoding="ascii"):
                pass

    def pause(self) -> None:
        """Sample no more."""
        LOADING.end()
        self.sampler.stop()
        if self.folder:
            with suppress(OSError):
                os.remove(_flag(self.folder, os.getpid()))

    def forget(self) -> None:
        """In a forked process: the signal is given back; the files are the parent's."""
        self.sampler.stop()
        self.folder = None

    def end_step(self) -> None:
        """A step ends, and the next one begins."""
        self.steps += 1
        self.sampler.step = self.steps

    def block(self, long: Collection[int] = ()) -> Optional[Dict[str, Any]]:
        """What was sampled, over how many steps and how long; None where no samples are wanted.

        `long` are the numbers of the sampled steps that took far longer than the others.
        """
        if not self.has_samples:
            return None
        workers: List[Dict[str, Any]] = []
        for name in sorted(os.listdir(self.folder)) if self.folder else ():
            if name.startswith("stacks-%d-" % os.getpid()) and not name.endswith(".part"):
                with open(os.path.join(self.folder or "", name), encoding="utf-8") as stream:
                    workers.append(json.load(stream))
        paths = dict(LOADING.paths, **{path: None for worker in workers for path in worker.pop("paths")})
        return {
            "steps": self.steps,
            "span_ns": self.sampler.span_ns,
            "samples": self.sampler.samples,
            "lack": self.sampler.lack,
            "main": self.sampler.stacks(long),
            "threads": self.sampler.threads.block(self.sampler.span_ns),
            "loading": dict(LOADING.facts(), **read_alone(paths)),
            "workers": workers,
        }


def watch_loaders(folder: Optional[str]) -> None:
    """Have PyTorch's loaders counted, and their worker processes sample themselves while their parent does."""
    fetch = sys.modules.get("torch.utils.data._utils.fetch")
    if folder is None or fetch is None:
        return
    worker = _Worker(folder)
    for owner in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        wrap(owner, "fetch", uncounted(worker.fetch))
    wrap(sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter, "__next__", LOADING.request)


class _Worker:
    """A worker process, before each batch; in the main process it counts alone."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.loading = Loading()
        self.sampler = Sampler(self.loading.sample)
        self.written_s = 0.0

    def fetch(self, call: Any, fetcher: Any, index: Any) -> Any:
        """Load a batch."""
        if sys.modules["torch.utils.data"].get_worker_info() is None:
            return LOADING.fetch(call, fetcher, index)
        with suppress(Exception):  # whatever it is, a batch is not lost over it
            self.look()
        return self.loading.fetch(call, fetcher, index)

    def look(self) -> None:
        """Sample as long as the parent does."""
        if os.path.exists(_flag(self.folder, os.getppid())):
            if self.sampler.start():
                self.loading.begin()
        elif self.sampler.is_on:
            self.sampler.stop()
            self._write()
        if self.sampler.is_on and time.monotonic() > self.written_s + _EVERY_S:
            self._write()
            self.loading.begin()

    def _write(self) -> None:
        self.written_s = time.monotonic()
        self.loading.end()
        noted = {
            "samples": self.sampler.samples,
            "stacks": self.sampler.stacks(),
            "loading": self.loading.facts(),
            "paths": [*self.loading.paths],  # the parent reads these files, and keeps no name
        }
        path = os.path.join(self.folder, "stacks-%d-%d" % (os.getppid(), os.getpid()))
        with open(path + ".part", "w", encoding="utf-8") as stream:
            os.chmod(path + ".part", 0o600)  # as notes
            json.dump(noted, stream)
        os.replace(path + ".part", path)


def _flag(folder: str, process: int) -> str:
    return os.path.join(folder, "sampling-%d" % process)
