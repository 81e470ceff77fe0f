"""The ranks of one job on a cluster: the same report as on this machine, whatever becomes of a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from advisor.engine import check, compare
from advisor.errors import UsageError
from advisor.options import Options
from advisor.render.json import render

ROOT = Path(__file__).parents[3]
JOB = str(ROOT / "fixtures/simulated-ranks-slow-rank-a100")
PATIENCE_S = 120


@pytest.mark.parametrize("path", [JOB, str(next(Path(JOB).glob("*.gz")))])
def test_an_engine_that_is_none(path: str) -> None:
    with pytest.raises(UsageError, match="neither local nor dask=ADDRESS"):
        check([path], Options(engine="ray"))


@pytest.mark.soak
def test_two_processes_read_the_ranks_of_a_job_as_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for trace in sorted(Path(JOB).glob("*.gz"))[:2]:
        (tmp_path / trace.name).write_bytes(trace.read_bytes())
    monkeypatch.setattr("advisor.runs.files._WORTH_BYTES", 0)  # the recordings of the tests are small
    alone, together = (render(check([str(tmp_path)], Options(processes=of))) for of in (1, 2))
    assert together == alone


@pytest.mark.soak  # what becomes of a task whose process dies is in tests/unit/system/test_engines.py
@pytest.mark.network_server
def test_a_worker_that_dies_changes_no_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    (tmp_path / "job").mkdir()
    for rank, trace in enumerate(sorted(Path(JOB).glob("*.gz"))):
        (tmp_path / "job" / trace.name).write_bytes(trace.read_bytes() if rank else trace.read_bytes()[:200])
    with ExitStack() as stack:
        scheduler = {"n_workers": 0, "protocol": "tcp", "host": "127.0.0.1", "dashboard_address": None}
        address = stack.enter_context(distributed.LocalCluster(**scheduler)).scheduler_address
        client = stack.enter_context(distributed.Client(address, set_as_default=False))
        worker = (sys.executable, "-m", "dask", "worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard")
        workers = [
            subprocess.Popen(
                [*worker, "--local-directory", str(tmp_path)], start_new_session=True, stderr=subprocess.DEVNULL
            )
            for _ in range(2)
        ]
        for process in workers:
            stack.callback(process.wait)
            stack.callback(process.kill)
        client.wait_for_workers(2, timeout=PATIENCE_S)
        read = list[str]()

        def kill_one_in_the_middle(file: str):
            def on_read(_: int) -> None:
                read.append(file)
                if len(read) == 1:
                    os.kill(workers[0].pid, signal.SIGKILL)
                    time.sleep(0.2)

            return on_read

        monkeypatch.chdir(tmp_path)  # the workers have another current folder
        options = Options(engine=f"dask={address}", progress=kill_one_in_the_middle)
        there = check(["job"], options)
        compared_there = compare([JOB], ["job"], Options(engine=f"dask={address}"))
    here = check(["job"], Options())
    assert len(here.unreadable) == 1
    assert render(there) == render(here)
    assert workers[0].returncode == -signal.SIGKILL
    assert render(compared_there) == render(compare([JOB], ["job"], Options()))
