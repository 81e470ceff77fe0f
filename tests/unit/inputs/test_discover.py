from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine import excerpt
from advisor.errors import ReadError, UsageError
from advisor.inputs.discover import Recording, Rejected, discover, is_report, recordings
from advisor.inputs.storage import open_file, size, stamp
from advisor.model.clause import Note
from tests.effort import examples

TRACE = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}'
SMALL = Path(__file__).parents[3] / "fixtures/simulated-sync-a100"
EXCERPT = b'{"traceEvents":[{"ph":"M","name":"process_name","pid":1,"args":{"name":"Findings of gpu-advisor"}}'
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n"
TRACES = Path(__file__).parents[3].parent / "shared" / "traces"


def put(path: Path, content: bytes = TRACE) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.name.lower().endswith(".gz") else content)
    return str(path)


def names(files: tuple[str, ...]) -> list[str]:
    return [Path(file).name for file in files]


def only(path: Path | str) -> Recording:
    """The one run that a path holds, with nothing rejected."""
    found, rejected = discover([str(path)])
    assert rejected == []
    assert len(found) == 1
    return found[0]


def why(path: Path | str) -> str:
    """Why a path that holds no run holds none."""
    found, rejected = discover([str(path)])
    assert found == []
    assert [r.path for r in rejected] == [str(path)]
    assert "\n" not in rejected[0].why
    return rejected[0].why


LOG = b'{"header": {}, "metadata": {"inspector_output_format_version": "v4.0"}}'


@pytest.mark.parametrize("folder", ["", "logs/", "logs/deep/"])
def test_logs_go_with_the_one_run_around_them(tmp_path: Path, folder: str):
    traces = [put(tmp_path / f"traces/rank{rank}.pt.trace.json") for rank in range(2)]
    log = put(tmp_path / f"{folder}host0-pid1.log", LOG)
    run = only(tmp_path)
    assert (run.files, [of.files for of in run.logs]) == (tuple(traces), [(log,)])


def test_logs_beside_two_runs_are_a_run_of_their_own(tmp_path: Path):
    put(tmp_path / "a/rank0.pt.trace.json")
    put(tmp_path / "b/rank0.pt.trace.json")
    put(tmp_path / "a/logs/host0-pid1.log", LOG)
    found, _ = discover([str(tmp_path)])
    assert sorted((run.format, len(run.logs)) for run in found) == [("kineto", 0), ("kineto", 0), ("nccl_inspector", 0)]
    assert len(only(tmp_path / "a").logs) == 1


# ---------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("rank0.pt.trace.json", "rank0"),
        ("rank0.pt.trace.json.gz", "rank0"),
        ("RANK0.PT.TRACE.JSON.GZ", "RANK0"),
        ("worker0.1623143089861.pt.trace.json.gz", "worker0.1623143089861"),
        ("step.5.trace.json", "step.5"),
        ("mine.json", "mine"),
        ("mine.json.gz", "mine"),
        ("odd.name.txt", "odd.name"),  # what it contains decides, where it was named expressly
        ("bare", "bare"),
        (".hidden", ".hidden"),
    ],
)
def test_a_file_is_a_run(tmp_path: Path, file: str, name: str):
    path = put(tmp_path / file)
    assert discover([path]) == ([Recording(name, path, "kineto", (path,))], [])


@pytest.mark.parametrize(
    "content",
    [
        b'[\n{"ph": "X", "name": "aten::mm"}]',  # before Kineto: a bare list of events
        b'\xef\xbb\xbf {"traceEvents": []}',
        b'{"metadata": {}, "deviceProperties": [], "traceEv',
    ],
)
def test_traces_are_told_by_their_content(tmp_path: Path, content: bytes):
    assert only(put(tmp_path / "t.json", content)).format == "kineto"


def test_a_name_speaks_for_a_trace_whose_signs_come_late(tmp_path: Path):
    late = b'\n{"metadata": "' + b"x" * (1 << 20) + b'", "traceEvents": []}'
    assert only(put(tmp_path / "a.pt.trace.json", late))
    assert only(put(tmp_path / "a.pt.trace.json.gz", late))
    assert why(put(tmp_path / "a.json", late)).startswith("not a profile")


