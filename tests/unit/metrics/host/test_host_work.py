from __future__ import annotations

import pytest

from tests.tables import kernel, metrics_of, on_host, profile, step, view

STEP = step(1, 0, 100, device=None)
HOST = [on_host("step", 0, 100), on_host("op", 10, 40), on_host("op", 50, 58)]


def test_host_work_is_a_cpu_s_step_without_its_ops_input_and_waiting_for_others():
    host = [*HOST, on_host("input", 56, 80), on_host("collective", 70, 90, thread=4)]
    values = metrics_of(view(profile([], host, [STEP])))
    assert values["host_ops_share"] == pytest.approx(0.36)  # 10 to 40 and 50 to 56
    assert values["host_work_share"] == pytest.approx(0.30)  # 0 to 10, 40 to 50, 90 to 100
    values = metrics_of(view(profile([], [HOST[0], on_host("input", 0, 100)], [STEP])))
    assert values["host_ops_share"] == values["host_work_share"] == 0
    values = metrics_of(view(profile([kernel(5, 25, 2)], host, [step(1, 0, 125, host=(0, 110))])))
    assert values["host_ops_share"] == values["host_work_share"] == 0
