from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeAlias

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from advisor.analysis.device.idle import CAUSES, gaps, idle_for
from advisor.analysis.device.selection import select_steps
from advisor.analysis.device.view import DeviceView
from advisor.metrics import METRICS, measure
from advisor.metrics.steps import breakdown
from advisor.model.intervals import Intervals, nest
from advisor.model.profile import SCHEMAS, Profile
from advisor.vocabulary.kinds import CATEGORIES
from advisor.vocabulary.parts import PARTS
from tests.effort import examples
from tests.strategies import Pairs, intervals, profiles
from tests.tables import values_of

some = examples(0.15)
few = examples(0.08)

Row: TypeAlias = dict[str, object]


# ----------------------------------------------------------------------------------- the interval laws


def union(pairs: Pairs) -> Intervals:
    return Intervals.of([start for start, _ in pairs], [end for _, end in pairs])


def instants(made: Intervals | Pairs) -> set[int]:
    pairs = zip(made.starts, made.ends, strict=True) if isinstance(made, Intervals) else made
    return {t for start, end in pairs for t in range(start, end)}


@given(intervals(), intervals())
def test_unions_are_sets_of_instants(first: Pairs, second: Pairs):
    one, other = union(first), union(second)
    assert instants(one) == instants(first)
    assert instants(one | other) == instants(first) | instants(second)
    assert instants(one & other) == instants(first) & instants(second)
    assert one.total == len(instants(first))
    for made in (one, one | other, one & other):
        assert (made.starts < made.ends).all()
        assert (made.ends[:-1] < made.starts[1:]).all()  # disjoint, and those that touch are one


@given(intervals(), st.integers(-5, 60), st.integers(0, 30))
def test_gaps_and_the_union_share_out_a_window(pairs: Pairs, start: int, length: int):
    made, end = union(pairs), start + length
    opens, closes, _ = made.gaps(np.array([start]), np.array([end]))
    idle_instants = instants(list(zip(opens.tolist(), closes.tolist(), strict=True)))
    assert idle_instants == set(range(start, end)) - instants(made)
    assert made.within([start], [end]).tolist() == [length - len(idle_instants)]
    assert (closes[:-1] < opens[1:]).all()