def test_a_truncated_gzip_file_is_taken(tmp_path: Path):
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(TRACE + os.urandom(9000))[:5000])
    assert only(path)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("a.pt.trace.json", b"", "empty"),
        ("a.json", b"", "empty"),
        ("a.pt.trace.json", LFS, "git lfs pull"),
        ("a.nsys-rep", LFS, "git lfs pull"),
        ("a.pt.trace.json", b"<html>404</html>", "not by its content"),
        ("a.pt.trace.json", b"\x1f\x8b\x08\x00broken", "nothing of this gzip file can be unpacked"),
        ("a.json", b"\x1f\x8b", "nothing of this gzip file can be unpacked"),
        ("package.json", b'{"name": "x", "version": "1"}', "not a profile; this version reads PyTorch Profiler traces"),
        ("manifest.json", b'{"schemaVersion": 2, "layers": []}', "not a profile"),  # a container image's
        ("report.json", b'{"schema_version": 1, "advisor_version": "0.1.0"}', "a report of advisor"),
        ("worst.json.gz", gzip.compress(EXCERPT), "an excerpt of advisor; give the profile"),
        ("notes.txt", b"hello", "not a profile"),
        ("h.xplane.pb", b"", "empty"),
        ("mlflow.sqlite", b"SQLite format 3\0 CREATE TABLE runs", "not a profile"),
        (
            "run.db",
            b"SQLite format 3\0 CREATE TABLE rocpd_event_1",
            "a database of rocprofv3; this version reads PyTorch",
        ),
        (
            "timeline.qdrep",
            b"SQLite format 3\0 CREATE TABLE CUPTI_ACTIVITY_KIND_EVENT(_id_ INTEGER PRIMARY KEY)",
            "a database of nvprof; this version reads PyTorch",
        ),
        ("kernels.csv", b'"Kind","Agent_Id","Queue_Id"', "a table of rocprofv3; this version reads PyTorch"),
        (
            "results.json",
            b'{ "traceEvents":[{} ,{"args":{"name":"CPU HIP API"},"ph":"M","pid":2,"name":"process_name"}',
            "a trace of rocprof; of AMD's GPUs, jobs of PyTorch and JAX are read",
        ),
        ("w.memory.json", b"[[1], [2]]", "PyTorch memory profile; this version reads PyTorch Profiler traces"),
    ],
)
def test_a_file_that_cannot_be_read_is_rejected_with_a_reason(tmp_path: Path, file: str, content: bytes, reason: str):
    path = tmp_path / file
    path.write_bytes(content)
    assert reason in why(path)


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.json")  # opening it would wait for a writer
    assert "not a regular file" in why(tmp_path / "pipe.json")


# ---------------------------------------------------------------------------------------------- folders


def test_the_files_of_a_folder_are_the_workers_of_one_run(tmp_path: Path):
    for rank in (10, 2, 0):
        put(tmp_path / "job" / f"rank{rank}.pt.trace.json.gz")
    run = only(tmp_path / "job")
    assert (run.name, run.path) == ("job", str(tmp_path / "job"))
    assert names(run.files) == [f"rank{rank}.pt.trace.json.gz" for rank in (0, 2, 10)]


def test_files_that_differ_in_the_rank_alone_are_one_run(tmp_path: Path):
    given_ = [put(tmp_path / f"job/{name}.pt.trace.json") for name in ("rank10", "rank2", "other", "eval_rank2")]
    found, rejected = discover(given_)
    assert rejected == []
    assert [(run.name, names(run.files)) for run in found] == [
        ("job", ["rank2.pt.trace.json", "rank10.pt.trace.json"]),
        ("other", ["other.pt.trace.json"]),
        ("eval_rank2", ["eval_rank2.pt.trace.json"]),
    ]


def test_ranks_of_the_working_folder_are_a_run_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in (0, 1):
        put(tmp_path / f"here/rank{number}.pt.trace.json")
    monkeypatch.chdir(tmp_path / "here")
    (run,), _ = discover(["rank0.pt.trace.json", "rank1.pt.trace.json"])
    assert run.name == "here"


