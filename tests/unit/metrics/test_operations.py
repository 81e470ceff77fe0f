from __future__ import annotations

import math

import polars as pl
import pytest

from advisor.metrics.operations import MOST_ROWS, pooled

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
