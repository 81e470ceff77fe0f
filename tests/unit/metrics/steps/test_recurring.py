from __future__ import annotations

from itertools import pairwise

import pytest

from tests.tables import Row, metrics_of, on_host, profile, step, view


def found(*long: int, more: tuple[int, ...] | None = None):
    """Of nine steps of 100 us with four ops each the `long` ones take 300 us; those of `more` run three ops more."""
    starts, rows, at = [], [], 0
    for i in range(9):
        starts.append(at)
        ops = [(10 + 20 * k, 20 + 20 * k, "train") for k in range(4)]
        ops += (
            [(100 + 60 * k, 150 + 60 * k, "validate") for k in range(3)]
            if i in (long if more is None else more)
            else []
        )
        rows += [on_host("op", at + begin, at + end, name=name) for begin, end, name in ops]
        # what waits for the validation's kernels is no work
        rows += [on_host("sync", at + 272, at + 298, name="cudaStreamSynchronize")] if i in long else []
        at += 300 if i in long else 100
    steps: list[Row] = [step(i, a, b) for i, (a, b) in enumerate(zip(starts, [*starts[1:], at], strict=True))]
    made = view(profile(host_ops=rows, steps=steps, devices=()), "steady")
    return made.steps.height, metrics_of(made)


def test_every_third_step_validates():
    used, values = found(2, 5, 8)
    assert used == 9
    assert values["recurring_steps"] == values["recurring_every"] == 3
    assert values["recurring_excess_ms"] == pytest.approx(3 * 0.2 / 9)
    assert values["recurring_work"] == "validate (0.15 ms)"


@pytest.mark.parametrize(
    ("long", "more"), [((2, 5), ()), ((2, 5, 7), None), ((5,), None)], ids=["same work", "no distance", "once"]
)
def test_a_step_that_is_long_for_another_reason_is_left_out(long: tuple[int, ...], more: tuple[int, ...] | None):
    used, values = found(*long, more=more)
    assert used == 9 - len(long)
    assert values["recurring_steps"] == values["recurring_excess_ms"] == 0


@pytest.mark.parametrize(
    ("long", "late", "calls", "pause", "excess"),
    [
        ((3, 7), (), 1, 0, 0.0),
        ((3, 8), (), 1, 0, 0.0),
        ((5,), (), 1, 0, 0.0),
        ((3, 7), (5,), 1, 0, 0.0),
        ((3, 7), (), 2, 0, 2 * 0.4 / 9),
        ((3, 7), (), 1, 500, 2 * 0.9 / 9),
    ],
    ids=["a queue", "at any distance", "once", "a slow call beside", "more programs", "a pause"],
)
def test_a_step_that_waits_for_what_the_others_called_does_no_more(
    long: tuple[int, ...], late: tuple[int, ...], calls: int, pause: int, excess: float
):
    """Each step of 10 us calls a program of ten ops, which run while a long one waits for what was called before."""
    rows, steps, at = [], [], 0
    for i in range(9):
        called, ops, length = (calls, 40, 410 + pause) if i in long else (1, 1, 20 if i in late else 10)
        rows += [on_host("annotation", at + k, at + k + 1, name="PjitFunction(train)") for k in range(called)]
        rows += [on_host("op", at + 10 * k + 5, at + 10 * k + 14, name=f"fusion.{k}", thread=2) for k in range(ops)]
        steps.append(step(i, at, at + length))
        at += length
    made = view(profile(host_ops=rows, steps=steps, devices=()), "steady")
    values = metrics_of(made)
    assert (made.steps.height, values["outlier_steps"]) == (9, 0)
    assert values["recurring_steps"] == len(long) + len(late)
    assert values["recurring_excess_ms"] == pytest.approx(excess)


@pytest.mark.parametrize(("name", "used"), [("c10d::allreduce_", 9), ("Optimizer.step#SGD.step", 9), ("train", 7)])
def test_the_last_of_several_steps_that_add_up_gradients_is_no_accident(name: str, used: int):
    starts = [0, 100, 200, 300, 600, 700, 800, 900, 1200, 1300]
    ends = {3: name, 7: name}
    ops = [on_host("op", at + 10, at + 90, name=ends.get(i, "train")) for i, at in enumerate(starts[:-1])]
    steps = [step(i, a, b) for i, (a, b) in enumerate(pairwise(starts))]
    assert view(profile(host_ops=ops, steps=steps, devices=()), "steady").steps.height == used


@pytest.mark.parametrize(
    ("usual", "recurring", "alike"),
    [(1, 1, 1), (0, 1, 0), (1, 2, 0), (0, 0, 0)],
    ids=["a validation", "the end of an accumulation", "a second network", "nothing tells"],
)
def test_only_work_beside_the_updates_may_be_done_less_often(usual: int, recurring: int, alike: int):
    """Every fourth of nine steps takes three times as long and runs nine ops in place of three."""
    rows, steps, at = [], [], 0
    for i in range(9):
        is_long = i in {3, 7}
        length, ops, updates = (300, 9, recurring) if is_long else (100, 3, usual)
        rows += [on_host("op", at + 10 * k, at + 10 * k + 9, name="train") for k in range(ops)]
        rows += [
            on_host("annotation", at + 90 + k, at + 91 + k, name="Optimizer.step#SGD.step") for k in range(updates)
        ]
        steps.append(step(i, at, at + length))
        at += length
    values = metrics_of(view(profile(host_ops=rows, steps=steps, devices=()), "steady"))
    assert values["recurring_steps"] == 2
    assert values["updates_alike"] == alike
