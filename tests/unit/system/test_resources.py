from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

from advisor.system import resources

ROOT = Path(__file__).parents[3]


def test_a_checkout_reads_its_own_files():
    if not (ROOT / "rules").is_dir() or (ROOT / "advisor" / "_data").is_dir():
        pytest.skip("not run in a checkout")
    assert resources.rules_folder() == ROOT / "rules"
    assert resources.reports_folder() == ROOT / "reports"


def test_a_wheel_reads_what_it_carries(tmp_path: Path):
    carried, module = (tmp_path / "advisor" / name for name in ("_data", "system/resources.py"))
    for folder in (carried, module.parent, tmp_path / "rules"):  # the last is somebody else's, beside the package
        folder.mkdir(parents=True)
    shutil.copy(resources.__file__, module)
    assert runpy.run_path(str(module))["rules_folder"]() == carried / "rules"
