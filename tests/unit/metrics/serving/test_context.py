from __future__ import annotations

import pytest

from tests.tables import Row, kernel, measured, on_device, on_host, profile, worker_row

# us     0         100        200        282       steps whose marks touch; the last ends with its work
# host   |EXTEND---|DECODE----|MIXED-----|
NAMES = ("step[EXTEND bs=2 toks=600]", "step[DECODE bs=4]", "step[MIXED bs=6]")


def marks(*names: str) -> list[Row]:
    ends = [*range(100, 100 * len(names), 100), 100 * len(names) - 18]
    return [
        on_host("annotation", 100 * i, end, name=name) for (i, name), end in zip(enumerate(names), ends, strict=True)
    ]


def test_steps_that_prefill_have_their_own_shares():
    ops = [kernel(2, 50, 1), kernel(110, 190, 109), kernel(210, 240, 209), kernel(250, 280, 249)]
    row = worker_row(profile(ops, marks(*NAMES)))
    # on the device from 2 to 110 and from 210 to 280; on the host 100 and 82 with three calls of 1 us
    assert row["prefill_idle_share"] == pytest.approx(1 - (48 + 30 + 30) / 178)
    assert row["prefill_launch_share"] == pytest.approx(3 / 182)
    # 50 to 110 and 240 to 250; 190 to 210 is the decode step's
    assert row["prefill_launch_part"] == pytest.approx(70 / 90)
    assert row["phases"] == "decode, mixed, prefill"


def test_communication_is_a_share_of_the_work_of_each_phase():
    ops = [
        on_device("collective", 10, 20, 9),
        kernel(20, 50, 15),
        kernel(110, 140, 109),
        on_device("collective", 140, 170, 120),
    ]
    row = worker_row(profile(ops, marks(*NAMES[:2])))
    assert row["prefill_communication_share"] == pytest.approx(10 / 40)
    assert row["decode_communication_share"] == pytest.approx(30 / 60)


@pytest.mark.parametrize(
    ("names", "code"), [(["step 1"], "no_engine_steps"), (["step[DECODE bs=4]"], "no_prefill_step")]
)
def test_without_steps_that_prefill_nothing_is_known_of_them(names: list[str], code: str):
    results = measured(profile([kernel(2, 42, 1)], marks(*names)))
    assert results.rows("worker")["prefill_idle_share"].item() is None
    assert results.reasons["prefill_idle_share"].code == code
