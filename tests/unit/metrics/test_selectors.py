from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.analysis.device.kernels import parts
from advisor.metrics.selection_gains import ENDS, WAYS, Better, metrics
from advisor.metrics.selectors import Selector
from advisor.model.clause import Missing
from tests.effort import every
from tests.tables import US, Row, kernel, on_device, on_host, pageable, profile, step, told, view

# us         0        10        20        30        40        50        60        70        80        90       100
# op a       [ 10 .......................... 40 ]               (aten::topk, own 10..15, 20..30 and 35..40)
# op b             [ 15 .. 20 ]       [ 30.35 ]                 (aten::sort right inside it)
# op c                                                [ 50 .. 60 ]   another topk, alone
# range                                    [ 35 ........................... 70 ]
# k1 (call 11..12)        [ 20 ........... 40 ]
# k2 (call 51..52)                                          [ 55 .. 65 ]
# copy (call 61..62)                                              [ 60 ........ 80 ]
HOST = [
    on_host("op", 10, 40, name="aten::topk"),
    on_host("op", 15, 20, name="aten::sort", parent=0),
    on_host("op", 30, 35, name="aten::sort", parent=0),
    on_host("op", 50, 60, name="aten::topk"),
    on_host("annotation", 35, 70, name="evaluate"),
    on_host("op", 50, 58, name="loader", thread=5),
]
DEVICE = [
    kernel(20, 40, 12, name="void topk<float>", op=0),
    kernel(55, 65, 52, name="gemm_nt", op=3),
    pageable(60, 80, launched=62, bytes=4_096),
]
STEPS = [step(1, 0, 100)]


def seen() -> Any:
    return view(profile(DEVICE, HOST, STEPS))


def values(selector: Selector, of: Any = None) -> dict[str, Any]:
    of = of or seen()
    return {metric.name.removeprefix("x_"): told(metric.value(of)) for metric in metrics(selector, "x")}


def test_an_op_s_time_is_its_own_and_its_names_have_as_much_in_all():
    of = values(Selector("ops", "^aten::topk"))
    assert of["share"] == pytest.approx((30 - 10 + 10) / 100)
    assert of["ms"] == pytest.approx(0.030)
    assert (of["count"], of["per_step"], of["median_us"]) == (2, 2.0, 20.0)
    assert of["names"] == "aten::topk (30 µs)"


def test_the_time_of_the_host_counts_in_the_step_of_the_host():
    # the device begins its step 20 us after the host: the op lies before it, and of the kernel half lies behind it
    host, device = [on_host("op", 5, 15, name="aten::topk")], [kernel(110, 130, 12, name="topk")]
    late = view(profile(device, host, [step(1, 20, 120, host=(0, 100))]))
    assert values(Selector("ops", "topk"), late)["share"] == pytest.approx(0.10)
    assert values(Selector("ops", "topk"), late)["ms"] == pytest.approx(0.010)
    assert values(Selector("ops", "topk", exposed=True), late)["share"] == 0  # the device's time, in its step
    assert values(Selector("kernels", "topk"), late)["share"] == pytest.approx(0.10)


def test_a_condition_asks_for_its_own_columns_alone():
    assert values(Selector("ops", "^aten::", where="us > 7"))["count"] == 2
    assert values(Selector("ops", "^aten::", where="inside > 1"))["count"] == 1
    shapes = ("[[64, 64], [64, 8]]", "[[64,8],[8,64]]", "[[64], [64, 64]]", None)
    host = [on_host("op", at, at + 1, name="aten::mm", shapes=of) for at, of in enumerate(shapes)]
    square = Selector("ops", "^aten::mm$", where="square")
    assert values(square, view(profile([], host, [step(1, 0, 100, device=None)])))["count"] == 1
    shapes = (
        "[[90, 1, 8], [1, 70, 8], []]",
        "[[90, 1, 8], [70, 8]]",
        "[[90, 70, 8], []]",
        "[[70, 90, 8]]",
        "[[90, 1, 8]]",
    )
    host = [on_host("op", at, at + 1, name="aten::sub", shapes=of) for at, of in enumerate(shapes)]
    paired = Selector("ops", "^aten::", where="paired")
    assert values(paired, view(profile([], host, [step(1, 0, 100, device=None)])))["count"] == 3


