from __future__ import annotations

from collections.abc import Mapping

import pytest

from advisor.metrics.metric import METRICS, Value
from advisor.model.clause import Missing
from tests.tables import A100, Row, kernel, metrics_of, on_device, on_host, profile, span, step, view

# us       0     20    30    100        130  140       200
# kernels  =======                           ===========     launched at 0 and 138
# copy                 =======                               of 1 MB from pageable memory
# call           |-------------------------|                 cudaMemcpy, from 20 to 105
STEP = [step(1, 0, 200)]
KERNELS = [kernel(0, 20, 0), kernel(140, 200, 138)]


def called(name: str = "cudaMemcpy", kind: str = "sync", end: float = 105) -> Row:
    return on_host(kind, 20, end, name=name)


def copied(**columns: object) -> Row:
    memory = {"copy_kind": "HtoD", "source_memory": "pageable", "target_memory": "device", "bytes": 1_000_000}
    return on_device("memcpy", 30, 100, **memory | {"launch": 0} | columns)


def set_(memory: str) -> Row:
    return on_device("memset", 30, 100, launch=0, target_memory=memory)


def copies(op: Row, call: Row) -> Mapping[str, Value]:
    return metrics_of(view(profile([*KERNELS, op], [call], STEP)))


def test_the_call_the_copy_and_the_idle_time_after_it_are_its_cost():
    values = copies(copied(name="Memcpy HtoD"), called())
    assert values["sync_copies_per_step"] == 1
    assert values["sync_copy_bytes_per_step"] == 1_000_000
    # from 20, when the call begins, to 140
    assert values["sync_copy_cost_share"] == pytest.approx(120 / 200)
    assert values["sync_copy_calls"] == "Memcpy HtoD by cudaMemcpy (70 µs)"
    least, most = values["sync_copy_least_gain_ms"], values["sync_copy_gain_ms"]
    assert isinstance(least, float)
    assert isinstance(most, float)
    assert 0 <= least < most <= 0.12


def test_copies_without_sizes_copy_an_unknown_number_of_bytes():
    values = copies(copied(bytes=None), called())
    assert values["sync_copies_per_step"] == 1
    assert isinstance(values["sync_copy_bytes_per_step"], Missing)


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({}, "cudaMemcpyAsync"),
        ({}, "cudaMemcpyPeer"),
        ({}, "cudaMemcpyBatchAsync"),
        ({"copy_kind": "DtoD"}, "cudaMemcpy"),
        ({"bytes": 65_536}, "cudaMemcpy"),
        ({"bytes": 64, "copy_kind": "DtoH"}, "cudaMemcpyFromSymbol"),
    ],
    ids=["asynchronous", "between devices", "batched", "within the device", "staged", "a flag that the host reads"],
)
def test_copies_that_do_not_block_cost_nothing(columns: dict[str, object], name: str):
    values = copies(copied(**columns), called(name))
    names = ("sync_copies_per_step", "sync_copy_cost_share", "sync_copy_bytes_per_step", "sync_copy_calls")
    assert [values[name] for name in names] == [0, 0, 0, ""]
    assert values["sync_copy_least_gain_ms"] == values["sync_copy_gain_ms"] == 0


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"bytes": 65_537}, "cudaMemcpy"),
        ({"bytes": 8, "source_memory": "pinned"}, "cudaMemcpy2D"),
        ({"bytes": 65, "copy_kind": "DtoH"}, "cuMemcpyDtoH_v2"),
        ({"copy_kind": None, "source_memory": None}, "hipMemcpy"),
    ],
)
def test_copies_that_block_are_counted(columns: dict[str, object], name: str):
    assert copies(copied(**columns), called(name))["sync_copies_per_step"] == 1


def test_what_kernels_cover_is_no_cost():
    covering = kernel(20, 90, stream=9)
    values = metrics_of(view(profile([*KERNELS, covering, copied()], [called()], STEP)))
    assert values["sync_copy_cost_share"] == pytest.approx(50 / 200)


