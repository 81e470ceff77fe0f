"""What a check says of every recording in findings, outcome and accounting, without words: what a rework is held to."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import advisor
from advisor.errors import AdvisorError
from advisor.model.report import Report, Row, Run
from advisor.vocabulary.kinds import CATEGORIES

RECORD = Path(__file__).parent / "figures.jsonl"
REPOSITORY = Path(__file__).parents[2]
SHARED = REPOSITORY.parent / "shared/traces"
DIGITS = 6
# What several rules, the accounting or the headline rest on. A metric of one rule shows in what that rule says.
FACTS = (
    *("steps", "step_mean_ms", "devices_used", "ranks_recorded", "common_steps"),
    *("device_busy_share", "idle_share", "launch_gap_share", "input_share", "host_busy_share", "overlap_share"),
    *("kernels_per_step", "median_kernel_us", "tensor_core_share", "sixteen_bit_kernel_share", "xla_share"),
    *("flops_of_peak_share", "xla_flops_of_peak_share", "peak_memory_bytes", "peak_memory_share"),
    *("exposed_transfer_ms", "exposed_communication_ms", "bus_bandwidth_gbs", "waiting_share", "straggler_slowdown"),
)


def recordings() -> list[str]:
    """Every fixture and every shared trace that is here, by a name that is the same in every checkout."""
    fixtures = [f"fixtures/{case.parent.name}" for case in REPOSITORY.glob("fixtures/*/case.yaml")]
    shared = [f"shared/{p.parent.name}/{p.name}" for p in SHARED.glob("*/*") if p.suffix != ".py"]
    skipped = ("shared/stragglers/", "shared/malformed/")
    return sorted([*fixtures, *(name for name in shared if not name.startswith(skipped))])


def path_of(recording: str) -> Path:
    """Where a recording lies."""
    place, _, rest = recording.partition("/")
    return (SHARED if place == "shared" else REPOSITORY / place) / rest


def figures(recording: str, check: Callable[[list[str]], Report] = advisor.check) -> list[dict[str, Any]]:
    """One mapping per run of the recording; a run that cannot be read is the kind of its error."""
    try:
        report = check([str(path_of(recording))])
    except AdvisorError as error:
        return [{"error": type(error).__name__}]
    return [_of_run(run) for run in report.runs]


def _of_run(run: Run) -> dict[str, Any]:
    return {
        "findings": [
            [
                f.rule,
                f.severity,
                f.confidence,
                f.saving and [f.saving.of, _rounded(f.saving.low_ms), _rounded(f.saving.high_ms)],
                [s.rule for s in f.symptoms],
            ]
            for f in run.findings
        ],
        "not_evaluable": [n.rule for n in run.not_evaluable],
        "passed": list(run.passed),
        "steps": [run.source.steps.used, _rounded(run.source.steps.step_ms)],
        "outcome": [run.outcome.code, run.outcome.loss],
        "accounting": {part.part: _rounded(part.share) for part in run.accounting.parts} if run.accounting else {},
        "breakdown": {name: _rounded(run.metrics["run"][0][f"{name}_share"] or 0.0) for name in CATEGORIES},
        "facts": dict(_facts(run.metrics["run"][0])),
    }


def _facts(row: Row) -> Iterator[tuple[str, float]]:
    """The facts that are neither unknown nor 0: what changes to or from either shows all the same."""
    for name in FACTS:
        if value := row[name]:
            yield name, float(f"{value:.{DIGITS}g}")


def _rounded(value: float | None) -> float | None:
    return value if value is None else float(f"{value:.{DIGITS}g}")


def record() -> dict[str, list[dict[str, Any]]]:
    """The figures as they were written down."""
    return dict(json.loads(line) for line in RECORD.read_text().splitlines())


def main(*changed: str) -> None:
    """Write down the figures of these recordings anew; of all if none is given."""
    others = {name: runs for name, runs in record().items() if changed and name not in changed}
    with RECORD.open("w") as file:
        for recording in recordings():
            print(recording, file=sys.stderr)  # noqa: T201 - a script too
            runs = others[recording] if recording in others else figures(recording)
            file.write(json.dumps([recording, runs], separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
