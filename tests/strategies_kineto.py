"""Kineto traces for tests: small ones made event by event, and hypothesis strategies for hostile ones."""

from __future__ import annotations

import io
import json
from typing import Any, Final

from hypothesis import strategies as st

from advisor.inputs.readers import kineto
from advisor.model.profile import Profile

Event = dict[str, Any]

THREAD: Final = 11


def event(cat: str | None, name: str, ts: object, dur: object = 1, **fields: object) -> Event:
    """A complete event, times in microseconds; other `fields` go to `args`, save for `pid` and `tid`."""
    rows = {row: fields.pop(row) for row in ("pid", "tid") if row in fields}
    labelled = {} if cat is None else {"cat": cat}
    return {"ph": "X", **labelled, "name": name, "pid": 1, "tid": THREAD, "ts": ts, "dur": dur, **rows, "args": fields}


def op(ts: object, dur: object, name: str = "aten::mm", **fields: object) -> Event:
    return event("cpu_op", name, ts, dur, **fields)


def step(number: int, ts: object, dur: object) -> Event:
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def call(ts: object, dur: object, correlation: object, name: str = "cudaLaunchKernel", **fields: object) -> Event:
    return event("cuda_runtime", name, ts, dur, correlation=correlation, **fields)


def kernel(ts: object, dur: object, correlation: object, name: str = "gemm", **fields: object) -> Event:
    return event("kernel", name, ts, dur, **{"device": 0, "stream": 7, "correlation": correlation} | fields)


def text(*events: object, after: Event | None = None, **header: object) -> bytes:
    """A trace's JSON, its header in front of the events or `after` them."""
    return json.dumps({"schemaVersion": 1, **header, "traceEvents": events, **(after or {})}).encode()


def read(trace: bytes, name: str = "rank0.json") -> Profile:
    return kineto.read(io.BytesIO(trace), name)


def profile(*events: object, after: Event | None = None, **header: object) -> Profile:
    return read(text(*events, after=after, **header))


LAUNCH: Final = [step(1, 0, 100), op(10, 50), call(20, 10, 1), kernel(40, 30, 1)]
"""One kernel of one op in one step."""

# ------------------------------------------------------------------------------------------ strategies

_EXTREME = [
    *(0, -1, 7, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400),
    *(0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
    *("", "7", "stream 7", "-1", "9" * 500, "nan", "\x00", "\ud800", "\N{ELEPHANT}", '},{"ph":"X"', "x" * 10_000),
    *(None, True, False, [], {}, [[]], {"": {}}, [1, 2, 3], [1.5, 2.0, 1], [2**40, 2**40, 2**40], [-1, None, "1"]),
]
_scalars = st.sampled_from(_EXTREME) | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)

_CATEGORIES = ["kernel", "Kernel", "gpu_memcpy", "Memset", "cpu_op", "Operator", "user_annotation", "cuda_runtime"]
_NAMES = ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#99999999999999999999", "[memory]", "cudaLaunchKernel"]
_times = st.integers(0, 100) | st.floats(0, 1e6) | anything
_fields: dict[str, st.SearchStrategy[Any]] = {
    "ph": st.sampled_from("XiM") | anything,
    "cat": st.sampled_from([*_CATEGORIES, "python_function", "cuda_sync", "cpu_instant_event"]) | anything,
    "name": st.sampled_from([*_NAMES, "ncclDevKernel_AllGather", "Memcpy HtoD (Pinned -> Device)"]) | anything,
    "pid": st.integers(0, 2) | anything,
    "tid": st.sampled_from([1, 2, "stream 7"]) | anything,
    "ts": _times,
    "dur": _times,
}
_ARGUMENTS = [
    *("correlation", "External id", "external id", "stream", "device", "bytes", "grid", "block", "graph id"),
    *("registers per thread", "shared memory", "est. achieved occupancy %", "blocks per SM", "Input Dims"),
    *("Input type", "Call stack", "Sequence number", "Device Type", "Device Id"),
    *("Bytes", "Addr", "Total Allocated", "Total Reserved", "Collective name", "dtype", "In msg nelems"),
    *("Out msg nelems", "Process Group Name", "Group size", "Process Group Ranks", "Seq", "Src Rank", "Dst Rank"),
    "rank",
]
_arguments = st.dictionaries(st.sampled_from(_ARGUMENTS), st.integers(0, 3) | anything, max_size=5)
events = st.fixed_dictionaries({}, optional=_fields | {"args": _arguments | anything})

_device = st.fixed_dictionaries(
    {"id": st.integers(0, 2) | anything},
    optional=dict.fromkeys(["name", "totalGlobalMem", "computeMajor", "computeMinor", "numSms"], anything),
)
_distributed = st.fixed_dictionaries({}, optional=dict.fromkeys(["rank", "world_size", "backend"], anything))
headers = st.fixed_dictionaries(
    {},
    optional={
        "schemaVersion": anything,
        "deviceProperties": st.lists(_device, max_size=3) | anything,
        "distributedInfo": _distributed | anything,
        "baseTimeNanoseconds": st.integers(0, 2**62) | anything,
        "displayTimeUnit": anything,
    },
)
