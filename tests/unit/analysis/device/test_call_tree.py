from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analysis.device.timeline import MOST_FRAMES, call_tree
from advisor.model.intervals import nest
from tests.tables import Row, on_device, on_host, profile, step, view

ENGINE = "autograd::engine::evaluate_function: MmBackward0"


def nested(*rows: Row) -> list[Row]:
    """The rows with the ids of the ranges around them."""
    starts, ends = ([int(r["start_ns"]) for r in rows], [int(r["start_ns"] + r["dur_ns"]) for r in rows])
    around = nest([r["thread"] for r in rows], starts, ends).tolist()
    return [
        row | {"id": i, "parent": None if up < 0 else up} for i, (row, up) in enumerate(zip(rows, around, strict=True))
    ]


def launched(start: float, end: float, by: int | None, **columns: object) -> Row:
    return on_device("kernel", start, end, op=by, **columns)


def tree(*host: Row, ops: tuple[Row, ...] = (), steps: int = 1) -> dict[str, tuple[float, float]]:
    """Total and self microseconds per step, by the path of names."""
    device = 0 if ops else None
    windows = [step(i, 1000 * i, 1000 * (i + 1), device=device) for i in range(steps)]
    trace = profile(ops, nested(*host), windows, devices=[{"device": 0}] if ops else [])
    return paths(call_tree(view(trace)))


def paths(rows: pl.DataFrame) -> dict[str, tuple[float, float]]:
    path: dict[int, str] = {}
    times = {}
    for row in rows.to_dicts():
        above = "" if row["parent"] is None else path[row["parent"]] + "/"
        path[row["id"]] = f"{above}{row['name']}"
        times[path[row["id"]]] = (round(row["total_ms"] * 1e3, 6), round(row["self_ms"] * 1e3, 6))
    return times


def test_device_time_counts_at_the_op_that_launched_it_and_at_all_around_it():
    host = (
        on_host("module", 0, 100, name="nn.Module: Net_0"),
        on_host("module", 10, 50, name="nn.Module: Linear_0"),
        on_host("python", 11, 49, name="linear.py(1): forward"),  # is no frame
        on_host("op", 12, 48, name="aten::mm"),
        on_host("op", 60, 80, name="aten::add"),
    )
    ops = (launched(100, 130, 3), launched(130, 140, 4), launched(140, 145, 0))
    assert tree(*host, ops=ops) == {
        "Net_0": (45, 5),
        "Net_0/Linear_0": (30, 0),
        "Net_0/Linear_0/aten::mm": (30, 30),
        "Net_0/aten::add": (10, 10),
    }


