from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model.clause import Missing
from tests.tables import kernel, measured, metrics_of, on_host, profile, step, view

ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WITH_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
DEVICE = [kernel(0, 30, 0), kernel(80, 100, 80)]
STEPS = [step(1, 0, 100)]


def test_loading_counts_where_neither_device_nor_calls_are_busy():
    # 20 to 70, of which a kernel covers 10 and a call 5
    host = [on_host("input", 20, 70, name=ALONE), on_host("runtime", 40, 45)]
    assert metrics_of(view(profile(DEVICE, host, STEPS)))["single_process_input_share"] == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("name", "alone", "waiting"),
    [
        ("torch/utils/data/_utils/fetch.py(25): fetch", 0.35, 0),
        ("torch/utils/data/dataloader.py(787): _next_data", 0, 0.35),
    ],
)
def test_the_loader_s_functions_say_who_loads(name: str, alone: float, waiting: float):
    host = [on_host("input", 20, 70, name=name), on_host("runtime", 40, 45)]
    values = metrics_of(view(profile(DEVICE, host, STEPS)))
    assert values["single_process_input_share"] == pytest.approx(alone)
    assert values["worker_input_share"] == pytest.approx(waiting)


def test_workers_load_in_processes_of_their_own():
    host = [on_host("input", 2_000, 7_000, name=WITH_WORKERS), on_host("input", 9_000, 9_500, name=WITH_WORKERS)]
    device = [kernel(0, 3_000, 0), kernel(8_000, 10_000, 8_000)]
    values = metrics_of(view(profile(device, host, [step(1, 0, 10_000)])))
    assert values["single_process_input_share"] == 0
    assert values["worker_input_share"] == pytest.approx(0.4)
    assert values["workers_factor"] == pytest.approx(1 / 0.6)
    assert {values[metric] for metric in ("loader_workers", "workers_needed")} == {Missing("workers_unknown")}


def test_one_request_to_workers_does_not_tell_how_many_keep_up():
    host = [on_host("input", 2_000, 7_000, name=WITH_WORKERS)]
    values = metrics_of(view(profile([kernel(8_000, 10_000, 8_000)], host, [step(1, 0, 10_000)])))
    assert (values["first_requests_only"], values["workers_factor"]) == (1, Missing("first_request_only"))
    assert values["worker_input_share"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("waited_us", "delay_ms", "needed", "factor"),
    [(2_000, None, 1, 1.0), (2_001, None, 2, 20_000 / 17_999), (4_000, 2.0, 1, 1.0), (4_001, 2.0, 2, 20_000 / 15_999)],
)
def test_workers_whose_batches_may_be_ready_keep_up(waited_us: int, delay_ms: float | None, needed: int, factor: float):
    """A step of 20 ms waits 2 ms for a batch: it may be ready, and take as long to hand over.

    If other programs keep the loop from a CPU for 2 ms of a step, they keep the worker from it as long.
    """
    host = [on_host("input", 0, waited_us, name=WITH_WORKERS), on_host("op", waited_us, 20_000)]
    loading = view(profile([], host, [step(1, 0, 20_000, device=None)]))
    loading.process.update({"loader_workers": 1, "cpus": 2, "cpu_ms": 20.0, "run_delay_ms": delay_ms})
    values = metrics_of(loading)
    assert [values[metric] for metric in ("workers_needed", "workers_advised")] == [needed, needed]
    assert values["workers_factor"] == pytest.approx(factor)


def test_workers_that_are_waited_for_load_a_batch_in_as_many_steps_as_they_are():
    """4 workers give a batch per step of 39 ms, of which the rest takes 24 ms: 156 ms a batch take 7 of them."""
    host = [on_host("input", 0, 15_000, name=WITH_WORKERS)]
    loading = view(profile([kernel(15_000, 39_000, 15_000)], host, [step(1, 0, 39_000)]))
    loading.process.update({"loader_workers": 4})
    values = metrics_of(loading)
    metrics = ("loading_ms", "loader_workers", "workers_needed", "workers_advised")
    assert [values[metric] for metric in metrics] == [pytest.approx(156), 4, 7, 7]


