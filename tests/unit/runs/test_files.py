from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from advisor.analysis.device.selection import select_steps
from advisor.engine import read
from advisor.errors import ReadError
from advisor.inputs.discover import Recording, discover
from advisor.inputs.hardware import match
from advisor.metrics import Part, evaluate, measure_part
from advisor.model.clause import Note
from advisor.model.profile import table
from advisor.options import Options
from advisor.runs.files import are_small, jobs, parts
from tests.tables import Row, kernel, on_host, profile, step


def part(worker: int, file: str) -> Part:
    made = profile([kernel(0, 5, worker=worker)], steps=[step(1, 0, 10, worker=worker)])
    named = replace(made, workers=table("workers", {"worker": [worker], "rank": [worker], "file": [file]}))
    return measure_part(select_steps(named))


@pytest.fixture(autouse=True)
def _nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which files make a job is told before there are any metrics."""
    for register in ("TABLES", "METRICS"):
        monkeypatch.setattr(evaluate, register, {})


V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB"
RECORDING = Recording("job", "/logs/job", "kineto", ())


def test_files_of_different_ranks_are_one_job():
    ((name, made, notes),) = jobs(RECORDING, [part(0, "/a/rank0.json"), part(1, "/a/rank1.json")])
    assert (name, len(made), notes) == ("job", 2, [])


def test_a_second_file_of_a_rank_is_another_job_and_said():
    made = [part(0, "/a/rank0.json"), part(1, "/a/rank1.json"), part(1, "/a/copy.json")]
    (first, second) = jobs(RECORDING, made)
    assert first[:2] == ("job", made[:2])
    assert second[:2] == ("job/copy.json", made[2:])
    assert first[2][0] == Note("rank_repeated", ranks="1")


def test_two_jobs_in_a_folder_are_told_apart_in_the_order_of_their_files():
    made = [part(rank, f"/a/{job}_rank{rank}.json") for job in "xy" for rank in (0, 1)]
    assert [(name, len(job)) for name, job, _ in jobs(RECORDING, made)] == [("job", 2), ("job#2", 2)]


def on(worker: int, file: str, gpu: str) -> Part:
    made = part(worker, file)
    (rank,) = made.ranks
    return replace(made, ranks=(replace(rank, gpu=match(gpu)),))


def test_a_rank_goes_to_the_job_on_its_own_kind_of_gpu():
    """The first file in the order of names that claims rank 2 is of another job."""
    stray = on(2, "/a/a_rank2.json", A100)
    made = [stray, *(on(rank, f"/a/rank{rank}.json", V100) for rank in (0, 1, 2))]
    first, second = jobs(RECORDING, made)
    assert [p.selection.profile.workers["file"][0] for p in first[1]] == [f"/a/rank{n}.json" for n in (0, 1, 2)]
    assert second[1] == [stray]


def process(number: int, start: float, host: str = "node7", ops: Sequence[Row] = ()) -> Part:
    """A process that does not tell its rank, recorded for 100 us."""
    made = profile(ops, [on_host("op", start, start + 100)], [step(1, start, start + 100, device=0 if ops else None)])
    rows = {"worker": [0], "host": [host], "pid": [number], "file": [f"process{number}.json"]}
    return measure_part(select_steps(replace(made, workers=table("workers", rows))))


def test_a_scheduler_is_of_the_job_that_it_serves():
    """It runs beside the process with the GPU, and has a file of its own."""
    model = process(1, 0, ops=[kernel(10, 90)])
    ((_, made, notes),) = jobs(RECORDING, [process(2, 50), model])
    assert made == [model]
    assert notes == [Note("other_process", files="process2.json", more=0)]


@pytest.mark.parametrize(("start", "host"), [(100, "node7"), (50, "node8")], ids=["later", "elsewhere"])
def test_another_job_on_a_cpu_is_judged_by_itself(start: float, host: str):
    assert len(list(jobs(RECORDING, [process(2, start, host), process(1, 0, ops=[kernel(10, 90)])]))) == 2


def test_one_process_recorded_twice_is_two_runs_and_no_ranks():
    """As `trace_5.json` and `trace_10.json` of a schedule, whose numbers are steps."""
    made = [numbered(process(7, 100), 1), process(7, 0)]
    runs = list(jobs(Recording("job", "/logs/job", "kineto", ("trace_5.json", "trace_10.json")), made))
    assert [(len(job), notes) for _, job, notes in runs] == [(1, []), (1, [])]


def test_two_processes_that_ran_one_after_the_other_are_two_runs():
    """A script that ran twice into one folder: 100 us each, more than 200 us apart."""
    made = [numbered(process(8, 301), 1), process(7, 0)]
    folder = Recording("job", "/logs/job", "kineto", ("vm_8.json", "vm_7.json"))
    assert [len(job) for _, job, _ in jobs(folder, made)] == [1, 1]
    assert [len(job) for _, job, _ in jobs(folder, [numbered(process(8, 301, "node8"), 1), process(7, 0)])] == [2]


@pytest.mark.parametrize(
    ("pid", "start", "names"), [(7, 50, "trace_{}"), (8, 300, "trace_{}"), (8, 100, "trace_{}"), (7, 100, "rank{}")]
)
def test_processes_at_one_time_or_of_several_numbers_or_with_ranks_in_their_names_are_one_job(pid, start, names):
    made = [numbered(process(pid, start), 1), process(7, 0)]
    ((_, ranks, _),) = jobs(Recording("job", "/logs/job", "kineto", (names.format(0), names.format(1))), made)
    assert len(ranks) == 2


def numbered(made: Part, worker: int) -> Part:
    """The same with the number of another worker."""
    return replace(made, selection=replace(made.selection, profile=made.selection.profile.numbered(worker)))


def test_ranks_on_different_gpus_are_said():
    ((_, _, notes),) = jobs(RECORDING, [on(0, "/a/rank0.json", V100), on(1, "/a/rank1.json", A100)])
    assert notes[0].code == "different_gpus"


def test_nothing_measured_is_no_job():
    assert list(jobs(RECORDING, [])) == []


def traced(folder, name: str, pid: int, **info: object) -> None:
    """A trace of one kernel and the call that launched it."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": 1, "ts": 1, "dur": 2}
    ran = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 10}
    events = [call | {"args": {"correlation": 1}}, ran | {"args": {"correlation": 1, "device": 0, "stream": 7}}]
    header = {"schemaVersion": 1, "distributedInfo": info} if info else {"schemaVersion": 1}
    (folder / name).write_text(json.dumps(header | {"traceEvents": events}))


