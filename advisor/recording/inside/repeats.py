"""Which calls of PyTorch give what they gave before: in the same step, or in the step before it.

Each value has a number. A call has the number of its function and of what it takes, and what it gives has that of the
call, as compilers number values to compute none twice. So a call whose number is known computes nothing new, and
neither do those that take what it gives. A value of the program's own, such as a batch or a weight, is known by the
object, by PyTorch's count of its changes, by those of what shares its memory, and by its elements, as NumPy may change
these unseen. Of a class of the program's own nothing is start_s: it may count that.
"""

from __future__ import annotations

import collections
import itertools
import os
import sys
import weakref
import zlib
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any, Callable, Counter, Dict, Hashable, Iterable, List, Set, Tuple

from . import real_time as time
from .clock import CudaClock
from .lines import Stack, described, is_of_recorder, is_own

_ELEMENTS = 2**22  # of a value that are looked at: of a larger one some of each row
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}  # by bytes of an element
_MOST_VALUES = 2**14  # of a list
_MOST_LOOKED_AT = 256  # of these, elements
_MOST_LINES = 32
_LITTLE = 0.001  # of the time of all calls
_ALMOST = 0.95  # of what a line calls, from which on all of it is again
_DEPTH = 60
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_MOST_S = 10.0  # that this may take
_HANDS_ON = os.path.join("torch", "overrides.py")
_CALL = (lambda function, args, kwargs: function(*args, **kwargs)).__code__  # one line
_ATTRIBUTES = ("__get__", "__set__", "__delete__")  # attributes: of those no value is computed


class Values:
    """Numbers of values and calls."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.tensors = (torch.Tensor, torch.nn.Parameter)
        self.plain = (*_PLAIN, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
        self._fresh = itertools.count()
        self._calls: Dict[Hashable, int] = {}
        self._of: Dict[int, Tuple[Any, int, Tuple[int, int], int]] = {}  # by id: the value, its number, changes, sum
        self._changed: Counter[int] = collections.Counter()  # by memory: changes of what shares it

    def call(self, function: Any, args: Any, kwargs: Any) -> Tuple[int, bool]:
        """The number of a call, and whether it takes nothing that only this call may have seen."""
        self.is_known = True
        if getattr(function, "__name__", "") == "batch_norm" and kwargs.get("training"):
            args = args[:1]  # what it computes depends on no mean of earlier
        key = (function, self._number(args), self._number(kwargs), *map(_autocast, ("cpu", "cuda")))
        return self._calls.setdefault(key, len(self._calls)), self.is_known

    def next_step(self) -> None:
        """Of weights on a device, which libraries change unseen, those that are trained are new."""
        for at, (value, *_) in list(self._of.items()):
            of = value()
            if of is not None and of.is_leaf and of.requires_grad and of.device.type != "cpu":
                del self._of[at]

    def give(self, value: Any, number: Hashable) -> None:
        """Number what a call gave, or changed."""
        if type(value) in self.tensors:
            self._keep(value, ("of", number))
        elif isinstance(value, (list, tuple)):
            for at, each in enumerate(value):
                self.give(each, (number, at))

    def changed(self, values: Iterable[Any]) -> List[Tuple[int, Any]]:
        """Of what a call took, by its place, what it has changed: what shares its memory is new."""
        of = [(at, value) for at, value in enumerate(values) if type(value) in self.tensors]
        changed = [(at, value) for at, value in of if self._version_of(value) != _version(value)]
        self._changed.update(_memory(value) for _, value in changed)
        return changed

    def _number(self, value: Any, is_looked_at: bool = True) -> Hashable:
        if type(value) in self.tensors:
            return self._of_tensor(value, is_looked_at)
        if isinstance(value, self.plain):
            return (type(value), value)
        if isinstance(value, slice):
            return (slice, self._number((value.start, value.stop, value.step)))
        if isinstance(value, (list, tuple)) and len(value) <= _MOST_VALUES:
            apart = 1 + len(value) // _MOST_LOOKED_AT
            return (type(value), *(self._number(each, not at % apart) for at, each in enumerate(value)))
        if isinstance(value, dict):
            return (dict, *((name, self._number(each)) for name, each in value.items()))
        self.is_known = False
        return ("fresh", next(self._fresh))

    def _of_tensor(self, value: Any, is_looked_at: bool) -> int:
        of = self._of.get(id(value))
        if of and of[0]() is value and of[2] == self._changes(value) and (not is_looked_at or of[3] == _sum(value)):
            return of[1]
        return self._keep(value, ("fresh", next(self._fresh)))

    def _keep(self, value: Any, key: Hashable) -> int:
        number = self._calls.setdefault(key, len(self._calls))
        self._of[id(value)] = (weakref.ref(value), number, self._changes(value), _sum(value))
        return number

    def _version_of(self, value: Any) -> int | None:
        of = self._of.get(id(value))
        return of[2][0] if of else None

    def _changes(self, value: Any) -> Tuple[int, int]:
        return _version(value), self._changed[_memory(value)]


def _version(value: Any) -> int:
    """PyTorch's count of changes; 0 where it keeps none, as in `inference_mode`."""
    return 0 if value.is_inference() else int(value._version)


