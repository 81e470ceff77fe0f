"""Engines with real processes: a task that kills its process costs itself and nothing else."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from functools import partial
from multiprocessing import active_children
from operator import neg

import pytest

from advisor.errors import StoreError, UsageError
from advisor.system import engines
from advisor.system.engines import Engine, Failure, Killed, engine, local, outcomes_of
from tests.fleet import add_or_die


@pytest.mark.soak
def test_every_task_once_whatever_the_others_do():
    outcomes = dict(outcomes_of(local(2), add_or_die, range(10, 18)))
    assert sorted(outcomes) == list(range(10, 18))
    assert isinstance(outcomes.pop(13), Killed)
    assert str(outcomes.pop(14)) == "advisor failed on it (ValueError); please report this"  # its text may quote a file
    assert isinstance(outcomes.pop(15), Failure)  # of a library in Rust, no Exception
    assert outcomes == {number: number + 1 for number in (10, 11, 12, 16, 17)}


@pytest.mark.parametrize("comes", [False, True])
def test_workers_are_waited_for_so_long(monkeypatch: pytest.MonkeyPatch, *, comes: bool):
    monkeypatch.setattr(engines, "_LOOK_S", 0.01)
    task, looks = Future[int](), list[bool]()

    class Cluster(Executor):
        def submit(self, *_: object, **__: object) -> Future[int]:
            return task

    def has_workers() -> bool:
        looks.append(comes and len(looks) % 9 == 8)  # it goes again, and is back in time
        if len(looks) == 30:
            task.set_result(7)
        return looks[-1]

    outcomes = outcomes_of(Engine(lambda: 1, Cluster, has_workers=has_workers), add_or_die, [1])
    if comes:
        assert list(outcomes) == [(1, 7)]
    else:
        with pytest.raises(StoreError, match="no worker of the Dask cluster is left; start one"):
            list(outcomes)
        assert len(looks) == 10


def test_no_process_of_it_is_left():
    """One that ends while Python does may print a traceback."""
    assert list(outcomes_of(local(2), add_or_die, [1])) == [(1, 2)]
    assert active_children() == []


class _Work:
    """Counts how often it is pickled: of metrics and rules, that takes longer than to read a small file."""

    times = 0

    def __reduce__(self) -> tuple[object, ...]:
        _Work.times += 1
        return partial, (neg,)


def test_what_works_on_the_tasks_is_pickled_once():
    assert dict(outcomes_of(local(1), _Work(), [1, 2, 3])) == {1: -1, 2: -2, 3: -3}
    assert _Work.times == 1


def test_nothing_to_do():
    assert list(outcomes_of(local(1), add_or_die, [])) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ray", "neither local nor dask=ADDRESS"),
        ("dask=nonsense://x", "no Dask scheduler answers"),
        ("dask=tls://127.0.0.1:1", "no Dask scheduler answers"),
        ("dask=tcp://ann:secret@127.0.0.1:1", "no Dask scheduler answers there: [^:]*'\u2026@127.0.0.1:1'"),
    ],
)
def test_an_engine_that_is_none(text, message):
    with pytest.raises(UsageError, match=message):
        engine(text, 1)
