"""What torch-tb-profiler says of public recordings, where it is right; plain arithmetic over the raw JSON where not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from advisor.analysis.device.selection import select_steps
from advisor.analysis.device.view import DeviceView
from advisor.metrics.kernels import kernel_times
from advisor.metrics.steps import breakdown
from tests import profiles
from tests.peer_windows import windows_of_marks
from tests.tables import metrics_of

SHARED = Path(__file__).parents[2].parent / "shared"
pytestmark = pytest.mark.skipif(not (SHARED / "oracles").is_dir(), reason="../shared is not here")

WITHOUT_NCCL = ["resnet50-v100-workers0", "resnet50-v100-workers4", "ns-resolution"]
WITH_NCCL = ["nccl-metadata-a100", "ddp-a100-6steps", "memory-events-nccl"]
ROLES = {
    "Kernel": "compute",
    "Memcpy": "memcpy",
    "Memset": "memset",
    "Communication": "collective",
    "Runtime": "launch",
    "DataLoader": "input",
    "CpuOp": "host",
    "Other": "other",
}
POINT = 0.001  # a tenth of a percentage point

Event = dict[str, Any]
Spans = list[tuple[float, float]]


@cache
def view(trace: str) -> DeviceView:
    (only,) = select_steps(windows_of_marks(profiles.read(SHARED / "traces/kineto" / trace)), "all").views
    return only


@cache
def worker(trace: str) -> Mapping[str, Any]:
    return metrics_of(view(trace))


def step_rows(trace: str) -> dict[int, dict[str, Any]]:
    return {row["step"]: row for row in breakdown.step_table(view(trace)).to_dicts()}


@cache
def peer(trace: str) -> dict[str, Any]:
    text = (SHARED / "oracles/kineto" / f"{trace}.tb-plugin.json").read_text()
    return json.loads(text)  # type: ignore[no-any-return]


@cache
def document(trace: str) -> dict[str, Any]:
    (path,) = (SHARED / "traces/kineto" / trace).glob("*.json.gz")
    return json.loads(gzip.decompress(path.read_bytes()), strict=False)  # type: ignore[no-any-return]


def events(trace: str) -> list[Event]:
    return document(trace)["traceEvents"]  # type: ignore[no-any-return]


# ----------------------------------------------------------------------------------------- the peer


@pytest.mark.parametrize("trace", WITHOUT_NCCL)
@pytest.mark.parametrize("role", ROLES)
def test_every_category_is_the_peer_s(trace: str, role: str):
    raw = peer(trace)["raw"]
    *_, total = raw["avg_costs"]
    assert worker(trace)[f"{ROLES[role]}_share"] == pytest.approx(
        raw["avg_costs"][raw["roles"].index(role)] / total, abs=POINT
    )


@pytest.mark.parametrize("trace", WITHOUT_NCCL)
def test_every_category_of_every_step_is_the_peer_s(trace: str):
    raw = peer(trace)["raw"]
    rows = step_rows(trace)
    assert {str(number) for number in rows} == raw["steps"].keys()
    for number, costs in raw["steps"].items():
        expected = {f"{ROLES[role]}_share": us / costs[-1] for role, us in zip(raw["roles"][:-1], costs, strict=False)}
        assert {name: rows[int(number)][name] for name in expected} == pytest.approx(expected, abs=POINT)


@pytest.mark.parametrize("trace", [*WITHOUT_NCCL, *WITH_NCCL])
def test_steps_and_their_lengths_are_the_peer_s(trace: str):
    raw = peer(trace)["raw"]
    lengths = {str(number): row["step_ms"] for number, row in step_rows(trace).items()}
    assert lengths == pytest.approx({number: us[-1] / 1e3 for number, us in raw["steps"].items()}, rel=1e-5)
    assert worker(trace)["step_mean_ms"] == pytest.approx(raw["avg_costs"][-1] / 1e3, rel=1e-5)


@pytest.mark.parametrize("trace", [*WITHOUT_NCCL, *WITH_NCCL])
@pytest.mark.parametrize(("metric", "scale"), [("gpu_utilization", 1), ("sm_efficiency", 1), ("occupancy", 100)])
def test_utilisation_is_the_peer_s(trace: str, metric: str, scale: int):
    (expected,) = peer(trace)["raw"][metric].values()
    assert worker(trace)[metric] == pytest.approx(expected / scale, abs=POINT)


OF_KERNELS = {  # of the peer: a column, and what makes ours of it; both round to its last digit
    "Calls": ("calls", 1, 0),
    "Total Duration (us)": ("total_ms", 1e3, 1),
    "Mean Duration (us)": ("mean_us", 1, 1),
    "Max Duration (us)": ("max_us", 1, 1),
    "Min Duration (us)": ("min_us", 1, 1),
    "Mean Blocks Per SM": ("blocks_per_sm", 1, 0.01),
    "Mean Est. Achieved Occupancy (%)": ("occupancy", 100, 0.01),
}


@pytest.mark.parametrize("trace", [*WITHOUT_NCCL, *WITH_NCCL])
def test_the_table_of_kernels_is_the_peer_s_with_collectives_apart(trace: str):
    table = peer(trace)["kernel_table"]["data"]
    columns = [column["name"] for column in table["columns"]]
    rows = {row[0]: dict(zip(columns, row, strict=True)) for row in table["rows"] if "nccl" not in row[0]}
    ours = {row["name"]: row for row in kernel_times.kernel_table(view(trace)).to_dicts()}
    assert ours.keys() == rows.keys()
    for name, row in rows.items():
        for column, (metric, scale, digit) in OF_KERNELS.items():
            assert scale * ours[name][metric] == pytest.approx(row[column], abs=digit + 1e-9), (name, column)


# ------------------------------------------------------- where the peer is wrong: the raw events themselves


@pytest.mark.parametrize("trace", WITH_NCCL)
def test_exposed_communication_is_what_the_raw_events_say(trace: str):
    rows = step_rows(trace)
    number = sorted(rows)[1]
    start, end = window(trace, number)
    ours_us = rows[number]["collective_share"] * rows[number]["step_ms"] * 1e3
    assert rows[number]["step_ms"] * 1e3 == pytest.approx(end - start, rel=1e-6)

    device = [event for event in events(trace) if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
    rest = clipped((e for e in device if not e["name"].startswith("nccl")), start, end)
    exposed = covered(clipped(device, start, end)) - covered(rest)
    assert exposed > 0
    assert ours_us == pytest.approx(exposed, rel=1e-4)


def window(trace: str, number: int) -> tuple[float, float]:
    """From the later of the host's start and the previous step's end to the last end of host or kernel, in us."""
    marks = {
        int(e["name"].partition("#")[2]): (e["ts"], e["ts"] + e["dur"])
        for e in events(trace)
        if e["name"].startswith("ProfilerStep#") and e.get("cat") in {"user_annotation", "cpu_op"}
    }
    calls = {e["args"]["correlation"]: e for e in events(trace) if e.get("cat") == "cuda_runtime" and "args" in e}
    kernels = [e for e in events(trace) if e.get("cat") == "kernel" and e["args"]["correlation"] in calls]
    ends = {
        step: max(
            [close, *(k["ts"] + k["dur"] for k in kernels if inside(calls[k["args"]["correlation"]], start, close))]
        )
        for step, (start, close) in marks.items()
        if step in {number - 1, number}
    }
    return max(marks[number][0], ends[number - 1]), ends[number]


def inside(event: Event, start: float, end: float) -> bool:
    return start <= event["ts"] and event["ts"] + event["dur"] <= end  # type: ignore[no-any-return]


def clipped(ran: Iterable[Event], start: float, end: float) -> Spans:
    return [(max(start, e["ts"]), min(end, e["ts"] + e["dur"])) for e in ran]


def covered(spans: Spans) -> float:
    """Time that at least one span covers."""
    total, reach = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


def test_peak_memory_is_the_raw_events_largest_total():
    trace = "memory-events-nccl"
    held = [e["args"] for e in events(trace) if e["name"] == "[memory]" and e["args"]["Device Type"] == 1]
    (capacity,) = {device["totalGlobalMem"] for device in document(trace)["deviceProperties"]}
    peak, row = max(args["Total Allocated"] for args in held), worker(trace)
    assert row["peak_memory_bytes"] == peak
    assert row["peak_memory_share"] == pytest.approx(peak / capacity)
    assert row["reserved_memory_bytes"] == max(args["Total Reserved"] for args in held)
