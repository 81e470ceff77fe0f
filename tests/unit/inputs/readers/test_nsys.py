from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from advisor.analysis.device.categories import part_times
from advisor.analysis.device.selection import select_steps
from advisor.errors import ReadError, UsageError
from advisor.inputs.readers import Reading, nsys
from advisor.inputs.readers.nsys import tables
from advisor.metrics import measure
from advisor.model.clause import Note
from advisor.model.profile import SCHEMAS, Profile
from tests.effort import every
from tests.strategies_nsys import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    RUNTIME,
    Row,
    Tables,
    call,
    copy,
    gpus,
    kernel,
    launched,
    memset,
    nvtx,
    pid,
    read,
    string,
    tid,
    together,
    training,
    write,
    write_parquet,
)
from tests.tables import metrics_of

A100: Row = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalMemory": 80 << 30,
    "smCount": 108,
    "computeMajor": 8,
    "computeMinor": 0,
    "cuDevice": 0,
    "maxWarpsPerSm": 64,
    "threadsPerWarp": 32,
}


@pytest.fixture
def read_(tmp_path: Path):
    return lambda *parts, **options: read(together(*parts), tmp_path, **options)


def only(frame: pl.DataFrame, *columns: str) -> Any:
    row = frame.select(columns).row(0) if frame.height == 1 else pytest.fail(f"{frame.height} rows")
    return row[0] if len(row) == 1 else row


# ------------------------------------------------------------------------------------------- device ops


def test_a_kernel_has_its_name_size_and_launch(read_):
    made: Profile = read_(launched(5, 20, 60, 9, registersPerThread=40, staticSharedMemory=100, dynamicSharedMemory=28))
    columns = ("kind", "name", "device", "stream", "start_ns", "dur_ns", "grid", "block", "registers", "shared_bytes")
    assert only(made.device_ops, *columns) == ("kernel", "gemm", 0, 7, 20, 40, 6, 128, 40, 128)
    assert made.host_ops["name"][only(made.device_ops, "launch")] == "cudaLaunchKernel"


def test_a_schema_with_little_more_than_times_is_read(read_):
    made: Profile = read_({KERNEL: [{"start": 10, "end": 30, "deviceId": 0, "shortName": string("old")}]})
    assert only(made.device_ops, "name", "dur_ns", "grid", "launch") == ("old", 20, None, None)
    assert made.lacks["device_ops.launch"].words.startswith("no CUDA or HIP calls")
    assert only(made.workers, "pid", "producer") == (None, "Nsight Systems")


def test_nccl_kernels_are_collectives(read_):
    made: Profile = read_(
        {KERNEL: [kernel(0, 9, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)")]}
    )
    assert only(made.device_ops, "kind") == "collective"
    assert only(made.collectives, "op", "bytes") == ("all_reduce", None)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((1, 0, 2), ("Memcpy HtoD (Pageable -> Device)", "HtoD", "pageable", "device")),
        ((2, 2, 1), ("Memcpy DtoH (Device -> Pinned)", "DtoH", "device", "pinned")),
        ((8, 2, 5), ("Memcpy DtoD (Device -> Device)", "DtoD", "device", "device")),
        ((3, 1, 3), ("Memcpy HtoD (Pinned -> Device)", "HtoD", "pinned", "device")),
        ((10, 2, 2), ("Memcpy PtoP (Device -> Device)", "PtoP", "device", "device")),
        ((11, 4, 4), ("Memcpy HtoD (Managed -> Managed)", "HtoD", "managed", "managed")),
        ((12, 7, 7), ("Memcpy DtoH (Managed -> Managed)", "DtoH", "managed", "managed")),
        ((0, 7, 99), ("Memcpy ? (Unknown -> Unknown)", None, None, None)),
    ],
)
def test_copies_are_told_by_kind_and_memory(read_, numbers: tuple[int, int, int], expected: tuple[object, ...]):
    row = copy(0, 9, **dict(zip(("copyKind", "srcKind", "dstKind"), numbers, strict=True)))
    made: Profile = read_({MEMCPY: [row]})
    assert only(made.device_ops, "name", "copy_kind", "source_memory", "target_memory") == expected
    assert only(made.device_ops, "bytes") == 400


def test_memsets_bear_their_memory(read_):
    made: Profile = read_({MEMSET: [memset(0, 5, memKind=1)]})
    assert only(made.device_ops, "kind", "name", "bytes", "target_memory") == (
        "memset",
        "Memset (Pinned)",
        64,
        "pinned",
    )


@pytest.mark.parametrize(("table", "called"), [("OPENGL", "OpenGL"), ("VULKAN", "Vulkan"), ("DX12", "Direct3D 12")])
def test_what_a_process_draws_keeps_its_device_busy(read_, table: str, called: str):
    """Of a process that computes on one device: numbers of its calls are no numbers of CUDA's."""
    drawn = {"start": 60, "end": 90, "globalTid": tid(100), "nameId": string("draw"), "correlationId": 9, "gpu": 0}
    other = drawn | {"globalTid": tid(200)}
    made: Profile = read_(launched(5, 20, 60, 9, deviceId=1), {f"{table}_WORKLOAD": [drawn, other]})
    rows = made.device_ops.filter(pl.col("kind") == "graphics")
    columns = ("name", "device", "start_ns", "dur_ns", "launch")
    assert only(rows, *columns) == (f"{called} draw", 1, 60, 30, None)
    (view,) = select_steps(made).views
    known = metrics_of(view)
    assert [known[of] for of in ("device_busy_share", "launch_share", "dominant_kernel_part")] == [70 / 85, 2 / 85, 1.0]
    assert part_times(view)["graphics"].sum() == 30


def test_of_several_devices_nothing_tells_which_one_draws(read_):
    drawn = {"start": 60, "end": 90, "globalTid": tid(100), "nameId": string("draw")}
    two = {KERNEL: [kernel(0, 9), kernel(0, 9, deviceId=1)], "OPENGL_WORKLOAD": [drawn]}
    assert set(read_(two).device_ops["kind"]) == {"kernel"}


def test_waits_for_the_video_decoder_are_calls(read_):
    """Whose engine no table of CUDA shows; what the profiler says of its own start is none."""
    names = ("NVDEC libraries profiling started", "cuvidMapVideoFrame64")
    calls = [{"start": 1, "end": 1 + 30 * at, "globalTid": tid(100), "nameId": string(names[at])} for at in (0, 1)]
    made: Profile = read_(launched(50, 60, 80, 9), {"NVVIDEO_DECODER_API": calls})
    assert made.host_ops.select("name", "kind").rows() == [(names[1], "runtime"), ("cudaLaunchKernel", "runtime")]


def test_graph_launches_without_nodes_are_kernels_and_said(read_):
    whole = {
        "start": 10,
        "end": 90,
        "deviceId": 0,
        "streamId": 7,
        "correlationId": 3,
        "globalPid": pid(100),
        "graphId": 5,
    }
    made: Profile = read_({GRAPH: [whole], RUNTIME: [call(1, 4, "cudaGraphLaunch_v10000", 3)]})
    assert only(made.device_ops, "kind", "name", "dur_ns", "graph", "launch") == ("kernel", "CUDA graph 5", 80, 5, 0)
    assert made.salvaged[0] == Note("whole_graphs", times=1)
    assert "--cuda-graph-trace=node" in made.lacks["device_ops.grid"].words
    assert "--cuda-graph-trace=node" in made.lacks["device_ops.name"].words


@pytest.mark.parametrize(("kernel_ends", "hides"), [(1_520, False), (1_519, True)])
def test_graphs_of_up_to_a_twentieth_of_the_kernels_time_hide_nothing(read_, kernel_ends: int, hides: bool):  # noqa: FBT001 - a case
    whole = {"start": 1_600, "end": 1_680, "deviceId": 0, "streamId": 7, "globalPid": pid(100), "graphId": 5}
    made: Profile = read_({GRAPH: [whole], KERNEL: [kernel(0, kernel_ends)]})
    assert ("device_ops.name" in made.lacks) is hides


def test_of_graphs_with_nodes_the_nodes_count(read_):
    whole = {
        "start": 10,
        "end": 90,
        "deviceId": 0,
        "streamId": 7,
        "correlationId": 3,
        "globalPid": pid(100),
        "graphId": 5,
    }
    node = kernel(20, 40, correlationId=3, graphNodeId=77)
    made: Profile = read_({GRAPH: [whole], KERNEL: [node]})
    assert only(made.device_ops, "name", "graph") == ("gemm", 77)


def test_correlation_ids_are_those_of_one_process(read_):
    calls = [call(0, 5, correlation=1), call(100, 105, correlation=1, globalTid=tid(200))]
    kernels = [kernel(10, 20, correlationId=1), kernel(110, 120, process=200, correlationId=1, deviceId=1)]
    made: Profile = read_({RUNTIME: calls, KERNEL: kernels})
    assert made.workers["pid"].to_list() == [100, 200]
    assert made.device_ops.height == 2
    launches = made.host_ops.select(launch="id", at="start_ns")
    assert made.device_ops.join(launches, on="launch").select("worker", "at").rows() == [(0, 0), (1, 100)]


def test_process_and_thread_come_out_of_the_global_ids(read_):
    made: Profile = read_(
        {RUNTIME: [call(0, 5, correlation=1, globalTid=tid(70_000, 71_234))], KERNEL: [kernel(9, 10, process=70_000)]}
    )
    assert only(made.workers, "pid") == 70_000
    assert only(made.host_ops, "thread") == 71_234


def test_events_without_a_place_in_time_are_left_out(read_):
    bad = [kernel(50, 40), kernel(None, 9), kernel(0, None), kernel(-(1 << 62), 5), kernel(0, 1 << 62)]  # type: ignore[arg-type]
    made: Profile = read_({KERNEL: [*bad, kernel(-20, -10)]})
    assert only(made.device_ops, "start_ns", "dur_ns") == (-20, 10)


# ------------------------------------------------------------------------------------------- host ops


SECOND = 1_000_000_000

CALLS = [
    ("cudaLaunchKernel_v7000", "cudaLaunchKernel", "runtime"),
    ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize", "sync"),
    ("cudaMemcpy_v3020", "cudaMemcpy", "sync"),
    ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync", "runtime"),
    ("cudaMalloc_v3020", "cudaMalloc", "allocator"),
    ("cudaStreamIsCapturing_v10000", "cudaStreamIsCapturing", "runtime"),
    ("cuGetProcAddress_v2", "cuGetProcAddress_v2", "runtime"),
    ("cuCtxSynchronize", "cuCtxSynchronize", "sync"),
]


