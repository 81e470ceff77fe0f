"""Finds the profiles in files, folders and object stores, and sorts the files of each job into runs."""

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from advisor.errors import UsageError
from advisor.inputs.readers import FORMATS, Format, format_of
from advisor.inputs.storage import HEAD_BYTES, head_of, heads, is_url, listing, natural, tidy
from advisor.model.clause import Note
from advisor.text import listing as in_words


@dataclass(frozen=True, slots=True)
class Recording:
    """One run: the profiles that the workers of one job recorded together."""

    name: str  # short, and unique among the runs found together
    path: str  # the file or folder that it was found in
    format: str  # the reader's name in `advisor.inputs.readers`
    files: tuple[str, ...]  # one per worker, in natural order (rank2 before rank10)
    copies: tuple[str, ...] = ()  # where their bytes are read instead, in the same order; empty where at their places
    notes: tuple[Note, ...] = field(default=(), compare=False)  # what else lies where it was found, and how to have it
    logs: tuple["Recording", ...] = ()  # what was written beside it without a profiler, most likely by the same job


class Rejected(NamedTuple):
    """A file or folder that holds nothing readable: why, and what to do."""

    path: str
    why: str


_READABLE: Final = dict.fromkeys(
    kind.reads for kind in sorted(FORMATS, key=lambda kind: (not kind.own, kind.name)) if kind.reads
)
_READS: Final = f"this version reads {', '.join([*_READABLE][:-1])} and {[*_READABLE][-1]}"
_EXCERPT: Final = b'"Findings of gpu-advisor"'  # a track that `advisor excerpt` writes first
_EXPORTED: Final = "its export beside it is read instead"
_TABLES: Final = {table: kind for kind in FORMATS for table in kind.tables}
_OURS: Final = "of advisor; give the profile that it is about"

# `rank0_step_12.1694128201545`: what tells one recording of a worker from its next
_RECORDING: Final = re.compile(
    r"[._-]?(?:step|iter|iteration|epoch)[._-]?([0-9]+)|(?:^|[._-])([0-9]{10,})(?:\.[0-9]+)?(?![^._-])", re.IGNORECASE
)
RANK: Final = re.compile(r"(?:rank|worker|node|host)[-_.]?([0-9]{1,9})(?![0-9])", re.IGNORECASE)
"""What tells a worker in a file's name."""
_WORKER: Final = re.compile(r"[^/]+(?=-pid[0-9])|[0-9]+")  # what tells it in a path: `host-pid12.log`, `rank3/t.json`
_OWN: Final = "|".join(re.escape(ending) for kind in FORMATS for ending in kind.own if kind.reads)
_SUFFIX: Final = re.compile(rf"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$|(?:{_OWN})$|(?<=.)\.[^.]*$", re.IGNORECASE)
_LAYOUT: Final = ("plugins", "profile", "run")
_RUN_FOLDER: Final = re.compile(r"^(.*?)/?\bplugins/profile/([^/]+)$")  # of TensorFlow, JAX and TensorBoard


