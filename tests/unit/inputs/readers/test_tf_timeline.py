"""Timelines of TensorFlow 1, made by hand after `tensorflow/python/client/timeline.py`, and a real one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from advisor.errors import NothingRecorded, ReadError, UsageError
from advisor.inputs.discover import discover
from advisor.inputs.readers import Reading, tf_timeline
from advisor.model.clause import Note
from advisor.model.profile import Profile
from advisor.model.report import Finding, Run
from advisor.scrub import scrub
from tests import profiles

Ran = tuple[str, str, int, int]  # node, type, start and length in microseconds
TASK = "/job:localhost/replica:0/task:0"
CPU, GPU = f"{TASK}/device:CPU:0", f"{TASK}/device:GPU:0"
ALL, COPIES, FIRST, SECOND = (f"/device:GPU:0/{of}" for of in ("stream:all", "memcpy", "stream:13", "stream:14"))


def timeline(rows: dict[str, list[Ran]], of_run: str = "Op") -> bytes:
    """The file: two processes for each title, and the first one always."""
    titles = ["Allocators", *(f"{title} {what}" for title in rows for what in ("Compute", "Tensors"))]
    named: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": title}} for pid, title in enumerate(titles)
    ]
    ran = [
        {"ph": "X", "cat": of_run, "name": kind, "pid": pid, "tid": 0, "ts": at, "dur": dur}
        | {"args": {"name": node, "op": kind, "input0": "a"}}
        for pid, of_title in zip(range(1, len(titles), 2), rows.values(), strict=True)
        for node, kind, at, dur in of_title
    ]
    return json.dumps({"traceEvents": [*named, *ran]}, indent=4).encode()


def run(cpu: list[Ran], gpu: list[Ran], kernels: list[Ran], copies: list[Ran] = []) -> bytes:  # noqa: B006
    """One `session.run`: what runs on a GPU stands twice."""
    return timeline({CPU: cpu, GPU: gpu, ALL: kernels, FIRST: kernels, COPIES: copies, SECOND: copies})


def read(data: bytes) -> Profile:
    return tf_timeline.read(io.BytesIO(data), "runs/timeline_20.ctf.json")


def judged(data: bytes, folder: Path) -> tuple[Run, list[Finding]]:
    """The run, and the findings about the job."""
    (folder / "timeline.json").write_bytes(data)
    (checked,) = profiles.check(folder / "timeline.json").runs
    return checked, [finding for finding in checked.findings if finding.rule != "too-few-steps"]


STEP = run(
    cpu=[("_SOURCE", "NoOp", 1000, 1), ("next", "IteratorGetNext", 1002, 98), ("q", "QueueDequeueManyV2", 1050, 10)],
    gpu=[("dense/MatMul", "MatMul", 1110, 20), ("dense/Relu", "Relu", 1130, 5)],
    kernels=[
        ("dense/MatMul", "MatMul", 1120, 40),
        ("dense/MatMul", "MatMul", 1160, 10),
        ("dense/Relu", "Relu", 1170, 4),
    ],
    copies=[
        ("edge_7_next", "MEMCPYHtoD", 1101, 3),
        ("edge_9__recv_x_0", "MEMCPYHtoD", 1105, 1),
        ("dense/Relu", "Relu", 1174, 2),
    ],
)


def test_nodes_are_ops_of_the_host():
    found = read(STEP)
    host = found.host_ops.select(pl.col("name", "kind").cast(pl.String), "start_ns", "dur_ns", "thread")
    assert host.rows() == [
        ("next:IteratorGetNext", "input", 1_002_000, 98_000, 0),
        ("q:QueueDequeueManyV2", "input", 1_050_000, 10_000, 1),  # beside the other
        ("dense/MatMul:MatMul", "op", 1_110_000, 20_000, 0),
        ("dense/Relu:Relu", "op", 1_130_000, 5_000, 0),
    ]
    assert found.workers.select("name", "framework", "producer").row(0) == (
        *("timeline_20", "tensorflow"),
        "TensorFlow's timeline",
    )
    assert found.workers.select("recorded_start_ns", "recorded_end_ns").row(0) == (1_002_000, 1_176_000)


def test_what_ran_on_the_gpu_counts_once_with_its_stream_and_its_node():
    ops = read(STEP).device_ops
    assert ops.select("device", "stream", pl.col("kind", "copy_kind").cast(pl.String), "start_ns", "dur_ns").rows() == [
        (0, 14, "memcpy", "HtoD", 1_101_000, 3_000),
        (0, 14, "memcpy", "HtoD", 1_105_000, 1_000),
        (0, 13, "kernel", None, 1_120_000, 40_000),
        (0, 13, "kernel", None, 1_160_000, 10_000),
        (0, 13, "kernel", None, 1_170_000, 4_000),
        (0, 14, "memcpy", None, 1_174_000, 2_000),
    ]
    # a copy between devices has no node: only what ran before it is known
    assert ops.select("op", "launch").rows() == [(None, 1), (None, 1), (2, 2), (2, 2), (3, 3), (3, 3)]
    assert ops["framework_op"].cast(pl.String).to_list()[2] == "dense/MatMul:MatMul"


def test_what_a_timeline_lacks_has_a_reason():
    lacks = read(STEP).lacks
    assert lacks["device_ops.name"].code == "no_names_timeline"
    assert lacks["steps"].code == "no_marks_timeline"
    assert {"host_ops.shapes", "device_ops.bytes", "devices", "allocations"} <= lacks.keys()
    assert read(timeline({CPU: [("a", "Add", 1, 1)]})).lacks["device_ops"].code == "no_gpu_timeline"


def test_a_node_that_runs_again_launches_from_then_on():
    ran = [("a", "Add", at, 5) for at in (100, 200)]
    assert read(run([], ran, [("a", "Add", 102, 1), ("a", "Add", 203, 1)])).device_ops["op"].to_list() == [0, 1]


def test_old_names_of_devices_and_other_tasks():
    rows = {f"{TASK}/gpu:0": [("a", "Add", 1, 1), ("b", "Add", 2, 1)], "/gpu:1/stream:all": [("a", "Add", 3, 1)]}
    found = read(timeline(rows | {"/job:ps/replica:0/task:3/cpu:0": [("v", "VariableV2", 2, 9)]}))
    assert found.host_ops["name"].cast(pl.String).to_list() == ["a:Add", "b:Add"]
    assert found.device_ops.select("device", "stream", "op").rows() == [(1, None, 0)]
    assert [(note.code, note.values) for note in found.salvaged] == [("one_run", {}), ("other_tasks", {"tasks": 1})]


def test_events_that_no_clock_shows_are_left_out():
    found = read(
        timeline({CPU: [("a", "Add", -1, 1), ("b", "Add", 1, -1), ("c", "Add", 1 << 60, 1), ("d", "Add", 1, 1)]})
    )
    assert found.host_ops["name"].cast(pl.String).to_list() == ["d:Add"]
    assert {note.code: note.values for note in found.salvaged}["unreadable_events"] == {"events": 3}
    with pytest.raises(NothingRecorded, match="FULL_TRACE"):
        read(timeline({CPU: []}))


def test_timelines_are_told_by_content_and_are_runs_of_their_own(tmp_path):
    for number in (1, 2):
        (tmp_path / f"timeline_0{number}.ctf.json").write_bytes(STEP)
    found, rejected = discover([str(tmp_path)])
    assert not rejected
    assert [(each.format, len(each.files)) for each in found] == [("tf_timeline", 1)] * 2


def test_a_profile_of_onnx_runtime_is_named_and_what_to_do(tmp_path):
    path = tmp_path / "ort.json"
    path.write_text('[{"cat" : "Session","pid" :1,"tid" :2,"dur" :6,"ts" :7,"ph" : "X","name" :"model_run"}]')
    (refused,) = discover([str(path)])[1]
    assert refused.why == "an ONNX Runtime profile; record the program with Nsight Systems: `nsys profile COMMAND`"


# ---------------------------------------------------------------------------------------------- what a check says

KERNELS = [(f"layer{n}/MatMul", "MatMul", 20_000 + 100 * n, 100) for n in range(100)]  # 10 ms without a gap
NODES = [(node, kind, at - 20, 15) for node, kind, at, _ in KERNELS]


def test_a_wait_for_input_comes_first_and_promises_nothing_for_sure(tmp_path):
    data = run([("next", "IteratorGetNext", 5_000, 14_000)], [("a", "Const", 4_000, 5), *NODES], KERNELS)
    checked, (finding, *others) = judged(data, tmp_path)
    assert (finding.rule, others) == ("input-bound", [])
    # 26 ms from the first node to the last kernel, of which 14 pass in the request: it may be the first
    assert checked.metrics["run"][0]["input_share"] == pytest.approx(14 / 26)
    assert (finding.saving.low_ms, finding.saving.high_ms) == (0, pytest.approx(14))
    later, prefetch, *_ = finding.fixes
    assert (later.do.startswith("Record a later run first"), "num_parallel_calls=8" in prefetch.do) == (True, True)


def test_ops_on_the_cpu_are_named_by_their_types(tmp_path):
    lookups = [
        ("table_Lookup", "LookupTableFindV2", 5_000, 3_000),
        ("table_Lookup_1", "LookupTableFindV2", 8_000, 1_500),
    ]
    fed = [("edge_1__arg_x_0", "MEMCPYHtoD", 5_100, 1)]  # while an op runs, which is no first use of anything
    data = run(lookups, [("a", "Const", 4_990, 5), ("b/Unique", "Unique", 9_500, 10_000), *NODES], KERNELS, fed)
    checked, (finding, *others) = judged(data, tmp_path)
    assert (finding.rule, others) == ("host-op-placement", [])
    assert "Unique (10 ms), LookupTableFindV2 (4.5 ms)" in finding.says
    assert checked.metrics["run"][0]["once_ms"] == 0
    assert "ds.map" in finding.fixes[0].do
    # from 4,990 to 30,000 us; nodes that wait for other ops or threads compute nothing
    assert checked.metrics["run"][0]["idle_share"] == pytest.approx(15.009 / 25.01)
    waits = run([], [("a", "Const", 4_990, 5), ("b", "NcclAllReduce", 5_000, 14_500), *NODES], KERNELS)
    assert "host-op-placement" not in {each.rule for each in judged(waits, tmp_path / ".." / tmp_path.name)[1]}


def test_dispatch_of_tiny_ops(tmp_path):
    nodes = [(f"n{n}", "Add", 1_000 + 40 * n, 30) for n in range(100)]
    kernels = [(node, kind, at + 25, 2) for node, kind, at, _ in nodes]
    _, (finding, *others) = judged(run([], nodes, kernels), tmp_path)
    assert (finding.rule, others) == ("small-kernels", [])
    assert finding.saving.low_ms == 0
    assert "global_jit_level" in finding.fixes[0].do


@pytest.mark.parametrize("at_us", [0, 1 << 51])
def test_a_node_that_ran_days_from_all_others_is_left_out(at_us: int, tmp_path):
    """The others run in 20 ms of 2026; the start of one was never set, or is in 2041."""
    began = 1_795_810_024_709_498
    ran = [("a", "Const", began, 8), ("b", "Const", at_us, 8), ("next", "IteratorGetNext", began + 10, 20_000)]
    data = timeline({CPU: [*ran, ("c", "MatMul", began + 20_010, 40)]})
    assert [finding.rule for finding in judged(data, tmp_path)[1]] == ["input-bound"]
    assert read(data).salvaged == (Note("one_run"), Note("untimed_events", events=1))
    assert read(data).workers.select("recorded_start_ns", "recorded_end_ns").row(0) == (
        began * 1_000,
        (began + 20_050) * 1_000,
    )


@pytest.mark.parametrize("where", ["cpu", "kernels"])
def test_a_node_many_times_as_long_as_all_others_together_is_left_out(where: str):
    rows = {"cpu": [("a", "Add", 1000, 5), ("b", "Mul", 1010, 5)], "gpu": [], "kernels": [("b", "Mul", 1012, 5)]}
    rows[where].append(("c", "MatMul", 1011, 10**9))
    found = read(run(**rows))
    ran = pl.concat(table.select(pl.col("dur_ns")) for table in (found.host_ops, found.device_ops))
    assert ran["dur_ns"].to_list() == [5_000] * 3
    assert found.salvaged[-1].code == "untimed_events"


def test_of_two_nodes_years_apart_the_later_counts():
    data = timeline({CPU: [("a", "Const", 0, 8), ("b", "Const", 1_795_810_024_709_498, 8)]})
    assert read(data).host_ops["name"].cast(pl.String).to_list() == ["b:Const"]


def test_a_process_that_a_file_holds_several_times_ran_once():
    ran: list[Ran] = [("a", "MatMul", 1_000, 8), ("b", "Add", 1_000, 8), ("b", "Add", 2_000, 8)]
    twice = json.loads(timeline({CPU: ran}))
    copies = [event | {"pid": 7 + event["pid"]} for event in twice["traceEvents"]]
    copied = json.dumps({"traceEvents": [*twice["traceEvents"], *copies]}).encode()
    assert read(copied).host_ops.equals(read(timeline({CPU: ran})).host_ops)


def test_a_run_of_a_millisecond_shows_no_loss(tmp_path):
    """A tenth of 0.6 ms is nothing that anybody can look for; of 6 ms it is."""
    for factor, rules in ((1, ["nothing-to-judge-on-cpu"]), (10, [])):
        nodes: list[Ran] = [("a", "MatMul", 1_000, 400 * factor), ("b", "Add", 1_000 + 480 * factor, 140 * factor)]
        (folder := tmp_path / str(factor)).mkdir()
        checked, findings = judged(timeline({CPU: nodes}), folder)
        assert [each.rule for each in findings if each.severity == "high"] == rules
        assert ("nothing to judge" in checked.verdict) == bool(rules)


def test_nodes_without_lengths_are_no_healthy_job(tmp_path):
    checked, _ = judged(timeline({CPU: [("a", "MatMul", 1_000, 0), ("b", "MatMul", 9_000, 0)]}), tmp_path)
    assert checked.verdict == "Too little was recorded to judge this job: nothing shows where the time goes."


def test_a_cold_first_run_promises_nothing(tmp_path):
    cold = ("conv", "Conv2D", 50_000, 400_000)  # its first kernel runs when the library has been loaded
    tries = [("conv", "Conv2D", 449_000 + 10 * n, 10) for n in range(100)]
    later = [(node, kind, at + 450_000, dur) for node, kind, at, dur in KERNELS]
    nodes = [(node, kind, at - 20, 15) for node, kind, at, _ in later]
    data = run([("next", "IteratorGetNext", 5_000, 40_000)], [("a", "Const", 4_000, 5), cold, *nodes], [*tries, *later])
    checked, (finding, *others) = judged(data, tmp_path)
    assert (finding.rule, finding.severity) == ("one-time-work", "medium")
    assert not [each.rule for each in others if each.saving]
    # the op before its first try, and the request for the first batch
    assert checked.metrics["run"][0]["once_ms"] == pytest.approx(399 + 40)
    assert "twentieth" in finding.fixes[0].do


def test_one_that_tensorflow_wrote():
    (checked,) = profiles.check(profiles.ROOT / "fixtures/tensorflow-timeline").runs
    finding = checked.findings[0]
    assert (finding.rule, finding.saving.low_ms) == ("input-bound", 0)  # the one request may be the first
    assert 0.9 < checked.metrics["run"][0]["input_share"] < 1


def test_a_copy_to_pass_on_reads_the_same(tmp_path):
    (tmp_path / "timeline.json").write_bytes(STEP)
    scrub(tmp_path / "timeline.json", tmp_path / "clean.json")
    assert b"input0" not in (tmp_path / "clean.json").read_bytes()
    assert read((tmp_path / "clean.json").read_bytes()).device_ops.equals(read(STEP).device_ops)


def test_no_range_can_be_a_step():
    with pytest.raises(UsageError, match="--step-range"):
        tf_timeline.read(io.BytesIO(STEP), "timeline.json", Reading(step_range="next.*"))


def test_no_json_is_refused_in_one_line():
    with pytest.raises(ReadError, match="not a timeline of TensorFlow"):
        read(b"\x00" * 100)