def test_successive_recordings_are_runs_of_their_own(tmp_path: Path):
    for file in ("w1.1623143089900", "w0.1623143099861", "w0.1623143089861", "w1.1623143099000", "w0.9000000000"):
        put(tmp_path / "job" / f"{file}.pt.trace.json")
    found, rejected = discover([str(tmp_path / "job")])
    assert rejected == []
    assert [run.name for run in found] == ["job", "job#2", "job#3"]
    assert {run.path for run in found} == {str(tmp_path / "job")}
    assert [names(run.files) for run in found] == [
        ["w0.9000000000.pt.trace.json", "w1.1623143089900.pt.trace.json"],
        ["w0.1623143089861.pt.trace.json", "w1.1623143099000.pt.trace.json"],
        ["w0.1623143099861.pt.trace.json"],
    ]


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        (  # nanoseconds, as PyTorch writes since 2.1; the steps' names differ too
            ["h_7.1700000000000000002.pt.trace.json", "h_7.1700000000000000001.pt.trace.json"],
            [["h_7.1700000000000000001.pt.trace.json"], ["h_7.1700000000000000002.pt.trace.json"]],
        ),
        (
            [
                "worker0_step_12.1694128201545.json",
                "worker1_step_12.1694128201500.json",
                "worker0_step_2.1694128201000.json",
            ],
            [
                ["worker0_step_2.1694128201000.json", "worker1_step_12.1694128201500.json"],
                ["worker0_step_12.1694128201545.json"],
            ],
        ),
        (["step10.json", "step9.json"], [["step9.json"], ["step10.json"]]),
        (["rank0-iteration_5.json", "rank1-iteration_5.json"], [["rank0-iteration_5.json", "rank1-iteration_5.json"]]),
        (
            ["1737528048.51-TP-0.trace.json.gz", "1737528048.52-TP-1.trace.json.gz", "1737529999.1-TP-0.trace.json.gz"],
            [
                ["1737528048.51-TP-0.trace.json.gz", "1737528048.52-TP-1.trace.json.gz"],
                ["1737529999.1-TP-0.trace.json.gz"],
            ],
        ),
        (["gpu-0_12345.json", "gpu-1_12346.json"], [["gpu-0_12345.json", "gpu-1_12346.json"]]),  # a pid is no time
        ([], []),
    ],
)
def test_recordings_go_by_step_and_time(files: list[str], runs: list[list[str]]):
    assert [list(run) for run in recordings(files)] == runs


def test_every_folder_with_traces_is_a_run(tmp_path: Path):
    for folder in ("a", "b/deep/er", "b", ".git", "c/.cache"):
        put(tmp_path / "logs" / folder / "rank0.pt.trace.json")
    put(tmp_path / "logs" / "a" / "._rank0.pt.trace.json")  # what macOS leaves beside a copied file
    found, rejected = discover([str(tmp_path / "logs")])
    assert [run.name for run in found] == ["a", "er", "b"]
    assert [len(run.files) for run in found] == [1, 1, 1]
    assert rejected == []


def test_nothing_but_links_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """To resolve a path asks for each folder above it: that takes minutes in a chain of 2,000 folders."""
    put(tmp_path / "logs/rank0.pt.trace.json")
    (tmp_path / "logs" / "/".join("x" * 100)).mkdir(parents=True)
    resolved: list[object] = []
    monkeypatch.setattr(
        os.path, "realpath", lambda path, real=os.path.realpath, **how: resolved.append(path) or real(path, **how)
    )
    assert len(discover([str(tmp_path / "logs")])[0]) == 1
    assert len(resolved) < 10


def test_other_files_in_a_folder_are_passed_over(tmp_path: Path):
    trace = put(tmp_path / "rank0.json")
    put(tmp_path / "package.json", b'{"name": "x"}')
    put(tmp_path / "report.json", b'{"schema_version": 1, "advisor_version": "0.1.0"}')
    put(tmp_path / "empty.json", b"")
    put(tmp_path / "notes.txt", TRACE)
    put(tmp_path / "data.json.gz", b"\0\0")
    put(tmp_path / "app.sqlite", b"SQLite format 3\0")
    assert only(tmp_path).files == (trace,)


