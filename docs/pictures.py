"""The pictures of docs/img: a run, ranks, an Nsight profile, a comparison, a fleet's week and a comment, each twice.

`python docs/pictures.py` takes them and notes a digest of each page; `--check` names the pages that have changed since.
Needs the extra `test` and Chromium.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import cmarkgfm
from cmarkgfm.cmark import Options as Markdown
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "fixtures/make")]

from simulator import nsys  # noqa: E402 - found from the root
from simulator.faults import FAULTS  # noqa: E402
from simulator.gpus import GPUS  # noqa: E402
from simulator.trace import simulate  # noqa: E402

from advisor import __version__  # noqa: E402
from advisor.config import Fleet  # noqa: E402
from advisor.engine import check, compare  # noqa: E402
from advisor.fleet.store import Store  # noqa: E402
from advisor.fleet.weekly import weekly  # noqa: E402
from advisor.model.comparison import Comparison  # noqa: E402
from advisor.model.report import Report  # noqa: E402
from advisor.model.week import Week  # noqa: E402
from advisor.render.registry import Request, draw  # noqa: E402
from tests.fleet import finding_row, run_row, stored  # noqa: E402

IMAGES = ROOT / "docs/img"
DIGESTS = IMAGES / "pictures.json"
BEFORE, AFTER = "fixtures/tutorial/before", "fixtures/tutorial/after"
WAYS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1400, "height": 1300}},
    "dark": {"viewport": {"width": 1400, "height": 1300}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 1300}},
}
SHEET = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><style>
body { max-width: 860px; margin: 2rem auto; padding: 0 1rem; font: 14px/1.5 system-ui; overflow-wrap: break-word; }
table { border-collapse: collapse; } th, td { border: 1px solid #8884; padding: 6px 13px; }
pre { background: #8882; padding: 1rem; border-radius: 6px; overflow: auto; }</style>"""


# ------------------------------------------------------------------------------------------------------------- pages


def _html(value: Report | Comparison | Week) -> str:
    return draw(Request(value, links="fleet-runs"), "html").decode()


def _nsys() -> str:
    """The launch-bound job as Nsight Systems exports it."""
    job, _ = FAULTS["launch-bound"].jobs(GPUS["h100"], 0)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        nsys.write(json.loads(simulate(job, 0, 8).kineto()), Path("rank0.sqlite"))
        return _html(check(["rank0.sqlite"]))


JOBS = (  # job, team, owner, GPU-hours of a run, busy share, what it waits for, rule, title, fix, saving
    ("resnet50-nightly", "vision", "ann", 96.0, 0.55, "input", "input-bound", 0.25, 0.4),
    ("detr-sweep", "vision", "bob", 40.0, 0.62, "input", "single-process-data-loader", 0.2, 0.35),
    ("asr-ctc", "speech", "cho", 60.0, 0.75, "launch_gap", "launch-bound", 0.05, 0.15),
    ("llm-7b-sft", "language", "dee", 400.0, 0.82, "collective", "communication-exposed", 0.02, 0.12),
    ("llm-eval", "language", "eve", 20.0, 0.92, "host_busy", "", 0.0, 0.0),
)
RULES = {
    "input-bound": ("The job waits for the data loader", "Use more DataLoader workers: `num_workers=8`."),
    "single-process-data-loader": (
        "The main process loads its batches itself",
        "Use DataLoader workers: `num_workers=4`.",
    ),
    "launch-bound": ("The GPU waits for the host to launch work", "Compile the model: `torch.compile(model)`."),
    "communication-exposed": (
        "Communication could overlap more with computation",
        "Let DistributedDataParallel reduce the gradients during the backward pass.",
    ),
}
WEEKS = ("2026-W44", "2026-W45", "2026-W46", "2026-W47")


def _fleet() -> str:
    """Four weeks of five jobs; one loader is mended in the last."""
    runs = [run for week in WEEKS for number in range(5) for run in _runs(week, number)]
    with tempfile.TemporaryDirectory() as folder:
        store = stored(Store(folder), runs=[run for run, _ in runs], findings=[found for _, found in runs if found])
        return _html(weekly(store, Fleet(prices={"a100": 1.4}, gpu_hours_per_week=4000)))


