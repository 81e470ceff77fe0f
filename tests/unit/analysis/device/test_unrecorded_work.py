"""Launches every 100 us; each kernel begins 10 us after its launch and runs 50, but for those that were lost."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
import pytest

from advisor.analysis.device.idle import gaps
from advisor.analysis.device.launches import launches_of
from advisor.analysis.device.view import DeviceView
from tests.tables import Row, kernel, on_host, profile, step, view


def recorded(lost: Collection[int], *others: Row, number: int = 8, **unlinked: Row) -> DeviceView:
    kernels = [kernel(100 * i + 10, 100 * i + 60, launched=100 * i + 1) for i in range(number) if i not in lost]
    calls = [on_host("runtime", 100 * i, 100 * i + 1, name="cudaLaunchKernel") for i in lost]
    return view(profile([*kernels, *unlinked.values()], [*calls, *others], [step(1, 0, 100 * number)]))


def lost_us(of: DeviceView) -> list[float]:
    return [ns / 1000 for ns in launches_of(of).filter("is_lost")["start_ns"]]


def test_a_recording_that_has_all_its_kernels_lacks_none():
    assert lost_us(recorded(())) == []
    assert gaps(recorded(()))["unknown_ns"].sum() == 0


def test_the_gap_where_a_kernel_is_missing_is_not_idle_for_a_cause():
    found = recorded([3])
    assert lost_us(found) == [300]
    assert gaps(found).filter(pl.col("unknown_ns") > 0).select("start_ns", "end_ns").rows() == [(260_000, 410_000)]


def test_a_kernel_that_was_lost_late_in_a_long_wait_does_not_hide_the_wait():
    """The host is away for 100 ms; what it launched 10 us before the next kernel cannot have run since."""
    kernels = [kernel(10, 60, launched=1), kernel(100_000, 100_050, launched=99_999)]
    call = on_host("runtime", 99_980, 99_981, name="cudaLaunchKernel")
    found = gaps(view(profile(kernels, [call], [step(1, 0, 100_050)])))
    assert found["unknown_ns"].sum() == 0


@pytest.mark.parametrize("edge", [0, 7])
def test_kernels_at_the_edges_of_the_recording_are_cut_off_not_lost(edge: int):
    assert lost_us(recorded([edge])) == []


def test_launches_into_a_graph_run_nothing():
    capture = [
        on_host("runtime", 290, 291, name="cudaStreamBeginCapture"),
        on_host("runtime", 490, 491, name="cudaStreamEndCapture"),
    ]
    assert lost_us(recorded([3, 4], *capture)) == []


def test_as_many_ops_without_a_call_may_be_theirs():
    assert lost_us(recorded([3], stray=kernel(310, 360))) == []
