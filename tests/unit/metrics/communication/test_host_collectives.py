from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from advisor.metrics.evaluate import pace_of
from tests.tables import kernel, measured, metrics_of, on_device, on_host, profile, step, values_of, view

STEP = [step(1, 0, 1000)]
GLOO = on_host("collective", 100, 400, name="gloo:all_reduce", thread=9)


# us                0    100   200   300   400   500
# asked for         ==                                c10d::allreduce_, 0 to 20
# DtoH                ======                          launched at 10, 50 to 100
# gloo                     ==================         100 to 400
# HtoD                                       ====     launched by gloo's thread, 400 to 450
# another copy                                   ===  launched elsewhere, 450 to 500
# kernel                         =====                200 to 300
def test_collectives_on_the_host_and_the_copies_around_them():
    copies = [
        on_device("memcpy", 50, 100, 10, copy_kind="DtoH", bytes=1000),
        on_device("memcpy", 400, 450, 399, copy_kind="HtoD", bytes=1000),
        on_device("memcpy", 450, 500, 440, copy_kind="HtoD", bytes=50),
    ]
    host = [on_host("op", 0, 20, name="c10d::allreduce_"), GLOO]
    base = profile([*copies, kernel(200, 300)], host, STEP)
    thread = pl.when(pl.col("start_ns") == 398_000).then(9).otherwise("thread")  # the call that launched the copy back
    base = replace(base, host_ops=base.host_ops.with_columns(thread=thread))
    values = metrics_of(view(base))
    assert values["host_collective_ms"] == pytest.approx(0.3)
    assert values["host_collective_idle_ms"] == pytest.approx(0.05 + 0.2 + 0.05)


# us                0    100   200   300   400   500
# MPI_Sendrecv            ============                100 to 300, launches a copy at 150: 160 to 200
# MPI_Waitall                                ======   400 to 500, for what the host alone exchanges
# another copy                         =              launched at 310, 320 to 330
# kernel                          ====                200 to 260
def test_of_mpi_the_calls_that_copy_keep_the_device_waiting():
    spans = {"MPI_Sendrecv": (100, 300), "MPI_Waitall": (400, 500)}
    host = [on_host("collective", start, end, name=name) for name, (start, end) in spans.items()]
    copies = [on_device("memcpy", at + 10, end, at, copy_kind="DtoH", bytes=8) for at, end in ((150, 200), (310, 330))]
    values = metrics_of(view(profile([*copies, kernel(200, 260)], host, STEP)))
    assert values["host_collective_idle_ms"] == pytest.approx(0.2 - 0.06)
    assert values["collective_calls"] == "MPI_Sendrecv (1 x), MPI_Waitall (1 x)"


def test_copies_without_collectives_on_the_host_are_batches():
    host = [on_host("op", 0, 20, name="c10d::allreduce_")]
    values = metrics_of(view(profile([on_device("memcpy", 50, 100, 10, copy_kind="HtoD", bytes=1000)], host, STEP)))
    assert values["host_collective_idle_ms"] == 0


def test_without_a_device_what_the_ranks_exchange_is_hidden_by_ops_of_other_threads():
    # us       0   100   200   300   400    gloo runs from 100 to 400, an op until 150, c10d's own until 380
    host = [GLOO, on_host("op", 50, 150, name="aten::mm"), on_host("op", 150, 380, name="c10d::allreduce_")]
    inside = on_host("op", 200, 300, name="aten::add", thread=9)  # the sum itself
    steps = [step(1, 0, 1000, device=None)]
    values = metrics_of(view(profile([], [*host, inside], steps)))
    assert values["host_collective_exposed_ms"] == pytest.approx(0.25)
    assert metrics_of(view(profile([], host[1:], steps)))["host_collective_exposed_ms"] == 0


def test_a_transfer_takes_no_longer_than_the_shortest_call_of_its_place():
    # two steps of 10 ms: a reduction of 3 and 2 ms, then one of 0.9 and 4 ms; an op beside the last from 16 to 20
    steps = [step(number, 10_000 * number, 10_000 * number + 10_000, device=None) for number in (0, 1)]
    spans = [(0, 3_000), (5_000, 5_900), (10_000, 12_000), (14_000, 18_000)]
    host = [on_host("collective", start, end, name="gloo:all_reduce", thread=9) for start, end in spans]
    made = view(profile([], [*host, on_host("op", 16_000, 20_000)], steps))
    told = {
        "host_transfer_exposed_ms": pytest.approx(2.9),
        "short_host_reductions_per_step": 1,
    }
    assert values_of(told, made) == told
    covered = view(profile([], [*host, on_host("op", 0, 13_000)], steps))  # the rest, 2 ms per step, is all there is
    assert metrics_of(covered)["host_transfer_exposed_ms"] == pytest.approx(2)


def test_the_rank_that_waits_the_least_bounds_the_transfer():
    """Rank 0 is in its collective for 300 us of each of two steps, rank 1 for 20 us; rank 2 makes more calls."""
    host, steps = [], []
    for worker, calls in enumerate([[(100, 400)], [(380, 400)], [(at, at + 1) for at in range(100, 400, 50)]]):
        for i in (0, 1):
            steps.append(step(i, 1000 * i, 1000 * i + 1000, device=None, worker=worker))
            host += [
                on_host("collective", 1000 * i + start, 1000 * i + end, name="gloo:all_reduce", thread=9, worker=worker)
                for start, end in calls
            ]
    rows = measured(profile([], host, steps)).rows("worker").sort("worker")
    assert rows["host_transfer_most_ms"].to_list() == pytest.approx([0.02, 0.02, 0.006])
    assert pace_of(rows.with_columns(own_step_ms=None)) == 2  # the least time in collectives


def test_without_a_common_clock_the_rank_that_is_in_collectives_for_least_sets_the_pace():
    """Steps of 100, 102 and 101 ms, of which 90 and 92 and 10 are collectives that no kernel hides: 10, 10 and 91."""
    rows = pl.DataFrame(
        {
            "worker": [0, 1, 2],
            "step_mean_ms": [100.0, 102.0, 101.0],
            "host_collective_ms": [0.0, None, 0.0],
            "exposed_communication_ms": [90.0, 92.0, 10.0],
        }
    )
    assert pace_of(rows) == 2
    assert pace_of(rows.with_columns(exposed_communication_ms=None)) == 1
    assert pace_of(rows.with_columns(own_step_ms=pl.Series([100.0, 99.0, 98.0]))) == 0