def _runs(week: str, number: int) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    for job, team, owner, hours, busy, part, rule, low, high in JOBS:
        is_mended = job == "detr-sweep" and week == WEEKS[-1]
        name, wait = f"{job}-{week}-{number}", part
        if is_mended:
            busy, wait, rule, low, high = 0.9, "host_busy", "", 0.0, 0.0  # noqa: PLW2901 - as it is after the fix
        yield (
            run_row(
                *(name,),
                week=week,
                job=job,
                team=team,
                owner=owner,
                gpu_hours=hours,
                busy_share=busy,
                low_share=low,
                high_share=high,
                expected_share=(low + high) / 2,
                step_ms=(140.0 if is_mended else 200.0) + number / 10,
                passed=[*{*RULES} - {rule}],
                breakdown=json.dumps({"compute": busy, wait: 1 - busy}),
                verdict=RULES[rule][0] if rule else "No problem found",
            ),
            finding_row(name, rule, low, high, week=week, title=RULES[rule][0], fix=RULES[rule][1]) if rule else None,
        )


def _comment() -> str:
    """The comment on a pull request, as a code host shows it."""
    comparison = compare([AFTER], [BEFORE])
    markdown = draw(Request(comparison), "markdown").decode()
    html = str(cmarkgfm.github_flavored_markdown_to_html(markdown, options=Markdown.CMARK_OPT_UNSAFE))
    return SHEET + html.replace("\N{LARGE RED CIRCLE}", "<span style='color: #d1242f'>\N{BLACK CIRCLE}</span>")


PAGES: dict[str, tuple[Callable[[], str], tuple[str, str]]] = {
    "run": (lambda: _html(check([BEFORE])), ("light", "dark")),
    "ranks": (lambda: _html(check(["fixtures/simulated-ranks-slow-rank-a100"])), ("light", "phone")),
    "nsys": (_nsys, ("light", "dark")),
    "comparison": (lambda: _html(compare([BEFORE], [AFTER])), ("light", "phone")),
    "fleet": (_fleet, ("light", "phone")),
    "comment": (_comment, ("light", "dark")),
}


def pages() -> dict[str, str]:
    """Every page that is on a picture, by its name."""
    with chdir(ROOT):
        return {name: page() for name, (page, _) in PAGES.items()}


def digest(page: str) -> str:
    """What tells one state of a page from another: all of it but the version."""
    text = page.replace(__version__, "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---------------------------------------------------------------------------------------------------------- pictures


def picture(browser: Browser, file: Path, way: str, target: Path) -> None:
    """The upper part of the page, once everything is drawn."""
    context = browser.new_context(**WAYS[way])
    page = context.new_page()
    page.goto(file.as_uri())
    size = WAYS[way]["viewport"]
    bottom = page.evaluate("document.body.getBoundingClientRect().bottom + 32")
    page.screenshot(path=target, clip={"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], bottom)})
    context.close()


def cell(browser: Browser, target: Path) -> None:
    """The first cell of docs/notebook.ipynb with what it shows."""
    notebook = json.loads((ROOT / "docs/notebook.ipynb").read_text("utf-8"))
    first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    source, output = "".join(first["source"]), "".join(first["outputs"][0]["data"]["text/html"])
    page = browser.new_page(viewport={"width": 900, "height": 100})
    page.set_content(
        f"<body style='font:14px system-ui'><pre style='background:#f5f5f5;padding:1em'>{escape(source)}</pre>{output}"
    )
    page.screenshot(path=target, full_page=True)


def main() -> None:
    """Take all pictures, or with `--check` say which are out of date."""
    texts = pages()
    digests = {name: digest(text) for name, text in texts.items()}
    if "--check" in sys.argv[1:]:
        stale = [name for name, then in json.loads(DIGESTS.read_text("utf-8")).items() if digests.get(name) != then]
        sys.exit(f"out of date, run `make pictures`: {', '.join(stale)}" if stale else None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        browser = started.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        take = partial(picture, browser)
        for name, text in texts.items():
            file = Path(folder) / f"{name}.html"
            file.write_text(text, "utf-8")
            for way in PAGES[name][1]:
                take(file, way, IMAGES / f"{name}-{way}.png")
        cell(browser, IMAGES / "notebook.png")
        browser.close()
    DIGESTS.write_text(json.dumps(digests, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
