"""The pages with commands: each prints what stands below it, and the words around them say the same numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text("utf-8")


@pytest.mark.soak  # docs/make.py --check, of `make check`, does the same
@pytest.mark.parametrize("page", ["tutorial.md", "writing-a-rule.md"])
def test_every_command_prints_what_the_page_shows(page: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from console import transcript  # noqa: PLC0415 - a script's module

    text = (ROOT / "docs" / page).read_text("utf-8")
    try:
        assert transcript(text) == text
    finally:
        sys.modules.pop("console", None)


def test_the_words_have_the_numbers_of_the_commands():
    shown = TUTORIAL[TUTORIAL.index("$ advisor check") :]
    assert "Fixing this saves 16.9\N{EN DASH}22.8 ms" in " ".join(shown.split())
    assert "median step  58.2 ms  35.5 ms  \N{MINUS SIGN}22.7 ms" in shown
    assert "The step is 23 ms shorter; 17\N{EN DASH}23 ms were predicted." in shown
    assert "input 37 %" in shown
    assert "`num_workers=2`" in shown
