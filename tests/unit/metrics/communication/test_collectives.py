from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from advisor.metrics import METRICS
from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.profiles import of_rule
from tests.tables import Row, kernel, metrics_of, on_device, on_host, profile, step, view, worker_row

STEP = [step(1, 0, 1000)]
GLOO = on_host("collective", 100, 400, name="gloo:all_reduce", thread=9)


def trace(device: list[Row], host: list[Row] = (), *, sizes: list[int | None] = (), **more: Any) -> Profile:
    """A profile whose collectives are all-reduces of these sizes, in order."""
    rows = [i for i, op in enumerate(device) if op["kind"] == "collective"]
    facts = [
        {"device_op": i, "worker": 0, "op": "all_reduce", "bytes": size} for i, size in zip(rows, sizes, strict=False)
    ]
    return profile(device, host, STEP, collectives=facts, **more)


# us            0    100   200   300   400
# collective         ============                 100 to 300
# short                                ==         400 to 440
# kernel                   ============           200 to 400
DEVICE = [on_device("collective", 100, 300), kernel(200, 400), on_device("collective", 400, 440)]


def test_kernels_hide_communication():
    values = metrics_of(view(trace(DEVICE)))
    assert values["communication_ms"] == pytest.approx(0.24)
    assert values["exposed_communication_ms"] == pytest.approx(0.14)
    assert values["overlap_share"] == pytest.approx(0.1 / 0.24)


def test_short_collectives_count_where_no_kernel_runs_whatever_they_are():
    values = of_rule("too-many-collectives", view(trace(DEVICE)))
    assert (values["short_per_step"], values["short_ms"]) == (1, pytest.approx(0.04))
    one_shot = [*DEVICE[:2], DEVICE[2] | {"name": "cross_device_reduce_1stage"}]
    assert of_rule("too-many-collectives", view(trace(one_shot)))["short_per_step"] == 0


def test_the_places_of_exposed_communication_are_those_that_nothing_hides():
    # The longest collective runs beside a kernel but for its last 20 us; the short one runs alone.
    ops = [
        on_device("collective", 100, 320, name="long"),
        kernel(100, 300),
        on_device("collective", 400, 440, name="b"),
    ]
    hidden = [on_device("collective", 500, 600, stream=9), kernel(500, 600)]
    places = METRICS["exposed_communication_ms"].where(view(trace([*ops, *hidden])))
    assert places["name"].to_list() == ["b", "long"]


def test_collectives_that_overlap_count_once():
    twice = [on_device("collective", 100, 300, stream=8), on_device("collective", 200, 400, stream=9)]
    assert metrics_of(view(trace(twice)))["exposed_communication_ms"] == pytest.approx(0.3)


def test_without_collectives_there_is_nothing_to_hide():
    values = metrics_of(view(trace([kernel(0, 10)])))
    assert values["communication_ms"] == 0
    assert isinstance(values["overlap_share"], Missing)


def test_sizes_of_messages():
    values = metrics_of(view(trace(DEVICE, sizes=[24 << 20, 8 << 20])))
    assert values["collective_bytes_per_step"] == 32 << 20
    assert values["collective_median_bytes"] == 16 << 20


def test_a_size_that_is_not_known_leaves_all_of_them_untold():
    values = metrics_of(view(trace(DEVICE, sizes=[24 << 20, None])))
    assert values["collective_bytes_per_step"] == Missing("sizes_partly_missing", missing=1, collectives=2)


def test_calls_by_operation():
    values = metrics_of(view(trace(DEVICE, [GLOO], sizes=[1, 1])))
    assert values["collectives_per_step"] == 3
    assert values["collective_calls"] == "all_reduce (2 x), gloo:all_reduce (1 x)"
    assert isinstance(values["backend"], Missing)
    base = trace(DEVICE)
    of_nccl = replace(base, workers=base.workers.with_columns(backend=pl.lit("nccl")))
    assert metrics_of(view(of_nccl))["backend"] == "nccl"


def alike(starts: list[float], us: float, name: str = "norm", **columns: Any) -> list[Row]:
    return [kernel(start, start + us, name=name, grid=8, block=128, **columns) for start in starts]


BESIDE, ALONE = [100, 120, 140], [500, 520, 540]
RUNNING = on_device("collective", 90, 200)


def test_the_same_kernel_is_slower_beside_a_collective():
    values = metrics_of(view(trace([RUNNING, *alike(BESIDE, 15), *alike(ALONE, 10)])))
    assert values["contention_ratio"] == pytest.approx(1.5)
    assert values["contention_ms"] == pytest.approx(0.015)


def test_two_calls_are_no_median():
    values = metrics_of(view(trace([RUNNING, *alike(BESIDE[:2], 15), *alike(ALONE, 10)])))
    assert isinstance(values["contention_ratio"], Missing)
    values = metrics_of(view(trace([RUNNING, *alike(BESIDE, 15), *alike(ALONE[:2], 10)])))
    assert isinstance(values["contention_ms"], Missing)


def test_without_shapes_products_of_one_grid_may_be_of_other_lengths():
    device = [RUNNING, *alike(BESIDE, 15, "sm90_gemm"), *alike(ALONE, 10, "sm90_gemm")]
    assert isinstance(metrics_of(view(trace(device)))["contention_ratio"], Missing)


def test_other_shapes_are_another_kernel():
    ops = [on_host("op", 0, 1, name="aten::mm", shapes=f"[[{n}]]") for n in (1, 2)]
    device = [RUNNING, *alike(BESIDE, 15, op=0), *alike(ALONE, 10, op=1)]
    assert isinstance(metrics_of(view(trace(device, ops)))["contention_ratio"], Missing)
    same = [RUNNING, *alike(BESIDE, 15, op=0), *alike(ALONE, 10, op=0)]
    assert metrics_of(view(trace(same, ops)))["contention_ratio"] == pytest.approx(1.5)


def test_nothing_runs_beside_a_collective():
    values = metrics_of(view(trace([RUNNING, *alike(ALONE, 10)])))
    assert (values["contention_ms"], values["contention_ratio"]) == (0.0, 1.0)


def test_a_worker_on_the_host_alone_says_why():
    row = worker_row(profile([], [GLOO], [step(1, 0, 1000, device=None)]))
    assert row["collectives_per_step"] == 1
    assert row["host_collective_ms"] == pytest.approx(0.3)
    assert row["host_collective_idle_ms"] is row["communication_ms"] is None
