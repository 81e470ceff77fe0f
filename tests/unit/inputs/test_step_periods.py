from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from advisor.inputs.step_periods import host_periods, with_handovers, with_requests
from tests.tables import US, Row, kernel, metrics_of, on_host, profile, step, view

MARKS = [on_host("step", 100 * i, 100 * i + 40, name=f"ProfilerStep#{i}", thread=2) for i in range(4)]
STEPS = [step(i, 100 * i, 100 * i + 100, mark_ns=40 * US) for i in range(4)]
DEVICE = [kernel(100 * i + 10, 100 * i + 40, 100 * i + 5) for i in range(4)]


def waits_us(*host: Row) -> float:
    """How long a request for input takes its place between the marks, in us."""
    made = profile(DEVICE, [*MARKS, *host], STEPS)
    rows = with_requests(made.host_ops, made.device_ops, made.steps)
    return sum(rows.filter(rows["kind"] == "input")["dur_ns"]) / US


def test_silence_between_the_marks_stands_for_a_request():
    assert waits_us() == 4 * 60


@pytest.mark.parametrize("framework", ["pytorch", "jax"])
def test_that_silence_is_input_of_its_step_whatever_the_framework(framework: str):
    made = profile(DEVICE, MARKS, STEPS, workers=[{"worker": 0, "framework": framework}])
    host = with_requests(made.host_ops, made.device_ops, made.steps)
    waiting = replace(made, host_ops=host.with_columns(pl.col("worker").fill_null(0)))
    assert metrics_of(view(waiting))["input_share"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("name", "expected"), [("scores", 4 * 10), ("load batch", 4 * 60), ("train.py(9): next_batch", 4 * 60)]
)
def test_a_range_of_the_program_s_own_says_what_else_the_time_is_for(name: str, expected: float):
    assert waits_us(*(on_host("annotation", 100 * i + 50, 100 * i + 100, name=name, thread=2) for i in range(4))) == (
        expected
    )


def test_a_range_around_the_loop_says_nothing():
    assert waits_us(on_host("annotation", 45, 400, name="train", thread=2)) == 4 * 60


@pytest.mark.parametrize(("kind", "expected"), [("op", 4 * 20), ("runtime", 4 * 20), ("python", 4 * 60)])
def test_while_the_thread_that_launches_is_inside_a_call_nobody_loads(kind: str, expected: float):
    """As where a mark ends while the backward pass runs on a thread of its own."""
    assert waits_us(*(on_host(kind, 100 * i + 30, 100 * i + 80, thread=2) for i in range(4))) == expected
    assert waits_us(*(on_host(kind, 100 * i + 30, 100 * i + 80, thread=9) for i in range(4))) == 4 * 60


@pytest.mark.parametrize(("number", "expected"), [((7, 7, 7), 0), ((7, 8, 9), 4 * 60)])
def test_a_model_that_only_infers_may_wait_for_requests(number: tuple[int, ...], expected: float):
    """Autograd numbers each product that it would differentiate."""
    products = [
        on_host("op", 100 * i + 10, 100 * i + 20, name="aten::addmm", thread=2, sequence=n)
        for i, n in enumerate(number)
    ]
    assert waits_us(*products) == expected


def test_the_time_between_two_calls_is_no_pause():
    """One of them takes three times as long: it is a long step, for between points lies all of the work."""
    calls = pl.DataFrame(
        {"step": [*range(6)], "name": ["s"] * 6, "host_start_ns": [0, 100, 200, 500, 600, 700], "host_dur_ns": [0] * 6}
    )
    ranges = calls.with_columns(host_dur_ns=pl.lit(40))
    empty = profile()
    periods = [host_periods(marks, empty.host_ops, empty.device_ops) for marks in (calls, ranges)]
    assert [of["pause_ns"].sum() for of in periods] == [0, 200]
    assert periods[0]["host_dur_ns"].to_list()[:3] == [100, 100, 300]


@pytest.mark.parametrize(("kind", "paused"), [("op", 200), ("compile", 0), ("input", 0)])
def test_a_compilation_between_two_marks_is_part_of_the_step(kind: str, paused: int):
    """A jitted function that meets a new shape compiles for 150 of the 260 ns between two marks, where 60 are usual."""
    marks = pl.DataFrame(
        {"step": [*range(6)], "name": ["s"] * 6, "host_start_ns": [0, 100, 200, 500, 600, 700], "host_dur_ns": [40] * 6}
    )
    host = profile([], [on_host(kind, 0, 0.15)]).host_ops.with_columns(start_ns=pl.lit(250), dur_ns=pl.lit(150))
    periods = host_periods(marks, host, profile().device_ops)
    assert periods["pause_ns"].sum() == paused
    assert periods["host_dur_ns"][2] == 300 - paused


