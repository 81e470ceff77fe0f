from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from advisor.model.intervals import EMPTY, Intervals, crossed, nest, shared_out

Pairs = Sequence[tuple[int, int]]


def union(*pairs: tuple[int, int]) -> Intervals:
    return Intervals.of([start for start, _ in pairs], [end for _, end in pairs])


def pairs(made: Intervals) -> list[tuple[int, int]]:
    return list(zip(made.starts.tolist(), made.ends.tolist(), strict=True))


def gaps(made: Intervals, start: int, end: int) -> list[tuple[int, int]]:
    opens, closes, _ = made.gaps(np.array([start]), np.array([end]))
    return list(zip(opens.tolist(), closes.tolist(), strict=True))


# ------------------------------------------------------------------------------------------- unions


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([(3, 3)], []),  # without length
        ([(9, 4)], []),  # ends before it starts
        ([(0, 10)], [(0, 10)]),
        ([(0, 10), (5, 15)], [(0, 15)]),
        ([(0, 10), (2, 4), (3, 12)], [(0, 12)]),
        ([(0, 10), (10, 20)], [(0, 20)]),  # touching
        ([(20, 30), (0, 10), (20, 30)], [(0, 10), (20, 30)]),
        ([(0, 10), (4, 4), (11, 12)], [(0, 10), (11, 12)]),
        ([(-5, -1), (-3, 2)], [(-5, 2)]),
    ],
)
def test_a_union_counts_overlapping_time_once(given: Pairs, expected: Pairs):
    made = union(*given)
    assert pairs(made) == expected
    assert made.total == sum(end - start for start, end in expected)


def test_nanoseconds_of_an_epoch_are_kept_exactly():
    now = 1_767_225_600_000_000_001
    assert union((now, now + 1), (now + 2, now + 4)).within([now], [now + 3]).tolist() == [2]


@pytest.mark.filterwarnings("error")
def test_the_time_of_all_that_a_reader_lets_in_is_added_up_exactly():
    """Times reach from -2**62 to 2**62: what is covered is less than 2**63, and what the sum passes through too."""
    far = 1 << 62
    assert union((-far, far - 9), (far - 8, far - 1)).total == 2 * far - 2


# ..0....5....10...15...20
#   =====     =====
COVERED = union((0, 5), (10, 15))


@pytest.mark.parametrize(
    ("window", "expected"),
    [((-9, 0), 0), ((0, 5), 5), ((2, 12), 5), ((5, 10), 0), ((14, 99), 1), ((-9, 99), 10), ((3, 3), 0)],
)
def test_time_within_a_window(window: tuple[int, int], expected: int):
    assert COVERED.within([window[0]], [window[1]]).tolist() == [expected]
    assert EMPTY.within([window[0]], [window[1]]).tolist() == [0]


def test_what_is_covered_at_each_of_many_moments():
    covered = Intervals.of([10, 30], [20, 35]).covers([9, 10, 19, 20, 32, 35])
    assert covered.tolist() == [False, True, True, False, True, False]
    assert EMPTY.covers([1, 2]).tolist() == [False, False]


def test_time_before_each_of_many_moments():
    assert COVERED.before([-1, 0, 3, 5, 7, 10, 12, 15, 99]).tolist() == [0, 0, 3, 5, 5, 5, 7, 10, 10]


def test_the_last_end_before_each_of_many_moments():
    assert COVERED.last_end([-1, 0, 4, 5, 7, 12, 15, 99]).tolist() == [-1, 0, 4, 5, 5, 5, 15, 15]
    assert EMPTY.last_end([3, 4]).tolist() == [3, 4]


def test_either_and_both():
    # ..0....5....10...15...20
    #   =====     =====
    #      ===== ===     ====
    other = union((3, 8), (9, 12), (17, 20))
    assert pairs(COVERED | other) == [(0, 8), (9, 15), (17, 20)]
    assert pairs(COVERED & other) == [(3, 5), (10, 12)]
    assert pairs(COVERED & union((5, 10), (15, 20))) == []  # touching is not overlapping
    assert COVERED & EMPTY is EMPTY & COVERED is EMPTY
    assert COVERED | EMPTY is EMPTY | COVERED is COVERED


