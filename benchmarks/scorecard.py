"""How well the findings and savings hold on jobs whose truth is known; writes docs/scorecard.md."""

from __future__ import annotations

import argparse
import io
import os
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, starmap
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "fixtures" / "make"))

from simulator import FAULTS, FLEET_FAULTS, PACE_FAULTS, case  # noqa: E402 - the scripts of fixtures/ are no package

from advisor import metrics  # noqa: E402
from advisor.analysis.device.selection import select_steps  # noqa: E402
from advisor.config import Config  # noqa: E402
from advisor.engine import read  # noqa: E402
from advisor.inputs.readers import kineto  # noqa: E402
from advisor.model.finding import Finding  # noqa: E402
from advisor.model.profile import Profile  # noqa: E402
from advisor.model.report import Run  # noqa: E402
from advisor.rules.evaluation import measured_run  # noqa: E402
from advisor.rules.judge import judge  # noqa: E402
from advisor.rules.rule_file import selected  # noqa: E402
from advisor.rules.user_config import rule_book  # noqa: E402
from advisor.runs.summary import summarise  # noqa: E402
from advisor.vocabulary.severities import SEVERITIES  # noqa: E402

RULES = rule_book(Config())
MEASURES = selected(RULES.values())
PAGE = ROOT / "docs" / "scorecard.md"
SHARED = ROOT.parent / "shared" / "traces"


@dataclass(frozen=True)
class Known:
    """A job and what is true of it; `saved_ms` bounds the truth where two figures tell it."""

    name: str
    group: str
    first: tuple[str, ...]
    must_fire: tuple[str, ...]
    must_not_fire: tuple[str, ...]
    saved_ms: tuple[float, float] | None
    step_ms: float


@dataclass(frozen=True)
class Score:
    """What was found of it."""

    job: Known
    findings: tuple[Finding, ...]
    beneath: frozenset[str]
    step_ms: float | None = None  # that the report is of

    @property
    def named(self) -> set[str]:
        """Every rule that fired, alone or under its cause."""
        return {f.rule for f in self.findings} | self.beneath

    @property
    def is_first(self) -> bool:
        """Whether the job's fault comes first; of a healthy job, that nothing promises more than is true."""
        if not self.job.first:
            return all(f.severity == "low" or self._holds(f) for f in self.findings)
        return bool(self.findings) and self.findings[0].rule in self.job.first

    @property
    def finding(self) -> Finding | None:
        """The finding that names the fault, and claims a saving."""
        return next((f for f in self.findings if f.rule in (self.job.first or self.job.must_fire) and f.saving), None)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The saving of that finding."""
        found = self.finding
        return (found.saving.low_ms, found.saving.high_ms) if found and found.saving else None

    @property
    def holds(self) -> bool | None:
        """Whether the interval holds the truth; None where there is nothing to hold."""
        return self._holds(self.finding) if self.job.saved_ms and self.finding else None

    def _holds(self, finding: Finding) -> bool:
        if self.job.saved_ms is None or finding.saving is None or finding.rule in self.job.must_not_fire:
            return False
        slack = 0.01 * self.job.step_ms  # of the step: what two runs of one job differ by
        lowest, highest = self.job.saved_ms
        return finding.saving.low_ms - slack <= lowest and highest <= finding.saving.high_ms + slack

    @property
    def failures(self) -> list[str]:
        """What is wrong, in words."""
        wrong = [f"`{r}` silent" for r in self.job.must_fire if r in RULES and r not in self.named]
        wrong += [f"`{r}` fired" for r in self.job.must_not_fire if r in self.named]
        if not self.is_first:
            wrong.append(f"first: {self.findings[0].rule if self.findings else 'nothing'}")
        if self.holds is False and self.interval and self.job.saved_ms:
            truth = " to ".join(f"{ms:.1f}" for ms in sorted(set(self.job.saved_ms)))
            wrong.append("saves {:.1f} to {:.1f} ms".format(*self.interval) + f", truth {truth}")
        return wrong


def main() -> None:
    """Score all jobs, write the page, print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="per fault of one worker and GPU")
    parser.add_argument("--seeds-of-many", type=int, default=5, help="per fault of many ranks and GPU")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pace", action="store_true", help="only the faults of who sets the pace, seeds over all GPUs")
    parser.add_argument("--first-seed", type=int, default=0, help="of --pace")
    parser.add_argument(
        "--faults", nargs="*", default=[*PACE_FAULTS, "data-wait-one-rank"], help="of --pace: only these"
    )
    options = parser.parse_args()
    if options.pace:
        seeds, faults = range(options.first_seed, options.first_seed + options.seeds), FLEET_FAULTS | PACE_FAULTS
        tasks = [(name, faults[name].gpus[n % len(faults[name].gpus)], n) for name in options.faults for n in seeds]
        with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
            scores = list(map(of_its_step, pool.map(score_simulated, *zip(*tasks, strict=True))))
        command = f"scorecard.py --pace --first-seed {options.first_seed} --seeds {options.seeds}"
        text = "\n\n".join(
            [PACE.format(command=command), *(t.replace("## ", "### ") for t in (*misses(scores), *tables(scores)))]
        )
        if options.faults == parser.get_default("faults"):
            PAGE.write_text(f"{PAGE.read_text('utf-8').partition(PACE_HEAD)[0].rstrip()}\n\n{text}\n", "utf-8")
        print(text)
        return
    tasks = list(simulated(options.seeds, options.seeds_of_many))
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        scores = [*starmap(scored, chain(recorded(), public())), *pool.map(score_simulated, *zip(*tasks, strict=True))]
    sections = (misses, tables, levels, by_rule)
    texts = ["# Score card", HEAD.format(**vars(options)), *chain(*(section(scores) for section in sections))]
    pace = PAGE.read_text("utf-8").partition(PACE_HEAD)
    page = "\n\n".join([*texts, "".join(pace[1:]).rstrip()]).rstrip() + "\n"
    PAGE.write_text(page, "utf-8")
    print(page)