def discover(
    paths: Sequence[str], *, run: str | None = None, all_runs: bool = False
) -> tuple[list[Recording], list[Rejected]]:
    """The runs under `paths`, and what could not be taken; of a log folder the run of this name, or all of them.

    A path is a file, a folder, or a URL of either in any store that fsspec knows (`s3://bucket/prefix`). A file is a
    run of its own, unless others in its folder are given whose names differ in the rank alone. The profiles directly in
    a folder are one run, or several where its workers recorded several times, or with several profilers; of Nsight
    Systems' exports, which people name as they like, those whose names differ in numbers alone are one. Folders are
    searched to any depth, without hidden ones; their other files are passed over. A folder of Parquet tables that
    Nsight Systems exported counts as one file. Of the runs that TensorFlow or JAX recorded into one log folder
    (`plugins/profile/<run>`) the newest is taken, unless the path is that of a run. Logs of collectives go with the
    profiles below the same path, where these are of one run.

    A ReadError where a path does not exist or is closed to us; a UsageError where a URL's protocol is unknown, or its
    package is missing, or no run is called `run`.
    """
    runs: dict[Recording, None] = {}  # each once, in order: `paths` may overlap
    rejected: dict[Rejected, None] = {}
    for path in map(tidy, paths):
        below = listing(path)
        below_path, others = _in_file(path) if below is None else _in_folder(path, *below)
        runs |= dict.fromkeys(_chosen(path, below_path, run, all_runs=all_runs))
        rejected |= dict.fromkeys(others)
    every = [*_beside_others([*_together(runs)])]  # each with as much of its path for a name as tells it
    longer = [_names(run) for run in every]
    names = [of[0] for of in longer]
    for depth in range(1, max(map(len, longer), default=0)):
        times = Counter(names)
        names = [
            of[min(depth, len(of) - 1)] if times[name] > 1 else name for name, of in zip(names, longer, strict=True)
        ]
    return [replace(run, name=name) for run, name in zip(every, _untaken(names), strict=True)], list(rejected)


def is_report(path: str) -> bool:
    """Whether the file begins as what advisor saves, of whatever kind."""
    return listing(path) is None and _is_saved(head_of(path, HEAD_BYTES))


def is_recording(path: Path) -> bool:
    """Whether a run would be read from this file."""
    look = _look(str(path), next(heads([str(path)]))) if path.is_file() else None
    return bool(look and look.kind and not look.why)


def workers_of(files: Iterable[str]) -> frozenset[str]:
    """What the names of files tell of the processes that wrote them: the same for another recording of these."""
    return frozenset(_RECORDING.sub("", _stem(file)) for file in files)


def recordings(files: Iterable[str]) -> list[tuple[str, ...]]:
    """The profiles of one folder as runs: the k-th recording of each worker, by step or time, belongs to run k."""
    of_worker = defaultdict(list)
    when = {file: [int(step or time) for step, time in _RECORDING.findall(_stem(file))] for file in files}
    for file in sorted(when, key=lambda file: (when[file], natural(file))):
        of_worker[_RECORDING.sub("", _stem(file))].append(file)
    return [tuple(sorted(filter(None, run), key=natural)) for run in zip_longest(*of_worker.values())]


class _Look(NamedTuple):
    """What the first bytes of a file tell: its kind, where known, and why it cannot be read, if so."""

    path: str
    kind: Format | None
    why: str = ""


def _in_file(path: str) -> tuple[list[Recording], list[Rejected]]:
    look = _look(path, next(heads([path])))
    if look.why or not look.kind:
        return [], [Rejected(path, look.why)]
    return [Recording("", path, look.kind.name, (path,))], []


def _in_folder(path: str, files: list[str], closed: list[tuple[str, str]]) -> tuple[list[Recording], list[Rejected]]:
    tables = {_folder(file): kind for file in files if (kind := _TABLES.get(file.rpartition("/")[2]))}
    if path in tables:
        return [Recording("", path, tables[path].name, (path,))], []
    files = [file for file in files if _kind(file, lambda kind: kind.own + kind.shared)]
    looks = [*map(_look, files, heads(files))]
    kinds = {_WORKER.sub("#", look.path): look.kind for look in looks if look.kind and not look.why}
    alike = ((look, look.kind or kinds.get(_WORKER.sub("#", look.path))) for look in looks)
    looks = [look._replace(kind=kind) for look, kind in alike if look.kind or (kind and _OURS not in look.why)]
    looks += [_Look(folder, tables[folder]) for folder in sorted(tables, key=natural)]
    good = {look.path for look in looks if not look.why}
    looks = [look for look in looks if not _is_copy(look, good)]
    looks = [look._replace(why=look.why or _twin(look, good)) for look in looks]
    rejected = [Rejected(*reason) for reason in closed] + [Rejected(look.path, look.why) for look in looks if look.why]
    rejected += [] if good or rejected else [Rejected(path, f"no profile in this folder; {_READS}")]
    runs = [*_runs(look for look in looks if not look.why)]
    logs = [run for run in runs if format_of(run.format).is_log]
    profiles = [run for run in runs if run not in logs]  # where they are of one run, logs of collectives go with it
    return [replace(profiles[0], logs=tuple(logs))] if len(profiles) == 1 else runs, rejected


