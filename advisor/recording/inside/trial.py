"""The hook of a trial: it applies patches and times the steps in blocks, with them and without; nothing is profiled."""

from __future__ import annotations

import functools
import random
import sys
import threading
from contextlib import suppress
from typing import Any, Callable, Dict, Hashable, List
from weakref import WeakSet, WeakValueDictionary

from . import real_time as time
from .clock import Lap
from .hook import Hook, Make
from .notes import Notes
from .patches import PATCHES, Patch
from .phases import Steps
from .profilers import Profiler
from .torch_steps import compiling_of
from .wrapping import wrap

Visit = Callable[[Any], None]


class Census:
    """Knows the objects, and calls whoever is to change them.

    `on_optimizer` gets each optimizer before its first step, `on_root` each module with parameters that none encloses
    before its first call.
    """

    def __init__(self) -> None:
        self._optimizers: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._loaders: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.on_optimizer: List[Visit] = []
        self.on_root: List[Visit] = []
        self.end_of_roots: Callable[[], object] = bool

    def watch(self, torch: Any) -> None:
        """Begin with what is made from now on."""
        wrap(torch.utils.data.DataLoader, "__init__", functools.partial(_noted, self._loaders))
        wrap(torch.optim.Optimizer, "__init__", functools.partial(_noted, self._optimizers))
        self._watch_roots(torch.nn.Module)

    @property
    def optimizers(self) -> List[Any]:
        """Those that exist, in the order in which they were made: a sum of floats depends on it."""
        return list(self._optimizers.values())

    @property
    def batches_ahead(self) -> int:
        """How many batches a loader may have ready: so many steps say nothing of its pace."""
        return max([0, *(int(each.num_workers * (each.prefetch_factor or 0)) for each in self._loaders.values())])

    def settle(self) -> None:
        """The first step is over: what it called are the roots, and the optimizers have all their groups."""
        self.end_of_roots()
        visits, self.on_optimizer = self.on_optimizer, []
        for optimizer in self.optimizers:
            for visit in visits:
                visit(optimizer)

    def digest(self) -> Any:
        """The sum of all parameters' sizes: tells whether two runs trained alike; None without parameters."""
        parameters = {id(p): p for each in self.optimizers for group in each.param_groups for p in group["params"]}
        local = [p.to_local() if hasattr(p, "to_local") else p for p in parameters.values()]
        return sum(float(p.detach().double().abs().sum()) for p in local) if local else None

    def _watch_roots(self, module: Any) -> None:
        compiling, depth = compiling_of(), threading.local()
        known: WeakSet[Any] = WeakSet()

        def is_root(member: Any) -> bool:
            try:
                return member not in known and next(module.parameters(member), None) is not None
            except Exception:  # a module of the program's own making, which has no hash or other parameters
                return False

        def call(original: Any, member: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling() or getattr(depth, "value", False):
                return original(member, *args, **kwargs)
            if is_root(member):
                known.add(member)
                for visit in self.on_root:
                    visit(member)
            depth.value = True
            try:
                return original(member, *args, **kwargs)
            finally:
                depth.value = False

        self.end_of_roots = wrap(module, "__call__", call)


def _noted(members: WeakValueDictionary[int, Any], init: Any, member: Any, /, *args: Any, **kwargs: Any) -> None:
    init(member, *args, **kwargs)
    members[id(member)] = member


_ABBA = (False, True, True, False)
FIRST = 1  # steps of each block that are not timed: what is switched settles in them


class Blocks(Steps):
    """Advances by one at each end of a step; notes the time of each block.

    It times so many `steps` of each, and switches the patches in the order ABBA, or has all with them or without. The
    launcher writes into the file `limit` after how many `blocks` to end.
    """

    def __init__(
        self, profiler: Profiler, config: Dict[str, Any], patches: List[Patch], notes: Notes, ahead: Callable[[], int]
    ) -> None:
        super().__init__(profiler)
        self.config, self.patches, self.notes, self.ahead = config, patches, notes, ahead
        self.number, self._untimed = 0, 0

    @property
    def is_on(self) -> bool:
        """Whether the patches are on in this block."""
        arm = self.config["arm"]
        return _ABBA[self.number % len(_ABBA)] if arm == "turns" else arm == "on"

    def _are_enough(self) -> bool:
        """Whether so many blocks are all; only whole pairs are."""
        most = limit = int(self.config["blocks"])
        with suppress(OSError, ValueError), open(self.config["limit"], encoding="utf-8") as stream:
            limit = int(stream.read())
        return self.number >= most or (self.number % 2 == 0 and self.number >= limit)

    def step(self, result: object = None) -> None:
        """A step ended; `result` is what its last call gave."""
        if self.phase == "start":
            self._open()
        elif self.lap is None:
            self._untimed -= 1
            if self._untimed == 0:
                self._begin("block", result)
        elif self.lap.steps + 1 == int(self.config["steps"]):
            self._close(self.lap, result)
        else:
            self.lap.add()

    def finish(self) -> None:
        """The program ends: a block that is not complete does not count."""
        if self.lap:
            self.lap.close()
        self.phase = "over"

    abandon = finish

    def _open(self) -> None:
        for patch in self.patches:
            patch.switch(self.is_on)
        self.phase, self._untimed = "block", FIRST + self.ahead()

    def _close(self, lap: Lap, result: object) -> None:
        self.profiler.settle(result)
        lap.add()
        times = lap.close()
        self.lap = None
        self.notes.add(
            "block",
            number=self.number,
            on=self.is_on,
            step_ms=sum(times.steps_ms) / len(times.steps_ms),
        )
        self.number += 1
        if self._are_enough():
            self.phase = "over"
        else:
            self._open()


_SEED = 0


class Trial(Hook):
    """One process of a trial, of which `notes` tell the launcher."""

    def __init__(self, config: dict[str, Any], notes: Notes) -> None:
        self.census = Census()
        uses = config["patches"] if config["arm"] != "off" else []
        self.patches = [PATCHES[use["name"]](use["arguments"]) for use in uses]
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
                if framework in patch.framework.split():
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
        seconds, torch = time.perf_counter() - self.began, sys.modules.get("torch")
        device = "cuda" if torch and torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"
        self.notes.add("ready", seconds=seconds, digest=self._digest(), device=device, hits=hits)
        self._account()
        return Blocks(make(), self.config, self.patches, self.notes, lambda: self.census.batches_ahead)

    def _digest(self) -> Any:
        try:
            digest, jax = self.census.digest(), sys.modules.get("jax")
            if digest is None and jax and self.result is not None:  # all absolute values in what a step of JAX gave
                leaves = jax.tree_util.tree_leaves(self.result)
                digest = sum(float(abs(leaf).astype("float32").sum()) for leaf in leaves)
        except Exception:
            digest = None
        return digest

    def _account(self) -> None:
        for patch in self.patches:
            self.notes.add("patch", **patch.account())

    def _conclude(self, phase: str) -> None:
        self._account()
        super()._conclude(phase)
