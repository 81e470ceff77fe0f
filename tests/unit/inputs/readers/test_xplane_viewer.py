"""The trace viewer's copy of a profile, read where the profile itself is gone."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import ReadError
from advisor.inputs.readers import xplane
from advisor.model.clause import Note
from advisor.model.profile import Profile
from tests.effort import examples
from tests.hostile import flipped, outcome, places

RECORDED = Path(__file__).parents[4].parent / "shared/traces/xplane/jax-cpu/plugins/profile/2026_11_20_10_20_19"
NAME = "a/host7.trace.json.gz"
HOST, GPU, PYTHON, STREAM, STEPS = 701, 1, 11, 134, 0xDEADBEEF


def copy(*events: dict[str, Any]) -> bytes:
    return json.dumps({"metadata": {"highres-ticks": True}, "traceEvents": [*events, {}]}).encode()


def read(data: bytes) -> Profile:
    return xplane.read(io.BytesIO(data), NAME)


def named(pid: int, name: str, tid: int | None = None) -> dict[str, Any]:
    about = {"name": "process_name"} if tid is None else {"name": "thread_name", "tid": tid}
    return {"ph": "M", "pid": pid, **about, "args": {"name": name}}


def event(name: object, start: object, dur: object, /, pid: int = HOST, tid: int = PYTHON, **args: object) -> Any:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": start, "dur": dur, "name": name, "args": args}


PLACES = (
    *(named(HOST, "/host:CPU"), named(HOST, "python", PYTHON), named(HOST, "tf_Compute/5", 12)),
    *(named(GPU, "/device:GPU:0"), named(GPU, "Stream #134(Compute)", STREAM), named(GPU, "Steps", STEPS)),
)
STEP = (
    *PLACES,
    event("train", 10, 100, step_num="3", group_id="0", _r="1"),
    event("MatMul", 20, 10, long_name="dense/MatMul:MatMul", is_eager="0", group_id="0", shape="(half[4,8])"),
    event("cuLaunchKernel", 25, 2, correlation_id="9", group_id="0", kernel_details="grid:2,1,1 block:32,1,1 regs:7"),
    event(
        "sgemm", 60.5, 30.25, GPU, STREAM, correlation_id="9", group_id="0", kernel_details="grid:2,1,1 block:32,1,1"
    ),
    event("3", 60.5, 30.25, GPU, STEPS, group_id="0", step_name="3"),
)


def test_what_a_copy_tells_is_told_as_the_profile_tells_it():
    profile = read(copy(*STEP))
    assert profile.host_ops.select(pl.col("name", "kind").cast(pl.String), "start_ns", "dur_ns", "step").rows() == [
        ("train", "step", 10_000, 100_000, 3),
        ("dense/MatMul:MatMul", "op", 20_000, 10_000, 3),
        ("cuLaunchKernel", "runtime", 25_000, 2_000, 3),
    ]
    (kernel,) = profile.device_ops.to_dicts()
    told = {key: kernel[key] for key in ("name", "kind", "start_ns", "dur_ns", "stream", "grid", "block", "step")}
    assert told == {
        "name": "sgemm",
        "kind": "kernel",
        "start_ns": 60_500,
        "dur_ns": 30_250,
        "stream": STREAM,
        "grid": 2,
        "block": 32,
        "step": 3,
    }
    assert (kernel["launch"], kernel["op"]) == (2, 1)
    assert profile.host_ops["dtypes"].cast(pl.String)[1] == '["c10::Half"]'
    assert profile.steps.select("device", "step").rows() == [(0, 3)]


def test_what_a_copy_lacks_is_said():
    profile = read(copy(*STEP))
    assert profile.salvaged[0] == Note("viewers_copy")
    assert "give the *.xplane.pb" in profile.lacks["allocations"].words
    assert "give the *.xplane.pb" in profile.lacks["devices"].words
    assert profile.workers["name"].to_list() == ["host7"]


def test_work_on_other_threads_is_the_step_s_that_handed_it_over_or_else_that_of_its_time():
    """A flow's low bits are its direction; 40 is handed over in the first step and done in the second."""
    steps = [event("train", 10, 50, step_num="0"), event("train", 60, 50, step_num="1")]
    done = event("Run", 70, 10, tid=12, flow=str(40 << 2 | 1))
    given_over = read(copy(*PLACES, *steps, event("Dispatch", 20, 5, flow=str(40 << 2 | 2)), done))
    untold = read(copy(*PLACES, *steps, event("Dispatch", 20, 5), event("Run", 70, 10, tid=12)))
    for profile, step in ((given_over, 0), (untold, 1)):
        ran = profile.host_ops.filter(pl.col("name").cast(pl.String) == "Run")
        assert ran["step"].to_list() == [step]


@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"{RECORDED} is not there")
def test_a_recorded_copy_tells_what_its_profile_tells():
    (path,) = RECORDED.glob("*.xplane.pb")
    with path.open("rb") as stream:
        whole = xplane.read(stream, str(path))
    copied = read((RECORDED / "vm.trace.json.gz").read_bytes())
    assert copied.workers["framework"].to_list() == ["jax"]
    base = whole.host_ops["start_ns"].min() - copied.host_ops["start_ns"].min()
    columns = ("name", "kind", "start_ns", "dur_ns", "thread")

    def ranges(profile: Profile, since: int) -> list[Any]:
        told = profile.host_ops.with_columns(pl.col("start_ns") - since, pl.col("name", "kind").cast(pl.String))
        return sorted(told.select(columns[:4]).rows())

    assert ranges(copied, 0) == ranges(whole, base)
    shift = pl.col("start_ns", "host_start_ns") - base
    assert copied.steps.drop("name").equals(whole.steps.with_columns(shift).drop("name"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (copy(*STEP)[:-200], "cut off, and with it whole threads, which would pass for idle; copy it again"),
        (gzip.compress(copy(*STEP))[:-60], "cut off, .*; copy it again"),
        (copy(), "no host or device activity in it; record it around some steps"),
        (copy(*PLACES), "no host or device activity in it; .*"),
        (b'{"metadata":{"highres-ticks":true},"traceEvents":[]}', "its list of trace events is empty; .*"),
        (b"<html>", r"not a trace viewer's copy of a profile \(no JSON\); give the \*\.xplane\.pb"),
        (b"", "empty file; record the profile again"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(data: bytes, why: str):
    with pytest.raises(ReadError) as refused:
        read(data)
    assert re.fullmatch(re.escape(f"{NAME}: ") + why, str(refused.value))


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
keys = st.sampled_from(["group_id", "step_num", "correlation_id", "flow", "kernel_details", "long_name", "id", "_p"])
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.none()


@examples(0.8)
@given(st.lists(st.tuples(anything, numbers, numbers, st.dictionaries(keys, anything, max_size=3)), max_size=5))
def test_any_values_in_any_field(made: list[tuple[Any, Any, Any, dict[str, Any]]]):
    profile = read(copy(*STEP, *(event(name, start, dur, **args) for name, start, dur, args in made)))
    assert profile.host_ops.height >= 3
    assert (profile.host_ops["dur_ns"] >= 0).all()
    assert profile.device_ops.height == 1


@examples(0.4)
@given(places, st.floats(0, 1))
def test_a_copy_with_bytes_changed_and_its_end_cut_off(changes: list[tuple[float, int]], kept: float):
    for whole in (copy(*STEP), gzip.compress(copy(*STEP))):
        changed = flipped(whole, changes)
        for data in (changed, changed[: int(kept * len(changed))]):
            outcome(lambda made, _: read(made), data, NAME)
