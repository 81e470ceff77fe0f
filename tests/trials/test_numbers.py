"""Pairs, intervals and verdicts, worked out by hand."""

from __future__ import annotations

from math import exp, log, sqrt

import pytest

from advisor.model.trials import Gain
from advisor.trials import timings
from advisor.trials.measurement import verdict
from advisor.trials.timings import Block, gain, interval


def block(number: int, step_ms: float, *, on: bool = False, process: str = "a") -> dict[str, object]:
    return {"event": "block", "number": number, "step_ms": step_ms, "on": on, "process": process}


def test_the_interval_of_four_pairs():
    values = [log(0.8), log(0.9), log(0.8), log(0.9)]
    mean, error = log(0.72) / 2, log(0.9 / 0.8) / sqrt(3) / sqrt(4)  # sd of two values twice, n - 1
    result = interval(values, look=1)
    assert result
    assert result.ratio == pytest.approx(exp(mean))
    assert log(result.high) - mean == pytest.approx(4.176535 * error)  # Student's t, 3 degrees, 97.5 % to 98.75 %
    assert mean - log(result.low) == pytest.approx(4.176535 * error)


def test_later_looks_are_wider():
    values = [0.0, 0.01, -0.01, 0.02, -0.02, 0.0]
    widths = [width.half_width for look in (1, 2, 3) if (width := interval(values, look))]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


def test_a_hiccup_of_the_machine_is_cut():
    quiet = [0.01, -0.01] * 5
    with_hiccup = interval([*quiet[:-1], 3.0], 1)
    assert with_hiccup
    assert with_hiccup.ratio == pytest.approx(1.0, abs=0.01)
    assert with_hiccup.half_width < 0.02


def test_the_first_look_that_is_narrow_enough_counts():
    narrow = [0.0, 0.001] * 3
    early, is_reached = gain([*narrow, 5.0, -5.0], (6, 12), within=0.05)
    assert is_reached
    assert early == interval(narrow, 1)
    late, is_reached = gain([0.0, 5.0] * 3, (6, 12), within=0.05)
    assert (late, is_reached) == (interval([0.0, 5.0] * 3, 1), False)
    between, _ = gain([0.0, 5.0] * 4, (6, 12), within=0.05)
    assert between == interval([0.0, 5.0] * 4, 2)  # the budget's end is a look too


def test_two_pairs_have_no_interval():
    assert gain([0.1, 0.1], (6,), 0.05) == (None, False)


@pytest.mark.parametrize(
    ("low", "high", "is_narrow", "result"),
    [
        (0.8, 0.9, False, "faster"),
        (1.1, 1.3, False, "slower"),
        (0.98, 1.02, True, "same"),
        (0.8, 1.2, False, "unclear"),
    ],
)
def test_an_interval_that_excludes_1_is_a_verdict(low: float, high: float, *, is_narrow: bool, result: str):
    assert verdict(Gain(ratio=(low + high) / 2, low=low, high=high, pairs=9), is_narrow=is_narrow) == result


def test_the_slowest_rank_counts_and_only_blocks_of_all():
    events = [
        block(0, 10.0),
        block(1, 8.0, on=True),
        block(0, 12.0, process="b"),
        block(1, 7.0, on=True, process="b"),
        block(2, 9.0),
    ]
    assert timings.blocks(events) == [Block(False, 12.0), Block(True, 8.0)]


def test_what_came_before_another_marker_does_not_count():
    events = [block(0, 99.0), {"event": "marker", "process": "a"}, block(0, 10.0)]
    assert timings.blocks(events) == [Block(False, 10.0)]


def test_neighbours_are_paired_either_way_round():
    turns = [Block(False, 10.0), Block(True, 5.0), Block(True, 6.0), Block(False, 12.0), Block(False, 11.0)]
    assert timings.log_ratios(turns) == pytest.approx([log(0.5), log(0.5)])
    assert timings.paired(turns) == turns[:4]
    assert timings.mean_ms(turns, on=True) == 5.5


@pytest.mark.parametrize(
    ("base", "patched", "training"),
    [
        ([1234.5], 1234.5, "same"),
        ([1234.5], 1234.5 * (1 + 1e-9), "rounding"),
        ([1234.5], 1240.0, "different"),
        ([1234.5, 1230.0], 1240.0, "unknown"),
        ([None], 1234.5, "unknown"),
        ([1234.5], None, "unknown"),
    ],
)
def test_the_digest_compares_only_what_repeats_itself(base: list[float | None], patched: float | None, training: str):
    assert timings.training(base, patched) == training


def test_a_patch_took_hold_if_it_did_in_any_rank():
    events = [
        {"event": "patch", "name": "ddp", "hits": 0, "refusals": [["no_ddp", {}]], "proof": {}},
        {"event": "patch", "name": "ddp", "hits": 1, "refusals": [], "proof": {}},
    ]
    account = timings.account(events)
    assert account.is_applied
    assert account.refusals == {"no_ddp": ("ddp", {})}
