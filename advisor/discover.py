"""Finds the profiles in files, folders and object stores, and sorts the files of each job into runs."""

from __future__ import annotations

import io
import os
import re
import stat
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast
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


class Format(NamedTuple):
    """A kind of profile and what tells it.

    Attributes:
        name: The reader's name in `advisor.readers`.
        title: What to call such a file.
        own: Endings, in lower case, that no other program gives its files.
        shared: Endings that others use too: there `sign` decides.
        sign: Regular expression for what the first bytes, unpacked, contain.
        openings: What a file with an `own` ending must begin with if its sign comes late.
        readable: Whether there is a reader.
    """

    name: str
    title: str
    own: tuple[str, ...]
    shared: tuple[str, ...]
    sign: bytes
    openings: tuple[bytes, ...] = (b"",)
    readable: bool = False


# The first match wins: the viewer data of TensorFlow and JAX are Chrome traces too.
FORMATS: Final = (
    Format("xplane", "a TensorFlow or JAX profile", (".xplane.pb",), (), rb'"highres-ticks"'),
    Format("nsys", "an Nsight Systems profile", (".nsys-rep", ".qdrep"), (".sqlite",), rb"^SQLite(?s:.)*TARGET_INFO"),
    Format("memory", "a PyTorch memory profile", (".memory.json", ".memory.json.gz"), (), rb"(?!)"),
    Format(
        "kineto",
        "a PyTorch Profiler trace",
        (".pt.trace.json", ".pt.trace.json.gz"),
        (".json", ".json.gz"),
        rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:|"ph"\s*:\s*"',
        openings=(b"{", b"["),
        readable=True,
    ),
)

_READS: Final = "this version reads PyTorch Profiler traces (*.pt.trace.json, *.pt.trace.json.gz) only"
_TWIN: Final = "the unpacked copy of the .gz beside it, which is read instead"
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"
_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_HEAD_BYTES: Final = 64 << 10
_HEADS_AT_ONCE: Final = 64
_BLOCK_BYTES: Final = 8 << 20
_BLOCKS: Final = 3  # of a remote file in memory: the one before, the one being read, the one on its way

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
    found: dict[Found, None] = {}  # each once, in order: `paths` may overlap
    rejected: dict[Rejected, None] = {}
    for path in map(_tidy, paths):
        listing = _listing(path)
        runs, others = _in_file(path) if listing is None else _in_folder(path, *listing)
        found |= dict.fromkeys(runs)
        rejected |= dict.fromkeys(others)
    return _named(list(found)), list(rejected)


def recordings(files: Iterable[str]) -> list[tuple[str, ...]]:
    """The profiles of one folder as runs: the k-th recording of each worker, by step or time, belongs to run k."""
    of_worker = defaultdict(list)
    for file in sorted(files, key=lambda file: (_recorded(file), _natural(file))):
        of_worker[_RECORDING.sub("", _stem(file))].append(file)
    return [tuple(sorted(filter(None, run), key=_natural)) for run in zip_longest(*of_worker.values())]


def open_file(path: str) -> IO[bytes]:
    """A file or URL, to be read from its beginning to its end.

    Raises:
        ReadError: It cannot be opened; raised by a URL's `read` as well, where the connection breaks.
        UsageError: A URL's protocol is unknown, or its package is missing.
    """
    path = _tidy(path)
    with _reaching(path):
        if not _is_url(path):
            return Path(path).open("rb")
        store, inner = _store(path)
        options = {"cache_type": "background", "cache_options": {"maxblocks": _BLOCKS}}
        return cast("IO[bytes]", _RemoteFile(store.open(inner, "rb", block_size=_BLOCK_BYTES, **options), path))


def size(path: str) -> int | None:
    """Bytes in a file or URL; None where that cannot be told."""
    path = _tidy(path)
    try:
        with _reaching(path):
            if not _is_url(path):
                return Path(path).stat().st_size
            store, inner = _store(path)
            return cast("int | None", store.size(inner))
    except ReadError:
        return None


# ---------------------------------------------------------------------------------------------- what a file is


class _Look(NamedTuple):
    """What the first bytes of a file tell: its kind, where known, and why it cannot be read, if so."""

    path: str
    kind: Format | None
    why: str = ""


def _in_file(path: str) -> tuple[list[Found], list[Rejected]]:
    look = _look(path, next(_heads([path])))
    if look.why or not look.kind:
        return [], [Rejected(path, look.why)]
    return [Found("", path, look.kind.name, (path,))], []


