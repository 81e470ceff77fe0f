"""Kinds of operations, frameworks, host ops and saved documents; the categories that tools sort a step into."""

from typing import Final, Literal, TypeAlias

DocumentKind: TypeAlias = Literal["report", "comparison", "week", "trials"]
"""What a document that is saved as JSON holds."""

POINT_TO_POINT: Final = ("send", "recv")
"""Operations between two ranks, whatever the size of their group."""

XLA_FRAMEWORKS: Final = ("tensorflow", "jax")
"""Frameworks that compile with XLA, and whose users know XProf's pages."""

DRIVER_CALLS: Final = ("runtime", "sync", "allocator")
"""Kinds of host ops that are calls of CUDA's or HIP's API."""

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