@pytest.mark.parametrize("usual_depth", [0, 64], ids=["searched", "walked"])
@given(pairs=intervals(max_size=20), data=st.data())
def test_a_parent_is_the_last_of_those_before_that_is_open_for_half_of_it(
    usual_depth: int, pairs: Pairs, data: st.DataObject
):
    views = data.draw(st.lists(st.sampled_from([1, 2]), min_size=len(pairs), max_size=len(pairs)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("advisor.model.intervals._USUAL_DEPTH", usual_depth)
        found = nest(views, [start for start, _ in pairs], [end for _, end in pairs])
    order = sorted(range(len(pairs)), key=lambda i: (pairs[i][0], -pairs[i][1], i))
    for place, i in enumerate(order):
        before = [j for j in order[:place] if views[j] == views[i]]
        middle = (pairs[i][0] + max(pairs[i][1], pairs[i][0] + 1)) // 2
        is_open = [j for j in before if max(pairs[j][1], pairs[j][0] + 1) > middle]
        assert found[i] == (is_open[-1] if is_open else -1)


# ------------------------------------------------------------------------------------ what adds up


@some
@given(profiles())
def test_categories_sum_to_the_steps_to_the_nanosecond(made: Profile):
    for view in select_steps(made, "all").views:
        shares = [METRICS[f"{category}_share"].value(view) for category in CATEGORIES]
        if view.total_ns:
            assert sum(nanoseconds(share, view.total_ns) for share in shares) == view.total_ns
        for row in breakdown.step_table(view).to_dicts():
            length = round(row["step_ms"] * 1e6)
            parts = [nanoseconds(row[f"{category}_share"], length) for category in CATEGORIES]
            assert sum(parts) == length


def nanoseconds(share: object, of: int) -> int:
    """A share as the whole number of nanoseconds that it must be."""
    assert isinstance(share, float)
    assert 0 <= share <= 1
    assert share * of == pytest.approx(round(share * of), abs=1e-6)
    return round(share * of)


@some
@given(profiles())
def test_causes_sum_to_the_idle_time_to_the_nanosecond(made: Profile):
    for view in select_steps(made, "all").views:
        frame = gaps(view)
        length = (frame["end_ns"] - frame["start_ns"]).to_numpy()
        assert (length > 0).all()
        assert (frame.select(f"{cause}_ns" for cause in CAUSES).to_numpy() >= 0).all()
        assert (
            frame.select(pl.sum_horizontal(f"{cause}_ns" for cause in CAUSES)).to_series().to_list() == length.tolist()
        )
        assert all(idle_for(view, cause).total == frame[f"{cause}_ns"].sum() for cause in CAUSES)
        busy = view.busy.within(view.starts, view.ends)
        assert length.sum() == view.total_ns - busy.sum()
        assert not view.busy.within(frame["start_ns"], frame["end_ns"]).any()
        if view.total_ns and view.device is not None:
            assert METRICS["idle_share"].value(view) == pytest.approx(length.sum() / view.total_ns)


@some
@given(profiles())
def test_the_accounting_adds_up_to_the_steps_to_the_nanosecond(made: Profile):
    for view in select_steps(made, "all").views:
        parts = breakdown.accounting(view)
        assert parts["time_ns"].sum() == view.total_ns
        assert (parts["time_ns"] > 0).all()
        assert set(parts["part"]) <= PARTS.keys()


# ----------------------------------------------------------------------- what is known, and what is not


# Shares that add up the durations of kernels that overlap: tests/unit/metrics/test_registry.py expects them to fail.
@settings(few, phases=[Phase.reuse, Phase.generate])  # shrinking would take minutes
@given(profiles(), st.sampled_from(["all", "steady"]))
def test_a_metric_is_a_number_in_its_range_or_null_with_a_reason(made: Profile, choice: str):
    found = measure(select_steps(made, choice))
    for row in [*found.frames["device"].to_dicts(), *found.frames["run"].to_dicts()]:
        for name in METRICS.keys() & row.keys():
            value, metric = row[name], METRICS[name]
            if value is None:
                assert found.reasons[name]
            elif metric.unit == "names":
                amounts = [of[amount] for of in value for amount in ("count", "bytes", "ms", "share")]
                assert all(of["name"] for of in value), name
                assert all(of is None or (math.isfinite(of) and of >= 0) for of in amounts), name
            elif metric.unit != "text":
                assert math.isfinite(value)
                if name not in {"replay_error", "own_step_excess_ms"}:  # differences, of either sign
                    assert value >= 0, name
                    # uneven steps may add more than a whole even one
                    assert value <= 1 or metric.unit != "share" or name == "outliers_share", name
    for frame in found.frames.values():
        assert not any(frame[name].is_nan().any() for name, dtype in frame.schema.items() if dtype.is_float())


# --------------------------------------------------------------------------- what must change nothing
# Of whole recordings, tests/metamorphic/ says the same.


def values(made: Profile) -> list[Row]:
    """Every metric of each view that rests on the tables' times alone."""
    return [everything(view) for view in select_steps(made, "all").views]


OF_TIMES = (
    *(f"{category}_share" for category in CATEGORIES),
    *(f"{cause}_idle_share" for cause in CAUSES),
    *("device_busy_share", "idle_share", "launch_gap_share", "launch_gaps_per_step"),
    *("host_busy_share", "graph_hole_share", "graph_pause_share", "idle_causes"),
    *("kernels_per_step", "median_kernel_us", "small_kernel_share"),
    *("gpu_utilization", "sm_efficiency", "occupancy"),
    *("peak_memory_bytes", "peak_memory_share"),
    *("reserved_memory_bytes", "fragmentation"),
    *("steps", "steps_cut", "step_ms", "step_mean_ms", "complete_step_mean_ms", "step_cv"),
    *("syncs_per_step", "sync_calls"),
    *("pageable_copy_share", "pageable_copy_bytes_per_step", "pageable_copy_exposed_ms"),
    *("pageable_to_host_part", "memcpy_ms"),
)


def everything(view: DeviceView) -> Row:
    return values_of(OF_TIMES, view)


def same(found: list[Row], expected: list[Row]) -> None:
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert {name: row[name] for name in other} == {
            name: pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
            for name, value in other.items()
        }


def edited(made: Profile, edit: Callable[[pl.DataFrame], pl.DataFrame], *names: str) -> Profile:
    return replace(made, **{name: edit(getattr(made, name)) for name in names})


@pytest.mark.soak
@few
@given(profiles(), st.sampled_from([-(10**9), -1, 1_767_225_600_000_000_000]))
def test_when_it_was_recorded_changes_nothing(made: Profile, shift: int):
    def later(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(pl.col(r"^(?:host_)?start_ns|at_ns$") + shift)

    same(values(edited(made, later, "device_ops", "host_ops", "steps", "allocations")), values(made))


@pytest.mark.soak
@few
@given(profiles())
def test_the_names_of_streams_change_nothing(made: Profile):
    renamed = edited(made, lambda rows: rows.with_columns(stream=1_000 - pl.col("stream")), "device_ops")
    same(values(renamed), values(made))


@pytest.mark.soak
@few
@given(profiles(ties=False), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(made: Profile, random: np.random.Generator):
    same(values(permuted(made, random)), values(made))


def permuted(made: Profile, random: np.random.Generator) -> Profile:
    """The same rows in another order. Ids are row numbers, so they change, and with them what refers to them."""

    def order(height: int) -> list[int]:
        rows = list(range(height))
        random.shuffle(rows)
        return rows

    tables = {field.name: getattr(made, field.name) for field in fields(made) if field.name in SCHEMAS}
    shuffled = {name: rows[order(rows.height)] for name, rows in tables.items()}
    new_id = {old: new for new, old in enumerate(shuffled["host_ops"]["id"])}
    links = {"host_ops": ["parent"], "device_ops": ["launch", "op"]}
    for name, columns in links.items():
        rows = shuffled[name]
        moved = [pl.col(column).replace_strict(new_id, default=None, return_dtype=pl.Int64) for column in columns]
        shuffled[name] = rows.with_columns(moved).with_columns(id=pl.int_range(rows.height, dtype=pl.Int64))
    return replace(made, **shuffled)


@pytest.mark.soak
@few
@given(profiles())
def test_a_kernel_in_two_touching_halves_changes_no_share(made: Profile):
    counts = ["kernels_per_step", "median_kernel_us", "small_kernel_share"]
    whole, halved = (
        [{k: v for k, v in row.items() if k not in counts} for row in values(p)] for p in (made, halves(made))
    )
    same(halved, whole)


def halves(made: Profile) -> Profile:
    """Every kernel in two, the second half launched by the same call."""
    half, is_long = pl.col("dur_ns") // 2, (pl.col("kind") == "kernel") & (pl.col("dur_ns") > 1)
    rows = made.device_ops
    first = rows.with_columns(dur_ns=pl.when(is_long).then(half).otherwise("dur_ns"))
    second = rows.filter(is_long).with_columns(start_ns=pl.col("start_ns") + half, dur_ns=pl.col("dur_ns") - half)
    split = pl.concat([first, second]).with_columns(id=pl.int_range(pl.len(), dtype=pl.Int64))
    return replace(made, device_ops=split)