PACE_HEAD = "## Who sets the pace"
PACE = f"""{PACE_HEAD}

Other threads, loaders of 1 to 16 workers, GPUs of one process, groups of slow ranks and lost cores: simulated jobs on
which nothing was chosen. Each seed is on one GPU of the fault's in turn. `benchmarks/` made this section with
`{{command}}`.

Without any wait for a slow loader, a recording is to say nothing. With one wait, it may say that one step is long. What
is saved is of the step that the report is of: it may leave the first one out."""


HEAD = (
    "Jobs whose truth is known: recorded ones whose unprofiled step time was measured with and without the fault, "
    "public traces read by hand, and simulated ones ({seeds} seeds per fault and GPU, {seeds_of_many} where the job "
    "has many ranks) whose counterfactual was simulated too. Made by `make score`. The truth of a recorded job is what "
    "its median step saves, as savings leave uneven steps out; of a fault that strikes in some steps only, the mean. "
    "An interval wider than 20 % of the step is right, but says little: of launch-bound jobs it depends on "
    "how much of the host's time the profiler itself takes, which one profile does not tell; of recorded CPU jobs on "
    "sizes that a profile without shapes does not tell."
)


def scored(job: Known, ranks: Iterable[Profile]) -> Score:
    """Run the engine on one job, given as the profile of each of its ranks."""
    found = metrics.conclude([metrics.measure_part(select_steps(profile), MEASURES) for profile in ranks])
    return score_of(job, summarise(job.name, job.name, found, judge(measured_run(found), RULES, {})))


def score_of(job: Known, run: Run) -> Score:
    """What a report says of one job."""
    beneath = frozenset(s.rule for f in run.findings for s in f.symptoms)
    return Score(job, run.findings, beneath, run.length_ms)


