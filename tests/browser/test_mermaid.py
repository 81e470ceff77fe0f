"""The charts in comments, drawn by Mermaid itself, as GitHub and GitLab do."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from advisor.render import markdown as checked
from advisor.render.compared import markdown as compared
from tests.comparisons import slower
from tests.render_samples import SAMPLES

pytestmark = pytest.mark.browser

PACKAGE = "mermaid@11.12.0"
DRAW = "async chart => { mermaid.initialize({startOnLoad: false}); return (await mermaid.render('chart', chart)).svg }"


@pytest.fixture(scope="module")
def script() -> Path:
    """Mermaid as its package bundles it, kept between runs."""
    npm = shutil.which("npm")
    if not npm:
        pytest.skip(f"npm is not installed: the charts are drawn by {PACKAGE}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-advisor-tests"
    kept = cache / f"mermaid-{hashlib.sha256(PACKAGE.encode()).hexdigest()[:12]}.js"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        packed = [npm, "pack", PACKAGE, "--silent", "--pack-destination", str(cache)]
        done = subprocess.run(packed, check=False, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"npm cannot fetch {PACKAGE}: {done.stderr.strip()[-200:]}")
        archive = cache / done.stdout.split()[-1]
        with tarfile.open(archive) as package:
            bundled = package.extractfile("package/dist/mermaid.min.js")
            assert bundled is not None
            partial = kept.with_suffix(f".{os.getpid()}")
            partial.write_bytes(bundled.read())
        partial.replace(kept)
        archive.unlink()
    return kept


CHARTS = {
    "comparison": (compared.render(slower()), ["base", "head", "compute", "input"]),
    "report": (checked.render(SAMPLES["resnet"]), ["step", "compute", "input"]),
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
