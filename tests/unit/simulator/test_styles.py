"""Ways to record the same simulated job."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from tests import profiles, strategies_xplane
from tests.effort import every
from tests.strategies_nsys import RUNTIME

sys.path.append(str(Path(__file__).parents[3] / "fixtures" / "make"))

from simulator import FAULTS, STYLES, nsys, xplane
from simulator.styles import Document

LEAST_VISIBLE = 0.7
LARGE = {"narrower marks", "cut steps", "lost kernels", "work of an unrecorded step", "no annotations"}


@cache
def text() -> str:
    ((_, content),) = profiles.case("python-bound", "a100", 3, 10).files()
    return content.decode()


def document() -> Document:
    return json.loads(text())


def busy_us(document: Document) -> float:
    return sum(event["dur"] for event in document["traceEvents"] if event.get("cat") == "kernel")


def test_most_faults_can_be_seen_in_most_styles():
    cells = [style.removes.isdisjoint(fault.needs) for fault in FAULTS.values() for style in STYLES.values()]
    assert sum(cells) >= LEAST_VISIBLE * len(cells)


@pytest.mark.parametrize("name", every(3, STYLES))
def test_a_style_changes_the_recording_and_not_the_work(name: str):
    before = document()
    after = STYLES[name].change(document())
    assert after is not None
    assert (after == before) == (name == "as it comes")
    if name not in LARGE:
        assert busy_us(after) == pytest.approx(busy_us(before))


def test_an_export_of_nsight_has_the_same_work():
    tables = nsys.tables(document())
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert sum(row["end"] - row["start"] for row in kernels) / 1e3 == pytest.approx(busy_us(document()), rel=1e-6)
    called = {row["correlationId"] for row in tables[RUNTIME]}
    assert {row["correlationId"] for row in kernels} <= called
    assert [row["text"] for row in tables["NVTX_EVENTS"]] == [f"step {number}" for number in range(3, 13)]


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_an_xspace_has_the_same_work_and_steps(framework: str):
    profile = strategies_xplane.read(xplane.write(document(), framework))
    kernels = profile.device_ops.filter(pl.col("kind") == "kernel")
    assert kernels["dur_ns"].sum() / 1e3 == pytest.approx(busy_us(document()), rel=1e-6)
    assert kernels["launch"].null_count() == 0
    assert profile.steps["step"].unique().sort().to_list() == list(range(3, 13))
