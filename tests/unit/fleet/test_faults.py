"""Fleets under fire, with real processes: writers that meet, kills, a full disk, a cluster that loses a worker."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from pathlib import Path

import deltalake
import polars as pl
import pytest

from advisor.config import Config
from advisor.errors import StoreError
from advisor.fleet import examine
from advisor.fleet import ingest as room
from advisor.fleet.examine import Job
from advisor.fleet.ingest import Changes, ingest
from advisor.fleet.store import Store
from advisor.fleet.verify import verify
from advisor.fleet.weekly import weekly
from advisor.system.engines import KILLED, Killed, engine
from tests.command import advisor
from tests.fleet import Here, broken, trace

ROOT = Path(__file__).parents[3]
TODAY = date(2026, 11, 21)
PATIENCE_S = 120
KILLS = int(os.environ.get("FLEET_KILLS", "50"))
ROUNDS = max(1, 2 * KILLS // 5)  # of four writers at once


def fleet(root: Path, runs: int, bad: int = 0, start: int = 0) -> Path:
    for number in range(start, start + runs):
        (broken if number < start + bad else trace)(root / f"job{number}", number)
    return root


def at_once(root: str, store: Store) -> list[Changes]:
    """Two ingests of one root by writers that know nothing of each other."""
    with ThreadPoolExecutor(2) as writers:
        both = [writers.submit(ingest, [root], store, Here(), today=TODAY) for _ in range(2)]
        return [done.result() for done in both]


def alone(root: str, store: Store) -> list[Changes]:
    """The ingest of a single writer."""
    return [ingest([root], store, Here(), today=TODAY)]


def fleet_command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in this process."""
    return advisor("fleet", *words, cwd=ROOT)


def flushing(folder: Path) -> Path:
    """A script like `advisor` that writes to the store after every fifth of a second."""
    script = folder / "flushing.py"
    script.write_text(
        "import advisor.fleet.ingest as room, sys; room._FLUSH_S = 0.2\n"
        "from advisor.cli import main\n"
        "if __name__ == '__main__': main()\n"
    )
    return script


