"""Pictures for the docs: reports of five fixtures, and a notebook's cell. Needs the extra `test`.

`python docs/screenshots.py` writes docs/img/<fixture>-<way>.png and docs/img/notebook.png.
"""

from __future__ import annotations

import json
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from advisor.engine import check
from advisor.render.registry import Request, draw

ROOT = Path(__file__).parents[1]
FIXTURES = (
    "simulated-input-bound-v100",
    "simulated-launch-bound-h100",
    "simulated-ranks-slow-rank-a100",
    "tensorflow-cpu-serial-map",
    "simulated-healthy-a100",
)
WAYS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1000, "height": 1300}},
    "dark": {"viewport": {"width": 1000, "height": 1300}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 1300}},
    "print": {"viewport": {"width": 794, "height": 1123}},  # A4
}
DRAWN = "() => [...document.querySelectorAll('.plot')].every(plot => plot.dataset.drawn)"


def picture(browser: Browser, page_file: Path, way: str, target: Path) -> None:
    """The upper part of the page, once everything is drawn."""
    context = browser.new_context(**WAYS[way])
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.wait_for_function(DRAWN)
    if way == "print":
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.evaluate("document.body.style.padding = '1.5cm'")  # the margin, which only paper has
    page.screenshot(path=target)
    context.close()


def cell(browser: Browser, target: Path) -> None:
    """The first cell of docs/notebook.ipynb with what it shows."""
    notebook = json.loads((ROOT / "docs/notebook.ipynb").read_text("utf-8"))
    first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    source, shown = "".join(first["source"]), "".join(first["outputs"][0]["data"]["text/html"])
    page = browser.new_page(viewport={"width": 900, "height": 100})
    page.set_content(
        f"<body style='font:14px system-ui'><pre style='background:#f5f5f5;padding:1em'>{escape(source)}</pre>{shown}"
    )
    page.screenshot(path=target, full_page=True)


def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        browser = started.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for fixture in FIXTURES:
            file = Path(folder) / "report.html"
            text = draw(Request(check([str(ROOT / "fixtures" / fixture)])), "html").decode()
            file.write_text(text.replace(f"{ROOT}/", ""), "utf-8")
            for way in WAYS:
                picture(browser, file, way, ROOT / "docs" / "img" / f"{fixture}-{way}.png")
        cell(browser, ROOT / "docs" / "img" / "notebook.png")
        browser.close()


if __name__ == "__main__":
    main()