def test_profiles_in_a_folder_that_cannot_be_read_are_told_with_the_reason(tmp_path: Path):
    put(tmp_path / "rank0.pt.trace.json")
    for rank in (1, 2, 3):
        put(tmp_path / f"rank{rank}.pt.trace.json", b"")
    put(tmp_path / "rank4.json", LFS)
    put(tmp_path / "host.memory.json", b"[]")
    (tmp_path / "rank5.json").symlink_to(tmp_path / "gone")
    found, rejected = discover([str(tmp_path)])
    assert names(found[0].files) == ["rank0.pt.trace.json"]
    told = {Path(r.path).name: r.why for r in rejected}
    assert told["rank1.pt.trace.json"].startswith("empty")
    assert "git lfs" in told["rank4.json"]
    assert "memory profile" in told["host.memory.json"]
    assert "no such file" in told["rank5.json"]
    assert len(told) == 6


def test_what_is_named_like_a_dump_or_like_a_profile_beside_it_is_missed_whatever_it_holds(tmp_path: Path):
    dump = b'{"version": "2.9", "comm_lib_version": "2.27", "entries": []}'
    put(tmp_path / "dumps/nccl_trace_rank_0", dump)
    lost = {put(tmp_path / "dumps/nccl_trace_rank_1", b""), put(tmp_path / "dumps/nccl_trace_rank_2", b"garbage")}
    put(tmp_path / "alone/rank0.pt.trace.json")
    lost |= {put(tmp_path / "alone/nccl_trace_rank_0", b"")}
    put(tmp_path / "logs/node-a-pid1.log", LOG)
    lost |= {put(tmp_path / "logs/node-b-pid2.log", b""), put(tmp_path / "logs/node-c-pid3.log", b"said nothing")}
    put(tmp_path / "ranks/rank0/trace.json")
    lost |= {put(tmp_path / "ranks/rank1/trace.json", b"{}")}
    put(tmp_path / "ranks/rank2/trace.json", b'{"advisor_version": "1"}')  # a report is no rank's
    put(tmp_path / "ranks/server.log", b"")
    _, rejected = discover([str(tmp_path)])
    assert {told.path for told in rejected} == lost


@pytest.mark.parametrize("files", [(), ("package.json",), ("notes.txt",)])
def test_a_folder_with_nothing_is_rejected(tmp_path: Path, files: tuple[str, ...]):
    for file in files:
        put(tmp_path / file, b"{}")
    assert why(tmp_path).startswith("no profile in this folder; this version reads PyTorch Profiler traces")


def test_the_viewers_copies_are_read_where_the_profile_itself_is_not_there(tmp_path: Path):
    """Of one host the profile was kept, of the others not: they are one run all the same."""
    folder = tmp_path / "job" / "plugins" / "profile" / "run"
    put(folder / "host1.xplane.pb", b"\n\x00")
    for host in ("host1", "host2", "host3"):
        put(folder / f"{host}.trace.json.gz", VIEWERS)
    run = only(tmp_path)
    assert (run.name, run.format) == ("job", "xplane")
    assert names(run.files) == ["host1.xplane.pb", "host2.trace.json.gz", "host3.trace.json.gz"]


# ---------------------------------------------------------------------------------------------- TensorFlow and JAX

VIEWERS = b'{"metadata":{"highres-ticks":true}}'


def profiled(log: Path, *runs: str, hosts: tuple[str, ...] = ("h",)) -> Path:
    for run in runs:
        for host in hosts:
            put(log / "plugins" / "profile" / run / f"{host}.xplane.pb", b"\n\x00")
            put(log / "plugins" / "profile" / run / f"{host}.trace.json.gz", VIEWERS)
    return log


def test_the_hosts_of_a_run_are_its_workers_and_the_viewers_copies_are_passed_over(tmp_path: Path):
    run = only(profiled(tmp_path / "job", "2026_01_02", hosts=("10.0.0.10_6009", "10.0.0.9_6009")))
    assert (run.name, run.format) == ("job", "xplane")
    assert names(run.files) == ["10.0.0.9_6009.xplane.pb", "10.0.0.10_6009.xplane.pb"]


def test_the_newest_run_of_a_log_folder_is_taken_and_notes_the_others(tmp_path: Path):
    log = profiled(tmp_path / "job", "2026_01_02_03_04_05", "2026_01_10_03_04_05", "2025_12_31_00_00_00")
    found, rejected = discover([str(log)])
    assert [(run.name, Path(run.path).name) for run in found] == [("job", "2026_01_10_03_04_05")]
    assert rejected == []  # nothing failed to be read
    assert found[0].notes == (Note("newest_run", runs=3, run="2026_01_10_03_04_05"),)


