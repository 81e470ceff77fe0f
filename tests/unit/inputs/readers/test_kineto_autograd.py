"""Exports of the autograd profiler before Kineto, and one that today's PyTorch wrote."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from advisor.analysis.device.selection import select_steps
from advisor.inputs.readers import kineto
from advisor.model.clause import Missing
from tests import profiles
from tests.strategies_kineto import read
from tests.tables import metrics_of

Event = dict[str, Any]


def ran(name: str, ts: float, dur: float, on_gpu: tuple[float, float] | None = None, thread: int = 1) -> list[Event]:
    """An op on the host; with what it took on the GPU 0 where that was timed, and the arrow to it."""
    host = {"pid": "CPU functions", "tid": thread, "args": {}}
    events: list[Event] = [{"name": name, "ph": "X", "ts": ts, "dur": dur, **host}]
    if on_gpu:
        arrow = {"name": name, "id": 7, "cat": "cpu_to_cuda", "args": {}}
        device = {"pid": "CUDA functions", "tid": 0, "args": {}}
        events += [arrow | {"ph": "s", "ts": ts} | host, arrow | {"ph": "f", "ts": on_gpu[0]} | device]
        events += [{"name": name, "ph": "X", "ts": on_gpu[0], "dur": on_gpu[1], **device}]
    return events


CONVOLUTION = [
    *ran("aten::conv2d", 10, 90, (100, 500)),
    *ran("aten::cudnn_convolution", 20, 60, (102, 490)),
    *ran("forward", 5, 200),
    *ran("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 300, 9),
]


def test_rows_are_told_by_their_process():
    made = read(json.dumps(CONVOLUTION).encode())
    assert made.workers["producer"].to_list() == ["autograd profiler"]
    host = made.host_ops.select("kind", "name", "start_ns", "thread").cast({"kind": pl.String, "name": pl.String})
    assert host.rows()[:3] == [
        ("op", "aten::conv2d", 10_000, 1),
        ("op", "aten::cudnn_convolution", 20_000, 1),
        ("annotation", "forward", 5_000, 1),
    ]
    assert made.host_ops["kind"].to_list()[3] == "input"


def test_a_range_of_early_kineto_is_told_by_its_lack_of_inputs():
    ops = [("aten::conv2d", 10, 90, {"Input Dims": [[5, 3]]}), ("detach", 120, 9, {"Input Dims": [[5]]})]
    events = [
        {"ph": "X", "cat": "Operator", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}
        for name, ts, dur, args in [("model_inference", 0, 200, {}), *ops]
    ]
    made = read(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode())
    assert dict(made.host_ops.select("name", "kind").cast(pl.String).rows()) == {
        "model_inference": "annotation", "aten::conv2d": "op", "detach": "op",
    }  # fmt: skip


def test_what_an_op_took_on_the_gpu_counts_once_and_is_no_kernel():
    made = read(json.dumps(CONVOLUTION).encode())
    assert made.device_ops.select("device", "start_ns", "dur_ns", "op").rows() == [(0, 102_000, 490_000, 1)]
    for need in ("device_ops.name", "device_ops.start_ns", "device_ops.dur_ns"):
        assert made.lacks[need].code == "ops_timed"
    assert "ops_timed" in [note.code for note in made.salvaged]


def test_an_op_that_works_itself_counts_with_what_it_calls():
    """Of 500 us of a convolution 250 are its own; a batch norm's 100 us are those of what it calls, but for 49."""
    within = [*ran("aten::conv2d", 10, 90, (100, 500)), *ran("aten::contiguous", 20, 60, (110, 250))]
    calls = [*ran("aten::batch_norm", 110, 90, (700, 100)), *ran("aten::cudnn_batch_norm", 120, 60, (710, 51))]
    made = read(json.dumps([*within, *calls]).encode())
    assert made.device_ops["dur_ns"].to_list() == [500_000, 51_000]
    (seen,) = select_steps(made).views
    assert metrics_of(seen)["dominant_kernel_part"] == Missing("ops_timed")


def test_arrows_alone_are_launches_of_which_nothing_was_recorded():
    arrows = [event for event in CONVOLUTION if event["pid"] == "CPU functions"]
    made = read(json.dumps(arrows).encode())
    assert made.host_ops["name"].cast(pl.String).to_list().count("cudaLaunchKernel") == 2
    assert made.lacks["device_ops"].code == "autograd_export"
    assert [view.device for view in select_steps(made).views] == [0]


def test_events_of_other_writers_without_a_category_are_left_alone():
    other = [event | {"pid": 3} for event in ran("aten::mm", 1, 2)]
    made = read(json.dumps([*other, *ran("aten::add", 5, 6)]).encode())
    assert made.host_ops["name"].to_list() == ["aten::add"]


def test_what_todays_pytorch_writes_is_judged():
    (run,) = profiles.check(profiles.ROOT / "fixtures/autograd-profiler").runs
    assert run.source.steps.used == 7
    assert run.findings[0].rule == "single-process-data-loader"
    assert run.findings[0].saving is not None
    assert 14 <= run.findings[0].saving.high_ms <= 19  # eight samples of 2 ms each, slept
    assert run.source.format == kineto.FORMAT
