from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest

from advisor.metrics.kernels import kernel_times
from advisor.metrics.kernels.kernel_times import SEVERAL, kernel_groups, kernel_table, over_time, with_the_rest
from advisor.metrics.metric import Value
from advisor.model.profile import Profile
from tests.tables import V100, kernel, metrics_of, on_device, on_host, profile, step, view

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
STEP = [step(1, 0, 100)]


def values(recording: Profile) -> Mapping[str, Value]:
    return metrics_of(view(recording))


def test_counts_and_lengths_are_of_kernels_that_start_in_the_steps_used():
    steps = [step(1, 0, 100), step(2, 100, 200), step(3, 200, 300, incomplete="cut")]
    device = [
        *(kernel(0, 5), kernel(10, 19.999), kernel(30, 40), kernel(190, 230)),
        *(kernel(250, 260), on_device("collective", 50, 90), on_device("memcpy", 90, 95)),
    ]
    row = values(profile(device, steps=steps))
    assert row["kernels_per_step"] == 2
    assert row["median_kernel_us"] == pytest.approx((9.999 + 10) / 2)
    assert row["small_kernel_share"] == 0.5  # 10 us are not under 10 us


def test_steps_without_kernels_have_no_typical_kernel():
    row = values(profile([on_device("memcpy", 0, 50)], steps=STEP))
    assert (row["kernels_per_step"], row["gpu_utilization"]) == (0, 0)
    assert row["median_kernel_us"] is row["small_kernel_share"] is row["occupancy"] is None


def test_utilisation_is_over_the_span_of_the_steps_with_collectives_and_without_copies():
    # us          0    20   40   60   80   100
    # steps       |-- 1 --|         |-- 3 --|     2 is left out; its time counts
    # kernels  ======  ===    ===            =====
    # collective                 =====
    # memcpy                           ====
    steps = [step(1, 0, 40), step(2, 40, 60, incomplete="cut"), step(3, 60, 100)]
    device = [kernel(-10, 10), kernel(20, 30), kernel(45, 50), kernel(95, 140)]
    device += [on_device("collective", 48, 60), on_device("memcpy", 70, 80)]
    assert values(profile(device, steps=steps))["gpu_utilization"] == pytest.approx(0.4)  # 10 + 10 + 15 + 5


def test_sm_efficiency_adds_up_what_runs_together_to_at_most_1():
    # us               0    20   40   60        100
    # blocks per SM    0.5--------                    0 to 40
    #                       0.8--------               20 to 60
    # filled           0.5  1.0  0.8                  10 + 20 + 16
    device = [kernel(0, 40, blocks_per_sm=0.5), kernel(20, 60, blocks_per_sm=0.8, stream=8), kernel(60, 100)]
    assert values(profile(device, steps=STEP))["sm_efficiency"] == pytest.approx(0.46)


def test_occupancy_is_weighted_by_the_time_inside_the_span():
    # The first kernel has 20 us inside, the second 60; the third reports none.
    device = [kernel(-20, 20, occupancy=0.9), kernel(20, 80, occupancy=0.5), kernel(80, 100)]
    assert values(profile(device, steps=STEP))["occupancy"] == pytest.approx((20 * 0.9 + 60 * 0.5) / 80)


def test_figures_that_cannot_be_do_no_harm():
    # More than all and less than none are taken as all and none; the last kernel fills half for 50 us.
    odd = [kernel(0, 20, blocks_per_sm=1e308, occupancy=1e306), kernel(20, 50, blocks_per_sm=-5, occupancy=-2)]
    row = values(profile([*odd, kernel(50, 100, blocks_per_sm=0.5, occupancy=0.5)], steps=STEP))
    assert row["sm_efficiency"] == pytest.approx(0.2 + 0.25)
    assert row["occupancy"] == pytest.approx(0.2 + 0.25)


def test_one_row_per_kernel_name_the_most_time_first():
    device = [kernel(0, 10, name="volta_sgemm_128x64_nn"), kernel(10, 16, name="b"), kernel(20, 30, name="b")]
    rows = kernel_table(view(profile([*device, kernel(30, 34, name="a"), on_device("memcpy", 40, 90)], steps=STEP)))
    columns = ["name", "calls", "total_ms", "mean_us", "max_us", "min_us", "kernel_time_share", "tensor_cores"]
    assert rows.select(columns).rows() == [
        ("b", 2, 0.016, 8, 10, 6, pytest.approx(16 / 30), None),
        ("volta_sgemm_128x64_nn", 1, 0.010, 10, 10, 10, pytest.approx(10 / 30), False),
        ("a", 1, 0.004, 4, 4, 4, pytest.approx(4 / 30), None),
    ]


def test_a_step_without_length_has_no_kernels_to_count():
    row = values(profile([kernel(0, 10)], steps=[step(1, 0, 0)]))
    assert row["kernels_per_step"] is row["gpu_utilization"] is None


