from __future__ import annotations

import pytest

from advisor.metrics.metric import METRICS, Value
from advisor.model.missing import Missing
from tests.tables import (
    US,
    Row,
    kernel,
    metrics_of,
    on_device,
    on_host,
    pageable,
    profile,
    step,
    values_of,
    view,
    worker_row,
)

# us       -1000   -900    -400   0      50
# calls    cuInit  cudaMemcpyAsync
# copies           =========             =====   of 100 bytes each
# kernel                          =====
HOST = [on_host("runtime", -1_000, -950, name="cuInit"), on_host("runtime", -900, -400, name="cudaMemcpyAsync")]
DEVICE = [pageable(-900, -500, bytes=100), kernel(0, 40), pageable(50, 60, bytes=100)]


NAMES = ("startup_ms", "startup_copy_ms", "startup_copy_bytes", "startup_pageable_bytes", "startup_work")
NAMES += ("startup_idle_ms", "first_use_ms", "startup_idle_work")
WORKERS: list[Row] = [{"worker": 0, "work_start_ns": 0, "work_end_ns": 60 * US}]


def found(*more: Row, steps: tuple[Row, ...] = (), began: float | None = 0) -> dict[str, Value]:
    begins = None if began is None else round(began * US)
    workers = [{"worker": 0, "work_start_ns": begins, "work_end_ns": begins and 60 * US}]
    return values_of(NAMES, view(profile([*DEVICE, *more], HOST, steps, workers=workers)))


def test_what_comes_before_the_first_kernel_is_told_once():
    told = {
        "startup_ms": 1.0,
        "startup_copy_ms": 0.4,
        "startup_copy_bytes": 100,
        "startup_pageable_bytes": 100,
        "startup_work": "cudaMemcpyAsync (0.5 ms), cuInit (50 µs)",
        "startup_idle_ms": 0.5,
        "first_use_ms": 0.0,
        "startup_idle_work": "cudaMemcpyAsync (0.1 ms), no CUDA call (0.4 ms)",
    }
    assert found() == told


def test_gaps_that_first_uses_of_kernels_hold_open_are_start_up_too():
    """2 ms in the first launch of `b`, none in the second; 1.5 ms of loading code; 3 ms for no reason that is known."""
    device = [
        kernel(0, 100, name="a"),
        kernel(3_000, 3_100, launched=2_990, name="b"),
        kernel(5_100, 5_200, launched=5_099, name="b"),
        kernel(8_200, 8_300, name="a"),
        kernel(11_300, 11_400, launched=11_299, name="c"),
    ]
    device[1]["call"] |= {"start_ns": 990 * US, "dur_ns": 2_000 * US}
    loads = [on_host("runtime", 6_000, 7_500, name="cuLibraryLoadData")]
    workers = [{"worker": 0, "work_start_ns": 0, "work_end_ns": 11_400 * US}]
    told = metrics_of(view(profile(device, loads, workers=workers)))
    assert (told["startup_idle_ms"], told["first_use_ms"]) == (0.0, 2.9 + 3.0)
    assert told["startup_idle_work"] == "cudaLaunchKernel (2 ms), cuLibraryLoadData (1.5 ms), no CUDA call (2.4 ms)"


def test_ranges_of_start_up_are_named_by_the_outermost():
    outer, inner = (
        on_host("annotation", *at, name=name) for at, name in (((-1_100, 20), "init"), ((-890, -410), "load"))
    )
    told = metrics_of(view(profile(DEVICE, [outer, inner | {"parent": 0}], workers=WORKERS)))
    assert told["startup_work"] == "init (1.1 ms)"


def test_marked_steps_begin_later_than_the_first_kernel():
    in_step = kernel(70, 80, step=1)
    told = found(in_step, steps=(step(1, 70, 80),))
    assert told["startup_ms"] == 1.07
    assert told["startup_copy_bytes"] == 200


def test_copies_within_the_device_are_no_pageable_ones():
    inner = on_device("memcpy", -300, -200, copy_kind="DtoD", bytes=7)
    told = found(inner)
    assert (told["startup_copy_bytes"], told["startup_pageable_bytes"]) == (107, 100)
    assert told["startup_copy_ms"] == 0.5


def test_a_recorder_started_amid_the_work_saw_no_start():
    told = found(began=None)
    assert all(isinstance(value, Missing) for value in told.values())


def test_places_are_the_longest_copies_before_it():
    where = METRICS["startup_copy_ms"].where
    assert where
    workers = [{"worker": 0, "work_start_ns": 0, "work_end_ns": 60 * US}]
    rows = where(view(profile(DEVICE, HOST, workers=workers)))
    assert rows.select("start_ns", "dur_ns").rows() == [(-900_000, 400_000)]


def test_what_is_done_once_is_apart_from_the_steps():
    """CUDA starts for 200 ms, the first kernel's code loads for 2 ms, and each step is 10 ms long."""
    call = on_host("runtime", 0, 200_000, name="cudaFree")
    load = on_host("runtime", 201_000, 203_000, name="cudaLaunchKernel")
    kernels = [
        kernel(200_500, 200_600, launched=200_490, name="fill"),
        kernel(203_000, 210_000, name="gemm") | {"launch": 1},
        kernel(210_010, 220_000, launched=210_001, name="gemm"),
    ]
    row = worker_row(profile(kernels, [call, load], [step(1, 200_000, 210_000), step(2, 210_000, 220_000)]))
    assert row["once_ms"] == pytest.approx(202)
    assert row["once_share"] == pytest.approx(202 / 220)
    assert row["once_step_share"] == pytest.approx(2 / 20)
    assert row["once_work"] == "cudaFree (200 ms), cudaLaunchKernel (2 ms)"
