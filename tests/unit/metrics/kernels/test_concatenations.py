from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.metrics.kernels.concatenations import (
    HISTORY_COPIES_PER_STEP,
    HISTORY_COPY_MS,
    HISTORY_COPY_SHARE,
    HISTORY_GAIN_MS,
    HISTORY_LEAST_GAIN_MS,
    HISTORY_LENGTH,
    histories,
)
from advisor.model.missing import Missing
from tests.device_bound import ADD, queued
from tests.tables import Row, of_pytorch, on_host, profile, step, view

CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 3, 64, 64>"
PROCESS = [{"worker": 0, "framework": "pytorch"}]
LONG_US, SHORT_US = 40, 2  # of a concatenation; the second is 1 % of the step of ten calls and less


def cat(at: float, *shapes: Sequence[int], us: float = LONG_US, **columns: object) -> Row:
    recorded = {"shapes": json.dumps([shapes, []])} if shapes else {}
    return on_host("op", at, at + us, name="aten::cat", **recorded | columns)


def caches(lengths: Sequence[int], layers: int = 1) -> list[list[list[int]]]:
    """The inputs of the calls that add a token to the keys of each layer."""
    return [[[1, 8, length, 64], [1, 8, 1, 64]] for length in lengths for _ in range(layers)]


def on_cpu(calls: Sequence[Row], *others: Row) -> DeviceView:
    """Calls, 100 us apart from start to start."""
    return view(
        profile((), [*calls, *others], [step(1, 0, 100 * len(calls), device=None)], devices=(), workers=PROCESS)
    )


def share(inputs: Sequence[Sequence[Sequence[int]]], *others: Row, **columns: object) -> float:
    calls = [cat(100 * i, *shapes, id=i, **columns) for i, shapes in enumerate(inputs)]
    return histories(on_cpu(calls, *others))[HISTORY_COPY_SHARE]


def test_a_cache_that_grows_by_a_token_is_copied_for_each():
    calls = [cat(100 * i, [1, 8, n, 64], [1, 8, 1, 64]) for i, n in enumerate([7, 8, 9, 10])]
    values = histories(on_cpu(calls))
    assert values[HISTORY_COPY_SHARE] == pytest.approx(0.4)
    assert values[HISTORY_COPY_MS] == pytest.approx(0.16)
    assert values[HISTORY_COPIES_PER_STEP] == 4
    assert values[HISTORY_LENGTH] == 8.5
    new_ms = 0.04 * (1 / 8 + 1 / 9 + 1 / 10 + 1 / 11)
    assert values[HISTORY_GAIN_MS] == pytest.approx(0.16 - new_ms, abs=2e-6)
    assert values[HISTORY_LEAST_GAIN_MS] == pytest.approx((0.16 - new_ms) / 2, abs=2e-6)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (caches(range(10, 20), layers=4), 0.4),
        (caches([*range(30, 50), *range(30, 50)]), 0.4),  # a second text begins: 1 of 39 changes
        ([[[1, 8, 1, 64], [1, 8, n, 64]] for n in range(10, 20)], 0.4),  # the new part comes first
        ([[[n, 64], [32, 64]] for n in range(320, 640, 32)], 0.4),  # 32 rows a step
        ([[[n], [1], [1]] for n in range(10, 20, 2)], 0.4),  # two parts at a time
        (caches([10, 11, 12]), 0),  # too few to tell
        (caches([100] * 8), 0),  # a window that slides: always as long
        (caches([37, 80, 41, 66, 52, 90]), 0),  # batches of any length
        (caches([10, 12, 14, 16, 18]), 0),  # longer than what was added: something else adds, too
        ([[[8, 64, 2**n, 2**n]] * 2 for n in range(2, 8)], 0),  # both branches of a U-Net
        ([[[8, n, 4], [8, 1, 5]] for n in range(10, 20)], 0),  # differ in two dimensions
        ([[[8, n, 4], [8, 1]] for n in range(10, 20)], 0),  # of different ranks
        ([[[8, n, 4]] for n in range(10, 20)], 0),  # one tensor
    ],
)
def test_only_a_tensor_that_grows_by_what_is_added_is_a_history(inputs, expected: float):
    assert share(inputs) == pytest.approx(expected)


def test_layers_of_convolutions_may_add_channels():
    inputs = [[[8, n, 14, 14], [8, 32, 14, 14]] for n in range(64, 640, 32)]
    convolution = on_host("op", 60, 90, name="aten::conv2d", id=1_000)
    assert share(inputs) > 0  # keys whose second dimension is the text
    assert share(inputs, convolution) == 0


def test_what_a_backward_pass_needs_is_no_mere_history():
    inputs, backward = caches(range(10, 20)), "autograd::engine::evaluate_function: CatBackward0"
    node = on_host("op", 50, 60, name=backward, sequence=5, id=1_000)
    assert share(inputs, node, sequence=5) == 0
    assert share(inputs, node, sequence=6) > 0
    assert share(inputs, node) > 0


@pytest.mark.parametrize(("us", "expected"), [(LONG_US, Missing("no_shapes")), (SHORT_US, None)])
def test_without_shapes_a_history_is_unknown_where_concatenations_take_time(us: float, expected: Missing | None):
    values = histories(on_cpu([cat(100 * i, us=us) for i in range(10)]))
    assert values == (expected or dict.fromkeys(values, 0))


def test_on_a_device_their_kernels_count():
    ops = [
        on_host("op", i / 10, i / 10 + 0.1, name="aten::cat", shapes=json.dumps([s, []]))
        for i, s in enumerate(caches([9, 10, 11, 12]))
    ]
    ran = [(CAT, 100, {"on": 0}), (ADD, 80, {}), *((CAT, 100, {"on": i}) for i in (1, 2, 3))]
    values = histories(of_pytorch(queued(*ran, (ADD, 500, {}), ops=ops)))
    assert values[HISTORY_COPY_SHARE] == pytest.approx(0.4)
    new_ms = 0.1 * (1 / 10 + 1 / 11 + 1 / 12 + 1 / 13)
    assert values[HISTORY_GAIN_MS] == pytest.approx(0.4 - new_ms, abs=2e-6)
    assert values[HISTORY_LEAST_GAIN_MS] == pytest.approx((0.4 - new_ms) / 2, abs=2e-6)