def test_ops_and_those_right_inside_them_share_no_time():
    of = values(Selector("ops", "^aten::"))
    assert of["share"] == pytest.approx(0.40)
    assert of["names"] == "aten::topk (30 µs), aten::sort (10 µs)"


def test_an_op_far_inside_another_that_is_selected_too_counts_with_its_own_time_only():
    host = [
        on_host("op", 0, 50, name="mine"),
        on_host("op", 10, 40, name="other", parent=0),
        on_host("op", 15, 35, name="mine", parent=1),
        on_host("op", 20, 25, name="other", parent=2),
    ]
    of = values(Selector("ops", "^mine"), view(profile(DEVICE, host, STEPS)))
    assert of["share"] == pytest.approx((20 + 15) / 100)


@pytest.mark.parametrize(
    ("selector", "us", "count"),
    [
        (Selector("kernels"), 30, 2),
        (Selector("kernels", "gemm"), 10, 1),
        (Selector("kernels", besides="gemm"), 20, 1),
        (Selector("kernels", op="^aten::topk$"), 30, 2),
        (Selector("kernels", families=("gemm",)), 10, 1),
        (Selector("kernels", where="us < 15"), 10, 1),
        (Selector("kernels", where="us > 10"), 20, 1),
        (Selector("kernels", where="stream = 8"), 0, 0),
        (Selector("kernels", exposed=True), 25, 2),
        (Selector("kernels", within=(Selector("ranges", "evaluate"),)), 10, 1),
        (Selector("kernels", outside=(Selector("ranges", "evaluate"),)), 20, 1),
        (Selector("kernels", within=(Selector("ops", "topk"),), names="topk"), 20, 1),
        (Selector("ranges", "evaluate"), 35, 1),
        (Selector("ranges", "evaluate", exposed=True), 15, 1),
        (Selector("calls", "Launch"), 3, 3),
        (Selector("copies"), 20, 1),
        (Selector("copies", where="kind = 'HtoD' AND (source = 'pageable' OR target = 'pageable')"), 20, 1),
        (Selector("copies", idle=("no_kernel",)), 15, 1),
        (Selector("copies", where="kind = 'DtoH'"), 0, 0),
        (Selector("copies", where="bytes >= 4097"), 0, 0),
        (Selector("copies", where="bytes <= 4096"), 20, 1),
        (Selector("ops", "aten", within=(Selector("copies"),)), 0, 0),
        (Selector("ops", "sort", within=(Selector("kernels"),)), 5, 1),
        (Selector("ops", "loader", thread="others"), 8, 1),
        (Selector("ops", thread="steps", names="topk"), 30, 2),
    ],
    ids=str,
)
def test_each_condition_leaves_what_it_says(selector: Selector, us: float, count: int):
    launching = [*HOST[:4], *(row | {"thread": 2} for row in HOST[4:5]), *HOST[5:]]
    rows = [row | {"thread": 2} if row["thread"] == 1 else row for row in launching]
    of = values(selector, view(profile(DEVICE, rows, STEPS)))
    assert (of["ms"], of["count"]) == (pytest.approx(us / 1e3), count)
    assert of["share"] == pytest.approx(us / 100)


def test_time_is_cut_to_the_used_steps():
    of = view(profile([kernel(20, 40, 12)], [on_host("op", 0, 1)], [step(1, 0, 30, host=(0, 100))]))
    assert values(Selector("kernels"), of)["ms"] == pytest.approx(0.010)


def test_what_overlaps_counts_once():
    both = [kernel(20, 40, 12), kernel(30, 50, 13, where="stream = 8")]
    of = values(Selector("kernels"), view(profile(both, HOST, STEPS)))
    assert (of["ms"], of["count"]) == (pytest.approx(0.030), 2)