def test_calls_lose_the_version_and_get_a_kind(read_):
    calls = [call(10 * n, 10 * n + 5, name) for n, (name, _, _) in enumerate(CALLS)]
    made: Profile = read_({RUNTIME: calls, KERNEL: [kernel(90, 100)]})
    assert made.host_ops.sort("start_ns").select("name", "kind").rows() == [(name, kind) for _, name, kind in CALLS]


def test_a_backtrace_repeats_no_call(read_):
    made: Profile = read_(
        {RUNTIME: [call(1, 5, "cudaMemcpy_v3020"), call(0, 6, "cudaMemcpy", eventClass=67)], MEMCPY: [copy(2, 4)]}
    )
    assert only(made.host_ops, "dur_ns") == 4


RANGES = [
    ("aten::mm, seq = 12, op_id = 7", "aten::mm", "op", 12, None),
    ("aten::mm, op_id = 7", "aten::mm", "op", None, None),
    (
        "aten::linear, seq = 3, op_id = 7, sizes = [[16, 3], [5, 3], []], input_op_ids = [(1,0), (2,0)]",
        *("aten::linear", "op", 3, "[[16, 3], [5, 3], []]"),
    ),
    ("aten::add, seq = 4, sizes = [[2]]", "aten::add", "op", 4, "[[2]]"),
    ("MulBackward0, seq = 4, op_id = 9", "MulBackward0", "op", 4, None),
    ("detach_, op_id = 9", "detach_", "op", None, None),
    ("FSDP::pre_forward (blocks.1), op_id = 4", "FSDP::pre_forward (blocks.1)", "annotation", None, None),
    ("Optimizer.step#AdamW.step, op_id = 4", "Optimizer.step#AdamW.step", "annotation", None, None),
    ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__, op_id = 4", *(None, "input", None, None)),
    ("ProfilerStep#3, op_id = 4", "ProfilerStep#3", "step", None, None),
    ("load batch", "load batch", "input", None, None),
    ("data_loading", "data_loading", "input", None, None),
    ("next_batch", "next_batch", "input", None, None),
    ("batch 12", "batch 12", "annotation", None, None),
    ("download database", "download database", "annotation", None, None),
    ("scaled dot product attention", "scaled dot product attention", "annotation", None, None),
    ("XlaCompile:#module=jit_step#", "XlaCompile:#module=jit_step#", "compile", None, None),
]


def test_ranges_tell_ops_inputs_and_annotations(read_):
    ranges = [nvtx(10 * n, 10 * n + 5, text) for n, (text, *_) in enumerate(RANGES)]
    made: Profile = read_({"NVTX_EVENTS": ranges, KERNEL: [kernel(200, 210)]})
    expected = [(name or text.partition(", ")[0], *rest) for text, name, *rest in RANGES]
    assert made.host_ops.sort("start_ns").select("name", "kind", "sequence", "shapes").rows() == expected


def test_texts_stand_in_the_row_or_in_the_list_of_strings(read_):
    made: Profile = read_(
        {"NVTX_EVENTS": [nvtx(0, 5, None, textId=string("forward")), nvtx(5, 9, "back")], KERNEL: [kernel(9, 10)]}
    )
    assert made.host_ops["name"].to_list() == ["forward", "back"]


def test_the_first_text_in_a_row_may_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "_BATCH_ROWS", 2)
    rows = [*(nvtx(at, at + 5, None, textId=string("forward")) for at in range(0, 30, 10)), nvtx(40, 45, "back")]
    made = read({"NVTX_EVENTS": rows, KERNEL: [kernel(50, 60)]}, tmp_path)
    assert made.host_ops["name"].to_list() == ["forward"] * 3 + ["back"]


def test_a_range_that_the_end_of_its_process_closes_is_on_the_sessions_clock(read_):
    """Its times are those of the machine, which ran for 1,000 s when the session of 50 s began."""
    session = {"ANALYSIS_DETAILS": [{"startTime": 1_000 * SECOND, "duration": 50 * SECOND}]}
    ranges = [nvtx(2 * SECOND, 3 * SECOND, "load"), nvtx(1_004 * SECOND, 1_009 * SECOND, "wait")]
    made: Profile = read_({"NVTX_EVENTS": ranges, KERNEL: [kernel(9, 10)]}, session)
    rows = made.host_ops.select("name", "start_ns", "dur_ns").rows()
    assert rows == [("load", 2 * SECOND, SECOND), ("wait", 4 * SECOND, 5 * SECOND)]
    young: Profile = read_(
        {"NVTX_EVENTS": [nvtx(4 * SECOND, 9 * SECOND, "wait")], KERNEL: [kernel(9, 10)]},
        {"ANALYSIS_DETAILS": [{"startTime": 3 * SECOND, "duration": 50 * SECOND}]},
    )
    assert only(young.host_ops, "start_ns") == 4 * SECOND  # the two clocks cannot be told apart


def test_marks_domains_and_open_ranges_are_no_ranges(read_):
    rows = [
        nvtx(0, None, "never closed"),
        nvtx(1, None, "mark", eventType=34),
        nvtx(2, None, "NCCL", eventType=75, domainId=1),
    ]
    made: Profile = read_({"NVTX_EVENTS": rows, KERNEL: [kernel(9, 10)]})
    assert not made.host_ops.height
    assert made.salvaged == (Note("open_ranges", ranges=1),)


def test_ops_of_tensorflow_are_told_by_their_domain(read_):
    rows = [nvtx(0, None, "tensorflow-core", eventType=75, domainId=4), nvtx(3, 9, "MatMul: dense/MatMul", domainId=4)]
    made: Profile = read_({"NVTX_EVENTS": rows, KERNEL: [kernel(9, 10)]})
    assert only(made.host_ops, "kind") == "op"


def test_ranges_nest_and_start_end_ranges_do_not(read_):
    rows = [nvtx(0, 100, "outer"), nvtx(10, 50, "inner"), nvtx(5, 60, "across", eventType=60)]
    made: Profile = read_({"NVTX_EVENTS": rows, RUNTIME: [call(20, 30)], KERNEL: [kernel(40, 50)]})
    names = made.host_ops.select(pl.col("id", "parent"), pl.col("name").cast(pl.String))
    parents = names.join(names.select(parent="id", above="name"), on="parent", how="left")
    assert dict(parents.select("name", "above").rows()) == {
        "outer": None,
        "across": None,
        "inner": "outer",
        "cudaLaunchKernel": "inner",
    }


def test_device_ops_know_the_framework_op_that_launched_them(read_):
    ranges = [nvtx(0, 100, "aten::linear, op_id = 1"), nvtx(2, 90, "aten::mm, op_id = 2")]
    made: Profile = read_({"NVTX_EVENTS": ranges}, launched(5, 20, 60, 9))
    assert made.host_ops["name"][only(made.device_ops, "op")] == "aten::mm"
    assert only(made.workers, "framework") == "pytorch"


def test_nccl_payloads_give_bytes_and_group(read_):
    payload = '{"NCCL communicator ID": 4711, "Message size [bytes]": 4096, "No. of ranks": 8}'
    made: Profile = read_(
        {
            "NVTX_EVENTS": [
                nvtx(0, None, "NCCL", eventType=75, domainId=2),
                nvtx(1, 50, "ncclAllReduce", domainId=2, jsonText=payload),
            ]
        },
        {RUNTIME: [call(5, 7, correlation=1)], KERNEL: [kernel(9, 30, "ncclDevKernel_Sum_f32", correlationId=1)]},
    )
    assert only(made.collectives, "op", "group", "group_size", "bytes") == ("all_reduce", "4711", 8, 4096)


def test_the_profilers_own_work_is_overhead(read_):
    def own(name: str) -> Row:
        return {"start": 0, "end": 5, "globalTid": tid(100), "nameId": string(name)}

    rows = [own("CUDA profiling data flush"), own("CUPTI Buffer flush"), own("dlopen(libcuda.so.1)")]
    made: Profile = read_({"PROFILER_OVERHEAD": rows, KERNEL: [kernel(9, 10)]})
    assert made.host_ops["kind"].to_list() == ["overhead", "overhead"]


def test_texts_that_are_no_utf8_are_read_leniently(tmp_path: Path):
    path = write(tmp_path / "a.sqlite", {"NVTX_EVENTS": [nvtx(0, 5, "ok")], KERNEL: [kernel(9, 10)]})
    with sqlite3.connect(path) as connection:
        connection.execute("update NVTX_EVENTS set text = cast(x'61ff62' as text)")
    connection.close()
    assert nsys.read(path, "a").host_ops["name"].to_list() == ["a�b"]


# ------------------------------------------------------------------------------------------- steps


def test_ranges_that_repeat_and_hold_the_work_are_the_steps(read_):
    made: Profile = read_(training(4), {"NVTX_EVENTS": [nvtx(900, 6_000, "training")]})
    periods = [1_000, 1_000, 1_000, 900]
    assert made.steps.select("step", "name", "host_start_ns", "host_dur_ns", "mark_ns").rows() == [
        (n, f"step {n}", 1_000 * (n + 1), periods[n], 900) for n in range(4)
    ]
    assert [why is None for why in made.steps["incomplete"]] == [True, True, True, False]
    assert made.device_ops["step"].to_list() == [n for n in range(4) for _ in range(10)]
    (note,) = made.salvaged
    assert '4 ranges "step #"' in note.words
    assert "100 % of the device's work" in note.words


@pytest.mark.parametrize(
    "broken", every(3, [{"end": 500}, {"end": 0}, {"end": "late"}, {"end": None}, {"start": None}, {"start": "early"}])
)
def test_kernels_without_sound_times_are_counted_and_idle_time_is_unknown(read_, broken):
    sound = [kernel(1_000 * n, 1_000 * n + 500) for n in range(1, 4)]
    made: Profile = read_({KERNEL: [*sound, kernel(5_000, 5_500) | broken], RUNTIME: [call(1, 2)]})
    assert made.device_ops.height == 3
    assert made.salvaged[-1] == Note("unsound_ops", rows=1, ops=4)
    for column in ("start_ns", "dur_ns", "launch"):
        assert made.lacks[f"device_ops.{column}"].words.startswith("1 of 4 device ops have no sound times")
    told = measure(select_steps(made))
    row, reasons = told.frames["worker"].row(0, named=True), told.reasons
    unknown = (
        "idle_share",
        "device_busy_share",
        "host_bound_idle_share",
        "launch_share",
        "stall_gain_ms",
        "once_idle_share",
    )
    assert [row[name] for name in unknown] == [None] * len(unknown)
    assert told.frames["accounting"].is_empty()
    assert all(reasons[name].code == "unsound_times" for name in unknown)


