"""Compiled regions on the host, and a device that waits while the host works between them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.metrics.host.compiled_regions import (
    BETWEEN_REGIONS_GAIN_MS,
    BETWEEN_REGIONS_SHARE,
    COMPILED_FRAMES,
    COMPILED_REGIONS_PER_STEP,
    GUARD_MS,
    GUARD_SHARE,
    LATE_LOADS_PER_STEP,
    LATE_LOADS_SHARE,
    LATE_LOADS_STEPS_SHARE,
    LATER_VERSIONS,
    breaks,
    late_loads,
    regions,
)
from advisor.model.missing import Missing
from tests.tables import Row, by_metric, kernel, on_host, profile, step, view

breaks, late_loads, regions = map(by_metric, (breaks, late_loads, regions))


def region(number: str, start: float, end: float) -> Row:
    return on_host("op", start, end, name=f"Torch-Compiled Region: {number}", thread=2)


def compiled(*ranges: Row, marks: bool = True, framework: str = "pytorch") -> DeviceView:
    """A step of 1 ms: the host launches at 100 and 700 us, and the device runs dry from 300 to 705."""
    kernels = [kernel(105, 300, 100), kernel(705, 980, 700)]
    steps: Sequence[Row] = [step(1, 0, 1000)] if marks else ()
    return view(profile(kernels, ranges, steps, workers=[{"worker": 0, "framework": framework}]))


FIRST, SECOND = region("0/0", 50, 200), region("1/0", 600, 800)


def test_what_lies_between_regions_of_different_frames_makes_the_device_wait():
    values = breaks(compiled(FIRST, SECOND))
    assert values[BETWEEN_REGIONS_SHARE] == pytest.approx(0.3)  # 300 to 600 us
    assert values[BETWEEN_REGIONS_GAIN_MS] == pytest.approx(0.4)  # all of the host's work between them


@pytest.mark.parametrize(
    "ranges",
    [
        (FIRST,),
        (FIRST, region("0/0", 600, 800)),  # one module, called twice
        (FIRST, region("0/1", 600, 800)),  # in two versions
        (FIRST, SECOND, on_host("op", 400, 450, name="autograd::engine::evaluate_function: MmBackward0", thread=3)),
        (FIRST, SECOND, on_host("annotation", 400, 450, name="Optimizer.step#SGD.step", thread=2)),  # a compiled update
        (FIRST, region("1/0", 600, 800) | {"thread": 3}),  # of another thread
    ],
)
def test_what_is_no_break(ranges: Sequence[Row]):
    assert breaks(compiled(*ranges))[BETWEEN_REGIONS_SHARE] == 0


def test_without_marks_two_regions_may_be_of_two_iterations():
    assert breaks(compiled(region("0/0", 95, 200), SECOND, marks=False))[BETWEEN_REGIONS_SHARE] == 0


def test_frames_and_versions_are_counted():
    values = regions(compiled(FIRST, SECOND, region("1/2", 810, 820), region("1/2", 830, 840)))
    assert values[COMPILED_REGIONS_PER_STEP] == 4
    assert values[COMPILED_FRAMES] == 2
    assert values[LATER_VERSIONS] == 1
    assert regions(compiled(FIRST, framework="jax"))[COMPILED_FRAMES] == Missing("pytorch_only")


def test_guards_count_where_the_device_waits_for_them():
    lookups = [on_host("op", start, start + 90, name="TorchDynamo Cache Lookup", thread=2) for start in (10, 500)]
    values = breaks(compiled(*lookups))
    assert values[GUARD_MS] == pytest.approx(0.18)
    assert values[GUARD_SHARE] == pytest.approx(0.18)  # before the first kernel and between the two
    assert breaks(compiled(on_host("op", 150, 240, name="TorchDynamo Cache Lookup", thread=2)))[GUARD_SHARE] == 0


def test_loads_count_where_nothing_runs():
    loads = [on_host("runtime", start, start + 60, name="cuLibraryLoadData", thread=2) for start in (200, 400)]
    values = late_loads(compiled(*loads))
    assert values[LATE_LOADS_PER_STEP] == 2
    assert values[LATE_LOADS_SHARE] == pytest.approx(0.06)
    assert values[LATE_LOADS_STEPS_SHARE] == 1
    assert late_loads(compiled())[LATE_LOADS_SHARE] == 0
    assert late_loads(compiled(*loads, marks=False))[LATE_LOADS_SHARE] == Missing("no_marks")
