"""Some of a job's ranks: one per node, then those that others wait for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from advisor.analysis.job.job import job_of
from advisor.analysis.job.own_steps import blamed
from advisor.analysis.job.rank import Rank
from advisor.cli.output import sample_size
from advisor.engine import check
from advisor.errors import UsageError
from advisor.model.clause import Missing
from advisor.options import Options
from advisor.runs.files import sample
from tests.clusters import CLUSTER_FAULTS, Cluster, cluster
from tests.ranks import call, job, rank, spent
from tests.tables import metrics_of


def sampled(made: Cluster, most: int) -> tuple[list[int], list[Rank]]:
    """The ranks that are read, by number in that order, and what of them is compared."""
    files = {number: number for number in range(made.large.layout.ranks)}

    def read(numbers: Sequence[int]) -> list[Rank]:
        return [made.rank(number) for number in numbers]

    known = sample(files, most, read, lambda one: [one])
    return list(known), list(known.values())


def late_and_awaited(seed: int, ranks: int, most: int) -> tuple[int, str, object]:
    """The late rank of a simulated job; what is said to be late where so few are read, and which unread ones to be."""
    made, where = cluster("large-straggler", seed, ranks)
    numbers, known = sampled(made, most)
    assert len(set(numbers)) == len(numbers) <= most
    values = metrics_of(job_of(known))
    share = values["late_rank_share"]
    late = str(values["late_ranks"]) if isinstance(share, float) and share > 0.05 else ""
    return int(where.split()[1]), late, values["ranks_unread_awaited"]


def test_a_rank_of_each_node_comes_first_then_the_node_of_the_late_one() -> None:
    made, where = cluster("large-straggler", 3, 64)
    late = int(where.split()[1])
    numbers, _ = sampled(made, 20)
    assert numbers[:8] == list(range(0, 64, 8))
    node = set(range(late // 8 * 8, late // 8 * 8 + 8))
    assert set(numbers[8:15]) == node - set(numbers[:8])
    assert late_and_awaited(3, 64, 20) == (late, f"rank {late} (node {late // 8})", "")


def test_the_report_names_unread_ranks_that_the_read_ones_wait_for() -> None:
    made, where = cluster("large-straggler", 3, 64)
    node = int(where.split()[1]) // 8 * 8
    first_of_nodes = [made.rank(number) for number in range(0, 64, 8)]
    assert metrics_of(job_of(first_of_nodes))["ranks_unread_awaited"] == f"ranks {node + 1}\N{EN DASH}{node + 7}"
    healthy = cluster("large-healthy", 3, 64)[0]
    assert metrics_of(job_of([healthy.rank(number) for number in range(0, 64, 8)]))["ranks_unread_awaited"] == ""
    assert metrics_of(job_of([made.rank(number) for number in range(64)]))["ranks_unread_awaited"] == Missing(
        "all_ranks_read"
    )


def test_groups_in_which_read_ranks_wait_longer_than_in_others_blame_their_unread_members() -> None:
    def in_group(start: float, end: float, ranks: str) -> dict[str, object]:
        return call(start, end, op="all_reduce", ranks=ranks, group=ranks, group_size=2, bytes=8)

    quick = rank(0, [in_group(0, 10, "[0, 1]")])
    waiting = rank(2, [in_group(0, 60, "[2, 3]")])
    assert blamed(job(quick, waiting), {1, 3}) == [3]
    assert blamed(job(quick, waiting), {1}) == []
    beside = rank(3, [in_group(50, 60, "[2, 3]")])  # who is read explains the wait
    assert blamed(job(quick, waiting, beside), {1}) == []


def test_who_meets_a_late_rank_without_waiting_passes_its_lateness_on() -> None:
    def meeting(start: float, end: float, *members: int) -> dict[str, object]:
        return call(start, end, op="all_reduce", ranks=str([*members]), group=str([*members]), group_size=3, bytes=8)

    step = [spent(1, 0, 80)]
    late = rank(0, [meeting(50, 60, 0, 1, 2), meeting(70, 80, 0, 3, 4)], step)
    meets_it = rank(1, [meeting(0, 60, 0, 1, 2)], step)
    meets_its_mate = rank(5, [meeting(0, 60, 4, 5, 6)], step)
    assert blamed(job(late, meets_it, meets_its_mate), {2, 3, 4, 6}) == []
    elsewhere = rank(8, [meeting(0, 10, 7, 8, 9)], step)
    assert blamed(job(meets_it, meets_its_mate, elsewhere), {0, 2, 4, 6}) == [0, 2, 4, 6]


def test_a_check_of_a_sample_reads_so_many_files_and_says_what_it_did_not_see(tmp_path: Path) -> None:
    large, _ = CLUSTER_FAULTS["large-healthy"].job(0, 16, 3)
    large.save(tmp_path)
    report = check([str(tmp_path)], Options(sample=3))
    (run,) = report.runs
    assert [worker.worker for worker in run.source.workers] == [0, 8, 9]  # on both nodes
    (said,) = (note for note in run.source.notes if note.code == "ranks_sampled")
    assert said.facts == {"read": 3, "files": 16}


@pytest.mark.parametrize("wrong", ["64", "sample", "sample:0", "sample:-1", "first:3"])
def test_what_is_no_sample_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="give how many to read, such as sample:64"):
        sample_size(wrong)


@pytest.mark.soak
@pytest.mark.parametrize(("most", "named"), [(64, 0.9), (72, 1.0), (102, 1.0)])
def test_the_straggler_of_1024_ranks_is_named_at_a_tenth_of_them_or_else_its_node_is(most: int, named: float) -> None:
    """The 64 pairs of nodes differ in nothing but that one waits: 64 of these ranks name 960 of 1,024 at best."""
    seeds = range(60)
    jobs = [late_and_awaited(seed, 1024, most) for seed in seeds]
    missed = [
        seed for seed, (number, late, _) in zip(seeds, jobs, strict=True) if not late.startswith(f"rank {number} ")
    ]
    assert len(missed) <= (1 - named) * len(seeds), missed
    for seed, (number, _, awaited) in zip(seeds, jobs, strict=True):
        nodes = {int(unread) // 8 for unread in re.findall("[0-9]+", str(awaited))}
        assert nodes == ({number // 8} if seed in missed else set()), seed
