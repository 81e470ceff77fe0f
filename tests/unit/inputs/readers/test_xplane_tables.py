"""Profiles made event by event: what each table holds, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from advisor.analysis.device.selection import select_steps
from advisor.errors import ReadError
from advisor.metrics.evaluate import measure
from advisor.model.clause import Note
from advisor.model.profile import Profile
from tests.strategies_xplane import GPU, HOST, JAX, Ref, event, field, host, line, plane, read, space

BASE = 10**18 + 1_000  # when the recording began, and what its lines add
US = 1_000


def column(profile: Profile, name: str, *, of: str = "host_ops") -> list[Any]:
    return getattr(profile, of)[name].to_list()


def kinds(*events: object) -> dict[str, str]:
    """Kind of each host op, by name."""
    profile = read(space(host(*events)))  # type: ignore[arg-type]
    return dict(profile.host_ops.select(pl.col("name", "kind").cast(pl.String)).rows())


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    text = pl.col(pl.Categorical, pl.Enum).cast(pl.String)
    return frame.select(columns).with_columns(text).rows()


# ---------------------------------------------------------------------------------------------- a job on a GPU


def test_the_worker_and_its_devices():
    profile = read(JAX)
    (worker,) = profile.workers.to_dicts()
    assert (worker["worker"], worker["name"], worker["framework"], worker["pid"]) == (0, "host", "jax", 4711)
    described = ("device", "memory_bytes", "sm_count", "capability", "peak_tflops")
    assert profile.devices.select(described).rows() == [(0, 16 << 30, 80, 7.0, None)]
    assert profile.format == "xplane"


def test_nothing_of_the_environment_is_kept():
    profile = read(JAX)
    text = "".join(str(frame.to_dicts()) for frame in (profile.workers, profile.host_ops, profile.device_ops))
    assert "secret" not in text + str(profile.lacks) + str(profile.salvaged)


def test_times_are_nanoseconds_since_1970():
    assert rows(read(JAX).host_ops, "name", "thread", "start_ns", "dur_ns")[:2] == [
        ("train", 11, BASE, 100 * US),
        ("load_batch", 11, BASE + 1 * US, 20 * US),
    ]


def test_picoseconds_are_rounded_once_so_that_neighbours_still_touch():
    profile = read(space(host(event("a:A", 0.0004, 0.0012), event("b:B", 0.0016, 0.0014), event("c:C", 0.003, 0.0005))))
    assert rows(profile.host_ops, "start_ns", "dur_ns") == [(0, 2), (2, 1), (3, 1)]


def test_kernels_with_their_launch_details():
    kernel = read(JAX).device_ops.row(0, named=True)
    told = {"grid": 8, "block": 256, "registers": 32, "shared_bytes": 1536, "occupancy": 0.5, "blocks_per_sm": 0.1}
    assert {key: kernel[key] for key in told} == told
    assert (kernel["stream"], kernel["device"], kernel["dur_ns"]) == (7, 0, 30 * US)
    assert (kernel["framework_op"], kernel["hlo_module"]) == ("jit(f)/dot_general", "jit_f")


@pytest.mark.parametrize(("device", "name", "left_out"), [(GPU, "Stream #7", 1), ("/device:TPU:0", "XLA Ops", 0)])
def test_a_kernel_in_which_others_of_its_stream_start_is_left_out(device: str, name: str, left_out: int):
    """One of twenty kernels takes 5 ms instead of 50 us; a loop of a TPU may, as it holds the ops that it runs."""
    ops = [event("gemm", 100 * at, 5_000 if at == 4 else 50) for at in range(20)]
    made = read(space(plane(device, line(*ops, name=name, id=7))))
    assert made.device_ops.height == 20 - left_out
    assert (Note("unsound_ops", rows=1, ops=20) in made.salvaged) == bool(left_out)


def test_copies_and_collectives():
    profile = read(JAX)
    copy = rows(profile.device_ops, "kind", "copy_kind", "source_memory", "target_memory", "bytes")[2]
    assert copy == ("memcpy", "HtoD", "pageable", "device", 4096)
    assert rows(profile.collectives, "device_op", "op") == [(1, "all_reduce")]
    assert profile.lacks["collectives.bytes"]


def test_lines_that_repeat_the_activity_are_no_activity():
    assert rows(read(JAX).device_ops, "name") == [
        ("gemm_fusion",),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL",),
        ("MemcpyH2D",),
    ]


def test_what_a_pool_launches_belongs_to_the_step_that_asked_for_it():
    profile = read(JAX)
    names = column(profile, "name")
    launches = [names[launch] for launch in column(profile, "launch", of="device_ops")]
    assert launches == ["cuLaunchKernel", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2"]
    assert column(profile, "step", of="device_ops") == [7, 7, 8]
    assert rows(profile.host_ops, "name", "step") == [
        ("train", 7),
        ("load_batch", 7),
        ("PjitFunction(f)", 7),
        ("cuLaunchKernel", 7),
        ("train", 8),
        ("cuMemcpyHtoDAsync_v2", 8),
        ("cuLaunchKernel", 7),
    ]


def test_a_step_ends_with_its_last_kernel_and_the_next_begins_there():
    steps = read(JAX).steps
    assert rows(steps, "device", "step", "name") == [(0, 7, "train 7"), (0, 8, "train 8")]
    shown = steps.select((pl.col("start_ns", "host_start_ns") - BASE) / US, pl.col("dur_ns", "host_dur_ns") / US)
    assert shown.select("start_ns", "dur_ns").rows() == [(22, 110), (132, 38)]  # the queue fills by 22
    assert shown.select("host_start_ns", "host_dur_ns").rows() == [(0, 110), (110, 60)]


# ---------------------------------------------------------------------------------------------- steps


def test_drawn_steps_keep_their_windows_and_their_groups():
    def of_gpu(name: str, start: float, group: int) -> bytes:
        drawn = line(event("0", start, 20, group_id=group, step_name="0"), name="Steps", id=-559038737)
        ran = line(event("k", start, 8, group_id=group), event("other", 90, 1), name="Stream #1(Compute)", id=1)
        return plane(name, ran, drawn)

    profile = read(space(host(event("x:X", 0, 5, group_id=3)), of_gpu(GPU, 10, 3), of_gpu("/device:GPU:1", 50, 3)))
    assert rows(profile.steps, "device", "step", "name", "start_ns", "dur_ns") == [
        (0, 0, "step 0", 10 * US, 20 * US),
        (1, 0, "step 0", 50 * US, 20 * US),
    ]
    assert column(profile, "step", of="device_ops") == [0, None, 0, None]
    assert column(profile, "step") == [0]


def test_a_drawn_step_within_its_range_on_the_host_lasts_as_long_as_that():
    ran = line(event("k", 10, 8, group_id=3), name="Stream #1(Compute)", id=1)
    drawn = line(event("0", 10, 8, group_id=3), name="Steps", id=2)
    profile = read(space(host(event("train", 0, 30, group_id=3, step_num=0, _r=1)), plane(GPU, ran, drawn)))
    assert rows(profile.steps, "start_ns", "dur_ns", "host_start_ns", "host_dur_ns") == [(0, 30 * US, 0, 30 * US)]


def test_the_last_drawn_step_ends_before_a_silence_that_next_to_no_work_follows():
    def steps(after: float) -> tuple[list[tuple[object, ...]], list[object]]:
        ran = [event("k", start, 90, group_id=3 + start // 100) for start in (0, 100)]
        ran.append(event("stray", 990 - after, after, group_id=4))
        drawn = [event("0", 0, 90, group_id=3), event("1", 100, 890, group_id=4)]
        lines = line(*ran, name="Stream #1(Compute)", id=1), line(*drawn, name="Steps", id=2)
        profile = read(space(host(event("x:X", 0, 5)), plane(GPU, *lines)))
        return rows(profile.steps, "step", "dur_ns"), column(profile, "step", of="device_ops")

    assert steps(after=0.5) == ([(0, 100 * US), (1, 90 * US)], [0, 1, None])
    assert steps(after=5) == ([(0, 100 * US), (1, 890 * US)], [0, 1, 1])  # more than a hundredth of its work


def test_steps_of_a_job_without_a_device_are_the_hosts():
    profile = read(space(host(event("train", 0, 5, step_num=3), event("train", 6, 5, step_num=4))))
    assert rows(profile.steps, "device", "step", "dur_ns") == [(None, 3, 6 * US), (None, 4, 5 * US)]
    assert "device_ops" in profile.lacks


def test_inner_and_overlapping_marks_are_no_steps_of_their_own():
    marks = [event("train", 0, 10, step_num=0), event("eval", 2, 5, step_num=0), event("train", 9, 5, step_num=1)]
    assert column(read(space(host(*marks))), "step", of="steps") == [0]


def test_numbers_used_twice_give_way_to_the_order_of_time():
    marks = [event("train", 0, 1, step_num=5), event("train", 2, 1, step_num=5)]
    assert rows(read(space(host(*marks))).steps, "step", "name") == [(0, "train 5"), (1, "train 5")]


def test_what_the_recorder_does_is_no_part_of_the_recording():
    calls = [
        event("$profiler.py:101 start_trace", 0, 50),
        event("x:X", 60, 30),
        event("$profiler.py:213 stop_trace", 90),
    ]
    (one,) = select_steps(read(space(host(*calls)))).views
    assert one.steps.select("start_ns", "dur_ns", "host_dur_ns").rows() == [(50 * US, 40 * US, 40 * US)]


def test_without_marks_there_are_no_steps():
    profile = read(space(host(event("x:X", 0))))
    assert profile.steps.height == 0
    assert "StepTraceAnnotation" in profile.lacks["steps"].words


def jitted(*begins: float, first: float = 20, stray: Sequence[float] = ()) -> Profile:
    """Calls of 20 us of a jitted function that launch a kernel each, and launches outside of them."""
    calls = [event("PjitFunction(step)", at, 20 if i else first) for i, at in enumerate(begins)]
    at = [*(begin + 5 for begin in begins), *stray]
    launches = [event("cuLaunchKernel", start, 1, correlation_id=i + 1) for i, start in enumerate(at)]
    ran = line(*(event("k", s + 2, 4, correlation_id=i + 1) for i, s in enumerate(at)), name="Stream #1(Kernel)", id=1)
    return read(space(host(*calls, *launches), plane(GPU, ran)))


def test_calls_of_a_jitted_function_that_launches_the_work_stand_for_steps():
    profile = jitted(0, 100, 200, 300)
    assert rows(profile.steps, "step", "host_start_ns") == [(i, 100 * i * US) for i in range(4)]
    assert profile.salvaged == (Note("steps_by_calls", call="PjitFunction(step)", confidence="medium"),)


def test_a_first_call_that_takes_longest_specialises_the_function_and_is_no_step():
    assert rows(jitted(0, 100, 200, 300, 400, first=60).steps, "host_start_ns")[0] == (100 * US,)


def test_without_a_device_the_calls_of_the_one_jitted_function_stand_for_steps():
    calls = [event("PjitFunction(step)", 100 * i, 20) for i in range(5)]
    assert rows(read(space(host(*calls))).steps, "host_start_ns") == [(100 * i * US,) for i in range(5)]
    others = [event("PjitFunction(act)", 100 * i + at, 10) for i in range(5) for at in (30, 50)]
    assert not read(space(host(*calls, *others))).steps.height


def test_without_a_device_ranges_that_repeat_and_hold_the_ops_stand_for_steps():
    ranges = [event("iteration", 100 * i, 80) for i in range(4)]
    ops = [event("fusion", 100 * i + at, 10, hlo_op="fusion") for i in range(4) for at in (20, 50)]
    profile = read(space(host(*ranges, *ops)))
    assert rows(profile.steps, "host_start_ns") == [(100 * i * US,) for i in range(4)]
    assert 'the 4 ranges "iteration" of one thread' in profile.salvaged[0].words


@pytest.mark.parametrize(
    ("begins", "stray"),
    [
        pytest.param((0, 100, 200), (), id="too few"),
        pytest.param((0, 100, 500, 550, 1400), (), id="uneven"),
        pytest.param((0, 100, 200, 300), (50, 150), id="work elsewhere"),
    ],
)
def test_other_calls_stand_for_nothing(begins: Sequence[float], stray: Sequence[float]):
    assert jitted(*begins, stray=stray).steps.height == 0


def test_a_last_step_without_its_device_work_is_not_whole():
    calls = [event("cuLaunchKernel", 1 + 10 * i, 1, correlation_id=i + 1) for i in range(2)]
    marks = [event("train", 10 * i, 9, step_num=i) for i in range(3)]
    ran = line(*(event("k", 2 + 10 * i, 1, correlation_id=i + 1) for i in range(2)), name="Stream #1(Kernel)", id=1)
    profile = read(space(host(*marks, *calls), plane(GPU, ran)))
    assert [why is None for why in column(profile, "incomplete", of="steps")] == [True, True, False]


# ---------------------------------------------------------------------------------------------- the host


FRAGMENT = Note("fragment", kernels=9.0, host=91.0)


@pytest.mark.parametrize(("last_end", "notes"), [(90, ()), (91, (FRAGMENT,))])
def test_devices_that_are_seen_for_a_small_part_of_the_hosts_work_are_a_note(last_end: float, notes: tuple[Note, ...]):
    ops = event("a/MatMul:MatMul", 0, 1e3), event("b/MatMul:MatMul", last_end * 1e3 - 500, 500)
    kernels = event("k", 2e3, 1e3, correlation_id=1), event("k", 10e3, 1e3, correlation_id=2)
    made = space(host(*ops), plane(GPU, line(*kernels, name="Stream #7(Compute)", id=7)))
    assert read(made).salvaged == notes


def test_kinds_of_host_ops():
    assert kinds(
        event("IteratorGetNextOp::DoCompute", 0),
        event("IteratorGetNext:IteratorGetNext", 0),
        event("IteratorGetNext/_2:_Send", 0),
        event("Iterator::Root::Prefetch", 1),
        event("PrefetchProduce", 2),
        event("model/dense/MatMul:MatMul", 3),
        event("EagerLocalExecute: MatMul", 3),
        event("EagerLocalExecute: __inference_step_1", 3),
        event("ExecutorState::Process", 4),
        event("dot.3", 5, 1, hlo_op=Ref("dot.3")),
        event("all-reduce.1", 5, 1, hlo_op="all-reduce.1"),
        event("$model.py:3 forward", 6),
        event("$pjit.py:1247 _pjit_lower", 6),
        event("backend_compile_and_load", 7),
        event("TfrtCpuClient::Compile", 7),
        event("tf.function-graph_building", 7),
        event("$gc collect", 7),
        event("void my_kernel(float*)", 8, 1, correlation_id=4),
        event("MemcpyD2H", 8, 1, correlation_id=5, memcpy_details="size:8 dest:0 async:0"),
        event("cuStreamSynchronize", 9),
        event("hipMalloc", 9),
        event("DeviceMemAllocator::Alloc", 9),
        event("Build buffer allocations", 9),
        event("load_batch", 9),
    ) == {
        "IteratorGetNextOp::DoCompute": "input",
        "IteratorGetNext:IteratorGetNext": "input",
        "IteratorGetNext/_2:_Send": "op",  # moves what was asked for
        "Iterator::Root::Prefetch": "pipeline",
        "PrefetchProduce": "pipeline",
        "model/dense/MatMul:MatMul": "op",
        "EagerLocalExecute: MatMul": "op",
        "EagerLocalExecute: __inference_step_1": "annotation",
        "ExecutorState::Process": "annotation",
        "dot.3": "op",
        "all-reduce.1": "collective",
        "$model.py:3 forward": "python",
        "$pjit.py:1247 _pjit_lower": "compile",
        "backend_compile_and_load": "compile",
        "TfrtCpuClient::Compile": "compile",
        "tf.function-graph_building": "compile",
        "$gc collect": "gc",
        "void my_kernel(float*)": "runtime",
        "MemcpyD2H": "sync",
        "cuStreamSynchronize": "sync",
        "hipMalloc": "allocator",
        "DeviceMemAllocator::Alloc": "allocator",
        "Build buffer allocations": "annotation",
        "load_batch": "annotation",
    }


def test_parents_nest_and_marks_of_pools_are_gone():
    profile = read(
        space(host(event("a", 0, 10), event("b", 1, 5), event("ThreadpoolListener::Record", 2, 0, _pt=1, _p=1)))
    )
    assert rows(profile.host_ops, "name", "parent") == [("a", None), ("b", 0)]


def test_a_request_for_input_belongs_to_the_step_whose_executor_it_serves():
    data = space(
        plane(
            HOST,
            line(event("train", 0, 9, step_num=1), event("ExecutorState::Process", 1, 1, id=-5, iter_num=0)),
            line(event("IteratorGetNextOp::DoCompute", 3, 30, id=-5, iter_num=0), id=12),
            line(event("IteratorGetNextOp::DoCompute", 3, 30, id=-6, iter_num=0), id=13),
        )
    )
    assert column(read(data), "step") == [1, 1, 1, None]


def test_what_is_told_of_iterators_and_functions():
    iterator = event(
        "Iterator::Root::Map", 0, 1, id=7, parent_id=6, name=Ref("MapDataset:1"), parallelism=2, autotune="true"
    )
    call = event("train_step", 2, 1, tf_function_call=Ref("notTraced-xla"), tracing_count=1)
    told = column(read(space(host(iterator, call, event("x", 4)))), "details")
    assert json.loads(told[0]) == {
        "id": 7,
        "parent_id": 6,
        "name": "MapDataset:1",
        "parallelism": 2,
        "autotune": "true",
    }
    assert json.loads(told[1]) == {"tf_function_call": "notTraced-xla", "tracing_count": 1}
    assert told[2] is None


def test_shapes_and_types_are_spelt_as_everywhere():
    op = event("m:MatMul", 0, 1, shape="(half[4,384];bfloat16[384,8];int32[])", is_eager=1)
    (row,) = rows(read(space(host(op))).host_ops, "shapes", "dtypes", "eager")
    assert row == ("[[4,384],[384,8],[]]", '["c10::Half","c10::BFloat16","int32"]', True)


def test_allocations_of_devices_and_of_the_host():
    def memory(name: str, at: float, allocator: str, **stats: object) -> object:
        return event(name, at, 0, allocator_name=allocator, allocation_bytes=256, addr=16, **stats)

    told = {"bytes_allocated": 512, "bytes_available": 1024, "fragmentation": 0.25, "tf_op": "a/b"}
    events = [
        memory("MemoryAllocation", 1, "GPU_3_bfc", region_type="output", **told),
        memory("MemoryDeallocation", 2, "gpu_host_bfc", bytes_allocated=256, fragmentation=0),
    ]
    profile = read(space(host(event("x:X", 0), *events)))  # type: ignore[arg-type]
    columns = [
        "device",
        "bytes",
        "allocated_bytes",
        "available_bytes",
        "fragmentation",
        "framework_op",
        "region",
    ]
    assert rows(profile.allocations, *columns) == [
        (3, 256, 512, 1024, 0.25, "a/b", "output"),
        (None, -256, 256, None, 0.0, None, None),
    ]
    assert column(profile, "name") == ["x:X"]


def test_a_devices_memory_without_a_kernel_says_that_the_kernels_lack():
    """TensorFlow 2.4 on Windows writes a null byte for the first letter of each allocator."""

    def noted(allocator: str) -> list[str]:
        taken = event("MemoryAllocation", 1, 0, allocator_name=allocator, allocation_bytes=256, addr=16)
        profile = read(space(host(event("x:PyFunc", 0, 5), taken)))  # type: ignore[arg-type]
        return [note.code for note in profile.salvaged]

    assert noted("\0PU_0_bfc") == noted("GPU_0_bfc") == ["fragment"]
    assert noted("\0pu_host_bfc") == noted("cpu") == []


def test_an_event_that_sums_up_others_has_no_time():
    name = field(4, field(1, 1) + field(2, field(1, 1) + field(2, "a:A")))
    events = field(4, field(1, 1) + field(5, 9)) + field(4, field(1, 1) + field(2, 5_000) + field(3, 1_000))
    profile = read(field(1, field(2, HOST) + field(3, events) + name))
    assert rows(profile.host_ops, "name", "start_ns") == [("a:A", 5)]


# ---------------------------------------------------------------------------------------------- AMD, TPU, others


def test_amds_copies_by_kernel_are_copies_in_the_direction_of_their_call():
    details = Ref(" grid:64,1,1 block:512,1,1 private_mem:0 group_mem:4096 occ_pct:0")
    ran = line(
        event("__amd_rocclr_copyBuffer.kd", 5, 1, correlation_id=1, kernel_details=details),
        event("Cijk_Ailk", 7, 1, correlation_id=2, kernel_details=details),
        name="Stream #3(Kernel)",
        id=3,
    )
    calls = [
        event("hipMemcpyHtoDAsync", 0, 1, correlation_id=1),
        event("hipModuleLaunchKernel", 2, 1, correlation_id=2),
    ]
    profile = read(space(host(*calls), plane(GPU, ran, device_vendor="AMD")))
    assert rows(profile.device_ops, "kind", "copy_kind", "grid", "shared_bytes", "occupancy") == [
        ("memcpy", "HtoD", 64, 4096, None),
        ("kernel", None, 64, 4096, None),
    ]


def test_a_tpu_is_read_as_far_as_it_is_generic_and_that_is_said():
    ops = line(
        event("%fusion.1 = f32[8] fusion(...)", 1, 1, "fusion.1", hlo_category=Ref("loop fusion")),
        event("%all-reduce = ...", 2, 1, "all-reduce", hlo_category=Ref("all-reduce")),
        event("%copy-start = ...", 3, 1, "copy-start", hlo_category=Ref("copy-start")),
        name="XLA Ops",
        id=3,
    )
    modules = line(event("jit_f(1)", 1, 9), name="XLA Modules", id=2)
    profile = read(space(host(event("x", 0)), plane("/device:TPU:0", modules, ops, device_type_string="TPU v6 Lite")))
    assert rows(profile.device_ops, "name", "kind") == [
        ("fusion.1", "kernel"),
        ("all-reduce", "collective"),
        ("copy-start", "memcpy"),
    ]
    assert column(profile, "name", of="devices") == ["TPU v6 Lite"]
    assert Note("tpu") in profile.salvaged


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # f32 of 2 x 3: 24 bytes; S(5) is the host's memory
        (
            "%copy-done = f32[2,3]{1,0:T(8,128)} copy-done((f32[2,3]{1,0:T(8)}, f32[2,3]{1,0:S(5)}, u32[]{:S(2)}) %c)",
            ("HtoD", "pinned", "device", 24),
        ),
        (
            "%copy-done.1 = bf16[8]{0:S(5)} copy-done((bf16[8]{0:S(5)}, bf16[8]{0}, u32[]{:S(2)}) %c)",
            ("DtoH", "device", "pinned", 16),
        ),
        (
            "%copy-done.2 = pred[]{:S(1)} copy-done((pred[]{:S(1)}, pred[]{}, u32[]{}) %c)",
            ("DtoD", "device", "device", 1),
        ),
        (
            "%copy-start.1 = (s8[4]{0}, s8[4]{0:S(5)}, u32[]{:S(2)}) copy-start(s8[4]{0:S(5)} %p)",
            ("HtoD", "pinned", "device", None),  # its time is not the copy's
        ),
        ("%copy-done = f32[" + "9" * 30 + "]{0} copy-done((f32[" + "9" * 30 + "]{0}, f32[]{}, u32[]{}) %c)", None),
        ("%copy-start = ...", None),
    ],
)
def test_where_xlas_copies_go_stands_in_their_text(text, told):
    ops = line(event(text, 3, 1, "copy", hlo_category=Ref("copy-done")), name="XLA Ops", id=3)
    profile = read(space(host(event("x", 0)), plane("/device:TPU:0", ops)))
    found = rows(profile.device_ops, "kind", "copy_kind", "source_memory", "target_memory", "bytes")[0]
    assert found[0] == "memcpy"
    assert found[1:] == told or (told is None and found[4] is None)


def test_what_the_profiler_warned_of_is_passed_on():
    assert read(space(host(event("x", 0)), warnings=["10 events\nwere dropped"])).salvaged == (
        Note("profiler_message", message="10 events were dropped"),
    )


# ---------------------------------------------------------------------------------------------- broken files


MANY_PLANES = "more than 256 planes; a host has one per device and some more"
SMALL_PLANES = "more than 64 planes that hold little; a host has one per device and some more"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty; record it again"),
        (field(4, "host"), "no plane in it; record it again"),
        (space(plane("/host:metadata")), "no host or device activity in it; record it around some steps"),
        (space(plane(HOST, line())), "no host or device activity in it; record it around some steps"),
        (
            JAX + 256 * space(plane("/host:metadata")),
            MANY_PLANES,
        ),
        (JAX + 64 * space(plane(GPU, line(event("k", 1)))), SMALL_PLANES),
        (JAX[:400], "the file is cut off after 400 B; copy it again, or record it again"),
        (b"<html>404</html>", "the file is damaged at byte 1; copy it again, or record it again"),
        (
            JAX.decode("utf-8", "replace").encode(),
            f"{Note('bytes_changed').words}; copy it again as binary, or record it again",
        ),
    ],
)
def test_a_file_that_cannot_be_read(data: bytes, why: str):
    with pytest.raises(ReadError) as refused:
        read(data)
    assert str(refused.value) == f"a/host.xplane.pb: {why}"


def test_lines_are_counted_before_they_are_read():
    host_line = space(host(event("x", 0)))
    more = field(1, field(2, "/host:metadata") + field(3, field(1, 1)) * 7_999)
    assert read(host_line + more).host_ops.height == 1
    with pytest.raises(ReadError, match="more than 8,000 lines; a host has one per thread, a device one per stream"):
        read(host_line + more + space(plane("/host:metadata", line())))


def test_a_file_cut_off_before_any_activity_says_so():
    whole = space(plane("/host:metadata"))
    with pytest.raises(ReadError) as refused:
        read(whole + JAX[:400])
    assert str(refused.value) == (
        f"a/host.xplane.pb: no host or device activity in it; the file is cut off after {len(whole) + 400} B; "
        "copy it again, or record it around some steps"
    )


def test_the_whole_planes_of_a_file_that_ends_early_are_read():
    profile = read(JAX[:-30])
    assert profile.device_ops.height == 3
    (note,) = profile.salvaged
    assert note.code == "cut_off"


def test_a_name_is_kept_as_far_as_it_helps():
    names = field(4, field(1, 1) + field(2, field(1, 1) + field(2, "a" * 10_000)))
    once = field(4, field(1, 1) + field(2, 1_000_000) + field(3, 1_000_000))
    host = read(field(1, field(2, HOST) + field(3, once) + names)).host_ops
    assert host["name"].cast(pl.String).to_list() == ["a" * 8_192]


def test_a_fact_of_a_call_is_kept_as_far_as_it_helps():
    profile = read(space(host(event("f", 0, 9, tf_function_call=Ref("a" * 8_000), tracing_count=2))))
    assert [json.loads(text) for text in column(profile, "details")] == [
        {"tf_function_call": "a" * 500, "tracing_count": 2}
    ]


def test_a_line_cut_in_the_middle_keeps_its_first_events():
    names = field(4, field(1, 1) + field(2, field(1, 1) + field(2, "a:A")))
    whole = field(4, field(1, 1) + field(2, 5_000) + field(3, 1_000))
    profile = read(field(1, field(2, HOST) + field(3, whole + b"\x22\x7f") + names))
    assert profile.host_ops.height == 1
    assert profile.salvaged == (Note("partial_lines", lines=1),)


@pytest.mark.parametrize(
    ("of", "unknown", "known"),
    [
        (HOST, ("host_busy_share", "launch_gap_share", "host_bound_idle_share", "stall_gain_ms"), "device_busy_share"),
        (GPU, ("idle_share", "device_busy_share", "host_busy_share", "launch_share"), "step_mean_ms"),
        ("no GPU", ("python_bound_share", "python_gain_ms", "python_silent_share"), "step_mean_ms"),
    ],
)
def test_idle_time_has_no_known_cause_where_a_thread_or_stream_was_read_in_part(
    of: str, unknown: Sequence[str], known: str
):
    marks = [event("train", at, 100, _r=1, step_num=at) for at in (0, 100, 200)]
    launches = [event("cuLaunchKernel", at, 2, correlation_id=at) for at in (10, 110)]
    kernels = [event("gemm", at, 3, correlation_id=at - 20) for at in (30, 130)]
    ran = [event("dot.1", at, 60, hlo_op="dot.1") for at in (20, 120)]

    def values(cut: bytes) -> dict[str, Any]:
        threads = plane(HOST, line(*marks, *(ran if of == "no GPU" else launches))) + cut * (of != GPU)
        streams = plane(GPU, line(*kernels, name="Stream #7")) + cut * (of == GPU)
        profile = read(space(threads) if of == "no GPU" else space(threads, streams))
        told = measure(select_steps(profile))
        causes = set(told.frames["accounting"]["part"]) - {"compute", "unknown"}
        assert not [name for name, why in told.reasons.items() if why.code == "failed"]
        return told.frames["worker"].row(0, named=True) | {"has_causes": bool(causes)}

    whole, partial = values(b""), values(field(3, b"\x22\x7f"))
    assert [name for name in unknown if whole[name] is None or partial[name] is not None] == []
    assert partial[known] == whole[known] is not None
    assert (whole["has_causes"], partial["has_causes"]) == (True, False)


def test_threads_are_named_without_the_number_that_repeats_their_own():
    made = plane(
        HOST,
        line(event("a", 0), name="tf_Compute/-3298706125908152583", id=-3298706125908152583),
        line(event("b", 0), name="python", id=2**40),
        line(event("c", 0), name="", id=3),
    )
    assert read(space(made)).threads.select("thread", "name").rows() == [
        (-3298706125908152583, "tf_Compute"),
        (2**40, "python"),
    ]


def test_calls_of_advisor_s_own_hook_are_no_work_of_the_program():
    hook = [
        event("$jax_steps.py:23 __call__", 0, 90),
        event("PjitFunction(f)", 5, 30),
        event("$hook.py:147 _tick", 40, 45),
        event("$hook.py:156 _advance", 41, 43),
        event("$phases.py:60 step", 45, 30),
    ]
    own = [event("$clock.py:9 sync", 100, 20), event("$hook.py:3 before_step", 130, 5)]
    assert list(kinds(*hook, *own)) == ["PjitFunction(f)", "$clock.py:9 sync", "$hook.py:3 before_step"]
    assert "$phases.py:60 step" in kinds(hook[0], hook[4])  # a program that advisor does not record


def unjoined(lag_us: float) -> Profile:
    """Four steps of 100 us, whose kernels bear no number of a call and run so much later."""
    marks = [event("train", at, 100, _r=1, step_num=at // 100) for at in range(0, 400, 100)]
    kernels = line(*(event("gemm", at + lag_us, 50) for at in range(0, 400, 100)), name="Stream #7(Kernel)", id=7)
    return read(space(host(*marks), plane(GPU, kernels)))


def test_work_that_nothing_joins_with_the_host_is_still_of_a_device():
    steps = unjoined(lag_us=20).steps
    assert steps.select("device", "step").rows() == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_marks_are_not_used_where_such_work_lags_by_a_step():
    profile = unjoined(lag_us=250)
    assert not profile.steps.height
    assert Note("marks_unused") in profile.salvaged


LONG = 1e9  # microseconds: 1,000 s


@pytest.mark.parametrize("name", ["a/dot:MatMul", "$loop.py:3 wait", "IteratorGetNextOp::DoCompute"])
def test_an_event_many_times_as_long_as_all_others_together_is_left_out(name: str):
    marks = [event("train", at, 100, _r=1, step_num=at // 100) for at in range(0, 400, 100)]
    ops = [event("a/dot:MatMul", at + 10, 80) for at in range(0, 400, 100)]
    profile = read(space(host(*marks, *ops, event(name, 250, LONG))))
    assert profile.host_ops.height == 8
    assert profile.steps.select("host_dur_ns").to_series().to_list() == [100_000] * 4
    assert profile.salvaged[0] == Note("untimed_events", events=1)


@pytest.mark.parametrize(
    ("dur", "other"),
    [
        (LONG, plane(GPU, line(event("gemm", 250, 1), event("gemm", 0.5 * LONG, 1), name="Stream #7(Kernel)", id=7))),
        (LONG, plane(HOST, line(event("b", LONG, 1), name="pool", id=12))),
        (9e6, b""),  # others take 0.1 ms; a wait of some seconds may end a recording
    ],
)
def test_an_event_stays_while_others_go_on_or_it_may_be_a_wait(dur: float, other: bytes):
    events = [*(event("a/dot:MatMul", at, 9) for at in range(0, 100, 10)), event("wait", 50, dur)]
    profile = read(space(host(*events), other))
    assert profile.host_ops["dur_ns"].max() == dur * 1e3
    assert not [note for note in profile.salvaged if note.code == "untimed_events"]