@pytest.mark.parametrize(
    ("works", "incomplete"), [((0, 100, 200), [None, None, None]), ((0, 100), [None, None, "no_end"])]
)
def test_a_last_mark_in_which_nothing_runs_is_the_recorders_end(works: tuple[int, ...], incomplete: list[str | None]):
    """A schedule stops the profiler right after it has begun the next step, which lasts 20 of the usual 100 us."""
    marks = pl.DataFrame(
        {"step": [3, 4, 5], "name": ["s"] * 3, "host_start_ns": [0, 100, 200], "host_dur_ns": [100, 100, 20]}
    )
    host = profile([], [on_host("op", at / 1e3, (at + 10) / 1e3) for at in works]).host_ops
    assert host_periods(marks, host, profile().device_ops)["incomplete"].to_list() == incomplete


# us        0    20                80  100   each step: an op, 60 us of silence, a product; a batch is made elsewhere
OPS = [
    row
    for i, number in enumerate((7, 8, 9, 10))
    for row in (
        on_host("op", 100 * i, 100 * i + 20, name="aten::add", thread=2),
        on_host("op", 100 * i + 10, 100 * i + 90, name="aten::full", thread=3),
        on_host("op", 100 * i + 80, 100 * i + 100, name="aten::addmm", thread=2, sequence=number),
    )
]
GET = "queue.py: Queue.get"


def sampled(waits: int, call: str = GET, *, of_loader: bool = False) -> list[Row]:
    """Stacks: so many of a hundred where the main thread, or a worker of a loader, is in this call."""
    return [
        {"ns": waits, "below": [call, "threading.py: Condition.wait"], "of_loader": of_loader},
        {"ns": 100 - waits, "below": [], "of_loader": False},
    ]


@pytest.mark.parametrize(
    ("stacks", "expected"),
    [
        (sampled(60), 4 * 60),
        (sampled(30), 4 * 60),  # half of the silence
        (sampled(29), 0),
        (sampled(60, "concurrent/futures/_base.py: Future.result"), 4 * 60),
        (sampled(60, "multiprocessing/pool.py: IMapIterator.next"), 4 * 60),
        (sampled(60, "multiprocessing/pool.py: Pool._maintain_pool"), 0),
        (sampled(60, "logging/__init__.py: info"), 0),
        ([], 0),
    ],
)
def test_the_silence_in_which_samples_see_a_wait_for_another_thread_is_input(stacks: list[Row], expected: float):
    made = profile([], [*MARKS, *OPS], STEPS, devices=())
    rows = with_handovers(made.host_ops, made.device_ops, made.steps, stacks)
    asked = rows.filter(pl.col("kind") == "input")
    assert asked["dur_ns"].sum() == expected * US
    assert asked["start_ns"].to_list() == [(100 * i + 20) * US for i in range(4)] * bool(expected)
    assert set(asked["thread"]) <= {2}


def test_no_such_silence_is_input_where_requests_were_recorded_or_a_model_only_infers():
    asks = on_host("input", 20, 30, name="enumerate(DataLoader)#x.__next__", thread=2)
    infers = [row | {"sequence": 7} if row["name"] == "aten::addmm" else row for row in OPS]
    for rows, inputs in (([*OPS, asks], 1), (infers, 0)):
        made = profile([], [*MARKS, *rows], STEPS, devices=())
        host = with_handovers(made.host_ops, made.device_ops, made.steps, sampled(60))
        assert (host["kind"] == "input").sum() == inputs


@pytest.mark.parametrize(
    ("called_us", "waits_at_us", "waits_us", "of_last"),
    [
        (10, 242, 48, (90, None)),
        (10, 310, 48, (40, "no_end")),
        (45, 242, 48, (40, "no_end")),
        (10, 242, 47, (40, "no_end")),
    ],
    ids=["at once", "later", "work between the marks", "a batch is awaited, too"],
)
def test_the_last_step_ends_with_the_wait_for_the_device_right_behind_its_mark(
    called_us: float, waits_at_us: float, waits_us: float, of_last: tuple[int, str | None]
):
    """Three marks of 40 us, each 100 after the one before, behind each a wait."""
    marks = pl.DataFrame(
        {"step": [0, 1, 2], "name": ["s"] * 3, "host_start_ns": [0, 100_000, 200_000], "host_dur_ns": [40_000] * 3}
    )
    times = ((42, waits_us), (142, waits_us), (waits_at_us, 48))
    waits = [on_host("sync", at, at + us, name="cudaDeviceSynchronize") for at, us in times]
    made = profile([kernel(at, at + 5, launched=at) for at in (10, 100 + called_us, 210)], waits)
    last = host_periods(marks, made.host_ops, made.device_ops).row(-1, named=True)
    assert (last["host_dur_ns"] / 1_000, last["incomplete"]) == of_last
