from __future__ import annotations

import contextlib
import gc

import pytest

from advisor.errors import ReadError
from advisor.inputs.readers import kineto
from advisor.model.profile import Profile
from tests.strategies_kineto import LAUNCH, Event, call, event, kernel, op, profile, read, text

V100 = {
    "id": 0,
    "name": "Tesla V100-SXM2-16GB",
    "totalGlobalMem": 16 << 30,
    "computeMajor": 7,
    "computeMinor": 5,
    "numSms": 80,
    "maxThreadsPerMultiprocessor": 2048,
}
MI250 = {"id": 0, "name": "AMD Instinct MI250", "totalGlobalMem": 64 << 30}


def one(made: Profile, table: str) -> dict[str, object]:
    rows: list[dict[str, object]] = getattr(made, table).to_dicts()
    assert len(rows) == 1
    return rows[0]


# --------------------------------------------------------------------------------------------- workers


def test_the_rank_is_the_worker():
    made = profile(*LAUNCH, distributedInfo={"backend": "nccl", "rank": 5, "world_size": 8, "pg_count": 2})
    worker = one(made, "workers")
    assert (worker["worker"], worker["rank"], worker["world_size"], worker["backend"]) == (5, 5, 8, "nccl")
    for table in ("steps", "device_ops", "host_ops"):
        assert set(getattr(made, table)["worker"]) == {5}


def test_versions_and_options_are_told():
    header = {
        "cuda_runtime_version": 12040,
        "cuda_driver_version": 13000,
        "record_shapes": 1,
        "with_stack": 1,
        "with_flops": 0,
        "distributedInfo": {"nccl_version": "2.17.1"},
    }
    worker = one(profile(*LAUNCH, **header), "workers")
    assert worker["software"] == "CUDA 12.4, driver for CUDA 13.0, NCCL 2.17.1"
    assert worker["options"] == "record_shapes, with_stack"
    assert one(profile(*LAUNCH, hip_runtime_version=60443483), "workers")["software"] == "HIP 6.4.43483"


@pytest.mark.parametrize("odd", [None, "x" * 99, "<b>", [], {}, True, -1, 0, 2**70, 1.5, [[[]]]])
def test_versions_that_make_no_sense_are_unknown(odd: object):
    info = {"nccl_version": odd, "rank": 3}
    worker = one(profile(*LAUNCH, cuda_runtime_version=odd, hip_runtime_version=odd, distributedInfo=info), "workers")
    assert (worker["software"], worker["options"], worker["rank"]) == (None, None, 3)


@pytest.mark.parametrize("info", [None, {}, {"backend": "nccl"}, {"rank": None}])
def test_where_no_rank_is_told_the_worker_has_the_number_given(info: Event | None):
    made = profile(*LAUNCH, distributedInfo=info)
    assert (one(made, "workers")["worker"], one(made, "workers")["rank"]) == (0, None)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("logs/worker0.1623143089861.pt.trace.json.gz", "worker0"),
        ("s3://bucket/run/rank3.json", "rank3"),
        ("trace.json", "trace"),
        ("logs/.json", "worker0"),
    ],
)
def test_the_workers_name_comes_from_the_file(file: str, name: str):
    worker = one(read(text(*LAUNCH), file), "workers")
    assert (worker["name"], worker["file"]) == (name, file)


def test_the_producer_is_told():
    assert one(profile(*LAUNCH), "workers")["producer"] == "Kineto schema 1"
    assert one(profile(*LAUNCH), "workers")["framework"] == "pytorch"


# --------------------------------------------------------------------------------------------- devices


def test_devices_as_described():
    device = one(profile(*LAUNCH, deviceProperties=[V100]), "devices")
    assert device == {
        "worker": 0,
        "device": 0,
        "again": None,
        "name": "Tesla V100-SXM2-16GB",
        "memory_bytes": 16 << 30,
        "sm_count": 80,
        "capability": 7.5,
        "max_threads_per_sm": 2048,
        "memory_gbs": None,
        "peak_tflops": None,
    }


def test_what_a_description_leaves_out_is_unknown():
    for more in ({}, {"numSms": 0, "computeMajor": 0, "computeMinor": 0}):
        device = one(profile(*LAUNCH, deviceProperties=[{"id": 0, "name": "", **more}]), "devices")
        assert [device[key] for key in ("name", "memory_bytes", "sm_count", "capability")] == [None] * 4


