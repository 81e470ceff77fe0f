"""The calls of PyTorch that repeat with each step: an optimizer's, DeepSpeed's engine's, the root module's."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from typing import Any, Callable, Hashable

from .wrapping import Method, wrap

Tick = Callable[[str, Hashable, str, object], None]
"""Told of each call: its kind, who it is of, a name for people, and what it gave."""


class _Depth(threading.local):
    """How many counted calls are open on this thread."""

    value = 0


_depth = _Depth()


def watch_optimizers(tick: Tick, on_class: Callable[[], None]) -> None:
    """Count each outermost `step` of every optimizer from now on; `on_class` is called for the first of a class.

    torch.compile strips `step` of its innermost wrapper's outside by `__wrapped__`: what that leaves counts as well.
    """
    optimizer = sys.modules["torch"].optim.Optimizer
    original = optimizer.profile_hook_step
    compiling = compiling_of()

    @functools.wraps(original)
    def profile_hook_step(step: Callable[..., Any]) -> Method:
        on_class()
        inner = original(step)
        inner.hooked = True  # as torch notes of what it gets, for one that is read from a pickle
        outer = _counted(inner, tick, compiling)
        outer.__wrapped__ = _counted(step, tick, compiling)  # type: ignore[attr-defined]
        return Method(outer, outer, inner)

    optimizer.profile_hook_step = staticmethod(profile_hook_step)


def _counted(step: Callable[..., Any], tick: Tick, compiling: Callable[[], bool]) -> Callable[..., Any]:
    outermost = uncounted(step)

    @functools.wraps(step)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if compiling() or _depth.value:
            return step(*args, **kwargs)
        result = outermost(*args, **kwargs)
        tick("optimizer", id(args[0]), type(args[0]).__name__, None)
        return result

    return counted


def uncounted(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call; nothing that it calls ends a step: a transform of a loader is a module, too, also in its workers."""

    @functools.wraps(call)
    def aside(*args: Any, **kwargs: Any) -> Any:
        before, _depth.value = _depth.value, 1
        try:
            return call(*args, **kwargs)
        finally:
            _depth.value = before

    return aside


def watch_engine(module: Any, tick: Tick) -> None:
    """Count the steps of DeepSpeed's engine that update parameters."""

    def step(original: Any, engine: Any, *args: Any, **kwargs: Any) -> Any:
        before = getattr(engine, "global_steps", None)
        result = original(engine, *args, **kwargs)
        if before is None or engine.global_steps != before:
            tick("engine", id(engine), type(engine).__name__, None)
        return result

    wrap(module.DeepSpeedEngine, "step", step)


def watch_root(tick: Tick) -> None:
    """Count the calls of the first module that is called: none encloses it.

    What watches all modules goes with that call: it would cost each one. Its class stays watched, and not the module,
    which a program may pickle, copy or compile as it is. A program may have what watches all still, as a bound
    `model.__call__` that `generate` of transformers takes for all tokens. A global hook of torch would do the same, but
    torch.compile warns of those and traces twice.
    """
    module = sys.modules["torch"].nn.Module
    compiling = compiling_of()
    roots: list[Callable[[], Any]] = []
    if compiling is bool:  # too old to say: what is here would be traced
        return

    def counted(call: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        result = call(self, *args, **kwargs)
        if not compiling() and not _depth.value and roots[0]() is self:
            tick("module", id(self), type(self).__name__, None)
        return result

    def first(call: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or _depth.value:
            return call(self, *args, **kwargs)
        if not roots:
            roots.append(weakref.ref(self))
            if undo():
                owner: Any = type(self)
                own = owner.__call__
                wrap(owner, "__call__", counted)
                owner.__call__ = Method(owner.__call__, own, own)
        return counted(call, self, *args, **kwargs)

    undo = wrap(module, "__call__", first)


def compiling_of() -> Callable[[], bool]:
    """Whether torch.compile traces the caller."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return getattr(compiler, "is_compiling", bool)
