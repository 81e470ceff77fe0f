"""A comparison as one HTML page that needs nothing else."""

from __future__ import annotations

from advisor.comparison import Comparison
from advisor.render.compared import words
from advisor.render.html import page


def render(found: Comparison) -> str:
    """The comparison as a page for any browser."""
    return page("compare.html", ["report.css", "compare.css"], found=found, compared=words)
