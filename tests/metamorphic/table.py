"""Verdicts of recordings that were changed without changing the job, against those of the recordings themselves."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import advisor
from advisor.analysis.device.selection import select_steps
from advisor.errors import AdvisorError
from advisor.metrics import measure
from advisor.model.finding import Finding
from advisor.model.report import Run
from advisor.rules.evaluation import CERTAINTY, measured_run
from advisor.rules.judge import judge
from advisor.rules.rule_file import selected
from advisor.runs.summary import summarise
from tests.metamorphic import kineto_changes, nsys_changes, xplane_changes
from tests.profiles import book

ROOT = Path(__file__).parents[2]
FIXTURES: Final = ROOT / "fixtures"
SHARED: Final = ROOT.parent / "shared/traces"
PAGE = ROOT / "docs/same-job.md"
FORMATS: Final[dict[str, ModuleType]] = {"kineto": kineto_changes, "nsys": nsys_changes, "xplane": xplane_changes}
"""What changes the recordings of each format: `load`, `read`, `save`, and the changes by what they allow."""
PROFILERS: Final = {
    "kineto": "PyTorch's profiler",
    "nsys": "Nsight Systems",
    "xplane": "JAX's and TensorFlow's profiler",
}
PEER: Final = 0.75
OPEN: Final = ("low-gpu-utilisation", "host-stalls", "step-outliers", "kernels-not-recorded")
"""Rules that name a loss and leave its cause open."""


class Verdict(NamedTuple):
    """The first finding that is not small, or none; what else was found, and what could not be judged.

    `peers` are the findings that are worth about as much as the first, and those of unknown worth that stand among
    them: which of them leads is chance. `places` are when what the first is about begins and ends.
    """

    first: str
    peers: frozenset[str] = frozenset()
    findings: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    certainty: float = 0.0
    places: tuple[tuple[int, int], ...] = ()

    def is_part_of(self, whole: Verdict) -> bool:
        """Whether it is about what happens in most places of another, and less sure: it does not know what for."""
        within = [any(a <= start and end <= b for a, b in whole.places) for start, end in self.places]
        return 2 * sum(within) > len(within) and self.certainty < whole.certainty


def recordings(form: str) -> Mapping[str, Path]:
    """Every recording of one worker in this format, by name: the fixtures, and the public ones where they are there.

    Simulated jobs of one worker are also written as the other profilers would have recorded them.
    """
    folders = {folder.name: folder for folder in (*FIXTURES.glob("*"), *SHARED.glob("kineto/*"))}
    files = {name: sorted(folder.glob("*.json*")) for name, folder in sorted(folders.items())}
    documents = {name: each[0] for name, each in files.items() if len(each) == 1}
    simulated = {f"{name}, simulated": file for name, file in documents.items() if name.startswith("simulated-")}
    return {
        "kineto": documents,
        "nsys": simulated | {file.stem: file for file in sorted(SHARED.glob("nsys/*.sqlite"))},
        "xplane": simulated | _spaces(),
    }[form]


def _spaces() -> dict[str, Path]:
    roots = (FIXTURES, SHARED / "xplane")
    return {file.relative_to(root).parts[0]: file for root in roots for file in sorted(root.glob("*/**/*.xplane.pb"))}


def changes(form: str) -> Mapping[str, Callable[[Any], Any]]:
    """The changes of a format by name, of both kinds."""
    module = FORMATS[form]
    return {**module.KEPT, **module.WITHHELD}


@cache
def source(form: str, name: str) -> Any:
    """A recording as the changes take it."""
    return FORMATS[form].load(recordings(form)[name])


@cache
def original(form: str, name: str) -> Verdict:
    return verdict(form, [source(form, name)])


def verdict(form: str, sources: list[Any]) -> Verdict:
    """What a check says of one file, or of a folder with several."""
    return _of(_alone(form, sources[0]) if len(sources) == 1 else _together(form, sources))


def _alone(form: str, source: Any) -> Run | None:
    try:
        profile = FORMATS[form].read(source)
    except AdvisorError:
        return None
    measurements = measure(select_steps(profile), selected(book().values()))
    return summarise("job", "job", measurements, judge(measured_run(measurements), book(), {}))


def savings(form: str, source: Any) -> dict[str, tuple[float, float] | None]:
    """What each finding on one file saves, low and high, in ms; None where that is not known."""
    run = _alone(form, source)
    return {f.key: (f.saving.low_ms, f.saving.high_ms) if f.saving else None for f in (run.findings if run else ())}


def listed(form: str, source: Any) -> dict[str, tuple[float, float]]:
    """What each action on the first screen of one file saves, low and high, in ms, where that is known, by finding."""
    run = _alone(form, source)
    known = [(of.findings[0], of.low_ms, of.high_ms) for of in (run.listed if run else ())]
    return {key: (low, high) for key, low, high in known if low is not None and high is not None}


def _together(form: str, sources: list[Any]) -> Run | None:
    with tempfile.TemporaryDirectory() as folder:
        for number, each in enumerate(sources):
            FORMATS[form].save(each, Path(folder), number)
        try:
            return advisor.check([folder]).runs[0]
        except AdvisorError:
            return None


def _of(run: Run | None) -> Verdict:
    if run is None:
        return Verdict("unreadable")
    # what happens once is told beside the verdict on the part that repeats
    weighty = [finding for finding in run.findings if finding.severity != "low" and finding.rule != "one-time-work"]
    every = {f.rule for f in run.findings} | {s.rule for f in run.findings for s in f.symptoms}
    nothing = "too little" if run.outcome.code == "too_little" else "nothing"
    unknown = frozenset(n.rule for n in run.not_evaluable)
    if not weighty:
        return Verdict(nothing, findings=frozenset(every), unknown=unknown)
    alike = peers({finding.rule: _worth(finding) for finding in weighty})
    places = tuple((place.start_ns, place.start_ns + place.dur_ns) for place in weighty[0].where)
    return Verdict(weighty[0].rule, alike, frozenset(every), unknown, CERTAINTY[weighty[0].confidence], places)


def peers(worth: Mapping[str, float]) -> frozenset[str]:
    """Which are worth about as much as the first, and which of unknown worth stand among those."""
    first, *_ = worth.values()
    alike = {rule for rule, ms in worth.items() if ms and ms >= PEER * first}
    among = [*worth][: max(place for place, rule in enumerate(worth) if rule in alike)] if first else []
    return frozenset(alike | {rule for rule in among if not worth[rule]})


def _worth(finding: Finding) -> float:
    """The expected saving, by which findings are ordered; 0 where none is claimed."""
    saving = finding.saving
    return CERTAINTY[finding.confidence] * (saving.low_ms + saving.high_ms) / 2 if saving else 0.0


def outcome(form: str, name: str, change: str) -> str:
    """`kept`, `withheld`, `not applicable`, or what the verdict became."""
    changed = changes(form)[change](source(form, name))
    if changed is None:
        return "not applicable"
    before, after = original(form, name), verdict(form, changed if isinstance(changed, list) else [changed])
    if after.first in {before.first, *before.peers} or (before.first, after.first) == ("too little", "nothing"):
        return "kept"  # neither of the last two is a finding
    silent = after.unknown - before.unknown or after.first in {"too little", "unreadable", *OPEN}
    weaker = after.first in before.findings | {"nothing", "too little", "unreadable", *OPEN} or after.is_part_of(before)
    stronger = before.first in OPEN and after.first in before.unknown  # the recording itself withholds it
    return "withheld" if (silent and weaker) or stronger else f"{before.first} became {after.first}"


HEAD: Final = """# The same job, recorded otherwise

