from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analysis.device.kernels import kernels, largest, longest
from advisor.analysis.device.view import DeviceView
from advisor.text import in_words
from tests.device_bound import ADD, GEMM, SGEMM, op, queued
from tests.effort import every
from tests.tables import Row, kernel, on_host, profile, step, view

SIDES = ("count", "m", "n", "k")


def launch_row(launching: Row) -> dict[str, object]:
    return kernels(queued((GEMM, 10, {"on": 0}), ops=[launching])).to_dicts()[0]


@pytest.mark.parametrize(
    ("launching", "sides"),
    [
        (op("aten::mm", [3, 5], [5, 7]), (1, 3, 7, 5)),
        (op("aten::addmm", [7], [3, 5], [5, 7]), (1, 3, 7, 5)),  # the bias is no factor
        (op("aten::bmm", [2, 3, 5], [2, 5, 7]), (2, 3, 7, 5)),
        (op("aten::linear", [2, 4, 3, 5], [7, 5], [7]), (8, 3, 7, 5)),  # the weight is stored transposed
        (op("aten::mm", [3, 5]), (None,) * 4),
        (op("aten::conv2d", [8, 3, 32, 32], [16, 3, 3, 3]), (None,) * 4),
        (on_host("op", 0, 1, name="aten::mm", shapes="[[3, 5], [5,", dtypes="7"), (None,) * 4),
    ],
)
def test_the_sides_of_a_product_come_from_its_factors(launching: Row, sides: tuple[int | None, ...]):
    row = launch_row(launching)
    assert tuple(row[name] for name in SIDES) == sides


def test_an_op_tells_its_type_and_its_largest_input():
    row = launch_row(op("aten::add", [2, 3], [], [4, 5], dtype="float"))
    assert (row["op_name"], row["op_dtype"], row["elements"]) == ("aten::add", "fp32", 20)


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, char*>", 10 * 128 * 4),
        ("void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>, char*>", 10 * 128 * 8),
        ("void at::native::unrolled_elementwise_kernel<at::native::FillFunctor<float>, char*>", 10 * 128 * 4),
        ("void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<float>>", 10 * 128 * 2),
        ("void at::native::reduce_kernel<512, 1, float>", None),
    ],
)
def test_the_grid_of_an_elementwise_kernel_tells_how_many_values_it_computes(name: str, elements: int | None):
    assert kernels(queued((name, 10, {"grid": 10}))).to_dicts()[0]["elements"] == elements


def test_a_list_of_tensors_and_absurd_sizes_are_survived():
    shapes = [[[4], [5]], [1 << 40, 1 << 40], [-1, 3], [1 << 70]]
    row = launch_row(on_host("op", 0, 1, name="aten::_fused_adamw_", shapes=json.dumps(shapes), dtypes='[["float"]]'))
    assert row["op_dtype"] is None
    assert row["elements"] == 1 << 62


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=8).map(json.dumps))
def test_no_text_of_shapes_breaks_it(text: str):
    assert launch_row(on_host("op", 0, 1, name="aten::mm", shapes=text, dtypes=text))["family"] == "gemm"


def test_kernels_come_by_stream_then_start_without_copies():
    device = [
        kernel(50, 60, name=ADD, stream=9),
        kernel(30, 40, name=GEMM, stream=7),
        kernel(10, 20, name=ADD, stream=7),
        kernel(10, 20, stream=7) | {"kind": "memcpy"},
        kernel(120, 130, name=ADD, stream=7),
    ]
    rows = kernels(view(profile(device, steps=[step(1, 0, 100)])))
    assert rows.select("stream", "start_ns", "family").rows() == [
        (7, 10_000, "elementwise"),
        (7, 30_000, "gemm"),
        (9, 50_000, "elementwise"),
    ]


