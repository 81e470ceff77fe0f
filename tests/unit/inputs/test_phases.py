"""When the work of a recording begins and ends, on profiles by hand; times in ms."""

from __future__ import annotations

from advisor.inputs.phases import COLD_RANGE, Work, with_only_pass, work
from tests.tables import Row, kernel, on_device, on_host, profile, span

MS = 1_000


def found(device: list[Row], host: list[Row], os_calls: list[Row] | None = None) -> tuple[float | None, float | None]:
    """Begin and end of the work."""
    made = profile(device, host, os_calls=os_calls or [])
    bounds: Work = work(made.host_ops, made.device_ops, None if os_calls is None else made.os_calls)
    begin, end = (ns and ns / 1e6 for ns in bounds)
    return begin, end


def kernels(*starts: float, ms: float = 10) -> list[Row]:
    return [kernel(at * MS, (at + ms) * MS, launched=at * MS - 10) for at in starts]


STARTS = on_host("start_up", 0, 50 * MS)


def test_the_work_begins_after_what_is_done_once_and_ends_with_the_device():
    frees = on_host("allocator", 140 * MS, 900 * MS)
    assert found(kernels(60, 80, 100, 120), [STARTS, frees]) == (60, 130)


def pages(*spans: tuple[float, float]) -> list[Row]:
    where = {"source_memory": "managed", "target_memory": "managed"}
    return [on_device("memcpy", start * MS, end * MS, **where) for start, end in spans]


def test_ops_that_take_no_time_neither_begin_nor_end_the_work():
    instants = [*kernels(60, 120, ms=0), *copies((900, 900))]
    assert found([*instants, *kernels(80, 100)], [STARTS]) == (80, 110)
    assert found(instants, [STARTS]) == (None, None)


def test_pages_that_the_host_reads_right_after_the_work_are_of_it_and_later_ones_are_not():
    result = on_device("memcpy", 131 * MS, 133 * MS, source_memory="device", target_memory="pageable")
    assert found([*kernels(60, 120), *pages((141, 900))], [STARTS]) == (60, 130)
    assert found([*kernels(60, 120), *pages((140, 200), (210, 900))], [STARTS]) == (60, 900)
    assert found([*kernels(60, 120), result, *pages((143, 900))], [STARTS]) == (60, 900)


def copies(*spans: tuple[float, float]) -> list[Row]:
    return [on_device("memcpy", start * MS, end * MS, copy_kind="HtoD") for start, end in spans]


def test_what_a_program_without_a_framework_copies_right_before_its_first_kernel_is_work():
    near = [*copies((55, 300), (310, 500)), *kernels(510)]
    assert found(near, [STARTS]) == (55, 520)
    assert found([*copies((55, 300), (311, 500)), *kernels(510)], [STARTS]) == (311, 520)
    assert found(near, [STARTS, on_host("op", 509 * MS, 510 * MS)]) == (510, 520)  # weights and inputs


def test_code_that_is_loaded_before_any_kernel_runs_shows_the_start_of_the_process():
    load = on_host("runtime", 700 * MS, 703 * MS, name="cuModuleLoadDataEx")
    assert found(kernels(900), [load]) == (900, 910)
    assert found(kernels(600, 900), [load]) == (None, 910)


def test_a_host_that_works_for_nearly_all_of_a_recording_before_any_kernel_starts_the_process():
    reads = on_host("op", 0, 100 * MS)
    assert found(kernels(600), [reads]) == (600, 610)  # 98 % of the recording
    assert found(kernels(600, 625), [reads]) == (None, 635)  # 94 %


def test_kernels_before_it_are_start_up_if_most_of_the_work_follows():
    load = on_host("start_up", 70 * MS, 95 * MS)
    assert found(kernels(55, 100, 120), [STARTS, load]) == (100, 130)
    assert found(kernels(55, 57, 100, ms=2), [STARTS, load]) == (55, 102)


def test_the_only_pause_that_is_most_of_the_recording_sets_apart_what_came_before_or_comes_after():
    """Twelve kernels of 10 ms in a row are the loop, and 200 ms without a call are more than half of all."""
    loop = [170 + 10 * n for n in range(12)]  # until 290 ms
    init = on_host("runtime", 0, 10 * MS, name="cudaMalloc")

    def side(first: int, *others: float, loop_ms: float = 10, **more: str) -> tuple[float | None, float | None]:
        return found([*kernels(*others), *kernels(*(first + at for at in loop), ms=loop_ms)], [init, *host(more)])

    def host(more: dict[str, str]) -> list[Row]:
        return [on_host(more["kind"], 200 * MS, 201 * MS, name="x")] if more else []

    assert side(120, 15) == (290, 410)  # 25 to 290 ms of 410
    assert side(-150, 420) == (None, 140)  # 140 to 420 ms of 430: the loop came first
    assert side(70, 15) == (240, 360)
    assert side(-10, 15) == (None, 280)  # 25 to 160 ms of 280 are less than half
    assert side(120, 15, kind="runtime") == (None, 410)  # a call amid it
    assert side(120, 15, kind="annotation") == (290, 410)
    assert side(120, 15, kind="op") == (None, 410)  # a framework
    assert side(120, 15, 60) == (None, 410)  # another pause is of 35 ms, this one of 220 ms
    assert side(120, 15, 45) == (290, 410)  # 20 of 235 ms