A recording says something about a job, and something about how it was recorded. Only the first may decide the verdict.
These tests change a recording without changing the job, and compare the first finding that is not small.

- Under the changes of the first kind the verdict must stay.
- The changes of the second kind take something away. The verdict must stay, or be withheld with the reason.
- Steps are cut, and a file is split, only where four steps remain in each file. Each half is a run of its own.
- Two findings whose savings differ by less than a quarter may change places, and one without a saving between them may
  lead.
- A verdict is withheld, too, where a less sure one names what happens in the same places: what a loader computes while
  no range says that it loads.
- Simulated jobs are also written as Nsight Systems and JAX would have recorded them, and changed then.

`make test` makes a sixth of the changes, `make soak` all. `python -m tests.metamorphic.table` writes this page."""


def page(most_bytes: float) -> str:
    """The page of the docs, over the recordings whose files are no larger."""
    return "\n\n".join([HEAD, *(part for form in FORMATS for part in _of_format(form, most_bytes))]) + "\n"


def _of_format(form: str, most_bytes: float) -> list[str]:
    names = [name for name, file in recordings(form).items() if file.stat().st_size <= most_bytes]
    parts = [f"## Recordings of {PROFILERS[form]}: {len(names)}"]
    for title, of_kind in (("verdict must stay", FORMATS[form].KEPT), ("stay, or be withheld", FORMATS[form].WITHHELD)):
        rows = [f"| {title} | stays | withheld | another | does not apply |", "| --- | ---: | ---: | ---: | ---: |"]
        for change in of_kind:
            what = [outcome(form, name, change) for name in names]
            counts = [what.count(kind) for kind in ("kept", "withheld", "not applicable")]
            rows.append(f"| {change} | {counts[0]} | {counts[1]} | {len(what) - sum(counts)} | {counts[2]} |")
        parts.append("\n".join(rows))
    return parts


if __name__ == "__main__":
    PAGE.write_text(page(float(sys.argv[1]) if len(sys.argv) > 1 else float("inf")), "utf-8")
    sys.stdout.write(PAGE.read_text("utf-8"))
