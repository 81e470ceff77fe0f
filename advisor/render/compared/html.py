"""A comparison as one HTML page that needs nothing else."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from advisor.model.comparison import Comparison
from advisor.render.compared import words
from advisor.render.compared.payload import payload
from advisor.render.html import asset, page

_SCRIPTS: Final = ("report.js", "tables.js", "flame.js")


def render(found: Comparison) -> str:
    """The comparison as a page for any browser."""
    data = Markup(payload(found))  # noqa: S704 - escaped where it is made
    scripts = [asset(name) for name in _SCRIPTS]
    return page("compare.html", ["report.css", "compare.css"], scripts, found=found, compared=words, payload=data)
