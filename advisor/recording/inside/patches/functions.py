"""Functions that run as compiled ones, or more rarely: those of the program, known by a line each, and Keras' fit."""

from __future__ import annotations

import dis
import gc
import inspect
import os
import types
from typing import Any, Callable, List

from ..wrapping import wrap  # noqa: TID252 - programs have no package `advisor`
from .patch import Patch

_IN_PARTS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR  # a result is of one use
_LINE = {"line": {"type": "string", "description": "a line of the function: `train.py:41`"}}


class FunctionPatch(Patch):
    """Has something called in the place of the innermost function that has this line, from the second step on."""

    toggles = ("cpu", "cuda")
    functions: Any = None

    def switch(self, on: bool) -> None:
        super().switch(on)
        if self.functions is None:
            self.functions = _functions_at(self.values["line"])
            for function in self.functions:
                _replace(function, self.around)
            if not self.functions:
                self.refuse("no_function", line=self.values["line"])

    def around(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """What is called in the place of this one."""
        raise NotImplementedError


class Compiled(FunctionPatch):
    """A function of the program under `jax.jit` or `tf.function`, compiled at its first call."""

    name = "jit"
    framework = "jax tensorflow"
    numerics = "rounding"
    arguments = dict(_LINE, by={"type": "string", "enum": ["jax", "tensorflow"], "description": "what compiles it"})

    def hook(self, module: Any, census: Any) -> None:
        if module.__name__ == self.values["by"]:
            self.compile = getattr(module, "jit", None) or module.function

    def around(self, own: Callable[..., Any]) -> Callable[..., Any]:
        fast = self.compile(own)

        def either(*args: Any, **kwargs: Any) -> Any:
            if not self.on:
                return own(*args, **kwargs)
            result = self.faster(fast, own, args, kwargs)
            self.hits += not self.refusals
            return result

        return either


class Graph(Patch):
    """`Model.compile` without `run_eagerly`, and TensorFlow without `run_functions_eagerly`."""

    name = "keras-graph"
    framework = "keras tensorflow"
    absent = "as_it_is"
    numerics = "rounding"

    def hook(self, module: Any, census: Any) -> None:
        if hasattr(module, "executing_eagerly"):
            wrap(module.config, "run_functions_eagerly", self._without)
        else:
            wrap(module.Model, "compile", self._compiled)

    def _without(self, switch: Any, run_eagerly: bool) -> None:
        self.hits += bool(run_eagerly)
        switch(False)

    def _compiled(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self.hits += bool(kwargs.pop("run_eagerly", False))
        return original(*args, **kwargs)


class Seldom(FunctionPatch):
    """A function of the program runs at every n-th call; the others give again what that gave."""

    name = "seldom"
    numerics = "changes"
    arguments = dict(
        _LINE, every={"type": "integer", "minimum": 2, "maximum": 10**6, "default": 100, "description": "of the calls"}
    )

    def around(self, own: Callable[..., Any]) -> Callable[..., Any]:
        results: List[Any] = []
        calls = 0

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if self.on and results and calls % self.values["every"]:
                self.hits += 1
            else:
                results[:] = [own(*args, **kwargs)]
            return results[0]

        return call


def _functions_at(place: str) -> List[Any]:
    file, _, line = place.rpartition(":")
    is_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    functions = [each for each in gc.get_objects() if type(each) is types.FunctionType]
    if is_frozen:
        gc.freeze()
    number = int(line) if line.isdigit() else 0
    of_file = [
        each for each in functions if ("/" + each.__code__.co_filename.replace(os.sep, "/")).endswith("/" + file)
    ]
    lines = {each: [of or 0 for _, of in dis.findlinestarts(each.__code__)] for each in of_file}
    matches = [each for each in of_file if each.__code__.co_firstlineno <= number <= max(lines[each])]
    innermost = max((each.__code__.co_firstlineno for each in matches), default=0)
    first = [each for each in matches if each.__code__.co_firstlineno == innermost]
    return [each for each in first if not each.__code__.co_flags & _IN_PARTS]


def _stub(*args: Any, **kwargs: Any) -> Any:
    call: Any = "what is called"
    return call(*args, **kwargs)


def _replace(function: Any, around: Callable[[Any], Any]) -> None:
    """Give the function other code: whoever holds it, under whatever name, calls that."""
    code = function.__code__
    own = types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    own.__kwdefaults__ = function.__kwdefaults__
    call, stub = around(own), _stub.__code__
    constants = tuple(call if constant == "what is called" else constant for constant in stub.co_consts)
    function.__code__ = stub.replace(co_consts=constants, co_freevars=code.co_freevars)
