from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from advisor.metrics.selectors import Selector
from advisor.rules.expressions import ExpressionError
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


def test_a_dot_is_all_of_a_kind_those_without_a_name_too():
    assert selections({"x": {"collectives": "."}}).selector("x") == Selector("collectives")


def test_a_shared_selection_has_the_name_that_the_rule_gives_it():
    shared = {"gemm": {"kernels": "gemm"}}
    assert selections({"x": "gemm"}, shared).selector("x") == Selector("kernels", "gemm")
    assert selections({"gemm": "gemm"}, shared).selector("gemm") == Selector("kernels", "gemm")


def test_what_two_rules_select_alike_is_one_selector_and_so_computed_once():
    one, other = (selections({"x": {"ops": "a", "within": "loop"}, "loop": {"ranges": "c"}}) for _ in range(2))
    assert one.selector("x") is other.selector("x")
    assert one.selector("x").within[0] is other.selector("loop")


def test_a_selection_is_of_several_others_of_a_kind():
    both = {"a": {"kernels": "a"}, "b": {"kernels": "b"}, "c": {"ops": "c"}, "x": {"any": ["a", "b"], "longer_us": 2}}
    expected = Selector("kernels", of=(Selector("kernels", "a"), Selector("kernels", "b")), where="us > 2")
    assert selections(both).selector("x") == expected
    with pytest.raises(ValueError, match="any: a, c are of different kinds"):
        selections(both | {"x": {"any": ["a", "c"]}}).selector("x")
    with pytest.raises(ValueError, match="thread is of what runs on the host, not of kernels"):
        selections(both | {"x": {"any": "a", "thread": "steps"}}).selector("x")


def test_metrics_of_two_rules_do_not_clash():
    metrics = selections({"x": {"ops": "a"}}).metrics({"x": ("without", (0.0, 0.0))})
    assert metrics["x_share"].name == "mine.x_share"
    assert [name for name in metrics if "gain" in name] == ["x_least_gain_ms", "x_gain_ms"]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("library = 5", "'library = 5': cannot compare string with numeric type"),
        ("library", "'library' is no condition; compare it, as in `us > 20`"),
        ("us + 1", "'us + 1' is no condition"),
        ("compiled AND us", "'compiled AND us': "),
    ],
)
def test_a_condition_that_no_row_can_answer(where: str, why: str):
    with pytest.raises(ExpressionError) as error:
        selections({"x": {"kernels": "a", "where": where}}).selector("x")
    assert str(error.value).startswith(why)


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
        ({"ops": "(?=a)"}, "is no regular expression of Rust: look-around, including"),
        ({"ops": "aten::(mm"}, "'aten::(mm' is no regular expression of Rust: unclosed group, at character 7"),
        ({"ops": "a{1000}{1000}{1000}"}, "is no regular expression of Rust: Compiled regex exceeds size limit"),
        ({"ops": "a" * 2_001}, "at most 2000 characters"),
        ({"kernels": "a", "thread": "steps"}, "thread is of what runs on the host, not of kernels"),
        ({"ops": "a", "stream": 7}, "stream is of kernels and copies, not of ops"),
        ({"copies": {}, "family": "gemm"}, "family is of kernels, not of copies"),
        ({"kernels": "a", "at_most_bytes": 7}, "are of copies, not of kernels"),
        ({"kernels": "a", "family": "gemn"}, "did you mean 'gem"),
    ],
)
def test_what_no_selection_is(written: dict[str, Any], why: str):
    with pytest.raises(ValidationError) as error:
        Selection.model_validate(written)
    assert why in str(error.value)


def test_only_what_runs_on_the_device_is_overlapped():
    with pytest.raises(ValueError, match=r"overlapped is of what runs on the device; x is of ops"):
        selections({"x": {"ops": "a"}}).metrics({"x": ("overlapped", (0.0, 0.0))})


def test_a_saving_is_of_one_change():
    with pytest.raises(ValidationError, match="give one of without, faster, shorter, overlapped, merged, fused"):
        Saves.model_validate({"without": "x", "merged": "x"})


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ({"faster": "slow"}, "`faster: {slow: [2, 4]}`"),
        ({"faster": {"mine": 2}}, "`faster: {mine: [2, 4]}`"),
        ({"shorter": "mine"}, "`shorter: {mine: [0.2, 0.5]}`"),
    ],
)
def test_how_much_faster_is_asked_for(written: dict[str, Any], form: str):
    with pytest.raises(ValidationError) as error:
        Saves.model_validate(written)
    assert f"say how much at least and at most: {form}" in str(error.value)


def test_a_change_to_no_selection_names_those_of_the_rule():
    of = selections({"slow": {"ops": "a"}, "rest": {"ops": "b"}}, {"casts": {"kernels": "a"}})
    with pytest.raises(ValueError, match=r"no selection is called 'fast'; the rule has slow, rest$"):
        of.metrics({"fast": ("without", (0.0, 0.0))})