def test_calls_of_one_path_are_one_frame_and_times_are_per_step():
    host = [on_host("op", 1000 * i + at, 1000 * i + at + 10, name="aten::mm") for i in range(2) for at in (0, 20)]
    ops = tuple(launched(1000 * (i // 2) + 50 + 20 * (i % 2), 1000 * (i // 2) + 60 + 20 * (i % 2), i) for i in range(4))
    assert tree(*host, ops=ops, steps=2) == {"aten::mm": (20, 20)}


def test_what_nothing_recorded_launched_has_no_name():
    assert tree(on_host("op", 0, 1, name="aten::mm"), ops=(launched(10, 30, None), launched(30, 35, 0))) == {
        "None": (20, 20),
        "aten::mm": (5, 5),
    }


def test_the_backward_pass_counts_in_the_module_of_its_forward_op():
    host = (
        on_host("annotation", 0, 50, name="forward"),  # not around the backward pass, so left out
        on_host("module", 1, 40, name="nn.Module: Linear_0"),
        on_host("op", 2, 30, name="aten::linear", sequence=7),
        on_host("op", 3, 20, name="aten::mm", sequence=7),
        on_host("op", 60, 90, name=ENGINE, thread=9, sequence=7),
        on_host("op", 61, 89, name="MmBackward0", thread=9, sequence=7),
        on_host("op", 62, 80, name="aten::mm", thread=9),
        on_host("annotation", 95, 99, name="Optimizer.step#SGD.step"),
        on_host("op", 96, 98, name="aten::add_"),
    )
    ops = (launched(100, 110, 3), launched(110, 130, 6), launched(130, 133, 8))
    assert tree(*host, ops=ops) == {
        "Linear_0": (30, 0),
        "Linear_0/aten::linear": (10, 0),
        "Linear_0/aten::linear/aten::mm": (10, 10),
        "Linear_0/MmBackward0": (20, 0),
        "Linear_0/MmBackward0/aten::mm": (20, 20),
        "Optimizer.step#SGD.step": (3, 0),
        "Optimizer.step#SGD.step/aten::add_": (3, 3),
    }


def test_an_op_that_is_computed_again_inside_its_backward_pass_is_not_around_that():
    host = (
        on_host("op", 0, 90, name=ENGINE, thread=9, sequence=7),
        on_host("module", 1, 40, name="nn.Module: Linear_0", thread=9),
        on_host("op", 2, 30, name="aten::mm", thread=9, sequence=7),
    )
    assert tree(*host, ops=(launched(50, 60, 2),)) == {
        "MmBackward0": (10, 0),
        "MmBackward0/Linear_0": (10, 0),
        "MmBackward0/Linear_0/aten::mm": (10, 10),
    }


def test_without_modules_annotations_and_ops_are_the_frames():
    host = (on_host("annotation", 0, 50, name="forward"), on_host("op", 10, 20, name="aten::mm"))
    assert tree(*host, ops=(launched(20, 30, 1),)) == {"forward": (10, 0), "forward/aten::mm": (10, 10)}


def test_names_with_scopes_make_a_tree_of_their_own():
    ops = tuple(
        launched(10 * i, 10 * i + 5, None, framework_op=name)
        for i, name in enumerate(["jit(f)/dense/dot", "jit(f)/dense/add", "jit(f)/dense/dot"])
    )
    assert tree(ops=ops) == {
        "jit(f)": (15, 0),
        "jit(f)/dense": (15, 0),
        "jit(f)/dense/dot": (10, 10),
        "jit(f)/dense/add": (5, 5),
    }


def test_without_a_device_the_host_counts():
    host = (
        on_host("op", 0, 50, name="aten::linear"),
        on_host("runtime", 5, 45),
        on_host("op", 10, 40, name="aten::mm"),
    )
    assert tree(*host) == {"aten::linear": (50, 20), "aten::linear/aten::mm": (30, 30)}


def test_no_work_is_an_empty_table():
    assert tree(on_host("step", 0, 50)) == {}


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=30))
def test_nothing_is_lost_and_no_frame_is_smaller_than_what_it_holds(spans: list[tuple[int, int, int]]):
    host = [on_host("op", start, start + length, name=f"op{name}") for start, length, name in spans]
    ops = tuple(launched(100 + 10 * i, 105 + 10 * i, i) for i in range(len(host)))
    windows = [step(0, 0, 1000)]
    rows = call_tree(view(profile(ops, nested(*host), windows)))
    assert rows["self_ms"].sum() == pytest.approx(5e-3 * len(host))
    inner = rows.group_by(id="parent").agg(inside=pl.sum("total_ms")).drop_nulls("id")
    both = rows.join(inner, on="id", how="left").with_columns(pl.col("inside").fill_null(0.0))
    assert both.filter((pl.col("inside") + pl.col("self_ms") - pl.col("total_ms")).abs() > 1e-9).is_empty()


def test_ranges_of_one_name_in_one_another_are_one_frame():
    host = [on_host("op", i, 1_000 - i, name="a") for i in range(20)] + [on_host("op", 100, 200, name="b")]
    again = on_host("op", 110, 190, name="a")
    assert tree(*host, again) == {"a": (1000, 900), "a/b": (100, 20), "a/b/a": (80, 80)}


def test_no_level_is_looked_at_that_is_too_deep_to_be_drawn(monkeypatch: pytest.MonkeyPatch):
    asked = 0
    unique = np.unique

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        return unique(*args, **options)

    monkeypatch.setattr(np, "unique", counted)
    depth = 3 * MOST_FRAMES
    rows = call_tree(view(profile([], nested(*(on_host("op", i, 9_999 - i, name="ab"[i % 2]) for i in range(depth))))))
    assert asked < 2 * MOST_FRAMES
    assert rows.height == MOST_FRAMES
    assert rows["total_ms"][0] == pytest.approx(9_999e-3)


def test_a_deep_scope_is_read_in_one_go():
    name = "/".join("ab" * 5_000)
    rows = paths(call_tree(view(profile([launched(0, 10, None, framework_op=name)], [], [step(0, 0, 10)]))))
    assert len(rows) == MOST_FRAMES
    assert set(rows.values()) == {(10, 0)}


def test_the_table_is_bounded_and_keeps_the_largest():
    host = [on_host("op", 2 * i, 2 * i + 1, name=f"op{i}") for i in range(2 * MOST_FRAMES)]
    ops = tuple(launched(0, 1 + i, i) for i in range(len(host)))
    rows = call_tree(view(profile(ops, nested(*host), [step(0, 0, 10_000)])))
    assert rows.height == MOST_FRAMES
    assert rows["name"][0] == f"op{2 * MOST_FRAMES - 1}"
