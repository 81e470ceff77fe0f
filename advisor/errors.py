"""The error tree. Each message says where, what, and what to do next, on one line.

AdvisorError
 ├─ UsageError        what the user typed or configured            exit 2
 │   └─ RuleError     a rule file: `rules/x.yaml:6: ...`           exit 2
 ├─ StoreError        a fleet's store cannot be used               exit 3
 └─ ReadError         a profile that cannot be read                exit 3
     ├─ NothingRecorded  a whole profile without activity       exit 3
     └─ NoRuns        no profile where one was expected            exit 3

Only `advisor.cli` catches AdvisorError. Anything else is a bug: `contained` keeps it to the file, metric or rule that
it came up in, and what nothing contains ends the command with exit code 70.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from pydantic import ValidationError

_T = TypeVar("_T")

BUG_EXIT_CODE: Final = 70  # of a bug that ends the command: EX_SOFTWARE of sysexits.h. 1 would mean findings


class AdvisorError(Exception):
    """Base of every error that is not a bug."""

    exit_code = 2


class UsageError(AdvisorError):
    """The command line or `advisor.yaml` asks for something that cannot be done."""


class RuleError(UsageError):
    """A rule file is wrong; the message starts with `path:line:`, else with where: keys and indices."""

    def __init__(self, problem: str, at: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{'.'.join(map(str, at))}: {problem}" if at else problem)
        self.problem, self.at = problem, at


class ReadError(AdvisorError):
    """A profile cannot be read; the message starts with its path, `why` is what is wrong and what to do."""

    exit_code = 3

    def __init__(self, why: str, path: str | Path | None = None) -> None:
        super().__init__(why if path is None else f"{path}: {why}")
        self.why = why


class NothingRecorded(ReadError):  # noqa: N818 - reads as what it says
    """A profile that is whole and in which nothing of the program was recorded."""


class NoRuns(ReadError):  # noqa: N818 - reads as what it says
    """None of the given places holds a profile or a run."""


class StoreError(AdvisorError):
    """A fleet's store cannot be read or written."""

    exit_code = 3


def contained(work: Callable[[], _T], instead: Callable[[str], _T]) -> _T:
    """What `work` gives; of a bug in it, what `instead` makes of the kind of its exception.

    The exception's text may quote the trace, and so goes nowhere. Panics of libraries in Rust are contained too: they
    are no Exception. With ADVISOR_DEBUG=1 the traceback goes to standard error.
    """
    try:
        return work()
    except (AdvisorError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic is one
        if os.environ.get("ADVISOR_DEBUG"):
            traceback.print_exception(error)
        return instead(type(error).__name__)


def failure(kind: str) -> str:
    """The kind of an exception as a sentence, without its full stop."""
    if kind == MemoryError.__name__:
        return "there is not enough memory for it; record fewer steps, or check it on a larger machine"
    return f"advisor failed on it ({kind}); please report this"


_UNKNOWN: Final = "extra_forbidden"
_KINDS: Final = {
    "missing": "missing",
    "{error}": "value_error",
    "must be a list": "tuple_type list_type",
    "must be text": "string_type",
    "must have {min_length} characters or more": "string_too_short",
    "longer than {max_length:,} characters": "string_too_long",
    "must not be empty": "too_short",
    "must be true or false": "bool_type",
    "must be a number": "float_type float_parsing",
    "must be a whole number": "int_parsing",
    "must be a mapping of names to values": "dict_type mapping_type model_type",
    "must be a date, as 2027-01-31": "date_type date_parsing date_from_datetime_parsing date_from_datetime_inexact",
    "must be the path of a folder": "path_type",
}
_FORMS: Final = {kind: words for words, kinds in _KINDS.items() for kind in kinds.split()}


def wrong_form(error: ValidationError, unknown: str) -> tuple[tuple[str | int, ...], str]:
    """Where in a file the first mistake in its form is, and what it is, for who does not know pydantic.

    A misspelt key is both unknown and missing: the place where it stands helps more, and `unknown` says what it is
    not. A key is shown only if it looks like one: the file may be another, and what it holds secret.
    """
    first = min(error.errors(include_url=False, include_input=False), key=lambda e: e["type"] != _UNKNOWN)
    at = first["loc"]
    is_unknown = first["type"] == _UNKNOWN
    words = str(first["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    words = words.replace("String should match pattern", "must match")
    if form := _FORMS.get(first["type"]):
        words = form.format_map(first.get("ctx", {}))
    key = at[:-1] if is_unknown and not re.fullmatch(r"[a-z_]{1,30}", str(at[-1])) else at
    return at, ": ".join(filter(None, (".".join(map(str, key)), unknown if is_unknown else words)))
