"""Which rules need Python of their own, and why."""

from __future__ import annotations

from pathlib import Path

from advisor.metrics import METRICS
from advisor.rules.python import python_metrics, reason
from advisor.rules.rule_file import RuleFile, load
from advisor.system.resources import rules_folder
from tests.unit.rules.test_selected_rules import RULE


def test_every_metric_has_a_reason():
    assert all(map(reason, METRICS.values()))


def test_a_rule_of_selections_and_of_what_others_use_needs_none():
    book = load([rules_folder()], cases=False)
    own = RuleFile(Path("products.yaml"), RULE).rule()
    assert own.id not in python_metrics({**book, own.id: own})
    assert "launch-bound" not in python_metrics(book)  # its metrics are other rules' too


def test_a_metric_that_only_one_rule_uses_is_python_of_that_rule():
    own = python_metrics(load([rules_folder()], cases=False))["straggler-rank"]
    assert "late_rank_share" in {metric.name for metric in own}
    assert {reason(metric) for metric in own} == {"it holds the ranks of a job against each other"}
