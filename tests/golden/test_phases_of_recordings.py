"""What happens once, before and after the part that repeats, changes no verdict and no saving of that part."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "fixtures" / "make"))

from simulator import styles

from advisor.model.report import Run
from tests import profiles
from tests.effort import every, soak

TRACES = Path(__file__).parents[3] / "shared" / "traces" / "kineto"
RECORDINGS = ("copies-pinned-a100", "llama-tp2-cold", "param-linear-2080ti", "particle-transformer-bs256-jit")
Change = Callable[[styles.Document], styles.Document | None]


def repeating(run: Run) -> dict[str, Any]:
    """The verdict on the part that repeats: what each finding saves of it, and its accounting."""
    savings = {f.rule: (f.saving.low_ms, f.saving.high_ms) for f in run.findings if f.saving}
    parts = {part.part: part.share for part in run.accounting.parts} if run.accounting else {}
    return {"savings": savings, "parts": parts, "steps": run.source.steps.used}


def checked(document: styles.Document, path: Path) -> Run:
    path.write_text(json.dumps(document))
    (run,) = profiles.check(path).runs
    return run


@pytest.mark.parametrize("change", every(3, [styles.start_up_in_front, styles.teardown_behind, styles.ranges_beside]))
@pytest.mark.parametrize("name", soak(RECORDINGS, unless=lambda name: name == "copies-pinned-a100"))
def test_what_happens_once_changes_nothing_of_what_repeats(name: str, change: Change, tmp_path: Path):
    if not (TRACES / name).exists():
        pytest.skip("../shared is not here")
    (file,) = (TRACES / name).glob("*.json*")
    document = json.loads(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes())
    changed = change(document)
    assert changed is not None
    before, after = (checked(each, tmp_path / f"{n}.pt.trace.json") for n, each in enumerate((document, changed)))
    expected, found = repeating(before), repeating(after)
    assert found["steps"] == expected["steps"]
    assert found["parts"] == pytest.approx(expected["parts"], abs=1e-6)
    assert found["savings"].keys() == expected["savings"].keys()
    for rule, saving in expected["savings"].items():
        assert found["savings"][rule] == pytest.approx(saving, rel=1e-3), rule
