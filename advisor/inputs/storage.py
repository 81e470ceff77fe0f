"""Files on disk and in object stores: opening, sizes, listings and first bytes, with one-line errors of our own."""

import datetime as dt
import io
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final, cast
from urllib.parse import unquote

from advisor.errors import AdvisorError, ReadError, UsageError

_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_LEADS_OUT: Final = "a link that leads out of this folder; give what it leads to as a path of its own"
FOLDERS: Final[ContextVar[Sequence[Path] | None]] = ContextVar("FOLDERS", default=None)
"""Where local files must lie, links resolved, when they are opened: a link may change after a look where it leads."""
HEAD_BYTES: Final = 64 << 10
_HEADS_AT_ONCE: Final = 64
_LONGEST_PATH: Final = 4096
_BLOCK_BYTES: Final = 8 << 20
_BLOCKS: Final = 3  # of a remote file in memory: the one before, the one being read, the one on its way


def open_file(path: str) -> IO[bytes]:
    """A file or URL, to be read from its beginning to its end; reading a URL, too, raises ReadErrors alone."""
    path = tidy(path)
    with _reaching(path):
        if not is_url(path):
            if not stat.S_ISREG(Path(path).stat().st_mode):  # a pipe or a device may have no end
                raise OSError("not a regular file; save its content as one")
            stream = Path(path).open("rb")  # noqa: SIM115 - the caller closes it
            if (folders := FOLDERS.get()) is not None and not any(map(_place(stream).is_relative_to, folders)):
                stream.close()
                raise OSError(_LEADS_OUT)
            return stream
        store, inner = _store(path)
        options = {"cache_type": "background", "cache_options": {"maxblocks": _BLOCKS}}
        return cast("IO[bytes]", _RemoteFile(store.open(inner, "rb", block_size=_BLOCK_BYTES, **options), path))


def _place(stream: IO[bytes]) -> Path:
    if sys.platform == "darwin":
        from fcntl import F_GETPATH, fcntl  # noqa: PLC0415 - Windows has none

        return Path(os.fsdecode(fcntl(stream, F_GETPATH, bytes(_LONGEST_PATH)).rstrip(b"\0")))
    return Path(f"/proc/self/fd/{stream.fileno()}").readlink()


def head_of(path: str, most: int) -> bytes:
    """The first bytes of a file or URL, so many at most; a ReadError where it cannot be read."""
    with open_file(path) as stream, _reaching(path):
        return stream.read(most)


@contextmanager
def local(path: str) -> Iterator[Path]:
    """A file or folder on disk; a copy, removed afterwards, of one in a store or where reading is confined."""
    path = tidy(path)
    if not is_url(path) and FOLDERS.get() is None:
        yield Path(path)
        return
    with TemporaryDirectory(prefix="advisor-") as folder:
        target = Path(folder) / path.rpartition("/")[2]
        below = listing(path)
        for file in [path] if below is None else below[0]:
            copy = Path(f"{target}{file.removeprefix(path)}")
            if not copy.resolve().is_relative_to(Path(folder).resolve()):
                raise ReadError(f"{file}: its path leads out of the folder; copy it to one of its own")
            copy.parent.mkdir(parents=True, exist_ok=True)
            with open_file(file) as source, _reaching(file), copy.open("wb") as sink:
                shutil.copyfileobj(source, sink, _BLOCK_BYTES)
        yield target


def size(path: str) -> int | None:
    """Bytes in a file or URL; None where that cannot be told."""
    with suppress(ReadError), _reaching(path := tidy(path)):
        if not is_url(path):
            return Path(path).stat().st_size
        store, inner = _store(path)
        return cast("int | None", store.size(inner))
    return None


def stamp(path: str) -> tuple[str, dt.datetime | None]:
    """What changes when a file, a folder of tables or a URL is written anew; when that was, in UTC; None if unknown."""
    path = tidy(path)
    with _reaching(path):
        if not is_url(path):
            tables = [table for table in Path(path).glob("*.parquet") if table.exists()]
            states = [place.stat() for place in (Path(path), *tables)]
            latest = max(states, key=lambda state: state.st_mtime_ns)
            size_bytes, when = sum(state.st_size for state in states), None
            with suppress(OverflowError, ValueError):  # no calendar has the time that some clocks say
                when = dt.datetime.fromtimestamp(latest.st_mtime, dt.UTC)
            return f"{size_bytes}-{latest.st_mtime_ns}", when
        store, inner = _store(path)
        entry = store.info(inner)
    keys = ("LastModified", "last_modified", "updated", "mtime")
    written = next((entry[key] for key in keys if entry.get(key)), None)
    if isinstance(written, str):
        written = dt.datetime.fromisoformat(written)
    when = written.astimezone(dt.UTC) if isinstance(written, dt.datetime) else None
    return f"{entry.get('size')}-{entry.get('ETag') or entry.get('etag') or written}", when