@pytest.mark.parametrize("lost", every(3, [0, None, "abc", pid(300)]))
def test_ops_of_no_known_process_are_the_only_ones_or_left_out(read_, lost):
    known, stray = launched(1_000, 1_010, 1_500, 1), {KERNEL: [kernel(2_000, 2_500) | {"globalPid": lost}]}
    made: Profile = read_(known, stray)
    assert made.workers["pid"].to_list() == [100]
    assert made.device_ops.height == 2
    made = read_(known, stray, {RUNTIME: [call(1_000, 1_002) | {"globalTid": tid(200)}]})
    assert made.workers["pid"].to_list() == [100]
    assert made.salvaged[-1] == Note("unsound_ops", rows=1, ops=2)
    assert made.lacks["device_ops.start_ns"].code == "unsound_times"


def test_clocks_that_do_not_fit_are_why_no_call_is_linked(read_):
    def waited(at: int) -> Tables:
        done = {RUNTIME: [call(at + 20_000, at + 3_000_000, "cudaDeviceSynchronize_v3020")]}
        return together(launched(at, at + 10_000, at + 5_000_000, at), done)

    made: Profile = read_(*(waited(at) for at in range(10_000_000, 60_000_000, 10_000_000)))
    assert made.lacks["device_ops.launch"].code == "clocks_apart"


def test_one_unsound_op_in_a_hundred_leaves_idle_time_known(read_):
    made: Profile = read_({KERNEL: [*(kernel(1_000 * n, 1_000 * n + 500) for n in range(1, 100)), kernel(5, 4)]})
    assert Note("unsound_ops", rows=1, ops=100) in made.salvaged
    assert "device_ops.start_ns" not in made.lacks


@pytest.mark.parametrize(("ends", "lost"), [(1_050, False), (1_051, True)])
def test_kernels_without_a_name_are_not_judged_by_it(read_, ends: int, lost: bool):  # noqa: FBT001 - a case
    """1,000 to 50 ns is just under a twentieth of all; one more is over it once the named ones are shorter."""
    named = kernel(0, 950 if not lost else 940)
    made: Profile = read_({KERNEL: [named, kernel(1_000, ends, demangledName=10**7, shortName=10**7)]})
    assert ("device_ops.name" in made.lacks) is lost
    assert any(note.code == "names_not_exported" for note in made.salvaged) is lost
    told = measure(select_steps(made))
    assert (getattr(told.reasons.get("tf32_off_share"), "code", "") == "names_not_exported") is lost
    assert told.frames["worker"]["idle_share"].null_count() == 0


def test_kernels_without_a_name_are_as_many_as_their_numbers(read_):
    """Of one name they would be one kernel, which is all of the work."""
    numbers = [{"shortName": 77_777_777}, {"demangledName": 77_777_778, "shortName": 77_777_777}, {}]
    nameless = {"demangledName": None, "shortName": None, "mangledName": None}
    made: Profile = read_(
        {KERNEL: [kernel(1_000 * n, 1_000 * n + 500, **nameless | ids) for n, ids in enumerate(numbers)]},
    )
    assert made.device_ops["name"].to_list() == ["unnamed kernel 77777777", "unnamed kernel 77777778", "unnamed kernel"]


def test_what_is_called_warm_up_is_a_step_only_where_nothing_else_is(read_):
    warm, rest = training(5, name="Warm-up {}"), training(3, name="iter {}")
    later = {
        table: [
            {k: v + 10_000 if k in {"start", "end", "correlationId"} and v is not None else v for k, v in row.items()}
            for row in rows
        ]
        for table, rows in rest.items()
    }
    assert read_(warm, later).steps["name"].to_list() == ["iter 0", "iter 1", "iter 2"]
    made: Profile = read_(warm, launched(10_000, 10_100, 12_100, 99_000))
    assert made.steps.height == 5
    assert "50 % of all" in made.salvaged[0].words


def test_a_warm_up_that_opens_before_the_first_kernel_is_start_up(read_):
    """The range ends at 500, its last kernel at 700: the work begins with the kernel at 800."""
    first = [call(0, 1, "cuInit"), call(110, 112, correlation=1), call(120, 122, correlation=2)]
    kernels = [kernel(130, 200, correlationId=1), kernel(200, 700, correlationId=2)]
    work = launched(750, 800, 900, 3)
    made: Profile = read_(
        {"NVTX_EVENTS": [nvtx(100, 500, "warmup")], RUNTIME: first, KERNEL: kernels}, work, {MEMCPY: [copy(10, 20)]}
    )
    assert made.workers["work_start_ns"].to_list() == [800]
    twice = [nvtx(100, 500, "warmup"), nvtx(740, 950, "warmup")]
    made = read_({"NVTX_EVENTS": twice, RUNTIME: first, KERNEL: kernels}, work)
    assert made.workers["work_start_ns"].to_list() == [130]


def test_two_repeats_are_no_steps(read_):
    made: Profile = read_(training(2))
    assert not made.steps.height
    assert "--step-range" in made.lacks["steps"].words


def test_what_repeats_within_a_step_is_none(read_):
    inner = [
        nvtx(1_000 * (n + 1) + 10 * k, 1_000 * (n + 1) + 10 * k + 8, "attention") for n in range(4) for k in range(5)
    ]
    made: Profile = read_(training(4), {"NVTX_EVENTS": inner})
    assert made.steps["name"].to_list() == [f"step {n}" for n in range(4)]


def test_ranges_around_half_of_the_work_are_no_steps(read_):
    around = training(4, name="attention {}")
    others = [launched(1_000 * n + 905, 1_000 * n + 910, 1_000 * n + 990, 90_000 + n) for n in range(2, 5)]
    more = [launched(1_000 * n + 906, 1_000 * n + 991, 1_000 * n + 999, 91_000 + n) for n in range(2, 5)]
    assert read_(around, *others, *more).steps.height == 4  # 88 of 488 ns elsewhere, each
    long = [launched(1_000 * n + 907, 1_000 * n + 550, 1_000 * n + 900, 92_000 + n) for n in range(2, 5)]
    assert not read_(around, *others, *more, *long).steps.height


def test_ranges_of_few_kernels_are_no_steps(read_):
    assert read_(training(4, kernels=9)).steps.height == 0


def test_ranges_that_launch_a_graph_are_steps(read_):
    def graph(n: int) -> Tables:
        at = 1_000 * (n + 1)
        row = {
            "start": at + 20,
            "end": at + 800,
            "deviceId": 0,
            "streamId": 7,
            "correlationId": n + 1,
            "globalPid": pid(100),
        }
        range_ = nvtx(at, at + 50, f"iter {n}")
        return {
            GRAPH: [row | {"graphId": 1}],
            RUNTIME: [call(at + 5, at + 9, "cudaGraphLaunch", n + 1)],
            "NVTX_EVENTS": [range_],
        }

    made: Profile = read_(*map(graph, range(3)))
    assert made.steps.select("start_ns", "dur_ns").rows() == [(1_000, 1_000), (2_000, 1_000), (3_000, 800)]


def test_a_pattern_names_the_steps(read_):
    ranges = [nvtx(1_000 * n, 1_000 * n + 900, f"epoch {n} it") for n in (1, 2)]
    made: Profile = read_({"NVTX_EVENTS": ranges}, launched(1_005, 1_010, 1_020, 1), step_range="epoch .*")
    assert made.steps["step"].to_list() == [1, 2]
    with pytest.raises(UsageError, match=r"--step-range \(: not a regular expression .error: unclosed group.$"):
        read_({KERNEL: [kernel(0, 1)], "NVTX_EVENTS": ranges}, step_range="(")


def test_a_pattern_is_of_whole_names_and_of_nested_ranges_the_outermost_is_the_step(read_):
    names = [
        (0, 9_900, "all steps"),
        (1_000, 1_900, "step 1"),
        (1_100, 1_200, "step 1 forward"),
        (2_000, 2_900, "step 2"),
    ]
    ranges = {"NVTX_EVENTS": [nvtx(*one) for one in names]}
    device = launched(1_005, 1_010, 1_020, 1)
    whole: Profile = read_(ranges, device, step_range=r"step \d+")
    assert whole.steps["name"].to_list() == ["step 1", "step 2"]
    outermost: Profile = read_(ranges, device, step_range=r"step.*")
    assert outermost.steps["name"].to_list() == ["step 1", "step 2"]
    around: Profile = read_(ranges, device, step_range=".*step.*")
    assert around.steps["name"].to_list() == ["all steps"]
    with pytest.raises(
        UsageError, match=r"^--step-range ep: .* \(the whole name must match; \.\*\(\?:ep\)\.\* would\)"
    ):
        read_(ranges, device, step_range="ep")
    with pytest.raises(UsageError, match="not a regular expression"):
        read_(ranges, device, step_range="a)|(b")


def test_a_pattern_that_fits_nothing_is_refused_with_the_names_that_are_there(read_):
    ranges = [nvtx(1_000 * n, 1_000 * n + 900, f"epoch {n} it") for n in (1, 2)]
    there = "--step-range nothing: no range is called like that; there are epoch # it"
    with pytest.raises(UsageError, match=f"^{there}$"):
        read_({"NVTX_EVENTS": ranges}, launched(1_005, 1_010, 1_020, 1), step_range="nothing")
    with pytest.raises(UsageError, match=r"no range was recorded$"):
        read_({KERNEL: [kernel(0, 1)]}, step_range="nothing")


def test_start_up_is_what_comes_before_the_first_kernel(read_):
    start = {RUNTIME: [call(-500_000_000, -499_000_000, "cuInit")], MEMCPY: [copy(-20_000_000, -19_000_000)]}
    made: Profile = read_(start, launched(5, 20, 60, 1), {MEMCPY: [copy(70, 80)]})
    assert only(made.workers, "work_start_ns", "work_end_ns") == (20, 80)


def test_a_recording_that_begins_amid_the_work_has_no_start_up(read_):
    made: Profile = read_({MEMCPY: [copy(0, 10)]}, launched(5, 20, 60, 1))
    assert only(made.workers, "work_start_ns", "work_end_ns") == (None, 60)


# ------------------------------------------------------------------------------------------- devices and workers


def test_the_device_is_the_listed_gpu(read_):
    made: Profile = read_({KERNEL: [kernel(0, 9)]}, gpus([A100]))
    assert made.devices.row(0) == (0, 0, "NVIDIA A100-SXM4-80GB", 80 << 30, 108, 8.0, 2048, None, None, False)