def _in_folder(path: str, files: list[str], closed: list[Rejected]) -> tuple[list[Found], list[Rejected]]:
    files = [file for file in files if _kind(file, lambda kind: kind.own + kind.shared)]
    looks = [look for look in map(_look, files, _heads(files)) if look.kind]
    good = {look.path for look in looks if not look.why}
    twins = {path for path in good if f"{path}.gz" in good}
    looks = [look._replace(why=_TWIN) if look.path in twins else look for look in looks]
    rejected = closed + _summed_up(look for look in looks if look.why)
    if not (good or rejected):
        rejected = [Rejected(path, f"no profile in this folder; {_READS}")]
    return list(_runs(look for look in looks if not look.why)), rejected


def _look(path: str, head: bytes | Exception) -> _Look:
    own = _kind(path, lambda kind: kind.own)
    likely = own or _kind(path, lambda kind: kind.shared)
    if isinstance(head, Exception):
        return _Look(path, likely, _says(head))
    if not head:
        return _Look(path, own, "empty: the recording or a copy of it broke off; do it again")
    if head.startswith(b"version https://git-lfs"):
        return _Look(path, likely, "a Git LFS pointer in place of the file; fetch that with `git lfs pull`")
    text = _unpacked(head)
    kind = own or next((kind for kind in FORMATS if re.search(kind.sign, text)), None)
    return _Look(path, kind, _objection(kind, text))


def _objection(kind: Format | None, text: bytes) -> str:
    """Why a file of this kind that begins with `text` cannot be read; empty if it can."""
    if kind and not kind.readable:
        return f"{kind.title}; {_READS}"
    if not text:
        return "nothing of this gzip file can be unpacked; record or copy it again"
    if kind and (re.search(kind.sign, text) or text.lstrip(_BLANK).startswith(kind.openings)):
        return ""
    if kind:
        return f"{kind.title} by its name but not by its content; record or copy it again"
    if b'"advisor_version"' in text:
        return "a report of advisor; give the profile that it is about"
    return f"not a profile; {_READS}"


def _unpacked(head: bytes) -> bytes:
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD_BYTES)
    except zlib.error:
        return b""


def _kind(path: str, endings: Callable[[Format], tuple[str, ...]]) -> Format | None:
    return next((kind for kind in FORMATS if path.lower().endswith(endings(kind))), None)


def _summed_up(looks: Iterable[_Look]) -> list[Rejected]:
    """One line per folder and reason: a job may have many ranks."""
    alike = defaultdict(list)
    for look in looks:
        alike[_folder(look.path), look.why].append(look.path)
    return [
        Rejected(first, f"{why} (and {len(others)} more here)" if others else why)
        for (_, why), (first, *others) in alike.items()
    ]


# ---------------------------------------------------------------------------------------------- runs and their names


def _runs(looks: Iterable[_Look]) -> Iterator[Found]:
    """One or several runs per folder, so far named by their numbers only."""
    of_folder: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for look in looks:
        of_folder[_folder(look.path)][look.kind.name if look.kind else ""].append(look.path)
    for folder, kinds in of_folder.items():
        runs = [(kind, run) for kind, files in kinds.items() for run in recordings(files)]
        for number, (kind, run) in enumerate(runs, start=1):
            yield Found(f"#{number}" if number > 1 else "", folder, kind, run)


def _named(runs: Sequence[Found]) -> list[Found]:
    """Each run with as much of its path for a name as tells it from the others."""
    longer = [_names(run) for run in runs]
    names = [of[0] for of in longer]
    for depth in range(1, max(map(len, longer), default=0)):
        times = Counter(names)
        names = [
            of[min(depth, len(of) - 1)] if times[name] > 1 else name for name, of in zip(names, longer, strict=True)
        ]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _names(run: Found) -> list[str]:
    """Names for a run, each longer than the one before; the last is its whole path."""
    path = run.path.partition("://")[2] if _is_url(run.path) else Path(run.path).resolve().as_posix()
    *above, last = [part for part in path.split("/") if part] or [run.path]
    parts = [*above, _stem(last) if run.files == (run.path,) else last]
    return ["/".join(parts[-depth:]) + run.name for depth in range(1, len(parts) + 1)] + [run.path + run.name]


def _stem(file: str) -> str:
    return _SUFFIX.sub("", file.rpartition("/")[2])


def _folder(file: str) -> str:
    return file.rpartition("/")[0] or "/"


def _natural(text: str) -> tuple[list[str | int], str]:
    parts = re.split(r"([0-9]+)", text.lower())
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], text