def natural(text: str) -> tuple[list[str | int], str]:
    """A sorting key that puts rank2 before rank10."""
    parts = re.split(r"([0-9]+)", text.lower())
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], text


def is_url(path: str) -> bool:
    """Whether a path names something in a store."""
    return "://" in path


def tidy(path: str) -> str:
    """A path or URL as it is used inside, without `file://` and a slash at the end; a UsageError where it is none."""
    if path.startswith("file://"):
        path = unquote(path.removeprefix("file://"))
    if not path:
        raise UsageError("an empty path was given; name a file, a folder or a URL")
    if len(path) > _LONGEST_PATH:
        raise UsageError(f"a path of {len(path):,} characters was given; no file has such a name")
    if "\0" in path:
        raise UsageError("a path with a zero byte was given; no file has such a name")
    protocol, sign, rest = path.rpartition("://")
    return protocol + sign + (rest.rstrip("/") or rest[:1])


def listing(path: str) -> tuple[list[str], list[tuple[str, str]]] | None:
    """All files under a folder in natural order, and (sub-folder, why) for closed ones; None if `path` is a file."""
    with _reaching(path):
        if not is_url(path):
            return _walked(path) if stat.S_ISDIR(Path(path).stat().st_mode) else None
        store, inner = _store(path)
        store.invalidate_cache()  # it may remember an earlier look
        if store.info(inner)["type"] == "file":
            return None
        below = [file[len(inner) :] for file in store.find(inner)]
    visible = [file for file in below if not any(part.startswith(".") for part in file.split("/"))]
    return sorted((path + file for file in visible), key=natural), []


def _walked(root: str) -> tuple[list[str], list[tuple[str, str]]]:
    """As `listing`; links are followed last, so that a folder goes by its real name, and never out of the root."""
    files: list[str] = []
    closed: list[tuple[str, str]] = []
    pending, folders, inside = [root], set[tuple[int, int]](), Path(root).resolve()
    while pending:
        folder = pending.pop()
        try:
            entries = _entries(folder, folders)
        except OSError as error:
            if folder == root:
                raise
            closed.append((folder, _says(error)))
            continue
        for entry in entries:
            is_link = entry.is_symlink()
            if is_link and not Path(os.path.realpath(entry)).is_relative_to(inside):  # resolve() fails on loops
                closed.append((entry.path, _LEADS_OUT))
            elif Path(entry).is_dir():
                pending.insert(0 if is_link else len(pending), entry.path)
            else:
                files.append(entry.path)
    return sorted(files, key=natural), closed


def _entries(folder: str, folders: set[tuple[int, int]]) -> list[os.DirEntry[str]]:
    """What lies in a folder and is not hidden; nothing where it was seen before, by whatever name: so loops end."""
    about = Path(folder).stat()
    if (about.st_dev, about.st_ino) in folders:
        return []
    folders.add((about.st_dev, about.st_ino))
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def heads(paths: Sequence[str]) -> Iterator[bytes | str]:
    """The first bytes of each file, or why they cannot be read; all of `paths` on disk or in one store."""
    if not (paths and is_url(paths[0])):
        for path in paths:
            try:
                yield head_of(path, HEAD_BYTES)
            except AdvisorError as error:
                yield getattr(error, "why", str(error))
        return
    store = _store(paths[0])[0]
    for at in range(0, len(paths), _HEADS_AT_ONCE):
        some = paths[at : at + _HEADS_AT_ONCE]
        heads = store.cat_ranges([_store(path)[1] for path in some], 0, HEAD_BYTES, on_error="return")
        for path, head in zip(some, heads, strict=True):
            is_empty = isinstance(head, Exception) and size(path) == 0  # S3 refuses a range of it
            yield b"" if is_empty else _says(head) if isinstance(head, Exception) else head


class _RemoteFile(io.RawIOBase):
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
        if not (is_url(path) or isinstance(error, OSError)):  # each store's client has errors of its own
            raise
        raise ReadError(_says(error), path) from error


def _says(error: Exception) -> str:
    """What hindered, in one line, and what to do."""
    words = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
    if isinstance(error, FileNotFoundError):
        return "no such file, folder or bucket; check the path"
    if isinstance(error, PermissionError):
        return f"{words}; check its permissions or your credentials"
    return f"{words}; check the path and the access to it"
