"""Sizes of the pages of fixtures and of the largest page, and how soon a browser first paints them.

`python benchmarks/page.py`, from the root of a checkout with the extra `test` and Chromium. First paint is the
browser's own `first-contentful-paint`, the median of five loads from a file. The limits: 3 MB and 15 MB, 1 s.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from advisor.engine import check  # noqa: E402 - the tests' samples are found from the root
from advisor.model.report import Report  # noqa: E402
from advisor.render.registry import Request, draw  # noqa: E402
from tests.render_samples import SAMPLES, crowded  # noqa: E402

FIXTURES = ("simulated-input-bound-v100", "simulated-ranks-slow-rank-a100", "tensorflow-cpu-serial-map")
LOADS = 5
PAINT = """() => new Promise(done => {
  const told = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
  const look = () => told() === undefined ? setTimeout(look, 10) : done(told());
  look();
})"""


def pages() -> dict[str, Report]:
    """What is measured, by name."""
    of_fixtures = {name: check([str(ROOT / "fixtures" / name)]) for name in FIXTURES}
    made = {"64 ranks, 10,000 events": SAMPLES["large"], "200 findings": crowded(), "no run": SAMPLES["none"]}
    return of_fixtures | made | {path: check([path]) for path in sys.argv[1:]}


def first_paint_ms(browser: Browser, file: Path) -> float:
    """Median over several fresh contexts."""
    times: list[float] = []
    for _ in range(LOADS):
        context = browser.new_context(viewport={"width": 1100, "height": 800})
        page = context.new_page()
        page.goto(file.as_uri())
        times.append(page.evaluate(PAINT))
        context.close()
    return statistics.median(times)


def main() -> None:
    """One line per page."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        browser = started.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, report in pages().items():
            file = Path(folder) / "page.html"
            file.write_bytes(draw(Request(report), "html"))
            print(f"{name:34} {file.stat().st_size / 1e6:6.2f} MB  first paint {first_paint_ms(browser, file):5.0f} ms")
        browser.close()


if __name__ == "__main__":
    main()
