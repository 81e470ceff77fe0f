"""The charts in comments, drawn by Mermaid itself, as GitHub and GitLab do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.comparisons import slower
from tests.npm import packed
from tests.render_samples import SAMPLES, drawn

pytestmark = pytest.mark.browser

PACKAGE = "mermaid@11.12.0"
DRAW = "async chart => { mermaid.initialize({startOnLoad: false}); return (await mermaid.render('chart', chart)).svg }"


@pytest.fixture(scope="module")
def script() -> Path:
    """Mermaid as its package bundles it."""
    return packed(PACKAGE, "dist/mermaid.min.js")


CHARTS = {
    "comparison": (drawn(slower(), "markdown"), ["base", "head", "compute", "input"]),
    "report": (drawn(SAMPLES["resnet"], "markdown"), ["step", "compute", "input"]),
}


@pytest.mark.parametrize("name", CHARTS)
def test_mermaid_draws_the_chart(browser, script: Path, name: str):
    text, told = CHARTS[name]
    (chart,) = re.findall(r"(?s)```mermaid\n(.*?)\n```", text)
    page = browser.new_page()
    page.set_content("<!doctype html><title>chart</title>")
    page.add_script_tag(path=str(script))
    page.evaluate(f"(async () => {{ document.body.innerHTML = await ({DRAW})({json.dumps(chart)}) }})()")
    texts = page.locator("svg text").all_text_contents()
    assert set(told) <= {one.strip() for one in texts}
    bars = [one.bounding_box() for one in page.locator("svg rect.task").all()]
    assert len(bars) == chart.count(" :")
    rows = {round(box["y"]) for box in bars if box}
    assert len(rows) == chart.count("section ")  # one bar above the other, not a line for each part
    page.close()
