"""Loops over a loader of the main process, as PyTorch records it (times in us)."""

from __future__ import annotations

import pytest

from advisor.analysis.device.iterators import lasting, short_requests
from tests.tables import kernel, metrics_of, on_host, profile, step, values_of, view

ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WITH_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
SEED = ("aten::empty", "aten::random_", "aten::item")
NODE = "autograd::engine::evaluate_function: MmBackward0"

loading = metrics_of


class Loop:
    """Host ops one after the other, and the steps that end."""

    def __init__(self) -> None:
        self.rows, self.steps, self.at, self.begin = [], [], 0, 0

    def op(self, name: str, time: int = 10) -> Loop:
        self.rows.append(on_host("op", self.at, self.at + time, name=name))
        self.at += time
        return self

    def seed(self, ops: tuple[str, ...] = SEED) -> Loop:
        for op in ops:
            self.op(op)
        return self

    def wait(self, time: int) -> Loop:
        self.at += time
        return self

    def ask(self, time: int = 1_000, ops: int = 20, name: str = ALONE) -> Loop:
        self.rows.append(on_host("input", self.at, self.at + time, name=name))
        self.rows += [on_host("op", self.at + 2 * i, self.at + 2 * i + 1, name="aten::select") for i in range(ops)]
        self.at += time
        return self

    def learn(self) -> Loop:
        return self.op(NODE, 2_000)

    def end(self) -> Loop:
        self.steps.append(step(len(self.steps), self.begin, self.at, device=None))
        self.begin = self.at
        return self

    def view(self, device=()):
        return view(profile(device, self.rows, self.steps, devices=()))


def validating(steps: int = 4, batches: int = 2, seed: tuple[str, ...] = SEED) -> Loop:
    """A batch of the training in 4 ms, and a validation of these batches of 1 ms, in each step."""
    loop = Loop()
    for _ in range(steps):
        loop.ask(4_000).learn().seed(seed)
        for _ in range(batches):
            loop.ask().op("aten::mm", 500)
        loop.ask(30, 0).end()
    return loop


def test_a_validation_in_each_step_is_an_iterator_of_its_own():
    """Per step 4 ms for the training and 2.03 of 9.06 ms for the validation."""
    seen = validating().view()
    expected = {
        "short_iterators": 4,
        "short_iterator_batches": 2,
        "short_iterator_share": 2.03 / 9.06,
        "short_iterator_gain_ms": 2.03,
        "single_process_gain_ms": 4,
        "first_batch_part": 0,
        "iterators_drained": 1,
        "iterators_of_workers": 0,
        "iterators_train": 0,
    }
    assert values_of(expected, seen) == pytest.approx(expected)
    assert loading(seen)["single_process_input_share"] == pytest.approx(4 / 9.06)
    assert loading(seen)["loading_ms"] == pytest.approx(4)


@pytest.mark.parametrize(
    "seed",
    [("aten::random_",), ("aten::random_", "aten::item"), (*SEED, "aten::mm")],
    ids=["noise", "a number", "a number, and work after it"],
)
def test_numbers_that_the_program_draws_begin_no_iterator(seed: tuple[str, ...]):
    seen = validating(seed=seed).view()
    assert metrics_of(seen)["short_iterators"] == metrics_of(seen)["short_iterator_share"] == 0
    assert lasting(seen).height == 4 * 4


def test_an_iterator_of_ten_batches_is_not_short():
    assert metrics_of(validating(batches=9).view())["short_iterators"] == 4
    assert metrics_of(validating(batches=10).view())["short_iterators"] == 0


def test_a_recording_of_a_few_batches_is_one_loop():
    seen = validating(1, 5).view()
    assert metrics_of(seen)["short_iterators"] == 0
    assert lasting(seen).height == 1 + 5 + 1


@pytest.mark.parametrize(("batches", "short", "part"), [(3, 3, 0), (4, 0, 0.25)])
def test_workers_load_most_of_an_epoch_of_four_batches_ahead(batches: int, short: int, part: float):
    loop = Loop()
    for _ in range(3):
        loop.seed()
        for _ in range(batches):
            loop.ask().learn().end()
        loop.ask(30, 0)
    values = metrics_of(loop.end().view())
    assert (values["short_iterators"], values["first_batch_part"]) == (short, part)


