from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tables import kernel, measured, metrics_of, of_pytorch, on_host, profile, step, view

# us        0 1  5      25                101 105    125
# host      ||            |---------|      |      110        cudaFree from 26 to 96
# kernels        =======                      ========
DEVICE = [kernel(5, 25, 2), kernel(105, 125, 102)]
STEPS = [step(1, 0, 125, host=(0, 110))]
FREE = on_host("allocator", 26, 96, name="cudaFree", thread=2)


def test_calls_are_counted_and_named_by_time():
    host = [
        FREE,
        on_host("allocator", 97, 99, name="cudaMalloc", thread=2),
        on_host("allocator", 3, 4, name="cudaFree"),
    ]
    values = metrics_of(view(profile(DEVICE, host, [*STEPS, step(2, 125, 250)])))
    assert values["allocator_calls_per_step"] == 1.5
    assert values["allocator_frees_per_step"] == 1
    assert values["allocator_calls"] == "cudaFree (36 µs), cudaMalloc (1 µs)"


def test_memory_for_each_array_is_taken_between_launches():
    """Launches at 2 and 102 us: one allocation before the first, two and a free between them, one after."""
    taken = [on_host("allocator", at, at + 0.5, name="cudaMalloc", thread=2) for at in (1, 26, 30, 104)]
    other = [on_host("allocator", 28, 29, name=name, thread=2) for name in ("cudaFree", "cudaHostAlloc")]
    made = view(profile(DEVICE, [*taken, *other], STEPS))
    plain = replace(made, process={**made.process, "framework": "cuda"}, _computed={})
    assert metrics_of(plain)["allocations_amid_launches"] == 2
    assert metrics_of(of_pytorch(made))["allocations_amid_launches"] == 0


@pytest.mark.parametrize(("name", "frees"), [("hipFree", 1), ("cudaFreeAsync", 1), ("cuMemUnmap", 1), ("hipMalloc", 0)])
def test_frees_are_told_by_name(name, frees):
    assert metrics_of(view(profile(DEVICE, [FREE | {"name": name}], STEPS)))["allocator_frees_per_step"] == frees


def test_frees_inside_ops_are_told_from_those_between_them():
    host = [on_host("op", 25, 97, name="aten::conv2d", thread=2), FREE | {"parent": 0}]
    assert metrics_of(view(profile(DEVICE, host, STEPS)))["allocator_frees_in_ops_part"] == 1
    assert metrics_of(view(profile(DEVICE, [FREE], STEPS)))["allocator_frees_in_ops_part"] == 0
    assert metrics_of(view(profile(DEVICE, [], STEPS)))["allocator_frees_in_ops_part"] == 0


def test_host_memory_is_another_matter():
    host = [FREE | {"name": "cudaHostAlloc"}, FREE | {"name": "hipHostFree"}]
    assert metrics_of(view(profile(DEVICE, host, STEPS)))["allocator_calls_per_step"] == 0


def test_without_the_calls_the_next_launch_comes_so_much_earlier():
    # 70 us earlier: from 105 to 35
    values = metrics_of(view(profile(DEVICE, [FREE], STEPS)))
    assert values["allocator_gain_ms"] == pytest.approx(0.070)
    assert values["allocator_least_gain_ms"] == pytest.approx(0.049)


def test_where_no_replay_is_to_be_trusted_the_idle_time_counts_not_the_waiting():
    # the step's own range holds no launch: of 70 us in the call the device idles in 20
    recording = profile(
        [kernel(0, 40, -1), kernel(60, 100, -1)], [on_host("allocator", 10, 80, name="cudaFree")], [step(1, 0, 100)]
    )
    assert metrics_of(view(recording))["allocator_gain_ms"] == pytest.approx(0.020)


def test_places_are_the_calls_with_the_op_around_them():
    host = [on_host("op", 25, 99, name="aten::empty", thread=2), FREE | {"parent": 0}]
    (place,) = measured(profile(DEVICE, host, STEPS)).places("allocator_calls_per_step", 0).to_dicts()
    assert (place["step"], place["name"], place["op"]) == (1, "cudaFree", "aten::empty")


def test_steps_that_ask_for_no_memory_lose_nothing():
    values = metrics_of(view(profile(DEVICE, steps=STEPS)))
    assert values["allocator_calls_per_step"] == values["allocator_gain_ms"] == values["allocator_least_gain_ms"] == 0
    assert values["allocator_calls"] == ""


def test_without_a_step_nothing_is_known():
    assert metrics_of(view(profile(DEVICE, [FREE], [step(1, 0, 125, incomplete="cut")])))["allocator_gain_ms"] is None
