"""A rule's page: its limits in words, its parameters with unit and meaning."""

import re
import sys
from pathlib import Path

from advisor.cli import app
from advisor.metrics import METRICS, topics
from advisor.present.reference import rule_page
from advisor.rules.rule_file import Rule, RuleFile, load
from advisor.system.resources import rules_folder
from advisor.text import ns
from advisor.vocabulary.limits import LAUNCH_GAP_NS, SLOW_CALL_NS
from tests import profiles

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))
from reference_pages import metrics_page  # noqa: E402 - the scripts of docs/ are no package

BOOK = profiles.book()


def rule(**changes):
    data = RuleFile(rules_folder() / "amp-unused.yaml").data | {"id": "amp-unused"}
    return rule_page(Rule.model_validate(data | {"params": {"limit": "5 %, a part of it", "most": 9}} | changes))


def test_a_page_shows_one_of_two_alternatives_and_nothing_of_what_may_be_absent():
    page = rule_page(load([rules_folder()], cases=False)["input-bound"])
    assert "run map and reading in parallel" in page
    assert "Make a batch cheaper: decode" in page
    assert "CASE WHEN" not in page
    assert "## Cases" not in page


def test_parameters_are_a_table():
    page = rule()
    assert "| `limit` | 5 % | a part of it |" in page
    assert "| `most` | 9 |  |" in page


def test_a_shipped_rule_says_when_it_fires():
    page = rule_page(BOOK["launch-bound"])
    assert "- fires if `launch_gap_share >= moderate`" in page
    assert "| `moderate` | 5 % |" in page
    assert "The middle of a saving decides the severity: high from 15 % of the step, medium from 3 %" in page
    page = rule_page(BOOK["memory-near-capacity"])
    assert "Full memory costs no time until a request for memory fails." in page


def test_limits_of_categories_stand_in_every_page_as_the_vocabulary_has_them():
    page, gap = rule(why="Up to {launch_gap}, after {slow_call}."), ns(LAUNCH_GAP_NS)
    assert f"Up to {gap}, after {ns(SLOW_CALL_NS)}." in page
    assert f"in gaps of at most {gap} / step" in METRICS["launch_gap_share"].formula
    assert not [
        m.name for m in METRICS.values() if re.search(r"\{\w+_(?:gap|call)\}", m.meaning + m.formula + m.source)
    ]
    docs = ROOT / "docs"  # what is written by hand follows by hand
    assert f"| late launches | idle time of at most {gap} " in (docs / "glossary.md").read_text("utf-8")
    assert f"Up to {gap} counts as the price of launching" in (docs / "design.md").read_text("utf-8")


def test_a_page_is_drawn_on_a_terminal_and_is_markdown_elsewhere(monkeypatch, capsys):
    def shown():
        app(["rules", "show", "input-bound"], standalone_mode=False)
        return capsys.readouterr().out

    assert "## When it fires" in shown()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = shown()
    assert "When it fires" in text
    assert "## " not in text
    assert "| ---" not in text


def test_the_metrics_stand_under_their_topics_each_once():
    page = metrics_page(topics(), BOOK.values())
    names = [line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")]
    assert sorted(names) == sorted(METRICS)
    assert "formula: as in \n" not in page
    assert "- formula: as in [padding](rules/padding.md#what-a-fix-saves)\n" in page
    assert page.index("\n## Steps") < page.index("\n### input_share\n") < page.index("\n## Input\n")
