"""The documentation as a site: built strictly, so that a link to a page that is not there fails here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import profiles

ROOT = Path(__file__).parents[1]


# `make docs` builds it as strictly; what is generated for it is checked by `docs/make.py --check`.
@pytest.mark.soak
def test_site_builds_with_a_page_for_each_rule_and_every_sample(tmp_path):
    site = tmp_path / "site"
    result = subprocess.run(
        [sys.executable, ROOT / "docs" / "build_site.py", site],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert profiles.book().keys() - {page.stem for page in (site / "rules").glob("*.html")} == set()
    samples = {page.stem for page in (site / "samples").glob("*.html")} - {"index"}
    assert len(samples) == 5
    assert "GPU waits for the data loader" in (site / "samples" / "index.html").read_text("utf-8")
    assert "input_share" in (site / "search/search_index.js").read_text("utf-8")  # a script: a folder serves no JSON
    assert '<script src="assets/iframe-worker.js">' in (site / "faq.html").read_text("utf-8")
    moved = (site / "rules/time-between-steps.html").read_text("utf-8")
    assert (site / "rules" / moved.partition("url=")[2].partition('"')[0]).is_file()


def test_every_page_of_docs_can_be_reached_from_the_navigation():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))

    named = {
        page if isinstance(page, str) else next(iter(page.values()))
        for group in settings["nav"]
        for pages in group.values()
        for page in (pages if isinstance(pages, list) else [pages])
    }

    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert pages - named == set()
