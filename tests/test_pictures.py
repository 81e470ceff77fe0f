"""The pictures of the docs: each page on them is as it was when they were taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.soak  # draws six pages; the words of any rule on them may have changed
def test_no_page_on_a_picture_has_changed_since():
    pytest.importorskip("playwright", reason="playwright is not installed")
    pytest.importorskip("cmarkgfm", reason="cmarkgfm is not installed")
    command = [sys.executable, ROOT / "docs/pictures.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_twelve_pictures_are_there_and_in_the_gallery():
    gallery = (ROOT / "docs/gallery.md").read_text("utf-8")
    files = {path.stem for path in (ROOT / "docs/img").glob("*-*.png")}
    assert len(files) == 12
    assert {name for name in files if f"(img/{name}.png)" not in gallery} == set()
