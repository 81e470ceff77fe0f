"""Where the ranks of a job and the runs of a batch are worked on: processes of this machine, or a Dask cluster.

Both are `concurrent.futures` executors. A task may run twice; what it returns is written to the same end each time.
"""

import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias, TypeVar

from advisor.errors import AdvisorError, StoreError, UsageError, contained, failure
from advisor.system.processes import LOCAL, pool

Task = TypeVar("Task")
Result = TypeVar("Result")

# Told how many tasks there are; gives back what is told of each number that is done
Progress: TypeAlias = Callable[[int], Callable[[int], object]]
_DASK: Final = "dask="
_LOOK_S: Final = 60
_LOOKS: Final = 10  # in a row that show no worker, until nobody waits for one any more
KILLED: Final = "the process that read it was killed, most likely for want of memory; read it where there is more"


class Killed(AdvisorError):  # noqa: N818 - says what happened to a process, and is told as an outcome
    """The process that worked on a task died, and nothing but that task can be the reason."""


class Failure(AdvisorError):  # noqa: N818 - is told as an outcome
    """A bug in a task, or a panic of a library in Rust, which is no Exception: its kind, never its text."""


@dataclass(frozen=True)
class Engine:
    """Something that opens executors: `width` tasks keep one busy, and `close` lets go of what all of them share."""

    width: Callable[[], int]
    executor: Callable[[], Executor]
    close: Callable[[], object] = lambda: None
    has_workers: Callable[[], bool] = lambda: True


def local(processes: int) -> Engine:
    """New processes of this machine, each with its share of the cores."""
    return Engine(lambda: processes, lambda: pool(processes))


def engine(text: str, processes: int) -> Engine:
    """The engine of this name, `local` or `dask=ADDRESS` of a scheduler; a UsageError where there is none."""
    if text == LOCAL:
        return local(processes)
    if not text.startswith(_DASK):
        raise UsageError(f"--engine {text}: neither local nor dask=ADDRESS, such as dask=tcp://head:8786")
    try:
        from distributed import Client  # noqa: PLC0415 - few have it
    except ImportError:
        raise UsageError("--engine dask needs more packages: pip install 'gpu-advisor[fleet]'") from None
    try:
        client = Client(text.removeprefix(_DASK), timeout="15s", set_as_default=False)
    except Exception as error:  # noqa: BLE001 - each protocol of it has errors of its own
        why = re.sub(r"[^\s'\"/]+@", "\N{HORIZONTAL ELLIPSIS}@", str(error))  # a login without the rest of its address
        raise UsageError(f"--engine {text}: no Dask scheduler answers there: {why}") from None
    # Two tasks per thread, and workers come and go; the cluster goes on afterwards.
    width, executor = lambda: 2 * max(1, sum(client.nthreads().values())), partial(client.get_executor, pure=False)
    return Engine(width, executor, client.close, lambda: bool(client.nthreads()))


def outcomes_of(
    where: Engine, function: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[tuple[Task, Result | Exception]]:
    """Every task with what the function makes of it, or what went wrong with it alone, as they get done.

    A process that dies takes a pool with it, and all that the pool worked on: each of those is done again alone, so
    that the guilty one is told from the others. A StoreError where the cluster is lost as a whole.
    """
    waiting, pool, work = iter(tasks), where.executor(), pickle.dumps(function)
    running: dict[Any, Task] = {}
    try:
        while True:
            orphans = _fill(pool, work, waiting, running, where.width())
            if not (running or orphans):
                return
            done = _first_done(where, running) if running and not orphans else wait(running).done
            finished = [(running.pop(future), future) for future in done]
            if any(isinstance(future.exception(), BrokenExecutor) for _, future in finished if not future.cancelled()):
                finished += [(running.pop(future), future) for future in wait(running).done]
            for task, future in finished:
                try:
                    yield task, future.result()
                except BrokenExecutor:
                    orphans.append(task)
                except CancelledError:
                    raise StoreError("the Dask cluster went away; start it and run this again") from None
                except Exception as error:  # noqa: BLE001 - whatever it is, it is this task's
                    yield task, Killed(KILLED) if type(error).__name__ == "KilledWorker" else error
            if orphans:
                pool.shutdown(wait=False)
                yield from ((task, _alone(work, task)) for task in orphans)
                pool = where.executor()
    finally:
        for future in running:
            future.cancel()
        # Processes that still end while Python does may print a traceback; a cluster may be lost.
        pool.shutdown(wait=isinstance(pool, ProcessPoolExecutor))


def _first_done(where: Engine, running: Iterable[Any]) -> set[Any]:
    alone = 0
    while not (done := wait(running, _LOOK_S, FIRST_COMPLETED).done):
        if (alone := 0 if where.has_workers() else alone + 1) == _LOOKS:
            raise StoreError("no worker of the Dask cluster is left; start one and run this again")
    return done


def silent(_: int) -> Callable[[int], object]:
    """Progress that nobody is told of."""
    return lambda _: None


def _fill(pool: Executor, work: bytes, waiting: Iterator[Task], running: dict[Any, Task], width: int) -> list[Task]:
    """Hands out tasks until enough are running; gives back the one that a broken pool refused."""
    while len(running) < width:
        task = next(waiting, None)
        if task is None:
            break
        try:
            running[pool.submit(_outcome, work, task)] = task
        except BrokenExecutor:
            return [task]
    return []


_loaded: Final = lru_cache(maxsize=1)(pickle.loads)  # is larger than most tasks


def _outcome(work: bytes, task: Task) -> Any:  # noqa: ANN401 - what the work gives, or an Exception
    return contained(lambda: _loaded(work)(task), lambda kind: Failure(failure(kind)))


def _alone(work: bytes, task: Task) -> Any:  # noqa: ANN401 - as above
    with local(1).executor() as pool:
        try:
            return pool.submit(_outcome, work, task).result()
        except BrokenExecutor:
            return Killed(KILLED)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this task's
            return error