@pytest.mark.parametrize(
    ("covered", "other", "rest"),
    [
        ([(0, 10)], [(2, 4), (8, 20)], [(0, 2), (4, 8)]),
        ([(0, 10), (20, 30)], [(5, 25)], [(0, 5), (25, 30)]),
        ([(0, 10)], [], [(0, 10)]),
        ([], [(0, 10)], []),
    ],
)
def test_a_difference_leaves_what_only_the_first_covers(covered: Pairs, other: Pairs, rest: Pairs):
    assert pairs(union(*covered) - union(*other)) == rest


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ((0, 15), [(5, 10)]),
        ((-5, 20), [(-5, 0), (5, 10), (15, 20)]),
        ((2, 12), [(5, 10)]),
        ((6, 9), [(6, 9)]),
        ((5, 10), [(5, 10)]),
        ((1, 4), []),
        ((7, 7), []),
    ],
)
def test_gaps_are_what_a_window_holds_uncovered(window: tuple[int, int], expected: Pairs):
    assert gaps(COVERED, *window) == expected


@pytest.mark.parametrize(
    ("longest", "expected"), [(0, [(0, 4), (5, 9), (11, 12)]), (1, [(0, 9), (11, 12)]), (2, [(0, 12)])]
)
def test_short_gaps_are_bridged(longest: int, expected: Pairs):
    made = union((0, 4), (5, 9), (11, 12)).bridged(longest)
    assert pairs(made) == expected
    assert made.total == sum(end - start for start, end in expected)
    assert EMPTY.bridged(longest).total == 0


def test_intervals_of_a_length_are_longer_than_one_limit_and_no_longer_than_the_other():
    three = union((0, 2), (10, 15), (20, 29))
    assert pairs(three.of_length(2)) == [(10, 15), (20, 29)]
    assert pairs(three.of_length(2, 5)) == [(10, 15)]


def test_a_shift_moves_all_intervals_and_changes_no_length():
    later = COVERED.shifted(7)
    assert pairs(later) == [(7, 12), (17, 22)]
    assert later.within([0], [20]).tolist() == [8]


def test_gaps_of_several_windows_tell_which_they_are_in():
    opens, closes, window = COVERED.gaps(np.array([0, 3, 8, 12, 15]), np.array([15, 3, 11, 14, 20]))
    assert (opens.tolist(), closes.tolist(), window.tolist()) == ([5, 8, 15], [10, 10, 20], [0, 2, 4])


def test_gaps_of_nothing_are_the_window():
    assert gaps(EMPTY, 3, 8) == [(3, 8)]


# ------------------------------------------------------------------------------------------ nesting


@pytest.mark.parametrize(
    ("given", "parents"),
    [
        ([], []),
        ([(0, 10), (2, 5), (3, 4), (6, 9)], [-1, 0, 1, 0]),
        ([(3, 4), (6, 9), (0, 10), (2, 5)], [3, 2, -1, 2]),  # in any order
        ([(0, 5), (5, 10)], [-1, -1]),  # touching
        ([(0, 10), (0, 5), (5, 10)], [-1, 0, 0]),  # sharing an edge with the outer one
        ([(0, 10), (0, 5), (1, 5), (5, 6)], [-1, 0, 1, 0]),  # two end where the next begins
        ([(0, 10), (0, 10), (0, 10)], [-1, 0, 1]),  # equal: the first encloses
        ([(0, 10), (20, 30), (21, 22)], [-1, -1, 1]),
    ],
)
def test_the_innermost_enclosing_interval(given: Pairs, parents: list[int]):
    assert parents_of(given) == parents


@pytest.mark.parametrize(
    ("given", "parents"),
    [
        ([(0, 10), (5, 5)], [-1, 0]),
        ([(0, 10), (0, 0)], [-1, 0]),
        ([(0, 10), (10, 10)], [-1, -1]),  # it is over then
        ([(0, 100), (10, 20), (10, 10)], [-1, 0, 1]),  # an instant at a child's start
        ([(0, 100), (10, 20), (20, 20), (20, 30)], [-1, 0, 3, 0]),
        ([(5, 5), (5, 5)], [-1, 0]),  # equal: the first encloses
        ([(0, 100), (10, 10), (10, 10), (10, 20)], [-1, 3, 1, 0]),
    ],
)
def test_an_interval_without_length_lies_inside_what_is_open_then(given: Pairs, parents: list[int]):
    assert parents_of(given) == parents