def test_other_vendors_gpus_are_not_the_jobs(read_):
    others = [
        {"id": 1, "name": "Intel(R) Iris(R) Xe Graphics", "smCount": 0},
        {"id": 2, "name": "Microsoft Basic Render Driver"},
    ]
    made: Profile = read_({KERNEL: [kernel(0, 9)]}, gpus([*others, A100]))
    assert made.devices["name"].to_list() == ["NVIDIA A100-SXM4-80GB"]
    assert read_({KERNEL: [kernel(0, 9)]}, gpus(others)).devices["name"].to_list() == [None]


def test_the_bandwidth_of_an_unlisted_gpus_memory_is_as_the_export_says(read_):
    unlisted = A100 | {"name": "NVIDIA GeForce GTX 1080", "memoryBandwidth": 320_320_000_000}
    made: Profile = read_({KERNEL: [kernel(0, 9)]}, gpus([unlisted]))
    assert made.devices["memory_gbs"].to_list() == [320.32]
    assert select_steps(made).views[0].memory_gbs == 320.32
    listed: Profile = read_({KERNEL: [kernel(0, 9)]}, gpus([unlisted | {"name": A100["name"]}]))
    assert (select_steps(listed).views[0].memory_gbs or 0) > 1_000


def test_of_unlike_gpus_the_process_tells_which(read_):
    t4 = A100 | {"id": 1, "name": "Tesla T4", "smCount": 40, "computeMajor": 7, "computeMinor": 5, "cuDevice": 1}
    visible = {"TARGET_INFO_CUDA_DEVICE": [{"gpuId": 1, "cudaId": 0, "pid": 100}]}
    both = gpus([A100, t4])
    assert only(read_({KERNEL: [kernel(0, 9)]}, both, visible).devices, "name", "capability") == ("Tesla T4", 7.5)


def of_process(process: int, gpu: int) -> Row:
    """The only device that a process sees is this GPU of the session."""
    return {"gpuId": gpu, "cudaId": 0, "pid": process}


@pytest.mark.parametrize(
    ("listed", "visible", "again"),
    [
        pytest.param(1, [], [False, True], id="the only GPU that is listed"),
        pytest.param(2, [], [False, False], id="each may see another one of two as its first"),
        pytest.param(2, [of_process(100, 1), of_process(200, 0)], [False, False], id="one each, as is told"),
        pytest.param(2, [of_process(100, 1), of_process(200, 1)], [False, True], id="the same, as is told"),
    ],
)
def test_processes_share_a_gpu_where_it_is_surely_the_same(read_, listed: int, visible: list[Row], again: list[bool]):
    every = gpus([A100 | {"id": number, "cuDevice": number} for number in range(listed)])
    kernels = {KERNEL: [kernel(0, 9), kernel(0, 9, process=200)]}
    made: Profile = read_(kernels, every, {"TARGET_INFO_CUDA_DEVICE": visible} if visible else {})
    assert made.devices["again"].to_list() == again


def test_old_exports_name_the_gpu_in_another_table_or_by_nothing_else(read_):
    cuda = {"deviceId": 0, "name": "NVIDIA GeForce RTX 3080", "numMultiprocessors": 68, "numThreadsPerWarp": 32}
    cuda |= {"computeCapabilityMajor": 8, "computeCapabilityMinor": 6, "maxWarpsPerMultiprocessor": 48}
    bare = gpus([{"name": "NVIDIA GeForce RTX 3080", "deviceId": 0}])
    made: Profile = read_({KERNEL: [kernel(0, 9)]}, bare, {"TARGET_INFO_CUDA_GPU": [cuda, cuda | {"pid": 7}]})
    assert only(made.devices, "name", "sm_count", "capability", "max_threads_per_sm") == (cuda["name"], 68, 8.6, 1536)
    named: Profile = read_({KERNEL: [kernel(0, 9)]}, gpus([{"id": 0, "name": "GeForce RTX 2070", "smCount": None}]))
    assert only(named.devices, "name", "sm_count") == ("GeForce RTX 2070", None)


def test_kernels_for_one_generation_tell_the_capability(read_):
    made: Profile = read_({KERNEL: [kernel(0, 9, "sm90_xmma_gemm_bf16bf16_bf16f32")]})
    assert only(made.devices, "name", "capability") == (None, 9.0)
    assert "devices" in made.lacks
    assert only(read_({KERNEL: [kernel(0, 9, "sm80_xmma_gemm")]}).devices, "capability") is None


def test_mpi_ranks_number_the_workers(read_):
    ranks = {"MPI_RANKS": [{"globalPid": pid(100), "rank": 3}, {"globalPid": pid(200), "rank": 1}]}
    made: Profile = read_({KERNEL: [kernel(0, 9), kernel(0, 9, process=200)]}, ranks)
    assert made.workers.select("pid", "rank", "worker").rows() == [(100, 3, 3), (200, 1, 1)]


def test_calls_of_mpi_that_exchange_are_collectives_of_the_host(read_):
    def mpi(start: int, name: str) -> Row:
        return {"start": start, "end": start + 5, "globalTid": tid(100), "textId": string(name)}

    tables = {
        "MPI_P2P_EVENTS": [mpi(20, "MPI_Send")],
        "MPI_COLLECTIVES_EVENTS": [mpi(30, "MPI_Allreduce")],
        "MPI_START_WAIT_EVENTS": [mpi(40, "MPI_Wait")],
        "MPI_OTHER_EVENTS": [mpi(0, "MPI_Init"), mpi(10, "MPI_Sendrecv"), mpi(50, "MPI_Finalize")],
    }
    made: Profile = read_(tables, {KERNEL: [kernel(9, 10)], RUNTIME: [call(5, 7)]})
    calls = made.host_ops.filter(pl.col("kind") == "collective")
    assert calls["name"].to_list() == ["MPI_Sendrecv", "MPI_Send", "MPI_Allreduce", "MPI_Wait"]
    assert made.host_ops.height == calls.height + 1
    assert read_(tables, {KERNEL: [kernel(9, 10)]}).host_ops.is_empty()  # it may have no GPU to exchange with


def test_copies_without_a_framework_are_a_program_s_own(read_):
    assert read_({MEMCPY: [copy(0, 9)]}).workers["framework"].to_list() == ["cuda"]
    ranges = [nvtx(0, 5, "aten::copy_, op_id = 1")]
    assert read_({MEMCPY: [copy(0, 9)], "NVTX_EVENTS": ranges}).workers["framework"].to_list() == ["pytorch"]


