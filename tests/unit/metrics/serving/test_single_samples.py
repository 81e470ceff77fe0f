"""Samples that a model gets one by one, as the shapes of its products show."""

from __future__ import annotations

import pytest

from tests.tables import Row, kernel, metrics_of, on_host, profile, step, view

ADDMM, GELU = "[[8], [1, 64], [64, 8], [], []]", "[[1, 64], []]"


def sample(at: float, name: str = "aten::addmm", shapes: str = ADDMM) -> list[Row]:
    """A product and an activation of 4 us each, of 10."""
    rows = [("op", at, name, shapes), ("op", at + 5, "aten::gelu", GELU)]
    return [on_host(kind, begin, begin + 4, name=of, shapes=size) for kind, begin, of, size in rows]


def found(*more: Row, product: tuple[str, str] = ("aten::addmm", ADDMM)) -> tuple[object, object]:
    host = [row for n in range(8) for row in sample(10 * n, *product)]
    values = metrics_of(view(profile([], [*host, *more], [step(1, 0, 100, device=None)])))
    return values["single_row_share"], values["single_row_runs"]


@pytest.mark.parametrize(
    "product",
    [("aten::addmm", ADDMM), ("aten::mm", "[[1, 64], [64, 8]]"), ("aten::mv", "[[8, 64], [64]]")],
)
def test_a_model_that_gets_single_rows_works_on_them_all_the_time(product: tuple[str, str]):
    assert found(product=product) == (pytest.approx(0.64), 8)  # 8 x 8 of 100 us


@pytest.mark.parametrize(
    "product",
    [
        ("aten::addmm", "[[8], [16, 64], [64, 8], [], []]"),
        ("aten::mm", "[[12, 64], [64, 8]]"),
        ("aten::convolution", "[[1, 3, 64, 64], [8, 3, 3, 3]]"),  # an image is rows enough
    ],
)
def test_products_of_several_rows_are_batches(product: tuple[str, str]):
    assert found(product=product) == (0, 0)


def test_tokens_that_need_those_before_them_are_no_samples():
    assert found(on_host("op", 90, 99, name="aten::scaled_dot_product_attention", shapes="[[1, 8]]")) == (0, 0)


def test_a_device_is_judged_by_its_kernels():
    host = [row for n in range(8) for row in sample(10 * n)]
    assert metrics_of(view(profile([kernel(0, 10, 0)], host, [step(1, 0, 100)])))["single_row_share"] == 0
