from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.device_bound import ADD, queued
from tests.tables import Row, metrics_of, of_pytorch, on_host, profile, step, view

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
    return metrics_of(on_cpu(calls, *others))["history_copy_share"]


def test_a_cache_that_grows_by_a_token_is_copied_for_each():
    calls = [cat(100 * i, [1, 8, n, 64], [1, 8, 1, 64]) for i, n in enumerate([7, 8, 9, 10])]
    values = metrics_of(on_cpu(calls))
    assert values["history_copy_share"] == pytest.approx(0.4)
    assert values["history_copy_ms"] == pytest.approx(0.16)
    assert values["history_copies_per_step"] == 4
    assert values["history_length"] == 8.5
    new_ms = 0.04 * (1 / 8 + 1 / 9 + 1 / 10 + 1 / 11)
    assert values["history_gain_ms"] == pytest.approx(0.16 - new_ms, abs=2e-6)
    assert values["history_least_gain_ms"] == pytest.approx((0.16 - new_ms) / 2, abs=2e-6)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (caches(range(10, 20), layers=4), 0.4),
        (caches([*range(30, 50), *range(30, 50)]), 0.4),  # a second text begins: 1 of 39 changes
        ([[[1, 8, 1, 64], [1, 8, n, 64]] for n in range(10, 20)], 0),  # a token before each text; texts grow
        (caches([n for n in range(10, 20) for _ in range(1 + n % 3)]), 0),  # sorted by length, some of each
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
    layers = [op("aten::conv2d", [8, n + 32, 14, 14], [32, n + 32, 1, 1], id=1_000 + n) for n in range(64, 640, 32)]
    assert share(inputs) > 0  # keys whose second dimension is the text
    assert share(inputs, *layers) == 0


def op(name: str, *inputs: Sequence[int], options: Sequence[str] = (), **columns: object) -> Row:
    details = {"details": json.dumps(options)} if options else {}
    return on_host("op", 50, 60, name=name, shapes=json.dumps(inputs), **{"id": 1_000} | details | columns)


@pytest.mark.parametrize("name", ["aten::linear", "aten::matmul"])
def test_features_that_a_layer_reads_are_no_history(name: str):
    """A layer that reads 96 columns has weights for 96: no history could grow there."""
    inputs = [[[512, n], [512, 32]] for n in range(64, 640, 32)]
    layers = [op(name, [512, n + 32], [32, n + 32], id=1_000 + n) for n in range(64, 640, 32)]
    assert share(inputs) > 0
    assert share(inputs, *layers) == 0
    assert share([[[n, 512], [32, 512]] for n in range(64, 640, 32)], *layers) > 0  # rows that a layer reads


def window(*reads: Row, cut: Sequence[str] = ("", "0", "", "-32", "1")) -> float:
    """The share of four calls that each put 32 new rows before 992 of 1024."""
    calls = [cat(100 * i, [32, 128], [992, 128], id=i) for i in range(4)]
    slices = [op("aten::slice", [1024, 128], [], [], [], [], options=cut, id=100 + i) for i in range(4)]
    return metrics_of(on_cpu(calls, *slices, *reads))["history_copy_share"]


def read(rows: int, count: int = 4) -> list[Row]:
    options = ["", "0", "0", str(rows), "1"]
    return [op("aten::slice", [1024, 128], [], [], [], [], options=options, id=200 + i) for i in range(count)]


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ([], 0.4),
        (read(512), 0.4),
        (read(513), 0),  # more than half: it may be a batch, shifted by some rows
        (read(128, 20), 0),  # 5 reads of an eighth for each call
        ([op("aten::select", [1024, 128], [], [], id=300)], 0.4),  # one row, or one of 128 columns
        ([op("aten::mm", [1024, 128], [128, 64], id=300)], 0),  # all of it
        ([op("aten::mm", [64, 1024], [1024, 128], id=300)], 0),
        ([op("aten::slice", [1024, 128], [], id=300)], 0),  # not known how much
    ],
)
def test_a_window_slides_if_little_of_it_is_read(reads: Sequence[Row], expected: float):
    assert window(*reads) == pytest.approx(expected)


def test_a_window_keeps_all_but_what_is_new():
    assert window(cut=["", "0", "", "-33", "1"]) == 0
    assert window(cut=["", "1", "", "-32", "1"]) == 0
    values = metrics_of(on_cpu([cat(0, [32, 128], [992, 128])]))
    assert values["history_copy_share"] == values["history_window_part"] == 0


def test_what_a_concatenation_calls_is_no_reader():
    """Without a fast path it copies into slices of its result."""
    inner = [
        op("aten::slice", [1024, 128], [], [], [], [], options=["", "0", "0", "992", "1"], id=400 + i) for i in range(4)
    ]
    inner = [row | {"start_ns": 100_000 * i + 1_000, "dur_ns": 1_000} for i, row in enumerate(inner)]
    calls = [cat(100 * i, [992, 128], [32, 128], id=i) for i in range(4)]
    assert metrics_of(on_cpu(calls, *inner))["history_copy_share"] == 0


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1280, 1408, 1536, 1664], Missing("long_lists")),
        ([1280, 1280, 1280, 1280], 0.0),  # always as many
        ([1280, 1408, 1500, 1664], 0.0),  # batches
        ([1280, 1408, 1536], 0.0),  # too few to tell
    ],
)
def test_a_list_too_long_for_its_shapes_is_unknown_if_it_grows(lengths: Sequence[int], expected: float | Missing):
    calls = [cat(100 * i, [7], id=i) | {"shapes": "[[], []]"} for i in range(len(lengths))]
    means = [
        on_host("op", 100 * i + 50, 100 * i + 60, name="aten::mean", shapes=json.dumps([[n, 64], []]), id=100 + i)
        for i, n in enumerate(lengths)
    ]
    values = metrics_of(on_cpu(calls, *means))
    assert values["history_copy_share"] == expected


def test_what_a_backward_pass_needs_is_no_mere_history():
    inputs, backward = caches(range(10, 20)), "autograd::engine::evaluate_function: CatBackward0"
    node = on_host("op", 50, 60, name=backward, sequence=5, id=1_000)
    assert share(inputs, node, sequence=5) == 0
    assert share(inputs, node, sequence=6) > 0
    assert share(inputs, node) > 0


@pytest.mark.parametrize(("us", "expected"), [(LONG_US, Missing("no_shapes")), (SHORT_US, None)])
def test_without_shapes_a_history_is_unknown_where_concatenations_take_time(us: float, expected: Missing | None):
    values = metrics_of(on_cpu([cat(100 * i, us=us) for i in range(10)]))
    assert values["history_copy_share"] == values["history_gain_ms"] == (expected or 0)


def test_on_a_device_their_kernels_count():
    ops = [
        on_host("op", i / 10, i / 10 + 0.1, name="aten::cat", shapes=json.dumps([s, []]))
        for i, s in enumerate(caches([9, 10, 11, 12]))
    ]
    ran = [(CAT, 100, {"on": 0}), (ADD, 80, {}), *((CAT, 100, {"on": i}) for i in (1, 2, 3))]
    values = metrics_of(of_pytorch(queued(*ran, (ADD, 500, {}), ops=ops)))
    assert values["history_copy_share"] == pytest.approx(0.4)
    new_ms = 0.1 * (1 / 10 + 1 / 11 + 1 / 12 + 1 / 13)
    assert values["history_gain_ms"] == pytest.approx(0.4 - new_ms, abs=2e-6)
    assert values["history_least_gain_ms"] == pytest.approx((0.4 - new_ms) / 2, abs=2e-6)
