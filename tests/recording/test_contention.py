"""Waits for a CPU that other programs cause, and those of a job with more to run than it has cores."""

from __future__ import annotations

import subprocess
import sys

import pytest

from advisor.recording.inside.threads import Work, others_part, work

MS = 1_000_000


@pytest.mark.parametrize(
    ("cores", "run_ms", "wait_ms", "part"),
    [
        (2, 100, 40, 1.0),  # one thread on two cores: whatever made it wait was not the job
        (2, 200, 100, 0.0),  # three threads that never rest have both cores to themselves
        (2, 150, 200, 0.25),  # four threads of the job got most of two cores: 50 ms went to others
        (2, 90, 200, 1.0),  # two threads that take turns hold no two cores, so both wait for others
        (1, 60, 40, 1.0),
        (1, 100, 0, 1.0),
        (2, 210, 100, 0.0),  # clocks of cores are read one after the other
    ],
)
def test_others_can_only_have_taken_what_the_job_did_not_get(cores: int, run_ms: int, wait_ms: int, part: float):
    before = Work(7 * MS, 5 * MS)
    after = Work((7 + run_ms) * MS, (5 + wait_ms) * MS)
    assert others_part(before, after, cores, 100 * MS) == pytest.approx(part)


def test_where_the_system_does_not_say_all_waits_are_of_others():
    assert others_part(None, Work(1, 1), 2, 100) == 1.0
    assert others_part(Work(1, 1), None, 2, 100) == 1.0


def test_the_work_of_a_child_is_that_of_the_job():
    before = work()
    if before is None:
        pytest.skip("this system notes no waits for a CPU")
    code = "import sys; sum(range(3_000_000)); print(flush=True); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        busy = work()
    rested = work()
    assert busy is not None
    assert rested is not None
    assert busy.run_ns - before.run_ns > 20 * MS
    assert rested.run_ns >= 0.9 * busy.run_ns  # what a child ran counts on when it has ended
