"""Broken traces: what is made of each, written down by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import advisor
from advisor.errors import ReadError
from advisor.inputs.readers import kineto
from advisor.model.clause import Note
from advisor.model.profile import SCHEMAS, Profile

TRACES = Path(__file__).parents[2].parent / "shared/traces"
MALFORMED = TRACES / "malformed"
WHOLE = TRACES / "kineto/dlrm-8rank-v100/worker0_step_12.1694128201545.pt.trace.json.gz"

REPAIRED, CUT_OFF = Note("malformed"), Note("ends_early")
MAY_LACK = "file_cut"


class Salvaged(NamedTuple):
    """Rows of host_ops, device_ops and devices; the notes; why the steps, in order, are not whole."""

    host_ops: int
    device_ops: int
    devices: int
    notes: tuple[str, ...]
    incomplete: tuple[str | None, ...] = (None,)


# The whole of what most of these were made from has 2,198 host ops, 261 device ops, 8 devices and one step.
OUTCOMES = {
    "control-chars.pt.trace.json": Salvaged(2198, 261, 8, (REPAIRED,)),
    "empty.pt.trace.json": "empty file; record the profile again",
    "gzip-bad-crc.pt.trace.json.gz": Salvaged(
        *(32_647, 9_258, 4),
        notes=(Note("gzip_damaged"),),
        incomplete=(None,) * 6,
    ),
    "latin1-bytes.pt.trace.json": Salvaged(2198, 261, 8, (REPAIRED,)),
    "lfs-pointer.trace_training.json": r"a Git LFS pointer, .*; run `git lfs pull`",
    "missing-closing-bracket.pt.trace.json": Salvaged(2198, 261, 8, (CUT_OFF,)),
    "nan-inf-durations.pt.trace.json": Salvaged(2198, 258, 8, (REPAIRED, Note("untimed_events", events=3))),
    "negative-missing-null-events.pt.trace.json": Salvaged(
        *(2198, 258, 8),
        notes=(REPAIRED, Note("unreadable_events", events=3), Note("untimed_events", events=2)),
    ),
    "no-events.pt.trace.json": "its list of trace events is empty; record the profile again",
    "trailing-comma.pt.trace.json": Salvaged(2198, 261, 8, (REPAIRED,)),
    "truncated-60pct.pt.trace.json.gz": Salvaged(23_958, 2_501, 4, (Note("gzip_cut_off"),), (MAY_LACK,) * 6),
    "truncated-mid-event.pt.trace.json": Salvaged(1729, 18, 8, (CUT_OFF,), (MAY_LACK,)),
}

pytestmark = pytest.mark.skipif(not MALFORMED.is_dir(), reason=f"{MALFORMED} is not there")


def read(path: Path) -> Profile:
    with path.open("rb") as stream:
        return kineto.read(stream, str(path))


@pytest.mark.parametrize("name", OUTCOMES)
def test_each_ends_as_it_should(name: str):
    expected = OUTCOMES[name]
    path = MALFORMED / name
    if isinstance(expected, str):
        with pytest.raises(ReadError) as refused:
            read(path)
        assert re.fullmatch(re.escape(f"{path}: ") + expected, str(refused.value))
        return
    profile = read(path)
    found = Salvaged(
        profile.host_ops.height,
        profile.device_ops.height,
        profile.devices.height,
        tuple(profile.salvaged),
        tuple(profile.steps["incomplete"]),
    )
    assert found == expected


def test_none_of_them_is_forgotten():
    assert {path.name for path in MALFORMED.iterdir() if ".json" in path.name} == set(OUTCOMES)


@pytest.mark.parametrize("name", ["control-chars", "missing-closing-bracket", "trailing-comma"])
def test_what_is_repaired_is_what_it_was_before(name: str):
    repaired, whole = read(MALFORMED / f"{name}.pt.trace.json"), read(WHOLE)
    assert whole.salvaged == ()
    renamed = whole.workers.with_columns(repaired.workers["name"], repaired.workers["file"])
    named = repaired.devices.with_columns(pl.col("name").str.strip_chars())  # a control character became a space
    others = set(SCHEMAS) - {"workers", "devices"}
    same = {table: getattr(repaired, table).equals(getattr(whole, table)) for table in others}
    assert same == dict.fromkeys(others, True)
    assert repaired.workers.equals(renamed)
    assert named.equals(whole.devices)


def test_what_was_negative_or_missing_is_absent_and_the_rest_is_as_before():
    kept, whole = read(MALFORMED / "negative-missing-null-events.pt.trace.json"), read(WHOLE)
    told = ("name", "start_ns", "dur_ns", "stream")
    lost = whole.device_ops.select(told).join(kept.device_ops.select(told), on=told, how="anti")
    assert lost.height == 3
    assert kept.device_ops.filter(pl.col("dur_ns") < 0).height == 0
    assert kept.steps.equals(whole.steps)


@pytest.mark.parametrize("name", ["truncated-60pct.pt.trace.json.gz", "truncated-mid-event.pt.trace.json"])
def test_a_file_that_is_cut_off_is_named_as_such_and_fails(name: str):
    report = advisor.check([str(MALFORMED / name)])
    (run,) = report.runs
    (finding,) = run.findings
    assert "the file is cut off, and no step is complete" in run.verdict
    assert finding.fixes[0].do.startswith("Copy the file again")
    assert len(finding.fixes) == 1
    reasons = {why.code for rule in run.not_evaluable for why in rule.missing.values() if rule.rule == "amp-unused"}
    assert reasons == {"no_step_used"}
    assert report.exit_code("never") == 3
