"""What a program calls, with something of ours around it, but where JAX only traces it."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> Any:
    """Have `around` called in the place of a function or method, with that and its arguments; the function."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapped)
    return original


def traces_nothing() -> bool:
    """Whether JAX traces no function just now, so that calls are those of the program."""
    is_clean = getattr(sys.modules.get("jax._src.core"), "trace_state_clean", None)  # its place differs by version
    return is_clean is None or bool(is_clean())
