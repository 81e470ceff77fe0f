from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from advisor.metrics.metric import Value
from advisor.model.clause import Missing
from tests.tables import Row, metrics_of, on_device, on_host, profile, step, view

NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
SHAPES = "[[[1024]]]"
DDP = ("DistributedDataParallel.forward", NODE, "torch::autograd::AccumulateGrad", "c10d::allreduce_")
SHARDS = ("FSDP::root_pre_forward", "FSDP::post_backward_reduce (0)", "", "c10d::_reduce_scatter_base_")


def one_pass(
    at: float, *, adds: bool, reduces: bool = True, shapes: str = SHAPES, names: Sequence[str] = DDP
) -> list[Row]:
    """A forward pass and a backward pass of 100 us each; the reduction is requested 120 us after the start."""
    forward, range_, node, request = names
    return [
        on_host("annotation", at, at + 100, name=forward),
        on_host("op", at + 100, at + 130, name=range_),
        *([on_host("op", at + 101, at + 110, name=node)] if node else []),
        *([on_host("op", at + 102, at + 109, name="aten::add_")] if adds else []),
        *([on_host("op", at + 120, at + 130, name=request, shapes=shapes)] if reduces else []),
        *([on_host("collective", at + 130, at + 190, name="gloo:all_reduce", thread=9)] if reduces else []),
    ]


def update(at: float) -> list[Row]:
    return [
        on_host("annotation", at, at + 10, name="Optimizer.step#SGD.step"),
        on_host("annotation", at + 10, at + 20, name="Optimizer.zero_grad#SGD.zero_grad"),
    ]


def measured(*host: list[Row], steps: Sequence[Row] = (), device: Sequence[Row] = ()) -> Mapping[str, Value]:
    rows = [row for rows in (update(0), *host) for row in rows]
    workers = [{"worker": 0, "framework": "pytorch"}]
    marks = list(steps) or [step(1, 20, 1000, device=0 if device else None)]
    return metrics_of(view(profile(device, rows, marks, workers=workers)))


def test_each_of_three_passes_reduces():
    values = measured(one_pass(100, adds=False), one_pass(300, adds=True), one_pass(500, adds=True), update(800))
    assert values["reducing_passes_per_update"] == 3
    assert values["repeated_reduction_ms"] == pytest.approx(2 * 0.06)


def test_steps_may_be_marked_for_each_pass():
    steps = [step(n, 200 * n - 100, 200 * n + 100, device=None) for n in (1, 2, 3)]
    passes = [one_pass(100, adds=False), one_pass(300, adds=True), one_pass(500, adds=True)]
    values = measured(*passes, update(690), steps=steps)
    assert values["reducing_passes_per_update"] == 3
    assert values["repeated_reduction_ms"] == pytest.approx(2 * 0.06 / 3)


@pytest.mark.parametrize(
    ("adds", "repeated"),
    [((False, True), 4), ((True, True), 2), ((False, False), 2)],
    ids=["an update of three passes", "of more, the first not recorded", "others"],
)
def test_passes_before_the_first_recorded_update_count_too(adds: tuple[bool, bool], repeated: int):
    """All three reduce the same; the next update has three passes too."""
    host = [
        *(one_pass(-900, adds=adds[0]), one_pass(-700, adds=adds[1]), one_pass(-500, adds=True)),
        *(one_pass(100, adds=False), one_pass(300, adds=True), one_pass(500, adds=True), update(800)),
    ]
    values = measured(*host, steps=[step(1, -900, 0, device=None), step(2, 0, 900, device=None)])
    assert values["reducing_passes_per_update"] == 3
    assert values["repeated_reduction_ms"] == pytest.approx(repeated * 0.06 / 2)


@pytest.mark.parametrize(
    "passes",
    [
        pytest.param([one_pass(100, adds=False, reduces=False), one_pass(300, adds=True)], id="no_sync"),
        pytest.param([one_pass(100, adds=False), one_pass(300, adds=False)], id="two models, one optimizer"),
        pytest.param([one_pass(100, adds=True), one_pass(300, adds=True)], id="gradients set to zero, not to None"),
        pytest.param([one_pass(100, adds=False), one_pass(300, adds=True, shapes="[[[7]]]")], id="other gradients"),
        pytest.param([one_pass(100, adds=False), update(280), one_pass(300, adds=False)], id="one pass per update"),
    ],
)
def test_what_repeats_no_reduction(passes: list[list[Row]]):
    values = measured(*passes, update(800))
    assert (values["reducing_passes_per_update"], values["repeated_reduction_ms"]) == (1, 0)


def test_gradients_that_are_cleared_between_forward_and_backward_pass_begin_anew():
    cleared = [on_host("annotation", at + 95, at + 99, name="Optimizer.zero_grad#SGD.zero_grad") for at in (100, 300)]
    values = measured(one_pass(100, adds=False), cleared, one_pass(300, adds=True), update(800))
    assert values["reducing_passes_per_update"] == 1


def test_a_job_that_reduces_nothing_has_no_such_pass():
    assert measured([on_host("op", 100, 200, name="aten::mm")])["reducing_passes_per_update"] == 0


def test_reductions_of_activations_are_no_gradients():
    """Tensor parallelism reduces in other nodes of the backward pass, in each pass of necessity."""
    names = (DDP[0], "autograd::engine::evaluate_function: CopyToRegionBackward", DDP[2], DDP[3])
    values = measured(one_pass(100, adds=False, names=names), one_pass(300, adds=True, names=names), update(800))
    assert values["reducing_passes_per_update"] == 0


def test_shards_reduce_in_ranges_of_their_own():
    values = measured(one_pass(100, adds=False, names=SHARDS), one_pass(300, adds=True, names=SHARDS), update(800))
    assert values["reducing_passes_per_update"] == 2
    assert values["repeated_reduction_ms"] == pytest.approx(0.06)


def test_on_a_device_the_launch_says_which_pass_requests_a_collective():
    # The kernel of 350 to 400 us hides half of the first collective; the second one is needed.
    device = [
        on_device("collective", 300, 400, launched=225),
        on_device("kernel", 350, 400, launched=250),
        on_device("collective", 600, 700, launched=425),
    ]
    values = measured(one_pass(100, adds=False), one_pass(300, adds=True), update(800), device=device)
    assert values["reducing_passes_per_update"] == 2
    assert values["repeated_reduction_ms"] == pytest.approx(0.05)


def test_without_ops_nothing_is_known():
    assert measured()["reducing_passes_per_update"] == Missing("no_host_op")
