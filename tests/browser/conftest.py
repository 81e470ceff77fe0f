"""One browser for all tests of this folder: Playwright starts only once in a process."""

from __future__ import annotations

import pytest

from tests.browsing import CHROMIUM, Visits


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        words = ["--no-sandbox", "--disable-gpu"]  # a graphics card that is computed takes a third longer
        opened = started.chromium.launch(executable_path=CHROMIUM, args=words)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def visit(browser, tmp_path_factory):
    return Visits(browser, tmp_path_factory.mktemp("pages"))
