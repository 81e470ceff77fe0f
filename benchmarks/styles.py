"""How the findings hold when jobs are recorded in other ways; writes docs/recording-styles.md.

Job and style are drawn independently. Whether a style lets a fault be seen follows from what the style removes and
what the fault needs (`fixtures/make/simulator`), not from what the advisor says.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from scorecard import Held, Known, Score, confidence_table, known, score_of, scored, share
from simulator import FAULTS, FLEET_FAULTS, JOB_STYLES, SERVING_FAULTS, STYLES, Fault, FleetFault, ServingFault, case
from simulator import nsys as export
from simulator import xplane as xspace
from simulator.styles import Document, Evidence

import advisor
from advisor.analysis.device.selection import select_steps
from advisor.errors import AdvisorError
from advisor.inputs.readers import kineto, nsys, xplane
from advisor.model.profile import Profile

PAGE: Final = Path(__file__).parents[1] / "docs" / "recording-styles.md"
SYMPTOMS: Final = (
    *("low-gpu-utilisation", "host-stalls", "step-outliers", "kernels-not-recorded"),
    *("communication-bound", "collective-waiting"),
)
"""Rules that name a loss and leave its cause open."""
STEPS: Final = 10
STYLES_PER_FOLDER: Final = len(STYLES)  # so many jobs in styles of one process for each in a folder with another
CELLS: Final = 400
SERVER_STEPS: Final = 30
SEEDS: Final = 20
RANKS: Final = {"v100": 8}
"""Recorded ranks; of other GPUs four: of boards with V100s it is not known which four of the eight they are."""
LEAST_RANKS: Final = 4
HALF: Final = 0.5  # of the jobs of many ranks are recorded in a style of one process
EVERY: Final[dict[str, Fault | FleetFault | ServingFault]] = {**FAULTS, **FLEET_FAULTS, **SERVING_FAULTS}
FORMATS: Final[dict[str, frozenset[Evidence]]] = {
    "kineto": frozenset(),
    **dict.fromkeys(("jax", "tensorflow"), frozenset[Evidence]({"shapes", "stacks", "memory", "ops", "ranks"})),
    "nsys": frozenset({"annotations", "shapes", "stacks", "sizes", "memory", "ops", "ranks"}),
}
"""What each profiler records of a PyTorch program, by what it lacks; a file of Nsight does not say which rank it is."""

XPLANE: Final = {
    *("none", "input-bound", "frequent-synchronisation", "pageable-copies", "copy-not-overlapped"),
    *("elementwise-chains", "few-blocks"),
}
"""The faults of one process that a program of JAX or TensorFlow can have too, under the same names of rules."""

FOLDER: Final = "another job in the same folder"
"""A style that is scored as a folder is checked: beside the job's files lies that of a healthy one."""

Task = tuple[str, str, str, str, int]  # fault, style, format, GPU, seed


