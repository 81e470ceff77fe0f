"""Of any steps: what a change saves lies between nothing and the step, whatever the change."""

from __future__ import annotations

from itertools import permutations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analysis.device.selection import select_steps
from advisor.analysis.device.view import DeviceView, spans
from advisor.model.intervals import Intervals
from advisor.model.profile import Profile
from advisor.whatif.change import (
    Change,
    cheaper_launches,
    faster,
    loss,
    merged,
    overlapped,
    saved,
    without,
    without_waits,
    without_work,
)
from tests.effort import examples
from tests.strategies import profiles

some = examples(0.15)
part = st.floats(0, 1)


def views(profile: Profile) -> list[DeviceView]:
    return [view for view in select_steps(profile).views if view.total_ns]


@st.composite
def changes(draw: st.DrawFn, view: DeviceView) -> Change:
    """Any change of these steps."""
    bound_ns = draw(st.integers(0, 2 * view.total_ns))
    rest = sorted(draw(st.tuples(part, part)), reverse=True)
    work = spans(view.host.filter(pl.int_range(pl.len()) % draw(st.integers(1, 4)) == 0))
    rows = view.used_ops.filter(pl.int_range(pl.len()) % draw(st.integers(1, 4)) == 0)
    made = (
        without(host=work, rest=(rest[0], rest[1]), bound_ns=bound_ns),
        without(calls=rows["launch"], ops=rows, bound_ns=bound_ns),
        without_waits(bound_ns),
        without_work(view, work),
        faster(rows, *(pl.col("dur_ns") * of for of in rest)),
        overlapped(rows, (rest[0], rest[1])),
        merged(view, rows, "window"),
        cheaper_launches((rest[0], rest[1]), bound_ns),
        loss(rest[1] * bound_ns, bound_ns),
    )
    change = draw(st.sampled_from(made))
    return draw(st.sampled_from((change, change.surely(rest[0]), change.at_most(bound_ns), change.beyond(bound_ns))))


@some
@given(profiles(), st.data())
def test_a_change_saves_no_more_than_the_step(profile: Profile, data: st.DataObject):
    for view in views(profile):
        least, most = saved(view, data.draw(changes(view)))
        assert 0 <= least <= most <= view.per_step_ms(view.total_ns)


@some
@given(profiles(), st.data())
def test_a_limit_holds_for_several_changes_as_for_each(profile: Profile, data: st.DataObject):
    for view in views(profile):
        limits = data.draw(st.tuples(*[st.integers(0, view.total_ns)] * 2))
        both = [data.draw(changes(view)).at_most(limit) for limit in limits]
        most = [saved(view, change).most_ms for change in both]
        assert all(ms <= view.per_step_ms(limit) for ms, limit in zip(most, limits, strict=True))
        assert saved(view, *both).most_ms <= view.per_step_ms(sum(limits)) * (1 + 1e-9)


@some
@given(profiles(), st.data())
def test_the_order_of_changes_does_not_matter(profile: Profile, data: st.DataObject):
    for view in views(profile):
        several = [data.draw(changes(view)) for _ in range(3)]
        first, *others = (saved(view, *order) for order in permutations(several))
        for other in others:
            assert other == (pytest.approx(first[0]), pytest.approx(first[1]))


@some
@given(profiles(), st.data())
def test_a_change_twice_is_the_change_once_where_it_is_replayed(profile: Profile, data: st.DataObject):
    for view in views(profile):
        work = spans(view.host)
        once = (
            without(host=work, rest=(0.5, 0.0)),
            without_waits(0),
            faster(view.used_ops, *[pl.col("dur_ns") // 2] * 2),
        )
        change = data.draw(st.sampled_from(once))
        assert saved(view, change, change).least_ms == pytest.approx(saved(view, change).least_ms)


def test_work_that_overlaps_is_left_out_once():
    early, late = ((Intervals.of([at], [at + 20]), 0.0) for at in (0, 10))
    change = without(host=early[0])
    assert (without(host=late[0]).least.edit | change.least.edit).host[0][0].total == 30
