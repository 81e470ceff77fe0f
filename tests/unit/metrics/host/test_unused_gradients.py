"""Gradients that no optimizer uses, on a few ops; times in microseconds."""

from __future__ import annotations

from functools import partial

import pytest

from advisor.model.clause import Missing
from tests.tables import cpu_steps, on_host, profile, step, values_of, view

NODE = "autograd::engine::evaluate_function: "
GRADIENT = "torch::autograd::AccumulateGrad"

NAMES = (
    "unused_gradients",
    "unused_gradients_cleared",
    "unused_gradients_share",
    "unused_gradients_least_gain_ms",
    "unused_gradients_gain_ms",
)
gradients = partial(values_of, NAMES)


def op(start: int, end: int, name: str, sequence: int | None = None, shapes: str | None = None):
    return on_host("op", start, end, name=name, sequence=sequence, shapes=shapes)


def training(*, updated: str = "[[10, 64]]", update: str = "aten::addcdiv_"):
    """Gradients of a head from 60 to 62, and of two layers before it; a layer's node takes 10 us on each side."""
    return [
        op(50, 60, NODE + "AddmmBackward0"),
        op(60, 62, GRADIENT, shapes="[[10, 64]]"),
        op(62, 72, NODE + "AddmmBackward0"),
        op(72, 74, GRADIENT, shapes="[[64, 3]]"),
        op(74, 76, GRADIENT, shapes="[[64]]"),
        op(76, 86, NODE + "MmBackward0"),
        op(86, 88, GRADIENT, shapes="[[3]]"),
        on_host("annotation", 91, 99, name="Optimizer.step#Adam.step"),
        op(92, 95, update, shapes=updated),
    ]


def test_gradients_of_shapes_that_no_optimizer_writes_are_unused():
    """After the head's gradient at 62 three more follow, the last up to 88."""
    assert gradients(cpu_steps(training(), 2)) == pytest.approx(
        {
            "unused_gradients": 3,
            "unused_gradients_cleared": 2,
            "unused_gradients_share": 0.26,
            "unused_gradients_least_gain_ms": 0.026,
            "unused_gradients_gain_ms": 0.026,
        }
    )


def test_what_a_list_without_shapes_updates_is_unknown():
    """PyTorch records no shapes of more than 30 tensors: the layers' may be among them."""
    fused = op(95, 97, "aten::_fused_adamw_", shapes="[[],[],[],[],[],[],[]]")
    assert gradients(cpu_steps([*training(), fused], 2))["unused_gradients"] == 0


def test_unused_gradients_before_a_used_one_are_a_part_of_layers():
    """Up to 76: two of three are unused; of two nodes of 10 us three quarters are for weights; then 12 us follow."""
    values = gradients(cpu_steps(training(updated="[[64]]"), 2))
    assert values["unused_gradients_least_gain_ms"] == pytest.approx(0.012)
    assert values["unused_gradients_gain_ms"] == pytest.approx(0.012 + 0.75 * 0.020 * 2 / 3)


def adding_up(count: int, cleared: int = 0):
    """So many steps in which the last three gradients add to those of the step before, except in the first ones."""
    adds = [op(at, at + 1, "aten::add_", shapes="[[3], [3], []]") for at in (72, 74, 86)]
    rows = [training() + adds * (i >= cleared) for i in range(count)]
    shifted = [row | {"start_ns": row["start_ns"] + 100_000 * i} for i, ops in enumerate(rows) for row in ops]
    return view(profile((), shifted, [step(i, 100 * i, 100 * i + 100, device=None) for i in range(count)], devices=()))


@pytest.mark.parametrize(("count", "cleared"), [(7, 0), (7, 1), (1, 1)])
def test_gradients_that_add_up_may_be_for_an_optimizer_that_updates_later(count: int, cleared: int):
    missing = Missing("updates_may_follow", needed=8)
    assert set(gradients(adding_up(count, cleared)).values()) == {missing}


@pytest.mark.parametrize(("count", "cleared"), [(8, 0), (2, 2)], ids=["eight updates", "cleared without an update"])
def test_gradients_are_unused_if_they_are_cleared_or_others_are_updated_often(count: int, cleared: int):
    assert gradients(adding_up(count, cleared))["unused_gradients"] == 3


def in_turn(*extra, generator: str = "[3]"):
    """A discriminator's gradient to 22, and after 10 us of its backward pass the generator's; then the other way round.

    The generator's first gradient adds to what is left of the step before; that at 72 is stored anew.
    """
    updates = [on_host("annotation", at, at + 6, name="Optimizer.step#Adam.step") for at in (40, 80)]
    passes = [
        op(20, 22, GRADIENT, shapes="[[10, 64]]"),
        op(32, 34, GRADIENT, shapes=f"[{generator}]"),
        op(33, 34, "aten::add_", shapes=f"[{generator}, {generator}, []]"),
        op(42, 44, "aten::addcdiv_", shapes="[[10, 64]]"),
        op(60, 62, GRADIENT, shapes="[[10, 64]]"),
        op(61, 62, "aten::add_", shapes="[[10, 64], [10, 64], []]"),
        op(72, 74, GRADIENT, shapes=f"[{generator}]"),
        op(82, 84, "aten::addcdiv_", shapes=f"[{generator}]"),
    ]
    return cpu_steps([*updates, *passes, *extra], 3)


def test_gradients_that_are_cleared_before_their_optimizer_updates_are_unused():
    """Of each step the generator's first gradient, 12 us after the last in use, and of two the discriminator's second.

    The last step's second gradient of the discriminator may be used after the recording.
    """
    values = gradients(in_turn())
    assert (values["unused_gradients"], values["unused_gradients_cleared"]) == (pytest.approx(5 / 3), 3)
    assert values["unused_gradients_share"] == pytest.approx(0.12)


