"""Trials: what each fix was worth on the job itself, as one frozen value. Its JSON form is a contract as well."""

from collections.abc import Collection, Mapping
from typing import Final, Literal, TypeAlias

from advisor.model.reason import Frozen, Reason

Result: TypeAlias = Literal["faster", "slower", "same", "unclear", "not_applied", "failed", "not_tried"]
Training: TypeAlias = Literal["same", "rounding", "different", "unknown"]
Argument: TypeAlias = bool | int | str

SCHEMA_VERSION: Final = 1
PERFECT_INPUT: Final = "input"  # the patch that repeats one batch
TOGETHER: Final = "together"  # the name of the trial of all fixes that helped


class Use(Frozen):
    """A patch with its arguments; `numerics` is what it may do to training."""

    patch: str
    arguments: Mapping[str, Argument]
    numerics: Literal["same", "rounding", "changes"]


class Claim(Frozen):
    """What the finding says that the fix saves, as shares of the step."""

    low_share: float
    high_share: float


class Gain(Frozen):
    """The step with the patches over the step without: `low` and `high` bound the ratio (95 %).

    `spread` is the largest difference between neighbours of one setting, as a share.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    spread: float | None = None

    @property
    def half_width(self) -> float:
        """Half the interval, as a share of the step without the patches."""
        return (self.high - self.low) / 2


class Trial(Frozen):
    """One set of patches, tried.

    Attributes:
        name: The rule whose fix it is, the patch, or `together`.
        rule: The rule; null where a patch was named.
        uses: What was switched on.
        claimed: What the finding says of it; null where there is none.
        result: What came of it.
        gain: What was measured; null where nothing was.
        before_ms: The step without the patches, net of waits for a CPU.
        after_ms: The step with them.
        by: Blocks of steps in one process, or pairs of processes.
        training: Whether the parameters after the first steps are those of a run without the patches.
        proof: Numbers that show that it was applied.
        reasons: Why it was not applied, or only in part; what made it fail.
        seconds: What it took.
    """

    name: str
    rule: str | None = None
    uses: tuple[Use, ...]
    claimed: Claim | None = None
    result: Result
    gain: Gain | None = None
    before_ms: float | None = None
    after_ms: float | None = None
    by: Literal["blocks", "processes"] | None = None
    training: Training = "unknown"
    proof: Mapping[str, float | int | str] = {}
    reasons: tuple[Reason, ...] = ()
    seconds: float = 0.0

    @property
    def is_clear(self) -> bool:
        """Whether it is known what the patches do to the step."""
        return self.result in {"faster", "slower", "same"}

    @property
    def is_recommended(self) -> bool:
        """Whether it made steps shorter, and is something to keep."""
        return self.result == "faster" and not self.is_ceiling

    @property
    def is_ceiling(self) -> bool:
        """Whether it shows what work on input can gain at most, with one batch again and again."""
        return any(use.patch == PERFECT_INPUT for use in self.uses)


class Trials(Frozen):
    """What was tried on a program.

    Attributes:
        program: The script's name; no argument of it.
        step_ms: The step as it is, net of waits for a CPU, of the slowest rank; null where no step ended.
        start_up_s: From the start of a process to the first timed step.
        spread: The machine against itself: the same step twice, as if one were patched.
        within: The half-width to reach, as a share.
        trials: In the order in which they were tried.
        untried: Findings whose fixes cannot be switched on from outside.
        largest_untried: What the first of them claims, if that is more than what any that was tried claims; else null.
        files: What changed in the working folder while the program ran first, and no other program has open.
        notes: What qualifies all of it.
        seconds: What all runs took.
        is_cut: Whether Ctrl-C or a signal ended it.
    """

    kind: Literal["trials"] = "trials"
    schema_version: Literal[1] = SCHEMA_VERSION
    advisor_version: str
    program: str
    step_ms: float | None = None
    start_up_s: float | None = None
    spread: Gain | None = None
    ranks: int = 1
    device: str = "cpu"
    within: float
    trials: tuple[Trial, ...] = ()
    untried: tuple[str, ...] = ()
    largest_untried: Claim | None = None
    files: tuple[str, ...] = ()
    notes: tuple[Reason, ...] = ()
    seconds: float = 0.0
    is_cut: bool = False

    @property
    def saved_shares(self) -> Mapping[str, tuple[float, float]]:
        """What the fix of each finding saves of the step, by rule: the ends of the interval, where it is clear."""
        return {
            trial.rule: (1 - trial.gain.high, 1 - trial.gain.low)
            for trial in self.trials
            if trial.rule and trial.gain and trial.is_clear
        }

    def gain_of(self, rules: Collection[str]) -> tuple[Gain, int] | None:
        """What the fixes of these findings gain, and of how many: of trials of nothing else, that of the most of them.

        None where no trial of them measured anything.
        """
        together = {other.rule for other in self.trials if other.is_recommended and other.name != TOGETHER}
        own = list[tuple[Gain, int]]()
        for trial in self.trials:
            fixed = together if trial.name == TOGETHER else {trial.rule}  # None for a patch that was named
            if trial.gain and trial.is_clear and fixed and fixed <= set(rules):
                own.append((trial.gain, len(fixed)))
        return max(own, key=lambda each: each[1], default=None)
