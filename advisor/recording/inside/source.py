"""What the source of a program says of a line: what is called there, and which other lines need its result.

And where time went before a handler ran: the interpreter runs it at calls, entries of functions and jumps back alone.
So a signal that comes while an operator runs (`a @ b`) is handled behind it, in a later line or another function.
"""

from __future__ import annotations

import ast
import bisect
import dis
import functools
import inspect
import itertools
import linecache
import re
import sys
from types import CodeType
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

_LONGEST = 80
_CALLED = re.compile(r"([A-Za-z_][\w.]*)\(")
_ENTERED = re.compile(r"(?:async )?with ([\w.]+)(?: as \w+)?:")
_PLAIN = re.compile(r"[^'\"\n]{1,40}")
_FINDS = re.compile(r"(?:^|\.)(?:where|(?:flat)?nonzero|argwhere)$")  # which elements a comparison holds for
_GROWS = frozenset({"append", "extend", "add", "update", "insert", "put"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def line_at(code: CodeType, instruction: int) -> int:
    """The line of an instruction; of one without a line that of the last one with a line."""
    starts = [(offset, line) for offset, line in dis.findlinestarts(code) if line]
    return starts[max(0, bisect.bisect([offset for offset, _ in starts], instruction) - 1)][1]


@functools.lru_cache(maxsize=4096)
def call_at(code: CodeType, instruction: int) -> Any:
    """What runs there: the name of a call, `model.save_weights`, of what is entered, or a short operator's source.

    None where it has no name. No text of the program's is in it, which may be a secret. What picks elements has the
    name of the comparison that they are picked by, `[ids == i]`.
    """
    line = linecache.getline(code.co_filename, line_at(code, instruction)).strip()
    text = _expression(code, instruction)
    try:
        tree = ast.parse(text or line).body
    except (SyntaxError, ValueError):
        tree = []
    calls = {_dotted(node.func): node for top in tree for node in _own(top) if isinstance(node, ast.Call)}
    if name := next(filter(None, calls), ""):
        comparison = [node for node in _conditions(calls[name]) if isinstance(node, ast.Compare)] if text else []
        if not comparison:
            return name[:_LONGEST]
        text = "[%s]" % ast.unparse(comparison[0])
    if entered := _ENTERED.match(line):
        return entered.group(1) + ".__enter__"
    if not tree:
        call = _CALLED.search(text or line)
        return call.group(1)[:_LONGEST] if call else None
    text = ast.unparse(_WithoutTexts().visit(ast.parse(text))) if text else ""
    text = "[%s]" % text if " == " in text and _picks(code, instruction) else text
    return text if _PLAIN.fullmatch(text) and not text.isidentifier() else None


def _conditions(node: ast.AST) -> List[Any]:
    """What elements or rows are picked by: `ids == i` of `x[ids == i]`, of `np.where(ids == i)`, of a comprehension."""
    if isinstance(node, ast.Call) and len(node.args) <= 1 and _FINDS.search(_dotted(node.func)):
        return [*node.args, getattr(node.func, "value", None)]
    return node.ifs if isinstance(node, ast.comprehension) else [node.slice] if isinstance(node, ast.Subscript) else []


def _picks(code: CodeType, instruction: int) -> bool:
    """Whether a comparison there is such a condition, or a part of one."""
    first, _, start, _ = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    conditions = [each for node in ast.walk(_tree(code.co_filename)) for each in _conditions(node) if each is not None]
    parts = (part for each in conditions for part in ast.walk(each) if isinstance(part, ast.Compare))
    return (first, start) in {(part.lineno, part.col_offset) for part in parts}


class _WithoutTexts(ast.NodeTransformer):
    """The same expression with `...` in place of texts."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:  # the name is Python's
        return ast.Constant(...) if isinstance(node.value, (str, bytes)) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant(...)


def _expression(code: CodeType, instruction: int) -> str:
    """The source of the instruction's expression, where this Python knows it: from 3.11 on."""
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return ""
    first, last, start, end = next(itertools.islice(positions(), instruction // 2, None), (None,) * 4)
    if first is None or last is None or start is None or end is None:
        return ""
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return b"".join(lines).decode(errors="replace")


def _dotted(node: ast.AST) -> str:
    """`a.b.c` of names and attributes; of what is computed, what follows it: `.sum`."""
    parts = ""
    while isinstance(node, ast.Attribute):
        parts = ".%s%s" % (node.attr, parts)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else "") + parts


@functools.lru_cache(maxsize=1024)
def lines_that_need(code: CodeType, line: int) -> List[int]:
    """The lines of a function that read what this one computes, or what such a line computes from it."""
    statements = [(each, _reads(each), _targets(each)) for each in _statements(code)]
    names: Set[str] = set()
    for each, _, targets in statements:
        if each.lineno <= line <= _last_line(each):
            names |= targets
    lines: Set[int] = set()
    size = -1
    while size != len(names) + len(lines):
        size = len(names) + len(lines)
        for each, reads, targets in statements:
            if reads & names:
                names |= targets
                lines |= {*range(each.lineno, _last_line(each) + 1)}
    return sorted(lines - {line})


def _last_line(statement: ast.stmt) -> int:
    """Of a loop or a branch, the line of what it iterates over or asks."""
    condition = getattr(statement, "iter", None) or getattr(statement, "test", None)
    return int((statement if condition is None else condition).end_lineno or statement.lineno)


def _statements(code: CodeType) -> Iterator[ast.stmt]:
    for node in ast.walk(_tree(code.co_filename)):
        first = (
            min([node.lineno, *(each.lineno for each in node.decorator_list)]) if isinstance(node, _FUNCTIONS) else 0
        )
        is_module = isinstance(node, ast.Module) and code.co_name == "<module>"
        if is_module or (first == code.co_firstlineno and getattr(node, "name", None) == code.co_name):
            return _inside(node)
    return iter(())


def _inside(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(child, ast.stmt) and not isinstance(child, (ast.With, ast.AsyncWith, ast.Try)):
            yield child
        yield from _inside(child)


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.AST:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, of a loop or a branch without its body."""
    for field, value in ast.iter_fields(statement):
        for node in value if isinstance(value, list) else [value]:
            if field not in ("body", "orelse") and isinstance(node, ast.AST):
                yield from ast.walk(node)


def _reads(statement: ast.stmt) -> Set[str]:
    return {node.id for node in _own(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _targets(statement: ast.stmt) -> Set[str]:
    """Names that a statement assigns, puts an element into, or grows: `rows.append(row)`."""
    names: Set[str] = set()
    for node in _own(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        base = node.value if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
            base = node.func.value
        if isinstance(base, ast.Name):
            names.add(base.id)
    return names


Frame = Tuple[CodeType, int]  # code, and place of the instruction in it
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
    if not frames:
        return frames
    of = _instructions(frames[0][0])
    at = of.at(frames[0][1])
    is_entry = at == (of.names.index("RESUME") if "RESUME" in of.names else 0)
    inner = 1 if len(frames) > 1 and is_entry else 0  # only just entered: its caller was at work
    if inner == 0 and of.names[at].startswith(_CALLS) and not _is_quick(*frames[0]):
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
        [
            of.opname.startswith(_CHECKS)
            and not of.opname.startswith(_UNCHECKED)
            and not (of.opname.startswith(_CALLS) and _is_quick(code, of.offset))
            for of in each
        ],
        before,
    )


def _rank(instruction: dis.Instruction, before: dis.Instruction) -> int:
    name, sign = instruction.opname, instruction.argrepr
    if sign in _SLOW or name == "CONTAINS_OP" or "MATRIX" in name or "POWER" in name:
        return 3
    if name.startswith(_ELEMENTS) or sign.startswith("[]"):
        return 1
    if name.startswith(_OPERATORS):
        return 1 if before.opname.startswith(("LOAD_CONST", "LOAD_SMALL_INT")) else 2
    return 0
