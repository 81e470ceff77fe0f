from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from advisor.metrics.selectors import Selector
from advisor.rules.selections import Saves, Selection, Selections


def selections(measure: dict[str, Any], shared: dict[str, Any] | None = None) -> Selections:
    both = ({name: Selection.model_validate(one) for name, one in of.items()} for of in (measure, shared or {}))
    return Selections("mine", *both)


def test_a_selection_names_others_of_the_rule_and_shared_ones():
    of = selections(
        {"x": {"kernels": "a", "within": "loop", "outside": ["y"]}, "y": {"ops": "b"}}, {"loop": {"ranges": "c"}}
    )
    assert of.selector("x") == Selector(
        "kernels", "a", within=(Selector("ranges", "c"),), outside=(Selector("ops", "b"),)
    )


def test_a_shared_selection_has_the_name_that_the_rule_gives_it():
    shared = {"gemm": {"kernels": "gemm"}}
    assert selections({"x": "gemm"}, shared).selector("x") == Selector("kernels", "gemm")
    assert selections({"gemm": "gemm"}, shared).selector("gemm") == Selector("kernels", "gemm")


def test_metrics_of_two_rules_do_not_clash():
    metrics = selections({"x": {"ops": "a"}}).metrics({"x": ("without", (1.0, 1.0))})
    assert metrics["x_share"].name == "mine.x_share"
    assert [name for name in metrics if "gain" in name] == ["x_least_gain_ms", "x_gain_ms"]


@pytest.mark.parametrize(
    ("measure", "why"),
    [
        ({"x": {"ops": "a", "within": "x"}}, "the selection x names itself: x > x"),
        ({"x": {"ops": "a", "within": "y"}, "y": {"ops": "b", "within": "x"}}, "x > y > x"),
        ({"optim": {"ops": "a"}, "x": {"ops": "a", "within": "optin"}}, "did you mean 'optim'?"),
        ({"x": "gemm"}, "no selection is called 'gemm'"),
    ],
)
def test_names_that_lead_nowhere(measure: dict[str, Any], why: str):
    with pytest.raises(ValueError, match=r"names itself|no selection") as error:
        selections(measure).metrics({})
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"ops": "a", "kernels": "b"}, "here ops and kernels is given"),
        ({"thread": "steps"}, "here none is given"),
        ({"opps": "a"}, "Extra inputs are not permitted"),
        ({"ops": "(?=a)"}, "is no regular expression of Rust"),
        ({"ops": "a{1000}{1000}{1000}"}, "is no regular expression of Rust"),
        ({"ops": "a" * 2_001}, "at most 2000 characters"),
        ({"kernels": "a", "thread": "steps"}, "thread is of what runs on the host, not of kernels"),
        ({"ops": "a", "stream": 7}, "stream is of kernels and copies, not of ops"),
        ({"copies": {}, "family": "gemm"}, "family is of kernels, not of copies"),
        ({"kernels": "a", "at_most_bytes": 7}, "are of copies, not of kernels"),
        ({"kernels": "a", "family": "gemn"}, "did you mean 'gem"),
        ({"shared": "gemm", "exposed": True}, "a shared selection has no conditions here"),
    ],
)
def test_what_no_selection_is(written: dict[str, Any], why: str):
    with pytest.raises(ValidationError) as error:
        Selection.model_validate(written)
    assert why in str(error.value)


def test_only_what_runs_on_the_device_is_overlapped():
    with pytest.raises(ValueError, match=r"overlapped is of kernels and copies; x is of ops"):
        selections({"x": {"ops": "a"}}).metrics({"x": ("overlapped", (1.0, 1.0))})


def test_a_saving_is_of_one_change():
    with pytest.raises(ValidationError, match="give one of without, faster, overlapped, merged"):
        Saves.model_validate({"without": "x", "merged": "x"})