def test_of_more_processes_than_a_node_runs_the_busiest_are_read(read_, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("advisor.inputs.readers.nsys._MOST_PROCESSES", 6)
    rows = [kernel(n, n + 500, process=n) for n in range(100, 110)]
    made: Profile = read_({KERNEL: [*rows, *(kernel(900 + n, 1_400 + n, process=109 - n) for n in range(6))]})
    assert made.workers["pid"].to_list() == [*range(104, 110)]
    assert [note.words for note in made.salvaged if note.code == "busiest_processes"] == [
        "6 of 10 processes were read: those with most work"
    ]


def test_a_rank_that_no_job_has_is_none(read_):
    ranks = {"MPI_RANKS": [{"globalPid": pid(100), "rank": 1 << 40}, {"globalPid": pid(200), "rank": 1}]}
    made: Profile = read_({KERNEL: [kernel(0, 9), kernel(0, 9, process=200)]}, ranks)
    assert made.workers["pid"].to_list() == [100, 200]


def test_samples_with_one_number_are_one(read_):
    """Else as many stacks as samples squared would be made of them."""
    sampled = [{"id": 1, "start": 10 * n, "globalTid": tid(100)} for n in range(50)]
    frames = [{"id": 1, "stackDepth": n, "symbol": string(f"f{n}"), "module": string("/x/solver")} for n in range(50)]
    made: Profile = read_(launched(5, 20, 60, 9), {"COMPOSITE_EVENTS": sampled, "SAMPLING_CALLCHAINS": frames})
    assert made.host_samples["functions"].list.len().to_list() == [50]


def test_samples_without_a_stack_stand_in_their_order(read_):
    """They are joined apart: a left join takes the first list for each, and 4,000 x 20,000 functions took 2.6 GB."""
    sampled = [{"id": n, "start": 10 * n, "globalTid": tid(100)} for n in range(300)]
    frames = [{"id": 1, "stackDepth": n, "symbol": string(f"f{n}"), "module": string("/x/s")} for n in range(300)]
    made: Profile = read_(launched(5, 20, 60, 9), {"COMPOSITE_EVENTS": sampled, "SAMPLING_CALLCHAINS": frames})
    assert made.host_samples["at_ns"].to_list() == [*range(0, 3_000, 10)]
    assert made.host_samples["functions"].list.len().to_list() == [0, 300] + 298 * [0]


def test_files_of_as_many_processes_number_through(read_):
    made: Profile = read_({KERNEL: [kernel(0, 9), kernel(0, 9, process=200)]}, worker=2)
    assert made.workers["worker"].to_list() == [4, 5]


def test_times_are_on_the_wall_clock(read_):
    session = {"TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000}]}
    made: Profile = read_(launched(5, 20, 60, 1), session)
    assert only(made.device_ops, "start_ns") == 1_700_000_000_000_000_020
    assert only(made.host_ops, "start_ns") == 1_700_000_000_000_000_005


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA"])
def test_the_producer_is_told_whatever_its_table_is_called(read_, table: str):
    rows = [{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.1"}, {"name": "EXPORT_SCHEMA_VERSION", "value": "3.17.1"}]
    made: Profile = read_({KERNEL: [kernel(0, 9)], table: rows})
    assert only(made.workers, "producer") == "Nsight Systems 2025.1, schema 3.17.1"


# ------------------------------------------------------------------------------------------- system


def test_threads_calls_and_absences_of_every_process(read_):
    loader = tid(300, 301)
    os_ = [
        {"start": 0, "end": 20_000, "globalTid": loader, "nameId": string("read")},
        {"start": 0, "end": 9_999, "globalTid": loader, "nameId": string("read")},
    ]
    states = [{"id": 0, "label": "Unknown"}, {"id": 1, "label": "Running"}]
    seen = [(0, 1, 3, 0), (50_000, 0, 3, 1), (90_000, 1, 5, 0), (95_000, 0, 5, 0), (99_000, 1, 5, 0)]
    scheduled = [
        {"start": at, "isSchedIn": came, "cpu": cpu, "globalTid": loader, "threadState": state}
        for at, came, cpu, state in seen
    ]
    made: Profile = read_(
        {KERNEL: [kernel(0, 9)], "OSRT_API": os_, "SCHED_EVENTS": scheduled, "ENUM_SAMPLING_THREAD_STATE": states},
        {"ThreadNames": [{"nameId": string("pt_data_worker"), "globalTid": loader}]},
    )
    assert only(made.os_calls, "worker", "pid", "thread", "name", "dur_ns") == (0, 300, 301, "read", 20_000)
    assert only(made.off_cpu, "start_ns", "dur_ns", "cpu", "next_cpu", "state") == (50_000, 40_000, 3, 5, "Running")
    assert only(made.threads, "pid", "thread", "name") == (300, 301, "pt_data_worker")


@pytest.mark.parametrize("unresolved", [{}, {"unresolved": 0, "kernelMode": 0}])
def test_samples_of_threads_that_launch_name_the_programs_functions(read_, unresolved: Row):
    """Of the system, the driver and interpreters nothing is named; in a call of CUDA, nothing at all."""
    stacks = [
        [
            ("__snprintf", "/usr/lib64/libc-2.28.so"),
            ("void log<int>(Point const&)", "/home/x/solver"),
            ("main", "/home/x/solver"),
        ],
        [
            ("std::fabs(float)", "/home/x/solver"),
            ("at::native::add(int)", "/x/libtorch_cpu.so"),
            ("f", "/x/python3.12"),
        ],
        [("0x7f", "/usr/lib64/libcuda.so.1"), ("cudaMalloc", "/home/x/solver"), ("main", "/home/x/solver")],
        [("0x7f", "/x/libfoo.so"), ("[Max depth]", "[Max depth]")],
        [("0x7f", "//anon"), ("0x7e", "//anon"), ("jl_apply", "/x/libjulia.so")],  # of Julia or Numba
    ]
    sampled = [{"id": n, "start": 10 * n, "globalTid": tid(100)} for n in range(len(stacks))]
    other = {"id": 9, "start": 5, "globalTid": tid(100, 7)}
    chains = [
        {"id": n, "stackDepth": depth, "symbol": string(symbol), "module": string(module)} | unresolved
        for n, stack in enumerate([*stacks, []])
        for depth, (symbol, module) in reversed([*enumerate(stack)])
    ]
    made: Profile = read_(
        launched(5, 20, 60, 9), {"COMPOSITE_EVENTS": [*sampled, other], "SAMPLING_CALLCHAINS": chains}
    )
    assert made.host_samples.rows() == [
        (0, 100, 0, ["solver: log", "solver: main"]),
        (0, 100, 10, ["libtorch_cpu.so: add"]),
        (0, 100, 20, []),
        (0, 100, 30, []),
        (0, 100, 40, ["a JIT: code compiled at run time", "libjulia.so: jl_apply"]),
    ]
    assert "host_samples" not in made.lacks
    assert read_(launched(5, 20, 60, 9)).lacks["host_samples"].code == "no_cpu_samples"


def os_call(start: float, end: float, name: str, thread: int = 100) -> Row:
    """An OS call of the process, from and to these seconds."""
    times = {"start": round(start * 1e9), "end": round(end * 1e9)}
    return times | {"globalTid": tid(100, thread), "nameId": string(name)}


ASKS = [os_call(1 + second, 1.1 + second, "ioctl") for second in range(20)]


def test_a_program_that_only_waits_in_the_driver_at_the_end_hangs(read_):
    """The last call of CUDA ends at 60 ns, the last one of the driver after 20.1 s."""
    wait = os_call(0.5, 19, "pthread_cond_wait", 7)
    made: Profile = read_(launched(5, 20, 60, 9), {"OSRT_API": [*ASKS, wait]})
    assert only(made.workers, "driver_wait_ns") == 20_100_000_000 - 7  # since the launching call
    ends: Profile = read_(launched(5, 20, 60, 9), {"OSRT_API": [*ASKS, os_call(20.2, 20.3, "munmap", 7)]})
    assert only(ends.workers, "driver_wait_ns") is None
    flush = {"start": 20_200_000_000, "end": 20_300_000_000, "globalTid": tid(100, 0)}
    at_exit = flush | {"nameId": string("CUDA profiling data flush on process exit")}
    exits: Profile = read_(launched(5, 20, 60, 9), {"OSRT_API": ASKS, "PROFILER_OVERHEAD": [at_exit]})
    assert only(exits.workers, "driver_wait_ns") is None  # it waits for its main thread


def test_without_any_call_of_cuda_the_error_says_that_it_hangs(read_):
    with pytest.raises(ReadError, match=r"a thread waits in the driver for the last 19\.6 s, .* a smaller problem"):
        read_({"OSRT_API": [os_call(0, 0.5, "open64"), *ASKS]})
    with pytest.raises(ReadError, match=r"cannot be judged; record again: "):
        read_({"OSRT_API": [os_call(0, 0.5, "open64"), *ASKS[:9]]})


@pytest.mark.parametrize(
    ("calls", "begins"),
    [
        ([os_call(1, 1.2, "mmap"), os_call(5, 5.1, "ioctl")], 1 * SECOND),
        ([os_call(1, 1.2, "open64"), os_call(2, 2.2, "mmap"), os_call(5, 5.1, "ioctl")], 2 * SECOND),
        ([os_call(1, 1, "OS runtime libraries profiling started"), os_call(5, 5.1, "ioctl")], 1 * SECOND),
        ([os_call(1, 1.2, "mmap")], None),  # none is known to follow before the call of CUDA at 6 s
        ([os_call(1, 1.2, "mmap"), os_call(2, 2.1, "ioctl")], None),  # 1 s, as loaders take
        ([os_call(1, 1.2, "mmap"), os_call(3, 3.1, "ioctl") | {"globalTid": tid(200, 1)}], None),  # another process
        ([os_call(second, second, "open64") for second in range(6)], None),
        ([os_call(4, 4.1, "mmap"), os_call(5.5, 5.6, "ioctl")], 4 * SECOND),
    ],
)
def test_a_process_begins_where_its_own_code_runs_for_over_a_second_before_cuda(
    read_, calls: list[Row], begins: int | None
):
    six = 6 * SECOND
    made: Profile = read_(launched(six + 5, six + 20, six + 60_000, 9), {"OSRT_API": calls})
    assert only(made.workers, "recorded_start_ns") == begins


def test_a_process_is_seen_first_in_a_call_of_the_system_or_a_sample(read_):
    """At 1 s and 0.9 s, and its first call of CUDA is at 6 s; what another process does says nothing of it."""
    calls = [os_call(1, 1.2, "mmap"), os_call(0.2, 0.3, "mmap") | {"globalTid": tid(200, 1)}]
    sample = {"id": 1, "start": 9 * SECOND // 10, "globalTid": tid(100, 1)}
    six = launched(6 * SECOND + 5, 6 * SECOND + 20, 6 * SECOND + 60_000, 9)
    of_calls: Profile = read_(six, {"OSRT_API": calls})
    assert only(of_calls.workers, "process_start_ns") == SECOND
    sampled: Profile = read_(six, {"OSRT_API": calls, "COMPOSITE_EVENTS": [sample]})
    assert only(sampled.workers, "process_start_ns", "recorded_start_ns") == (9 * SECOND // 10, None)
    late: Profile = read_(six, {"OSRT_API": [os_call(7, 7.1, "mmap")]})
    assert only(late.workers, "process_start_ns") is None
    says = {"timestamp": SECOND // 2, "globalPid": pid(100), "severity": 1}
    says["text"] = "Process was launched by the profiler, see /tmp/pid_100_stdout.log and stderr.log for program output"
    begun: Profile = read_(six, {"DIAGNOSTIC_EVENT": [says, says | {"globalPid": pid(200), "timestamp": 1}]})
    assert only(begun.workers, "process_start_ns", "recorded_start_ns") == (SECOND // 2, None)
    later: Profile = read_(six, {"DIAGNOSTIC_EVENT": [says | {"timestamp": -20 * SECOND}]})  # --capture-range
    assert only(later.workers, "process_start_ns") is None


@pytest.mark.parametrize(
    ("calls", "once"),
    [
        ([os_call(1, 5, "waitpid")], 1),
        ([os_call(1, 1.5, "waitpid")], 0),  # soon over
        ([os_call(7, 9, "waitpid")], 0),  # for what has done the work
        ([os_call(1, 5, "waitpid", thread=7)], 0),  # of a thread that launches nothing
        ([os_call(1, 5, "poll")], 0),
        ([os_call(at, at + 1.1, "wait4") for at in (1, 2.5)], 2),
        ([os_call(at, at + 1.1, "wait4") for at in (1, 2.5, 4)], 0),  # again and again
    ],
)
def test_a_child_process_before_most_of_the_work_is_waited_for_once(read_, calls: list[Row], once: int):
    """The thread launches its kernel at 6 s."""
    made: Profile = read_(launched(6 * SECOND, 6 * SECOND + 20, 6 * SECOND + 60_000, 9), {"OSRT_API": calls})
    waits = made.host_ops.filter(pl.col("name").cast(pl.String).str.starts_with("a child process, in wait"))
    assert (waits.height, waits.filter(kind="start_up").height) == (once, once)


# As exports of Blackwell (2025.3) and, with NVLink, of Hopper list them; counts and clocks are no shares.
LISTED = {
    "GPC Clock Frequency [MHz]": None,
    "GR Active [Throughput %]": None,
    "SMs Active [Throughput %]": "sm_active",
    "SM Active [Throughput %]": "sm_active",
    "SM Issue [Throughput %]": "sm_issue",
    "Tensor Active [Throughput %]": "tensor_active",
    "SM Instructions/Tensor Active [Throughput %]": "tensor_active",
    "Compute Warps in Flight [Throughput %]": None,
    "Unallocated Warps in Active SMs [Throughput %]": None,
    "DRAM Read Bandwidth [Throughput %]": "dram_read",
    "DRAM Write Bandwidth [Throughput %]": "dram_write",
    "PCIe RX Throughput [Throughput %]": "pcie_rx",
    "PCIe TX Throughput [Throughput %]": "pcie_tx",
    "PCIe Read Requests to BAR1 [Requests]": None,
    "NVLink RX Requests Protocol Data [Throughput %]": "nvlink_rx",
    "NVLink TX Responses User Data [Throughput %]": "nvlink_tx",
}


def test_gpu_metrics_are_known_by_the_names_that_nsys_gives_them(read_):
    listed = [{"typeId": 256, "metricId": n, "metricName": name} for n, name in enumerate(LISTED)]
    sampled = [{"timestamp": 10 + n, "typeId": 256, "metricId": n, "value": 50} for n in range(len(LISTED))]
    made: Profile = read_(
        {KERNEL: [kernel(0, 9)], "TARGET_INFO_GPU_METRICS": listed, "GPU_METRICS": sampled}, gpus([A100])
    )
    known = {10 + n: metric for n, metric in enumerate(LISTED.values()) if metric}
    assert dict(made.gpu_samples.select("at_ns", "metric").rows()) == known


def test_the_parts_of_a_links_traffic_add_up_and_what_is_told_twice_counts_once(read_):
    names = ["NVLink RX Requests User Data [%]", "NVLink RX Responses User Data [%]", "SM Active [%]", "SMs Active [%]"]
    listed = [{"typeId": 256, "metricId": n, "metricName": name} for n, name in enumerate(names)]
    sampled = [{"timestamp": 10, "typeId": 256, "metricId": n, "value": 20} for n in range(4)]
    made: Profile = read_(
        {KERNEL: [kernel(0, 9)], "TARGET_INFO_GPU_METRICS": listed, "GPU_METRICS": sampled}, gpus([A100])
    )
    assert made.gpu_samples.select("metric", "value").rows() == [("nvlink_rx", 0.4), ("sm_active", 0.2)]


def test_gpu_metrics_are_shares_by_device(read_):
    listed = [
        {"typeId": 256, "metricId": 4, "metricName": "SMs Active [Throughput %]"},
        {"typeId": 256, "metricId": 5, "metricName": "DRAM Read Bandwidth [Throughput %]"},
        {"typeId": 256, "metricId": 6, "metricName": "GPC Clock Frequency [MHz]"},
    ]
    sampled = [{"timestamp": 10, "typeId": 256, "metricId": number, "value": 50} for number in (4, 5, 6)]
    made: Profile = read_(
        {KERNEL: [kernel(0, 9)], "TARGET_INFO_GPU_METRICS": listed, "GPU_METRICS": sampled}, gpus([A100])
    )
    assert made.gpu_samples.rows() == [(0, 0, "dram_read", 10, 0.5), (0, 0, "sm_active", 10, 0.5)]


def test_device_memory_is_counted(read_):
    def event(at: int, size: int, freed: int) -> Row:
        ids = {"globalPid": pid(100), "deviceId": 0, "address": 1, "memKind": 2}
        return {"start": at, "bytes": size, "memoryOperationType": freed} | ids

    rows = [event(1, 100, 0), event(2, 50, 0), event(3, 100, 1)]
    made: Profile = read_({KERNEL: [kernel(0, 9)], "CUDA_GPU_MEMORY_USAGE_EVENTS": rows})
    assert made.allocations["bytes"].to_list() == [100, 50, -100]
    assert made.allocations["reserved_bytes"].to_list() == [100, 150, 50]


# ------------------------------------------------------------------------------------------- containers and errors


def test_a_folder_of_parquet_files_tells_the_same(tmp_path: Path):
    tables = together(training(4), {MEMCPY: [copy(5, 9)]}, gpus([A100]))
    one = nsys.read(write(tmp_path / "report.sqlite", tables), "report")
    other = nsys.read(write_parquet(tmp_path / "report_pqtdir", tables), "report")
    for table in ("workers", "devices", "steps", "device_ops", "host_ops"):
        assert getattr(one, table).equals(getattr(other, table))
    assert one.lacks == other.lacks


def test_a_table_whose_columns_hold_lists_costs_itself_alone(tmp_path: Path):
    folder = write_parquet(tmp_path / "report_pqtdir", training(4))
    whole = nsys.read(folder, "report")
    rows = pl.read_parquet(ranges := folder / "NVTX_EVENTS.parquet")
    rows.select(pl.concat_list(column).alias(column) for column in rows.columns).write_parquet(ranges)
    odd = nsys.read(folder, "report")
    assert odd.device_ops.height == whole.device_ops.height
    assert odd.host_ops.height < whole.host_ops.height


def test_a_parquet_file_without_its_middle_is_one_error_and_no_text_of_rust(tmp_path: Path, capfd, monkeypatch):
    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)
    folder = write_parquet(tmp_path / "report_pqtdir", training(4))
    file = folder / f"{KERNEL}.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:4] + data[-8 - int.from_bytes(data[-8:-4], "little") :])  # what it describes is gone
    with pytest.raises(ReadError, match=r"report: a table of the folder is damaged .* --type=parquetdir`"):
        nsys.read(folder, "report")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("filler", [0, 400_000])
def test_a_parquet_file_of_equal_rows_is_refused_before_they_take_memory(tmp_path: Path, filler: int):
    folder = write_parquet(tmp_path / "report_pqtdir", training(4))
    row = pl.read_parquet(file := folder / f"{KERNEL}.parquet").head(1)
    rows = row.select(pl.all().repeat_by(200_000).explode())
    more = [random.Random(7).randbytes(filler), *[b""] * (rows.height - 1)]  # noqa: S311 - no secret
    rows.with_columns(more=pl.Series(more, dtype=pl.Binary)).write_parquet(file)
    with pytest.raises(ReadError, match=r"report: takes 0\.49 GB of memory, over the 0\.48 GB for a file of its size"):
        nsys.read(folder, "report", Reading(memory=480_000_000))


def test_without_gpu_work_there_is_nothing_to_tell(read_):
    says = [{"severity": severity, "text": text} for severity, text in MESSAGES]
    with pytest.raises(
        ReadError, match=r'in it, and Nsight Systems says "CUDA driver is too old", so .*first CUDA calls'
    ):
        read_({"DIAGNOSTIC_EVENT": says})


def test_a_process_that_was_stopped_is_a_cause(read_):
    says = [f"{what} events {why}" for what, why in (("No CUDA", "collected."), ("Not all OS", "might be there."))]
    with pytest.raises(ReadError, match=f'Nsight Systems says "{says[1]}"'):
        read_({"DIAGNOSTIC_EVENT": [{"severity": 2, "text": text} for text in says]})


def test_of_equally_grave_messages_one_that_names_a_cause_is_told_first(read_):
    cause = "Timeout while waiting for injected process to stop recording."
    says = [{"severity": 2, "text": text} for text in ("Not all CUDA events might have been collected.", cause)]
    with pytest.raises(ReadError, match=f'Nsight Systems says "{cause}"'):
        read_({"DIAGNOSTIC_EVENT": says})


@pytest.mark.parametrize(
    "text",
    [
        "Installed CUDA driver version (13.1) is not supported by this build of Nsight Systems.",
        "ActivityFlushAll returned 2: CUPTI_ERROR_INVALID_DEVICE",
    ],
)
def test_a_profiler_older_than_the_driver_has_to_be_updated(read_, text):
    with pytest.raises(ReadError, match="update Nsight Systems and record again"):
        read_({"DIAGNOSTIC_EVENT": [{"severity": 3, "text": text}]})


def test_a_recording_without_kernels_is_made_again_with_what_its_profiler_lacks(read_):
    """The driver is newer than it: nothing is wrong with the export."""
    says = [
        {"severity": 1, "text": "CUDA injection initialized successfully."},
        {"severity": 2, "text": "Installed CUDA driver version (11.7) is not supported by this build."},
        {"severity": 3, "text": "CUDA device 0: Unified Memory cannot be traced on devices without peer-to-peer."},
    ]
    launches: Tables = {RUNTIME: [call(10 * i, 10 * i + 5) for i in range(4)]}
    for messages, outdated in (([], 0), (says[:1], 0), (says, 1)):
        made = read_(launches | {"DIAGNOSTIC_EVENT": messages}, gpus([A100]))
        values = metrics_of(select_steps(made).views[0])
        assert (values["lost_launches"], values["outdated_profiler"]) == (4, outdated)
    assert values["profiler_warning"] == says[1]["text"]


@pytest.mark.parametrize("table", ["OPENGL_WORKLOAD", "VULKAN_API"])
def test_a_program_that_only_draws_is_said_to_and_no_message_about_something_else_is_its_reason(read_, table):
    drawn = {"start": 60, "end": 90, "globalTid": tid(100), "nameId": string("draw")}
    says = {"severity": 2, "text": "Not all OS runtime libraries events might have been collected."}
    api = {"OPENGL_WORKLOAD": "OpenGL", "VULKAN_API": "Vulkan"}[table]
    with pytest.raises(ReadError, match=f"only what {api} draws, .* Nsight Graphics shows {api}$"):
        read_({"DIAGNOSTIC_EVENT": [says], table: [drawn]})


@pytest.mark.parametrize(("says", "traced"), [([], False), (["CUDA injection initialized successfully."], True)])
def test_where_cuda_was_traced_it_need_not_be_asked_for(read_, says, traced):
    told = [*says, "Not all CUDA events might have been collected."]
    with pytest.raises(ReadError) as error:
        read_({"DIAGNOSTIC_EVENT": [{"severity": 1 + ("Not all" in text), "text": text} for text in told]})
    assert ("--trace=cuda" not in str(error.value)) == ("let the program end by itself" in str(error.value)) == traced


def streams(text: str, file: str = "pid_7_stderr.log") -> Tables:
    return {"ProcessStreams": [{"globalPid": pid(0), "filenameId": string(file), "contentId": string(text)}]}


FAILED = (
    "working\n" * 5_000 + "  File 'a.py', line 3\nValueError: no token=hf_abcdefghijklmnopqrstuvwxyz0123456789 `here`\n"
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FAILED, "ValueError: no token=xxxxxx 'here'"),
        ("ValueError: token=\x1b[31mhf_\x1b[0mabcdefgh\u200bijklmnopqrstuvwxyz", f"ValueError: token={'x' * 29}"),
        ("FATAL ERROR: data not found\n file: main.c", "FATAL ERROR: data not found"),
        ("python: can't open file 'a.py': [Errno 2] No such file or directory", "python: can't open file 'a.py'"),
        ("KeyboardInterrupt\n\n", "KeyboardInterrupt"),
        ("at 21:18:\n   ^\nNameError('acc_ptr is not defined')\n", "NameError('acc_ptr is not defined')"),
        (
            'File "/home/me/train.py", line 12, in f\nFile "/lib/python3.13/ssl.py", line 7, in g\nKeyboardInterrupt\n',
            "KeyboardInterrupt (train.py:12)",
        ),
        ("ERROR: no file\nStacktrace:\n" + " [1] f()\n   @ Base ./a.jl:1\n" * 9, "ERROR: no file"),
        (
            "run.sh: 17: 162971 \u5df2\u653e\u5f03 (\u5410\u6838) ./tc",
            "run.sh: 17: 162971 \u5df2\u653e\u5f03 (\u5410\u6838)",
        ),
        ("Accelerator Fatal Error: none\n File: a.c\n Function: f:10\n Line: 62", "Accelerator Fatal Error: none"),
        ("mpirun noticed that process rank 1 exited on signal 6 (Aborted).\n---", "mpirun noticed that process rank 1"),
        ("usage: a.py [-h]\na.py: error: argument -m: invalid choice: 'x'", "a.py: error: argument -m: invalid choice"),
        ("a.py: mean error: 0.3", None),
        ("ValueError: handled\n1\n2\n3\n4\n5\n", None),
        ("a.py:3: UserWarning: slow\n  torch.mul(a, b)", None),
        ("epoch 1, error 0.3", None),
    ],
)
def test_the_error_that_ends_a_program_is_kept_without_secrets(read_, text: str, says: str | None):
    made: Profile = read_(training(4), streams(text))
    error = made.workers["error"][0]
    assert error == says or (says and error.startswith(says))


def test_what_a_program_prints_is_no_error(read_):
    made: Profile = read_(training(4), streams(FAILED, "pid_7_stdout.log"))
    assert made.workers["error"][0] is None


@pytest.mark.parametrize(
    ("says", "is_error"),
    [
        ("ERROR: solver.cu:98,code:700,reason:an illegal memory access was encountered", True),
        ("Load resnet50_Constant_272_0 failed.", True),
        ("Load balance: no rank failed.", False),
    ],
)
def test_errors_of_cuda_and_of_loading_are_believed_on_standard_output_too(read_, says: str, *, is_error: bool):
    made: Profile = read_(training(4), streams(f"Solver completed\n{says}\nExit\n", "pid_7_stdout.log"))
    assert made.workers["error"][0] == (says if is_error else None)


def test_who_ran_a_program_is_no_part_of_its_error(read_):
    owner = {"META_DATA_EXPORT": [{"name": "EXPORT_USER", "value": "annabel"}]}
    made: Profile = read_(training(4), streams("ValueError: annabel may not"), owner)
    assert made.workers["error"][0] == "ValueError: xxxxxxx may not"


@pytest.mark.parametrize(("mode", "end"), [("wal", "-wal"), ("delete", "-journal")])
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_sqlite_still_writes_is_not_read_and_said_so(tmp_path: Path, mode: str, end: str, is_whole: bool):  # noqa: FBT001
    path = write(tmp_path / "run.sqlite", training(4) if is_whole else {"NVTX_EVENTS": [nvtx(0, 5, "x")]})
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        if not is_whole:
            base.execute('delete from "NVTX_EVENTS"')
        base.execute(f"pragma journal_mode = {mode}")
        base.execute("pragma cache_size = 1")
        base.execute("begin")
        base.executemany('insert into "NVTX_EVENTS" ("start", "end") values (?, ?)', [(0, 1)] * 9_000)
        if mode == "wal":
            base.execute("commit")
        before = {other.name: other.read_bytes() for other in tmp_path.iterdir()}
        if is_whole:
            assert nsys.read(path, "a/run.sqlite").salvaged[0] == Note("half_written", file=f"a/run.sqlite{end}")
        else:
            with pytest.raises(ReadError, match=f"^a/run.sqlite: SQLite had not finished .* a/run.sqlite{end} holds"):
                nsys.read(path, "a/run.sqlite")
        assert {other.name: other.read_bytes() for other in tmp_path.iterdir()} == before
    assert not any(note.code == "half_written" for note in nsys.read(write(path, training(4)), "run").salvaged)


LONG = f"add column text text default '{'x' * 101}'"
COMPUTED = "add column text text generated always as (hex(zeroblob(id))) virtual"
UNKNOWN = "insert into sqlite_master values ('table', 'a', 'a', 0, 'CREATE VIRTUAL TABLE a USING b(c)')"


@pytest.mark.parametrize("has_unknown", [False, True])
@pytest.mark.parametrize(("column", "says"), [(LONG, "a column with a long text by"), (COMPUTED, "a computed column")])
def test_a_column_that_is_larger_in_memory_than_in_the_file_is_refused(
    tmp_path: Path, column: str, says: str, *, has_unknown: bool
):
    """Before its values are checked, and though SQLite cannot describe another table, which nobody reads."""
    path = write(tmp_path / "run.sqlite", together(training(4), streams("ValueError")))
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute(f"alter table StringIds {column}")
        if has_unknown:
            base.execute("pragma writable_schema = on")
            base.execute(UNKNOWN)
    with pytest.raises(ReadError, match=f"^run.sqlite: StringIds has {says}"):
        nsys.read(path, "run.sqlite")


@pytest.mark.parametrize("form", [write, write_parquet])
def test_texts_are_read_in_one_go_however_many_they_are(tmp_path: Path, form: Any):
    """The table has no index where a report says only so many bytes: each go would look at all its rows."""
    texts = {"StringIds": [{"id": n, "value": f"kernel {n}"} for n in range(12_000)]}
    path = form(tmp_path / "report_pqtdir", texts)
    if path.is_file():
        path = path.rename(tmp_path / "run.sqlite")
    with tables.opened(path, "run") as export:
        rows = export.strings(pl.Series([*range(2, 12_000), 7**20, None], dtype=pl.Int64))
        assert rows.sort("id").rows()[0] == (2, "kernel 2")
        assert rows.height == 11_998
        assert len(export.requests["StringIds"].wheres) == 1


def test_a_table_that_sqlite_cannot_describe_and_nobody_reads_is_left_alone(tmp_path: Path):
    path = write(tmp_path / "run.sqlite", training(4))
    ops = nsys.read(path, "run.sqlite").device_ops
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("pragma writable_schema = on")
        base.execute(UNKNOWN)
    assert nsys.read(path, "run.sqlite").device_ops.equals(ops)


@pytest.mark.parametrize(
    "instead",
    ["virtual table StringIds using fts5(id, value, content='v')", "view StringIds as select id, value from v"],
)
def test_a_view_in_place_of_a_table_is_refused(tmp_path: Path, instead: str):
    """It may have no end."""
    path = write(tmp_path / "report.sqlite", together(training(4)))
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select i as rowid, i as id, 'x' as value"
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("alter table StringIds rename to others")
        base.execute(f"create view v as {endless} from n")
        base.execute(f"create {instead}")
    with pytest.raises(ReadError, match=r"^report: StringIds is a view or a virtual table"):
        nsys.read(path, "report")


def test_a_table_whose_pages_are_referred_to_again_and_again_is_damaged(tmp_path: Path):
    """Its root refers three times to the page that was the root: levels of such pages have no end."""
    path = write(tmp_path / "report.sqlite", together(training(4)))
    with closing(sqlite3.connect(path)) as base:
        (root,) = base.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [KERNEL]).fetchone()
        (size,) = base.execute("PRAGMA page_size").fetchone()
    pages = bytearray(path.read_bytes())
    last = len(pages) // size + 1
    cell = last.to_bytes(4, "big") + b"\x01"
    places = [size - (n + 1) * len(cell) for n in range(2)]
    head = b"\x05\0\0" + (2).to_bytes(2, "big") + places[-1].to_bytes(2, "big") + b"\0" + last.to_bytes(4, "big")
    interior = (head + b"".join(at.to_bytes(2, "big") for at in places)).ljust(places[-1], b"\0") + cell * 2
    old = pages[(root - 1) * size : root * size]
    pages[(root - 1) * size : root * size] = interior
    pages[28:32] = last.to_bytes(4, "big")
    path.write_bytes(pages + old)
    with pytest.raises(ReadError, match="the database is damaged"):
        nsys.read(path, "report")


@pytest.mark.parametrize("value", ["gemm", None])
def test_texts_that_stand_in_a_parquet_file_ever_again_are_refused(tmp_path: Path, value: str | None):
    folder = write_parquet(tmp_path / "report_pqtdir", together(training(4)))
    rows = pl.DataFrame({"id": [1], "value": [value]}, {"id": pl.Int64, "value": pl.String})
    rows.select(pl.all().repeat_by(1_000_000).explode()).write_parquet(folder / "StringIds.parquet")
    with pytest.raises(ReadError, match=r"report: takes 0\.27 GB of memory"):
        nsys.read(folder, "report", Reading(memory=250_000_000))


@pytest.mark.parametrize("kind", ["numbers as categories", "no type", "no row", "categories without a row"])
def test_columns_in_parquet_of_odd_types_are_no_damage(tmp_path: Path, kind: str):
    folder = write_parquet(tmp_path / "report_pqtdir", together(training(4)))
    streams_ = {"ProcessStreams": [{"filenameId": 1, "contentId": 2}]}
    write_parquet(tmp_path / "more", streams_)
    (tmp_path / "more" / "ProcessStreams.parquet").rename(folder / "ProcessStreams.parquet")
    whole = nsys.read(folder, "report")
    as_categories = (pl.all() if kind.startswith("numbers") else pl.col(pl.String)).cast(pl.String).cast(pl.Categorical)
    tables_ = [KERNEL] if kind == "numbers as categories" else ["StringIds", "ProcessStreams"]
    for file in (folder / f"{table}.parquet" for table in tables_):
        rows = pl.read_parquet(file)
        rows = rows.clear() if "row" in kind else rows
        rows = rows.with_columns(pl.lit(None).alias(name) for name in rows.columns) if kind == "no type" else rows
        (rows.with_columns(as_categories) if "categories" in kind else rows).write_parquet(file)
    odd = nsys.read(folder, "report")
    assert odd.device_ops.height == whole.device_ops.height
    assert kind != "numbers as categories" or odd.device_ops.equals(whole.device_ops)


@pytest.mark.parametrize("kind", every(3, [pl.Binary, pl.Categorical, pl.Enum]))
def test_texts_in_parquet_may_be_of_any_kind_and_long_ones_are_cut(tmp_path: Path, kind: type[pl.DataType]):
    """A long one of many rows is there once; bytes need not be UTF-8."""
    folder = write_parquet(tmp_path / "report_pqtdir", together(training(4)))
    whole = nsys.read(folder, "report")
    texts = pl.read_parquet(file := folder / "StringIds.parquet")
    long = pl.DataFrame({"id": [7**9], "value": ["x" * 20_000]})
    values = pl.concat([texts, long])["value"]
    values = values.cast(pl.Enum(values.unique()) if kind is pl.Enum else kind)
    if kind is pl.Binary:
        values = pl.Series([b"\xff" * 20_000 if text == b"x" * 20_000 else text for text in values], dtype=kind)
    pl.DataFrame({"id": [*texts["id"], 7**9], "value": values}).write_parquet(file)
    assert nsys.read(folder, "report").device_ops.equals(whole.device_ops)
    with tables.opened(folder, "report") as export:
        (text,) = export.strings(pl.Series([7**9]))["value"]
    assert text == ("\N{REPLACEMENT CHARACTER}" if kind is pl.Binary else "x") * 8_192


def test_a_table_that_is_a_link_out_of_its_folder_is_refused(tmp_path: Path):
    folder = write_parquet(tmp_path / "run", together(training(4)))
    (folder / "StringIds.parquet").rename(tmp_path / "elsewhere.parquet")
    (folder / "StringIds.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    with (
        pytest.raises(ReadError, match=r"StringIds\.parquet is a link that leads out of the folder"),
        tables.opened(folder, "run"),
    ):
        pass


def test_without_gpu_work_the_error_is_the_reason(read_):
    with pytest.raises(
        ReadError, match=r'no GPU activity in it: the program ended with "KeyboardInterrupt"\. Mend that'
    ):
        read_(streams("Traceback\nKeyboardInterrupt\n"))


def test_what_else_lacks_is_told_behind_the_programs_error(read_):
    grave = {"severity": 3, "text": "CUDA tracing data was not collected."}
    with pytest.raises(ReadError, match=f'ended with "KeyboardInterrupt", and Nsight Systems says "{grave["text"]}"'):
        read_(streams("Traceback\nKeyboardInterrupt\n") | {"DIAGNOSTIC_EVENT": [grave]})


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("CUDA injection initialization failed.", "where `nvidia-smi` finds the GPU"),
        ("torch.cuda is not available, skipping PyTorch autograd-nvtx", "ran on the CPU"),
        ("The system is running in Protected Memory mode. CUDA tracing data was not collected.", "turn that off"),
    ],
)
def test_a_message_that_tells_the_cause_has_its_own_remedy(read_, text, does):
    with pytest.raises(ReadError, match=does):
        read_({"DIAGNOSTIC_EVENT": [{"severity": 3, "text": text}]})


def test_counters_without_a_call_are_activity_that_cannot_be_judged(read_):
    sampled = [{"timestamp": 10, "typeId": 256, "metricId": 0, "value": 95}]
    with pytest.raises(ReadError, match="only counters of the GPU and no CUDA call in it, so it cannot be judged"):
        read_({"GPU_METRICS": sampled})


def test_calls_that_only_ask_and_wait_are_no_gpu_work(read_):
    asks = call(0, 5, "cuModuleGetLoadingMode"), call(6, 7, "cuCtxSynchronize", returnValue=709)
    with pytest.raises(ReadError, match="no GPU activity in it"):
        read_({RUNTIME: [*asks]})
    assert read_({RUNTIME: [*asks, call(8, 9, "cudaMalloc_v3020")]}).host_ops.height == 3


MESSAGES = [
    (1, "CUDA injection initialized successfully."),
    (2, "No CUDA events collected. Does the process use CUDA?"),
    (2, "CUDA profiling might have not been started correctly."),
    (2, "No NVTX events collected. Does the process use NVTX?"),
    (3, "CUDA driver is too old"),
]


def test_a_profiler_that_names_the_parts_it_traces_and_not_cuda_was_not_asked_for_it(read_):
    def warning(*texts: str) -> object:
        says = [{"severity": 1, "text": text} for text in texts]
        return read_({"NVTX_EVENTS": [nvtx(0, 9, "a")], "DIAGNOSTIC_EVENT": says}).workers["warning"].item()

    common = "Common injection library initialized successfully."
    assert warning(common, "NVTX injection initialized successfully.") == "CUDA was not traced."
    assert warning(common, "CUDA injection initialized successfully.") is None
    assert warning("Profiling has started.") is None  # an old one says no more


def test_ranges_without_gpu_work_are_of_a_process_that_sees_the_gpus(read_):
    says = [{"severity": severity, "text": text} for severity, text in MESSAGES]
    made: Profile = read_({"NVTX_EVENTS": [nvtx(0, 9, "a")], "DIAGNOSTIC_EVENT": says}, gpus([A100]))
    assert made.host_ops["name"].to_list() == ["a"]
    assert made.devices.select("device", "name").rows() == [(0, A100["name"])]
    assert made.lacks["device_ops"].code == "no_cuda_rows"
    traced: Profile = read_({"NVTX_EVENTS": [nvtx(0, 9, "a")], "DIAGNOSTIC_EVENT": says[:4]})
    assert traced.lacks["device_ops"].code == "no_cuda_called"
    assert [note.words for note in made.salvaged] == [
        "the profiler says: CUDA driver is too old",
        "the profiler says: No CUDA events collected. Does the process use CUDA?",
    ]


def test_a_launch_that_failed_launched_nothing(read_):
    made: Profile = read_({RUNTIME: [call(0, 5, returnValue=209), call(6, 7, "cudaMalloc_v3020")]})
    assert made.host_ops["details"].to_list() == ['{"returnValue": 209}', None]
    assert made.lacks["device_ops"].code == "no_launches"
    assert [view.device for view in select_steps(made).views] == [None]


def test_launches_without_kernels_leave_the_device_untold(read_):
    made: Profile = read_({RUNTIME: [call(0, 5)], MEMCPY: [copy(9, 10)]})
    assert made.lacks["device_ops"].words.startswith("kernels were launched, but")


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"x" * 5_000, b"no database at all" * 300])
def test_what_is_no_database_is_said_so(tmp_path: Path, content: bytes):
    (tmp_path / "a.sqlite").write_bytes(content)
    with pytest.raises(ReadError, match=r"^a\.sqlite: "):
        nsys.read(tmp_path / "a.sqlite", "a.sqlite")


