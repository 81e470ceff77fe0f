"""Padding: its part of the batches, and what ops over the padded length would save without it."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.tables import metrics_of, on_host, profile, step, view

LINEAR = on_host("op", 0, 400, name="aten::linear", shapes="[[16, 256, 64], [64, 64]]")
SOFTMAX = on_host("op", 400, 500, name="aten::softmax", shapes="[[16, 4, 256, 256]]")
UPDATE = on_host("op", 500, 900, name="aten::add_", shapes="[[64, 2560]]")
BATCH = {"rows": 16, "length": 256, "longest": 128, "padding": 0.75}


def trace(*batches: dict[str, Any]) -> DeviceView:
    of = view(profile([], [LINEAR, SOFTMAX, UPDATE], [step(1, 0, 1000, device=None)]))
    of.process["batches"] = [*batches]  # type: ignore[index]  # a reader fills it
    return of


def test_ops_over_the_length_save_in_proportion_and_with_its_square():
    values = metrics_of(trace(BATCH, BATCH))
    assert (values["padding_share"], values["padded_length"], values["longest_length"]) == (0.75, 256, 128)
    assert values["padding_gain_ms"] == pytest.approx(0.4 * (1 - 0.25) + 0.1 * (1 - 0.25**2))
    assert values["padding_least_gain_ms"] == pytest.approx(0.75 * (0.4 * (1 - 0.5) + 0.1 * (1 - 0.5**2)))


def test_rows_and_length_may_stand_as_one_number_and_a_product_of_tokens_is_square():
    flat, product = LINEAR | {"shapes": "[[4096, 64]]"}, LINEAR | {"name": "aten::bmm", "start_ns": 400_000}
    of = view(profile([], [flat, product, UPDATE], [step(1, 0, 1000, device=None)]))
    of.process["batches"] = [BATCH]  # type: ignore[index]
    assert metrics_of(of)["padding_gain_ms"] == pytest.approx(0.4 * (1 - 0.25) + 0.4 * (1 - 0.25**2))


def test_without_scores_where_there_is_no_label_ops_over_rows_and_classes_are_shorter():
    """512 rows and 24,000 classes: the softmax and the last layer's gradient, but not the update of its weights."""
    sizes = {"_log_softmax": "[[512, 24000], []]", "mm": "[[24000, 512], [512, 128]]", "add_": "[[24000, 128]]"}
    ops = [on_host("op", 100 * n, 100 * n + 100, name=f"aten::{of}", shapes=sizes[of]) for n, of in enumerate(sizes)]
    of = view(profile([], ops, [step(1, 0, 1000, device=None)]))
    of.process["batches"] = [{"rows": 8, "length": 64, "longest": 64, "padding": 0.0, "unlabelled": 0.85}]  # type: ignore[index]
    values = metrics_of(of)
    assert values["unlabelled_share"] == pytest.approx(0.85)
    assert (values["unscored_least_gain_ms"], values["unscored_gain_ms"]) == pytest.approx((0.6 * 0.17, 0.17))
    assert metrics_of(trace(BATCH))["unscored_gain_ms"] == 0  # without a softmax, and as older recordings note


def unread(picked: str = "[[51, 6000]]", made: int = 3, alike: int = 1) -> dict[str, Any]:
    """The gradient of 51 rows is spread over 8 x 48, which a layer's node takes; 100 us each, of a step of 1 ms."""
    ops = [
        on_host("op", 0, 100, name="aten::addmm", shapes="[[6000], [384, 128], [128, 6000]]"),
        on_host("op", 100, 300, name="IndexBackward0", shapes=picked, sequence=5),
        on_host("op", 150, 200, name="aten::zero_", shapes="[[8, 48, 6000]]", parent=1),
        on_host("op", 300, 400, name="AddmmBackward0", shapes="[[384, 6000]]", sequence=made),
    ]
    linear = {"name": "aten::linear", "shapes": "[[8, 48, 128], [6000, 128], [6000]]"}
    ops += [on_host("op", 500 + n, 501 + n, **linear) for n in range(alike)]
    return metrics_of(view(profile([], ops, [step(1, 0, 1000, device=None)])))


def test_rows_that_are_dropped_behind_a_layer_are_computed_for_nothing():
    values = unread()
    assert values["unread_share"] == pytest.approx(1 - 51 / 384)
    assert values["unread_gain_ms"] == pytest.approx(0.2 * (1 - 51 / 384))
    assert values["unread_least_gain_ms"] == pytest.approx(0.6 * 0.2 * (1 - 51 / 384))


def test_of_layers_of_one_form_only_those_count_whose_rows_are_dropped():
    assert unread(alike=5)["unread_gain_ms"] == pytest.approx(0.2 * (1 - 51 / 384) / 5)
    assert unread(alike=0)["unread_gain_ms"] == unread()["unread_gain_ms"]


def test_what_is_picked_of_another_tensor_or_long_behind_a_layer_is_not():
    for values in (unread(picked="[[51, 300]]"), unread(made=0), unread(picked="[[384, 6000]]")):
        assert (values["unread_share"], values["unread_gain_ms"]) == (0, 0)


def test_long_batches_count_for_more():
    short = BATCH | {"length": 64, "longest": 64, "padding": 0.0}
    assert metrics_of(trace(BATCH, short))["padding_share"] == pytest.approx(0.75 * 256 / 320)


def test_batches_without_sequences_have_no_padding():
    values = metrics_of(trace())
    assert (values["padding_share"], values["padding_gain_ms"]) == (0, 0)


def test_where_no_batch_was_looked_at_padding_is_unknown():
    plain = view(profile([], [LINEAR], [step(1, 0, 1000, device=None)]))
    assert metrics_of(plain)["padding_share"] == Missing("no_batches")


def test_ops_over_rows_of_an_embedding_whose_ids_hardly_occur_are_shorter_with_fewer_rows():
    shapes = {"embedding": "[[50000, 128], [3, 48], [], [], []]", "mm": "[[144, 128], [128, 50000]]", "add_": "[[128]]"}
    ops = [on_host("op", 100 * n, 100 * n + 100, name=f"aten::{of}", shapes=shapes[of]) for n, of in enumerate(shapes)]
    of = view(profile([], ops, [step(1, 0, 1000, device=None)]))
    of.process["batches"] = [BATCH | {"largest": largest} for largest in (20, 24)]  # type: ignore[index]
    values = metrics_of(of)
    assert (values["largest_id"], values["vocabulary_rows"], values["over_vocabulary_ms"]) == (24, 50000, 0.2)


def test_without_an_embedding_there_is_no_vocabulary():
    values = metrics_of(trace(BATCH))
    assert (values["largest_id"], values["vocabulary_rows"], values["over_vocabulary_ms"]) == (0, 0, 0)
