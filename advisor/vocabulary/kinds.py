"""Kinds of operations, frameworks, host ops, documents and work; categories of a step, and why one is not used."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from advisor.vocabulary.limits import table

DocumentKind: TypeAlias = Literal["report", "comparison", "week", "trials"]  # what JSON that is saved holds
POINT_TO_POINT: Final = ("send", "recv")  # operations between two ranks, whatever the size of their group
XLA_FRAMEWORKS: Final = ("tensorflow", "jax")  # frameworks that compile with XLA, and whose users know XProf's pages
DRIVER_CALLS: Final = ("runtime", "sync", "allocator")  # kinds of host ops that are calls of CUDA's or HIP's API
CATEGORIES: Final = {
    "compute": "kernels run",
    "memcpy": "copies run, and no kernel",
    "memset": "only memsets run",
    "collective": "communication runs that no computation overlaps",
    "launch": "the device waits while the host is in a CUDA or HIP call",
    "input": "the step waits for the data loader",
    "compile": "the step waits for code to be compiled",
    "host": "the step waits for other host code",
    "other": "nothing else that was recorded runs",
}
"""Categories that the frameworks' own tools sort a step into, in the order of PyTorch's, with what happens in each.

Metrics are called after them. What is shown is the accounting.
"""


LEFT_OUT: Final[Mapping[str, str]] = table(__file__, "left_out")

# Why first steps are left out that are long by what happens once
ONCE: Final = ("first_uses", "first_pass", "cold_ops", "warming")
START_UP: Final = ("queue_filling", *ONCE)  # why a first step is left out whose length the steps after it do not have


_WORDS: Final[Mapping[str, Mapping[str, str]]] = table(__file__, "workloads")
WORKLOADS: Final = _WORDS["workloads"]
SIGNS: Final = _WORDS["signs"]
PHASES: Final = _WORDS["phases"]