def test_a_report_names_the_command_that_exports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.nsys-rep").write_bytes(b"x")
    with pytest.raises(ReadError, match=r"it writes: `nsys export --type=sqlite a\.nsys-rep`$"):
        nsys.read(tmp_path / "a.nsys-rep", "a.nsys-rep")


def nsys_that(folder: Path, does: str) -> None:
    program = folder / "nsys"
    program.write_text(
        f"#!/bin/sh\nfor word; do case $word in --output=*) out=${{word#--output=}};; esac; done\n{does}\n"
    )
    program.chmod(0o755)


def test_a_report_is_exported_where_nsys_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = write(tmp_path / "made.sqlite", {KERNEL: [kernel(0, 9)]})
    (tmp_path / "a.nsys-rep").write_bytes(b"x")
    nsys_that(tmp_path, f'cp "{made}" "$out"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert nsys.read(tmp_path / "a.nsys-rep", "a.nsys-rep").device_ops.height == 1


def test_an_export_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.nsys-rep").write_bytes(b"x")
    nsys_that(tmp_path, "echo first >&2; echo 'Importer error' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ReadError, match="`nsys export` failed: Importer error"):
        nsys.read(tmp_path / "a.nsys-rep", "a.nsys-rep")


def test_the_environment_is_asked_for_names_of_secrets_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    real = nsys.tables._Database._fetch  # noqa: SLF001 - every query passes here

    def spy(self: object, query: str) -> pl.DataFrame:
        found = real(self, query)  # type: ignore[arg-type]
        if [row for row in found.rows() for value in row if "SECRET" in str(value)]:
            seen.append(query)
        assert "*" not in query
        return found

    monkeypatch.setattr(nsys.tables._Database, "_fetch", spy)  # noqa: SLF001
    profile = read(together(training(3), {MEMCPY: [copy(0, 5)]}), tmp_path)
    assert [query.partition(" from ")[2] for query in seen] == ['"META_DATA_CAPTURE"', '"TARGET_INFO_SYSTEM_ENV"']
    tables = (getattr(profile, name) for name in SCHEMAS)
    assert "SECRET=1" not in str([table.rows() for table in tables])
    assert "SECRET=1" not in str(profile.salvaged)


@pytest.mark.parametrize(
    ("kernel_name", "range_name", "framework"),
    every(
        2,
        [
            ("void at::native::vectorized_elementwise_kernel<4>", "x", "pytorch"),
            ("void Eigen::internal::EigenMetaKernel<float>", "x", "tensorflow"),
            ("loop_add_fusion_3", "x", "jax"),
            ("gemm", "XlaModule:#prefix=jit(f)/jit(main)#,hlo_module=jit_f,program_id=1#", "jax"),
            ("saxpy(double *, double *, int)", "step 1", "cuda"),
        ],
    ),
)
def test_names_betray_the_framework_and_without_any_it_is_a_cuda_program(
    read_, kernel_name: str, range_name: str, framework: str
):
    made: Profile = read_({"NVTX_EVENTS": [nvtx(0, 100, range_name)]}, launched(5, 20, 60, 9, name=kernel_name))
    assert only(made.workers, "framework") == framework


def test_where_only_whole_graphs_were_recorded_the_framework_is_not_known(read_):
    graph = {
        "start": 9,
        "end": 90,
        "deviceId": 0,
        "streamId": 7,
        "globalPid": pid(100),
        "correlationId": 1,
        "graphId": 2,
    }
    made: Profile = read_({RUNTIME: [call(5, 7, "cudaGraphLaunch_v10000", 1)], GRAPH: [graph]})
    assert only(made.workers, "framework") is None


def test_long_texts_are_cut_before_the_analysis_spells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen, marks = [], nsys.marks
    monkeypatch.setattr("advisor.model.profile._MOST_TEXT", 100)
    monkeypatch.setattr(nsys, "marks", lambda host, *rest: seen.append(host) or marks(host, *rest))
    rows = [nvtx(at, at + 5, "x" * 50) for at in range(0, 100, 10)]
    made = read({"NVTX_EVENTS": rows, KERNEL: [kernel(150, 160)]}, tmp_path)
    assert {len(name) for name in seen[0]["name"]} <= set(range(11))
    assert [note.code for note in made.salvaged].count("long_texts") == 1


def test_the_rarest_of_too_many_names_count_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each name costs as much as hundreds of rows."""
    monkeypatch.setattr("advisor.model.profile._MOST_NAMES", 3)
    names = ["a", "b", "b", "c", "d", "e", "d"]
    rows = [kernel(10 * at, 10 * at + 5, demangledName=string(name)) for at, name in enumerate(names)]
    made = read({KERNEL: rows}, tmp_path)
    assert made.device_ops["name"].to_list() == ["a", "b", "b", "other names", "d", "other names", "d"]
    assert [note for note in made.salvaged if note.code == "many_names"] == [Note("many_names", of=5)]


def test_long_names_of_system_calls_are_cut_before_they_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen, waits = [], nsys.messages.waits_at_end
    monkeypatch.setattr("advisor.model.profile._MOST_TEXT", 1_000)
    monkeypatch.setattr(nsys.messages, "waits_at_end", lambda calls, host: seen.append(calls) or waits(calls, host))
    call_ = {"globalTid": tid(100), "nameId": string("x" * 500)}
    rows = [{"start": at, "end": at + 20_000} | call_ for at in range(0, 400_000, 40_000)]
    made = read({"OSRT_API": rows, KERNEL: [kernel(150, 160)]}, tmp_path)
    assert {len(name) for name in seen[0]["name"]} == {100}
    assert [note.code for note in made.salvaged].count("long_texts") == 1
