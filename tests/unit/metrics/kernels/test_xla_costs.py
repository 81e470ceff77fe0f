from __future__ import annotations

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.tables import Row, kernel, metrics_of, profile, step, view

TPU = {"device": 0, "name": "TPU v6 Lite", "peak_tflops": 900.0}
PRODUCT = {"hlo_category": "convolution fusion", "xla_flops": 36e9}  # 40 us at the peak
LOOP = {"hlo_category": "loop fusion", "xla_flops": 1e6}


def ran(*ops: Row, device: Row = TPU) -> DeviceView:
    """A step of 100 us; each op takes 20 us."""
    rows = [kernel(20 * i, 20 * (i + 1), name=f"fusion.{i}", **op) for i, op in enumerate(ops)]
    return view(profile(rows, steps=[step(1, 0, 100)], devices=[device]))


def test_flops_are_held_against_the_peak_that_the_profile_states():
    # 10 us of arithmetic and next to none, of 100 us
    values = metrics_of(ran({**PRODUCT, "xla_flops": 9e9}, LOOP))
    assert values["xla_flops_of_peak_share"] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize(
    "step_of",
    [
        ran(LOOP, device={"device": 0, "name": "NVIDIA H100"}),
        ran(LOOP, {"xla_flops": None}),
        ran({**LOOP, "xla_flops": -1.0}),
    ],
    ids=["peaks not stated", "half of the costs", "no costs"],
)
def test_without_peaks_or_costs_nothing_is_said(step_of: DeviceView):
    assert isinstance(metrics_of(step_of)["xla_flops_of_peak_share"], Missing)
