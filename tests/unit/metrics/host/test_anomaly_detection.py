from __future__ import annotations

import pytest

from tests.tables import kernel, metrics_of, on_host, profile, step, view

ENGINE = "autograd::engine::evaluate_function: MulBackward0"
TWO = [step(1, 0, 100, device=None), step(2, 100, 200, device=None)]
CHECKED = [
    on_host("op", 0, 100, name=ENGINE),
    on_host("op", 2, 40, name="MulBackward0", parent=0),
    on_host("op", 5, 10, name="aten::isnan", parent=1),  # the model's own
    on_host("op", 50, 60, name="aten::isnan", parent=0),
    on_host("op", 52, 58, name="aten::ne", parent=3),
    on_host("op", 60, 90, name="aten::_is_any_true", parent=0),
]


def test_the_engine_s_own_searches_for_nan_are_anomaly_detection():
    values = metrics_of(view(profile([], CHECKED, TWO)))
    assert values["anomaly_checks_per_step"] == 0.5
    assert values["anomaly_ms"] == values["anomaly_gain_ms"] == pytest.approx(0.020)
    assert values["anomaly_stacks_ms"] == 0  # no forward op bears a node's number


def test_without_the_checks_their_kernels_and_calls_are_gone():
    # the check's 30 us hold its call and its kernel: the last kernel starts 30 us earlier
    device = [kernel(5, 20, 2, op=0), kernel(60, 70, 57), kernel(90, 110, 87)]
    check = [on_host("op", 0, 80, name=ENGINE), on_host("op", 50, 80, name="aten::isnan", parent=0)]
    values = metrics_of(view(profile(device, check, [step(1, 0, 110)])))
    assert values["anomaly_gain_ms"] == pytest.approx(0.030)


def test_a_model_without_anomaly_detection_has_no_checks():
    values = metrics_of(view(profile([], CHECKED[:3], [step(1, 0, 100, device=None)])))
    assert values["anomaly_checks_per_step"] == 0
    assert values["anomaly_ms"] == values["anomaly_gain_ms"] == 0


# us   0    30 40    100 110        200          300
# host |view |  addmm  |  evaluate_function: check |
STEP = [step(1, 0, 300, device=None)]
FORWARD = [
    on_host("op", 0, 30, name="aten::t", sequence=1),
    on_host("op", 5, 8, name="aten::as_strided", parent=0),
    on_host("op", 40, 100, name="aten::linear", sequence=2),  # bears the number too, but addmm makes the node
    on_host("op", 42, 98, name="aten::addmm", sequence=2, parent=2),
]
NODES = [
    on_host("op", 110, 200, name="autograd::engine::evaluate_function: AddmmBackward0", sequence=2),
    on_host("op", 150, 160, name="aten::isnan", parent=4),
    on_host("op", 120, 130, name="aten::mm", parent=4, sequence=2),  # of the node itself
    on_host("op", 210, 220, name="autograd::engine::evaluate_function: TBackward0", sequence=1),
]


def test_forward_ops_that_make_a_node_note_the_stack_in_the_time_that_they_take_themselves():
    # the view 27 us, of which 17 are more than a view takes; addmm 56, of which it may be all
    values = metrics_of(view(profile([], FORWARD + NODES, STEP)))
    assert values["anomaly_stacks_ms"] == pytest.approx(0.027 + 0.056)
    assert values["anomaly_gain_ms"] == pytest.approx(0.010 + 0.083)
    # the check takes 10 us, less one for its recording
    assert values["anomaly_least_gain_ms"] == pytest.approx((0.009 + 2 * 0.017) / 2)


def test_without_a_view_notes_may_take_nothing():
    values = metrics_of(view(profile([], [*FORWARD[2:], *NODES[:1], *_under(NODES[1:2], 2)], STEP)))
    assert values["anomaly_least_gain_ms"] == pytest.approx(0.009 / 2)
    assert values["anomaly_gain_ms"] > values["anomaly_least_gain_ms"]


def test_a_job_without_checks_notes_nothing():
    values = metrics_of(view(profile([], [*FORWARD, *NODES[:1]], STEP)))
    assert values["anomaly_stacks_ms"] == values["anomaly_gain_ms"] == 0


def _under(rows, parent):
    return [{**row, "parent": parent} for row in rows]
