"""XSpaces for tests: an encoder of protobuf's wire format, small profiles made event by event, and hostile ones."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from advisor.inputs.readers import xplane
from advisor.model.profile import Profile

PYTHON: Final = 11
HOST: Final = "/host:CPU"
GPU: Final = "/device:GPU:0"


def varint(value: int) -> bytes:
    """A number; negative ones take ten bytes."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def field(number: int, value: object) -> bytes:
    """One field: whole numbers as varints, floats as doubles, the rest as bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(*fields: tuple[int, object]) -> bytes:
    return b"".join(field(number, value) for number, value in fields if value is not None)


class Ref(str):
    """A text that is stored once, among the names of stats."""

    __slots__ = ()


class Event(NamedTuple):
    """An event of a line, its times in microseconds."""

    name: str
    start: float
    dur: float
    stats: dict[str, Any]
    label: str | None = None


class Line(NamedTuple):
    """A thread or stream."""

    name: str
    events: tuple[Event, ...]
    id: int
    at_ns: int = 0


def event(name: str, start: float, dur: float = 1, label: str | None = None, /, **stats: object) -> Event:
    return Event(name, start, dur, stats, label)


def line(*events: Event, name: str = "python", id: int = PYTHON, at_ns: int = 0) -> Line:  # noqa: A002
    return Line(name, events, id, at_ns)


def plane(name: str, /, *lines: Line, **stats: object) -> bytes:
    """A plane with the tables of names that its events and stats need."""
    names, stat_names = dict[tuple[str, str | None], int](), dict[str, int]()

    def number(table: dict[Any, int], key: object) -> int:
        return table.setdefault(key, len(table) + 1)

    def stat(key: str, value: object) -> bytes:
        name = (1, number(stat_names, key))
        if isinstance(value, Ref):
            return message(name, (7, number(stat_names, str(value))))
        kind = {float: 2, int: 4, bool: 4, str: 5, bytes: 6}[type(value)]
        return message(name, (kind, int(value) if isinstance(value, bool) else value))

    def one(made: Event) -> bytes:
        stats = [(4, stat(key.replace("__", " "), value)) for key, value in made.stats.items()]
        times = ((2, round(made.start * 1e6)), (3, round(made.dur * 1e6)))
        return message((1, number(names, (made.name, made.label))), *times, *stats)

    def whole(made: Line) -> bytes:
        events = [(4, one(e)) for e in made.events]
        return message((1, made.id), (2, made.name), (3, made.at_ns), *events)

    fields = [(2, name), *((3, whole(made)) for made in lines)]
    of_plane = [(6, stat(key, value)) for key, value in stats.items()]
    told = [(4, message((1, i), (2, message((1, i), (2, text), (4, label))))) for (text, label), i in names.items()]
    told += [(5, message((1, i), (2, message((1, i), (2, text))))) for text, i in stat_names.items()]
    return message(*fields, *told, *of_plane)


def space(*planes: bytes, warnings: Iterable[str] = ()) -> bytes:
    return message(*((1, made) for made in planes), *((3, text) for text in warnings))


def host(*events: Event) -> bytes:
    """A host plane with one thread."""
    return plane(HOST, line(*events))


def read(data: bytes, name: str = "a/host.xplane.pb") -> Profile:
    return xplane.read(io.BytesIO(data), name)


# Two steps of a JAX program on a GPU: a launch from the step's own thread, and one that a pool's thread makes for it.
JAX: Final = space(
    plane(
        HOST,
        line(
            event("train", 0, 100, _r=1, step_num=7),
            event("load_batch", 1, 20),
            event("PjitFunction(f)", 30, 50),
            event("cuLaunchKernel", 40, 5, correlation_id=1, context_id="$$1"),
            event("ThreadpoolListener::Record", 60, 0, _pt=15, _p=3),
            event("train", 110, 60, _r=1, step_num=8),
            event("cuMemcpyHtoDAsync_v2", 120, 4, correlation_id=2),
            at_ns=1_000,
        ),
        line(
            event("ThreadpoolListener::StartRegion", 105, 0, _ct=15, _c=3),
            event("cuLaunchKernel", 106, 1, correlation_id=3),
            event("ThreadpoolListener::StopRegion", 109, 0),
            name="pool",
            id=12,
            at_ns=1_000,
        ),
        process_id=4711,
    ),
    plane(
        GPU,
        line(
            event(
                "gemm_fusion",
                50,
                30,
                correlation_id=1,
                kernel_details=Ref("regs:32 static_shared:1024 dynamic_shared:512 grid:4,2,1 block:128,2,1 occ_pct:50"),
                tf_op=Ref("XlaModule:"),
                name=Ref("jit(f)/dot_general"),
                hlo_module=Ref("jit_f"),
            ),
            event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 112, 20, correlation_id=3),
            name="Stream #7(Kernel)",
            id=7,
            at_ns=1_000,
        ),
        line(
            event(
                "MemcpyH2D",
                130,
                10,
                correlation_id=2,
                memcpy_details="kind_src:pageable kind_dst:device size:4096 dest:0 async:1",
            ),
            name="Stream #9(MemcpyH2D)",
            id=9,
            at_ns=1_000,
        ),
        line(event("jit_f", 50, 30), name="XLA Modules", id=-559038732),
        core_count=80,
        memory_size=16 << 30,
        compute_cap_major=7,
        compute_cap_minor=0,
    ),
    plane("Task Environment", profile_start_time=10**18, profile_options=b"/home/someone/secret"),
)


# ---------------------------------------------------------------------------------------------- hostile ones

numbers = st.integers(-(2**63), 2**64 - 1) | st.integers(-3, 200)
values = numbers | st.floats() | st.binary(max_size=12) | st.text(max_size=8)
messages: st.SearchStrategy[bytes] = st.recursive(
    st.just(b""),
    lambda inner: st.lists(st.tuples(st.integers(1, 12), values | inner), max_size=6).map(lambda f: message(*f)),
    max_leaves=25,
)
names = st.sampled_from(
    [
        *("train", "Iterator::Root", "IteratorGetNextOp::DoCompute", "ExecutorState::Process", "MemoryAllocation", ""),
        *("ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion", "ThreadpoolListener::Record", "a:B"),
        *("cuLaunchKernel", "MemcpyD2H", "ncclKernel", "end: x", "$f.py:1 g", "EagerLocalExecute: Mul"),
    ]
)
stats = st.sampled_from(
    [
        *("group_id", "step_num", "_r", "_pt", "_p", "_ct", "_c", "id", "iter_num", "parent_id", "correlation_id"),
        *("kernel_details", "memcpy_details", "shape", "hlo_op", "allocator_name", "bytes_allocated", "fragmentation"),
        *("name", "tf_op", "is_eager", "allocation_bytes", "data_type", "step_name", "index_on_host"),
    ]
)
told = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3) | st.floats() | st.text(max_size=6) | st.binary(max_size=4)
times = st.integers(0, 60) | st.sampled_from([0, 2**53, 2**43])
events = st.builds(
    Event,
    names,
    times,
    times,
    st.dictionaries(stats, told, max_size=5),
)
lines = st.builds(
    lambda name, of, number, at: Line(name, tuple(of), number, at),
    st.sampled_from(["python", "Stream #1(Kernel)", "Steps", "XLA Ops"]),
    st.lists(events, max_size=8),
    st.integers(-(2**63), 2**63 - 1) | st.just(1),
    st.sampled_from([0, 1, -5, 2**62, 2**63 - 1]),
)
plane_stats = st.sampled_from(["core_count", "memory_size", "profile_start_time", "jax_version"])
spaces = st.lists(
    st.builds(
        lambda name, of, stats: plane(name, *of, **stats),
        st.sampled_from([HOST, GPU, "/device:GPU:1", "/device:TPU:0", "Task Environment", "/host:metadata", "x"]),
        st.lists(lines, max_size=3),
        st.dictionaries(
            st.sampled_from(["core_count", "memory_size", "profile_start_time", "jax_version"]), told, max_size=3
        ),
    ),
    max_size=4,
).map(lambda planes: space(*planes))
