"""Layers without gradients that run twice in a step; times in microseconds."""

from __future__ import annotations

import pytest

from tests.tables import cpu_steps, metrics_of, on_host

SHAPES = ["[[8, 3], [64, 3]]", "[[8, 64], [64, 64]]", "[[8, 64], [10, 64]]"]


def share(layers: list[int], sequence: int | None = None) -> float:
    """Of a step of 100 us with these layers, 10 us each."""
    ops = [
        on_host("op", 10 * n, 10 * n + 9, name="aten::linear", shapes=SHAPES[of], sequence=sequence)
        for n, of in enumerate(layers)
    ]
    return metrics_of(cpu_steps(ops, 2))["second_pass_share"]


def test_a_teacher_that_is_called_for_its_features_and_for_its_answer():
    """The second pass through two layers, from 20 to 39 us, and then the head."""
    assert share([0, 1, 0, 1, 2]) == pytest.approx(0.19)


@pytest.mark.parametrize(
    ("layers", "sequence"),
    [([0, 1, 0, 1, 2], 7), ([1, 1, 1, 1], None), ([0, 0], None), ([0, 1, 0, 2], None), ([0, 1, 2], None)],
    ids=["with a graph", "equal layers", "one layer", "another model", "once"],
)
def test_what_is_no_second_pass(layers, sequence):
    assert share(layers, sequence) == 0