def test_places_are_the_longest():
    share = next(iter(metrics(Selector("ops", "aten"), "x")))
    assert share.where is not None
    rows = share.where(seen())
    assert rows["name"][0] == "aten::topk"
    assert rows["dur_ns"][0] == 30_000
    kernels_, copies = Selector("kernels").places(seen()), Selector("copies").places(seen())
    assert kernels_["name"].to_list() == ["void topk<float>", "gemm_nt"]
    assert copies["dur_ns"].to_list() == [20_000]


def test_nothing_selected_is_zero_and_what_cannot_be_told_has_a_reason():
    of = values(Selector("ops", "no such op"))
    assert (of["share"], of["count"], of["median_us"], of["names"]) == (0.0, 0, 0.0, "")
    frames = values(Selector("frames", "train"))
    assert {value.code for value in frames.values() if isinstance(value, Missing)} == {"no_python_calls"}
    inside_frames = values(Selector("kernels", within=(Selector("frames", "train"),)))
    assert inside_frames["share"] == frames["share"]


def test_ranges_are_unknown_where_nothing_of_the_host_was_recorded():
    calls_alone = [on_host("runtime", 11, 12, name="cudaLaunchKernel")]
    for host in ([], calls_alone):
        of = view(profile([kernel(20, 40)], host, STEPS))
        assert values(Selector("ranges", "evaluate"), of)["share"] == Missing("no_host_event")
        within = Selector("kernels", within=(Selector("ranges", "evaluate"),))
        assert values(within, of)["share"] == Missing("no_host_event")
    assert values(Selector("ranges", "no such range"))["share"] == 0
    ops_alone = view(profile([kernel(20, 40)], [on_host("op", 10, 40, name="aten::mm")], STEPS))
    assert values(Selector("ranges", "evaluate"), ops_alone)["share"] == 0


def test_a_kernel_is_launched_by_every_op_around_its_launch():
    # linear 10..40 > a range 12..38 > matmul 14..36 > mm 15..20, which launches; addmm alone launches the other
    host = [
        on_host("op", 10, 40, name="aten::linear"),
        on_host("annotation", 12, 38, name="mine", parent=0),
        on_host("op", 14, 36, name="aten::matmul", parent=1),
        on_host("op", 15, 20, name="aten::mm", parent=2),
        on_host("op", 50, 60, name="aten::addmm"),
    ]
    of = view(profile([kernel(20, 40, 16, op=3), kernel(55, 65, 52, op=4), kernel(70, 75, 52)], host, STEPS))
    counts = {"^aten::mm$": 1, "^aten::(linear|matmul)$": 1, "^aten::linear$": 1, "mm$": 2, "mine": 0, "^aten::": 2}
    assert {op: values(Selector("kernels", op=op), of)["count"] for op in counts} == counts


def test_without_ops_on_the_host_it_is_unknown_what_they_launched():
    calls_alone = [on_host("runtime", 11, 12, name="cudaLaunchKernel")]
    of = view(profile([kernel(20, 40, 11)], calls_alone, STEPS))
    for unknown in (Selector("ops", "topk"), Selector("kernels", op="topk")):
        assert values(unknown, of)["share"] == Missing("no_host_op")


def test_undirected_copies_are_of_no_way():
    of = view(profile([on_device("memcpy", 0, 50, copy_kind=None)], HOST, STEPS))
    assert values(Selector("copies", where="kind = 'HtoD'"), of)["share"] == Missing(
        "copy_direction_unknown", share=0.5
    )
    assert values(Selector("copies"), of)["share"] == pytest.approx(0.5)


def test_formulas_name_every_condition():
    inner = Selector("ranges", "loop")
    of = Selector("kernels", "a{2}", where="stream = 0 AND us > 2", within=(inner,), exposed=True)
    assert of.words == (
        "kernels whose name matches a{2} where stream = 0 AND us > 2 within ranges of the program whose name matches "
        "loop while the device runs nothing else"
    )
    assert all(of.words in metric.formula for metric in metrics(of, "x"))


