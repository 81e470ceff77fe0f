"""Whether two samples of step times differ, and by how much: intervals and tests, no names and no verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, exp, log, sqrt
from types import ModuleType
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from advisor.errors import UsageError
from advisor.model.intervals import Floats, Ints

Sample: TypeAlias = Sequence[Floats]  # step times of a side, an array per run: none empty, each above zero
RESAMPLES: Final = 10_000
LEVEL: Final = 0.95
_SEED: Final = 20_170_704  # the same recordings give the same interval
_AT_ONCE: Final = 4_000_000  # resampled times in memory
_FEW, _FEWEST = 10, 5
_PERIODS: Final = 2  # as many make a step one that recurs


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two sides' step times held against each other."""

    ratio: float  # of the head's median over the base's; of means see `mean_contrast`
    low: float  # it is between (95 %)
    high: float
    p: float  # two-sided Mann-Whitney probability
    steps: int  # the smaller number of steps
    least_p: float  # the smallest that so few steps could give
    of: Literal["median", "mean"] = "median"

    @property
    def alpha(self) -> float:
        """Below which the probability must be: 0.01, and 0.05 where six to nine steps could hardly reach that.

        Five against five reach 0.01 only if all of one side are longer than all of the other; less than that raises
        more than 1 false alarm in 100 for very noisy jobs (benchmarks/compare.py).
        """
        return 0.05 if _FEWEST < self.steps < _FEW else 0.01

    @property
    def undecidable(self) -> bool:
        """Whether there are too few steps: four a side come out one after the other by chance in 1 of 35 times."""
        return self.steps < _FEWEST or self.least_p >= self.alpha

    def differs(self, least: float) -> bool:
        """Whether the sides differ, and by `least` (a share of 1) or more.

        Below ten steps a side the whole interval has to lie beyond the smallest change that counts: the bootstrap of
        a median is too narrow there, and an interval that merely excludes 1 raises too many false alarms.
        """
        margin = 1 + least if self.steps < _FEW else 1.0
        beyond = self.low > margin or self.high < 1 / margin
        enough = not 1 / (1 + least) < self.ratio < 1 + least
        return not self.undecidable and self.p < self.alpha and beyond and enough

    def within(self, margin: float) -> bool:
        """Whether the interval rules out a change by `margin` (a share of 1) or more, either way."""
        return 1 / (1 + margin) < self.low and self.high < 1 + margin


def contrast(base: Sample, head: Sample) -> Contrast:
    """The head's step times over the base's."""
    before, after = np.concatenate(base), np.concatenate(head)
    rng = np.random.default_rng(_SEED)
    ratios = _medians(head, rng) / _medians(base, rng)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Contrast(
        ratio=float(np.median(after) / np.median(before)),
        low=float(low),
        high=float(high),
        p=float(stats().mannwhitneyu(before, after).pvalue),
        steps=min(len(before), len(after)),
        least_p=2 / comb(len(before) + len(after), len(before)),
    )


class Cycle(NamedTuple):
    """A side's step times, of which some recur: all in one unit, and above zero."""

    usual: Floats  # two or more steps where they count, as of `recurring`
    recurring: Floats
    part: float  # of all steps, which those make up
    runs: Floats  # the mean of each

    @property
    def mean(self) -> float:
        """The mean over whole periods, however many steps of the last one were recorded."""
        usual, recurring = self._strata()
        return (1 - self.part) * float(usual.mean()) + self.part * float(recurring.mean())

    def errors(self) -> list[tuple[float, int]]:
        """Each kind of step's part in the variance of the mean, relative to its square, and its degrees of freedom.

        Where several runs differ by more than their steps explain, their means vary in place of the steps.
        """
        weights = (1 - self.part, self.part)
        within = [self._error(weight, times) for weight, times in zip(weights, self._strata(), strict=True) if weight]
        between = [self._error(1.0, self.runs)] if len(self.runs) > 1 else []
        return max(within, between, key=lambda errors: sum(error for error, _ in errors))

    def _error(self, weight: float, times: Floats) -> tuple[float, int]:
        return (weight / self.mean) ** 2 * float(times.var(ddof=1)) / len(times), len(times) - 1

    def _strata(self) -> tuple[Floats, Floats]:
        return self.usual, self.recurring if self.part else self.usual


