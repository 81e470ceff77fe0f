from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model.clause import Missing
from tests.device_bound import ADD, GEMM, op, queued
from tests.effort import every
from tests.tables import A100, V100, Row, kernel, metrics_of, on_device, on_host, profile, step, view

H100 = A100 | {"name": "NVIDIA H100 80GB HBM3", "capability": 9.0, "sm_count": 132}
MI250 = A100 | {"name": "AMD Instinct MI250X", "capability": 9.0, "sm_count": 110, "memory_bytes": 64 << 30}
OPS = [op("aten::mm"), op("aten::add")]
LARGE = {"on": 0, "block": 256, "registers": 230, "shared_bytes": 98_304, "occupancy": 0.0}  # one block per A100's SM


def test_kernels_with_fewer_blocks_than_multiprocessors_leave_the_others_unused():
    ran = [(GEMM, 400, {"on": 0, "blocks_per_sm": 0.25}), (ADD, 200, {"on": 1, "blocks_per_sm": 0.75})]
    values = metrics_of(queued(*ran, (ADD, 380, {"on": 1, "blocks_per_sm": 1.0}), ops=OPS))
    assert values["few_blocks_share"] == pytest.approx(0.6)
    assert values["few_blocks_lost_share"] == pytest.approx(0.3 + 0.05)
    assert values["few_blocks_fill"] == pytest.approx((100 + 150) / 600)
    assert values["few_blocks_ops"] == "aten::mm (0.4 ms), aten::add (0.2 ms)"


def test_own_kernels_of_few_blocks_could_be_split_over_all_multiprocessors():
    """An A100 has 108: a block of 256 threads is 1/108 of them, and 1/432 of the 1,024 threads that each runs."""
    values = metrics_of(queued(("mine(int)", 980, {"blocks_per_sm": 1 / 108, "block": 256})))
    assert values["more_blocks_least_gain_ms"] == pytest.approx(0.98 * (1 - 2 / 108), abs=1e-6)
    assert values["more_blocks_gain_ms"] == pytest.approx(0.98 * (1 - 1 / 432), abs=1e-6)
    assert metrics_of(queued((ADD, 980, {"blocks_per_sm": 1 / 108, "block": 256})))["more_blocks_gain_ms"] == 0
    short = metrics_of(queued(*[("mine(int)", 4, {"blocks_per_sm": 1 / 108, "block": 256})] * 100))
    assert short["more_blocks_least_gain_ms"] == 0
    assert short["more_blocks_gain_ms"] == pytest.approx(0.2)  # to 2 us each


@pytest.mark.parametrize(
    ("blocks", "us", "least_us"),
    [
        (20, 250, 0),
        (20, 251, 200 * (1 - 20 / 108) + 251 * (1 - 40 / 108)),
        (19, 200, 200 * (1 - 20 / 108) + 200 * (1 - 38 / 108)),
    ],
)
def test_where_twice_the_blocks_take_no_longer_each_may_need_its_time_however_many_there_are(blocks, us, least_us):
    ran = [("mine(int)", us, {"grid": grid, "block": 256}) for grid, us in ((10, 200), (blocks, us))]
    values = metrics_of(queued(*ran))
    assert values["more_blocks_least_gain_ms"] == pytest.approx(least_us / 1e3, abs=1e-5)
    assert values["more_blocks_gain_ms"] > 0.3


def test_blocks_of_half_a_warp_could_have_the_threads_that_a_multiprocessor_runs():
    """32 blocks of 16 threads fit on an A100's multiprocessor, 512 of its 2,048; half of the lanes are in use."""
    values = metrics_of(queued(("mine(int)", 980, {"blocks_per_sm": 64, "block": 16})))
    assert values["full_warps_least_gain_ms"] == pytest.approx(0.98 * (1 - 1.75 / 2), abs=1e-6)
    assert values["full_warps_gain_ms"] == pytest.approx(0.98 * (1 - 1 / 4), abs=1e-6)
    alone = metrics_of(queued(("mine(int)", 980_000, {"blocks_per_sm": 1 / 108, "block": 1})))
    assert alone["full_warps_gain_ms"] == pytest.approx(980 * (1 - 1 / 256 / 108), abs=1e-3)  # on all multiprocessors
    assert alone["more_blocks_least_gain_ms"] == pytest.approx(980 * (1 - 0.05))  # a block of 256, and no more blocks
    assert metrics_of(queued(("mine(int)", 980, {"blocks_per_sm": 64, "block": 32})))["full_warps_gain_ms"] == 0


def test_the_optimizer_s_kernels_are_left_out_as_a_larger_batch_does_not_fill_them():
    update = on_host("annotation", 0, 9, name="Optimizer.step#SGD.step")
    assert metrics_of(queued((ADD, 980, {"blocks_per_sm": 0.25}), ranges=[update]))["few_blocks_share"] == 0


@pytest.mark.parametrize("name", ["void cudnn::batchnorm_fwtr_nhwc_semiPersist<float>", "nvjet_tst_64x8_64x16_2x1_v"])
def test_kernels_that_loop_over_tiles_need_no_block_per_multiprocessor(name: str):
    assert metrics_of(queued((name, 980, {"blocks_per_sm": 0.8})))["few_blocks_share"] == 0