def test_they_travel_to_other_processes():
    every = [*metrics(Selector("ops", "topk"), "x"), *Better(Selector("kernels"), "faster", (0.5, 0.25)).metrics("x")]
    sent = pickle.loads(pickle.dumps(every))  # noqa: S301 - our own
    assert [metric.value(seen()) for metric in sent] == [metric.value(seen()) for metric in every]
    assert {f"x_{end}" for end in ENDS} - {metric.name for metric in every} == {"x_runs_per_step", "x_bytes_per_step"}


NARROWER = st.sampled_from(
    [
        {"where": "us > 9"},
        {"where": "us < 15"},
        {"besides": "topk"},
        {"exposed": True},
        {"where": "stream = 7"},
        {"within": (Selector("ranges", "evaluate"),)},
        {"outside": (Selector("ops", "topk"),)},
        {"op": "topk"},
    ]
)
SPAN = st.tuples(
    st.integers(0, 150), st.integers(0, 60), st.sampled_from(["gemm_a", "topk_b"]), st.sampled_from([7, 8])
)


@given(st.lists(SPAN, max_size=8), NARROWER)
def test_one_more_condition_never_gives_more(ops: list[tuple[int, int, str, int]], more: dict[str, Any]):
    rows = [kernel(at, at + took, at + 1, name=name, stream=stream) for at, took, name, stream in ops]
    of = view(profile([*rows, kernel(0, 1, 1, op=0)], HOST, STEPS))
    wide, narrow = values(Selector("kernels"), of), values(Selector("kernels", **more), of)
    assert 0 <= narrow["share"] <= wide["share"] <= 1
    assert narrow["count"] <= wide["count"]
    assert narrow["ms"] == pytest.approx(narrow["share"] * 0.1)


# Savings: the recorded steps are too short to be replayed by a model of a CPU; what stands in for one is told.


def gain(selector: Selector, way: Any, rest: tuple[float, float] = (0.0, 0.0), of: Any = None) -> tuple[Any, ...]:
    return tuple(metric.value(of or seen()) for metric in Better(selector, way, rest).metrics("x"))


CPU = view(profile([], [row for row in HOST if row["thread"] == 1], [step(1, 0, 100, device=None)]))


def test_without_a_device_an_op_is_saved_with_all_within_it():
    assert gain(Selector("ops", "topk"), "without", of=CPU) == pytest.approx((0.040, 0.040))
    assert gain(Selector("ops", "sort"), "without", of=CPU) == pytest.approx((0.010, 0.010))


def test_without_a_device_a_faster_op_saves_of_its_own_time():
    assert gain(Selector("ops", "topk"), "faster", (0.5, 0.25), of=CPU) == pytest.approx((0.015, 0.0225))


def test_what_is_gone_is_not_launched_while_the_host_sets_the_pace():
    """100 kernels and copies of 2 us in turns, each 6 us after its call of 8 us; a copy that is short is launched."""
    turns: list[Row] = []
    for at in range(0, 2_000, 20):
        turns += [kernel(at + 6, at + 8, launched=at), on_device("memcpy", at + 16, at + 18, launched=at + 10)]
    for op in turns:
        op["call"] |= {"dur_ns": 8 * US}
    of = view(profile(turns, [], [step(1, 0, 2_000)]))
    assert gain(Selector("copies"), "shorter", (0.5, 0.25), of=of) == pytest.approx((0, 0), abs=0.01)
    assert gain(Selector("copies"), "shorter", (0.5, 0.0), of=of) == pytest.approx((0, 0.8), abs=0.01)


@pytest.mark.parametrize("way", every(3, WAYS))
def test_nothing_selected_saves_nothing(way: Any):
    assert gain(Selector("kernels", "no such kernel"), way, (0.5, 0.25)) == (0.0, 0.0)


def test_a_selection_of_all_kernels_is_no_copy():
    one = seen()
    assert Selector("kernels").rows(one) is one.once(parts)
    assert Selector("kernels", where="us > 0").rows(one) is one.once(parts)