# us              0        100      200      300      400
# aten::linear    |--------------------------|               calls, and computes nothing itself
#   aten::mm        |---------------------|
# aten::mul                                    |----|
#   aten::to                                    ||           5 us within the 50
# aten::transpose                                     |---|  another view, however long it takes
# input                                                         |------|
#   aten::div                                                    |---|
def on_the_host() -> DeviceView:
    ran = [
        on_host("op", 0, 270, name="aten::linear"),
        on_host("op", 10, 250, name="aten::mm", parent=0, shapes="[[8, 4], [4, 2]]", dtypes='["float", "float"]'),
        on_host("op", 280, 330, name="aten::mul"),
        on_host("op", 290, 295, name="aten::to", parent=2),
        on_host("op", 340, 380, name="aten::transpose"),
        on_host("input", 400, 470),
        on_host("op", 410, 450, name="aten::div", parent=5),
        on_host("op", 500, 550, name="aten::_softmax_backward_data"),
        on_host("op", 560, 569, name="aten::add"),  # under 10 us: dispatch
        on_host("op", 570, 600, name="torch::nn::Linear"),
        on_host("op", 0, 600, name="aten::sort", thread=9),  # of no training thread
        on_host("step", 0, 600, name="ProfilerStep#1"),
    ]
    return view(profile(host_ops=ran, steps=[step(1, 0, 600, device=None)], devices=[]))


def test_without_a_device_the_ops_that_compute_stand_for_kernels():
    rows = kernels(on_the_host())
    assert rows.select("op_name", "family", pl.col("dur_ns") // 1000, "id").rows() == [
        ("aten::mm", "gemm", 240, 1),
        ("aten::mul", "elementwise", 50, 2),
        ("aten::_softmax_backward_data", "softmax", 50, 7),
    ]
    assert rows["k"].to_list() == [4, None, None]
    place = longest(kernels)(on_the_host()).row(0, named=True)
    assert place.items() >= {"table": "host_ops", "name": "aten::mm", "op": 1}.items()


def test_a_product_is_one_op_with_what_it_copies_first():
    ran = [
        on_host("op", 0, 100, name="aten::linear"),
        on_host("op", 5, 95, name="aten::addmm", parent=0),
        on_host("op", 6, 85, name="aten::copy_", parent=1),  # leaves it 11 us
        on_host("op", 100, 150, name="aten::relu"),
        on_host("op", 200, 290, name="aten::bmm"),
        on_host("op", 205, 286, name="aten::copy_", parent=4),  # leaves it 9 us
    ]
    rows = kernels(view(profile(host_ops=ran, steps=[step(1, 0, 300, device=None)], devices=[])))
    assert rows["name"].cast(pl.String).to_list() == ["aten::addmm", "aten::relu", "aten::copy_"]


@pytest.mark.parametrize(
    ("name", "family"),
    every(
        2,
        [
            *[(name, "elementwise") for name in ("add_", "gelu_backward", "pow", "clamp_min", "masked_fill_", "where")],
            *[(name, "other") for name in ("sum", "native_layer_norm", "cat", "addr", "logcumsumexp")],
            *[(name, "gemm") for name in ("bmm", "baddbmm")],
            *[("copy_", "copy"), ("native_dropout", "rng"), ("_log_softmax", "softmax")],
            *[("_scaled_dot_product_flash_attention_for_cpu", "attention")],
        ],
    ),
)
def test_the_name_of_an_op_tells_what_it_computes(name: str, family: str):
    recording = profile(host_ops=[on_host("op", 0, 50, name=f"aten::{name}")], steps=[step(1, 0, 60, device=None)])
    assert kernels(view(recording))["family"].to_list() == [family]


@pytest.mark.parametrize(
    "name", ["view", "_unsafe_view", "empty_strided", "t", "expand_as", "unsqueeze", "resolve_conj"]
)
def test_giving_storage_or_another_view_of_it_is_no_computing(name: str):
    recording = profile(host_ops=[on_host("op", 0, 50, name=f"aten::{name}")], steps=[step(1, 0, 60, device=None)])
    assert kernels(view(recording)).height == 0


def mixed() -> DeviceView:
    ran = [(SGEMM, 10, {"on": 0}), (GEMM, 30, {"on": 0}), (ADD, 25, {"on": 1}), (SGEMM, 5, {}), (ADD, 10, {"on": 1})]
    return queued(*ran, ops=[op("aten::mm"), op("aten::add")])


def test_the_ops_with_the_most_time_are_named_and_kernels_where_no_op_is_known():
    steps = mixed()
    assert in_words(largest(steps, kernels(steps))) == f"aten::mm (40 µs), aten::add (35 µs), {SGEMM} (5 µs)"
    assert largest(steps, kernels(steps).clear()) == []


def test_places_are_each_kernel_s_longest_call_by_the_kernel_s_total():
    steps = mixed()
    rows = longest(kernels)(steps).select("name", "start_ns", "dur_ns").rows()
    assert rows == [(ADD, 60_000, 25_000), (GEMM, 30_000, 30_000), (SGEMM, 20_000, 10_000)]
