"""What happens once, before and after the part that repeats, changes no verdict and no saving of that part."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.model.report import Run
from tests import profiles
from tests.effort import soak

TRACES = Path(__file__).parents[3] / "shared" / "traces" / "kineto"
RECORDINGS = ("copies-pinned-a100", "llama-tp2-cold", "param-linear-2080ti", "particle-transformer-bs256-jit")
S = 1e6  # us
Event = dict[str, Any]
Change = Callable[[list[Event]], list[Event]]


def call(name: str, at: float, length: float, like: Event) -> Event:
    """A call of the runtime in the category and on the thread of another."""
    return {key: like[key] for key in ("ph", "cat", "pid", "tid")} | {"name": name, "ts": at, "dur": length, "args": {}}


def bounds(events: list[Event]) -> tuple[float, float]:
    timed = [event for event in events if event.get("ph") == "X" and "cat" in event]
    return min(float(e["ts"]) for e in timed), max(float(e["ts"]) + float(e["dur"]) for e in timed)


def launching(events: list[Event]) -> Event:
    """A call that the recording has, as a pattern for others."""
    return next(e for e in events if e.get("ph") == "X" and e.get("name") in {"cudaLaunchKernel", "cudaMemcpyAsync"})


def start_up(events: list[Event]) -> list[Event]:
    """10 s in front, in which CUDA starts."""
    return [call("cudaFree", bounds(events)[0] - 10.2 * S, 10 * S, launching(events)), *events]


def teardown(events: list[Event]) -> list[Event]:
    """5 s behind, in which memory is freed."""
    return [*events, *(call("cudaFree", bounds(events)[1] + n * S, S, launching(events)) for n in range(5))]


def helper(events: list[Event]) -> list[Event]:
    """A second thread with ranges, whose names count layers or are a loader's, all over the recording."""
    first, last = bounds(events)
    thread = launching(events) | {"cat": "user_annotation", "tid": 4242}
    part = (last - first) / 20
    names = (f"layer {n}" if n % 2 else f"[DALI][Executor] RunCPU {n}" for n in range(20))
    return [*events, *(call(name, first + n * part, 0.9 * part, thread) for n, name in enumerate(names))]


def repeating(run: Run) -> dict[str, Any]:
    """The verdict on the part that repeats: what each finding saves of it, and its accounting."""
    savings = {f.rule: (f.saving.low_ms, f.saving.high_ms) for f in run.findings if f.saving}
    parts = {part.part: part.share for part in run.accounting.parts} if run.accounting else {}
    return {"savings": savings, "parts": parts, "steps": run.source.steps.used}


def checked(events: list[Event], document: dict[str, Any], path: Path) -> Run:
    path.write_text(json.dumps(document | {"traceEvents": events}))
    (run,) = profiles.check(path).runs
    return run


@pytest.mark.parametrize("change", [start_up, teardown, helper])
@pytest.mark.parametrize("name", soak(RECORDINGS, unless=lambda name: name == "copies-pinned-a100"))
def test_what_happens_once_changes_nothing_of_what_repeats(name: str, change: Change, tmp_path: Path):
    if not (TRACES / name).exists():
        pytest.skip("../shared is not here")
    (file,) = (TRACES / name).glob("*.json*")
    document = json.loads(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes())
    events = document["traceEvents"]
    before = checked(events, document, tmp_path / "before.pt.trace.json")
    after = checked(change(events), document, tmp_path / "after.pt.trace.json")
    expected, found = repeating(before), repeating(after)
    assert found["steps"] == expected["steps"]
    assert found["parts"] == pytest.approx(expected["parts"], abs=1e-6)
    assert found["savings"].keys() == expected["savings"].keys()
    for rule, saving in expected["savings"].items():
        assert found["savings"][rule] == pytest.approx(saving, rel=1e-3), rule