def test_no_more_workers_are_advised_than_there_are_cores():
    host = [on_host("input", 0, 400, name=ALONE)]
    loading = view(profile([kernel(400, 490, 400)], host, [step(1, 0, 490)]))
    loading.process.update({"cpus": 2})
    values = metrics_of(loading)
    assert [values[metric] for metric in ("workers_needed", "workers_advised", "cpus")] == [5, 2, 2]


def test_loading_that_waits_takes_no_core():
    """400 us of loading and 90 of the rest, of which 90 run: five workers deliver a batch in 80 us, on two cores."""
    host = [on_host("input", 0, 400, name=ALONE)]
    loading = view(profile([kernel(400, 490, 400)], host, [step(1, 0, 490)]))
    loading.process.update({"cpus": 2, "cpu_ms": 0.09})
    values = metrics_of(loading)
    assert [values[metric] for metric in ("workers_needed", "workers_advised")] == [5, 5]
    assert values["workers_pace_ms"] == pytest.approx(0.08)


def test_of_a_job_that_other_programs_delay_loading_may_wait_for_a_core():
    """It was ready and did not run for 98 of 490 us: what ran is no measure of what loading takes."""
    host = [on_host("input", 0, 400, name=ALONE)]
    for delay_ms, advised in ((0.098, 2), (0.097, 5)):
        loading = view(profile([kernel(400, 490, 400)], host, [step(1, 0, 490)]))
        loading.process.update({"cpus": 2, "cpu_ms": 0.09, "run_delay_ms": delay_ms})
        assert metrics_of(loading)["workers_advised"] == advised


def test_of_loading_that_computes_by_half_the_cores_deliver_a_batch_in_the_time_of_all_work():
    """290 us run in each step, so two cores make no step in less than 145, and three workers load as fast as that."""
    host = [on_host("input", 0, 400, name=ALONE)]
    loading = view(profile([kernel(400, 490, 400)], host, [step(1, 0, 490)]))
    loading.process.update({"cpus": 2, "cpu_ms": 0.29})
    values = metrics_of(loading)
    assert [values[metric] for metric in ("workers_needed", "workers_advised")] == [5, 3]
    assert values["workers_pace_ms"] == pytest.approx(0.145)


def test_without_a_device_two_cores_are_taken_for_granted():
    host = [on_host("input", 0, 400, name=ALONE), on_host("op", 400, 500)]
    loading = view(profile([], host, [step(1, 0, 500, device=None)]))
    assert metrics_of(loading)["workers_pace_ms"] == pytest.approx((0.4 + 2 * 0.1) / 2)


@pytest.mark.parametrize(
    ("cpus", "pace_us"),
    [
        (None, 122.75),  # five workers, 400 us of loading
        (2, 245.5),  # 400 us of loading and 91 us of the rest (a launch stands in the range), on two cores
        (8, 80),
    ],
)
def test_workers_and_the_rest_of_the_step_share_the_cores(cpus: int | None, pace_us: float):
    host = [on_host("input", 0, 400, name=ALONE)]
    loading = view(profile([kernel(400, 490, 400)], host, [step(1, 0, 490)]))
    loading.process.update({"cpus": cpus})
    assert metrics_of(loading)["workers_pace_ms"] == pytest.approx(pace_us / 1e3)


