"""The shipped rule book: lint, and that every threshold of every rule is held by a case."""

import re

import pytest

from advisor import metrics
from advisor.resources import rules_folder
from advisor.rulebook import load
from advisor.rulelint import failure, lint

BOOK = load([rules_folder()])
NAMES = metrics.dtypes()


def test_the_book_is_right():
    assert lint(rules_folder(), NAMES, BOOK) == []


def mutants():
    for rule in BOOK.values():
        for name, value in rule.params.items():
            step = 1 if value == int(value) and abs(value) < 100 else 0.1 * value
            for other in (value - step, value + step):
                yield pytest.param(rule, rule.adjusted({name: other}, None), id=f"{rule.id}-{name}={other:g}")
        for at in re.finditer(r">=|<=|>|<", str(rule.when)):
            flipped = {">=": ">", ">": ">=", "<=": "<", "<": "<="}[at[0]]
            text = str(rule.when)[: at.start()] + flipped + str(rule.when)[at.end() :]
            yield pytest.param(
                rule, rule.model_copy(update={"when": text}), id=f"{rule.id}-when-{at.start()}-{flipped}"
            )


@pytest.mark.parametrize(("rule", "mutant"), list(mutants()))
def test_a_changed_threshold_breaks_a_case(rule, mutant):
    assert not any(failure(rule, case, NAMES) for case in rule.cases)
    assert any(failure(mutant, case, NAMES) for case in mutant.cases), "no case notices"


@pytest.mark.parametrize("rule", BOOK.values(), ids=BOOK)
def test_every_fix_links_to_documentation_and_every_limit_has_a_source(rule):
    assert any(fix.link for fix in rule.fixes)
    assert rule.references
    assert len(" ".join(rule.why.split())) > 100
