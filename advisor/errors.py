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