def test_a_run_can_be_named_given_by_its_path_or_all_be_taken(tmp_path: Path):
    log = profiled(tmp_path / "job", "a", "b")
    (run,), _ = discover([str(log)], run="a")
    assert (Path(run.path).name, run.notes) == ("a", ())
    assert only(log / "plugins" / "profile" / "a").path.endswith("/a")
    found, rejected = discover([str(log)], all_runs=True)
    assert [run.name for run in found] == ["job/a", "job/b"]
    assert rejected == []
    with pytest.raises(UsageError, match=r"--run c: .*/job has no such run; its runs: a, b"):
        discover([str(log)], run="c")


def test_log_folders_are_chosen_from_one_by_one(tmp_path: Path):
    for job in ("x", "y"):
        profiled(tmp_path / job, "1", "2")
    put(tmp_path / "rank0.pt.trace.json")
    found, rejected = discover([str(tmp_path)])
    assert {run.name: len(run.notes) for run in found} == {tmp_path.name: 0, "x": 1, "y": 1}
    assert rejected == []


def test_an_unpacked_copy_counts_once(tmp_path: Path):
    put(tmp_path / "rank0.json")
    packed = put(tmp_path / "rank0.json.gz")
    found, rejected = discover([str(tmp_path)])
    assert [run.files for run in found] == [(packed,)]
    assert [(Path(r.path).name, ".gz beside it" in r.why) for r in rejected] == [("rank0.json", True)]


def test_an_unpacked_copy_stands_in_for_a_damaged_gzip_file(tmp_path: Path):
    plain = put(tmp_path / "rank0.pt.trace.json")
    (tmp_path / "rank0.pt.trace.json.gz").write_bytes(b"\x1f\x8bbroken")
    found, rejected = discover([str(tmp_path)])
    assert [run.files for run in found] == [(plain,)]
    assert ["unpacked" in r.why for r in rejected] == [True]


def test_links_are_followed_once(tmp_path: Path):
    real = put(tmp_path / "logs" / "run" / "rank0.json")
    for link in ("a-link", "z-link"):
        (tmp_path / "logs" / link).symlink_to(tmp_path / "logs" / "run")
    (tmp_path / "logs" / "run" / "loop").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "self").symlink_to(tmp_path / "logs" / "self")
    found, rejected = discover([str(tmp_path / "logs")])
    assert {file for run in found for file in run.files} == {real}
    assert rejected == []


def test_links_lead_nowhere_out_of_the_folder(tmp_path: Path):
    real = put(tmp_path / "logs" / "rank0.json")
    put(tmp_path / "store" / "rank1.json")
    (tmp_path / "logs" / "folder").symlink_to(tmp_path / "store")
    (tmp_path / "logs" / "rank1.json").symlink_to(tmp_path / "store" / "rank1.json")
    (tmp_path / "logs" / "up").symlink_to("..")
    found, rejected = discover([str(tmp_path / "logs")])
    assert [run.files for run in found] == [(real,)]
    assert {Path(r.path).name for r in rejected} == {"folder", "rank1.json", "up"}
    assert all("leads out of this folder" in r.why for r in rejected)
    (tmp_path / "link").symlink_to(tmp_path / "store")  # given by the user, it is the folder
    assert [len(run.files) for run in discover([str(tmp_path / "link")])[0]] == [1]


