from __future__ import annotations

from collections.abc import Mapping

import pytest

from advisor.metrics.metric import METRICS, Value
from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.tables import Row, kernel, metrics_of, on_host, profile, span, step, view

starving = metrics_of

PID, TRAINING, LAUNCHING, LOADING = 100, 1, 2, 7
WORKER = [{"worker": 0, "pid": PID}]
LOADER = {"worker": None, "pid": 200, "thread": LOADING, "name": "pt_data_worker"}

# us          0       10                60     80    100
# kernels     ========                         ======       launched at 0 and 75
# input               |-----------------|                   asked for by thread 1
HOST = [on_host("op", 0, 8), on_host("input", 10, 60, name="next batch"), on_host("op", 60, 75)]
DEVICE = [kernel(0, 10, 0, thread=1), kernel(80, 100, 75)]
STEP = [step(1, 0, 100)]


def os_call(name: str, start: float, end: float, pid: int = 200, thread: int = LOADING) -> Row:
    return {"worker": None, "pid": pid, "thread": thread, "name": name} | span(start, end)


def with_calls(*calls: Row) -> Profile:
    return profile(DEVICE, HOST, STEP, workers=WORKER, threads=[LOADER], os_calls=calls)


def loader(*calls: Row) -> Mapping[str, Value]:
    return metrics_of(view(with_calls(*calls)))


def test_reads_and_locks_of_loading_threads_count_while_a_batch_is_waited_for():
    values = loader(os_call("read", 0, 30), os_call("pthread_mutex_lock", 20, 40))
    # from 10, when the batch is asked for, to 40
    assert values["loader_blocked_share"] == pytest.approx(0.3)
    assert values["loader_blocked_ms"] == pytest.approx(0.03)
    assert values["loader_file_share"] == pytest.approx(2 / 3)
    assert values["loader_blocked_calls"] == "pthread_mutex_lock (20 µs), read (20 µs)"


@pytest.mark.parametrize(
    "call",
    [
        os_call("sem_wait", 20, 40),
        os_call("poll", 20, 40),
        os_call("read", 70, 80),
        os_call("read", 20, 40, thread=8),
        os_call("read", 20, 40, pid=300),
    ],
    ids=["waits for work", "polls", "while no batch is waited for", "another thread", "another process"],
)
def test_other_calls_do_not(call: Row):
    assert loader(call)["loader_blocked_share"] == 0


def test_the_thread_that_asks_loads_while_it_does():
    values = loader(os_call("read", 20, 40, PID, TRAINING), os_call("read", 62, 70, PID, TRAINING))
    assert values["loader_blocked_share"] == pytest.approx(0.2)
    assert values["loader_file_share"] == 1


def test_places_are_the_calls_that_were_waited_for():
    where = METRICS["loader_blocked_share"].where
    assert where
    rows = where(view(with_calls(os_call("read", 0, 9), os_call("read", 20, 40), os_call("open", 45, 50))))
    assert rows.select("name", "start_ns").rows() == [("read", 20_000), ("open", 45_000)]


def absent(start: float, end: float, state: str | None = None, thread: int = TRAINING, **columns: object) -> Row:
    base = {"worker": 0, "pid": PID, "thread": thread, "state": state, "cpu": 3, "next_cpu": 3}
    return base | columns | span(start, end)


def starved(*away: Row, calls: tuple[Row, ...] = (), host: tuple[Row, ...] = ()) -> Mapping[str, Value]:
    trace = profile(DEVICE, [*HOST, on_host("step", 0, 100), *host], STEP, workers=WORKER, off_cpu=away, os_calls=calls)
    return metrics_of(view(trace))


def test_only_threads_that_could_run_starve_and_only_while_the_device_idles():
    values = starved(absent(5, 30, "Running", next_cpu=9), absent(40, 60, "Blocked"))
    assert values["cpu_starved_share"] == pytest.approx(0.2)  # from 10, when the kernel ends, to 30
    assert values["cpu_migrations_per_step"] == 1


@pytest.mark.parametrize(
    ("name", "end", "waits"), [("waitpid", 51, "waitpid (51 µs)"), ("waitpid", 50, ""), ("read", 51, "")]
)
def test_a_child_process_is_what_the_job_waits_for(name: str, end: float, waits: str):
    assert starved(calls=(os_call(name, 0, end, PID, TRAINING),))["system_wait_calls"] == waits


def test_threads_of_others_do_not_count():
    values = starved(absent(20, 40, "Running", thread=9), absent(20, 40, "Running", pid=7))
    assert values["cpu_starved_share"] == 0


def test_without_states_a_thread_that_waits_for_a_page_looks_like_one_without_a_cpu():
    poll = os_call("poll", 9, 15, PID, TRAINING)
    for calls in ((), (poll,)):
        values = starved(absent(20, 40), absent(61, 65, next_cpu=9), calls=calls)
        assert values["cpu_starved_share"] == values["cpu_migrations_per_step"] == Missing("waiting_unexplained")


def test_a_thread_that_never_left_its_cpu_does_not_starve():
    values = starved(absent(20, 40, thread=9))
    assert values["cpu_starved_share"] == values["cpu_migrations_per_step"] == values["cpu_starved_gain_ms"] == 0


def test_the_gain_is_at_most_the_idle_time_under_it():
    values = starved(absent(20, 40, "Running"))
    least, most = values["cpu_starved_least_gain_ms"], values["cpu_starved_gain_ms"]
    assert isinstance(least, float)
    assert isinstance(most, float)
    assert 0 <= least <= most <= 0.02 + 1e-9


def test_places_say_where_it_went_on():
    where = METRICS["cpu_starved_share"].where
    assert where
    away = [absent(20, 40, "Running", next_cpu=9), absent(50, 55, "Running")]
    trace = profile(DEVICE, [*HOST, on_host("step", 0, 100)], STEP, workers=WORKER, off_cpu=away)
    assert where(view(trace))["name"].to_list() == ["off CPU 3, then on CPU 9", "off CPU 3"]


def test_a_host_that_waits_for_somebody_to_type_is_told():
    """20 ms between two kernels, 15 of them in `getc` of the thread that launches; a worker sleeps for longer."""
    device = [kernel(0, 10, 0, thread=1), kernel(20_010, 20_100, 20_005, thread=1)]
    calls = [os_call("getc", 3_000, 18_000, pid=PID, thread=LAUNCHING), os_call("nanosleep", 0, 20_000)]
    host = [on_host("op", start, start + 8, thread=TRAINING) for start in (0, 19_995)]
    trace = profile(device, host, [step(1, 0, 20_100)], workers=WORKER, threads=[LOADER], os_calls=calls)
    values = metrics_of(view(trace))
    assert values["open_calls"] == "getc (15 ms)"
    assert values["open_calls_part"] == pytest.approx(15 / 20, abs=0.01)