@pytest.mark.parametrize(
    ("load", "rest", "hidden", "workers"),
    [(400, 90, 0, 5), (90, 90, 0, 1), (100, 90, 0, 2), (20, 80, 0, 1), (400, 0, 90, 5)],
)
def test_so_many_workers_deliver_a_batch_in_the_time_of_the_rest(load: int, rest: int, hidden: int, workers: int):
    """Loading that a kernel of the step before hides is loading all the same: 400 us a batch, 90 us of work."""
    host = [on_host("input", 0, load, name=ALONE)]
    kernels = [kernel(0, hidden, 0)] if hidden else [kernel(load, load + rest, load)]
    values = metrics_of(view(profile(kernels, host, [step(1, 0, load + rest)])))
    assert (values["loading_ms"], values["workers_needed"]) == (pytest.approx(load / 1e3), workers)


@pytest.mark.parametrize(
    ("op", "shapes", "slowed_us"),
    [("aten::mm", "[[8]]", 40), ("aten::mm", None, 0), ("jit_step/dot", None, 40)],
)
@pytest.mark.parametrize("name", [WITH_WORKERS, ALONE])
def test_ops_beside_loading_could_be_as_fast_as_the_fastest_of_their_kind(
    name: str, op: str, shapes: str | None, slowed_us: int
):
    """In two of six steps an op takes 40 us in place of 10: half of its time, and so of the other 80 us of a step.

    One of another shape is as it is; without shapes, PyTorch's ops of one name may be of several layers.
    """
    times_us = [10, 40, 10, 10, 40, 10]
    host = [on_host("input", 100 * at, 100 * at + 20, name=name) for at in range(6)]
    at_us = [100 * at + 20 for at in range(6)]
    host += [on_host("op", at, at + of, name=op, shapes=shapes) for at, of in zip(at_us, times_us, strict=True)]
    host += [on_host("op", 280, 299, name=op, shapes="[[9]]")]
    loading = view(profile([], host, [step(at, 100 * at, 100 * at + 100, device=None) for at in range(6)]))
    assert metrics_of(loading)["slowed_ops_ms"] == pytest.approx(slowed_us / 1e3)
    delayed = replace(loading, process={**loading.process, "run_delay_ms": 0.03}, _computed={})
    assert metrics_of(delayed)["slowed_ops_ms"] == pytest.approx(max(0, slowed_us - 30) / 1e3)  # other programs stay


def test_on_a_cpu_it_counts_too():
    host = [on_host("input", 20, 70, name=ALONE)]
    recording = view(profile([], host, [step(1, 0, 100, device=None)]))
    assert metrics_of(recording)["single_process_input_share"] == pytest.approx(0.5)


def test_places_are_the_loader_s_ranges_in_used_steps():
    host = [on_host("input", at, at + 10, name=ALONE) for at in (35, 150)]
    values = measured(profile(DEVICE, host, STEPS)).places("single_process_input_share", 0)
    assert values.select("step", "start_ns").rows() == [(1, 35_000)]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("$train.py:7 validate_config", "validate_config (train.py:7)"),
        ("zzz", "zzz"),
        ("load_batch", ""),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", ""),
    ],
)
def test_an_input_range_that_does_not_call_itself_a_loader_is_named(name: str, source: str):
    recording = profile([], [on_host("input", 10, 60, name=name)], [step(0, 0, 100, device=None)])
    assert metrics_of(view(recording))["unnamed_input"] == source


@pytest.mark.parametrize(("again", "part"), [((2,), 40 / 90), ((), 0.0)])
def test_where_an_epoch_ends_and_the_next_begins_a_step_asks_twice(again: tuple[int, ...], part: float):
    """Five steps wait 10 us each, the third one 50: in it the workers start anew, or they are slow once."""
    asks = [on_host("input", 100 * i, 100 * i + (50 if i == 2 else 10), name=WITH_WORKERS) for i in range(5)]
    asks += [on_host("input", 100 * i + 60, 100 * i + 60, name=WITH_WORKERS) for i in again]
    steps = [step(i, 100 * i, 100 * i + 100) for i in range(5)]
    values = metrics_of(view(profile([kernel(100 * i + 90, 100 * i + 100) for i in range(5)], asks, steps)))
    assert values["epoch_wait_part"] == pytest.approx(part)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("$queue.py:154 get", 0.8),
        ("$_base.py:428 result", 0.8),
        ("multiprocessing/connection.py(246): recv_bytes", 0.8),
        ("$time sleep", 0),
        ("$loader.py:12 get", 0),
    ],
)
def test_a_loop_that_takes_from_a_queue_has_a_thread_that_loads(name: str, part: float):
    # the loader's range from 20 to 70, in which the call takes 40
    host = [on_host("input", 20, 70, name="$builtins next"), on_host("python", 25, 65, name=name)]
    found = metrics_of(view(profile(host_ops=host, steps=[step(1, 0, 100, device=None)])))
    assert found["loading_thread_part"] == pytest.approx(part)