def test_rocm_numbers_devices_otherwise_in_activities():
    """Activities bear the agent's number, memory events and descriptions the index."""
    memory = {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Addr": 1, "Total Allocated": 512}
    made = profile(
        op(0, 10),
        call(1, 1, 1, "hipLaunchKernel"),
        kernel(2, 5, 1, device=2),
        event("cpu_instant_event", "[memory]", 3, None, **memory),
        deviceProperties=[MI250, MI250 | {"id": 1}],
    )
    assert made.devices.select("device", "name", "memory_bytes").rows() == [
        (number, "AMD Instinct MI250", 64 << 30) for number in (0, 1, 2)
    ]
    assert made.allocations["device"].to_list() == [2]


def test_unlike_devices_are_not_guessed_from():
    made = profile(op(0, 10), kernel(2, 5, 1, device=2), deviceProperties=[MI250, V100 | {"id": 1}])
    assert made.devices["device"].to_list() == [0, 1]


def test_work_on_an_unknown_device_adds_none():
    assert profile(op(0, 10), kernel(2, 5, 1, device=-1), deviceProperties=[V100]).devices["device"].to_list() == [0]


# ----------------------------------------------------------------------------------------- collectives


def nccl(collective: str, name: str = "ncclDevKernel_Generic", **args: object) -> Event:
    named = {"Collective name": collective, "dtype": "BFloat16", "In msg nelems": 100, "Out msg nelems": 800}
    group = {"Group size": 8, "Process Group Name": "0", "Process Group Ranks": "[0, 1, ...]", "Seq": 4}
    return kernel(40, 30, 1, name, **named | group | args)


@pytest.mark.parametrize(
    ("collective", "op_", "size"),
    [
        ("allreduce", "all_reduce", 200),
        ("_allgather_base", "all_gather", 1600),
        ("all_gather", "all_gather", 1600),
        ("allgather_into_tensor_coalesced", "all_gather", 1600),
        ("_reduce_scatter_base", "reduce_scatter", 200),
        ("broadcast", "broadcast", 200),
        ("all_to_allv", "all_to_all", 200),
        ("gather", "gather", 1600),
        ("scatter", "scatter", 200),
        ("reduce", "reduce", 200),
        ("send", "send", 200),
        ("recv", "recv", 200),
        ("barrier", "barrier", None),
        ("end_coalescing", None, None),
    ],
)
def test_collectives_and_their_bytes(collective: str, op_: str | None, size: int | None):
    made = profile(op(0, 10), nccl(collective))
    row = one(made, "collectives")
    assert made.device_ops["kind"].to_list() == ["collective"]
    assert (row["device_op"], row["op"], row["bytes"]) == (0, op_, size)
    assert row["dtype"] == "BFloat16"
    assert (row["group"], row["group_size"], row["sequence"], row["ranks"]) == ("0", 8, 4, "[0, 1, ...]")


@pytest.mark.parametrize(
    ("collective", "args", "peer"),
    [
        ("send", {"Dst Rank": 3}, 3),
        ("recv", {"Src Rank": 0}, 0),
        ("send", {"Dst Rank": -1}, None),
        ("send", {"Dst Rank": 2**40}, None),
        ("allreduce", {}, None),
    ],
)
def test_the_other_end_of_a_transfer(collective: str, args: Event, peer: int | None):
    assert one(profile(op(0, 10), nccl(collective, **args)), "collectives")["peer"] == peer


def test_a_collective_without_metadata_is_known_by_its_name():
    made = profile(op(0, 10), kernel(40, 30, 1, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"))
    row = one(made, "collectives")
    assert (row["op"], row["bytes"], row["group"]) == ("all_reduce", None, None)
    assert "PyTorch 2.3" in made.lacks["collectives.bytes"].words


@pytest.mark.parametrize(
    ("around", "op_"),
    [
        ("nccl:all_to_all", "all_to_all"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("nccl:send 0->1", "send"),
        ("nccl:recv 1<-0", "recv"),
        ("nccl:coalesced", "send_recv"),
        ("all_to_all of the experts", "send_recv"),
    ],
)
def test_the_backends_range_knows_more_than_the_kernels_name(around: str, op_: str):
    launched = [event("user_annotation", around, 1, 8), call(2, 1, 1)]
    made = profile(op(0, 10), *launched, kernel(40, 30, 1, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"))
    assert one(made, "collectives")["op"] == op_


def test_metadata_know_more_than_the_range():
    made = profile(op(0, 10), event("user_annotation", "nccl:all_reduce", 1, 8), call(2, 1, 1), nccl("barrier"))
    assert one(made, "collectives")["op"] == "barrier"


@pytest.mark.parametrize(("dtype", "size"), [("Float", 400), ("Long", 800), ("Byte", 100), ("Quaternion", None)])
def test_bytes_are_unknown_where_the_element_type_is(dtype: str, size: int | None):
    assert one(profile(op(0, 10), nccl("allreduce", dtype=dtype)), "collectives")["bytes"] == size


def test_collectives_refer_to_their_device_ops():
    made = profile(op(0, 10), kernel(1, 1, 2), nccl("allreduce"), kernel(80, 1, 3), nccl("broadcast", Seq=5))
    assert made.device_ops["kind"].to_list() == ["kernel", "collective", "kernel", "collective"]
    assert made.collectives.select("device_op", "sequence").rows() == [(1, 4), (3, 5)]


def test_a_group_may_be_a_number():
    assert one(profile(op(0, 10), nccl("allreduce", **{"Process Group Name": 7})), "collectives")["group"] == "7"


# ------------------------------------------------------------------------------------------ what lacks


@pytest.mark.parametrize(
    ("event_", "need"),
    [
        (op(0, 1, **{"Input Dims": [[1]]}), "host_ops.shapes"),
        (op(0, 1, **{"Call stack": "f"}), "host_ops.stack"),
        (event("python_function", "train.py(3): main", 0, 9), "host_ops.stack"),
        (kernel(0, 1, 1, **{"est. achieved occupancy %": 0}), "device_ops.occupancy"),
        (kernel(0, 1, 1, grid=[1, 1, 1]), "device_ops.grid"),
        (call(25, 1, 1), "device_ops.launch"),
    ],
)
def test_what_is_there_is_not_lacking(event_: Event, need: str):
    bare = [op(5, 1), kernel(6, 1, 1)]
    assert need in profile(*bare).lacks
    assert need not in profile(*bare, event_).lacks


@pytest.mark.parametrize(("on", "why"), [(1, "`{}` was on"), (True, "`{}` was on"), (0, "{}=True"), (None, "{}=True")])
@pytest.mark.parametrize(
    ("option", "need"),
    [("profile_memory", "allocations"), ("record_shapes", "host_ops.shapes"), ("with_stack", "host_ops.stack")],
)
def test_what_was_asked_for_and_is_not_there_is_said_so(on: object, why: str, option: str, need: str):
    assert why.format(option) in profile(op(5, 1), **{option: on}).lacks[need].words


def test_every_reason_is_one_line():
    lacks = profile(op(5, 1)).lacks
    assert lacks
    assert all(why.words and "\n" not in why.words for why in lacks.values())


# ------------------------------------------------------------------------------------------- collector


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("trace", [text(*LAUNCH), b"no trace"])
def test_the_garbage_collector_is_left_as_it_was(enabled: bool, trace: bytes):  # noqa: FBT001
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with contextlib.suppress(ReadError):
            read(trace)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_a_kernel_of_unknown_name_is_a_collective_where_its_arguments_or_range_say_so():
    own, around = nccl("allreduce", "my_kernel"), op(1, 8, "record_param_comms")
    work = [op(0, 20, "c10d::allreduce_"), around, call(2, 2, 5), call(11, 2, 6), kernel(30, 9, 5, "k"), own]
    plain = kernel(70, 9, 6, "my_kernel")
    assert profile(*work, plain).device_ops["kind"].to_list() == ["collective", "collective", "kernel"]
    named = kernel(80, 9, 7, "ncclDevKernel_AllReduce")  # names tell: what else starts there may check for NaN
    assert profile(*work, plain, named).device_ops["kind"].to_list() == ["kernel", "kernel", "kernel", "collective"]


def test_long_texts_are_cut_before_the_analysis_spells_them(monkeypatch: pytest.MonkeyPatch):
    seen, marks = [], kineto.marks
    monkeypatch.setattr("advisor.model.profile._MOST_TEXT", 100)
    monkeypatch.setattr(kineto, "marks", lambda host, *rest: seen.append(host) or marks(host, *rest))
    made = profile(*LAUNCH, *(op(at, 5, name="x" * 50) for at in range(1_000, 1_100, 10)))
    assert {len(name) for name in seen[0]["name"]} <= set(range(11))
    assert [note.code for note in made.salvaged].count("long_texts") == 1
