"""Steps of 100 us with a backward pass from 50 to 90 us, as PyTorch records them on a CPU."""

from __future__ import annotations

from functools import partial

import pytest

from tests.tables import cpu_steps, kernel, on_host, profile, step, values_of, view

NODE = "autograd::engine::evaluate_function: "

again = partial(values_of, ("recomputed_share", "recomputations_per_step", "recomputed_gain_ms"))
repeated = partial(values_of, ("repeated_backward_share", "repeated_backward_gain_ms"))
graph = partial(
    values_of, ("graph_ops_per_step", "unused_forward_share", "unused_forward_steps_share", "graph_gain_ms")
)


def op(start: int, end: int, name: str, sequence: int | None = None, shapes: str | None = None):
    return on_host("op", start, end, name=name, sequence=sequence, shapes=shapes)


def recomputing(node: str, layer: str = "aten::linear", sequence: int | None = 7):
    """A node from 50 to 90 that computes a layer from 55 to 65 and what follows it to 70, and then its gradient."""
    return [
        op(0, 20, "aten::linear", 1),
        op(50, 90, NODE + node),
        op(51, 89, node),
        op(55, 65, layer, sequence),
        op(66, 70, "aten::gelu", sequence),
        op(75, 85, "aten::mm"),
    ]


@pytest.mark.parametrize("node", ["AddmmBackward0", "CheckpointFunctionBackward"])
def test_layers_within_nodes_of_the_backward_pass_are_computed_again(node: str):
    assert again(cpu_steps(recomputing(node), 2)) == pytest.approx(
        {"recomputed_share": 0.15, "recomputations_per_step": 1, "recomputed_gain_ms": 0.015}
    )


@pytest.mark.parametrize(
    "ops",
    [
        recomputing("RevNetBackward"),
        recomputing("AddmmBackward0", sequence=None),
        recomputing("AddmmBackward0", layer="aten::mm"),
    ],
    ids=["a function of the program's", "without gradients", "a gradient of a gradient"],
)
def test_other_ops_within_nodes_are_not(ops):
    assert again(cpu_steps(ops))["recomputed_share"] == 0


def test_what_nested_nodes_run_is_no_forward_pass():
    """A checkpoint of the older mode goes back through the layers right there: its ops count up to 70 only."""
    nested = [op(71, 88, NODE + "MmBackward0"), op(72, 80, "aten::linear", 9)]
    assert again(cpu_steps(recomputing("CheckpointFunctionBackward") + nested))["recomputed_share"] == pytest.approx(
        0.15
    )


def test_with_a_device_a_replay_tells_what_is_saved():
    """The device waits for the host: a replay without the 15 us of the host, and the kernel in them, saves those."""
    rows = recomputing("AddmmBackward0")
    seen = view(profile([kernel(60, 72, 58), kernel(78, 95, 77)], rows, [step(0, 0, 100)]))
    assert again(seen)["recomputed_gain_ms"] == pytest.approx(0.015)


def inference(*extra):
    return [op(0, 20, "aten::addmm", 1), op(20, 40, "aten::addmm", 2), *extra]


@pytest.mark.parametrize(
    ("name", "op_us", "gain_ms"),
    [
        ("convolution", 20, 0.5),
        ("convolution", 120, 0.45),
        ("addmm", 520, 0.25),
        ("_scaled_dot_product_flash_attention_for_cpu", 500, 0.5),
        ("_scaled_dot_product_flash_attention_for_cpu", 620, 0.2),
    ],
)
def test_products_calculate_as_long_without_a_graph(name, op_us, gain_ms):
    """One of each step of 1,000 us: half of all but what it takes beyond 20 us, with attention if it takes over 500."""
    rows = [op(1000 * i, 1000 * i + op_us, f"aten::{name}", i + 1) for i in range(3)]
    seen = view(profile((), rows, [step(i, 1000 * i, 1000 * i + 1000, device=None) for i in range(3)], devices=()))
    assert graph(seen)["graph_gain_ms"] == pytest.approx(gain_ms)


