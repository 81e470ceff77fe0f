from __future__ import annotations

from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.clause import Note
from advisor.model.profile import Profile
from tests.effort import examples
from tests.strategies_kineto import LAUNCH, THREAD, Event, call, event, kernel, op, profile, text
from tests.strategies_kineto import read as read_text


def only(frame: pl.DataFrame, *columns: str) -> object:
    """The row of a table of one row; its value where one column is asked for."""
    row = frame.select(columns).row(0) if frame.height == 1 else pytest.fail(f"{frame.height} rows")
    return row[0] if len(row) == 1 else row


def kernel_row(made: Event, *columns: str) -> object:
    return only(profile(op(0, 1), made).device_ops, *columns)


# ------------------------------------------------------------------------------------------- generations

OLD = [
    event("Operator", "ProfilerStep#1", 0, 100),
    event("Operator", "aten::mm", 10, 50, **{"External id": 5}),
    event("Runtime", "cudaLaunchKernel", 20, 10, correlation=1, **{"external id": 5}),
    event("Kernel", "gemm", 40, 30, device=0, stream=7, correlation=1, **{"external id": 5}),
    event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 75, 5, device=0, stream=7, bytes=400),
    event("Memset", "Memset (Device)", 85, 5, device=0, stream=7, bytes=8),
]
NEW_CATEGORY = {
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
NEW = [e | {"cat": NEW_CATEGORY[e["cat"]]} for e in OLD]


def test_both_generations_of_categories_give_the_same_tables():
    old, new = profile(*OLD), profile(*NEW)
    for table in ("steps", "device_ops", "host_ops"):
        assert getattr(old, table).equals(getattr(new, table))
    assert old.device_ops["kind"].to_list() == ["kernel", "memcpy", "memset"]
    assert old.device_ops["bytes"].to_list() == [None, 400, 8]
    assert old.host_ops["kind"].to_list() == ["step", "op", "runtime"]


def test_flow_arrows_labels_and_unknown_categories_are_left_out():
    noise: list[Event] = [
        {"ph": "s", "id": 1, "pid": 1, "tid": 2, "ts": 5, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": 9, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}},
        event("gpu_user_annotation", "ProfilerStep#1", 0, 100),
        event("Trace", "PyTorch Profiler (0)", 0, 1_000),
        event("a category of the future", "x", 0, 1),
    ]
    noisy = profile(*noise, *LAUNCH, *noise)
    assert noisy.host_ops.equals(profile(*LAUNCH).host_ops)
    assert noisy.device_ops.equals(profile(*LAUNCH).device_ops)
    assert noisy.salvaged == ()


# ------------------------------------------------------------------------------------------------ times


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        ("0", 0),
        ("7", 7_000),
        ("0.001", 1),
        ("1.0005", 1_000),  # halves to the even
        ("12.345", 12_345),
        ("4503599627370.495", 4_503_599_627_370_495),
        ("1623143089861123", 1_623_143_089_861_123_000),
        ("1623143089861123.25", 1_623_143_089_861_123_250),
        ("1623143089861123.75", 1_623_143_089_861_123_750),
        ("1.623143089861123e15", 1_623_143_089_861_123_000),
        ("-0.5", -500),
        ("-1.25", -1_250),
    ],
)
def test_microseconds_become_exact_nanoseconds(ts: str, ns: int):
    found = read_text(b'[{"cat": "cpu_op", "name": "x", "ts": %s, "dur": 0.001}]' % ts.encode())
    assert only(found.host_ops, "start_ns", "dur_ns") == (ns, 1)


@examples(0.2)
@given(st.lists(st.integers(0, 2**51 * 1000), min_size=1))
def test_no_time_is_off_by_more_than_its_digits_allow(times: list[int]):
    us = [ns / 1000 for ns in times]  # what is left of them in a double
    found = profile(*(op(ts, 0) for ts in us))
    assert found.host_ops["start_ns"].to_list() == [round(Fraction(ts) * 1000) for ts in us]


def test_a_base_time_is_added_to_everything():
    base = 1_700_000_000_000_000_001
    events = [*LAUNCH, memory(2, 512)]
    with_base, without = profile(*events, baseTimeNanoseconds=base), profile(*events)
    for table, column in [("host_ops", "start_ns"), ("device_ops", "start_ns"), ("steps", "start_ns")]:
        assert (getattr(with_base, table)[column] - base).to_list() == getattr(without, table)[column].to_list()
    assert only(with_base.allocations, "at_ns") == base + 2_000


@pytest.mark.parametrize("field", ["ts", "dur"])
@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 1e18, 2.0**53, -1e300])
def test_an_event_without_valid_times_is_left_out_and_counted(field: str, value: float | None):
    found = profile(*LAUNCH, kernel(1, 1, 2) | {field: value}, op(1, 1) | {field: value})
    assert (found.host_ops.height, found.device_ops.height) == (3, 1)
    assert found.salvaged[-1] == Note("untimed_events", events=2)