def spawned(script: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, script, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def exact(store: Store, checked: int, bad: int = 0) -> None:
    """Every run once, in every table."""
    runs = store.collect(store.scan("runs"))
    assert runs["run_id"].n_unique() == runs.height
    assert runs["status"].value_counts(name="n").sort("status").rows() == [
        row for row in (("checked", checked), ("unreadable", bad)) if row[1]
    ]
    reports = store.collect(store.scan("reports"))
    assert (reports.height, reports["run_id"].n_unique()) == (checked, checked)
    drawings = store.collect(store.scan("drawings").select("run_id"))
    assert sorted(drawings["run_id"]) == sorted(reports["run_id"])
    workers = store.collect(store.scan("workers"))
    assert (workers.height, workers.select("run_id", "scope").n_unique()) == (2 * checked, 2 * checked)
    findings = store.collect(store.scan("findings"))
    assert findings.select("run_id", "rule").is_duplicated().sum() == 0
    assert set(findings["run_id"]) <= set(runs["run_id"])


def reported(store: Store) -> None:
    """The report of the week is of every run that was checked, or says how to mend the store."""
    try:
        said = weekly(store, Config().fleet)
    except StoreError as error:
        assert re.search("writes? them anew|run the same `advisor fleet ingest` again", str(error))
        assert verify(store)[1]
        return
    runs = store.collect(store.scan("runs").filter(status="checked"))
    assert said.total.runs == runs.height
    assert verify(store)[1] == []


# `test_writers_that_meet_on_the_same_rows` shows the same at the one moment that counts.
@pytest.mark.soak
def test_two_ingests_of_one_root_at_once(tmp_path):
    root, store = fleet(tmp_path / "root", 4, bad=1), Store(str(tmp_path / "store"))
    assert {done.unread for done in at_once(str(root), store)} == {1}
    exact(store, 3, 1)


@pytest.mark.soak  # two ingests at once are above, compaction alone is with the weekly report
def test_the_store_is_compacted_while_two_ingests_write(tmp_path):
    store = Store(str(tmp_path / "store"))
    ingest([str(fleet(tmp_path / "first", 3))], store, Here(), today=TODAY)
    script = flushing(tmp_path)
    roots = [fleet(tmp_path / f"root{number}", 4, start=100 * number) for number in (1, 2)]
    writers = [spawned(script, "fleet", "ingest", root, "--store", store.uri, "--processes", "1") for root in roots]
    while any(one.poll() is None for one in writers):
        store.compact()
        time.sleep(0.2)
    for one in writers:
        one.communicate(timeout=PATIENCE_S)
        assert one.returncode == 0
    exact(store, 11)


@pytest.mark.soak  # what becomes of a run that is deleted meanwhile is in test_ingest.py
def test_runs_that_are_deleted_in_mid_batch(tmp_path):
    root, store = fleet(tmp_path / "root", 12), Store(str(tmp_path / "store"))
    one = spawned(flushing(tmp_path), "fleet", "ingest", root, "--store", store.uri, "--processes", "1")
    until(lambda: store.exists() and store.collect(store.scan("runs").select(pl.len())).item() > 0)
    for number in range(8, 12):  # the last ones: they are found, and not yet read
        shutil.rmtree(root / f"job{number}")
    out, _ = one.communicate(timeout=PATIENCE_S)
    assert one.returncode == 0
    runs, gone = re.search(r"12 recordings: 0 known, (\d+) added \(\1 runs\), (\d+) gone", out).groups()
    assert int(runs) + int(gone) == 12
    assert int(gone) > 0
    exact(store, int(runs))


# `test_a_store_of_an_older_version_is_read_and_written` shows it of one column.
@pytest.mark.soak
def test_a_store_of_an_older_schema(tmp_path):
    """Columns and a whole table are missing; what is there stays, and new runs have all of them."""
    root, store = fleet(tmp_path / "root", 4, bad=1), Store(str(tmp_path / "store"))
    ingest([str(root)], store, Here(), today=TODAY)
    for name, lost in (("runs", ["step_ms", "busy_share"]), ("workers", ["step_ms"]), ("findings", ["of"])):
        old = store.collect(store.scan(name)).drop(lost)
        shutil.rmtree(f"{store.uri}/{name}")
        deltalake.write_deltalake(f"{store.uri}/{name}", old, partition_by=["week"])
    shutil.rmtree(f"{store.uri}/drawings")
    for number in (50, 51):
        trace(root / f"new{number}", number)
    done = fleet_command("ingest", root, "--store", store.uri, "--processes", "1")
    assert "6 recordings: 4 known, 2 added (2 runs); of them 1 cannot be read" in done.stdout, done.stderr
    runs = store.collect(store.scan("runs"))
    assert runs["run_id"].n_unique() == runs.height == 6
    assert sorted(runs["step_ms"].drop_nulls()) == [0.15, 0.151]
    assert store.collect(store.scan("drawings")).height == 2
    report = fleet_command("report", "--store", store.uri, "-o", tmp_path / "fleet.html")
    assert report.returncode == 0, report.stderr
    assert "Runs: 5 (1 could not be read" in report.stdout


def test_writers_that_meet_on_the_same_rows(tmp_path):
    """Both look at the same empty store, then write the same runs."""
    root, store = fleet(tmp_path / "root", 3), Store(str(tmp_path / "store"))
    inside: list[object] = []
    collect = Store.collect

    def first_another(self, frame):
        found = collect(self, frame)
        if not inside:
            inside.append(1)
            ingest([str(root)], store, Here(), today=TODAY)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "collect", first_another)
        ingest([str(root)], store, Here(), today=TODAY)
    exact(store, 3)


def again_and_again(folder: Path) -> Path:
    """A script that does an `advisor` command until it is killed, and says when it has begun."""
    script = folder / "again.py"
    script.write_text(
        "import sys\n"
        "from advisor.cli import main\n"
        "from advisor.fleet import examine, ingest, store\n"
        "print('begun', flush=True)\n"
        "while True:\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code\n"
    )
    return script


