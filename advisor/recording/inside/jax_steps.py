"""JAX: calls of jitted functions, and its profiler."""

from __future__ import annotations

import functools
import operator
import sys
import threading
import types
from typing import Any, Dict, Hashable

from .torch_steps import Tick
from .wrapping import traces_nothing, wrap
from .xplane import XplaneProfiler

_FEW = 3  # own choice: functions of one code that a factory makes for the parts of a step
_open = threading.local()  # what the thread is in: the outermost call that is counted


class Counted:
    """A function that counts its calls outside any trace, as updates where its trace has one, and is itself else."""

    def __init__(self, function: Any, tick: Tick, kind: str = "function", key: Hashable = None) -> None:
        self._function, self._tick = function, tick
        self._kind, self._key = kind, key or id(self)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outermost = getattr(_open, "call", None)
        _open.call = outermost or self
        try:
            result = self._function(*args, **kwargs)
        finally:
            _open.call = outermost
        if outermost and self._kind == "update":
            outermost._kind = "update"
        if traces_nothing():
            self._tick(self._kind, self._key, getattr(self, "__name__", "function"), result)
        return result

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_function"):
            raise AttributeError(name)
        return getattr(self._function, name)

    def __reduce__(self) -> Any:
        return operator.itemgetter(0), ((self._function,),)  # a copy is the function itself, wherever it is read

    def __repr__(self) -> str:
        return repr(self._function)


def watch_functions(jax: Any, tick: Tick) -> None:
    """Count the calls of every function that goes through `jax.jit` from now on.

    One that the program makes anew in each step counts as one, from its fourth on; a factory's few are apart.
    """
    counts: Dict[Any, int] = {}

    def jit(original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not hasattr(result, "lower"):  # `jax.jit(static_argnums=0)`, which is yet to get its function
            return lambda function: Counted(result(function), tick)
        code = getattr(args[0] if args else kwargs.get("fun"), "__code__", None)
        counts[code] = counts.get(code, 0) + 1
        return Counted(result, tick, key=code if counts[code] > _FEW else None)

    def maker(original: Any, *args: Any, **kwargs: Any) -> Any:
        function = args[0] if args else kwargs.get("fun")  # many programs make its gradient anew in each step
        return Counted(original(*args, **kwargs), tick, "gradient", getattr(function, "__code__", None))

    for module in ("source_info_util", "traceback_util"):  # what is exported and what fails tell of the program alone
        getattr(sys.modules.get("jax._src." + module), "register_exclusion", str)(__file__)
    wrap(jax, "jit", jit)
    for name in ("grad", "value_and_grad"):  # one computed outside any trace is a step of a program that jits none
        wrap(jax, name, maker)


class JaxProfiler(XplaneProfiler):
    """`jax.profiler`."""

    def __init__(self, folder: str) -> None:
        self.jax = sys.modules["jax"]
        super().__init__(folder, self.jax.profiler.start_trace, self.jax.profiler.stop_trace)

    def range_of(self, step: int) -> Any:
        return self.jax.profiler.StepTraceAnnotation("train", step_num=step)

    def range(self, name: str) -> Any:
        return self.jax.profiler.TraceAnnotation(name)

    def settle(self, result: object) -> None:
        """As `Profiler.settle`: calls return before their work is over."""
        self.jax.block_until_ready(result)
