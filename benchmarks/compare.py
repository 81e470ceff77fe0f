"""How often `advisor compare` is wrong: false alarms on recorded jobs, and slow-downs of a known size that it finds.

`python benchmarks/compare.py` prints two tables in Markdown; docs/compare.md holds them. Jobs are the profiles under
fixtures/ and, where it is there, ../shared/traces/kineto: one recording each, so that a second recording of a job is
drawn from the steps of the first. That leaves out what differs between two runs on the same machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from advisor.comparing import LEAST_EFFECT
from advisor.comparing import compare as compare_runs
from advisor.comparing.significance import contrast
from advisor.engine import check
from advisor.errors import AdvisorError
from advisor.model.intervals import Floats

ROOT: Final = Path(__file__).parents[1]
PLACES: Final = (ROOT / "fixtures", ROOT.parent / "shared/traces/kineto", ROOT.parents[1] / "shared/traces/kineto")
TRIALS: Final = 1000
STEPS: Final = (6, 10, 20, 30)
NOISE: Final = (0.01, 0.02, 0.03, 0.05, 0.10)
SLOWER: Final = (1.05, 1.10)
_LEAST_STRICT: Final = 0.05  # the largest probability that any verdict takes
LEAST_STEPS: Final = 4  # of a recording: fewer tell nothing of how its steps vary


def main() -> None:
    """Print both tables."""
    rng = np.random.default_rng(0)
    print("| job | steps | noise | halves | as many | ten | twenty |\n| --- | --: | --: | --: | --: | --: | --: |")
    for name, steps in jobs().items():
        rates = [halves(steps, rng), *(alarms(steps, many, rng) for many in (len(steps), 10, 20))]
        noise = 100 * steps.std(ddof=1) / steps.mean()
        print(f"| {name} | {len(steps)} | {noise:.1f} % | {' | '.join(f'{100 * rate:.1f} %' for rate in rates)} |")
    heads = " | ".join(f"{many} steps" for many in STEPS)
    print(f"\n| noise | slow-down | {heads} |\n| --: | --: {'| --: ' * len(STEPS)}|")
    for noise in NOISE:
        for by in SLOWER:
            rates = [found(noise, by, many, rng) for many in STEPS]
            print(f"| {100 * noise:.0f} % | {100 * (by - 1):.0f} % | {' | '.join(f'{100 * r:.0f} %' for r in rates)} |")


def jobs() -> dict[str, Floats]:
    """The step times of every recorded job that marks enough steps, in ms, as `advisor compare` takes them."""
    recorded = {}
    for folder in sorted(path for place in PLACES if place.is_dir() for path in place.iterdir() if path.is_dir()):
        try:
            run = check([str(folder)]).runs[0]
        except AdvisorError:
            continue
        taken = compare_runs([run], [run], advisor_version="").base.series[0].steps_ms
        if len(taken) >= LEAST_STEPS:
            recorded[folder.name] = np.array(taken)
    return recorded


def halves(steps: Floats, rng: np.random.Generator) -> float:
    """How often one random half of a recording comes out as slower than the other."""
    splits = (rng.permutation(steps) for _ in range(TRIALS))
    middle = len(steps) // 2
    return float(np.mean([slower(split[:middle], split[middle:]) for split in splits]))


def alarms(steps: Floats, many: int, rng: np.random.Generator) -> float:
    """How often a second recording, drawn from the steps of the same job, comes out as slower than the first."""
    return float(np.mean([slower(rng.choice(steps, many), rng.choice(steps, many)) for _ in range(TRIALS)]))


def found(noise: float, by: float, many: int, rng: np.random.Generator) -> float:
    """How often a true slow-down comes out as one, with step times of this relative standard deviation."""
    drawn = np.exp(noise * rng.standard_normal((TRIALS, 2, many)))
    return float(np.mean([slower(base, by * head) for base, head in drawn]))


def slower(base: Floats, head: Floats) -> bool:
    """The verdict; what is too little slower, or too likely chance at any number of steps, needs no bootstrap."""
    from scipy.stats import mannwhitneyu  # noqa: PLC0415 - slow to import, and tests of the rest import this script

    if np.median(head) < (1 + LEAST_EFFECT) * np.median(base) or mannwhitneyu(base, head).pvalue >= _LEAST_STRICT:
        return False
    return contrast([base], [head]).differs(LEAST_EFFECT)


if __name__ == "__main__":
    main()
