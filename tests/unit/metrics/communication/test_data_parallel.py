from __future__ import annotations

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.missing import Missing
from tests.tables import Row, kernel, metrics_of, on_device, on_host, profile, step, view

RANGE = on_host("op", 50, 90, name="torch.distributed.ddp.reducer::copy_bucket_to_grad")
COPY = on_host("op", 55, 85, name="aten::copy_", parent=0)
OTHER = on_host("op", 10, 40, name="aten::copy_")


def reduced(*ops: Row, framework: str = "pytorch") -> DeviceView:
    """A step of 1 ms: a copy of 100 us out of a bucket by each op, then 800 us of other work."""
    copies = [on_device("memcpy", 100 * i, 100 * (i + 1), op=i) for i in range(len(ops))]
    workers = [{"worker": 0, "framework": framework}]
    return view(profile([*copies, kernel(300, 980)], ops, [step(1, 0, 1000)], workers=workers))


def test_copies_out_of_buckets_are_known_by_the_reducers_range():
    values = metrics_of(reduced(RANGE, COPY, OTHER))
    assert values["bucket_copies_per_step"] == 1
    assert values["bucket_copy_ms"] == pytest.approx(0.2)  # by the range itself, and by the op within it
    assert values["bucket_copy_gain_ms"] == pytest.approx(0.2)
    assert values["bucket_copy_least_gain_ms"] == 0  # no call launched them: there is no replay


def test_other_copies_are_none():
    assert metrics_of(reduced(OTHER))["bucket_copy_ms"] == 0
    assert metrics_of(reduced(RANGE, framework="jax"))["bucket_copy_ms"] == Missing("pytorch_only")


def test_a_synchronised_norm_gathers_statistics():
    gather = on_host("op", 10, 40, name="aten::batch_norm_gather_stats_with_counts")
    alone = on_host("op", 10, 40, name="aten::native_batch_norm")
    assert metrics_of(reduced(gather, gather, alone))["synchronised_norms_per_step"] == 2
    assert metrics_of(reduced(alone))["synchronised_norms_per_step"] == 0
    assert metrics_of(reduced())["synchronised_norms_per_step"] == Missing("no_host_op")