def test_a_closed_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path / "open" / "rank0.json")
    put(tmp_path / "closed" / "rank0.json")
    scandir = os.scandir

    def refusing(folder: str) -> object:  # chmod would not stop root
        if folder.endswith("closed"):
            raise PermissionError(13, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    found, rejected = discover([str(tmp_path)])
    assert [run.name for run in found] == ["open"]
    assert rejected == [
        Rejected(str(tmp_path / "closed"), "Permission denied; check its permissions or your credentials")
    ]
    with pytest.raises(ReadError, match="closed: Permission denied; check its permissions"):
        discover([str(tmp_path / "closed")])


# ---------------------------------------------------------------------------------------------- names


def test_equal_names_are_told_apart_by_their_parents(tmp_path: Path):
    for path in ("mon/run/r.json", "tue/run/r.json", "tue/x/y.json"):
        put(tmp_path / path)
    assert [run.name for run in discover([str(tmp_path)])[0]] == ["mon/run", "tue/run", "x"]


def test_a_file_and_a_folder_of_one_name(tmp_path: Path):
    file, folder = put(tmp_path / "run.json"), Path(put(tmp_path / "run" / "rank0.json")).parent
    assert sorted(run.name for run in discover([file, str(folder)])[0]) == sorted([str(folder), file])


def test_overlapping_paths_give_each_run_once(tmp_path: Path):
    put(tmp_path / "run" / "rank0.json")
    put(tmp_path / "run" / "bad.pt.trace.json", b"")
    found, rejected = discover([str(tmp_path), f"{tmp_path}/run/", f"{tmp_path}/run"])
    assert [run.name for run in found] == ["run"]
    assert len(rejected) == 1


def test_the_current_folder_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path / "job" / "rank0.json")
    monkeypatch.chdir(tmp_path / "job")
    assert only(".") == Recording("job", ".", "kineto", ("./rank0.json",))


# ---------------------------------------------------------------------------------------------- paths and bytes


@pytest.mark.parametrize("suffix", ["", "/", ".json"])
def test_a_path_that_does_not_exist(tmp_path: Path, suffix: str):
    with pytest.raises(ReadError, match=r"nowhere.*: no such file, folder or bucket; check the path"):
        discover([f"{tmp_path}/nowhere{suffix}"])


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(UsageError, match="an empty path"):
        discover([""])


def test_a_file_url(tmp_path: Path):
    path = put(tmp_path / "my job" / "rank 0.json")
    assert only(Path(path).as_uri()).files == (path,)
    assert only(Path(path).parent.as_uri()).path == str(tmp_path / "my job")


def test_open_file_and_size(tmp_path: Path):
    path = put(tmp_path / "a.json")
    with open_file(path) as stream:
        assert stream.read() == TRACE
    with open_file(Path(path).as_uri()) as stream:
        assert stream.read(3) == TRACE[:3]
    assert size(path) == size(Path(path).as_uri()) == len(TRACE)
    assert size(f"{path}.gone") is None
    with pytest.raises(ReadError, match=r"a\.json\.gone: no such file"):
        open_file(f"{path}.gone")


@pytest.mark.parametrize(("protocol", "module", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, protocol: str, module: str, extra: str):
    registry = pytest.importorskip("fsspec.registry")
    monkeypatch.setattr(registry, "registry", {})
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"{protocol}://b/x: .*pip install 'gpu-advisor\[{extra}\]'"):
        discover([f"{protocol}://b/x"])


def test_an_unknown_protocol():
    with pytest.raises(UsageError, match="nonsense://x: Protocol not known: nonsense; copy"):
        discover(["nonsense://x"])


def test_importing_discover_is_cheap():
    code = "import sys, advisor.inputs.discover; print(*{'fsspec', 'polars', 'numpy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# ---------------------------------------------------------------------------------------------- real profiles

real = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared real traces are not here")


@real
def test_every_folder_of_real_traces_is_a_run():
    found, rejected = discover([str(TRACES / "kineto")])
    assert rejected == []
    assert {Path(run.path) for run in found} == set((TRACES / "kineto").iterdir())
    assert len({run.name for run in found}) == len(found)
    counts = {run.name: len(run.files) for run in found}
    several = {name: number for name, number in counts.items() if number > 1}
    assert several == {"dlrm-8rank-v100": 8, "dlrm-forward-4rank-v100": 4, "megatron-tp8-a100": 8}


@real
def test_every_real_log_folder_of_tensorflow_and_jax_is_a_run():
    found, rejected = discover([str(TRACES / "xplane")])
    assert rejected == []
    assert {run.name for run in found} == {path.name for path in (TRACES / "xplane").iterdir() if path.is_dir()}


@real
@pytest.mark.parametrize("folder", ["stragglers"])
def test_real_profiles_of_other_kinds_are_rejected(folder: str):
    found, rejected = discover([str(TRACES / folder)])
    assert found == []
    assert rejected
    assert all("this version reads PyTorch Profiler traces" in r.why for r in rejected)