def _twin(look: _Look, good: Container[str]) -> str:
    """Why a file is passed over for another of the same content; empty where it is not."""
    if f"{look.path}.gz" in good:
        return "the unpacked copy of the .gz beside it, which is read instead"
    exports, own = (look.kind.exports, look.kind.own) if look.kind else ((), ())
    for at, ending in enumerate((*exports, *own)):
        if look.path.lower().endswith(ending):
            stem = look.path[: -len(ending)]
            return _EXPORTED if any(f"{stem}{export}" in good for export in exports[:at]) else ""
    return ""


def _is_copy(look: _Look, good: Container[str]) -> bool:
    """Whether the profile itself lies beside this file and is read: then nobody misses the copy."""
    original = look.kind.copy_of if look.kind else ""
    return bool(original) and f"{_folder(look.path)}/{_stem(look.path)}{original}" in good


def _look(path: str, head: bytes | str) -> _Look:
    by_name = (kind for kind in FORMATS if re.fullmatch(kind.name_pattern, path.rpartition("/")[2]))
    own = _kind(path, lambda kind: kind.own) or next(by_name, None)
    likely = own or _kind(path, lambda kind: kind.shared)
    if isinstance(head, str):
        return _Look(path, likely, head)
    if not head:
        return _Look(path, own, "empty: the recording or a copy of it broke off; do it again")
    if head.startswith(b"version https://git-lfs"):
        return _Look(path, likely, "a Git LFS pointer in place of the file; fetch that with `git lfs pull`")
    text = _unpacked(head)
    signed = next((kind for kind in FORMATS if re.search(kind.sign, text)), own)
    kind = None if _EXCERPT in text else signed
    return _Look(path, kind, _objection(kind, text))


def _objection(kind: Format | None, text: bytes) -> str:
    """Why a file of this kind that begins with `text` cannot be read; empty if it can."""
    if kind and not kind.reads:
        return f"{kind.title}; {kind.instead or _READS}"
    if not text:
        return "nothing of this gzip file can be unpacked; record or copy it again"
    if kind and (re.search(kind.sign, text) or text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(kind.openings)):
        return ""
    if kind:
        return f"{kind.title} by its name but not by its content; record or copy it again"
    if saved := "an excerpt" if _EXCERPT in text else "a report" if _is_saved(text) else "":
        return f"{saved} {_OURS}"
    return f"not a profile; {_READS}"


def _is_saved(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and b'"advisor_version"' in head


def _unpacked(head: bytes) -> bytes:
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, HEAD_BYTES)
    except zlib.error:
        return b""


def _kind(path: str, endings: Callable[[Format], tuple[str, ...]]) -> Format | None:
    return next((kind for kind in FORMATS if path.lower().endswith(endings(kind))), None)


def _chosen(path: str, runs: Sequence[Recording], name: str | None, *, all_runs: bool) -> list[Recording]:
    """The runs to take of those found under a path; one of a log folder that holds several notes it, unless named."""
    several = defaultdict(list)  # by log folder
    chosen = list[Recording]()
    for run in runs:
        layout = _RUN_FOLDER.match(run.path)
        if all_runs or layout is None or run.path == path:
            chosen.append(run)
        else:
            several[layout[1] or "."].append(run)
    for log, candidates in several.items():
        by_name = {run.path.rpartition("/")[2]: run for run in sorted(candidates, key=lambda run: natural(run.path))}
        newest = name or list(by_name)[-1]
        if newest not in by_name:
            raise UsageError(f"--run {name}: {log} has no such run; its runs: {', '.join(by_name)}")
        note = Note("newest_run", runs=len(by_name), run=newest)
        chosen.append(by_name[newest] if name or len(by_name) == 1 else replace(by_name[newest], notes=(note,)))
    return chosen


