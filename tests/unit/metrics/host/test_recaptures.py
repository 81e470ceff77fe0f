from __future__ import annotations

import pytest

from tests.tables import Row, kernel, metrics_of, on_host, profile, step, view

# us            0    10   20   30        60     70   80     100 110         200
# ops           =region of one pass, 100===========================
# calls              | begins a capture         | launches the graph, until 75
# kernels                                         =======, 90 to 100


def passes(*records: bool, every: float = 100) -> tuple[list[Row], list[Row]]:
    """The device's ops and the host's of passes of 80 us, of which these record their graph before it is launched."""
    starts = [every * n for n in range(len(records))]
    ops = [on_host("op", at, at + 80, name="Torch-Compiled Region: 0/0") for at in starts]
    begins = [
        on_host("runtime", at + 10, at + 11, name="cudaStreamBeginCapture", parent=n)
        for n, (at, records_) in enumerate(zip(starts, records, strict=True))
        if records_
    ]
    graph = {"kind": "runtime", "name": "cudaGraphLaunch", "start_ns": 0, "dur_ns": 5_000}
    kernels = [
        kernel(at + 90, at + 100, graph=1) | {"call": graph | {"start_ns": int(1000 * (at + 70))}} for at in starts
    ]
    return kernels, [*ops, *begins]


@pytest.mark.parametrize(
    ("records", "idle_us"),
    [
        ((True, False, True, False, True), 3 * 75),  # from the begin of the op to the end of the launch
        ((True, True, True, False, False), 0),  # three graphs of a warm-up, and only then one of them again
        ((False, True, False, True), 2 * 75),  # the earlier one is of before the recording
        ((False, True, False), 0),  # another one may be that of an evaluation
        ((False, False), 0),
    ],
)
def test_graphs_are_recorded_again_if_an_earlier_one_was_launched_before(records: tuple[bool, ...], idle_us: float):
    device, host = passes(*records)
    whole = [step(1, 0, 100 * len(records))]
    assert metrics_of(view(profile(device, host, steps=whole)))["recapture_ms"] == pytest.approx(idle_us / 1000)


@pytest.mark.parametrize(("records", "idle_us"), [((True, True, True, True), 75), ((True, True, False, False), 0)])
def test_or_if_steps_after_the_second_record_one(records: tuple[bool, ...], idle_us: float):
    device, host = passes(*records)
    steps = [step(n, 100 * n, 100 * n + 100) for n in range(len(records))]
    assert metrics_of(view(profile(device, host, steps=steps)))["recapture_ms"] == pytest.approx(idle_us / 1000)