@pytest.mark.soak  # what a lost commit leaves is in test_damage.py
def test_kills_at_random_moments_of_two_ingests_at_once(tmp_path, monkeypatch):
    """Some come before the first write, some between two tables, some in a commit."""
    monkeypatch.setattr("advisor.fleet.verify._MOMENT_S", 0.0)  # the killed ones write nothing any more
    root, store, chance = fleet(tmp_path / "root", 5, bad=1), Store(str(tmp_path / "store")), random.Random(KILLS)  # noqa: S311 - moments
    words = ("fleet", "ingest", root, "--store", store.uri, "--processes", "1")
    script, kills, height = flushing(tmp_path), 0, 0
    while kills < KILLS:
        both = [spawned(script, *words) for _ in range(min(2, KILLS - kills))]
        for one in both:
            with suppress(subprocess.TimeoutExpired):
                one.wait(chance.uniform(0.5, 3.0))
            kills += one.poll() is None
            kill(one)
            one.communicate()
        now = store.collect(store.scan("runs").select(pl.len())).item() if store.exists() else 0
        assert now >= height  # a kill takes back nothing
        height = now
        if now:
            reported(store)
        if now == 5:
            exact(store, 4, 1)
            shutil.rmtree(store.uri)
            height = 0
    assert fleet_command(*words[1:]).returncode == 0
    exact(store, 4, 1)
    reported(store)
    assert verify(store)[1] == []


@pytest.mark.soak  # 50 processes each; a cut at each write is in test_damage.py
@pytest.mark.parametrize(
    "command", [("compact",), ("rejudge", "--all", "--processes", "1")], ids=lambda words: words[0]
)
def test_kills_at_random_moments_of_what_works_on_a_store(tmp_path, command):
    """It is exact after each of them: every state in between is one of before or after."""
    root, store, chance = fleet(tmp_path / "root", 5, bad=1), Store(str(tmp_path / "store")), random.Random(KILLS)  # noqa: S311 - moments
    script = again_and_again(tmp_path)
    ingest([str(root)], store, Here(), today=TODAY)
    for _ in range(KILLS):
        one = spawned(script, "fleet", *command, "--store", store.uri)
        assert one.stdout.readline() == "begun\n"
        with suppress(subprocess.TimeoutExpired):
            one.wait(chance.uniform(0.0, 1.5))
        assert one.poll() is None
        kill(one)
        one.communicate()
        exact(store, 4, 1)
        assert verify(store)[1] == []
        reported(store)
    assert fleet_command(*command, "--store", store.uri).returncode == 0
    exact(store, 4, 1)


@pytest.mark.soak  # two at once are above
def test_four_writers_at_once_again_and_again(tmp_path):
    """Two ingests of one root, one of a root that has runs of it, and one that judges all again."""
    script = flushing(tmp_path)
    for number in range(ROUNDS):
        root, store = tmp_path / f"root{number}", Store(str(tmp_path / f"store{number}"))
        fleet(root / "a", 3, bad=1, start=10 * number)
        fleet(root / "b", 2, start=10 * number + 3)
        ingest([str(root / "b")], store, Here(), today=TODAY)
        end = ("--store", store.uri, "--processes", "1")
        works = [
            ("ingest", root, *end),
            ("ingest", root, *end),
            ("ingest", root / "a", *end),
            ("rejudge", "--all", *end),
        ]
        for one in [spawned(script, "fleet", *words) for words in works]:
            one.communicate(timeout=PATIENCE_S)
            assert one.returncode == 0
        exact(store, 4, 1)
        assert verify(store)[1] == []
        reported(store)


def examine_or_die(job: Job) -> examine.Done:
    """As `examine`, but the process that reads the run called killer is killed; test_engines.py kills one."""
    if "killer" in job.source.path:
        raise Killed(KILLED)
    return examine.examine(job)


@pytest.mark.soak  # what becomes of a task whose process dies is in test_engines.py
def test_a_run_that_kills_its_process_costs_that_run_only(tmp_path, monkeypatch):
    root, store = fleet(tmp_path / "root", 2), Store(str(tmp_path / "store"))
    trace(root / "killer", 99)
    with monkeypatch.context() as patch:
        patch.setattr(room, "examine", examine_or_die)
        assert ingest([str(root)], store, Here(), today=TODAY).runs == 2
    runs = store.collect(store.scan("runs"))
    assert runs["status"].value_counts().sort("status")["count"].to_list() == [2, 1]
    assert "killed" in runs.filter(status="killed")["reason"].item()
    assert ingest([str(root)], store, Here(), today=TODAY).runs == 1  # tried again, where there may be more memory
    exact(store, 3)


