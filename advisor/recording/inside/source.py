"""What the source of a program says of a line: what is called there, and which other lines need its result."""

from __future__ import annotations

import ast
import bisect
import dis
import functools
import itertools
import linecache
import re
from types import CodeType
from typing import Any, Iterator, List, Set

_LONGEST = 80
_CALLED = re.compile(r"([A-Za-z_][\w.]*)\(")
_ENTERED = re.compile(r"(?:async )?with ([\w.]+)(?: as \w+)?:")
_PLAIN = re.compile(r"[^'\"\n]{1,40}")
_GROWS = frozenset({"append", "extend", "add", "update", "insert", "put"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def line_at(code: CodeType, instruction: int) -> int:
    """The line of an instruction; of one without a line that of the last one with a line."""
    starts = [(offset, line) for offset, line in dis.findlinestarts(code) if line]
    return starts[max(0, bisect.bisect([offset for offset, _ in starts], instruction) - 1)][1]


@functools.lru_cache(maxsize=4096)
def call_at(code: CodeType, instruction: int) -> Any:
    """What runs there: the name of a call, `model.save_weights`, of what is entered, or a short operator's source.

    None where it has no name. No text of the program's is in it, which may be a secret.
    """
    line = linecache.getline(code.co_filename, line_at(code, instruction)).strip()
    text = _expression(code, instruction)
    try:
        tree = ast.parse(text or line).body
    except (SyntaxError, ValueError):
        tree = []
    names = (_dotted(node.func) for top in tree for node in _own(top) if isinstance(node, ast.Call))
    if name := next(filter(None, names), ""):
        return name[:_LONGEST]
    if entered := _ENTERED.match(line):
        return entered.group(1) + ".__enter__"
    if not tree:
        call = _CALLED.search(text or line)
        return call.group(1)[:_LONGEST] if call else None
    return text if _PLAIN.fullmatch(text) and not text.isidentifier() else None


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