def test_epochs_of_two_batches_are_iterators_that_train_and_all_requests_are_to_them():
    """The recording cuts off the first and the last of five: short as the others. Of the last, one request is there."""
    loop = Loop()
    for _ in range(4):
        loop.ask().learn().end().ask(30, 0).seed().ask().learn().end()
    values = metrics_of(loop.view())
    assert (values["short_iterators"], values["short_iterator_batches"], values["iterators_train"]) == (5, 2, 0.8)
    assert lasting(loop.view()).is_empty()


def test_an_iterator_for_each_batch_is_short_and_not_asked_for_all_of_its_batches():
    """The last one too, though the recording ends before the next begins."""
    loop = Loop()
    for _ in range(4):
        loop.seed().ask().learn().end()
    values = metrics_of(loop.view())
    assert (values["short_iterators"], values["short_iterator_batches"], values["iterators_drained"]) == (4, 1, 0)
    assert values["single_process_gain_ms"] == 0


def test_processes_that_start_for_each_batch_count_from_their_seed_to_the_next_op():
    """Per step 30 us for a seed, 5 ms to start, 40 us for the sampler, 2 ms for a batch, and 4 ms to join."""
    loop = Loop()
    for _ in range(4):
        loop.seed().wait(5_000).seed().op("aten::randperm").ask(2_000, 2, WITH_WORKERS).wait(4_000).learn().end()
    seen = loop.view()
    values = metrics_of(seen)
    assert (values["short_iterators"], values["iterators_of_workers"], values["iterators_drained"]) == (4, 1, 0)
    assert values["short_iterator_gain_ms"] == pytest.approx(11.07)
    assert loading(seen)["worker_input_share"] == 0


def with_workers_that_stay(use: str = "aten::linear", after_end: int = 0) -> Loop:
    """In each of four steps a batch of the training in 1 ms, then three of a validation in 3, 0.1 and 2 ms."""
    loop = Loop()
    for _ in range(4):
        loop.ask(1_000, 2, WITH_WORKERS).op("aten::linear", 500).learn()
        for time, ops in ((3_000, 4), (100, 0), (2_000, 2)):
            loop.ask(time, ops, WITH_WORKERS).op(use, 500)
        loop.ask(20, after_end, WITH_WORKERS).op("aten::mean").end()
    return loop


def test_validations_by_workers_that_stay_begin_without_a_seed_and_end_without_a_batch():
    """The last has no request after it that shows its end. Of each step of 10.15 ms, 5.12 load its batches."""
    seen = with_workers_that_stay().view()
    values = metrics_of(seen)
    assert (values["short_iterators"], values["short_iterator_batches"]) == (3, 3)
    assert values["short_iterator_share"] == pytest.approx(3 * 5.12 / (4 * 10.15), rel=0.01)
    assert (values["iterators_of_workers"], values["iterators_drained"], values["iterators_train"]) == (1, 1, 0)


@pytest.mark.parametrize(("use", "ops"), [("aten::mean", 0), ("aten::linear", 2)], ids=["no model", "no end"])
def test_requests_to_workers_that_are_not_proven_to_end_begin_no_iterator(use: str, ops: int):
    assert metrics_of(with_workers_that_stay(use, ops).view())["short_iterators"] == 0


def test_epochs_that_train_with_new_processes_are_told_as_restarts():
    loop = Loop()
    for _ in range(4):
        loop.seed().wait(5_000).ask(2_000, 2, WITH_WORKERS).learn().end().ask(3_000, 0, WITH_WORKERS)
    seen = loop.end().view()
    assert metrics_of(seen)["short_iterators"] == 0
    assert loading(seen)["worker_input_share"] > 0


def test_an_epoch_that_begins_once_is_of_unknown_length():
    loop = Loop()
    for i in range(4):
        (loop.ask(30, 0).seed() if i == 1 else loop).ask().learn().end()
    assert short_requests(loop.view()).is_empty()
    assert metrics_of(loop.view())["first_batch_part"] == 0


def test_the_device_s_work_hides_loading():
    """A kernel runs in the last 0.03 of 9.06 ms and the ms before: of the validation, it hides all but 1 ms."""
    loop = validating(2).end()
    seen = view(
        profile([kernel(7_530, 9_060), kernel(16_590, 18_120)], loop.rows, [step(0, 0, 9_060), step(1, 9_060, 18_120)])
    )
    assert metrics_of(seen)["short_iterator_share"] == pytest.approx(1 / 9.06)


def test_without_a_loader_nothing_begins():
    names = ("short_iterators", "short_iterator_share", "short_iterator_gain_ms", "single_process_gain_ms")
    values = values_of(names, Loop().op("aten::mm", 1_000).end().view())
    assert set(values.values()) == {0}
