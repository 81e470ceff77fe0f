from __future__ import annotations

from collections.abc import Sequence

import pytest

from advisor.model.clause import Missing
from tests.tables import Row, metrics_of, on_host, profile, step, view, worker_row

LAYERS = 3


def products(lengths: Sequence[int], batch: str = "2, ") -> list[Row]:
    """Per step of generation three linear layers, and a head that sees the last token alone."""
    shapes = [f"[[{batch}{tokens}, 64], [256, 64], []]" for length in lengths for tokens in (*[length] * LAYERS, 1)]
    return [on_host("op", at, at + 1, name="aten::linear", shapes=of) for at, of in enumerate(shapes)]


def tokens(host: Sequence[Row]) -> float:
    values = metrics_of(view(profile([], host, [step(1, 0, 1_000, device=None)])))
    return values["generation_tokens"]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([100, 101, 102, 103], 101.5),
        ([*range(10, 30), *range(5, 25)], 17.0),  # one of 39 changes begins another text: (19.5 + 14.5) / 2
        ([100, 101, 102], 1.0),  # too few to tell
        ([100, 164, 228, 292, 356], 1.0),  # a sweep over lengths
        ([37, 80, 41, 66, 52, 90], 1.0),  # batches of any length
        ([100, 1, 1, 1, 1, 1], 1.0),  # with a cache: the prompt, then single tokens
        ([128] * 8, 1.0),
    ],
)
def test_inputs_that_grow_by_one_are_computed_again(lengths: list[int], expected: float):
    assert tokens(products(lengths)) == expected
    assert tokens(products(lengths, batch="")) == expected  # a single text without a batch


def test_without_shapes_it_is_unknown():
    op = on_host("op", 0, 10, name="aten::linear")
    made = profile([], [op], [step(1, 0, 1_000, device=None)], lacks={"host_ops.shapes": Missing("no_shapes")})
    assert worker_row(made)["generation_tokens"] is None
