from __future__ import annotations

import pytest

from advisor.metrics.kernels.grids import grids
from advisor.model.missing import Missing
from tests.device_bound import ADD, GEMM, op, queued
from tests.tables import A100, V100, Row, on_host

H100 = A100 | {"name": "NVIDIA H100 80GB HBM3", "capability": 9.0, "sm_count": 132}
MI250 = A100 | {"name": "AMD Instinct MI250X", "capability": 9.0, "sm_count": 110, "memory_bytes": 64 << 30}
OPS = [op("aten::mm"), op("aten::add")]
LARGE = {"on": 0, "block": 256, "registers": 230, "shared_bytes": 98_304, "occupancy": 0.0}  # one block per A100's SM


def test_kernels_with_fewer_blocks_than_multiprocessors_leave_the_others_unused():
    ran = [(GEMM, 400, {"on": 0, "blocks_per_sm": 0.25}), (ADD, 200, {"on": 1, "blocks_per_sm": 0.75})]
    found = grids(queued(*ran, (ADD, 380, {"on": 1, "blocks_per_sm": 1.0}), ops=OPS))
    assert found["few_blocks_share"] == pytest.approx(0.6)
    assert found["few_blocks_lost_share"] == pytest.approx(0.3 + 0.05)
    assert found["few_blocks_fill"] == pytest.approx((100 + 150) / 600)
    assert found["few_blocks_ops"] == "aten::mm (0.4 ms), aten::add (0.2 ms)"


def test_the_optimizer_s_kernels_are_left_out_as_a_larger_batch_does_not_fill_them():
    update = on_host("annotation", 0, 9, name="Optimizer.step#SGD.step")
    assert grids(queued((ADD, 980, {"blocks_per_sm": 0.25}), ranges=[update]))["few_blocks_share"] == 0


def test_blocks_per_multiprocessor_follow_from_the_grid_where_the_profiler_does_not_say():
    assert grids(queued((ADD, 980, {"grid": 54})))["few_blocks_lost_share"] == pytest.approx(0.49)
    unknown = grids(queued((ADD, 980, {"grid": 54}), device={"device": 0}))
    assert isinstance(unknown["few_blocks_share"], Missing)


@pytest.mark.parametrize(
    ("blocks_per_sm", "lost"),
    [
        (1.1, 1 - 1.1 / 2),
        (1.65, 1 - 1.65 / 2),
        (1.7, 0),  # two waves for 1.7: less than a fifth more
        (1.0, 0),
        (0.6, 0),  # one wave; few blocks are another matter
        (2.2, 1 - 2.2 / 3),
        (10.1, 0),
    ],
)
def test_the_last_wave_of_a_matrix_kernel_is_lost_as_far_as_it_is_empty(blocks_per_sm: float, lost: float):
    found = grids(queued((GEMM, 980, LARGE | {"blocks_per_sm": blocks_per_sm}), ops=OPS))
    assert found["tail_wave_share"] == pytest.approx(0.98 * lost)
    assert found["tail_wave_gain_ms"] == pytest.approx(0.98 * lost, abs=1e-5)


@pytest.mark.parametrize(
    ("device", "columns", "resident"),
    [
        (V100, {"block": 128, "registers": 16, "shared_bytes": 0}, 16),  # 2048 threads
        (V100, {"block": 64, "registers": 16, "shared_bytes": 0}, 32),  # the most blocks there may be
        (V100, {"block": 128, "registers": 122, "shared_bytes": 0}, 4),  # 128 registers a thread, by the unit
        (V100, {"block": 128, "registers": 32, "shared_bytes": 40_000}, 2),  # of 96 KiB
        (A100, {"block": 128, "registers": 32, "shared_bytes": 40_000}, 4),  # of 164, and 1 KiB a block is reserved
        (H100, {"block": 384, "registers": 168, "shared_bytes": 200_000}, 1),
    ],
)
def test_how_many_blocks_fit_follows_from_threads_registers_and_shared_memory(device: Row, columns: Row, resident: int):
    one_more = {"on": 0, "blocks_per_sm": 1.5 * resident} | columns
    assert grids(queued((GEMM, 980, one_more), ops=OPS, device=device))["tail_wave_share"] == pytest.approx(0.98 / 4)
    whole = {"on": 0, "blocks_per_sm": 2.0 * resident} | columns
    assert grids(queued((GEMM, 980, whole), ops=OPS, device=device))["tail_wave_share"] == 0


def test_only_kernels_of_equal_blocks_have_a_last_wave_that_counts():
    assert grids(queued((ADD, 980, LARGE | {"blocks_per_sm": 1.1}), ops=OPS))["tail_wave_share"] == 0
    untold = {"on": 0, "blocks_per_sm": 1.1}
    assert grids(queued((GEMM, 980, untold), ops=OPS))["tail_wave_share"] == 0


@pytest.mark.parametrize("device", [MI250, {"device": 0, "name": "Something New", "sm_count": 100}])
def test_on_other_devices_it_is_not_known_how_many_fit(device: Row):
    found = grids(queued((GEMM, 980, LARGE | {"blocks_per_sm": 1.1}), ops=OPS, device=device))
    assert isinstance(found["tail_wave_share"], Missing)
    assert found["few_blocks_share"] == 0


@pytest.mark.parametrize(
    ("kernel", "occupancy", "blocks_per_sm", "share"),
    [(ADD, 0.24, 1.0, 0.98), (ADD, 0.25, 1.0, 0), (ADD, 0.24, 0.9, 0), (ADD, 0.0, 9.0, 0), (GEMM, 0.12, 1.0, 0)],
)
def test_low_occupancy_is_counted_where_blocks_suffice_and_threads_matter(
    kernel: str, occupancy: float, blocks_per_sm: float, share: float
):
    made = queued((kernel, 980, {"on": 1, "occupancy": occupancy, "blocks_per_sm": blocks_per_sm}), ops=OPS)
    assert grids(made)["low_occupancy_share"] == pytest.approx(share)