def mean_contrast(base: Cycle, head: Cycle) -> Contrast:
    """The head's mean step over the base's, for sides with steps that recur: a median leaves these out.

    Usual and recurring steps vary around means of their own. The interval and the probability are those of Welch's test
    of the logarithm of the ratio (delta method), with the degrees of freedom of Welch and Satterthwaite. Where a side
    repeats nothing, it has to hold two periods of the other's: else what recurs may be missing by chance, and nothing
    can be decided.
    """
    errors = [*base.errors(), *head.errors()]
    variance = sum(error for error, _ in errors)
    freedom = variance**2 / sum(error**2 / free for error, free in errors) if variance else 1.0
    change, error = log(head.mean / base.mean), sqrt(variance)
    students = stats().t(freedom)
    reach = float(students.ppf((1 + LEVEL) / 2)) * error
    steps = [len(side.usual) + len(side.recurring) for side in (base, head)]
    periods = [count * max(base.part, head.part) for count in steps]
    return Contrast(
        ratio=exp(change),
        low=exp(change - reach),
        high=exp(change + reach),
        p=float(2 * students.sf(abs(change) / error)) if error else float(change == 0),
        steps=min(steps),
        least_p=0.0 if min(periods) >= _PERIODS or not max(base.part, head.part) else 1.0,
        of="mean",
    )


def wander(sample: Sample) -> float | None:
    """How far a side's runs stray from one to the next: Q3 + 3 IQR of the changes of their medians; None below ten.

    The threshold of rustc-perf, from the runs at hand.
    """
    if len(sample) < _FEW:
        return None
    medians = np.array([np.median(run) for run in sample])
    first, third = np.quantile(np.abs(medians[1:] / medians[:-1] - 1), [0.25, 0.75])
    return float(third + 3 * (third - first))


def welch(first: Sequence[Floats], second: Sequence[Floats]) -> Floats:
    """Two-sided Welch probabilities, adjusted after Benjamini and Hochberg; shape (tests,), NaN where no test can be.

    A side is means, standard deviations and numbers, each of that shape. Only the tests made are counted.
    """
    (_, spread, number), (_, other_spread, other_number) = first, second
    testable = (number > 1) & (other_number > 1) & (spread + other_spread > 0)
    adjusted = np.full(len(number), np.nan)
    if testable.any():
        a, s, n, b, t, m = (values[testable] for values in (*first, *second))
        p = stats().ttest_ind_from_stats(a, s, n, b, t, m, equal_var=False).pvalue
        adjusted[testable] = stats().false_discovery_control(np.clip(p, 0, 1))
    return adjusted


def stats() -> ModuleType:
    """SciPy's tests: half a second, and a package, that only comparisons and trials need."""
    try:
        from scipy import stats as module  # noqa: PLC0415 - see above
    except ImportError:
        raise UsageError("comparing step times needs SciPy: pip install 'gpu-advisor[compare]'") from None
    return module


def _medians(sample: Sample, rng: np.random.Generator) -> Floats:
    """Medians of resamples, shape (RESAMPLES,): runs with replacement, then each run's steps."""
    lengths = np.array([len(run) for run in sample])
    widest, runs = int(lengths.max()), len(sample)
    table = np.full((runs, widest), np.inf)
    for row, run in zip(table, sample, strict=True):
        row[: len(run)] = run
    size = max(1, _AT_ONCE // (runs * widest))
    chunks = [_chunk(table, lengths, min(size, RESAMPLES - at), rng) for at in range(0, RESAMPLES, size)]
    return np.concatenate(chunks)


def _chunk(table: Floats, lengths: Ints, resamples: int, rng: np.random.Generator) -> Floats:
    runs, widest = table.shape
    chosen = rng.integers(0, runs, (resamples, runs)) if runs > 1 else np.zeros((resamples, 1), np.int64)
    sizes = lengths[chosen]
    steps = (rng.random((resamples, runs, widest)) * sizes[..., None]).astype(np.int64)
    samples = table[chosen[..., None], steps]
    samples[np.arange(widest) >= sizes[..., None]] = np.inf  # a shorter run gives as many as it has
    samples = np.sort(samples.reshape(resamples, -1), axis=1)
    total, row = sizes.sum(axis=1), np.arange(resamples)
    middle: Floats = (samples[row, (total - 1) // 2] + samples[row, total // 2]) / 2
    return middle