@real
def test_every_real_nsight_export_is_a_run():
    found, rejected = discover([str(TRACES / "nsys")])
    assert rejected == []
    assert {run.files for run in found} == {(str(path),) for path in (TRACES / "nsys").iterdir()}


# ------------------------------------------------------------------------------------------ nsight systems

SQLITE = b"SQLite format 3\0 CREATE TABLE TARGET_INFO_GPU"


def test_exports_whose_names_differ_in_numbers_are_one_run(tmp_path: Path):
    for name in ("rank0.sqlite", "rank1.sqlite", "other.sqlite"):
        put(tmp_path / name, SQLITE)
    found, rejected = discover([str(tmp_path)])
    assert rejected == []
    assert sorted(names(run.files) for run in found) == [["other.sqlite"], ["rank0.sqlite", "rank1.sqlite"]]


def test_profiles_of_two_formats_are_two_runs(tmp_path: Path):
    put(tmp_path / "report.sqlite", SQLITE)
    put(tmp_path / "report.pt.trace.json")
    found, rejected = discover([str(tmp_path)])
    assert rejected == []
    assert sorted(run.format for run in found) == ["kineto", "nsys"]
    assert len({run.name for run in found}) == 2


def test_a_folder_of_exported_tables_is_one_file(tmp_path: Path):
    for name in ("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"):
        put(tmp_path / "report_pqtdir" / f"{name}.parquet", b"PAR1")
    for path in (tmp_path, tmp_path / "report_pqtdir"):
        assert only(path).files == (str(tmp_path / "report_pqtdir"),)


@pytest.mark.parametrize("export", ["report.sqlite", "report_pqtdir/StringIds.parquet"])
def test_a_report_is_passed_over_for_its_export(tmp_path: Path, export: str):
    put(tmp_path / "report.nsys-rep", b"x")
    put(tmp_path / export, SQLITE)
    found, rejected = discover([str(tmp_path)])
    assert len(found) == 1
    assert [(Path(r.path).name, r.why) for r in rejected] == [
        ("report.nsys-rep", "its export beside it is read instead")
    ]


@real
def test_malformed_files_are_taken_or_rejected_with_a_reason():
    taken: list[str] = []
    left: dict[str, str] = {}
    for path in sorted((TRACES / "malformed").iterdir()):
        found, rejected = discover([str(path)])
        assert len(found) + len(rejected) == 1
        taken += [Path(run.path).name for run in found]
        left |= {Path(r.path).name: r.why for r in rejected}
    assert taken == [
        "control-chars.pt.trace.json",
        "gzip-bad-crc.pt.trace.json.gz",
        "latin1-bytes.pt.trace.json",
        "missing-closing-bracket.pt.trace.json",
        "nan-inf-durations.pt.trace.json",
        "negative-missing-null-events.pt.trace.json",
        "no-events.pt.trace.json",
        "no-kernel-table.nsys.sqlite",
        "trailing-comma.pt.trace.json",
        "truncated-4KB.nsys-rep",
        "truncated-60pct.pt.trace.json.gz",
        "truncated-half.nsys.sqlite",
        "truncated-mid-event.pt.trace.json",
        "truncated.xplane.pb",
        "utf8-mangled.xplane.pb",
    ]
    assert {name: reason.partition(";")[0] for name, reason in left.items()} == {
        "empty.pt.trace.json": "empty: the recording or a copy of it broke off",
        "lfs-pointer.report1.nsys-rep": "a Git LFS pointer in place of the file",
        "lfs-pointer.report1.sqlite": "a Git LFS pointer in place of the file",
        "lfs-pointer.trace_training.json": "a Git LFS pointer in place of the file",
    }


# ---------------------------------------------------------------------------------------------- properties

SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz", ".json", ".JSON.gz")
Sample = tuple[str, int | None, int | None]
recording = st.tuples(
    st.sampled_from(["rank0", "rank2", "rank10", "host-a_4711", "host-a_4712", "w"]),
    st.none() | st.integers(0, 30),
    st.none() | st.integers(10**12, 10**12 + 40),
)
job = st.dictionaries(recording, st.sampled_from(SUFFIXES), max_size=12)