def told(folder) -> list[tuple[list[int], list[Note]]]:
    (found,), _ = discover([str(folder)])
    measured, _ = parts(found, Options())
    return [
        ([w for p in job for w in p.selection.profile.workers["worker"]], notes)
        for _, job, notes in jobs(found, measured)
    ]


def test_ranks_that_the_files_do_not_tell_are_said_to_be_from_their_names(tmp_path):
    for rank in (3, 5):
        traced(tmp_path, f"rank{rank}.pt.trace.json", 100 + rank)
    assert told(tmp_path) == [([3, 5], [Note("no_rank", silent=2, files=2, order=0)])]


def test_a_rank_below_zero_or_beyond_the_job_is_none(tmp_path):
    traced(tmp_path, "rank3.pt.trace.json", 103, rank=-1, world_size=8)
    traced(tmp_path, "rank5.pt.trace.json", 105, rank=8, world_size=8)
    ((ranks, notes),) = told(tmp_path)
    assert (ranks, notes) == ([3, 5], [Note("no_rank", silent=2, files=2, order=0)])


def test_files_of_several_processes_that_all_say_rank_0_are_numbered_by_their_names(tmp_path):
    for rank in (0, 1, 2):
        traced(tmp_path, f"rank{rank}.pt.trace.json", 100 + rank, rank=0, world_size=3)
    ((ranks, (note,)),) = told(tmp_path)
    assert ranks == [0, 1, 2]
    assert note == Note("same_rank", rank=0, order=0)
    assert read(str(tmp_path)).workers["worker"].to_list() == [0, 1, 2]  # as for an excerpt


def test_a_copy_of_a_rank_and_jobs_of_one_rank_each_stay_apart(tmp_path):
    for rank, size in ((0, 3), (1, 3)):
        traced(tmp_path, f"rank{rank}.pt.trace.json", 100, rank=0, world_size=size)  # one process
    assert [ranks for ranks, _ in told(tmp_path)] == [[0], [0]]
    with pytest.raises(ReadError, match=r"holds 2 runs; give the path of one, as .*rank0\.pt\.trace\.json$"):
        read(str(tmp_path))
    for rank in (0, 1):
        traced(tmp_path, f"rank{rank}.pt.trace.json", 100 + rank, rank=0, world_size=1)
    assert [ranks for ranks, _ in told(tmp_path)] == [[0], [0]]


def test_recordings_of_4_mib_are_small_and_nothing_is_asked_past_that(tmp_path):
    for name, size in (("a", 1 << 20), ("b", 3 << 20), ("c", 256)):
        (tmp_path / name).write_bytes(bytes(size))
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert are_small([a, b])
    assert not are_small([a, b, c])
    assert not are_small([str(tmp_path / "no such file"), c])
    assert are_small([c] * 16)
    cut = tmp_path / "cut.json"
    cut.write_bytes(b'{"schemaVersion": 1, "traceEvents": [')
    assert are_small([str(cut)] * 20_000)  # nothing is measured of those
    assert not are_small([c] * 17)

    def endless() -> Iterator[str]:
        while True:
            yield b

    assert not are_small(endless())
