"""A word for a severity stands in one file."""

import pytest

from advisor.vocabulary.severities import GRADES
from tests.render_samples import RESNET, drawn, report


@pytest.mark.parametrize(
    ("medium", "words"),
    [("terminal", "▲ GRAVE"), ("markdown", "▲&nbsp;grave"), ("html", "</svg>grave</li>")],
)
def test_another_word_reaches_every_medium(monkeypatch, medium, words):
    assert words not in drawn(report(RESNET), medium, verbose=True)
    monkeypatch.setitem(GRADES, "high", GRADES["high"]._replace(word="grave"))
    made = drawn(report(RESNET, RESNET), medium)
    assert words in drawn(report(RESNET), medium, verbose=True)
    assert "2 grave" in made