def _beside_others(runs: Sequence[Recording]) -> Iterator[Recording]:
    """The runs; with a note where profiles of several formats lie in one folder."""
    formats = defaultdict(set)
    for run in runs:
        formats[_folder(run.files[0])].add(run.format)
    for run in runs:
        there = sorted(formats[_folder(run.files[0])])
        note = Note("several_formats", formats=in_words(there))
        yield replace(run, notes=(*run.notes, note)) if len(there) > 1 else run


def _together(runs: Iterable[Recording]) -> Iterator[Recording]:
    """Files given one by one whose names differ in the rank alone (`rank*.json.gz`) are one run."""
    alike: dict[tuple[str, ...], list[Recording]] = defaultdict(list)
    for run in runs:
        single = run.files == (run.path,) and RANK.search(_stem(run.path))
        job = RANK.sub("", re.sub(r"[0-9]{10,}", "", _stem(run.path)))  # without the moment it was written at
        key = (run.format, _folder(run.path), job) if single else (run.format, *run.files)
        alike[key].append(run)
    for first, *others in alike.values():
        files = tuple(sorted((run.path for run in (first, *others)), key=natural))
        yield replace(first, path=_folder(first.path), files=files) if others else first


def _runs(looks: Iterable[_Look]) -> Iterator[Recording]:
    """One or several runs per folder, so far named by their numbers only."""
    of_folder: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for look in looks:
        if look.kind:
            job = re.sub(r"[0-9]+", "#", _stem(look.path)) if look.kind.free_names else ""
            job = look.path if look.kind.file_per_run else job
            of_folder[_folder(look.path)][look.kind.name, job].append(look.path)
    for folder, jobs in of_folder.items():
        alone = {key: files for key, files in jobs.items() if key[1] and len(files) == 1}
        yield from (Recording("", files[0], kind, tuple(files)) for (kind, _), files in alone.items())
        others = {key: files for key, files in jobs.items() if key not in alone}
        runs = list[tuple[str, tuple[str, ...]]]()
        for (kind, _), files in others.items():
            shares_run = format_of(kind).folder_per_run  # TensorFlow and JAX give each run a folder of its own
            runs += ((kind, run) for run in ([tuple(sorted(files, key=natural))] if shares_run else recordings(files)))
        runs.sort(key=lambda run: format_of(run[0]).is_log)  # a number is for profiles beside others
        for number, (kind, run) in enumerate(runs, start=1):
            yield Recording(f"#{number}" if number > 1 else "", folder, kind, run)


def _untaken(names: Sequence[str]) -> Iterator[str]:
    """The names, with a number behind those that even whole paths leave alike: a folder may be called `run#2`."""
    occupied = set(names)
    used = set[str]()
    for name in names:
        free = name if name not in used else next(n for k in count(2) if (n := f"{name} ({k})") not in occupied)
        occupied.add(free)
        used.add(name)
        yield free


def _names(run: Recording) -> list[str]:
    """Names for a run, each longer than the one before; the last is its whole path."""
    path = run.path.partition("://")[2] if is_url(run.path) else Path(run.path).resolve().as_posix()
    *above, last = [part for part in path.split("/") if part] or [run.path]
    parts = [*above, _stem(last) if run.files == (run.path,) else last]
    if above[-2:] == ["plugins", "profile"] and len(parts) > len(_LAYOUT):
        *above, log, _, _, moment = parts  # the log folder's name tells more than the moment
        names = [log, *("/".join([*above[len(above) - depth :], log, moment]) for depth in range(len(above) + 1))]
        return [*(name + run.name for name in names), run.path + run.name]
    return ["/".join(parts[-depth:]) + run.name for depth in range(1, len(parts) + 1)] + [run.path + run.name]


def _stem(file: str) -> str:
    return _SUFFIX.sub("", file.rpartition("/")[2])


def _folder(file: str) -> str:
    return file.rpartition("/")[0] or ("/" if file.startswith("/") else ".")
