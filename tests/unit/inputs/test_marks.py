from __future__ import annotations

from advisor.inputs.marks import marks
from tests.tables import Row, kernel, on_host, profile, span


def optimizer(at: float, name: str = "Optimizer.step#SGD.step") -> Row:
    return on_host("annotation", at, at + 5, name=name)


def told(*rows: Row) -> tuple[list[int], str]:
    """Starts of the steps in us, and how they were told."""
    made = profile(host_ops=rows)
    steps, how = marks(made.host_ops, made.device_ops, None)
    return [ns // 1000 for ns in steps["host_start_ns"]], how


def test_steps_of_an_engine_are_alike_whatever_they_do():
    names = ["step[EXTEND bs=1 toks=900]", "step[DECODE bs=1]", "step[DECODE bs=2]"]
    ranges = [on_host("annotation", 100 * i, 100 * i + 90, name=name) for i, name in enumerate(names)]
    graph = {"call": {"kind": "runtime", "name": "cudaGraphLaunch"}, "graph": 1}
    ops = [
        kernel(100 * i + 10, 100 * i + 80) | graph | {"call": graph["call"] | span(100 * i + 5, 100 * i + 6)}
        for i in range(3)
    ]
    made = profile(ops, ranges)
    steps, how = marks(made.host_ops, made.device_ops, None)
    assert steps["host_start_ns"].to_list() == [0, 100_000, 200_000]
    assert 'the 3 ranges "step of a serving engine"' in how


def test_an_optimizer_that_steps_four_times_tells_the_steps():
    assert told(*(optimizer(100 * i) for i in range(4))) == (
        [0, 100, 200, 300],
        "no steps are marked: one is taken from each call of Optimizer.step to the next, medium confidence",
    )
    assert told(*(optimizer(100 * i) for i in range(3))) == ([], "")


def test_steps_that_differ_much_are_of_low_confidence():
    assert told(*(optimizer(at) for at in (0, 100, 300, 700, 1500)))[1].endswith("low confidence")


def test_accumulated_gradients_make_one_step_of_several_batches():
    batches = [on_host("input", 50 * i + 10, 50 * i + 20) for i in range(8)]
    assert told(*batches, *(optimizer(100 * i) for i in range(4)))[0] == [0, 100, 200, 300]


def test_two_optimizers_step_in_one_step():
    batches = [on_host("input", 100 * i, 100 * i + 10) for i in range(4)]
    assert told(*batches, *(optimizer(50 * i + 30) for i in range(8)))[0] == [0, 100, 200, 300]
