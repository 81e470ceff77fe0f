"""jax.jit around gradients that are computed op by op."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict

from ..wrapping import traces_nothing, wrap  # noqa: TID252 - programs have no package `advisor`
from .patch import Patch

_MAKERS = ("grad", "value_and_grad")


class Jit(Patch):
    """Jits the functions that `jax.grad` and `jax.value_and_grad` return; inside a trace it changes nothing."""

    name = "jax-jit"
    framework = "jax"
    absent = "no_gradient"
    toggles = ("cpu", "cuda")
    numerics = "rounding"

    def hook(self, module: Any, census: Any) -> None:
        for name in _MAKERS:
            compiled: Dict[Any, Any] = {}  # many programs make the gradient of a function anew in each step
            wrap(module, name, functools.partial(self._gradient, compiled, module.jit))

    def _gradient(
        self, compiled: Dict[Any, Any], jit: Any, original: Any, *args: Any, **kwargs: Any
    ) -> Callable[..., Any]:
        gradient = original(*args, **kwargs)
        try:
            key = (args, tuple(sorted(kwargs.items())))
            return self._either(gradient, compiled.setdefault(key, jit(gradient)))
        except TypeError:  # an argument that cannot be hashed
            return self._either(gradient, jit(gradient))

    def _either(self, gradient: Callable[..., Any], fast: Callable[..., Any]) -> Callable[..., Any]:
        """The gradient: compiled while the patch is on."""

        @functools.wraps(gradient)
        def either(*args: Any, **kwargs: Any) -> Any:
            if not self.on or not traces_nothing():
                return gradient(*args, **kwargs)
            result = self.faster(fast, gradient, args, kwargs)
            self.hits += not self.refusals
            return result

        return either
