"""Compiled regions on the host, and a device that waits while the host works between them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.profiles import of_rule
from tests.tables import Row, kernel, metrics_of, on_host, profile, step, view


def region(number: str, start: float, end: float) -> Row:
    return on_host("op", start, end, name=f"Torch-Compiled Region: {number}", thread=2)


def compiled(*ranges: Row, marks: bool = True, framework: str = "pytorch") -> DeviceView:
    """A step of 1 ms: the host launches at 100 and 700 us, and the device runs dry from 300 to 705."""
    kernels = [kernel(105, 300, 100), kernel(705, 980, 700)]
    steps: Sequence[Row] = [step(1, 0, 1000)] if marks else ()
    return view(profile(kernels, ranges, steps, workers=[{"worker": 0, "framework": framework}]))


FIRST, SECOND = region("0/0", 50, 200), region("1/0", 600, 800)


def test_what_lies_between_regions_of_different_frames_makes_the_device_wait():
    values = metrics_of(compiled(FIRST, SECOND))
    assert values["between_regions_share"] == pytest.approx(0.3)  # 300 to 600 us
    assert values["between_regions_gain_ms"] == pytest.approx(0.4)  # all of the host's work between them


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
    assert metrics_of(compiled(*ranges))["between_regions_share"] == 0


def test_without_marks_two_regions_may_be_of_two_iterations():
    assert metrics_of(compiled(region("0/0", 95, 200), SECOND, marks=False))["between_regions_share"] == 0


def test_frames_and_versions_are_counted():
    four = compiled(FIRST, SECOND, region("1/2", 810, 820), region("1/2", 830, 840))
    values = metrics_of(four)
    assert of_rule("graph-breaks", four)["compiled_regions_per_step"] == 4
    assert values["compiled_frames"] == 2
    assert values["later_versions"] == 1
    assert metrics_of(compiled(FIRST, framework="jax"))["compiled_frames"] == Missing("pytorch_only")