def recorded() -> Iterator[tuple[Known, Iterable[Profile]]]:
    """The committed fixtures."""
    for file in sorted((ROOT / "fixtures").glob("*/case.yaml")):
        facts = yaml.safe_load(file.read_text("utf-8"))
        kind = "simulated fixture" if facts.get("simulated") else "recorded"
        traces = sorted(file.parent.glob("*.gz")) or [file.parent]  # TensorFlow's and JAX's lie deeper
        yield known(file.parent.name, kind, facts), [read(str(trace)) for trace in traces]


def public() -> Iterator[tuple[Known, Iterable[Profile]]]:
    """The public traces that were read by hand, where they are at hand."""
    for name, told in yaml.safe_load((ROOT / "benchmarks" / "public_traces.yaml").read_text("utf-8")).items():
        if (path := SHARED / name).exists():
            must, must_not, first = (tuple(told[key]) for key in ("must_fire", "must_not_fire", "first"))
            low, high = told.get("saved_ms", (None, None))
            job = Known(name, "public", first, must, must_not, (low, high) if low else None, told.get("step_ms", 0.0))
            traces = sorted(path.glob("*.gz")) if path.is_dir() else [path]
            yield job, [read(str(trace)) for trace in traces or [path]]


def simulated(seeds: int, seeds_of_many: int) -> Iterator[tuple[str, str, int]]:
    """Every fault on every GPU that can have it, with each seed."""
    for faults, number in ((FAULTS, seeds), (FLEET_FAULTS, seeds_of_many)):
        for name, fault in faults.items():
            yield from ((name, gpu, seed) for gpu in fault.gpus for seed in range(number))


def score_simulated(name: str, gpu: str, seed: int) -> Score:
    """Simulate a job and score it."""
    made = case(name, gpu, seed)
    job = known(f"{name} on {gpu}, seed {seed}", f"simulated {name}", made.facts)
    return scored(job, (kineto.read(io.BytesIO(text), file) for file, text in made.files()))


def of_its_step(score: Score) -> Score:
    """With the truth of the step that the report is of: where it leaves the first out, the saving is of the others."""
    job, now_ms = score.job, score.step_ms or 0.0
    if not job.saved_ms or abs(now_ms - job.step_ms) > _NEAR * job.step_ms:
        return score
    saved_ms = job.saved_ms[0] + now_ms - job.step_ms
    return replace(score, job=replace(job, saved_ms=(saved_ms, saved_ms), step_ms=now_ms))


_NEAR = 0.2  # of the step: a first one of eight may take more than twice as long; a report of another step is wrong


def known(name: str, group: str, facts: dict[str, Any]) -> Known:
    """The truth of a case.yaml; a saving under 1 % of the step is none.

    Of medians, as the advisor leaves uneven steps out; of means where the fault strikes in some steps only.
    """
    truth = facts["truth"]
    saved = truth["saved_mean_ms" if truth.get("uneven") else "saved_ms"]
    must = tuple(facts["must_fire"])
    first = tuple(facts.get("first") or must)
    step = truth["faulty_step_ms"]
    return Known(
        name,
        group,
        first,
        must,
        tuple(facts["must_not_fire"]),
        (saved, saved) if saved > 0.01 * step else None,
        step,
    )


