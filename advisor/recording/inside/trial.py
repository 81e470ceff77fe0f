"""The hook of a trial: it applies patches and times the steps; nothing is profiled."""

from __future__ import annotations

import functools
import random
import sys
import time
from typing import Any, Callable, Hashable

from .blocks import Blocks, Plan
from .census import Census
from .hook import Hook, Make
from .notes import Notes
from .patches import patches_of

_SEED = 0


class Trial(Hook):
    """One process of a trial.

    Args:
        config: `patches`, `arm`, `blocks`, `steps`, `limit`, `skip` and `stop`.
        notes: Where the launcher learns of it.
    """

    def __init__(self, config: dict[str, Any], notes: Notes) -> None:
        self.census = Census()
        self.patches = patches_of(config["patches"]) if config["arm"] != "off" else []
        self.began = time.perf_counter()
        self.ticks: dict[str, int] = {}
        self.result: Any = None
        super().__init__(dict(config, logdir=None), notes)
        self.frameworks = {name: self._patched(name, watch) for name, watch in self.frameworks.items()}
        random.seed(_SEED)  # as `patched` does for torch: a program that seeds itself does so later

    def _patched(self, framework: str, watch: Callable[[Any], None]) -> Callable[[Any], None]:
        """The framework is watched; where it is PyTorch its objects are counted; then patches hook it."""

        @functools.wraps(watch)
        def patched(module: Any) -> None:
            for patch in self.patches:
                if patch.framework == framework:
                    patch.hook(module, self.census)
            watch(module)
            if framework == "torch":
                module.manual_seed(_SEED)
                self.census.watch(module)

        return patched

    def _stand_back(self) -> None:
        """The program's own profiler disturbs nothing here."""

    def _advance(self, make: Make, kind: str, key: Hashable, label: str, result: object) -> None:
        self.ticks[kind] = self.ticks.get(kind, 0) + 1
        if self.ticks[kind] == (2 if kind == "module" else 1):  # a root's first call ends before others are called
            self.census.settle()
            for patch in self.patches:
                patch.switch(True)
        self.result = result
        super()._advance(make, kind, key, label, result)

    def _phases(self, make: Make, kind: str) -> Blocks:
        """The skipped steps are over: what was to be changed exists by now."""
        for patch in self.patches:
            patch.begin()
        hits = {patch.name: patch.hits for patch in self.patches}
        seconds = time.perf_counter() - self.began
        self.notes.add("ready", seconds=seconds, digest=self._digest(), device=_device(), hits=hits)
        self._account()
        return Blocks(make(), Plan(self.config), self.patches, self.notes, lambda: self.census.batches_ahead)

    def _digest(self) -> Any:
        try:
            digest = self.census.digest()
            return _size(self.result) if digest is None else digest
        except Exception:
            return None

    def _account(self) -> None:
        for patch in self.patches:
            self.notes.add("patch", **patch.account())

    def _conclude(self, phase: str) -> None:
        self._account()
        super()._conclude(phase)


def _size(result: Any) -> Any:
    """The sum of all absolute values in what a step of JAX gave; None of anything else."""
    jax = sys.modules.get("jax")
    if jax is None or result is None:
        return None
    return sum(float(abs(leaf).astype("float32").sum()) for leaf in jax.tree_util.tree_leaves(result))


def _device() -> str:
    torch = sys.modules.get("torch")
    return "cuda" if torch and torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"