def test_a_pause_in_the_only_pass_of_a_program_is_of_it():
    assert found(kernels(10, *range(300, 390, 10)), []) == (None, 390)  # nine of a kernel follow
    assert found(kernels(10, *range(300, 400, 10)), []) == (300, 400)


def asleep(start: float, end: float, name: str = "clock_nanosleep", thread: int = 1) -> Row:
    return {"name": name, "thread": thread, "pid": 1, "worker": 0} | span(start * MS, end * MS)


def test_a_sleep_after_a_warm_up_is_before_the_work_and_one_amid_it_is_in_it():
    warm_up, rest, host = kernels(60), kernels(600, 620, 640), [STARTS, on_host("runtime", 0, 10)]
    assert found([*warm_up, *rest], host, [asleep(80, 590)]) == (600, 650)
    assert found([*warm_up, *rest], host, [asleep(80, 590, thread=9)]) == (60, 650)  # of a helper
    assert found([*warm_up, *rest], host, [asleep(80, 590, "read")]) == (60, 650)  # which is the program's work
    assert found([*kernels(60), *rest], host, [asleep(611, 619), asleep(631, 639)]) == (60, 650)  # in each turn
    loads = on_host("start_up", 70 * MS, 99 * MS)
    assert found(kernels(60, 100, 120, 300), [*host, loads], [asleep(131, 299)]) == (100, 310)


def test_what_precedes_all_work_does_not_hide_what_is_done_once():
    """300 ms of compilation behind the first kernel are more than a twentieth of the rest, if not of all."""
    device, compiles = kernels(10_000, 10_310, 10_320), on_host("compile", 10_010 * MS, 10_310 * MS)
    assert found(device, [compiles]) == (10_310, 10_330)
    assert found(device, [on_host("op", 0, 9_900 * MS), compiles]) == (10_310, 10_330)


def test_a_kernel_that_is_loaded_late_does_not_end_the_start_up():
    late = on_host("start_up", 110 * MS, 111 * MS)
    assert found(kernels(60, 80, 120, 140), [STARTS, late]) == (60, 150)


def test_a_short_start_up_changes_no_number():
    assert found(kernels(60, 980), [on_host("start_up", 0, 40 * MS)]) == (None, 990)
    assert found(kernels(60, 980), [on_host("start_up", 0, 50 * MS)]) == (60, 990)


def test_a_process_whose_first_calls_were_recorded_begins_with_its_first_kernel():
    copy = on_device("memcpy", 10 * MS, 800 * MS)
    assert found([copy, *kernels(910)], [on_host("runtime", 0, 1, name="cuInit")]) == (910, 920)


def test_a_recording_without_kernels_has_no_bounds():
    assert found([on_device("memcpy", 0, 10)], [STARTS]) == (None, None)


def only_pass(at: list[tuple[str, float]], host: list[Row]) -> list[tuple[float, float]]:
    """Begin and end of the only pass, if the kernels of these names, each 1 ms long, are loaded so."""
    device = [kernel(ms * MS, (ms + 1) * MS, launched=ms * MS - 10, name=name) for name, ms in at]
    made = profile(device, host)
    ranged = with_only_pass(made.host_ops, made.device_ops, work(made.host_ops, made.device_ops))
    rows = ranged.filter(name=COLD_RANGE, kind="start_up")
    return [(row["start_ns"] / 1e6, (row["start_ns"] + row["dur_ns"]) / 1e6) for row in rows.iter_rows(named=True)]


# ms     0        50  52    55  57    60  62    65  67
# once   |-starts-|
# device             |a|       |b|       |c|       |d|
COLD = [("a", 52), ("b", 57), ("c", 62), ("d", 67)]


def test_a_process_that_loads_kernels_to_the_end_shows_its_only_pass():
    assert only_pass(COLD, [STARTS]) == [(52, 68)]


def test_where_most_kernels_follow_one_another_the_work_is_warm():
    again = [("a", 53 + n) for n in range(8)]
    assert only_pass([COLD[0], *again], [STARTS]) == []


def test_what_idles_the_device_without_first_uses_is_work_of_the_program():
    assert only_pass([*COLD, ("e", 120)], [STARTS]) == []  # 50 of 116 ms idle are start-up
    assert only_pass(COLD, []) == []  # the process began before the recording


def test_a_pass_whose_idle_time_is_all_named_leaves_none_to_judge():
    made = [on_host("compile", ms * MS, (ms + 4) * MS) for ms in (53, 58, 63)]
    assert only_pass(COLD, [STARTS, *made[:1]]) == [(57, 68)]
    assert only_pass(COLD, [STARTS, *made]) == []
