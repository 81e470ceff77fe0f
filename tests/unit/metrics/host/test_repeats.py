"""What a step computes again: which lines count, with which share of the step, and what is saved."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import METRICS
from advisor.model.clause import Missing
from tests.tables import kernel, metrics_of, on_host, profile, step, view

OPS = [on_host("op", 0, 800, name="aten::mm"), on_host("op", 800, 900, name="aten::cos")]


def stack(line: str, *callers: str, samples: int) -> dict[str, Any]:
    around = [{"line": each, "function": "main", "call": "model", "needed": []} for each in callers]
    known = {"line": line, "function": "f", "call": "cos", "callers": around, "above": None, "of_loader": False}
    return known | {"below": ["torch/nn/modules/module.py: f"], "samples": samples, "ns": 10_000_000 * samples}


def trace(*repeats: dict[str, Any], device: int | None = None, calls_ns: int = 1_000_000) -> DeviceView:
    """A step of 1 ms; of a hundred samples forty are in line 9, which line 4 calls."""
    of = view(profile([kernel(0, 900)] if device is not None else [], OPS, [step(1, 0, 1000, device=device)]))
    stacks = [stack("a.py:9", "a.py:4", samples=40), stack("a.py:7", samples=60)]
    of.process.update(stacks=stacks, repeats=[*repeats], calls_ns=calls_ns)  # type: ignore[attr-defined]  # a reader fills it
    return of


def again(line: str, all_ns: int, ns: int, of_each_ns: int = 0) -> dict[str, Any]:
    times = {"is_complete": ns == all_ns, "all_ns": all_ns, "ns": ns, "of_each_ns": of_each_ns}
    return {"line": line, "function": "f", "call": "model"} | times


def test_without_a_device_the_share_is_that_of_the_samples_in_the_line_and_what_it_calls():
    values = metrics_of(trace(again("a.py:4", 500_000, 500_000)))
    assert values["repeated_share"] == pytest.approx(0.4)
    assert values["repeated_line"] == "a.py:4 `model(...)` in `f`"
    error = 2 * (0.4 * 0.6 / 100) ** 0.5
    assert values["repeated_least_gain_ms"] == pytest.approx(0.4 - error)
    assert values["repeated_gain_ms"] == pytest.approx(0.4 + error + 0.1 * 0.6)


def test_of_a_line_that_computes_other_things_too_the_calls_are_timed():
    assert metrics_of(trace(again("a.py:4", 500_000, 250_000)))["repeated_share"] == pytest.approx(0.25)


def test_a_line_of_the_host_is_judged_once():
    """Of line 9, which takes most, all samples are in line 4, which computes again."""
    waits = stack("a.py:9", "a.py:4", samples=40) | {"call": "save", "below": ["torch/serialization.py: save"]}
    for repeats, part in (([again("a.py:4", 500_000, 500_000)], 1), ([], 0)):
        of = trace(*repeats)
        of.process.update(stacks=[waits, stack("a.py:7", samples=60)])  # type: ignore[attr-defined]  # a reader fills it
        assert metrics_of(of)["line_again_part"] == part


def test_with_a_device_the_share_is_that_of_the_calls():
    values = metrics_of(trace(again("a.py:4", 300_000, 300_000, 300_000), device=0))
    assert (values["repeated_share"], values["repeated_each_part"]) == (pytest.approx(0.3), 1)
    assert values["repeated_calls_part"] == pytest.approx(0.3)


def test_lines_below_2_percent_are_left_out():
    values = metrics_of(trace(again("a.py:2", 10_000, 10_000), device=0))
    assert (values["repeated_share"], values["repeated_line"]) == (0, "")


def test_where_no_calls_were_followed_nothing_is_known():
    of = trace()
    of.process.update(repeats=None)  # type: ignore[attr-defined]  # a reader fills it
    assert METRICS["repeated_share"].value(of) == Missing("repeats_not_noted")
