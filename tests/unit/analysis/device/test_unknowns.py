from __future__ import annotations

import pytest

from advisor.analysis.device.idle import no_frames, unknown_waits
from advisor.model.clause import Missing
from tests.tables import kernel, on_host, profile, step, view


def test_what_the_device_waited_for_cannot_be_told_without_launches():
    trace = view(profile([kernel(0, 20), kernel(50, 60)], steps=[step(1, 0, 60)]))
    assert unknown_waits(trace) == Missing("no_cuda_calls")


def test_nor_where_much_idle_time_is_unknown():
    kernels = [kernel(0, 20, 0), kernel(26, 100)]  # 6 of 100 us before a kernel whose launch is not known
    assert unknown_waits(view(profile(kernels, steps=[step(1, 0, 100)]))) == Missing("idle_cause_unknown", share=0.06)
    kernels = [kernel(0, 20, 0), kernel(24, 100)]
    assert unknown_waits(view(profile(kernels, steps=[step(1, 0, 100)]))) is None


@pytest.mark.parametrize(("begin", "is_known"), [(60, True), (10, False)])
def test_idle_edges_of_a_recording_leave_longer_gaps_known(begin: float, is_known: bool):  # noqa: FBT001 - a case
    """Idle from 120 to 200, for the host, and from the recording's begin to the first op at 100, which is unknown."""
    made = profile([kernel(100, 120, 90), kernel(200, 220, 190)], [on_host("op", begin, begin + 5)])
    assert (unknown_waits(view(made)) is None) == is_known


def test_without_a_device_nothing_waited():
    assert unknown_waits(view(profile([], [on_host("op", 0, 1)], [step(1, 0, 9, device=None)]))) is None


@pytest.mark.parametrize(
    ("columns", "code"), [({"stack": "train.py(7): step"}, "no_python_calls_lines"), ({}, "no_python_calls_pytorch")]
)
def test_source_lines_of_ops_are_not_said_to_lack_an_option(columns: dict[str, str], code: str):
    host = [on_host("op", 0, 5, **columns)]
    workers = [{"worker": 0, "framework": "pytorch"}]
    assert no_frames(view(profile([kernel(0, 20, 0)], host, [step(1, 0, 20)], workers=workers))) == Missing(code)


def test_who_used_nsys_is_told_of_no_option_of_another_profiler():
    workers = [{"worker": 0, "framework": "pytorch", "producer": "Nsight Systems 2026.2.1"}]
    made = profile([kernel(0, 20, 0)], [on_host("op", 0, 5)], [step(1, 0, 20)], workers=workers)
    assert no_frames(view(made)) == Missing("no_python_calls")
