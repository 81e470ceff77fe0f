"""Ranks that share too few CPUs, by the ops without work of all of them together; computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from advisor.analysis.device.cpu_waits import Workless
from advisor.analysis.job.job import Job, job_of
from advisor.metrics.metric import METRICS
from advisor.model.clause import Missing
from tests.ranks import call, rank, spent

MS = 1_000_000
# 4 waits of 5 ms among 4 ms of other ops: too few of one rank, and 8 of two
FEW = Workless(waits=4, waits_ns=20 * MS, longest_ns=5 * MS, run_ns=4 * MS)

OFTEN = FEW._replace(run_ns=MS // 2)  # a long one every 0.125 ms of the others: they work


def told(job: Job, name: str) -> object:
    metric = METRICS[name]
    return (metric.unknown and metric.unknown(job)) or metric.of(job)


def made(*workless: Workless, hosts: tuple[str | None, ...] = (None, None)) -> Job:
    """Steps of 100 ms: kernels for 30 ms, and from 80 ms on a collective in which rank 0 waits for 10 ms."""
    ranks = [
        rank(
            i,
            [call(80_000 + 10_000 * i, 100_000)],
            [spent(1, 0, 100_000, work_ns=30 * MS)],
            [(0, 30_000)],
            facts={"host": hosts[i]},
        )
        for i in range(2)
    ]
    return job_of([replace(of, workless=sample) for of, sample in zip(ranks, workless, strict=True)])


def test_the_ranks_of_a_host_together_show_what_each_has_too_few_waits_for():
    job = made(FEW, FEW)
    waits_ms = 5 * (8 - 2 * math.sqrt(8))
    share = waits_ms / (waits_ms + 8)
    assert told(job, "host_delay_share") == pytest.approx(share)
    assert told(job, "host_waiting_views") == 8
    assert told(job, "host_delay_most_ms") == pytest.approx(100 - 30 - 10)  # rank 1 transfers for 10 ms


@pytest.mark.parametrize(
    "job",
    [
        made(FEW, FEW, hosts=("a", "b")),  # each by itself has too few
        made(FEW, Workless(run_ns=4 * MS)),
        made(OFTEN, OFTEN),
    ],
)
def test_what_is_no_sign_of_too_few_cpus(job):
    names = ("host_delay_share", "host_waiting_views", "host_delay_most_ms")
    assert [told(job, name) for name in names] == [0, 0, 0]


def test_one_rank_shows_nothing_of_its_host():
    assert told(job_of([rank(0, steps=[spent(1, 0, 100)])]), "host_delay_share") == Missing("one_rank")
