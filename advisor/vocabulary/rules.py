"""Words of rules and fixes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

UNSEEN: Final = {
    "environment": "it has no environment variables",
    "code": "it shows what ran, not how the program asks for it",
    "machine": "it does not show how the machine is set up",
    "data": "it does not show how the data are stored",
    "option": "no profiler records this option",
    "elsewhere": "the answer lies outside of it",
}
"""Why a recording cannot show whether a job has a fix already."""


class Question(NamedTuple):
    """What `advisor rules new` asks, and the answer that it takes if there is none; None: there must be one."""

    words: str
    usual: str | None = None


QUESTIONS: Final[Mapping[str, Question]] = {
    "kind": Question("What is slow: ops, kernels, calls, frames, ranges or copies?", "kernels"),
    "names": Question("Which names? A regular expression (of copies HtoD, DtoH, DtoD or PtoP)"),
    "title": Question("What is wrong, in a few words?"),
    "limit": Question("From which share of the step on?", "5 %"),
    "why": Question("Why does it take time?"),
    "fix": Question("What to change?"),
    "change": Question("What would the change do: without, faster, overlapped, merged or nothing?", "without"),
}
"""By the name of the option that answers."""