# `test_what_a_full_disk_left_is_removed_by_compact` shows what stays of a write, without a disk of its own.
@pytest.mark.soak
def test_a_full_disk_loses_nothing_that_was_written(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1500k", "none", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        root, store = fleet(tmp_path / "root", 4), Store(str(disk / "store"))
        ingest([str(root)], store, Here(), today=TODAY)
        filler = disk / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(disk).free - 8192))
        trace(root / "more", 77)
        failed = fleet_command("ingest", root, "--store", store.uri, "--processes", "1")
        assert failed.returncode == 3
        assert "the fleet store cannot be used" in failed.stderr
        assert "Traceback" not in failed.stderr
        assert store.collect(store.scan("runs")).height == 4
        filler.unlink()
        ingest([str(root)], store, Here(), today=TODAY)
        exact(store, 5)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.soak
def test_a_thousand_runs_of_which_some_are_broken(tmp_path):
    number, bad = 1_000, 50
    root, store = fleet(tmp_path / "root", number, bad), Store(str(tmp_path / "store"))
    done = fleet_command("ingest", root, "--store", store.uri, "--processes", "2")
    said_first = f"{number} recordings: 0 known, {number} added ({number - bad} runs); of them {bad} cannot be read\n"
    assert done.stdout == said_first, done.stderr
    exact(store, number - bad, bad)
    again = fleet_command("ingest", root, "--store", store.uri)
    assert again.stdout == f"{number} recordings: {number} known, 0 added; of them {bad} cannot be read\n"


# ---------------------------------------------------------------------------------------------- Dask


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own session, killed with all its children."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    one = subprocess.Popen(
        arguments, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True, **quiet
    )  # type: ignore[call-overload] # as Popen has it
    try:
        yield one
    finally:
        kill(one)


def kill(one: subprocess.Popen[bytes]) -> None:
    if one.poll() is None:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def until(true, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.mark.soak  # what becomes of a task whose process dies is in test_engines.py
@pytest.mark.network_server
def test_a_cluster_that_loses_a_worker(tmp_path):
    distributed = pytest.importorskip("distributed")
    root, store = fleet(tmp_path / "root", 8, bad=2), Store(str(tmp_path / "store"))
    with ExitStack() as stack:
        survivor = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "local_directory": str(tmp_path)}
        cluster = distributed.LocalCluster(**survivor, protocol="tcp", host="127.0.0.1", dashboard_address=None)
        address = stack.enter_context(cluster).scheduler_address
        worker = (sys.executable, "-m", "dask", "worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard")
        victim = stack.enter_context(process(*worker, "--local-directory", str(tmp_path)))
        where = engine(f"dask={address}", 1)
        stack.callback(where.close)
        until(lambda: where.width() == 4)  # two workers of one thread
        seen: list[int] = []

        def kill_in_the_middle(count):
            seen.append(count)
            if len(seen) == 3:
                kill(victim)

        done = ingest([str(root)], store, where, today=TODAY, progress=lambda _: kill_in_the_middle)
    assert (done.runs, done.unreadable) == (6, 2)
    exact(store, 6, 2)


# ---------------------------------------------------------------------------------------------- S3


@pytest.mark.soak
@pytest.mark.network_server
@pytest.mark.parametrize("runs", [1, 2])
def test_writers_into_a_bucket_and_from_one(tmp_path, s3, runs):
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("s3")
    for bucket in ("fleet-profiles", "fleet-store"):
        if files.exists(bucket):
            files.rm(bucket, recursive=True)
        files.mkdir(bucket)
    for number in range(runs):
        files.pipe(f"fleet-profiles/job{number}/rank0.pt.trace.json", trace(tmp_path / "one", number).read_bytes())
    options = ("--option", f"aws_endpoint={s3}", "--option", "aws_allow_http=true")
    store = Store("s3://fleet-store/all", {"aws_endpoint": s3, "aws_allow_http": "true"})
    writers = at_once if runs > 1 else alone
    assert {done.unread for done in writers("s3://fleet-profiles", store)} == {0}
    exact(store, runs)
    again = fleet_command("ingest", "s3://fleet-profiles", "--store", store.uri, "--processes", "1", *options)
    assert f"{runs} known, 0 added" in again.stdout
