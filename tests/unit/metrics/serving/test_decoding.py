from __future__ import annotations

import pytest

from tests.tables import Row, kernel, measured, on_device, on_host, profile, step, worker_row

# us     0        100      200      300   342      steps whose marks touch; the last ends with its work
# host   |DECODE--|DECODE--|DECODE--|DECODE|
STEP = 100


def marks(*names: str) -> list[Row]:
    starts = [i * STEP for i in range(len(names))]
    ends = [*starts[1:], starts[-1] + 42]
    return [on_host("annotation", *span, name=name) for *span, name in zip(starts, ends, names, strict=True)]


def decode(count: int) -> list[Row]:
    return marks(*["step[DECODE bs=4]"] * count)


def replay(start: float, end: float, launched: float, **columns: object) -> Row:
    op = kernel(start, end, launched, **columns)
    return op | {"call": op["call"] | {"name": "cudaGraphLaunch"}}


def test_a_step_in_one_graph_and_a_step_of_single_kernels():
    graph = [replay(2, 80, 2, name="gemm"), replay(81, 95, 2, name="norm")]
    single = [kernel(110 + 10 * i, 112 + 10 * i, 109 + 10 * i, name=f"k{i}") for i in range(4)]
    row = worker_row(profile([*graph, *single], decode(2)))
    assert row["decode_single_kernels"] == pytest.approx(4 / 2)
    assert row["decode_launch_share"] == pytest.approx(5 / 142)
    # from 2 to 142: busy 78 + 14 + 4 x 2
    assert row["decode_idle_share"] == pytest.approx(1 - 100 / 140)
    assert row["engine"] == "sglang"


def test_between_two_decode_steps_the_host_works():
    # each graph runs for 40 us; then the host prepares the next step for 58 us and launches it
    ops = [replay(100 * i + 2, 100 * i + 42, 100 * i + 2) for i in range(4)]
    schedule = [
        on_host("python", 100 * i + 45, 100 * i + 99, name="scheduler.py(7): schedule", thread=2) for i in range(3)
    ]
    row = worker_row(profile(ops, [*decode(4), *schedule]))
    assert row["decode_gap_us"] == pytest.approx(60)
    # the call that launches takes 1 us of each gap
    assert row["decode_gap_share"] == pytest.approx(3 * 59 / (342 - 2))
    assert row["decode_gap_ms"] == pytest.approx(3 * 0.060)
    assert row["decode_busy_ms"] == pytest.approx(4 * 0.040)
    assert row["decode_gap_causes"].startswith("scheduler.py(7): schedule")


def test_the_gap_after_the_last_used_step_counts():
    ops = [replay(100 * i + 2, 100 * i + 42, 100 * i + 2) for i in range(4)]
    steps = [step(i, 100 * i, 100 * i + 100) for i in range(3)]  # of the fourth there is no mark
    # from 42, 142 and 242 to 102, 202 and the end of the third step
    assert worker_row(profile(ops, decode(4), steps))["decode_gap_ms"] == pytest.approx((60 + 60 + 58) / 3 / 1e3)


def test_a_pause_of_the_requests_is_no_gap():
    names = ["step[DECODE bs=4]"] * 5
    rows = marks(*names)
    rows[4] |= {"start_ns": 5_000_000, "dur_ns": 42_000}
    ops = [replay(100 * i + 2, 100 * i + 42, 100 * i + 2) for i in range(4)]
    ops.append(replay(5002, 5042, 5002))
    assert worker_row(profile(ops, rows))["decode_gap_share"] == pytest.approx(3 * 59 / 5040)


def test_a_prefill_between_two_decode_steps_is_no_gap():
    rows = marks("step[DECODE bs=4]", "step[EXTEND bs=1 toks=9]", "step[DECODE bs=5]")
    ops = [replay(100 * i + 2, 100 * i + 42, 100 * i + 2) for i in range(3)]
    row = worker_row(profile(ops, rows))
    assert (row["decode_gap_share"], row["decode_gap_us"]) == (0, 0)


@pytest.mark.parametrize(
    ("requests", "stall_ms"),
    [
        ((4, 1, 5), 0.1),  # four go on to decode beside the new one: they waited from 102 to 202
        ((4, 1, 1), 0.0),  # the four were done
    ],
)
def test_a_prefill_stalls_the_requests_that_go_on(requests: tuple[int, int, int], stall_ms: float):
    first, new, then = requests
    rows = marks(f"step[DECODE bs={first}]", f"step[EXTEND bs={new} toks=900]", f"step[DECODE bs={then}]")
    ops = [replay(100 * i + 2, 100 * i + 42, 100 * i + 2) for i in range(3)]
    row = worker_row(profile(ops, rows))
    assert row["prefill_stall_ms"] == pytest.approx(stall_ms)
    assert row["prefill_stall_ratio"] == pytest.approx(stall_ms / 0.07)  # decode steps take 100 and 40 us


def test_kernels_after_the_last_product_sample():
    names = ["gemm", "rmsnorm", "gemm", "radixSortKVInPlace", "softmax_warp_forward", "argmax_kernel"]
    ops = [kernel(10 * i + 1, 10 * i + 9, 10 * i + 1, name=name) for i, name in enumerate(names)]
    row = worker_row(profile(ops, [on_host("annotation", 0, 60, name="step[DECODE bs=4]")]))
    assert row["sampling_kernels"] == 3
    assert row["sampling_ms"] == pytest.approx(0.024)
    assert row["sampling_share"] == pytest.approx(24 / 58)


def test_kernels_after_the_last_product_that_choose_nothing_are_no_sampling():
    ops = [kernel(1, 9, 1, name="gemm"), kernel(11, 19, 11, name="copy_kernel")]
    assert worker_row(profile(ops, decode(1)))["sampling_kernels"] == 0


@pytest.mark.parametrize(
    ("names", "code"),
    [(["step 1"], "no_engine_steps"), (["step[EXTEND bs=1 toks=9]"], "no_decode_step")],
)
def test_without_decode_steps_nothing_is_known_of_them(names: list[str], code: str):
    results = measured(profile([kernel(2, 42, 1)], marks(*names)))
    for metric in ("decode_idle_share", "decode_gap_share", "sampling_share", "prefill_stall_ms"):
        assert results.rows("worker")[metric].item() is None
        assert results.reasons[metric].code == code


def test_marks_without_numbers_of_requests_show_no_stall():
    results = measured(profile([kernel(2, 42, 1)], marks("step[DECODE]")))
    assert results.reasons["prefill_stall_ms"].code == "no_request_counts"


def test_a_collective_is_no_idle_time():
    ops = [replay(2, 42, 2), on_device("collective", 42, 102, 3), replay(102, 142, 102)]
    assert worker_row(profile(ops, decode(2)))["decode_gap_share"] == 0
