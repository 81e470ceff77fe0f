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
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from scorecard import known, scored, share
from simulator import FAULTS, SERVING_FAULTS, STYLES, Fault, ServingFault, case
from simulator import nsys as export
from simulator.styles import Document, Evidence

from advisor.analysis.device.selection import select_steps
from advisor.errors import AdvisorError
from advisor.inputs.readers import kineto, nsys
from advisor.model.profile import Profile

PAGE: Final = Path(__file__).parents[1] / "docs" / "recording-styles.md"
SYMPTOMS: Final = ("low-gpu-utilisation", "host-stalls", "step-outliers", "kernels-not-recorded")
"""Rules that name a loss and leave its cause open."""
STEPS: Final = 10
CELLS: Final = 400
SERVER_STEPS: Final = 30
SEEDS: Final = 20
EVERY: Final[dict[str, Fault | ServingFault]] = {**FAULTS, **SERVING_FAULTS}
FORMATS: Final[dict[str, frozenset[Evidence]]] = {
    "kineto": frozenset(),
    "nsys": frozenset({"annotations", "shapes", "stacks", "sizes", "memory", "ops"}),
}
"""What each profiler records of a PyTorch program, by what it lacks."""


@dataclass(frozen=True)
class Cell:
    """What was said of one job in one style.

    Attributes:
        is_visible: Whether a recording in this style can show the fault.
        first: The first finding that is not small, `nothing` where there is none.
        is_right: Whether it names the fault, or is nothing where there is none.
        is_wrong: Whether it names a cause that is not there.
        holds: Whether the interval holds the truth; None where none is claimed.
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

    @property
    def is_bad(self) -> bool:
        """Whether it names a cause that is not there, or not the one that can be seen."""
        return self.is_wrong or (self.is_visible and not self.is_right)


def main() -> None:
    """Draw jobs and styles, score each, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=CELLS, help="jobs, each in one style")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="servers per fault, each in one style")
    parser.add_argument("--fault", choices=EVERY, help="of this fault only")
    parser.add_argument("--style", choices=STYLES, help="in this style only")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    tasks = [
        *(
            drawn(options.cells, options.seed, options.fault, options.style)
            if options.fault not in SERVING_FAULTS
            else ()
        ),
        *(served(options.seeds, options.fault, options.style) if options.fault not in FAULTS else ()),
    ]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        cells = [cell for cell in pool.map(score, *zip(*tasks, strict=True)) if cell]
    page = (
        "\n\n".join(
            [HEAD.format(number=len(cells), symptoms=", ".join(f"`{rule}`" for rule in SYMPTOMS)), *tables(cells)]
        )
        + "\n"
    )
    if not (options.fault or options.style or options.cells < CELLS or options.seeds < SEEDS):
        PAGE.write_text(page, "utf-8")
    print(page)


def drawn(cells: int, seed: int, fault: str | None, style: str | None) -> Iterator[tuple[str, str, str, str, int]]:
    """Fault, style, format, GPU and seed of each job, all independent."""
    draw = random.Random(seed)  # noqa: S311 - seeded jobs need no cryptography
    for _ in range(cells):
        name = fault or draw.choice(list(FAULTS))
        how = style or draw.choice(list(STYLES))
        yield name, how, draw.choice(list(FORMATS)), draw.choice(FAULTS[name].gpus), draw.randrange(1 << 20)


def served(seeds: int, fault: str | None, style: str | None) -> Iterator[tuple[str, str, str, str, int]]:
    """The same of each fault of a server, with so many seeds."""
    for name in [fault] if fault else SERVING_FAULTS:
        for seed in range(seeds):
            draw = random.Random(f"{name} {seed}")  # noqa: S311 - as above
            how = style or draw.choice(list(STYLES))
            yield name, how, draw.choice(list(FORMATS)), draw.choice(SERVING_FAULTS[name].gpus), seed


def score(fault: str, style: str, form: str, gpu: str, seed: int) -> Cell | None:
    """One job in one style; None where the style does not apply to it."""
    made = case(fault, gpu, seed, SERVER_STEPS if fault in SERVING_FAULTS else STEPS)
    (name, text), *_ = made.files()
    document = STYLES[style].change(json.loads(text))
    if document is None:
        return None
    is_visible = (STYLES[style].removes | FORMATS[form]).isdisjoint(EVERY[fault].needs)
    try:
        profile = read(document, name, form)
    except AdvisorError:
        return Cell(fault, style, form, gpu, seed, is_visible, first="unreadable")
    result = scored(known(fault, fault, in_units_of(profile, made.facts)), [profile])
    first = next((finding.rule for finding in result.findings if finding.severity != "low"), "nothing")
    causes = {*result.job.first, *EVERY[fault].fires, *EVERY[fault].may, *SYMPTOMS, "nothing"}
    return Cell(fault, style, form, gpu, seed, is_visible, first, result.is_first, first not in causes, result.holds)


def in_units_of(profile: Profile, facts: dict[str, Any]) -> dict[str, Any]:
    """The truth in what the report counts in: without marks a server's step is the recording."""
    if facts["fault"] not in SERVING_FAULTS or select_steps(profile).views[0].has_marks:
        return facts
    return facts | {"truth": {key: ms * SERVER_STEPS for key, ms in facts["truth"].items() if key.endswith("_ms")}}


def read(document: Document, name: str, form: str) -> Profile:
    """The profile in this document, by way of this format.

    Raises:
        AdvisorError: it cannot be read.
    """
    if form == "kineto":
        return kineto.read(io.BytesIO(json.dumps(document).encode()), name)
    with tempfile.TemporaryDirectory() as folder:
        path = export.write(document, Path(folder) / "report.sqlite")
        return nsys.read(path, path.name)


HEAD: Final = """# The same faults, recorded in other ways

A fault is simulated. PyTorch's profiler or Nsight Systems records it, and the recording is changed as people's
recordings differ. Fault, style and format are drawn independently: {number} jobs. `fixtures/make/simulator` says what
each fault needs to be seen and what each style removes: from that follows whether a recording can show the fault. Where
it can, the fault must come first. Where it cannot, the report must name no cause that is not there. Four rules name a
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
