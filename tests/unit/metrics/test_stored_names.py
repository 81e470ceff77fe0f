"""What ran by name answers for simple selections as the recording would, and for no others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from advisor.metrics.selection_gains import ENDS, Better, metrics
from advisor.metrics.selectors import Selector
from advisor.metrics.stored_names import NAME_METRICS, Names, answer
from advisor.model.clause import Missing
from tests.tables import kernel, on_host, profile, step, view

# us         0        10        20        30        40        50        60        70        80        90       100
# topk       [ 10 .......................... 40 ]         [ 50 .. 60 ]
# sort            [ 15 .. 20 ]       [ 30.35 ]
# topk on another thread                                   [ 55 ... 65 ]
# evaluate                                 [ 35 ........................... 70 ]
# gemm                    [ 20 ........... 40 ]                                 [ 70 .. 80 ]
# softmax on stream 8                [ 30 ........ 50 ]
# add                                                                                         [ 90 ....... 110 ]
HOST = [
    on_host("op", 10, 40, name="aten::topk"),
    on_host("op", 15, 20, name="aten::sort", parent=0),
    on_host("op", 30, 35, name="aten::sort", parent=0),
    on_host("op", 50, 60, name="aten::topk"),
    on_host("op", 55, 65, name="aten::topk", thread=5),
    on_host("annotation", 35, 70, name="evaluate"),
]
DEVICE = [
    kernel(20, 40, name="gemm_nt"),
    kernel(30, 50, name="softmax", where="stream = 8"),
    kernel(70, 80, name="gemm_nt"),
    kernel(90, 110, name="add"),
]
UNKNOWN = Missing("stored_before_rule")


def seen() -> Any:
    return view(profile(DEVICE, HOST, [step(1, 0, 100)]))


def names_of(of: Any) -> dict[Any, Names]:
    texts = {kind: metric.value(of) for kind, metric in NAME_METRICS.items()}
    return {kind: msgspec.json.decode(text, type=Names) for kind, text in texts.items() if isinstance(text, str)}


def test_a_name_has_its_time_and_the_time_that_it_has_alone():
    of = names_of(seen())["kernels"]
    assert (of.steps, of.total_ns) == (1, 100_000)
    assert of.names == ["add", "gemm_nt", "softmax"]
    assert of.counts == [1, 2, 1]
    assert of.times_ns == [10_000, 30_000, 20_000]  # the last is cut at the step's end
    assert of.alone_ns == [10_000, 20_000, 10_000]


def test_an_op_s_time_is_its_own_and_that_of_two_threads_counts_once():
    of = names_of(seen())["ops"]
    assert of.names == ["aten::sort", "aten::topk"]
    assert of.times_ns == [10_000, 20_000 + 15_000]
    assert of.alone_ns == [10_000, 20_000 + 15_000]


@pytest.mark.parametrize(
    "selector",
    [
        Selector("ops", "topk"),
        Selector("ops", "^aten::"),
        Selector("ops", "^aten::", besides="topk"),
        Selector("kernels", "gemm"),
        Selector("kernels", "add"),
        Selector("kernels", families=("gemm",)),
        Selector("ranges", "evaluate"),
        Selector("kernels", "no such"),
    ],
    ids=lambda selector: selector.words,
)
def test_names_answer_as_the_recording_does(selector: Selector):
    of, names = seen(), names_of(seen())
    for metric in metrics(selector, "x"):
        if metric.name in {"x_share", "x_ms", "x_per_step", "x_count"}:
            assert answer(metric, names) == pytest.approx(metric.value(of)), metric.name


@pytest.mark.parametrize(
    "selector",
    [
        Selector("kernels", "gemm|softmax"),  # 40 us, and 50 us if they did not overlap
        Selector("kernels", "add|gemm"),  # not with each other, but the names do not tell
        Selector("kernels", "gemm", where="stream = 7"),
        Selector("ops", "topk", within=(Selector("ranges", "evaluate"),)),
        Selector("copies"),
    ],
    ids=lambda selector: selector.words,
)
def test_what_names_do_not_tell_is_unknown(selector: Selector):
    share = next(metric for metric in metrics(selector, "x") if metric.name == "x_share")
    assert answer(share, names_of(seen())) == UNKNOWN


def test_names_of_the_host_count_in_its_own_steps():
    late = view(profile(DEVICE, HOST, [step(1, 20, 120, host=(0, 100))]))
    of = names_of(late)
    assert of["ops"].times_ns == [10_000, 20_000 + 15_000]
    assert of["kernels"].times_ns == [20_000, 30_000, 20_000]  # all of the last kernel lies in the device's step
    for selector in (Selector("ops", "topk"), Selector("kernels", "gemm")):
        share = next(metric for metric in metrics(selector, "x") if metric.name == "x_share")
        assert answer(share, of) == pytest.approx(share.value(late))


def test_a_saving_and_a_median_are_not_in_the_names():
    names = names_of(seen())
    (median,) = (metric for metric in metrics(Selector("ops", "topk"), "x") if metric.name == "x_median_us")
    for metric in (median, *Better(Selector("ops", "topk"), "without").metrics("x")):
        assert answer(metric, names) == UNKNOWN
    assert "median_us" in ENDS


def test_too_many_names_are_not_kept():
    host = [on_host("op", n, n + 1, name=f"op {n}") for n in range(4_001)]
    assert NAME_METRICS["ops"].value(view(profile([], host, [step(1, 0, 5_000)]))) == UNKNOWN
