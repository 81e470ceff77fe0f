from __future__ import annotations

import math

import polars as pl
import pytest

from advisor.metrics.steps.operations import MOST_ROWS, op_table, pooled
from tests.tables import kernel, on_host, profile, step, view

ROWS = {
    "worker": pl.Int32,
    "device": pl.Int32,
    "name": pl.String,
    "calls": pl.Int64,
    "mean_us": pl.Float64,
    "sd_us": pl.Float64,
}


def table(*rows: tuple[object, ...]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=ROWS, orient="row")


def test_two_devices_pool_to_what_all_calls_together_have():
    # 1, 3 on the one device and 5, 7, 9 on the other: mean 5, squares 16 + 4 + 0 + 4 + 16 = 40 over 4
    found = pooled(table((0, 0, "k", 2, 2.0, math.sqrt(2)), (0, 1, "k", 3, 7.0, 2.0)), steps=4)
    assert found.to_dicts() == [
        {
            "name": "k",
            "calls": 5,
            "calls_per_step": 1.25,
            "ms_per_step": pytest.approx(0.00625),
            "mean_us": pytest.approx(5.0),
            "sd_us": pytest.approx(math.sqrt(10)),
        }
    ]


def test_one_call_has_no_spread():
    assert pooled(table((0, 0, "k", 1, 2.0, None)), steps=1)["sd_us"].to_list() == [None]


def test_what_takes_least_is_left_out():
    found = pooled(table(*((0, 0, f"k{n}", 1, float(n), None) for n in range(MOST_ROWS + 5))), steps=1)
    assert found.height == MOST_ROWS
    assert found["name"][0] == f"k{MOST_ROWS + 4}"
    assert "k4" not in found["name"].to_list()


def op(name: str, start: float, end: float, **columns: object) -> dict[str, object]:
    return on_host("op", start, end, name=name, **columns)


def test_an_op_has_its_own_time_and_that_of_the_ops_within_it():
    # linear from us 10 to 50 with addmm from 20 to 40 in it; a second linear of 8 us without any
    host = [
        op("linear", 10, 50, shapes="[[2, 3]]"),
        op("addmm", 20, 40, parent=0),
        op("linear", 60, 68, shapes="[[2, 3]]"),
    ]
    device = [kernel(70, 75, 30, op=1), kernel(75, 77, 64, op=2)]  # launched in addmm, and in the second linear
    rows = {row["name"]: row for row in op_table(view(profile(device, host, [step(1, 0, 100)]))).to_dicts()}
    linear = rows["linear"]
    assert (linear["shapes"], linear["calls"], linear["device_calls"]) == ("[[2,3]]", 2, 1)
    told = [linear[name] for name in ("total_ms", "self_ms", "mean_us", "device_ms")]
    assert told == pytest.approx([0.048, 0.028, 14, 0.002])
    assert rows["addmm"]["device_ms"] == pytest.approx(0.005)


def test_ops_of_other_types_are_other_ops():
    host = [
        op("mm", 10, 20, shapes="[[2,2],[2,2]]", dtypes='["float", "float"]'),
        op("mm", 30, 50, shapes="[[2,2],[2,2]]", dtypes='["double","double"]'),
        op("add", 60, 65, shapes="[[2],[2],[]]", dtypes='["float","long int","Scalar"]'),
        op("cat", 70, 75, shapes="[[[2],[2]],[]]", dtypes='["TensorList","Scalar"]'),
    ]
    rows = op_table(view(profile((), host, [step(1, 0, 100)], devices=())))
    assert rows.select("name", "types", "self_ms").rows() == [
        ("add", "fp32, long int", 0.005),
        ("cat", None, 0.005),
        ("mm", "fp32", 0.01),
        ("mm", "fp64", 0.02),
    ]


def test_what_runs_for_an_op_that_the_host_did_not_record_has_a_row_by_its_name():
    """XLA launches a whole program at once: the kernels bear the ops' names."""
    host = [op("XlaRun", 10, 50)]
    device = [
        kernel(60, 65, 30, op=0, framework_op="jit(f)/dot"),
        kernel(65, 66, framework_op="jit(f)/dot"),
        kernel(66, 67),
    ]
    made = profile(device, host, [step(1, 0, 100)])
    rows = {row["name"]: row for row in pooled(op_table(view(made)), steps=1).to_dicts()}
    assert rows.keys() == {"XlaRun", "jit(f)/dot"}
    of_program = rows["jit(f)/dot"]
    assert (of_program["calls"], of_program["mean_us"]) == (0, None)
    assert (of_program["device_calls_per_step"], of_program["device_ms_per_step"]) == (2, pytest.approx(0.006))
    assert rows["XlaRun"]["device_calls_per_step"] == 0