def test_the_rest_of_the_step_takes_all_cores_where_no_device_computes():
    """400 us of loading and 90 us of the rest on each of two cores: 580 us of work for two."""
    loading = view(profile((), [on_host("input", 0, 400, name=ALONE)], [step(1, 0, 490, device=None)], devices=()))
    loading.process.update({"cpus": 2})
    assert metrics_of(loading)["workers_pace_ms"] == pytest.approx(0.29)


def zipped(apart: str, cpus: int | None = None):
    """In each of two steps two requests of 300 us, the second after such an op, and a model's op of 400 us."""
    host = []
    for at in (0, 1_000):
        host += [on_host("input", at + first, at + first + 290, name=ALONE) for first in (0, 300)]
        host += [on_host("op", at + 290, at + 300, name=apart), on_host("op", at + 600, at + 1_000, name="aten::mm")]
    loading = view(profile([kernel(600, 1_000, 600), kernel(1_600, 2_000, 1_600)], host, [*map(_step, (0, 1_000))]))
    loading.process.update({"cpus": cpus})
    return metrics_of(loading)


def _step(at: int):
    return step(at, at, at + 1_000)


@pytest.mark.parametrize(("apart", "at_once", "loading_ms"), [("aten::to", 2, 0.29), ("aten::mm", 0, 0.58)])
def test_a_worker_of_each_of_two_zipped_loaders_loads_what_a_step_takes_of_it(apart: str, at_once: int, loading_ms):
    values = zipped(apart)
    assert (values["batches_at_once"], values["loading_ms"]) == (at_once, pytest.approx(loading_ms))


def test_zipped_loaders_share_the_cores():
    """580 us of loading, and 420 us of the rest of the step, on two cores: one worker each."""
    values = zipped("aten::to", 2)
    assert (values["workers_advised"], values["workers_pace_ms"]) == (1, pytest.approx(0.5))


def test_a_step_of_the_device_that_holds_two_requests_is_no_epoch():
    """Two workers make every second batch late: the host asks once in each of its steps, the device sees 0, 2, 0, 2."""
    asks = [on_host("input", at, at + wait, name=WITH_WORKERS) for at, wait in ((15, 40), (60, 1), (115, 40), (160, 1))]
    windows = [(0, 10), (10, 100), (100, 110), (110, 200)]
    steps = [step(i, *window, host=(50 * i, 50 * i + 50)) for i, window in enumerate(windows)]
    kernels = [kernel(start, start + 10, start) for start in (0, 90, 100, 190)]
    assert metrics_of(view(profile(kernels, asks, steps)))["epoch_wait_part"] == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("numpy/lib/_npyio_impl.py(311): load", "numpy/lib/_npyio_impl.py(311): load"),
        ("<built-in function imread>", "imread (built-in)"),
        (ALONE, ""),
    ],
)
def test_files_that_the_step_reads_itself_have_their_function_s_name(name: str, expected: str):
    host = [on_host("input", 0, 400, name=name), on_host("op", 400, 500)]
    values = metrics_of(view(profile([], host, [step(1, 0, 500, device=None)])))
    assert (values["file_input"], values["unnamed_input"]) == (expected, "")