def file_of(made: Sample, suffix: str) -> str:
    worker, step, at_ms = made
    return worker + ("" if step is None else f"_step_{step}") + ("" if at_ms is None else f".{at_ms}") + suffix


@given(job, st.data())
def test_run_k_holds_the_kth_recording_of_each_worker_however_listed(made: dict[Sample, str], data: st.DataObject):
    of_worker: dict[str, list[tuple[list[int], str]]] = {}
    for one, suffix in made.items():
        moment = [part for part in one[1:] if part is not None]
        of_worker.setdefault(one[0], []).append((moment, file_of(one, suffix)))
    longest = max(map(len, of_worker.values()), default=0)
    expected = [{sorted(of)[k][1] for of in of_worker.values() if k < len(of)} for k in range(longest)]
    listing = data.draw(st.permutations([file_of(one, suffix) for one, suffix in made.items()]))
    assert [set(run) for run in recordings(listing)] == expected
    assert recordings(listing) == recordings(sorted(listing))


def test_a_folder_named_like_a_second_recording_keeps_the_names_apart(tmp_path: Path):
    put(tmp_path / "run/rank0_step_1.json")
    put(tmp_path / "run/rank0_step_2.json")
    put(tmp_path / "run#2/rank0_step_1.json")
    found, _ = discover([str(tmp_path)])
    assert len(found) == 3
    assert len({run.name for run in found}) == 3


folder = st.lists(st.sampled_from(["a", "b", "run", "run#2", "x.json"]), max_size=3).map("/".join)
trace_file = st.tuples(folder, recording, st.sampled_from(SUFFIXES)).map(
    lambda of: f"{of[0]}/{file_of(of[1], of[2])}".lstrip("/")
)
other_file = st.tuples(folder, st.sampled_from(["notes.txt", "package.json", ".rank0.json"])).map("/".join)


@examples(0.6)
@given(st.sets(trace_file, max_size=10), st.sets(other_file, max_size=3))
def test_each_trace_is_in_exactly_one_run(traces: set[str], others: set[str]):
    with tempfile.TemporaryDirectory() as root:
        for file in traces:
            put(Path(root, file))
        for file in others:
            put(Path(root, file.lstrip("/")), b"{}")
        found, rejected = discover([root])
        in_runs = [str(Path(file).relative_to(root)) for run in found for file in run.files]
        twins = {file for file in traces if f"{file}.gz" in traces}
        assert sorted(in_runs) == sorted(traces - twins)
        assert all(len({Path(file).parent for file in run.files}) == 1 for run in found)
        assert len({run.name for run in found}) == len(found)
        assert bool(rejected) == (not traces or bool(twins))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b' {"kind": "report", "advisor_version": "1"', True),
        (b'{"traceEvents": []}', False),
        (b'["advisor_version"]', False),
    ],
)
def test_a_file_of_ours_names_its_version_in_its_head(tmp_path: Path, text: bytes, expected: bool):  # noqa: FBT001
    assert is_report(put(tmp_path / "a.json", text)) == expected


def test_an_excerpt_beside_its_recording_is_no_rank_of_the_job(tmp_path):
    shutil.copytree(SMALL, tmp_path / "job")
    (tmp_path / "job/worst.json").write_text(json.dumps(excerpt(str(SMALL), "frequent-synchronisation")))
    ((run,), rejected) = discover([str(tmp_path / "job")])
    assert ([Path(file).suffix for file in run.files], rejected) == ([".gz"], [])


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no file system here keeps such times")  # noqa: S108
@pytest.mark.parametrize("seconds", [1 << 40, -(1 << 40)])
def test_a_clock_beyond_all_calendars_says_nothing(seconds):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        os.utime(file.name, (seconds, seconds))
        assert stamp(file.name) == (f"0-{seconds * 10**9}", None)


def test_a_table_that_is_written_anew_in_place_is_another_recording(tmp_path):
    table = Path(put(tmp_path / "run" / "StringIds.parquet"))
    os.utime(table, (1, 1))
    before = stamp(str(table.parent))
    os.utime(table, (4e9, 4e9))  # after the folder, whose own time stays
    assert stamp(str(table.parent)) != before


def test_a_zero_byte_may_be_spelt():
    with pytest.raises(UsageError, match="zero byte"):
        discover(["file:///tmp/a%00b"])
