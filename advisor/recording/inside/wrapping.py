"""What a program calls, with something of ours around it."""

from __future__ import annotations

import functools
from typing import Any, Callable


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> Any:
    """Have `around` called in the place of a function or method, with that and its arguments; the function."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapped)
    return original
