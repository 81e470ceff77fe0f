"""Every command line in the skill for agents and in the docs is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

from tests.command import advisor
from tests.effort import soak

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "skills").rglob("*.md"), ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^ *(?:\$ )?(advisor (?:[^\n\\]|\\\n)+)", re.MULTILINE)
SPAN = re.compile(r"`(advisor [^`\n]+)`")


def lines(page: Path) -> set[str]:
    """The command lines of a page: in code spans, and in fences."""
    text = page.read_text("utf-8")
    fenced = (line for fence in FENCE.findall(text) for line in LINE.findall(fence))
    return {re.split(r" [#|]", line)[0].replace("\\\n", " ") for line in (*SPAN.findall(text), *fenced)}


@cache
def objection(line: str) -> str:
    """What the command line has against the words in front of `--`; empty where it takes them."""
    words = takewhile(lambda word: word != "--", shlex.split(line)[1:])
    done = advisor(*words, "--help", cwd=ROOT)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("line", ["advisor chekc", "advisor check PATH --formt brief", "advisor rules shwo ID"])
def test_a_slip_is_noticed(line):
    assert objection(line)


@pytest.mark.parametrize("page", soak(PAGES, unless=lambda page: "skills" in page.parts), ids=lambda page: page.name)
def test_the_commands_of_a_page_exist_with_their_options(page):
    wrong = {line: problem for line in lines(page) if (problem := objection(line))}
    assert not wrong
