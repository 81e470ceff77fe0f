"""Whatever is in the file, the reader gives a Profile that keeps its promises, or one line that says why not."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import ReadError
from advisor.profile import Profile
from tests.strategies_kineto import LAUNCH, events, headers, kernel, op, read, text

SMALL = Path(__file__).parents[2].parent / "shared/traces/kineto/triton-one-kernel/rank0.pt.trace.json.gz"
PATIENT = settings(deadline=timedelta(seconds=2), max_examples=150)

MADE = text(*LAUNCH, op(60, 5, "résumé"), kernel(70, 5, 1), after={"deviceProperties": [{"id": 0, "name": "V100"}]})


def outcome(trace: bytes) -> Profile | None:
    """What was read, checked; None where it was refused as it should be."""
    try:
        profile = read(trace, "a/b.json")
    except ReadError as error:
        assert str(error).startswith("a/b.json: ")  # noqa: PT017 - either outcome is right
        assert "\n" not in str(error)
        return None
    assert_consistent(profile)
    return profile


def assert_consistent(profile: Profile) -> None:
    """Every reference leads somewhere, and no time runs backwards or off the scale."""
    host, device = profile.host_ops, profile.device_ops
    assert host.height or device.height
    assert host["id"].to_list() == list(range(host.height))
    assert device["id"].to_list() == list(range(device.height))
    for reference in (host["parent"], device["launch"], device["op"]):
        assert reference.drop_nulls().is_between(0, host.height - 1).all()
    for spans in (host, device, profile.syncs, profile.steps):
        assert (spans["dur_ns"] >= 0).all()
        assert (spans["start_ns"] + spans["dur_ns"] >= spans["start_ns"]).all()
    assert set(device["step"].drop_nulls()) <= set(profile.steps["step"])
    assert not profile.steps.select("device", "step").is_duplicated().any()
    assert profile.collectives["device_op"].is_between(0, device.height - 1).all()
    assert all("\n" not in note for note in profile.salvaged)


@PATIENT
@given(st.binary(max_size=300) | st.text('[]{}:,"\\ tracEvns0123456789-.eNaI\n', max_size=300).map(str.encode))
def test_any_bytes(data: bytes):
    outcome(data)
    outcome(b'{"traceEvents": [' + data)
    outcome(gzip.compress(MADE)[:30] + data)


@PATIENT
@given(st.lists(events, max_size=6), headers, headers)
def test_any_values_in_any_field(made: list[dict[str, Any]], before: dict[str, Any], after: dict[str, Any]):
    profile = outcome(json.dumps(before | {"traceEvents": [*LAUNCH, *made]} | after).encode())
    assert profile
    assert profile.host_ops.height >= 3
