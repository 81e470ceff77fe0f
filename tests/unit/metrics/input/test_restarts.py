"""Epochs of four steps of 10 ms; their beginnings as PyTorch's loader records them (times in us)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import kernel, metrics_of, on_host, profile, step, view

WITH_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

worker_restarts = metrics_of


def measured(
    ending: int = 20_000,
    other: int = 0,
    draws: tuple[int, ...] = (0,),
    *,
    name: str = WITH_WORKERS,
    long: tuple[int, ...] = (4, 8),
):
    """Of 12 steps the `long` ones end an epoch in `ending`, do something `other`, and start workers in 30 ms.

    The loop waits for a batch for 1 ms, and for the first one of an epoch for 5 ms.
    """
    rows, steps, at = [], [], 0
    for i in range(12):
        begin = at
        if i in long:
            rows.append(on_host("input", at, at + ending, name=name))
            at += ending + other
            rows += [on_host("op", at + draw, at + draw + 10, name="aten::random_") for draw in draws]
            at += 30_000
        rows.append(on_host("input", at, at + (5_000 if i in long else 1_000), name=name))
        rows += [on_host("op", at + 500 * k, at + 500 * k + 500, name="train") for k in range(10, 20)]
        at += 10_000
        steps.append(step(i, begin, at, device=None))
    made = view(profile((), rows, steps, devices=()), "steady")
    return made.steps.height, metrics_of(made)


def test_workers_that_each_epoch_starts_anew_are_counted_and_their_steps_are_used():
    """Twice in 12 steps: 20 ms to end and 30 ms to start; the first wait is 4 ms longer than others."""
    used, values = measured()
    assert used == 12
    assert (values["worker_restarts"], values["epoch_steps"]) == (2, 4)
    assert values["worker_restart_ms"] == pytest.approx(2 * 50 / 12)
    assert values["first_batch_wait_ms"] == pytest.approx(2 * 4 / 12)
    assert values["outlier_restart_part"] == 0


@pytest.mark.parametrize(
    ("ending", "draws", "name"),
    [(30, (0,), WITH_WORKERS), (20_000, (), WITH_WORKERS), (20_000, (0,), ALONE)],
    ids=["workers that stay end an epoch at once", "no seed for workers", "the main process loads"],
)
def test_epochs_without_new_workers_are_none(ending: int, draws: tuple[int, ...], name: str):
    used, values = measured(ending, draws=draws, name=name)
    assert used == 10
    assert values["worker_restarts"] == values["worker_restart_ms"] == values["first_batch_wait_ms"] == 0


def test_a_seed_that_a_validation_draws_does_not_start_workers():
    """Draws at 0, 10 and 25 ms of 30: an iterator draws two at most, so workers start from 10 ms on."""
    _, values = measured(draws=(0, 10_000, 25_000))
    assert values["worker_restart_ms"] == pytest.approx(2 * (20 + 20) / 12)


def test_a_checkpoint_between_epochs_is_what_makes_the_step_long():
    """70 ms of it against 55 ms of new workers: the step is left out, and they are 55 of the 120 ms that it adds."""
    used, values = measured(other=70_000)
    assert used == 10
    assert values["worker_restarts"] == 0
    assert values["outlier_restart_part"] == pytest.approx(55 / 120)


def test_an_epoch_that_begins_once_makes_an_outlier():
    """55 ms of new workers in a step that is 50 ms longer: all of it."""
    used, values = measured(long=(4,))
    assert (used, values["worker_restarts"], values["outlier_restart_part"]) == (11, 0, 1)


def test_the_device_s_work_hides_the_start_of_workers():
    """Workers end from 0 to 20 ms and start from 20 to 50 ms, and a kernel runs from 30 ms on."""
    asks = [on_host("input", begin, end, name=WITH_WORKERS) for begin, end in ((0, 20_000), (50_000, 55_000))]
    rows = [*asks, on_host("op", 20_000, 20_010, name="aten::random_")]
    values = metrics_of(view(profile([kernel(30_000, 50_000)], rows, [step(0, 0, 60_000)])))
    assert values["worker_restart_ms"] == pytest.approx(30)
    assert values["first_batch_wait_ms"] == pytest.approx(5)


@pytest.mark.parametrize("beside", [("aten::randint",), ("autograd::engine::evaluate_function: MmBackward0",)])
def test_a_job_that_draws_in_each_step_starts_no_workers(beside: tuple[str, ...]):
    """Batches that come late each time, and random numbers of the program's own: within an op, or before it learns."""
    rows, steps = [], []
    for at in range(0, 120_000, 10_000):
        rows.append(on_host("input", at, at + 2_000, name=WITH_WORKERS))
        rows += [on_host("op", at + 2_000, at + 4_000, name=name) for name in beside]
        rows.append(on_host("op", at + 3_000, at + 3_010, name="aten::random_"))
        steps.append(step(at, at, at + 10_000, device=None))
    values = metrics_of(view(profile((), rows, steps, devices=())))
    assert values["worker_restarts"] == values["worker_restart_ms"] == 0


def started(*before: Any, name: str = WITH_WORKERS):
    """What starting workers takes of 100 ms, of which the device works from 30 to 40 ms, and a batch comes at 80."""
    rows = [*before, on_host("input", 80_000, 81_000, name=name), on_host("op", 0, 100_000, name="epoch")]
    return metrics_of(view(profile([kernel(30_000, 40_000)], rows, [step(0, 80_000, 100_000)])))


def test_the_first_workers_start_between_a_seed_and_the_first_batch():
    """From 10 to 80 ms without the device's 10."""
    seeds = [on_host("op", at, at + 1, name="aten::random_") for at in (5_000, 10_000, 79_000)]
    assert started(*seeds)["worker_start_ms"] == pytest.approx(60)
    assert started(*seeds)["worker_start_share"] == pytest.approx(0.6)
    assert started(*seeds, name=ALONE)["worker_start_ms"] == 0


def test_workers_that_were_there_before_start_in_no_time():
    assert started()["worker_start_ms"] == 0
    assert started(on_host("op", 90_000, 90_001, name="aten::random_"))["worker_start_ms"] == 0
