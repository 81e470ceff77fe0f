from __future__ import annotations

import polars as pl
import pytest

from advisor.inputs.step_marks import marks
from advisor.model.clause import Note
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
    assert 'the 3 ranges "step of a serving engine"' in (how and how.words)


def test_an_optimizer_that_steps_four_times_tells_the_steps():
    assert told(*(optimizer(100 * i) for i in range(4))) == (
        [0, 100, 200, 300],
        Note("steps_by_optimizer", confidence="medium"),
    )
    assert told(*(optimizer(100 * i) for i in range(3))) == ([], None)


def test_calls_that_overlap_each_other_begin_no_steps():
    assert told(*(on_host("annotation", 100 * i, 1000, name="Optimizer.step#SGD.step") for i in range(4))) == ([], None)


def test_steps_that_differ_much_are_of_low_confidence():
    assert told(*(optimizer(at) for at in (0, 100, 300, 700, 1500)))[1] == Note("steps_by_optimizer", confidence="low")


def test_accumulated_gradients_make_one_step_of_several_batches():
    batches = [on_host("input", 50 * i + 10, 50 * i + 20) for i in range(8)]
    assert told(*batches, *(optimizer(100 * i) for i in range(4)))[0] == [0, 100, 200, 300]


def test_optimizers_that_take_turns_step_once_each_in_a_step():
    """A generator and a discriminator, without a loader: 5 ops before the one, 2 before the other."""
    ops = [on_host("op", at + i, at + i + 1) for at in range(0, 600, 100) for i in (10, 20, 30, 40, 45, 70, 80)]
    calls = [optimizer(at + i) for at in range(0, 600, 100) for i in (50, 90)]
    assert told(*ops, *calls)[0] == [50, 150, 250, 350, 450, 550]
    assert len(told(*ops, *(optimizer(at + 90) for at in range(0, 600, 100)))[0]) == 6


def test_an_optimizer_that_steps_in_some_steps_only_begins_none():
    muon = [optimizer(100 * i + 50, "Optimizer.step#Muon.step") for i in range(5)]
    adam = [optimizer(100 * i + 40, "Optimizer.step#Adam.step") for i in (1, 3)]
    assert told(*muon, *adam)[0] == [50, 150, 250, 350, 450]


def test_validation_after_every_third_step_leaves_each_a_step():
    ops = [on_host("op", at + i, at + i + 1) for at in range(0, 1200, 100) for i in (10, 20, 30, 40)]
    more = [on_host("op", at + i, at + i + 1) for at in range(200, 1200, 300) for i in (70, 75, 80, 85, 95)]
    assert told(*ops, *more, *(optimizer(at + 50) for at in range(0, 1200, 100)))[0] == [*range(50, 1200, 100)]


def test_ranges_of_a_job_without_a_device_hold_its_ops():
    ranges = [on_host("annotation", at, at + 90, name=f"sample {at}") for at in range(0, 400, 100)]
    ops = [on_host("op", at + i, at + i + 2) for at in range(0, 400, 100) for i in range(5, 85, 8)]
    starts, how = told(*ranges, *ops)
    assert starts == [0, 100, 200, 300]
    assert (
        '"sample #" of one thread count as the steps: between the first and the last they hold 100 % of the ops\' time'
        in (how and how.words)
    )
    assert told(*ranges, *(op | {"thread": 1} for op in ops[::2])) == ([], None)  # five ops are no step


def test_two_optimizers_step_in_one_step():
    batches = [on_host("input", 100 * i, 100 * i + 10) for i in range(4)]
    assert told(*batches, *(optimizer(50 * i + 30) for i in range(8)))[0] == [0, 100, 200, 300]


@pytest.mark.parametrize(
    ("name", "is_inside", "backward_us", "steps"),
    [
        ("forward", True, 2000, 0),
        ("forward", True, 0, 4),
        ("forward", False, 2000, 4),
        ("block forward", True, 0, 0),
        ("train step", True, 2000, 4),
    ],
)
def test_ranges_right_inside_one_other_are_no_steps_beside_other_work(name, is_inside, backward_us: int, steps: int):
    """Four ranges launch ten kernels of 6 us each. A longer kernel follows the range around them."""
    starts = range(0, 400, 100)
    launches = [at + i for at in starts for i in range(5, 95, 9)] + [450] * (backward_us > 0)
    kernels = [
        kernel(at + 2, at + (8 if at < 400 else backward_us))
        | {"call": {"kind": "runtime", "name": "cudaLaunchKernel"} | span(at, at + 1)}
        for at in launches
    ]
    ranges = [on_host("annotation", at, at + 98, name=name) for at in starts]
    made = profile(kernels, [on_host("annotation", -10, 410, name="forward pass"), *ranges])
    named = made.host_ops.with_columns(pl.col("name").cast(pl.String))
    parent = named.filter(name="forward pass")["id"][0] if is_inside else None
    host = named.with_columns(parent=pl.when(pl.col("name") == name).then(parent).otherwise("parent"))
    assert marks(host, made.device_ops, None).steps.height == steps


def test_an_only_mark_that_the_profiler_closed_at_once_is_no_step():
    ops = [on_host("op", at, at + 1_000) for at in (0, 9_000)]
    for length, steps in ((99, 0), (101, 1)):  # of 10 ms
        made = profile(host_ops=[*ops, on_host("step", 9_999, 9_999 + length, name="ProfilerStep#1")])
        assert marks(made.host_ops, made.device_ops, None).steps.height == steps


def test_a_long_start_up_before_the_only_step_makes_no_point_of_it():
    loads, ops = on_host("op", -1_000_000, -1_000), [on_host("op", at, at + 10) for at in range(0, 100, 10)]
    made = profile(host_ops=[loads, *ops, on_host("step", 0, 100, name="ProfilerStep#1")])
    assert marks(made.host_ops, made.device_ops, None).steps.height == 1


@pytest.mark.parametrize(("launches", "steps"), [((10, 10, 12, 10), 4), ((18, 0, 16, 6), 0)])
def test_ranges_of_a_thread_that_launches_nothing_are_steps_where_all_hold_about_as_much(
    launches: tuple[int, ...], steps: int
):
    """A thread that hands each step over, and one that does something of its own meanwhile."""
    ranges = [on_host("annotation", 1000 * n, 1000 * n + 990, name="turn") for n in range(4)]
    starts = [1000 * n + 50 * k for n, many in enumerate(launches) for k in range(many)]
    made = profile([kernel(at + 3, at + 43, launched=at + 1) for at in starts], ranges)
    assert marks(made.host_ops, made.device_ops, None).steps.height == steps


@pytest.mark.parametrize(
    ("names", "starts"),
    [
        (["forward", "backward", "optimizer_step"], [0, 100, 200]),
        (["attention", "mlp", "norm"], []),  # of a layer, three times in one pass
    ],
)
def test_phases_of_training_in_turns_are_steps_where_none_of_them_holds_the_work(names: list[str], starts: list[int]):
    ranges = [
        on_host("annotation", 100 * i + 30 * n, 100 * i + 30 * n + 29, name=name)
        for i in range(3)
        for n, name in enumerate(names)
    ]
    ops = [
        on_host("op", 100 * i + 30 * n + k, 100 * i + 30 * n + k + 1)
        for i in range(3)
        for n in range(3)
        for k in range(20)
    ]
    begins, how = told(*ranges, *ops)
    assert begins == starts
    assert not starts or "forward + backward + optimizer_step" in how.words
