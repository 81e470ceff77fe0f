"""Hypothesis strategies for intervals and for tiny profiles; times are whole microseconds, so that many coincide."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from advisor.model.profile import DEVICE_OP_KINDS, HOST_OP_KINDS, Profile
from tests.tables import US, V100, Row, on_device, on_host, profile, step

Pairs = list[tuple[int, int]]

LAST_US = 120
DEVICES = (0, 1)
KERNELS = ("kernel", "volta_sgemm_128x64_nn", "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", "softmax_warp_forward")

moments = st.integers(0, LAST_US)


def intervals(max_size: int = 12) -> st.SearchStrategy[Pairs]:
    """(start, end) pairs in any order, some without length, many overlapping or touching."""
    one = st.tuples(st.integers(0, 40), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1]))
    return st.lists(one, max_size=max_size)


@st.composite
def device_ops(draw: st.DrawFn) -> Row:
    start = draw(moments)
    launched = draw(st.none() | st.integers(start - 30, start))
    made = on_device(
        draw(st.sampled_from(DEVICE_OP_KINDS.categories.to_list())), start, start + draw(st.integers(0, 30)), launched
    )
    return made | {
        "device": draw(st.sampled_from(DEVICES)),
        "name": draw(st.sampled_from(KERNELS)),
        "stream": draw(st.sampled_from([7, 8, 9])),
        "source_memory": draw(st.sampled_from([None, "pageable", "pinned"])),
        "bytes": draw(st.none() | st.integers(0, 10**6)),
        "occupancy": draw(st.none() | st.floats(0, 1)),
        "blocks_per_sm": draw(st.none() | st.floats(0, 10)),
    }


@st.composite
def host_ops(draw: st.DrawFn) -> Row:
    start = draw(moments)
    kind = draw(st.sampled_from(HOST_OP_KINDS.categories.to_list()))
    return on_host(kind, start, start + draw(st.integers(0, 40)), thread=draw(st.sampled_from([1, 2])))


@st.composite
def steps(draw: st.DrawFn) -> list[Row]:
    """Steps of each device, ascending and disjoint; they need not touch, nor coincide between devices."""
    return [one for device in DEVICES for one in draw(_steps_of(device))]


@st.composite
def _steps_of(draw: st.DrawFn, device: int) -> list[Row]:
    cuts = sorted(draw(st.lists(moments, min_size=2, max_size=8, unique=True)))
    windows = [pair for pair in pairwise(cuts) if draw(st.booleans())] or [(cuts[0], cuts[-1])]
    return [
        step(i, start, end, device=device, incomplete=draw(st.sampled_from([None, None, None, "cut"])))
        for i, (start, end) in enumerate(windows)
    ]


@st.composite
def allocations(draw: st.DrawFn) -> Row:
    reserved = draw(st.integers(0, V100["memory_bytes"]))
    held = {"allocated_bytes": draw(st.integers(0, reserved)), "reserved_bytes": reserved, "bytes": 1}
    return {"worker": 0, "device": draw(st.sampled_from(DEVICES)), "at_ns": draw(moments) * US} | held


def _rows(of: st.SearchStrategy[Row], time: str, *, ties: bool) -> st.SearchStrategy[list[Row]]:
    return st.lists(of, max_size=10, unique_by=None if ties else lambda row: row[time])  # type: ignore[no-any-return]


@st.composite
def profiles(draw: st.DrawFn, *, ties: bool = True) -> Profile:
    """One worker, two devices, with steps or without; `ties`: rows of a table may begin at the same time."""
    return profile(
        draw(_rows(device_ops(), "start_ns", ties=ties)),
        draw(_rows(host_ops(), "start_ns", ties=ties)) or [on_host("op", 0, 1)],
        draw(st.just([]) | steps()),
        devices=[V100 | {"device": device} for device in DEVICES],
        allocations=draw(_rows(allocations(), "at_ns", ties=ties)),
    )
