"""Pages in Chromium, each loaded once for all tests that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}: apt-get install chromium"),
]
UNFOLD = """() => {
  window.folded = [...document.querySelectorAll("details:not([open])")];
  for (const part of window.folded) part.open = true;
}"""
FOLD = "for (const part of window.folded) part.open = false"
TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
SCROLL = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight) {
    scrollTo(0, y);
    await new Promise(done => setTimeout(done, 30));
  }
}"""
SERIOUS = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter(v => ["serious", "critical"].includes(v.impact))
  .map(v => `${v.id}: ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))}`)"""


class Visit:
    """A page as a reader has it open, with all that it asked for and complained of."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.route("**/*", lambda route: route.continue_() if route.request.url in url else route.abort())
        page.goto(url)

    @property
    def trouble(self) -> list[str]:
        """What the page complained of, and what it asked for beyond itself."""
        return self.complaints + self.requests[1:]

    def repainted(self) -> None:
        """Waits until what was due to be drawn is drawn."""
        self.page.evaluate(TWO_FRAMES)

    def overflow(self) -> int:
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def serious(self) -> list[str]:
        """What hinders a reader with a screen reader or weak eyes."""
        axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
        self.page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text("utf-8"))
        return self.page.evaluate(SERIOUS)

    @contextmanager
    def unfolded(self) -> Iterator[None]:
        """All details open for a while."""
        self.page.evaluate(UNFOLD)
        yield
        self.page.evaluate(FOLD)

    @contextmanager
    def width(self, pixels: int) -> Iterator[None]:
        """The window as wide for a while."""
        size = self.page.viewport_size
        self.page.set_viewport_size({**size, "width": pixels})
        yield
        self.page.set_viewport_size(size)


class Visits:
    """The pages that are open, at most so many; the one opened longest ago closes first.

    They share a profile of the browser, as the tabs of one reader do: each profile starts processes of its own.
    """

    def __init__(self, browser: Any, folder: Path, limit: int = 12) -> None:
        self.browser, self.folder, self.limit = browser, folder, limit
        self.profiles: dict[object, Any] = {}
        self.visits: dict[object, Visit] = {}

    def __call__(
        self, html: str, *, own: bool = False, at: str = "", width: int = 1100, scheme: str = "light", **options: Any
    ) -> Visit:
        """The page of this HTML: an open one, or the test's own, in a profile of its own, where it leaves traces."""
        profile = object() if own else tuple(sorted(options.items()))
        key = (profile, html, at)
        if key not in self.visits:
            if len(self.visits) == self.limit:
                self.visits.pop(next(iter(self.visits))).page.close()
            file = self.folder / f"{hash(html)}.html"
            file.write_text(html, "utf-8")
            if profile not in self.profiles:
                self.profiles[profile] = self.browser.new_context(**options)
            page = _sized(self.profiles[profile].new_page(), width, scheme)
            self.visits[key] = Visit(page, file.as_uri() + at)
        _sized(self.visits[key].page, width, scheme)
        return self.visits[key]


def _sized(page: Any, width: int, scheme: str) -> Any:
    """The page in a window of this width, in light or dark, before all others: what lies behind is not repainted."""
    page.bring_to_front()
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    return page
