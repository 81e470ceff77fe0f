"""Builds docs/ as a site into site/: the pages, the README as their first, and sample reports from the fixtures."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

from advisor.engine import check
from advisor.render.registry import Request, draw

ROOT = Path(__file__).parents[1]
SAMPLES = {
    "simulated-input-bound-v100": "The GPU waits for the data loader",
    "simulated-launch-bound-h100": "The GPU waits for the host to launch work",
    "simulated-sync-a100": "The host keeps waiting for the GPU",
    "simulated-two-devices": "Two devices",
    "simulated-healthy-a100": "Nothing to mend",
}

MOVED = {  # pages of earlier versions, by what says the same now
    "rules/time-between-steps.html": "host-stalls.html",
    "rules/tensor-cores-unused.html": "amp-unused.html",
}


def main() -> None:
    """Write the site; the argument is the folder, `site` by default."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site")
    with tempfile.TemporaryDirectory() as scratch:
        pages = Path(scratch) / "docs"
        shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        (pages / "index.md").write_text(_index((ROOT / "README.md").read_text("utf-8")), "utf-8")
        _samples(pages / "samples")
        _moved(pages)
        build(load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(target)))


def _index(readme: str) -> str:
    """The README as a page of docs/: its links into docs/ lead beside it, those to files out of it are plain text."""
    inside = re.sub(r"\]\(docs/", "](", readme)
    return re.sub(r"\[([^\]]+)\]\((?!https?://|#)(?:\.\./)*(?:CHANGELOG\.md|CONTRIBUTING\.md|LICENSE)\)", r"\1", inside)


def _moved(pages: Path) -> None:
    """Pages that only lead on, so that old links resolve."""
    for old, new in MOVED.items():
        head = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={new}">'
        (pages / old).write_text(f'{head}<a href="{new}">{new}</a>\n', "utf-8")


def _samples(folder: Path) -> None:
    folder.mkdir()
    lines = []
    for fixture, what in SAMPLES.items():
        page = draw(Request(check([str(ROOT / "fixtures" / fixture)])), "html").decode()
        (folder / f"{fixture}.html").write_text(page.replace(str(ROOT) + "/", ""), "utf-8")
        lines.append(f"- [{what}]({fixture}.html), from `fixtures/{fixture}`")
    text = "# Sample reports\n\nEach is one file, as `advisor check -o report.html` writes it.\n\n"
    (folder / "index.md").write_text(text + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
