"""What a program makes with PyTorch: optimizers, loaders, the modules that it calls."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, List
from weakref import WeakSet, ref

from .torch_steps import compiling_of

Visit = Callable[[Any], None]


class Census:
    """Knows the objects, and calls whoever is to change them.

    Attributes:
        on_optimizer: Called with each optimizer before its first step.
        on_root: Called with each module with parameters that none encloses, before its first call.
    """

    def __init__(self) -> None:
        self._optimizers: List[Any] = []  # in their order: a sum of floats depends on it
        self._loaders: List[Any] = []
        self.on_optimizer: List[Visit] = []
        self.on_root: List[Visit] = []
        self.end_of_roots: Callable[[], None] = lambda: None

    def watch(self, torch: Any) -> None:
        """Begin with what is made from now on."""
        _watch_init(torch.utils.data.DataLoader, self._loaders)
        _watch_init(torch.optim.Optimizer, self._optimizers)
        self._watch_roots(torch.nn.Module)

    @property
    def optimizers(self) -> List[Any]:
        """Those that exist, in the order in which they were made."""
        return [each for each in (weak() for weak in self._optimizers) if each is not None]

    @property
    def batches_ahead(self) -> int:
        """How many batches a loader may have ready: so many steps say nothing of its pace."""
        loaders = [each for each in (weak() for weak in self._loaders) if each is not None]
        return max([0, *(int(each.num_workers * (each.prefetch_factor or 0)) for each in loaders)])

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
        original, compiling, depth = module.__call__, compiling_of(), threading.local()
        known: WeakSet[Any] = WeakSet()

        @functools.wraps(original)
        def call(member: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling() or getattr(depth, "value", False):
                return original(member, *args, **kwargs)
            if member not in known and next(member.parameters(), None) is not None:
                known.add(member)
                for visit in self.on_root:
                    visit(member)
            depth.value = True
            try:
                return original(member, *args, **kwargs)
            finally:
                depth.value = False

        def end() -> None:
            if module.__call__ is call:
                module.__call__ = original

        module.__call__ = call
        self.end_of_roots = end


def _watch_init(owner: Any, members: List[Any]) -> None:
    original = owner.__init__

    @functools.wraps(original)
    def init(member: Any, *args: Any, **kwargs: Any) -> None:
        original(member, *args, **kwargs)
        members.append(ref(member))

    owner.__init__ = init