@pytest.mark.parametrize("name", ["aten::clone", "aten::_foreach_norm", "aten::mul_"])
def test_gradients_that_the_program_reads_may_be_used(name: str):
    """It reads the generator's first one; the discriminator's second one stays unused."""
    assert gradients(in_turn(op(50, 51, name, shapes="[[3]]")))["unused_gradients"] == pytest.approx(2 / 3)


def test_models_with_parameters_of_one_shape_are_not_told_apart():
    assert gradients(in_turn(generator="[10, 64]"))["unused_gradients"] == 0


@pytest.mark.parametrize("name", ["aten::t", "aten::linear"])
def test_layers_that_take_the_parameters_do_not_read_their_gradients(name: str):
    shapes = "[[3]]" if name == "aten::t" else "[[8, 8], [3]]"
    assert gradients(in_turn(op(50, 51, name, shapes=shapes)))["unused_gradients"] == pytest.approx(5 / 3)


@pytest.mark.parametrize(
    ("updated", "update"),
    [
        ("[[[10, 64], [64, 3], [64], [3]], [[10, 64]]]", "aten::_fused_adam_"),
        ("[[5, 64]]", "aten::addcdiv_"),
        ("[[10, 64]]", "aten::zero_"),
    ],
    ids=["all of them at once", "parts of them", "a buffer"],
)
def test_where_optimizers_write_all_or_none_of_these_shapes_nothing_is_unused(updated: str, update: str):
    assert set(gradients(cpu_steps(training(updated=updated, update=update))).values()) == {0}


def test_a_rank_of_a_job_may_update_a_part():
    ops = [*training(), on_host("collective", 90, 91, name="gloo:broadcast")]
    assert gradients(cpu_steps(ops))["unused_gradients"] == 0


def test_without_shapes_it_is_unknown():
    assert set(gradients(cpu_steps([op(60, 62, GRADIENT)])).values()) == {Missing("no_shapes")}


def of_two_heads(updated: str, update: str = "aten::addcdiv_", *, first: str = "aten::mul_"):
    """Gradients of a head's weight and bias at 60 and 64, of a layer at 70, and of an embedding as large to 90."""
    updates = [on_host("annotation", 91, 99, name="Optimizer.step#Adam.step")]
    updates += [
        op(92, 93, first, shapes=updated),
        op(93, 94, first, shapes=updated),
        op(94, 95, update, shapes=updated),
    ]
    return [
        op(50, 60, NODE + "AddmmBackward0"),
        op(60, 62, GRADIENT, shapes="[[2]]"),
        op(62, 64, GRADIENT, shapes="[[2, 8]]"),
        op(70, 72, GRADIENT, shapes="[[64, 3]]"),
        op(88, 90, GRADIENT, shapes="[[2, 8]]"),
        *updates,
        op(95, 96, "aten::mul_", shapes="[[2]]"),
        op(96, 97, "aten::addcdiv_", shapes="[[2]]"),
    ]


@pytest.mark.parametrize(
    ("updated", "update"),
    [("[[2, 8], []]", "aten::addcdiv_"), ("[[[2, 8], [2]], [[2, 8], [2]], []]", "aten::_foreach_addcdiv_")],
)
def test_of_parameters_with_one_shape_those_beside_the_other_updated_ones_are_used(updated: str, update: str):
    """One tensor of 2 x 8 is updated, and one of 2: the head's, whose gradients are in a row; 26 us follow."""
    values = gradients(cpu_steps(of_two_heads(updated, update), 2))
    assert (values["unused_gradients"], values["unused_gradients_share"]) == (2, pytest.approx(0.26))


def test_as_many_gradients_as_updated_parameters_of_a_shape_are_all_used():
    ops = [*of_two_heads("[[2, 8], []]"), op(97, 98, "aten::addcdiv_", shapes="[[2, 8], []]")]
    assert gradients(cpu_steps(ops, 2))["unused_gradients"] == 1


def test_of_several_blocks_the_last_may_be_the_used_one():
    """The layer of 64 x 3 is between the two that could be updated: the second may be, and nothing follows it."""
    ops = [row for row in of_two_heads("[[2, 8], []]") if row.get("shapes") != "[[2]]"]
    assert gradients(cpu_steps(ops, 2))["unused_gradients_share"] == 0


def test_gradients_that_are_clipped_may_save_that_too():
    """Of four gradients two are unused: after 26 us of them, half of a clipping of 1 us at most."""
    values = gradients(cpu_steps([*of_two_heads("[[2, 8], []]"), op(90, 91, "aten::_foreach_norm")], 2))
    assert values["unused_gradients_least_gain_ms"] == pytest.approx(0.026)
    assert values["unused_gradients_gain_ms"] == pytest.approx(0.0265)


def test_parameters_that_no_optimizer_has_name_the_line_that_calls_their_part():
    of = view(profile([], [], [step(1, 0, 1000, device=None)]))
    of.process.update(unheld=24, unheld_part="backbone")
    frame = {"function": "main", "line": "train.py:38", "call": "self.backbone"}
    rows = [(frame["line"], frame["call"], None, 20), ("net.py:7", "self.stages", [frame], 30)]
    for line, call, callers, samples in rows:
        known = {"function": "forward", "line": line, "call": call, "callers": callers, "below": []}
        row = known | {"samples": samples, "ns": samples, "above": None, "of_loader": False}
        of.process["stacks"] = [*(of.process.get("stacks") or ()), row]
    values = values_of(("unheld_parameters", "unheld_line"), of)
    assert values == {"unheld_parameters": 24, "unheld_line": "train.py:38 `self.backbone(...)`"}
