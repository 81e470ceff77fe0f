from __future__ import annotations

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.metrics.communication.data_parallel import (
    BUCKET_COPIES_PER_STEP,
    BUCKET_COPY_GAIN_MS,
    BUCKET_COPY_LEAST_GAIN_MS,
    BUCKET_COPY_MS,
    SYNCHRONISED_NORMS_PER_STEP,
    bucket_copies,
    synchronised_norms,
)
from advisor.model.missing import Missing
from tests.tables import Row, by_metric, kernel, on_device, on_host, profile, step, view

bucket_copies, synchronised_norms = map(by_metric, (bucket_copies, synchronised_norms))

RANGE = on_host("op", 50, 90, name="torch.distributed.ddp.reducer::copy_bucket_to_grad")
COPY = on_host("op", 55, 85, name="aten::copy_", parent=0)
OTHER = on_host("op", 10, 40, name="aten::copy_")


def reduced(*ops: Row, framework: str = "pytorch") -> DeviceView:
    """A step of 1 ms: a copy of 100 us out of a bucket by each op, then 800 us of other work."""
    copies = [on_device("memcpy", 100 * i, 100 * (i + 1), op=i) for i in range(len(ops))]
    workers = [{"worker": 0, "framework": framework}]
    return view(profile([*copies, kernel(300, 980)], ops, [step(1, 0, 1000)], workers=workers))


def test_copies_out_of_buckets_are_known_by_the_reducers_range():
    values = bucket_copies(reduced(RANGE, COPY, OTHER))
    assert values[BUCKET_COPIES_PER_STEP] == 1
    assert values[BUCKET_COPY_MS] == pytest.approx(0.2)  # by the range itself, and by the op within it
    assert values[BUCKET_COPY_GAIN_MS] == pytest.approx(0.2)
    assert values[BUCKET_COPY_LEAST_GAIN_MS] == 0  # no call launched them: there is no replay


def test_other_copies_are_none():
    assert bucket_copies(reduced(OTHER))[BUCKET_COPY_MS] == 0
    assert bucket_copies(reduced(RANGE, framework="jax"))[BUCKET_COPY_MS] == Missing("pytorch_only")


def test_a_synchronised_norm_gathers_statistics():
    gather = on_host("op", 10, 40, name="aten::batch_norm_gather_stats_with_counts")
    alone = on_host("op", 10, 40, name="aten::native_batch_norm")
    assert synchronised_norms(reduced(gather, gather, alone))[SYNCHRONISED_NORMS_PER_STEP] == 2
    assert synchronised_norms(reduced(alone))[SYNCHRONISED_NORMS_PER_STEP] == 0
    assert synchronised_norms(reduced())[SYNCHRONISED_NORMS_PER_STEP] == Missing("no_host_op")