@dataclass(frozen=True)
class Cell:
    """What was said of one job in one style.

    Attributes:
        is_visible: Whether a recording in this style can show the fault.
        first: The first finding that is not small, `nothing` where there is none.
        is_right: Whether it names the fault, or is nothing where there is none.
        is_wrong: Whether it names a cause that is not there.
        holds: Whether the interval holds the truth; None where none is claimed.
        confidence: Of the finding that claims it.
        width: Of the interval, as a share of the step.
    """

    fault: str
    style: str
    format: str
    gpu: str
    seed: int
    is_visible: bool
    first: str
    is_right: bool = False
    is_wrong: bool = False
    holds: bool | None = None
    confidence: str = ""
    width: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Whether it names a cause that is not there, or not the one that can be seen."""
        return self.is_wrong or (self.is_visible and not self.is_right)


def main() -> None:
    """Draw jobs and styles, score each, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=CELLS, help="jobs, each in one style")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="servers, and jobs of many ranks, per fault")
    parser.add_argument("--fault", choices=EVERY, nargs="+", help="of these faults only")
    parser.add_argument("--style", choices=[*STYLES, *JOB_STYLES, FOLDER], help="in this style only")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--into", type=Path, help="file that keeps the cells: a later call goes on, and shows them all")
    options = parser.parse_args()
    tasks = [
        *drawn(options.cells, options.seed, options.fault, options.style),
        *repeated(options.seeds, options.fault, options.style),
        *(() if options.style else drawn(options.cells // STYLES_PER_FOLDER, options.seed + 1, options.fault, FOLDER)),
    ]
    cells = resumed(tasks, options.into, options.processes) if options.into else scores(tasks, options.processes)
    page = (
        "\n\n".join(
            [HEAD.format(number=len(cells), symptoms=", ".join(f"`{rule}`" for rule in SYMPTOMS)), *tables(cells)]
        )
        + "\n"
    )
    if options.into or not (options.fault or options.style or options.cells < CELLS or options.seeds < SEEDS):
        PAGE.write_text(page, "utf-8")
    print(page)


def scores(tasks: Sequence[Task], processes: int) -> list[Cell]:
    """The cells of these tasks, several at a time."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return [cell for cell in pool.map(score, *zip(*tasks, strict=True)) if cell]


def resumed(tasks: Sequence[Task], file: Path, processes: int) -> list[Cell]:
    """All cells in the file, to which those of the tasks that it lacks are added one by one."""
    done = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    known = {tuple(task) for task, _ in done}
    rest = [task for task in tasks if task not in known]
    with file.open("a", encoding="utf-8") as out, ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for task, cell in zip(rest, pool.map(score, *zip(*rest, strict=True)), strict=True):
            done.append((task, asdict(cell) if cell else None))
            out.write(json.dumps(done[-1]) + "\n")
            out.flush()
    return [Cell(**cell) for _, cell in done if cell]


def drawn(cells: int, seed: int, faults: Sequence[str] | None, style: str | None) -> Iterator[Task]:
    """Fault, style, format, GPU and seed of each job of one process, all independent."""
    draw = random.Random(seed)  # noqa: S311 - seeded jobs need no cryptography
    names = [name for name in faults or FAULTS if name in FAULTS]
    for _ in range(cells if names else 0):
        name, how = draw.choice(names), style or draw.choice(list(STYLES))
        forms = ["kineto"] if how == FOLDER else list(FORMATS) if name in XPLANE else ["kineto", "nsys"]
        yield name, how, draw.choice(forms), draw.choice(FAULTS[name].gpus), draw.randrange(1 << 20)


def repeated(seeds: int, faults: Sequence[str] | None, style: str | None) -> Iterator[Task]:
    """The same of each fault of a server and of a job of many ranks, with so many seeds."""
    for name in faults or [*SERVING_FAULTS, *FLEET_FAULTS]:
        for seed in range(seeds if name not in FAULTS else 0):
            draw = random.Random(f"{name} {seed}")  # noqa: S311 - as above
            how = style or draw.choice(list(STYLES if name in SERVING_FAULTS or draw.random() < HALF else JOB_STYLES))
            form = draw.choice(["kineto", "nsys"]) if how in STYLES else "kineto"  # Nsight's files tell no ranks
            yield name, how, form, draw.choice(EVERY[name].gpus), seed


def score(fault: str, style: str, form: str, gpu: str, seed: int) -> Cell | None:
    """One job in one style; None where the style does not apply to it."""
    made = case(fault, gpu, seed, SERVER_STEPS if fault in SERVING_FAULTS else STEPS, RANKS.get(gpu, LEAST_RANKS))
    files = [(name, json.loads(text)) for name, text in made.files()]
    documents, removes = recorded([document for _, document in files], style)
    if None in documents:
        return None
    is_visible = (removes | FORMATS[form]).isdisjoint(EVERY[fault].needs)
    names = [name for name, _ in files]
    try:
        profiles = [read(document, name, form) for document, name in zip(documents, names, strict=False) if document]
    except AdvisorError:
        return Cell(fault, style, form, gpu, seed, is_visible, first="unreadable")
    job = known(fault, fault, in_units_of(profiles[0], made.facts))
    result = beside_another(job, dict(made.files()), gpu, seed) if style == FOLDER else scored(job, profiles)
    first = next((finding.rule for finding in result.findings if finding.severity != "low"), "nothing")
    causes = {*result.job.first, *EVERY[fault].fires, *EVERY[fault].may, *SYMPTOMS, "nothing"}
    wrong, ends = first not in causes, result.interval or (0.0, 0.0)
    sure, width = result.finding.confidence if result.finding else "", (ends[1] - ends[0]) / result.job.step_ms
    return Cell(fault, style, form, gpu, seed, is_visible, first, result.is_first, wrong, result.holds, sure, width)


def beside_another(job: Known, files: Mapping[str, bytes], gpu: str, seed: int) -> Score:
    """What is said of the job where the folder also holds the file of a healthy one, of which nothing may be said."""
    other = case("none", gpu if gpu in FAULTS["none"].gpus else FAULTS["none"].gpus[0], seed + 1, STEPS)
    (healthy,) = (text for _, text in other.files())
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**files, f"z{seed}.pt.trace.json": healthy}.items():
            (Path(folder) / name).write_bytes(text)
        own, beside = advisor.check([folder]).runs
    result = score_of(job, own)
    return result if all(f.severity == "low" for f in beside.findings) else replace(result, findings=beside.findings)


def recorded(documents: Sequence[Document], style: str) -> tuple[Sequence[Document | None], frozenset[Evidence]]:
    """What this style makes of the documents of a job's processes, and what it removes.

    Of several, a style of one process is that of the first.
    """
    is_job = len(documents) > 1
    if style == FOLDER:
        return documents, frozenset()
    if style in STYLES:
        return [STYLES[style].change(documents[0])], STYLES[style].removes | ({"ranks"} if is_job else set())
    return JOB_STYLES[style].change(documents), JOB_STYLES[style].removes if is_job else frozenset()


def in_units_of(profile: Profile, facts: dict[str, Any]) -> dict[str, Any]:
    """The truth in what the report counts in: where nothing shows steps, the recording is one."""
    view, steps = select_steps(profile).views[0], SERVER_STEPS if facts["fault"] in SERVING_FAULTS else STEPS
    if view.has_marks or view.steps.height > 1:
        return facts
    truth = facts["truth"]
    return facts | {"truth": truth | {key: ms * steps for key, ms in truth.items() if key.endswith("_ms")}}


def read(document: Document, name: str, form: str) -> Profile:
    """The profile in this document, by way of this format.

    Raises:
        AdvisorError: it cannot be read.
    """
    if form == "kineto":
        return kineto.read(io.BytesIO(json.dumps(document).encode()), name)
    if form in {"jax", "tensorflow"}:
        return xplane.read(io.BytesIO(xspace.write(document, form)), "plugins/profile/run/host.xplane.pb")
    with tempfile.TemporaryDirectory() as folder:
        path = export.write(document, Path(folder) / "report.sqlite")
        return nsys.read(path, path.name)


HEAD: Final = """# The same faults, recorded in other ways

A fault is simulated. PyTorch's profiler or Nsight Systems records it, and the recording is changed as people's
recordings differ. Fault, style and format are drawn independently: {number} jobs. `fixtures/make/simulator` says what
each fault needs to be seen and what each style removes: from that follows whether a recording can show the fault. Where
it can, the fault must come first. Where it cannot, the report must name no cause that is not there. These rules name a
loss and leave its cause open; they count as no cause: {symptoms}. `make score` writes this page."""


def tables(cells: Sequence[Cell]) -> Iterator[str]:
    """The sums, the cells by style and by fault, and what went wrong."""
    yield "\n".join([*_head("cells"), _row("all", cells)])
    for by in ("format", "style", "fault"):
        names = sorted({getattr(cell, by) for cell in cells})
        yield f"## By {by}"
        yield "\n".join(
            [*_head(by), *(_row(name, [cell for cell in cells if getattr(cell, by) == name]) for name in names)]
        )
    yield "## By confidence"
    by_level: dict[str, list[Held]] = defaultdict(list)
    for cell in cells:
        if cell.is_visible and cell.holds is not None:
            by_level[cell.confidence].append(Held(cell.holds, cell.width))
    yield confidence_table("confidence", by_level)
    yield "## What went wrong"
    wrong = Counter(
        (c.fault, f"{c.format}, {c.style}", c.first) for c in cells if c.is_wrong or (c.is_visible and not c.is_right)
    )
    lines = [f"- {fault}, {style}: {first} ({n})" for (fault, style, first), n in sorted(wrong.items())]
    yield "\n".join(lines) or "Nothing."


def _head(by: str) -> list[str]:
    return [
        f"| {by} | visible | fault first | not visible | no cause named | a wrong cause | interval holds |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]


def _row(name: str, cells: Sequence[Cell]) -> str:
    visible, hidden = ([c for c in cells if c.is_visible is is_visible] for is_visible in (True, False))
    holds = [c.holds for c in visible if c.holds is not None]
    columns = (
        str(len(visible)),
        share(sum(c.is_right for c in visible), len(visible)),
        str(len(hidden)),
        share(sum(not c.is_wrong for c in hidden), len(hidden)),
        share(sum(c.is_wrong for c in cells), len(cells)),
        share(sum(holds), len(holds)),
    )
    return f"| {name} | {' | '.join(columns)} |"


if __name__ == "__main__":
    main()