def _recorded(file: str) -> list[int]:
    return [int(step or time) for step, time in _RECORDING.findall(_stem(file))]


# ---------------------------------------------------------------------------------------------- disk and stores


def _is_url(path: str) -> bool:
    return "://" in path


def _tidy(path: str) -> str:
    if not path:
        raise UsageError("an empty path was given; name a file, a folder or a URL")
    if path.startswith("file://"):
        path = unquote(path.removeprefix("file://"))
    protocol, sign, rest = path.rpartition("://")
    return protocol + sign + (rest.rstrip("/") or rest[:1])


def _listing(path: str) -> tuple[list[str], list[Rejected]] | None:
    """All files under a folder, in natural order, and its closed sub-folders; None if `path` is a file."""
    with _reaching(path):
        if not _is_url(path):
            return _walked(path) if stat.S_ISDIR(Path(path).stat().st_mode) else None
        store, inner = _store(path)
        store.invalidate_cache()  # it may remember an earlier look
        if store.info(inner)["type"] == "file":
            return None
        below = [file[len(inner) :] for file in store.find(inner)]
    return sorted((path + file for file in below if "/." not in file), key=_natural), []


def _walked(root: str) -> tuple[list[str], list[Rejected]]:
    """As `_listing`; links are followed last, so that a folder goes by its real name."""
    files: list[str] = []
    closed: list[Rejected] = []
    pending, seen = [root], set[tuple[int, int]]()
    while pending:
        folder = pending.pop()
        try:
            entries = _entries(folder, seen)
        except OSError as error:
            if folder == root:
                raise
            closed.append(Rejected(folder, _says(error)))
            continue
        for entry in entries:
            if Path(entry).is_dir():
                pending.insert(0 if entry.is_symlink() else len(pending), entry.path)
            else:
                files.append(entry.path)
    return sorted(files, key=_natural), closed


def _entries(folder: str, seen: set[tuple[int, int]]) -> list[os.DirEntry[str]]:
    """What lies in a folder and is not hidden; nothing where it was seen before, by whatever name: so loops end."""
    about = Path(folder).stat()
    if (about.st_dev, about.st_ino) in seen:
        return []
    seen.add((about.st_dev, about.st_ino))
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _heads(paths: Sequence[str]) -> Iterator[bytes | Exception]:
    """The first bytes of each file, or what hindered; all of `paths` on disk or in one store."""
    if not (paths and _is_url(paths[0])):
        yield from map(_head, paths)
        return
    store = _store(paths[0])[0]
    for at in range(0, len(paths), _HEADS_AT_ONCE):
        some = paths[at : at + _HEADS_AT_ONCE]
        heads = store.cat_ranges([_store(path)[1] for path in some], 0, _HEAD_BYTES, on_error="return")
        for path, head in zip(some, heads, strict=True):  # S3 refuses a range of an empty object
            yield b"" if isinstance(head, Exception) and size(path) == 0 else head


def _head(path: str) -> bytes | Exception:
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return OSError("not a regular file; save its content as one")
        with Path(path).open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        return error


class _RemoteFile(io.RawIOBase):
    """A store's file, whose errors are ours."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file, self._path = file, path

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        with _reaching(self._path):
            return self._file.read(size)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _store(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and its name for what the URL names."""
    protocol = url.rpartition("://")[0].rpartition("::")[2]
    try:
        return cast("tuple[Any, str]", import_module("fsspec.core").url_to_fs(url))  # 0.1 s, needed by few
    except ImportError as error:
        remedy = f"pip install 'gpu-advisor[{_EXTRAS[protocol]}]'" if protocol in _EXTRAS else str(error)
        raise UsageError(f"{url}: the package for {protocol}:// is not installed: {remedy}") from error
    except ValueError as error:
        raise UsageError(f"{url}: {error}; copy the files to a folder and give that") from error


@contextmanager
def _reaching(path: str) -> Iterator[None]:
    """Turns what goes wrong on the way to a file into a ReadError."""
    try:
        yield
    except AdvisorError:
        raise
    except Exception as error:
        if not (_is_url(path) or isinstance(error, OSError)):  # each store's client has errors of its own
            raise
        raise ReadError(f"{path}: {_says(error)}") from error


def _says(error: Exception) -> str:
    said = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
    if isinstance(error, FileNotFoundError):
        return "no such file, folder or bucket; check the path"
    if isinstance(error, PermissionError):
        return f"{said}; check its permissions or your credentials"
    return f"{said}; check the path and the access to it"
