from __future__ import annotations

from pathlib import Path

import pytest

from advisor.system import resources

ROOT = Path(__file__).parents[3]


def test_a_checkout_reads_its_own_files():
    if not (ROOT / "rules").is_dir() or (ROOT / "advisor" / "_data").is_dir():
        pytest.skip("not run in a checkout")
    assert resources.rules_folder() == ROOT / "rules"
    assert resources.reports_folder() == ROOT / "reports"


def test_a_wheel_reads_what_it_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    carried = tmp_path / "advisor" / "_data"
    carried.mkdir(parents=True)
    (tmp_path / "rules").mkdir()  # somebody else's, beside the installed package
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "advisor")
    assert resources.rules_folder() == carried / "rules"