def test_inference_may_build_a_graph():
    """Sequence numbers 1 and 2 in three steps; half of each step is the most that it can take."""
    ops = [row | {"sequence": row["sequence"] + 2 * i} for i in range(3) for row in inference()]
    rows = [row | {"start_ns": row["start_ns"] + 100_000 * (i // 2)} for i, row in enumerate(ops)]
    seen = view(profile((), rows, [step(i, 100 * i, 100 * i + 100, device=None) for i in range(3)], devices=()))
    assert graph(seen) == pytest.approx(
        {"graph_ops_per_step": 2, "graph_gain_ms": 0.05, "unused_forward_share": 0, "unused_forward_steps_share": 0}
    )


@pytest.mark.parametrize(
    ("ops", "count"),
    [
        (inference(op(50, 60, NODE + "AddmmBackward0")), 3),
        (inference(on_host("annotation", 50, 60, name="Optimizer.step#SGD.step")), 3),
        (inference(), 2),
        ([op(0, 20, "aten::addmm"), op(20, 40, "aten::addmm")], 3),
    ],
    ids=["a backward pass", "an optimizer", "two steps", "no graph"],
)
def test_what_trains_or_builds_none_is_not_such(ops, count: int):
    assert set(graph(cpu_steps(ops, count)).values()) == {0}


def with_two_forward_passes(first: int = 3, second: int = 4, thread: int = 1):
    """Three steps of two forward passes of 20 and 15 us, with such numbers in the second, and a backward pass."""
    ops = [
        *(op(0, 10, "aten::linear", 1), op(2, 10, "aten::addmm", 1), op(10, 20, "aten::addmm", 2)),
        *(op(50, 60, NODE + "AddmmBackward0", 2), op(60, 70, NODE + "AddmmBackward0", 1)),
        *(op(75, 80, "aten::addmm", first) | {"thread": thread}, op(80, 90, "aten::addmm", second)),
        op(92, 95, "aten::argmax", 5),
    ]
    rows = [
        row | {"start_ns": row["start_ns"] + 100_000 * i, "sequence": row["sequence"] + 4 * i}
        for i in range(3)
        for row in ops
    ]
    return view(profile((), rows, [step(i, 100 * i, 100 * i + 100, device=None) for i in range(3)], devices=()))


def test_a_forward_pass_of_a_training_without_a_backward_pass_builds_a_graph_for_nothing():
    """From 75 to 90 us in two of three steps: after the third, a backward pass may follow."""
    assert graph(with_two_forward_passes()) == pytest.approx(
        {
            "graph_ops_per_step": 4 / 3,
            "unused_forward_share": 0.1,
            "unused_forward_steps_share": 2 / 3,
            "graph_gain_ms": 0.01,
        }
    )


@pytest.mark.parametrize(
    "passes",
    [{"first": 4}, {"first": 2, "second": 1}, {"thread": 2}],
    ids=["one number: frozen layers", "the numbers of nodes", "two threads"],
)
def test_other_forward_passes_do_not(passes):
    assert set(graph(with_two_forward_passes(**passes)).values()) == {0}


def passes_again(*, name: str = "MmBackward0", sequence: int = 1, extra=()):
    """Two backward passes of two nodes of 10 us; the second one goes through the second node of the first again."""
    return [
        op(0, 10, "aten::mm", 1),
        op(10, 20, "aten::sub", 2),
        op(50, 60, NODE + "SubBackward0", 2),
        op(60, 70, NODE + "MmBackward0", 1),
        op(70, 80, NODE + "AddBackward0", 3),
        op(80, 90, NODE + name, sequence),
        *extra,
    ]


def test_a_node_with_the_number_of_an_earlier_one_is_gone_through_again():
    assert repeated(cpu_steps(passes_again(), 2)) == pytest.approx(
        {"repeated_backward_share": 0.1, "repeated_backward_gain_ms": 0.01}
    )


@pytest.mark.parametrize(
    "ops",
    [
        passes_again(sequence=4),
        passes_again(name="TBackward0"),
        passes_again(extra=[op(62, 66, "aten::mm", 5)]),
        passes_again(extra=[op(22, 26, "aten::mm", 5) | {"thread": 2}]),
    ],
    ids=["another number", "another node of an op", "gradients of gradients", "numbers of two threads"],
)
def test_other_nodes_are_not(ops):
    assert repeated(cpu_steps(ops))["repeated_backward_share"] == 0
