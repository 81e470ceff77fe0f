from __future__ import annotations

import csv
import io

import pytest

from advisor.render.csv import kernels, ranks
from tests.render_samples import RESNET, changed, report


def fields(text: str) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(text))]


def test_each_row_of_each_run_is_a_line_and_what_is_not_known_is_empty():
    group = {"name": "gemm<1, 2>", "op": "aten::mm", "calls": 3, "total_ms": 0.5, "occupancy": None, "own": 1}
    run = changed(RESNET, metrics={"kernel_group": (group,)})
    first, second = fields(kernels(report(run, changed(run, name="other"))))
    assert first["name"] == "gemm<1, 2>"
    assert (first["calls"], first["total_ms"], first["occupancy"], first["tflops"]) == ("3", "0.5", "", "")
    assert (first["run"], second["run"]) == (RESNET.name, "other")
    assert "own" not in first


def test_a_name_neither_acts_nor_is_computed():
    group = {"name": "=HYPERLINK(1)\x1b[2J\nnext"}
    (row,) = fields(kernels(report(changed(RESNET, metrics={"kernel_group": (group,)}))))
    assert row["name"].startswith("'=HYPERLINK(1)")
    assert not {"\x1b", "\n"} & set(row["name"])


@pytest.mark.parametrize(
    ("name", "field"),
    [("x;=1+1", "x;'=1+1"), ("\uff1d1+1", "'\uff1d1+1"), (" @f", "'@f"), ("f<4, -1>", "f<4, -1>"), ("a;b", "a;b")],
)
def test_what_some_spreadsheets_take_for_a_formula_is_text(name: str, field: str):
    (row,) = fields(kernels(report(changed(RESNET, metrics={"kernel_group": ({"name": name},)}))))
    assert row["name"] == field


def test_a_rank_is_a_line_with_the_parts_of_its_step():
    device = {"worker": 0, "device": 3, "steps": 4, "step_mean_ms": 20.0, "own_step_ms": 15.0, "wait_ms": 5.0}
    parts = [
        {"worker": 0, "device": 3, "part": part, "share": share} for part, share in (("compute", 0.7), ("sync", 0.3))
    ]
    pace = {"rank": 0, "name": "rank 0", "node": "2", "step": 1, "step_ms": 20.0}
    run = changed(RESNET, metrics={"device": (device,), "accounting": tuple(parts), "pace": (pace,)})
    (row,) = csv.DictReader(io.StringIO(ranks(report(run))))
    assert (row["node"], row["own_step_ms"], row["device_busy_share"]) == ("2", "15.0", "")
    assert (float(row["compute_ms"]), float(row["sync_ms"]), float(row["input_ms"])) == (14, 6, 0)