def test_kernels_that_communicate_are_in_the_table_of_groups():
    device = [
        kernel(0, 10, name=ADD),
        on_device("collective", 20, 90, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    ]
    rows = kernel_groups(view(profile(device, steps=STEP)))
    assert rows.select("name", "family", "verdict", "calls").rows() == [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective", None, 1),
        (ADD, "elementwise", "no use", 1),
    ]


def test_the_table_and_the_shares_of_tensor_cores_agree():
    names = {"volta_h884gemm_128x64_ldg8_nn": 10, "volta_sgemm_128x64_nn": 20, "cutlass_gemm_kernel": 30, ADD: 40}
    ends = [sum([*names.values()][: i + 1]) for i in range(len(names))]
    device = [kernel(end - dur, end, name=name) for (name, dur), end in zip(names.items(), ends, strict=True)]
    recording = view(profile([*device, on_device("collective", 100, 150)], steps=[step(1, 0, 200)]))
    spent = dict(kernel_groups(recording).group_by("verdict").agg(pl.sum("total_ms")).rows())
    shares = metrics_of(recording)
    assert spent["used"] == pytest.approx(0.1 * shares["tensor_core_share"])
    assert spent["unused"] == pytest.approx(0.1 * (shares["tensor_core_eligible_share"] - shares["tensor_core_share"]))
    assert spent["unknown"] == pytest.approx(0.03)
    assert spent[None] == pytest.approx(0.05)  # communicates


def test_of_a_device_without_tensor_cores_nothing_is_said():
    without = V100 | {"name": "Tesla P100-SXM2-16GB", "capability": 6.0}
    rows = kernel_groups(view(profile([kernel(0, 10, name="volta_sgemm_128x64_nn")], steps=STEP, devices=[without])))
    assert rows["verdict"].to_list() == [None]


def test_sums_over_the_table_of_groups_lose_nothing_where_it_is_cut():
    long = [kernel(100 * n, 100 * n + 90 - n, name=f"k{n % 4}", grid=n + 1) for n in range(12)]
    groups = kernel_groups(view(profile(long, steps=[step(1, 0, 2000)])))
    cut = with_the_rest(groups, 3)

    assert groups.height == 12
    assert cut.select("calls", "total_ms").sum().row(0) == pytest.approx(
        groups.select("calls", "total_ms").sum().row(0)
    )
    assert cut["name"].to_list()[3:] == ["k3", "k0", "k1", "1 other kernel"]
    assert cut["op"].to_list()[3:] == [SEVERAL] * 4
    assert with_the_rest(groups, 12).equals(groups)


def test_use_over_time_adds_up_to_the_shares_of_the_step():
    """A kernel of half the blocks runs from 0 to 300 of 500 us, a copy from 300 to 450, in parts of 10 us."""
    device = [kernel(0, 300, blocks_per_sm=0.5), on_device("memcpy", 300, 450)]
    rows = over_time(view(profile(device, steps=[step(1, 0, 500)])))
    assert rows["part"].to_list() == [*range(50)]
    assert rows["at_ms"].to_list()[:2] == [0, pytest.approx(0.01)]
    assert rows["kernels"].to_list() == [1] * 30 + [0] * 20
    assert rows["sm_efficiency"].to_list() == pytest.approx([0.5] * 30 + [0] * 20)
    assert rows["copies"].to_list() == [0] * 30 + [1] * 15 + [0] * 5


def test_no_use_is_added_up_where_no_kernel_s_blocks_are_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel_times, "_capped_integral", None)
    rows = over_time(view(profile([kernel(0, 100)], steps=[step(1, 0, 500)])))
    assert rows["sm_efficiency"].null_count() == rows.height


def test_use_over_time_of_a_short_step_is_exact_however_late_it_is():
    """Of 1 us, in parts of 20 ns, since 1970."""
    now = 1_700_000_000_000_000
    rows = over_time(view(profile([kernel(now, now + 1)], steps=[step(1, now, now + 1)])))
    assert rows["kernels"].to_list() == [1] * 50


def test_use_over_time_is_empty_without_a_device_and_knows_no_blocks_that_none_tells():
    assert over_time(view(profile([], steps=STEP))).is_empty()
    rows = over_time(view(profile([kernel(0, 300, grid=None)], steps=[step(1, 0, 600)])))
    assert rows["sm_efficiency"].null_count() == 50


def test_groups_have_the_module_of_the_launching_op():
    host = [
        on_host("module", 0, 50, id=1, name="nn.Module: Linear_3"),
        on_host("op", 5, 20, id=2, name="aten::addmm", parent=1),
        on_host("op", 60, 80, id=3, name="aten::add", parent=None),
    ]
    device = [kernel(10, 30, op=2), kernel(70, 90, op=3)]
    rows = kernel_groups(view(profile(device, host, steps=STEP)))
    assert dict(rows.select("op", "module").rows()) == {"aten::addmm": "Linear", "aten::add": None}
