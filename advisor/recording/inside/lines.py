"""Names of sampled frames: the innermost line of the program's own code, and the calls below it."""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
from types import CodeType
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from .source import IN_PASSING, Frame, at_work, call_at, line_at, lines_that_need

Stack = Tuple[Frame, ...]  # the frames of a stack, the innermost first
_HERE = os.path.dirname(os.path.abspath(__file__))
_START = os.getcwd()  # the program may leave it, and remove the next one
# Where PyTorch's loader, or TensorFlow's threads, have Python make a batch, whatever libraries are in between
FETCHES = ("torch/utils/data/_utils/fetch.py", "tensorflow/python/ops/script_ops.py")
_EVALUATES = re.compile(  # functions of Lightning, transformers, Keras and of users' own loops
    r"evaluation_loop\.py: |(?:^|[./ ])_?(?:evaluate|evaluation_loop|run_evaluation|validate|validation_loop|"
    r"estimate_loss|(?:eval|evaluate|validate|validation)_(?:epoch|model))$"
)
_MOST_BELOW = 12
_MOST_CALLERS = 16
_COUNTS_JAX = os.path.join(_HERE, "jax_steps.py")
_JITTED = "jax/_src/pjit.py: jit"  # JAX has no frame where it calls what is compiled


def described(stack: Stack) -> Dict[str, Any]:
    """The user's innermost line, the call that it makes, and the functions of libraries `below` it, outermost first.

    `callers` are the lines of the user's around it, outermost first; `needed` of each line are those of its function
    that need its result. `above` is the nearest function of a library around the user's: whether it is called by a
    loader, by a module. `above_call` is what that calls: a data set or a `collate_fn`. `of_fetch` of the user's frames,
    from the innermost on, make a batch; None where no batch is made. `evaluates` is the outermost function that
    evaluates the model. Without a line of the user's, `below` are all functions.
    """
    jitted = [_JITTED] if any(code.co_filename.endswith(_COUNTS_JAX) for code, _ in stack) else []
    frames = at_work([frame for frame in stack if not is_of_recorder(frame[0].co_filename)])
    own = next((at for at, (code, _) in enumerate(frames) if is_own(code.co_filename)), len(frames))
    below = [*(_function(code) for code, _ in reversed(frames[:own])), *jitted][-_MOST_BELOW:]
    fetch = next((at for at, (code, _) in enumerate(frames) if code.co_filename.endswith(FETCHES)), None)
    of_fetch = None if fetch is None else sum(is_own(code.co_filename) for code, _ in frames[:fetch])
    evaluates = next(filter(_EVALUATES.search, (_function(code) for code, _ in reversed(frames))), None)
    about = {"of_fetch": of_fetch, "evaluates": evaluates, "below": below}
    if own == len(frames):
        return dict(dict.fromkeys(("line", "function", "call", "above", "above_call")), **about)
    around = frames[own + 1 :]
    callers = [_line(*frame) for frame in reversed(around) if is_own(frame[0].co_filename)]
    library = next((frame for frame in frames[own:] if not is_own(frame[0].co_filename)), None)
    above, above_call = (_function(library[0]), call_at(*library)) if library else (None, None)
    line = _line(*frames[own])
    if own == 0 and IN_PASSING.search(line["call"] or ""):  # the handler ran there, and the work was before
        line = dict(line, call=None)
    return dict(line, callers=callers[-_MOST_CALLERS:], above=above, above_call=above_call, **about)


def together(weights: Iterable[Tuple[Stack, Sequence[int]]]) -> List[Dict[str, Any]]:
    """Each line with the calls below it, most time first: its samples and what they weigh in ns, and in long steps."""
    merged: Dict[str, Dict[str, Any]] = {}
    for stack, weight in weights:
        names = described(stack)
        of = merged.setdefault(repr(names), dict(names, samples=0, ns=0, long_ns=0))
        for name, value in zip(("samples", "ns", "long_ns"), weight):
            of[name] += value
    return sorted(merged.values(), key=lambda each: -int(each["ns"]))


@functools.lru_cache(maxsize=4096)
def _line(code: CodeType, instruction: int) -> Dict[str, Any]:
    line = line_at(code, instruction)
    return {
        "line": "%s:%d" % (_short_path(code.co_filename), line),
        "function": _name(code),
        "call": call_at(code, instruction),
        "needed": lines_that_need(code, line),
    }


def is_of_recorder(file: str) -> bool:
    """Whether a file is of the recording itself."""
    return file.startswith(_HERE)


@functools.lru_cache(maxsize=4096)
def is_own(file: str) -> bool:
    """Whether a file is of the program, not of Python or of an installed package."""
    if file.startswith("<"):
        return False
    path = os.path.join(_START, file)
    is_library = any(path.startswith(folder) for folder in _libraries())
    return not (is_library or re.search(r"(?:site|dist)-packages", path))


@functools.lru_cache(maxsize=1)
def _libraries() -> List[str]:
    paths = sysconfig.get_paths()
    return [os.path.join(paths[name], "") for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths]


@functools.lru_cache(maxsize=4096)
def _short_path(file: str) -> str:
    """The file below the program's folder or the current one, without the place of these on the machine."""
    path = os.path.normpath(os.path.join(_START, file))
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    for folder in (_START, os.path.dirname(os.path.join(_START, main)) if main else ""):
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
