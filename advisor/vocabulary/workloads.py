"""Kinds of work, what shows them, and the phases of a server's steps, in the words of workloads.yaml."""

from collections.abc import Mapping
from typing import Final

from advisor.vocabulary.limits import table

_WORDS: Final[Mapping[str, Mapping[str, str]]] = table(__file__, "workloads")
WORKLOADS: Final = _WORDS["workloads"]
SIGNS: Final = _WORDS["signs"]
PHASES: Final = _WORDS["phases"]
