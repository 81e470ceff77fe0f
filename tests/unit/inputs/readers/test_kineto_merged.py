"""Files of several ranks that a tool merged into one, as TraceLens's TraceFusion does; and extracts of such files."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.engine import check
from advisor.model.report import Run
from advisor.present.verdict import headline
from tests.strategies_kineto import Event, call, kernel, op, profile, step, text

STEPS = 4
WORK_US = {0: 200, 1: 600}  # of each step of 1000: rank 1 is the later one at each all-reduce, which ends at 900


def ran(rank: int, number: int) -> list[Event]:
    """A step of a rank: its kernel, then an all-reduce that ends on both when the later one has had 100 us of it."""
    at, work = 1000 * number, WORK_US[rank]
    labels = {"rank": rank, "device": rank}
    reduce = {"Collective name": "allreduce", "Process Group Name": "0", "In msg nelems": 1000, "dtype": "Float"}
    return [
        step(number, at, 1000),
        op(at + 10, 40),
        call(at + 20, 10, 2 * number + 1),
        kernel(at + 100, work, 2 * number + 1, **labels),
        call(at + 60, 10, 2 * number + 2),
        kernel(at + 110 + work, 790 - work, 2 * number + 2, "ncclDevKernel_Generic(x)", stream=9, **labels, **reduce),
    ]


def merged(*ranks: int) -> list[Event]:
    events = [(rank, event) for rank in ranks for number in range(STEPS) for event in ran(rank, number)]
    return [event | {"pid": 100 * rank + 1, "args": event["args"] | {"rank": rank}} for rank, event in events]


def judged(folder: Path, events: list[Event]) -> Run:
    path = folder / "merged.json"
    path.write_bytes(text(*events))
    (run,) = check([str(path)]).runs
    return run


def test_each_rank_of_a_merged_file_is_a_worker_whose_links_are_its_own():
    made = profile(*merged(1, 0))
    assert made.workers.select("worker", "rank", "pid").rows() == [(0, 0, 1), (1, 1, 101)]
    assert made.steps["worker"].to_list() == [0] * STEPS + [1] * STEPS
    owners = made.host_ops["worker"].gather(made.device_ops["launch"])
    assert owners.to_list() == made.device_ops["worker"].to_list()
    assert made.collectives["worker"].value_counts(sort=True)["count"].to_list() == [STEPS, STEPS]


@pytest.mark.parametrize("rank", [None, "1", -1, 2**40, [1]])
def test_events_that_do_not_all_say_a_rank_are_of_one_process(rank: object):
    made = profile(*merged(0, 1), op(10_000, 5, rank=rank))
    assert made.workers["rank"].to_list() == [None]


def test_one_rank_in_all_events_is_no_merged_file():
    assert profile(*merged(1)).workers.select("worker", "rank").rows() == [(0, None)]


def test_the_rank_that_comes_last_sets_the_pace_of_a_merged_file(tmp_path: Path):
    run = judged(tmp_path, merged(0, 1))
    assert run.source.steps.worker == 1
    (of_job,) = run.metrics["run"]
    assert of_job["matched_share"] == 1
    assert of_job["waiting_share"] == pytest.approx(400 / 2000)


def test_an_extract_of_collectives_shows_who_is_late_and_nothing_else(tmp_path: Path):
    run = judged(tmp_path, [event for event in merged(0, 1) if event["name"].startswith("nccl")])
    assert headline(run).endswith("only collectives are in this file, so computing and idle time cannot be judged.")
    assert run.accounting is None
    assert run.source.workload.kinds == ()
    (of_job,) = run.metrics["run"]
    assert of_job["waiting_share"] > 0
    assert [of_job[name] for name in ("device_busy_share", "idle_share", "idle_causes")] == [None, None, None]


def test_a_collective_beside_the_host_or_a_kernel_is_no_extract():
    collectives = [event for event in merged(0, 1) if event["name"].startswith("nccl")]
    assert profile(*collectives).lacks["device_ops.dur_ns"].code == "only_collectives"
    assert "device_ops.dur_ns" not in profile(*collectives, *merged(0, 1)[:4]).lacks
    alone = [event for event in merged(0, 1) if event["cat"] == "kernel"]
    assert "device_ops.dur_ns" not in profile(*alone).lacks
