from __future__ import annotations

import polars as pl

from advisor.analysis.device.places import largest, times_by_name, times_by_range
from advisor.analysis.device.view import longest_name
from advisor.model.intervals import EMPTY
from tests.tables import US, kernel, on_host, profile, step, union, view

# us        0    20           100   120                 1300  1320
# kernels   =====             =====                     =====        the calls return as they start, after 1 us
DEVICE = [kernel(0, 20, 0), kernel(100, 120, 100), kernel(1300, 1320, 1300)]

STEPS = [step(1, 0, 1320)]


def test_the_busiest_ranges_are_told_by_their_own_time():
    host = [
        on_host("annotation", 20, 99, name="train", thread=2),
        on_host("python", 30, 60, name="f", thread=2, parent=0),
    ]
    trace = view(profile(DEVICE, host, STEPS))
    ranges = times_by_name(trace, union((20, 110)))
    assert ranges.rows() == [("train", 49 * US), ("f", 30 * US), (None, 10 * US), ("cudaLaunchKernel", 1 * US)]
    assert largest(trace, ranges) == [
        {"name": "train", "ms": 0.049},
        {"name": "f", "ms": 0.03},
        {"name": "work or waits that were not recorded", "ms": 0.01},
        {"name": "cudaLaunchKernel", "ms": 0.001},
    ]


def test_a_function_that_runs_the_loop_has_no_time_of_what_it_calls_in_a_marked_step():
    host = [
        on_host("python", 0, 110, name="train", thread=2),
        on_host("step", 0, 105, name="ProfilerStep#1", thread=2, parent=0),
        on_host("python", 30, 60, name="f", thread=2, parent=1),
    ]
    trace = view(profile(DEVICE, host, STEPS))
    assert times_by_name(trace, union((20, 100))).rows()[:2] == [("train", 50 * US), ("f", 30 * US)]


def test_a_range_around_several_steps_is_no_work():
    host = [
        on_host("annotation", 0, 220, name="epoch 3", thread=2),
        on_host("annotation", 20, 90, name="validate", thread=2, parent=0),
    ]
    trace = view(profile(DEVICE, host, [step(1, 0, 110), step(2, 110, 220)]))
    for ran in (times_by_name, times_by_range):
        rows = ran(trace, union((20, 100))).rows()
        assert rows == [("validate", 70 * US), (None, 9 * US), ("cudaLaunchKernel", 1 * US)]


def test_the_script_as_a_whole_names_nothing():
    host = [
        on_host("python", 20, 99, name="train.py(1): <module>", thread=2),
        on_host("python", 30, 60, name="f", thread=2, parent=0),
    ]
    trace = view(profile(DEVICE, host, STEPS))
    names = {row[0] for ran in (times_by_name, times_by_range) for row in ran(trace, union((20, 110))).rows()}
    assert names == {"f", None, "cudaLaunchKernel"}


def deep(least: int) -> list[tuple[str | None, int]]:
    """Ranges of a callback that saves: its own time, from 20 us until `least`, then pickling."""
    names = ("train.py(9): on_end", "torch/serialization.py(5): save", "torch/serialization.py(7): _save")
    host = [
        on_host("python", 20, 90, name=names[0], thread=2),
        on_host("python", least, 90, name=names[1], thread=2, parent=0),
        on_host("python", least, 90, name=names[2], thread=2, parent=1),
    ]
    return times_by_range(view(profile(DEVICE, host, STEPS)), union((20, 99))).rows()


def test_a_function_of_the_users_gives_way_to_the_call_that_holds_four_fifths_of_its_time():
    assert deep(34)[0] == ("torch/serialization.py(5): save in train.py(9): on_end", 56 * US)
    assert ("train.py(9): on_end", 14 * US) in deep(34)
    assert deep(35)[0] == ("train.py(9): on_end", 70 * US)


def test_a_built_in_function_is_called_by_its_name_whatever_object_it_is_of():
    names = [f"<built-in method acquire of _thread.lock object at 0x7f{i}>" for i in range(2)]
    host = [on_host("python", at, at + 30, name=name, thread=2) for at, name in zip((20, 50), names, strict=True)]
    trace = view(profile(DEVICE, host, STEPS))
    assert times_by_name(trace, union((20, 80))).rows()[0] == ("acquire (built-in)", 60 * US)


def test_no_time_has_no_names():
    trace = view(profile(DEVICE, steps=STEPS))
    assert largest(trace, times_by_name(trace, EMPTY)) == []


def test_the_names_with_the_most_time_have_it_per_step_and_equal_ones_are_in_the_order_of_their_names():
    trace = view(profile(DEVICE, steps=[step(1, 0, 660), step(2, 660, 1320)]))
    times_ns = [("c", 40_000), ("b", 40_000), ("a", 10_000), ("d", 1_000), ("a", 80_000)]
    assert trace.largest(times_ns) == [{"name": "a", "ms": 0.045}, {"name": "b", "ms": 0.02}, {"name": "c", "ms": 0.02}]


def test_the_longest_name_is_that_with_the_most_time_of_all_its_rows():
    rows = pl.DataFrame({"name": ["b", "a", "a"], "dur_ns": [5, 3, 3]})
    assert (longest_name(rows), longest_name(rows.clear())) == ("a", "")
