"""Names of sampled frames: the innermost line of the program's own code, and the calls below it."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import os
import re
import sys
import sysconfig
from types import CodeType
from typing import Any, Dict, Iterator, List, Tuple

Stack = Tuple[Tuple[CodeType, int, int], ...]
"""Code, place of the instruction and line of each frame, the innermost first."""

_HERE = os.path.dirname(os.path.abspath(__file__))
_MOST_BELOW = 12
_CALLED = re.compile(r"([A-Za-z_][\w.]*)\(")


def described(stack: Stack) -> Dict[str, Any]:
    """The user's innermost line, the call that it makes, and the functions of libraries `below` it, outermost first.

    `above` is the nearest function of a library around the user's: whether it is called by a loader, by a module.
    Without a line of the user's, `below` are all functions.
    """
    frames = [frame for frame in stack if not frame[0].co_filename.startswith(_HERE)]
    own = next((at for at, (code, _, _) in enumerate(frames) if is_own(code.co_filename)), len(frames))
    below = [_function(code) for code, _, _ in reversed(frames[:own])][-_MOST_BELOW:]
    if own == len(frames):
        return {"line": None, "function": None, "call": None, "above": None, "below": below}
    code, instruction, line = frames[own]
    outer = (code for code, _, _ in frames[own:] if not is_own(code.co_filename))
    return {
        "line": "%s:%d" % (_short_path(code.co_filename), line),
        "function": _name(code),
        "call": _call(code, instruction, line),
        "above": next((_function(code) for code in outer), None),
        "below": below,
    }


def call_of(frame: Any) -> Any:
    """The name that a frame calls just now; None where that has none."""
    return _call(frame.f_code, frame.f_lasti, frame.f_lineno or frame.f_code.co_firstlineno)


@functools.lru_cache(maxsize=4096)
def is_own(file: str) -> bool:
    """Whether a file is of the program, not of Python or of an installed package."""
    if file.startswith("<"):
        return False
    path = os.path.abspath(file)
    return not any(path.startswith(folder) for folder in _libraries()) and not re.search(
        r"(?:site|dist)-packages", path
    )


@functools.lru_cache(maxsize=1)
def _libraries() -> List[str]:
    paths = sysconfig.get_paths()
    return [os.path.join(paths[name], "") for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths]


@functools.lru_cache(maxsize=4096)
def _short_path(file: str) -> str:
    """The file below the program's folder or the current one, without the place of these on the machine."""
    path = os.path.abspath(file)
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    for folder in (os.getcwd(), os.path.dirname(os.path.abspath(main)) if main else ""):
        if folder and path.startswith(os.path.join(folder, "")):
            return os.path.relpath(path, folder).replace(os.sep, "/")
    return "/".join(path.replace(os.sep, "/").split("/")[-2:])


@functools.lru_cache(maxsize=4096)
def _function(code: CodeType) -> str:
    """`json/encoder.py: JSONEncoder.encode`, in a library's folder."""
    path = code.co_filename.replace(os.sep, "/")
    path = re.split(r"(?:site|dist)-packages/|/lib/python[\d.]+/", path)[-1]
    return "%s: %s" % ("/".join(path.split("/")[-5:]), _name(code))


def _name(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))


@functools.lru_cache(maxsize=4096)
def _call(code: CodeType, instruction: int, line: int) -> Any:
    """The name that is called there, `model.save_weights`; None where the line calls nothing that has a name."""
    text = _expression(code, instruction) or linecache.getline(code.co_filename, line).strip()
    try:
        tree = ast.parse(text).body
    except (SyntaxError, ValueError):
        call = _CALLED.search(text)
        return call.group(1)[:80] if call else None
    names = (_dotted(node.func) for top in tree for node in ast.walk(top) if isinstance(node, ast.Call))
    return next(filter(None, names), "")[:80] or None


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
    parts: List[str] = list(_parts(node))
    return ".".join(reversed(parts))


def _parts(node: ast.AST) -> Iterator[str]:
    while isinstance(node, ast.Attribute):
        yield node.attr
        node = node.value
    yield node.id if isinstance(node, ast.Name) else ""
