"""What a program calls, with something of ours around it, but where JAX only traces it."""

from __future__ import annotations

import functools
import operator
import sys
import types
from typing import Any, Callable


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> Callable[[], bool]:
    """Have `around` called in the place of a function or method, with that and its arguments; what puts that back.

    It says whether it did: not where the program has put its own around it. A pickle names the place of the function.
    """
    original = getattr(owner, name)
    home = next((each for each in getattr(owner, "__mro__", ()) if name in vars(each)), owner)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original if home is owner else getattr(home, name), *args, **kwargs)

    wrapped.__module__ = getattr(owner, "__module__", getattr(owner, "__name__", ""))  # modules have none
    setattr(owner, name, wrapped)

    def undo() -> bool:
        is_outermost: bool = getattr(owner, name) is wrapped
        if is_outermost:
            setattr(owner, name, original)
        return is_outermost

    return undo


class Method:
    """A method in a class of the program: its objects have `function`, itself `in_class`, a pickle of it `original`."""

    def __init__(self, function: Callable[..., Any], in_class: Any, original: Any) -> None:
        self.function, self.in_class, self.original = function, in_class, original

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.in_class if instance is None else types.MethodType(self.function, instance)

    def __reduce__(self) -> Any:
        return operator.itemgetter(0), ((self.original,),)


def traces_nothing() -> bool:
    """Whether JAX traces no function just now, so that calls are those of the program."""
    is_clean = getattr(sys.modules.get("jax._src.core"), "trace_state_clean", None)  # its place differs by version
    return is_clean is None or bool(is_clean())