def test_an_event_that_ends_before_it_starts_is_left_out():
    found = profile(*LAUNCH, op(5, -0.001))
    assert found.salvaged == (Note("untimed_events", events=1),)


def test_an_event_without_length_is_kept():
    assert profile(op(5, 0)).host_ops["dur_ns"].to_list() == [0]


# ------------------------------------------------------------------------------------- threads and views


@pytest.mark.parametrize(
    ("tid", "thread"),
    [
        (7, 7),
        ("7", 7),
        ("thread 7 (python)", 7),
        (140_735_340_863_744, 140_735_340_863_744),
        ("140735340863744", 140_735_340_863_744),
        ("main", None),
        ("", None),
        (None, None),
        (2**64, None),
    ],
)
def test_threads(tid: object, thread: int | None):
    assert only(profile(op(0, 1, tid=tid)).host_ops, "thread") == thread


@pytest.mark.parametrize(
    ("event_", "view"),
    [
        (kernel(0, 1, 1, device=2, stream=20), (2, 20)),
        (kernel(0, 1, 1, device=2, stream="20"), (2, 20)),
        (event("Kernel", "k", 0, 1, pid=3, tid="stream 7"), (3, 7)),
        (event("kernel", "k", 0, 1, pid="1", tid=0), (1, 0)),
        (event("gpu_memset", "k", 0, 1, pid=1, tid="stream 21 "), (1, 21)),
        (kernel(0, 1, 1, device=-1, stream=-1), (None, None)),
        (kernel(0, 1, 1, device=0xFFFFFFFF, stream=0xFFFFFFFF), (None, None)),
        (kernel(0, 1, 1, device=2**40, stream=2**63), (None, None)),
    ],
)
def test_devices_and_streams(event_: Event, view: tuple[int | None, int | None]):
    assert kernel_row(event_, "device", "stream") == view


def test_the_workers_process_is_its_host_ops():
    made = profile(kernel(0, 1, 1) | {"pid": 0}, op(0, 1, pid=4711), op(1, 1, pid=4712))
    assert only(made.workers, "pid") == 4711


# ------------------------------------------------------------------------------------------ what is kept


def test_a_kernels_launch_dimensions_and_estimates():
    made = kernel(
        *(0, 1, 1),
        grid=[4, 3, 2],
        block=[32, 4, 1],
        **{"registers per thread": 255, "shared memory": 49152, "graph id": 3, "blocks per SM": 0.3},
        **{"est. achieved occupancy %": 62.5},
    )
    columns = ("grid", "block", "registers", "shared_bytes", "graph", "blocks_per_sm", "occupancy")
    assert kernel_row(made, *columns) == (24, 128, 255, 49152, 3, 0.3, 0.625)


@pytest.mark.parametrize("size", ["[4, 3, 2]", [4, 3], [4, 3, 2, 1], [], None, [2**31, 2**31, 2**31]])
def test_launch_dimensions_that_are_none_are_unknown(size: object):
    assert kernel_row(kernel(0, 1, 1, grid=size, block=size), "grid", "block") == (None, None)


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [("grid", "grid", [1.5, 2, 3]), ("registers per thread", "registers", "many")],
)
def test_an_argument_of_the_wrong_type_is_unknown_and_its_kernel_stays(name: str, column: str, value: object):
    found = profile(op(0, 1), kernel(0, 1, 1, **{name: value}))
    assert found.device_ops[column].to_list() == [None]
    assert Note("odd_values", values=1) in found.salvaged


def test_what_does_not_fit_its_column_is_unknown():
    names = ("registers per thread", "shared memory", "graph id", "External id", "Seq", "Group size")
    made = kernel(0, 1, 2**63, **dict.fromkeys(names, 2**64))
    assert kernel_row(made, "registers", "shared_bytes", "graph", "launch") == (None,) * 4


@pytest.mark.parametrize("blocks", [-1, 2**64, 1e308])
def test_blocks_that_no_grid_has_are_unknown(blocks: float):
    assert kernel_row(kernel(0, 1, 1, **{"blocks per SM": blocks}), "blocks_per_sm") is None


def test_an_ops_shapes_types_stack_and_sequence():
    made = op(
        *(0, 1),
        **{"Input Dims": [[2, 3], []], "Input type": ["float", ""], "Call stack": "a.py(1): f;b.py(2): g"},
        **{"Sequence number": 17},
    )
    row = only(profile(made).host_ops, "shapes", "dtypes", "stack", "sequence")
    assert row == ("[[2, 3], []]", '["float", ""]', "a.py(1): f;b.py(2): g", 17)


