"""One package per profile format, each with `read`; `FORMATS` is where they are registered.

What tells a format's files stands here and not in its package: discovery then imports the one reader that it needs.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple


class Format(NamedTuple):
    """A kind of file and what tells it.

    Attributes:
        name: The reader's package in this folder.
        title: What to call such a file.
        own: Endings, in lower case, that no other program gives its files.
        shared: Endings that others use too: there `sign` decides.
        sign: Regular expression for what the first bytes, unpacked, contain.
        openings: What a file with an `own` ending must begin with if its sign comes late.
        reads: What the reader reads, in the plural, with the endings; empty where there is no reader.
        folder_per_run: Whether the profiler gives each run a folder of its own.
    """

    name: str
    title: str
    own: tuple[str, ...]
    shared: tuple[str, ...] = ()
    sign: bytes = rb"(?!)"
    openings: tuple[bytes, ...] = (b"",)
    reads: str = ""
    folder_per_run: bool = False


XPLANE: Final = Format(
    "xplane",
    "a TensorFlow or JAX profile",
    (".xplane.pb",),
    reads="TensorFlow and JAX profiles (*.xplane.pb, or the *.trace.json.gz beside it)",
    folder_per_run=True,
)
VIEWER: Final = Format(
    "xplane",
    "the trace viewer's copy of a TensorFlow or JAX profile",
    (),
    sign=rb'"highres-ticks"',
    reads=XPLANE.reads,
    folder_per_run=True,
)
NSYS: Final = Format(
    "nsys",
    "an Nsight Systems profile",
    (".nsys-rep", ".qdrep"),
    (".sqlite",),
    rb"^SQLite(?s:.)*(?:TARGET_INFO|ENUM_NSYS|ENUM_CUDA|NVTX_EVENTS|CUPTI_ACTIVITY|StringIds)",
    reads="Nsight Systems exports (*.sqlite, parquetdir; *.nsys-rep where nsys is installed)",
)
KINETO: Final = Format(
    "kineto",
    "a PyTorch Profiler trace",
    (".pt.trace.json", ".pt.trace.json.gz"),
    (".json", ".json.gz"),
    rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:|"ph"\s*:\s*"',
    openings=(b"{", b"["),
    reads="PyTorch Profiler traces (*.pt.trace.json, *.pt.trace.json.gz)",
)
MEMORY: Final = Format("memory", "a PyTorch memory profile", (".memory.json", ".memory.json.gz"))

FORMATS: Final = (VIEWER, KINETO, XPLANE, NSYS, MEMORY)
"""The first whose sign matches wins: the viewer data of TensorFlow and JAX are Chrome traces too."""


def reader(profile_format: str) -> ModuleType:
    """The reader of a format, imported at its first use."""
    return import_module(f"advisor.inputs.readers.{profile_format}")