def test_a_long_gap_after_the_copy_is_the_host_s_own():
    late = [KERNELS[0], kernel(2_000, 2_100, 1_990), copied()]
    values = metrics_of(view(profile(late, [called()], [step(1, 0, 2_100)])))
    assert values["sync_copy_cost_share"] == pytest.approx(85 / 2_100)  # the call alone


@pytest.mark.parametrize(
    ("memory", "name", "number"),
    [
        ("managed", "cudaMemset", 1),
        ("pinned", "cuMemsetD8", 1),
        ("device", "cudaMemset", 0),
        ("managed", "cudaMemsetAsync", 0),
    ],
)
def test_only_memsets_of_host_and_managed_memory_block(memory: str, name: str, number: int):
    values = metrics_of(view(profile([*KERNELS, set_(memory)], [called(name, "runtime")], STEP)))
    assert values["sync_memsets_per_step"] == number
    assert values["sync_memset_cost_share"] == pytest.approx(number * 120 / 200)


def test_places_name_the_call_the_range_and_the_idle_time_that_follows():
    where = METRICS["sync_copy_cost_share"].where
    assert where
    around = on_host("annotation", 10, 190, name="load")
    call = called() | {"parent": 1}
    (row,) = where(view(profile([*KERNELS, copied(name="Memcpy HtoD")], [call, around], STEP))).to_dicts()
    assert row["name"] == "Memcpy HtoD by cudaMemcpy, then the device idles for 40 µs"
    assert row["op"] == 1


def test_copies_that_no_kernel_hides_take_what_the_link_allows():
    """16 MB at 0.88 x 31.5 GB/s take 577 us; kernels hide 80 of them."""
    large = [on_device("memcpy", 30, 1_030, launch=0, copy_kind="HtoD", bytes=16_000_000)]
    kernels = [kernel(0, 20, 0), kernel(1_070, 1_130, 1_068)]
    steps = view(profile([*kernels, *large], [called(end=1_035)], [step(1, 0, 1_130)], devices=[A100]))
    cost_ms = metrics_of(steps)["sync_copy_cost_share"] * 1.13
    assert metrics_of(steps)["sync_copy_gain_ms"] <= cost_ms - (16e6 / (0.88 * 31.5) / 1e6 - 0.08) + 1e-6


def test_copies_have_at_least_the_rate_of_the_fastest_of_them():
    """16 MB of 24 GB/s in and of 4 GB/s out: from pinned memory, out takes 667 us, whatever the host reads."""
    memory = {"source_memory": "pageable", "bytes": 16_000_000}
    copies = [
        on_device("memcpy", 30, 697, launch=0, copy_kind="HtoD", **memory),
        on_device("memcpy", 720, 4_720, launch=1, copy_kind="DtoH", **memory),
    ]
    calls = [called(end=700), on_host("sync", 710, 4_725, name="cudaMemcpy")]
    steps = view(profile(copies, calls, [step(1, 0, 4_730)], devices=[A100]))
    assert metrics_of(steps)["sync_copy_least_gain_ms"] == pytest.approx(4.0 - 0.667, rel=0.01)


def test_asynchronous_copies_that_are_made_once_pay_for_pinning():
    """1 MB in 0.07 ms and 1 MB in 2 ms: pinned at the faster rate saves 1.93 ms, less 1.24 ms for 2 MB to pin."""
    ops = [copied(), copied(launch=1) | span(130, 2_130)]
    calls = [called(), on_host("sync", 120, 2_135, name="cudaMemcpy")]
    kernels = [kernel(0, 20, 0), kernel(2_200, 2_250, 2_190)]

    def least_ms(*steps: Row) -> Value:
        return metrics_of(view(profile([*kernels, *ops], calls, steps)))["sync_copy_least_gain_ms"]

    assert least_ms(step(1, 0, 2_250)) == pytest.approx(1.93, abs=1e-3)
    assert least_ms() == pytest.approx(0.69, abs=1e-3)
