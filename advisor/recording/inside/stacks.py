"""The stacks that a recording samples: of the process whose steps are timed, and of the loader's worker processes.

While a process samples, a file named after it says so; its workers look for that file before each batch, and keep what
they sampled in a file beside it.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from typing import Any, Dict, List, Optional

from .lines import described
from .sampling import ENOUGH, MEAN_NS, Sampler

_MOST_S = 10
_EVERY_S = 0.3  # a worker writes down what it sampled


class Stacks:
    """Samples while the steps are timed, unless no `samples` are wanted.

    Attributes:
        steps: That ended while it sampled.
    """

    def __init__(self, folder: Optional[str] = None, *, samples: bool = True) -> None:
        self.folder, self.has_samples = folder, samples
        self.sampler = Sampler()
        self.steps = 0
        self._until_s = 0.0

    @property
    def lacking_ms(self) -> float:
        """How much longer it takes until there are enough samples, at most."""
        return min(_MOST_S * 1e3, max(0, ENOUGH - self.sampler.samples) * MEAN_NS / 1e6)

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
        if self.has_samples and self.sampler.start() and self.folder:
            with open(_flag(self.folder, os.getpid()), "w", encoding="ascii"):
                pass

    def pause(self) -> None:
        """Sample no more."""
        self.sampler.stop()
        self._lower_flag()

    def forget(self) -> None:
        """In a forked process: the signal is given back; the files are the parent's."""
        self.sampler.stop()
        self.folder = None

    def block(self) -> Optional[Dict[str, Any]]:
        """What was sampled, over how many steps and how long; None where no samples are wanted."""
        if not self.has_samples:
            return None
        return {
            "steps": self.steps,
            "span_ns": self.sampler.span_ns,
            "samples": self.sampler.samples,
            "main": self.sampler.stacks(),
            "threads": self.sampler.threads.block(self.sampler.span_ns, lambda place: described((place,))),
            "workers": _read(self.folder) if self.folder else [],
        }

    def _lower_flag(self) -> None:
        try:
            if self.folder:
                os.remove(_flag(self.folder, os.getpid()))
        except OSError:
            pass


def watch_workers(folder: Optional[str]) -> None:
    """Have the worker processes of PyTorch's loaders sample themselves while their parent does."""
    fetch = sys.modules.get("torch.utils.data._utils.fetch")
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher") if folder and fetch else ():
        owner = getattr(fetch, name, None)
        if owner is not None:
            owner.fetch = _sampled(owner.fetch, _Worker(folder or ""))


class _Worker:
    """A worker process, before each batch; in the main process nothing."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.sampler = Sampler()
        self.written_s = 0.0

    def look(self) -> None:
        """Sample as long as the parent does."""
        data = sys.modules["torch.utils.data"]
        if data.get_worker_info() is None:
            return
        if os.path.exists(_flag(self.folder, os.getppid())):
            self.sampler.start()
        elif self.sampler.is_on:
            self.sampler.stop()
            self._write()
        if self.sampler.is_on and time.monotonic() > self.written_s + _EVERY_S:
            self._write()

    def _write(self) -> None:
        self.written_s = time.monotonic()
        path = os.path.join(self.folder, "stacks-%d-%d" % (os.getppid(), os.getpid()))
        with open(path + ".part", "w", encoding="utf-8") as stream:
            json.dump({"samples": self.sampler.samples, "stacks": self.sampler.stacks()}, stream)
        os.replace(path + ".part", path)


def _sampled(fetch: Any, worker: _Worker) -> Any:
    @functools.wraps(fetch)
    def sampled(*args: Any, **kwargs: Any) -> Any:
        try:
            worker.look()
        except Exception:  # whatever it is, a batch is not lost over it
            pass
        return fetch(*args, **kwargs)

    return sampled


def _flag(folder: str, process: int) -> str:
    return os.path.join(folder, "sampling-%d" % process)


def _read(folder: str) -> List[Dict[str, Any]]:
    names = [name for name in os.listdir(folder) if name.startswith("stacks-%d-" % os.getpid())]
    stacks: List[Dict[str, Any]] = []
    for name in sorted(name for name in names if not name.endswith(".part")):
        with open(os.path.join(folder, name), encoding="utf-8") as stream:
            stacks.append(json.load(stream))
    return stacks
