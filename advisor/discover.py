"""Finds the profiles in files, folders and object stores, and sorts the files of each job into runs."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import zip_longest
from typing import IO, Any, Final, cast
from urllib.parse import unquote

from advisor.errors import AdvisorError, ReadError, UsageError


@dataclass(frozen=True, slots=True)
class Found:
    """One run: the profiles that the workers of one job recorded together.

    Attributes:
        name: Short, and unique among the runs found together.
        path: The file or folder that it was found in.
        format: The reader's name in `advisor.readers`.
        files: One per worker, in natural order (rank2 before rank10).
    """

    name: str
    path: str
    format: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file or folder that holds nothing readable: why, and what to do."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of profile and what tells it.

    Attributes:
        name: The reader's name in `advisor.readers`.
        title: What to call such a file.
        readable: Whether there is a reader.
        suffixes: Endings, in lower case, that no other program gives its files.
        shared: Endings that others use too: there `sign` decides.
        sign: What the first bytes, unpacked, contain.
        openings: What a file with one of `suffixes` must begin with where its sign comes late.
    """

    name: str
    title: str
    readable: bool
    suffixes: tuple[str, ...]
    shared: tuple[str, ...]
    sign: re.Pattern[bytes]
    openings: tuple[bytes, ...] = (b"",)


_NEVER: Final = re.compile(rb"(?!)")

# The first match wins: the viewer data of TensorFlow and JAX are Chrome traces too.
FORMATS: Final = (
    Format(
        name="xplane",
        title="a TensorFlow or JAX profile",
        readable=False,
        suffixes=(".xplane.pb",),
        shared=(".trace.json.gz",),
        sign=re.compile(rb'"highres-ticks"'),
    ),
    Format(
        name="nsys",
        title="an Nsight Systems profile",
        readable=False,
        suffixes=(".nsys-rep", ".qdrep"),
        shared=(".sqlite",),
        sign=re.compile(rb"^SQLite format 3\0(?s:.)*TARGET_INFO"),
    ),
    Format(
        name="memory",
        title="a PyTorch memory profile",
        readable=False,
        suffixes=(".memory.json", ".memory.json.gz"),
        shared=(),
        sign=_NEVER,
    ),
    Format(
        name="kineto",
        title="a PyTorch Profiler trace",
        readable=True,
        suffixes=(".pt.trace.json", ".pt.trace.json.gz"),
        shared=(".json", ".json.gz"),
        sign=re.compile(rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:|"ph"\s*:\s*"'),
        openings=(b"{", b"["),
    ),
)

_READS: Final = "this version reads PyTorch Profiler traces (*.pt.trace.json, *.pt.trace.json.gz) only"
_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_HEAD_BYTES: Final = 64 << 10
_HEADS_AT_ONCE: Final = 64
_BLOCK_BYTES: Final = 8 << 20
_BLOCKS: Final = 3  # of each remote file in memory: the one being read, the one before, the one on its way

# `rank0_step_12.1694128201545`: what tells one recording of a worker from its next
_RECORDING: Final = re.compile(
    r"[._-]?(?:step|iter|iteration|epoch)[._-]?([0-9]+)|(?:^|[._-])([0-9]{10,})(?:\.[0-9]+)?(?![^._-])", re.IGNORECASE
)
_SUFFIX: Final = re.compile(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$|(?<=.)\.[^.]*$", re.IGNORECASE)


def discover(paths: Sequence[str]) -> tuple[list[Found], list[Rejected]]:
    """The runs under `paths`, and what could not be taken.

    A file is a run of its own. The profiles directly in a folder are one run, or several where its workers recorded
    several times. Folders are searched to any depth, without hidden ones; their other files are passed over.

    Args:
        paths: Files, folders, and URLs of either in any store that fsspec knows (`s3://bucket/prefix`).

    Raises:
        ReadError: One of `paths` does not exist or is closed to us.
        UsageError: A URL's protocol is unknown, or its package is missing.
    """
    runs: dict[Found, None] = {}  # each once, in order: `paths` may overlap
    rejected: dict[Rejected, None] = {}
    for path in map(_tidy, paths):
        files = _listing(path)
        looks = [_look(path, head) for head in _heads([path])] if files is None else _looks(files)
        good = [look for look in looks if not look.why]
        runs |= dict.fromkeys(_runs(good) if files is not None else [Found("", path, k.kind.name, (path,)) for k in good])
        rejected |= dict.fromkeys(_grouped(looks))
    return _named(list(runs)), list(rejected)
