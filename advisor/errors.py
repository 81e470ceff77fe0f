"""The error tree. Each message says where, what, and what to do next, on one line.

AdvisorError
 ├─ UsageError        what the user typed or configured            exit 2
 │   └─ RuleError     a rule file: `rules/x.yaml:6: ...`           exit 2
 ├─ StoreError        a fleet's store cannot be used               exit 3
 └─ ReadError         a profile that cannot be read                exit 3
     └─ NothingFound  no profile where one was expected            exit 3

Only `advisor.cli` catches AdvisorError. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


class AdvisorError(Exception):
    """Base of every error that is not a bug."""

    exit_code = 2


class UsageError(AdvisorError):
    """The command line or `advisor.yaml` asks for something that cannot be done."""


class RuleError(UsageError):
    """A rule file is wrong; the message starts with `path:line:`."""


class ReadError(AdvisorError):
    """A profile cannot be read; the message starts with its path."""

    exit_code = 3


class NothingFound(ReadError):  # noqa: N818 - reads as what it says
    """No profile was found in any of the given places."""


class StoreError(AdvisorError):
    """A fleet's store cannot be read or written."""

    exit_code = 3


_FORMS: Final = {
    "missing": "missing",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be text",
    "string_too_short": "must say something",
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "int_parsing": "must be a whole number",
    "dict_type": "must be a mapping of names to values",
    "mapping_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "date_type": "must be a date, as 2027-01-31",
    "date_parsing": "must be a date, as 2027-01-31",
    "date_from_datetime_parsing": "must be a date, as 2027-01-31",
    "date_from_datetime_inexact": "must be a date, as 2027-01-31",
    "path_type": "must be the path of a folder",
}


def form_in_words(error: Mapping[str, Any]) -> str:
    """What pydantic found wrong with the form of a file, in words that do not need to know pydantic."""
    return _FORMS.get(error["type"]) or str(error["msg"]).replace("Input should be", "must be").replace(
        "String should match pattern", "must match"
    )
