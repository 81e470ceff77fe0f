"""Functions of the program that get the same arguments in each call, and compute the same from them: once is enough."""

from __future__ import annotations

import inspect
import re
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Dict, FrozenSet, List, Optional, Set, Tuple

from .lines import is_own

_FEWEST = 5  # calls that were sampled: fewer may be alike by chance
_DEEPEST = 4  # functions of the program that call each other
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_PLAIN_NAMES = ("dtype", "device")  # of torch and numpy
_UNKNOWN = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
_DIFFERS = re.compile(  # names of what differs from call to call, or does something beside its result
    r"rand|shuffle|permut|choice|(?:^|_)sample$|(?:normal|uniform)_?$|multinomial|bernoulli|dropout|"
    r"^(?:time(?:_ns)?|perf_counter|monotonic|now|today|next|input|print|log(?:ger|ging)|sleep|system|run|popen|"
    r"check_output|environ|listdir|iterdir|glob|exists|stat|urlopen|get_nowait|put|dump)|^(?:write|save|send|recv|request)"
)


class Repeats:
    """Looks at the arguments of the program's functions wherever a stack is sampled."""

    def __init__(self) -> None:
        self._calls: Dict[CodeType, List[Any]] = {}  # arguments, None if they differ; calls; globals
        self._open: Set[CodeType] = set()  # functions that the sample before was in

    def look(self, frame: Any) -> None:
        """A stack was sampled, whose innermost frame this is."""
        current: Set[CodeType] = set()
        while frame is not None:
            code = frame.f_code
            if code.co_argcount + code.co_kwonlyargcount and is_own(code.co_filename):
                current.add(code)
                self._count(frame, code)
            frame = frame.f_back
        self._open = current

    def codes(self) -> FrozenSet[CodeType]:
        """The functions whose calls were all alike."""
        return frozenset(
            code
            for code, (arguments, calls, names) in self._calls.items()
            if arguments and calls >= _FEWEST and _is_pure(code, names)
        )

    def _count(self, frame: Any, code: CodeType) -> None:
        known = self._calls.setdefault(code, [_arguments(frame), 0, frame.f_globals])
        if known[0] is None or known[0] != _arguments(frame):
            known[0] = None
        elif code not in self._open:  # what two samples in a row see may be one call
            known[1] += 1


def _arguments(frame: Any) -> Optional[Tuple[Any, ...]]:
    """The arguments of a call; None if one may change although it is the same."""
    code, values = frame.f_code, frame.f_locals
    if code.co_flags & _UNKNOWN:
        return None
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    arguments = tuple(values.get(name, values) for name in names)
    return arguments if all(map(_is_plain, arguments)) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN) or type(value).__name__ in _PLAIN_NAMES


def _is_pure(code: CodeType, names: Dict[str, Any], depth: int = 0) -> bool:
    """Whether a function computes from its arguments and from constants alone, as far as its names show."""
    if depth > _DEEPEST or any(map(_DIFFERS.search, code.co_names)):
        return False
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    uses = [names[name] for name in code.co_names if name in names]
    return all(_is_constant(value, depth) for value in uses) and all(_is_pure(each, names, depth) for each in inner)


def _is_constant(value: Any, depth: int) -> bool:
    """Whether a global is the same in each call, and calls of it give the same."""
    if isinstance(value, FunctionType) and is_own(value.__code__.co_filename):
        return not value.__closure__ and _is_pure(value.__code__, value.__globals__, depth + 1)
    if isinstance(value, type):
        return not is_own(getattr(sys.modules.get(value.__module__), "__file__", None) or "<")
    return _is_plain(value) or isinstance(value, (ModuleType, FunctionType, BuiltinFunctionType))
