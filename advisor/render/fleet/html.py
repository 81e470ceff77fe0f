"""A week as one HTML page that needs nothing else; its items lead to the reports of their runs."""

from __future__ import annotations

from advisor.model.week import Week
from advisor.render.fleet import words
from advisor.render.html import asset, page


def render(week: Week, *, links: str | None = None) -> str:
    """The week as a page for any browser.

    Args:
        week: What to draw.
        links: Folder or URL of the runs' reports; without it nothing is linked.
    """
    scripts = [asset("report.js"), asset("fleet.js")]
    return page("fleet.html", ["report.css", "fleet.css"], scripts, week=week, fleet=words, links=links)