def tables(scores: list[Score]) -> Iterator[str]:
    """A line per group of jobs."""
    groups: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        groups[score.job.group].append(score)
    rows = [
        "| jobs | number | fault first | rules right | interval holds | median width of the step |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for group, members in groups.items():
        holds = [s.holds for s in members if s.holds is not None]
        widths = [(s.interval[1] - s.interval[0]) / s.job.step_ms for s in members if s.interval and s.job.step_ms]
        right = sum(not any("silent" in f or "fired" in f for f in s.failures) for s in members)
        rows.append(
            f"| {group} | {len(members)} | {share(sum(s.is_first for s in members), len(members))} | "
            f"{share(right, len(members))} | {share(sum(holds), len(holds))} | "
            f"{f'{100 * statistics.median(widths):.0f} %' if widths else 'none claimed'} |"
        )
    yield "## By job"
    yield "\n".join(rows)
    every = [s.holds for s in scores if s.holds is not None]
    widths = [(s.interval[1] - s.interval[0]) / s.job.step_ms for s in scores if s.interval and s.job.step_ms]
    yield (
        f"Over all: the fault first in {share(sum(s.is_first for s in scores), len(scores))}, the truth inside the "
        f"interval in {share(sum(every), len(every))}"
        + (f", median width {100 * statistics.median(widths):.0f} % of a step." if widths else ".")
    )


LEVELS = """## By confidence

High promises the truth inside the interval in 95 % of its cases, medium in 80 %. What makes a level is in
[How a saving is computed](savings.md). It was chosen on other jobs: `styles.py --seed 1000`, and 160 cells of
`--seed 0`."""


def levels(scores: list[Score]) -> Iterator[str]:
    """A line per level of confidence: recorded jobs and public traces, and simulated ones."""
    yield LEVELS
    by_level: dict[str, list[Held]] = defaultdict(list)
    for score in scores:
        if score.finding and score.interval and score.holds is not None:
            kind = "simulated" if score.job.group.startswith("simulated") else "recorded"
            width = (score.interval[1] - score.interval[0]) / score.job.step_ms
            by_level[f"{score.finding.confidence} | {kind}"].append(Held(score.holds, width))
    yield confidence_table("confidence | jobs", by_level)


class Held(NamedTuple):
    """Whether an interval holds the truth, and its width as a share of the step."""

    holds: bool
    width: float


def confidence_table(heads: str, by_level: Mapping[str, Sequence[Held]]) -> str:
    """A row per level, the highest first: how many cases, how many hold, which share of all is so sure, how wide."""
    every = sum(map(len, by_level.values()))
    rows = [
        f"| {heads} | interval holds | of all | median width of the step |",
        f"|{' --- |' * (heads.count('|') + 1)} ---: | ---: | ---: |",
    ]
    for level in sorted(by_level, key=lambda level: (SEVERITIES.index(level.split(" ")[0]), level)):
        cases = by_level[level]
        held, width = sum(case.holds for case in cases), statistics.median(case.width for case in cases)
        shares = [f"{100 * part:.0f} %" for part in (held / len(cases), len(cases) / every, width)]
        rows.append(f"| {level} | {share(held, len(cases))} ({shares[0]}) | {shares[1]} | {shares[2]} |")
    return "\n".join(rows)


def misses(scores: list[Score]) -> Iterator[str]:
    """Every failure, counted by job and kind."""
    counted = Counter((s.job.group, s.job.name.split(",")[0], f) for s in scores for f in s.failures)
    yield "## What went wrong"
    lines = [f"- {name}: {what}" + (f" ({n} times)" if n > 1 else "") for (_, name, what), n in counted.items()]
    yield "\n".join(lines) or "None."


def by_rule(scores: list[Score]) -> Iterator[str]:
    """A line per rule that some job must raise, or must not: how often it did as it should."""
    rows = [
        "| rule | fired where it must | silent where it must |",
        "| --- | --- | --- |",
    ]
    for rule in sorted({rule for score in scores for rule in (*score.job.must_fire, *score.job.must_not_fire)}):
        must = [rule in score.named for score in scores if rule in score.job.must_fire]
        silent = [rule not in score.named for score in scores if rule in score.job.must_not_fire]
        rows.append(f"| `{rule}` | {share(sum(must), len(must))} | {share(sum(silent), len(silent))} |")
    yield "## By rule"
    yield "\n".join(rows)


def share(part: int, whole: int) -> str:
    """`19 of 20`, or a dash where there is nothing to count."""
    return f"{part} of {whole}" if whole else "-"


if __name__ == "__main__":
    main()