@pytest.mark.parametrize(
    ("given", "parents"),
    [
        # 0....5....10...15...20
        # ==========
        #      ==========
        #             ==
        ([(0, 10), (5, 14), (12, 13)], [-1, 0, 1]),
        # ====================
        #   ======
        #     ======              ends a little after the one that encloses it
        #             ====
        ([(0, 20), (2, 8), (4, 10), (12, 16)], [-1, 0, 1, 0]),
        # ====================
        #   ==
        #    ==============       a range that a call opens, and leaves open
        #     ====
        ([(0, 20), (2, 4), (3, 17), (5, 9)], [-1, 0, 0, 2]),
    ],
)
def test_of_intervals_that_overlap_the_last_that_is_open_for_half_of_them_counts(given: Pairs, parents: list[int]):
    assert parents_of(given) == parents


def test_each_lane_nests_by_itself():
    starts, ends = [0, 1, 2, 3], [10, 9, 8, 7]
    assert nest([7, -1, 7, -1], starts, ends).tolist() == [-1, -1, 0, 1]


@pytest.mark.parametrize("most", [60, 1 << 61])  # of the longest, three do not fit behind each other
def test_lanes_are_worked_on_at_once_and_none_knows_of_another(most):
    chance = np.random.default_rng(most % 1009)
    lanes, starts = chance.integers(0, 5, 200), chance.integers(0, most, 200)
    ends = starts + chance.integers(0, most // 3, 200)
    for function in (nest, partial(crossed, by=2)):
        together, alone = function(lanes, starts, ends), np.full(200, -1)
        for lane in range(5):
            (rows,) = np.nonzero(lanes == lane)
            inner = function(np.zeros(len(rows)), starts[rows], ends[rows])
            alone[rows] = np.where(inner < 0, -1, rows[inner])
        assert together.tolist() == alone.tolist()
        assert max(together) >= 0


def test_deep_nesting():
    depth = 3_000
    starts = np.arange(depth)
    assert nest(np.zeros(depth), starts, 2 * depth - starts).tolist() == list(range(-1, depth - 1))


def test_what_follows_deep_nesting_is_in_none_of_it():
    nested = [(i, 1_000 - i) for i in range(300)]
    after = [(2_000 + 10 * i, 2_008 + 10 * i) for i in range(5)]
    around_all = (-1, 5_000)
    assert parents_of([around_all, *nested, *after]) == [-1, *range(300), *[0] * 5]
    assert parents_of([*nested, *after]) == [*range(-1, 299), *[-1] * 5]


def parents_of(given: Pairs) -> list[int]:
    return nest([0] * len(given), [start for start, _ in given], [end for _, end in given]).tolist()


@pytest.mark.parametrize(
    ("given", "outlasted"),
    [
        ([(0, 20), (5, 20)], [-1, -1]),
        ([(0, 20), (5, 22)], [-1, -1]),  # by as much as is allowed
        ([(0, 20), (5, 23)], [-1, 0]),
        ([(0, 20), (18, 30)], [-1, -1]),  # it hardly begins in it
        ([(0, 50), (5, 20), (10, 40)], [-1, -1, 1]),  # the innermost
    ],
)
def test_an_interval_crosses_the_one_that_it_begins_in_and_outlasts(given: Pairs, outlasted: list[int]):
    starts, ends = zip(*given, strict=True)
    assert crossed([0] * len(given), starts, ends, by=2).tolist() == outlasted
    assert crossed(range(len(given)), starts, ends, by=2).tolist() == [-1] * len(given)


def test_intervals_that_are_disjoint_already_are_no_copy():
    starts, ends = np.array([0, 20, 40]), np.array([10, 30, 50])
    assert np.shares_memory(Intervals.of(starts, ends).starts, starts)
    assert not np.shares_memory(Intervals.of(starts[::-1], ends[::-1]).starts, starts)


def test_of_times_that_overlap_the_first_counts_and_no_union_is_made_for_the_last(monkeypatch: pytest.MonkeyPatch):
    times = {"a": union((0, 10)), "none": EMPTY, "b": union((5, 15), (30, 40)), "c": union((0, 50))}
    windows = np.array([0, 20]), np.array([20, 60])
    own = {name: time.tolist() for name, time in shared_out(times, *windows).items()}
    assert own == {"a": [10, 0], "none": [0, 0], "b": [5, 10], "c": [5, 20]}
    monkeypatch.setattr(Intervals, "of", None)
    assert shared_out({"none": EMPTY, "c": times["c"]}, *windows)["c"].tolist() == [20, 30]
    assert shared_out({"a": times["a"], "b": times["b"]}, *windows)["b"].tolist() == [5, 10]
