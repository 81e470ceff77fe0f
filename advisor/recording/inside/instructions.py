"""Where time went before a handler ran: the interpreter runs it at calls, entries of functions and jumps back alone.

So a signal that comes while an operator runs (`a @ b`) is handled behind it, in a later line or another function.
"""

from __future__ import annotations

import bisect
import dis
import functools
import inspect
import re
import sys
from types import CodeType
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from .source import call_at

Frame = Tuple[CodeType, int]
"""Code, and place of the instruction in it."""

_CALLS = ("CALL", "PRECALL")  # Python 3.11 does simple calls in the first of the two instructions
_CHECKS = (*_CALLS, "RESUME", "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "JUMP_ABSOLUTE")
_UNCHECKED = ("CALL_INTRINSIC", "JUMP_BACKWARD_NO_INTERRUPT")
_ENDS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RETURN", "RAISE", "RERAISE")
_SLOW = frozenset({"@", "@=", "**", "in", "not in"})
_OPERATORS = (
    *("BINARY_", "INPLACE_", "UNARY_", "COMPARE_OP"),
    *("LIST_EXTEND", "SET_UPDATE", "DICT_", "UNPACK_EX", "DELETE_"),
)
_ELEMENTS = ("BINARY_SUBSCR", "STORE_SUBSCR", "FOR_ITER")
IN_PASSING = re.compile(
    r"(?:^|\.)(?:append|enumerate|[gs]etattr|hasattr|id|is(?:instance|subclass)|items|keys|len|ord|range|type|values|zip)$"
)
"""Calls that take no time, and wait for nothing; at some of them handlers do not run."""


def at_work(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames, innermost first, with the innermost at what took the time until a handler ran."""
    inner = 1 if len(frames) > 1 and _is_entry(*frames[0]) else 0  # only just entered: its caller was at work
    if not frames or (inner == 0 and _is_call(*frames[0]) and not _is_quick(*frames[0])):
        return frames
    before = _operator_before(*frames[inner])
    return [*before, *frames[inner + 1 :]] if before else frames


class _Instructions(NamedTuple):
    """Of a code: offsets, names, how likely each takes long, whether handlers run at it, and which ones come before."""

    offsets: List[int]
    names: List[str]
    ranks: List[int]
    checks: List[bool]
    before: List[List[int]]

    def at(self, offset: int) -> int:
        """The number of the instruction at an offset."""
        return max(0, bisect.bisect(self.offsets, offset) - 1)


def _is_entry(code: CodeType, instruction: int) -> bool:
    of = _instructions(code)
    return of.at(instruction) == (of.names.index("RESUME") if "RESUME" in of.names else 0)


def _is_call(code: CodeType, instruction: int) -> bool:
    of = _instructions(code)
    return of.names[of.at(instruction)].startswith(_CALLS)


def _is_quick(code: CodeType, instruction: int) -> bool:
    call = call_at(code, instruction) or ""
    return bool(IN_PASSING.search(call)) or call.rpartition(".")[2] in ("get", "iter")


@functools.lru_cache(maxsize=4096)
def _operator_before(code: CodeType, instruction: int) -> Sequence[Frame]:
    """The frames at the operator that most likely ran before an instruction; none where no handler runs at it.

    It is in this function behind the last place where handlers run, or at the end of a function called there.
    """
    of = _instructions(code)
    start = of.at(instruction)
    if of.names[start].startswith("COMPARE_") and of.checks[start + 1]:
        start += 1  # the interpreter runs both as one
    elif of.names[start - 1] == "PRECALL":
        start -= 1
    if not (of.checks[start] or of.names[start].startswith(_CALLS)):
        return []  # the handler ran while it waited
    operator, calls = _slowest(of, [start])
    if operator is not None:
        return [(code, of.offsets[operator])]
    for call in calls:
        callee = _callee(code, of.offsets[call])
        if callee is not None:
            inner = _instructions(callee)
            ends = [at for at, name in enumerate(inner.names) if name.startswith("RETURN_")]
            last, _ = _slowest(inner, ends)
            if last is not None:
                return [(callee, inner.offsets[last]), (code, of.offsets[call])]
    return []


def _slowest(of: _Instructions, ahead: List[int]) -> Tuple[Optional[int], List[int]]:
    """Of the operators before some instructions, back to where handlers run, the slowest kind; and the calls there.

    Behind a turn of a loop, one in it is as likely as a slower one before the loop.
    """
    best, most, start = None, 0, ahead[0] if ahead else 0
    loop = next((at for at in range(start) if start in of.before[at]), start)
    calls: List[int] = []
    for at in ahead:
        for earlier in of.before[at]:
            if of.checks[earlier]:
                calls.append(earlier)
            elif earlier not in ahead:
                ahead.append(earlier)
                rank = of.ranks[earlier] and of.ranks[earlier] + (loop <= earlier < start)
                best, most = (earlier, rank) if rank > most else (best, most)
    return best, calls


def _callee(code: CodeType, instruction: int) -> Optional[CodeType]:
    """The function of Python that a name calls there, where that is known: of its module or class, or within it."""
    first, *rest = (call_at(code, instruction) or "").split(".")
    inner = next((each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == first), None)
    if inner is not None and not rest:
        return inner
    modules = (module for module in [*sys.modules.values()] if getattr(module, "__file__", None) == code.co_filename)
    value: Any = next(modules, None)
    owner = getattr(code, "co_qualname", "").split(".")[:-1] if first == "self" else [first]
    for name in [*owner, *rest]:
        value = inspect.getattr_static(value, name, None)
    return getattr(value, "__code__", None)


@functools.lru_cache(maxsize=1024)
def _instructions(code: CodeType) -> _Instructions:
    each = list(dis.get_instructions(code))
    places = {instruction.offset: at for at, instruction in enumerate(each)}
    before: List[List[int]] = [[] for _ in each]
    for at, instruction in enumerate(each):
        if at and not each[at - 1].opname.startswith(_ENDS):
            before[at].append(at - 1)
        if instruction.opcode in {*dis.hasjrel, *dis.hasjabs} and instruction.argval in places:
            before[places[instruction.argval]].append(at)
    names = [instruction.opname for instruction in each]
    return _Instructions(
        [instruction.offset for instruction in each],
        names,
        [_rank(instruction, each[max(0, at - 1)]) for at, instruction in enumerate(each)],
        [_is_check(code, instruction) for instruction in each],
        before,
    )


def _is_check(code: CodeType, instruction: dis.Instruction) -> bool:
    name = instruction.opname
    if not name.startswith(_CHECKS) or name.startswith(_UNCHECKED):
        return False
    return not (name.startswith(_CALLS) and _is_quick(code, instruction.offset))


def _rank(instruction: dis.Instruction, before: dis.Instruction) -> int:
    name, sign = instruction.opname, instruction.argrepr
    if sign in _SLOW or name == "CONTAINS_OP" or "MATRIX" in name or "POWER" in name:
        return 3
    if name.startswith(_ELEMENTS) or sign.startswith("[]"):
        return 1
    if name.startswith(_OPERATORS):
        return 1 if before.opname.startswith(("LOAD_CONST", "LOAD_SMALL_INT")) else 2
    return 0
