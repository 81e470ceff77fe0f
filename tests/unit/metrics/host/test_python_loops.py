"""Loops of Python over small ops on a CPU, and what repeats without being one; times in us."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from advisor.analysis.device.view import DeviceView
from tests.tables import metrics_of, on_host, profile, step, view

python_bound = metrics_of
PYTORCH = [{"worker": 0, "framework": "pytorch"}]
NODE = "autograd::engine::evaluate_function: "
CONFUSION = ["aten::item", "aten::select", "aten::add_"]
MOVING = ["aten::mul_", "aten::add_"]


def job(names: Sequence[str], lasts: int = 15) -> DeviceView:
    """A step of 20 ms: these ops, 5 us after each, and then only the node of a layer."""
    ops = [on_host("op", at * (lasts + 5), at * (lasts + 5) + lasts, name=name) for at, name in enumerate(names)]
    node = on_host("op", len(names) * (lasts + 5), 20_000, name=NODE + "AddmmBackward0", sequence=len(names) - 1)
    return view(profile([], [*ops, node], [step(1, 0, 20_000, device=None)], workers=PYTORCH))


def test_a_loop_that_reads_values_is_python_with_all_its_ops():
    # 100 passes of three ops of 15 us, 5 apart, without the 5 after the last; an op in 301 that were recorded is a node
    made = job(CONFUSION * 100)
    values = metrics_of(made)
    assert values["python_loop_share"] == pytest.approx(5.995 / 20)
    assert (values["python_loop_passes"], values["python_loop_reads"]) == (100, 100)
    bound = metrics_of(made)
    assert bound["python_gain_ms"] == pytest.approx(6)
    assert bound["python_least_gain_ms"] == pytest.approx(0.25 * (6 - 0.301) * 0.99 * 5.995 / 6)


@pytest.mark.parametrize(
    ("names", "lasts", "ms"),
    [
        (MOVING * 100, 15, 200 * 20 - 5),
        (MOVING * 100, 99, 200 * 104 - 5),
        (MOVING * 50, 100, 100 * 105 - 5 - 100 * 100),  # tensors so large that their ops are work
        ([*CONFUSION, "aten::copy_"] * 8, 100, 32 * 105 - 5),  # but a value that is read may be one that is logged
        ([*CONFUSION * 8, "aten::sub_", *CONFUSION * 8], 15, 2 * (24 * 20 - 5)),  # a branch that is taken once
        (["aten::argmax", *CONFUSION * 8, "aten::sum"], 15, 24 * 20 - 5),
        (CONFUSION * 7, 15, 0),
        (["aten::linear", "aten::relu", "aten::add"] * 48, 15, 0),  # layers in evaluation
        (["c10d::allreduce_", "aten::div_"] * 62, 15, 0),
        (["torch.distributed.ddp.reducer::copy_bucket_to_grad", "aten::div_"] * 62, 15, 0),
        ([NODE + "torch::autograd::AccumulateGrad"] * 62, 15, 0),
        ([f"aten::op{i % 9}{i % 7}" for i in range(63)] * 7, 15, 0),  # many kinds, each 7 times
    ],
)
def test_a_loop_runs_the_same_few_ops_in_a_row(names: list[str], lasts: int, ms: float):
    made = job(names, lasts)
    assert metrics_of(made)["python_loop_share"] == pytest.approx(min(1, ms / 20_000), abs=1e-6)


def test_what_autograd_or_an_optimizer_follows_is_no_loop():
    followed = [on_host("op", 10 * i, 10 * i + 8, name="aten::exp", sequence=i) for i in range(40)]
    nodes = [on_host("op", 1_000 + 10 * i, 1_008 + 10 * i, name=NODE + "ExpBackward0", sequence=i) for i in range(40)]
    update = on_host("annotation", 2_000, 3_000, name="Optimizer.step#SGD.step")
    updates = [on_host("op", 2_000 + 10 * i, 2_008 + 10 * i, name="aten::add_") for i in range(40)]
    made = profile([], [*followed, *nodes, update, *updates], [step(1, 0, 3_000, device=None)], workers=PYTORCH)
    assert metrics_of(view(made))["python_loop_share"] == 0


@pytest.mark.parametrize(("name", "us"), [("aten::mul", 40 * 10 - 2), ("aten::linear", 0)])
def test_a_node_of_the_program_s_own_may_hold_a_loop(name: str, us: int):
    node = on_host("op", 0, 1_000, name=NODE + "NormBackward")
    ops = [on_host("op", at, at + 8, name=name, parent=0) for at in range(100, 500, 10)]
    inner = [on_host("op", 101 + 10 * i, 102 + 10 * i, name="aten::empty", parent=1 + i) for i in range(40)]
    made = profile([], [node, *ops, *inner], [step(1, 0, 1_000, device=None)], workers=PYTORCH)
    assert metrics_of(view(made))["python_loop_share"] == pytest.approx(us / 1_000)


def test_pauses_in_a_loop_are_the_loop_s_up_to_its_own_time():
    """A busy machine, or Python of which nothing was recorded: 4.7 ms in a loop of 2.6 ms."""
    ops = [on_host("op", 20 * i, 20 * i + 15, name=name) for i, name in enumerate(CONFUSION * 40)]
    late = [op | {"start_ns": op["start_ns"] + 6_000_000} for op in ops[:64]]
    made = view(profile([], [*ops[:64], *late], [step(1, 0, 7_400, device=None)], workers=PYTORCH))
    # 64 ops from 0 and from 6 ms on take 1.275 ms each
    assert metrics_of(made)["python_loop_gain_ms"] == pytest.approx(2 * (2 * 1.275))


def test_beside_a_loop_long_silence_may_be_python_too():
    """A loop of 1.995 ms, and 5 ms in which a log may be written, or a lock waited for."""
    ops = [on_host("op", 20 * i, 20 * i + 15, name=name) for i, name in enumerate([*CONFUSION * 33, "aten::item"])]
    made = view(profile([], ops, [step(1, 0, 7_000, device=None)], workers=PYTORCH))
    values = metrics_of(made)
    assert values["python_bound_share"] == pytest.approx(1.995 / 7)
    assert values["python_gain_ms"] == pytest.approx(7)
    assert metrics_of(made)["python_loop_gain_ms"] == pytest.approx(7)
    assert 0 < values["python_least_gain_ms"] < 0.25 * 1.995


def test_a_loop_of_which_no_step_is_marked_may_be_that_of_the_steps():
    ops = [on_host("op", 10 * i, 10 * i + 8, name=name) for i, name in enumerate(CONFUSION * 20)]
    assert metrics_of(view(profile([], ops, workers=PYTORCH)))["python_loop_share"] == 0
