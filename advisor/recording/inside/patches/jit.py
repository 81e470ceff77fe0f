"""jax.jit around gradients that are computed op by op."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict

from ..wrapping import wrap  # noqa: TID252 - programs have no package `advisor`
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
            if not self.on or self.refusals or _is_tracing():
                return gradient(*args, **kwargs)
            try:
                result = fast(*args, **kwargs)
            except Exception as error:
                self.hits = 0
                self.refuse("compile_failed", kind=type(error).__name__)
                return gradient(*args, **kwargs)
            self.hits += 1
            return result

        return either


def _is_tracing() -> bool:
    core: Any = sys.modules.get("jax._src.core")
    clean = getattr(core, "trace_state_clean", None)
    return bool(clean and not clean())
