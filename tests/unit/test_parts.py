from __future__ import annotations

from dataclasses import replace

from advisor.discover import Found
from advisor.lens import look
from advisor.metrics import Part, measure_part
from advisor.parts import jobs
from advisor.profile import table
from tests.tables import kernel, profile, step


def part(worker: int, file: str) -> Part:
    made = profile([kernel(0, 5, worker=worker)], steps=[step(1, 0, 10, worker=worker)])
    named = replace(made, workers=table("workers", {"worker": [worker], "file": [file]}))
    return measure_part(look(named))


FOUND = Found("job", "/logs/job", "kineto", ())


def test_files_of_different_ranks_are_one_job():
    ((name, parts, notes),) = jobs(FOUND, [part(0, "/a/rank0.json"), part(1, "/a/rank1.json")])
    assert (name, len(parts), notes) == ("job", 2, [])


def test_a_second_file_of_a_rank_is_another_job_and_said():
    made = [part(0, "/a/rank0.json"), part(1, "/a/rank1.json"), part(1, "/a/copy.json")]
    (first, second) = jobs(FOUND, made)
    assert first[:2] == ("job", made[:2])
    assert second[:2] == ("job/copy.json", made[2:])
    assert "rank 1" in first[2][0]


def test_two_jobs_in_a_folder_are_told_apart_in_the_order_of_their_files():
    made = [part(rank, f"/a/{job}_rank{rank}.json") for job in "xy" for rank in (0, 1)]
    assert [(name, len(parts)) for name, parts, _ in jobs(FOUND, made)] == [("job", 2), ("job#2", 2)]


def test_nothing_measured_is_no_job():
    assert list(jobs(FOUND, [])) == []