def test_an_op_without_them_has_none():
    row = only(profile(op(0, 1, **{"Call stack": ""})).host_ops, "shapes", "dtypes", "stack", "sequence")
    assert row == (None, None, None, None)


def test_bytes_that_are_no_text_are_replaced_in_shapes_too():
    made = read_text(text(op(0, 1, **{"Input type": ["flo?at"]})).replace(b"?", b"\xff"))
    assert only(made.host_ops, "dtypes") == '["flo\N{REPLACEMENT CHARACTER}at"]'


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Memcpy HtoD (Pageable -> Device)", ("HtoD", "pageable", "device")),
        ("Memcpy DtoH (Device -> Pinned)", ("DtoH", "device", "pinned")),
        ("CopyDeviceToDevice", (None, None, None)),
    ],
)
def test_copies(name: str, told: tuple[str | None, ...]):
    made = event("gpu_memcpy", name, 0, 1, device=0, stream=7, bytes=4096)
    columns = ("kind", "bytes", "copy_kind", "source_memory", "target_memory")
    assert kernel_row(made, *columns) == ("memcpy", 4096, *told)


@pytest.mark.parametrize(("size", "found"), [(4096, 4096), ("4096", 4096), (None, None), (2**70, None)])
def test_a_copys_size(size: object, found: int | None):
    assert kernel_row(event("Memcpy", "Memcpy", 0, 1, device=0, stream=7, bytes=size), "bytes") == found


def test_python_frames_modules_and_garbage_collection():
    made = profile(
        event("python_function", "train.py(3): main", 0, 100, **{"Python id": 1, "Python parent id": None}),
        event("python_function", "nn.Module: Linear_0", 10, 50, **{"Python module id": 0}),
        event("python_function", "<built-in function collect>", 70, 5),
        event("python_gc", "Python GC", 80, 5),
        event("overhead", "CUPTI Buffer Flush", 90, 5),
    )
    assert made.host_ops["kind"].to_list() == ["python", "module", "gc", "gc", "overhead"]
    assert made.host_ops["parent"].to_list() == [None, 0, 0, 0, 0]


def test_an_annotation_of_the_users_is_one():
    assert only(profile(event("user_annotation", "## forward ##", 0, 1)).host_ops, "kind", "name") == (
        "annotation",
        "## forward ##",
    )


@pytest.mark.parametrize("name", ["", "x" * 100_000, "\N{ELEPHANT}", "a\x00b", "\u202ealmost"])
def test_names_of_any_kind(name: str):
    assert only(profile(op(0, 1, name)).host_ops, "name") == name


# ---------------------------------------------------------------------------------------- memory


def memory(ts: float, size: int, **args: object) -> Event:
    """A memory event of PyTorch 1.10 and later, of GPU memory unless told otherwise."""
    named = {"Device Type": 1, "Device Id": 0, "Bytes": size, "Addr": 64, **args}
    return event("cpu_instant_event", "[memory]", ts, None, **named) | {"ph": "i", "s": "t"}


COLUMNS = ("device", "thread", "at_ns", "bytes", "address", "allocated_bytes", "reserved_bytes")


def test_allocations_with_running_totals():
    made = profile(*LAUNCH, memory(5, 512, **{"Total Allocated": 1024, "Total Reserved": 2048}))
    assert only(made.allocations, *COLUMNS) == (0, THREAD, 5_000, 512, 64, 1024, 2048)
    assert "allocations.allocated_bytes" not in made.lacks


def test_allocations_of_2021_bear_no_category_and_no_totals():
    old = memory(5, -512)
    del old["cat"]
    made = profile(*LAUNCH, old)
    assert only(made.allocations, *COLUMNS) == (0, THREAD, 5_000, -512, 64, None, None)
    assert "no totals" in made.lacks["allocations.allocated_bytes"].words


def test_the_hosts_memory_belongs_to_no_device():
    made = profile(*LAUNCH, memory(5, 512, **{"Device Type": 0, "Device Id": -1}))
    assert only(made.allocations, "device", "bytes") == (None, 512)


def test_other_instant_events_are_no_allocations():
    other = memory(5, 512) | {"name": "[OutOfMemory]"}
    assert profile(*LAUNCH, other).allocations.height == 0


def test_an_allocation_without_a_time_is_left_out():
    assert profile(*LAUNCH, memory(5, 512) | {"ts": None}).allocations.height == 0


def test_nothing_is_invented_where_nothing_was_recorded():
    made: Profile = profile(op(0, 1), call(1, 1, 5))
    assert made.device_ops.height == made.allocations.height == made.collectives.height == 0
    assert {"device_ops", "allocations", "devices", "steps"} <= set(made.lacks)