def test_a_library_s_grid_is_its_own_where_nothing_has_batches():
    """A sum of CUB in a program without a framework; in a framework's job a larger batch fills it."""
    ran = queued(
        ("void cub::CUB_1_NS::DeviceReduceKernel<int>(int)", 980, {"blocks_per_sm": 0.1, "library": "CUB and Thrust"})
    )
    own = replace(ran, process={**ran.process, "framework": "cuda"}, _computed={})
    assert [metrics_of(of)["few_blocks_share"] for of in (ran, own)] == [pytest.approx(0.98), 0]


def test_one_grid_for_inputs_of_several_sizes_is_that_of_a_persistent_kernel():
    sizes = [op("aten::add", [n, 1024]) for n in (100, 1000, 4000)]
    ran = [(ADD, 300, {"on": i, "grid": 100}) for i in range(3)]
    assert metrics_of(queued(*ran, ops=sizes))["few_blocks_share"] == 0
    small = [(ADD, 300, {"on": i, "grid": 1}) for i in range(3)]
    assert metrics_of(queued(*small, ops=sizes))["few_blocks_share"] == pytest.approx(900 / 920)


def test_a_grid_of_zero_was_not_recorded():
    values = metrics_of(queued((ADD, 500, {"grid": 0, "blocks_per_sm": 0.0}), (ADD, 480, {"grid": 54})))
    assert values["few_blocks_fill"] == pytest.approx(0.5)
    assert isinstance(metrics_of(queued((ADD, 980, {"grid": 0})))["few_blocks_share"], Missing)


def test_tensile_counts_its_grid_in_threads():
    name = "Cijk_Ailk_Bljk_BBS_BH_MT128x128x64_MI16x16x1_SN"
    values = metrics_of(queued((name, 980, {"grid": 11 * 256, "block": 256, "blocks_per_sm": 25.6}), device=MI250))
    assert values["few_blocks_fill"] == pytest.approx(0.1)


def test_a_kernel_beside_another_stream_leaves_it_the_rest_of_the_device():
    device_ops = [kernel(20, 520, 2, blocks_per_sm=0.25, name=ADD, stream=7)]
    beside = on_device("collective", 0, 500, stream=20)
    step_of = [step(1, 0, 1000, host=(0, 3))]
    alone = metrics_of(view(profile(device_ops, [], step_of, devices=[A100])))
    assert alone["few_blocks_share"] > 0
    assert metrics_of(view(profile([*device_ops, beside], [], step_of, devices=[A100])))["few_blocks_share"] == 0


def test_blocks_per_multiprocessor_follow_from_the_grid_where_the_profiler_does_not_say():
    assert metrics_of(queued((ADD, 980, {"grid": 54})))["few_blocks_lost_share"] == pytest.approx(0.49)
    unknown = metrics_of(queued((ADD, 980, {"grid": 54}), device={"device": 0}))
    assert isinstance(unknown["few_blocks_share"], Missing)


@pytest.mark.parametrize(
    ("blocks_per_sm", "unused"),
    every(
        2,
        [
            (1.1, 1 - 1.1 / 2),
            (1.65, 1 - 1.65 / 2),
            (1.7, 0),  # two waves for 1.7: less than a fifth more
            (1.0, 0),
            (0.6, 0),  # one wave; few blocks are another matter
            (2.2, 1 - 2.2 / 3),
            (10.1, 0),
        ],
    ),
)
def test_the_last_wave_of_a_matrix_kernel_is_lost_as_far_as_it_is_empty(blocks_per_sm: float, unused: float):
    values = metrics_of(queued((GEMM, 980, LARGE | {"blocks_per_sm": blocks_per_sm}), ops=OPS))
    assert values["tail_wave_share"] == pytest.approx(0.98 * unused)
    assert values["tail_wave_gain_ms"] == pytest.approx(0.98 * unused, abs=1e-5)


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
    half_more = {"on": 0, "blocks_per_sm": 1.5 * resident} | columns
    assert metrics_of(queued((GEMM, 980, half_more), ops=OPS, device=device))["tail_wave_share"] == pytest.approx(
        0.98 / 4
    )
    full_waves = {"on": 0, "blocks_per_sm": 2.0 * resident} | columns
    assert metrics_of(queued((GEMM, 980, full_waves), ops=OPS, device=device))["tail_wave_share"] == 0


def test_only_kernels_of_equal_blocks_have_a_last_wave_that_counts():
    assert metrics_of(queued((ADD, 980, LARGE | {"blocks_per_sm": 1.1}), ops=OPS))["tail_wave_share"] == 0
    unknown = {"on": 0, "blocks_per_sm": 1.1}
    assert metrics_of(queued((GEMM, 980, unknown), ops=OPS))["tail_wave_share"] == 0


@pytest.mark.parametrize("device", [MI250, {"device": 0, "name": "Something New", "sm_count": 100}])
def test_on_other_devices_it_is_not_known_how_many_fit(device: Row):
    values = metrics_of(queued((GEMM, 980, LARGE | {"blocks_per_sm": 1.1}), ops=OPS, device=device))
    assert isinstance(values["tail_wave_share"], Missing)
    assert values["few_blocks_share"] == 0
