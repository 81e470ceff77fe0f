"""One recording read, measured and judged: its rows of the store."""

import datetime as dt
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, TypeAlias

from advisor import __version__
from advisor.config import Config
from advisor.engine import measured
from advisor.errors import ReadError
from advisor.fleet.columns import (
    LABELS,
    TABLES,
    Row,
    Rows,
    context_of,
    judged_rows,
    measured_rows,
    rule_set,
    without_names,
)
from advisor.fleet.labels import week_of
from advisor.fleet.recordings import Job, Settings, hashed, unread, vanished
from advisor.inputs.discover import Recording
from advisor.inputs.storage import listing, local, open_file, size
from advisor.metrics.stored_names import NAME_METRICS
from advisor.model.clause import Note
from advisor.model.reason import Reason
from advisor.options import Options
from advisor.rules.judge import Suppression, judge
from advisor.rules.measured_run import measured_run
from advisor.rules.rule_file import Rule, selected
from advisor.rules.user_config import replaced, rule_book, suppressions
from advisor.runs.summary import judged_again, summarise
from advisor.text import plain

Book: TypeAlias = tuple[Mapping[str, Rule], Mapping[str, Suppression], str, tuple[Note, ...]]
"""The rules, the suppressions, a name for both, and notes on rules that were replaced."""

_BLOCK_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one recording; without rows if it is known already, or gone."""

    recording: str
    rows: Rows = field(default_factory=dict)
    known: bool = False
    gone: bool = False
    digests: tuple[str, ...] = ()


def examine(job: Job) -> Done:
    """Read, measure and judge one recording, in whatever process this is; what lies elsewhere is fetched once."""
    with ExitStack() as fetched:
        try:
            copies = tuple(str(fetched.enter_context(local(file))) for file in job.source.files)
            digests = tuple(map(_digest, copies))
        except ReadError as error:
            if vanished(error):  # after it was found: it leaves no row
                return Done("", gone=True)
            return unchecked(job, str(error), "unreachable")
        return _examined(job, replace(job.source, copies=copies), digests)


def _examined(job: Job, fetched: Recording, digests: tuple[str, ...]) -> Done:
    recording = hashed(*sorted(digests))
    if recording in job.candidates:
        return Done(recording, known=True)
    rules, silenced, version, changed = book(job.settings)
    more = [*selected(rules.values()), *NAME_METRICS.values()]
    jobs, broken = measured(fetched, Options(max_bytes=job.settings.max_bytes), more)
    if not jobs and not any(size(file) is not None for file in fetched.copies):
        return Done("", gone=True)
    rows: dict[str, list[Row]] = defaultdict(list)
    keys = {"week": week_of(job.started), "recording": recording, "digests": list(digests)}
    for number, (name, measurements, notes) in enumerate(jobs):
        subject = measured_run(measurements)
        judged = judge(subject, rules, silenced)
        plain_measurements, names = without_names(measurements)
        own = summarise(name, fetched.path, plain_measurements, replace(judged, notes=()))
        keep = context_of(subject, measurements.selected, own.source.notes, notes)
        run = judged_again(own, judged, keep.notes, (*keep.file_notes, *map(Reason.of, changed)))
        run_id = f"{recording}-{number}" if number else recording
        hosts = {
            **dict(measurements.selection.profile.workers.select("worker", "host").drop_nulls().rows()),
            **job.labels.hosts,
        }
        of_run = judged_rows(run, keep, version, job.labels.trials) | measured_rows(run, names, hosts, job.labels.host)
        of_run["runs"][0] |= _ingest_columns(job) | {"bytes": job.bytes if not number else 0}
        _collect(rows, of_run, keys | {"run_id": run_id})
    for number, bad in enumerate(broken):
        run_id = f"{recording}-u{number}"
        _collect(rows, _bad_rows(job, bad.path, bad.why), keys | {"run_id": run_id})
    return Done(recording, {name: rows[name] for name in TABLES}, digests=digests)


def _collect(rows: dict[str, list[Row]], more: Rows, keys: Row) -> None:
    for name, added in more.items():
        rows[name] += [{**row, **keys} for row in added]


def _ingest_columns(job: Job) -> Row:
    """The columns of `runs` that the profile does not tell."""
    labels = job.labels
    return {
        "reason": job.note,
        "fingerprint": job.fingerprint,
        "bytes": job.bytes,
        "started": job.started,
        "started_from": job.started_from,
        "ingested": dt.datetime.now(dt.UTC),
        **{name: getattr(labels, name) for name in (*LABELS, "gpu_hours", "price")},
        "labels": labels.canonical(),
    }


def unchecked(job: Job, why: str, status: str = "unreadable") -> Done:
    """A recording that was not checked, and why."""
    return Done(unread(job.source), _bad_rows(job, job.source.path, why, status))


def _bad_rows(job: Job, path: str, why: str, status: str = "unreadable") -> Rows:
    keys = {"week": week_of(job.started), "recording": unread(job.source), "run_id": unread(job.source)}
    about = {"status": status, "name": plain(job.source.name), "path": plain(path), "advisor_version": __version__}
    return {"runs": [{**keys, **_ingest_columns(job), **about, "reason": plain(why)}]}


@lru_cache(maxsize=1)
def _book_of(config: str, today: dt.date) -> Book:
    read = Config.model_validate_json(config)
    rules, silenced = rule_book(read), suppressions(read, today)
    return rules, silenced, rule_set(rules, silenced), tuple(replaced(read))


def book(settings: Settings) -> Book:
    """What to judge by; loaded once in a process."""
    rules, silenced, version, notes = _book_of(settings.config.model_dump_json(), settings.today)
    return rules, silenced, version, (*settings.config.notes, *notes)


def _digest(path: str) -> str:
    """Of a file's content; of a folder of tables, of all its files'."""
    if (below := listing(path)) is not None:
        return hashed(*map(_digest, below[0]))
    digest = hashlib.blake2b(digest_size=16)
    with open_file(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