def _memory(value: Any) -> int:
    return int(value.untyped_storage().data_ptr()) if value.layout is sys.modules["torch"].strided else 0


def _autocast(device: str) -> Any:
    """The format of numbers that ops compute in there; None where in that of what they are given."""
    torch = sys.modules["torch"]
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _sum(value: Any) -> int:
    """A checksum of elements that lie evenly; of a value on a device, which NumPy cannot change, 0."""
    if value.device.type != "cpu":
        return 0
    plain = value.conj() if value.is_conj() else value
    bits = getattr(sys.modules["torch"], _BITS[value.element_size()])  # NumPy has no bfloat16
    few = plain.detach().view(bits).numpy()
    if few.flags.c_contiguous:
        few = few.reshape(-1)[:: 1 + few.size // _ELEMENTS]
    while few.size > _ELEMENTS:  # a view still: a copy of what is spread could be larger than memory
        longest = max(range(few.ndim), key=few.shape.__getitem__)
        few = few[(slice(None),) * longest + (slice(None, None, 2),)]
    return zlib.crc32(few.tobytes())


class RepeatWatch:
    """Calls between `start` and `stop`, in the two steps that `next_step` divides, on the thread that began."""

    def __init__(self) -> None:
        self.mode: Any = None
        self.values: Any = None
        self.clock: Any = None
        self.step = 0
        self.spent_s = 0.0
        self.earlier: Set[Tuple[int, int]] = set()  # calls of the first step with their places; and those of this one
        self.known: Set[Tuple[int, int]] = set()
        self.numbers: Set[int] = set()  # of both steps
        self.calls: List[Tuple[Stack, bool, bool, Any, Any]] = []  # place, is it again, of each step, begin, end

    def start(self, clock: CudaClock | None) -> None:
        """Watch from here; not where the program, or `torch.compile`, would notice."""
        torch, core = sys.modules["torch"], sys.modules["torch._C"]
        compilers = getattr(sys.modules.get("torch._dynamo.eval_frame"), "cached_backends", {})
        is_old = not hasattr(torch, "get_autocast_dtype")
        if is_old or any(compilers.values()) or core._len_torch_function_stack():
            return
        self.values, self.clock, see = Values(torch), clock, self._see

        class Mode(sys.modules["torch.overrides"].TorchFunctionMode):  # type: ignore[misc]  # unknown until torch is
            def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
                return see(function, args, kwargs or {})

        self.mode = Mode()
        self.mode.__enter__()

    def next_step(self) -> None:
        """The second step begins."""
        self.step, self.earlier, self.known = 1, self.known, set()
        if self.mode is not None:
            self.values.next_step()

    def stop(self) -> None:
        """Watch no more."""
        mode, self.mode = self.mode, None
        if mode is None:
            return
        self.values = None  # with all that it holds
        core, inner = sys.modules["torch._C"], []  # contexts that the program opened since
        while core._len_torch_function_stack():
            inner.append(core._pop_torch_function_stack())
            if inner[-1] is mode:
                inner.pop()
                break
        for each in reversed(inner):
            core._push_on_torch_function_stack(each)

    def facts(self) -> Dict[str, Any]:
        """`repeats`: the lines of the second step that computed again, with ns of their calls; `calls_ns`: of all."""
        own: Dict[Stack, List[int]] = {}  # ns of all calls, of those again, of those of each step
        times: Dict[Stack, List[int]] = {}  # the same of each line with all that it calls
        for stack, is_again, is_of_each, begin, end in self.calls:
            ns = self._ns(begin, end)
            add = (ns, ns * is_again, ns * is_of_each)
            own[stack] = [a + b for a, b in zip(own.get(stack, (0, 0, 0)), add)]
            for at in range(len(stack) + 1):
                times[stack[at:]] = [a + b for a, b in zip(times.get(stack[at:], (0, 0, 0)), add)]
        calls_ns = times.get((), [0])[0]
        places = [(of, described(of)) for of in filter(None, times) if is_own(of[0][0].co_filename)]
        words = {of: (line["line"], line["call"]) for of, line in places}
        alike: Dict[Any, List[int]] = {}  # samples tell no calls apart that read alike, as in `f(x) + f(y)`
        for of, name in words.items():
            alike[name] = [a + b for a, b in zip(alike.get(name, (0, 0)), times[of])]
        again = {name for name, (all_ns, ns) in alike.items() if ns >= _ALMOST * all_ns}
        lines: Dict[Stack, Tuple[bool, List[int]]] = {}
        for stack in filter(None, own):
            around = [stack[at:] for at, (code, _) in enumerate(stack) if is_own(code.co_filename)]
            place = next((of for of in reversed(around) if times[of][1] >= _ALMOST * times[of][0]), None)
            if place:
                lines[place] = (words[place] in again, times[place])
            elif stack in around:  # else a library calls it within a call that computes other things
                lines[stack] = (False, own[stack])
        most = sorted(lines.items(), key=lambda line: -line[1][1][1])[:_MOST_LINES]
        repeats = [self._line(of, is_complete, *ns) for of, (is_complete, ns) in most if ns[1] > _LITTLE * calls_ns]
        return {"repeats": repeats, "calls_ns": calls_ns} if self.step else {}

    def _ns(self, begin: Any, end: Any) -> int:
        if self.clock is None:
            return int(end - begin)
        times_ms = self.clock.steps_ms([begin, end])
        return int(1e6 * times_ms[0]) if times_ms else 0

    @staticmethod
    def _line(place: Stack, is_complete: bool, all_ns: int, ns: int, of_each_ns: int) -> Dict[str, Any]:
        names, times = described(place), {"all_ns": all_ns, "ns": ns, "of_each_ns": of_each_ns}
        return {**{name: names[name] for name in ("line", "function", "call")}, "is_complete": is_complete, **times}

    def _now(self) -> Any:
        """On the device's clock, or on that of the thread, which stands while other programs have the CPU."""
        return self.clock.event() if self.clock else time.thread_time_ns()

    def _see(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        call = partial(_call_from, sys._getframe(2), function, args, kwargs)
        if self.mode is None or getattr(function, "__name__", "") in _ATTRIBUTES or _is_traced():
            return call()
        number, is_known, random, begin, is_again, is_of_each = 0, False, None, None, False, False
        start_s = time.perf_counter()
        with suppress(Exception):  # tensors of another kind are the program's own affair
            number, is_known = self.values.call(function, args, kwargs)
            random, begin = self._random(), self._now()
        self.spent_s += time.perf_counter() - start_s
        result = call()
        start_s = time.perf_counter()
        with suppress(Exception):
            end = self._now()
            place, changed = _place(), self.values.changed(args)
            if is_known and random == self._random():
                of = (number, hash(place))
                is_again, is_of_each = number in self.numbers, of in self.earlier
                self.known.add(of)
                self.numbers.add(number)
                if not any(result is each for each in args):
                    self.values.give(result, number)
                for at, each in changed:
                    self.values.give(each, (number, "argument", at))
            if self.step:
                self.calls.append((place, is_again, is_of_each, begin, end))
        self.spent_s += time.perf_counter() - start_s
        if self.spent_s > _MOST_S:
            self.step, self.mode = 0, None
        return result

    def _random(self) -> List[bytes]:
        """The states of the generators of random numbers."""
        torch, on_device = sys.modules["torch"], self.clock is not None
        states = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if on_device else ())]
        return [state.numpy().tobytes() for state in states]


def _call_from(frame: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call it as the program's line does: that is where a warning comes from, by which filters go."""
    if frame.f_code.co_filename.endswith(_HANDS_ON):
        frame = frame.f_back.f_back
    code = _CALL.replace(co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno or 1)
    return FunctionType(code, frame.f_globals)(function, args, kwargs)


def _is_traced() -> bool:
    """Whether somebody records or transforms what PyTorch runs: what this looks at would be part of it."""
    core = sys.modules["torch"]._C
    return bool(
        core._get_tracing_state() or core._len_torch_dispatch_stack() or core._functorch.peek_interpreter_stack()
    )


def _place() -> Stack:
    """The frame that is open and those of the program around it, the innermost first."""
    frame: Any = sys._getframe(2)
    stack: List[Any] = []
    while frame is not None:
        if not is_of_recorder(frame.f_code.co_filename) and (not stack or is_own(frame.f_code.co_filename)):
            stack.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(stack[:_DEPTH])
