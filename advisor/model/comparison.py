"""Comparison: what two sets of runs tell about a change, as one frozen value. Its JSON form is a contract as well."""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from advisor.errors import UsageError
from advisor.model.finding import Fix, Place, Saving
from advisor.model.reason import Frozen, Reason
from advisor.model.report import FINDINGS_EXIT_CODE, UNJUDGED_EXIT_CODE
from advisor.text import one_line
from advisor.vocabulary.severities import Severity

Verdict: TypeAlias = Literal["faster", "slower", "same", "inconclusive"]
Obstacle: TypeAlias = Literal["no-steps", "hardware", "machine", "world-size", "few-steps", "profiler", "noise"]
Work: TypeAlias = Literal["kernel", "collective", "memcpy", "memset", "graphics", "op"]
WorkStatus: TypeAlias = Literal["appeared", "vanished", "count", "slower", "faster"]
FindingStatus: TypeAlias = Literal["new", "worse", "same", "better", "gone", "hidden", "uncovered", "unknown"]

# The order in which findings are told
NEWS_FIRST: Final[tuple[FindingStatus, ...]] = (
    *("new", "worse", "hidden", "gone", "better"),
    *("uncovered", "unknown", "same"),
)
SCHEMA_VERSION: Final = 3
INCONCLUSIVE_EXIT_CODE: Final = 4


class Series(Frozen):
    """The steps of one run: every complete one that did not compile, outliers included; the job's slowest rank each.

    `recurring` are the places of those among them in which something recurs, such as a validation, every `every` steps.
    `worker` is the rank whose step the breakdown takes apart. `tells_too_little` says that more rules could not be
    judged than could.
    """

    run: str
    steps_ms: tuple[float, ...]
    recurring: tuple[int, ...] = ()
    every: int = 0
    worker: int | None = None
    tells_too_little: bool = False


class Side(Frozen):
    """What was measured of one side.

    `mean_ms` is over whole periods where something recurs. `cv` is the steps' standard deviation over their mean.
    `devices` are the names of the devices, each once. `unreadable` is the number of files that could not be read.
    `is_unprofiled` says that the steps are those that the recorder timed without the profiler, less their waits for a
    CPU because of other programs.
    `paths` are those that it was read from, as they were given but for characters that act. `per` is what its times
    are of: a used step, or all that was recorded where steps are not marked; null where nothing could be measured.
    """

    series: tuple[Series, ...]
    steps: int
    median_ms: float | None
    mean_ms: float | None
    cv: float | None
    devices: tuple[str, ...]
    world_size: int | None
    unreadable: int = 0
    paths: tuple[str, ...] = ()
    per: Literal["step", "recording"] | None = "step"
    is_unprofiled: bool = False

    @property
    def tells_too_little(self) -> bool:
        """Whether a run of it does: then a finding that is not there means nothing."""
        return any(series.tells_too_little for series in self.series)


class StepChange(Frozen):
    """The head's median step time over the base's: a ratio above 1 is slower; `low` and `high` bound it (95 %).

    `p` is the two-sided Mann-Whitney probability; `least` the smallest change that counts, as a share. Where something
    recurs every few steps, it is the mean's (`of`), and Welch's probability.
    """

    ratio: float
    low: float
    high: float
    p: float
    least: float
    of: Literal["median", "mean"] = "median"


class Shift(Frozen):
    """One part of the accounting, by its code, in ms: those of a side add up to its time in the headline."""

    part: str
    base_ms: float
    head_ms: float

    @property
    def change_ms(self) -> float:
        """Above zero: it takes longer than before."""
        return self.head_ms - self.base_ms


class PhaseTimes(Frozen):
    """A phase of a server's steps on one side: how many there are, and the means of their times and shares."""

    steps: int
    step_ms: float
    idle_share: float
    launch_share: float
    communication_share: float


class PhaseChange(Frozen):
    """A phase on both sides; a side without it is null."""

    phase: str
    base: PhaseTimes | None
    head: PhaseTimes | None


class Amount(Frozen):
    """How often a kind of work is done per step, and how long once takes on average; ops without those inside them."""

    per_step: float
    mean_us: float
    ms_per_step: float


class WorkChange(Frozen):
    """A kernel, copy or framework op that differs between the sides.

    `size` is a kernel's grid and block, a copy's bytes or an op's shapes; null where the whole name appeared or
    vanished. A side that lacks it is null. `p` is the Welch probability after Benjamini and Hochberg, of a status that
    a test decides.
    """

    work: Work
    name: str
    size: str | None
    status: WorkStatus
    base: Amount | None
    head: Amount | None
    p: float | None = None

    @property
    def change_ms(self) -> float:
        """Per step, above zero: it takes longer than before."""
        return (self.head.ms_per_step if self.head else 0) - (self.base.ms_per_step if self.base else 0)


class Frame(Frozen):
    """A module, scope or op that causes device time (host time, without a device), in ms per used step of each side.

    `parent` counts into the frames, and is null at the top; a parent stands before its children. `name` is null for
    what nothing recorded caused. A total is the frame's own time and that of the frames below it.
    """

    parent: int | None
    name: str | None
    kind: str
    base_ms: float
    base_self_ms: float
    head_ms: float
    head_self_ms: float

    @property
    def change_ms(self) -> float:
        """Above zero: it takes longer than before."""
        return self.head_ms - self.base_ms


class SideFinding(Frozen):
    """A finding on one side; `under` names the finding that accounts for it, where it was but a symptom of that.

    `where` are the places that have a call stack: those that lead to source lines. `fixes` are those for the run's
    framework.
    """

    severity: Severity | None
    saving: Saving | None
    says: str
    under: str | None = None
    where: tuple[Place, ...] = ()
    fixes: tuple[Fix, ...] = ()


class Effect(Frozen):
    """What fixes save of the base's mean step by a trial of them, in ms: its 95 % interval, below zero where they cost.

    `findings` says of how many findings the fixes were tried.
    """

    low_ms: float
    high_ms: float
    findings: int


class Prediction(Frozen):
    """What fixes promised and what the mean step got shorter by, in ms; of all `findings` that are gone, together.

    `trial` is what `advisor try` measured of these fixes before they were made; null where no trial was of them.
    """

    low_ms: float
    high_ms: float
    measured_ms: float
    findings: int
    trial: Effect | None = None


class FindingChange(Frozen):
    """What became of a finding.

    `hidden`: the head does not show it because another part of the step grew. `uncovered`: the base does not show
    it, and its time is as before, in a shorter step. `unknown`: one side has it, the other could not judge or
    suppressed it. `why` says so of both. `prediction` is there if it is gone and its fix promised anything.
    """

    key: str
    rule: str
    title: str
    status: FindingStatus
    base: SideFinding | None
    head: SideFinding | None
    why: Reason | None = None
    prediction: Prediction | None = None


class FailOn(Frozen):
    """What counts as a regression: a slower head, from a share of 1 on; findings of high severity that are new."""

    slower: float | None = 0.0
    new_high: bool = False


class Comparison(Frozen):
    """Whether the head is slower than the base, and why.

    `reason` is what the verdict rests on, `obstacle` what keeps it inconclusive. `cause` is the part of the
    step that changed most in the verdict's direction. `cautions` belong beside the verdict: what may explain it
    and is no change of speed. `phases` are those of servers. `change` is null where the step times cannot be compared
    at all.
    """

    kind: Literal["comparison"] = "comparison"
    schema_version: Literal[3] = SCHEMA_VERSION
    advisor_version: str
    verdict: Verdict
    reason: Reason
    cautions: tuple[Reason, ...] = ()
    obstacle: Obstacle | None
    cause: Shift | None
    change: StepChange | None
    base: Side
    head: Side
    breakdown: tuple[Shift, ...]
    work: tuple[WorkChange, ...]
    findings: tuple[FindingChange, ...]
    frames: tuple[Frame, ...] = ()
    phases: tuple[PhaseChange, ...] = ()
    notes: tuple[Reason, ...] = ()

    @property
    def one_recording(self) -> bool:
        """Whether both sides are the same steps: nothing varies between them."""
        times = [sorted(series.steps_ms for series in side.series) for side in (self.base, self.head)]
        return bool(self.base.steps) and times[0] == times[1]

    @property
    def times_ms(self) -> tuple[float | None, float | None]:
        """Both sides' typical step, that the verdict is about: the median, or the mean where something recurs."""
        if self.change and self.change.of == "mean":
            return self.base.mean_ms, self.head.mean_ms
        return self.base.median_ms, self.head.median_ms

    @property
    def per_step(self) -> bool:
        """Whether both sides' times are of a step; if not, only shares can be held against each other."""
        return self.base.per == self.head.per == "step"

    def exit_code(self, fail_on: FailOn | None = None, *, strict: bool = False) -> int:
        """What `advisor compare` exits with; by default, a slower head counts as a regression.

        1 for a regression; else 3 where files of a side could not be read, or a side tells too little for what is
        asked, unless nothing counts as a regression; else 4 for `inconclusive`, if `strict`; else 0.
        """
        condition = fail_on or FailOn()
        ratio = self.change.ratio if self.change else 1.0
        slower = self.verdict == "slower" and condition.slower is not None and ratio >= 1 + condition.slower
        news = [(of.base, of.head) for of in self.findings if of.head and of.status in {"new", "worse"}]
        grave = [head for base, head in news if head.severity == "high" and (base is None or base.severity != "high")]
        if slower or (condition.new_high and any(head.under is None for head in grave)):
            return FINDINGS_EXIT_CODE
        unread = self.base.unreadable or self.head.unreadable
        tells_too_little = self.base.tells_too_little or self.head.tells_too_little
        unsure = tells_too_little and (condition.new_high or self.verdict == "inconclusive")
        if condition != FailOn(slower=None) and (unread or unsure):
            return UNJUDGED_EXIT_CODE
        return INCONCLUSIVE_EXIT_CODE if strict and self.verdict == "inconclusive" else 0


def fail_on(options: Iterable[str]) -> FailOn:
    """What `--fail-on` asks for, any number of `slower`, `slower:PERCENT`, `new-high` or `never`; else a UsageError."""
    conditions: dict[str, float | bool | None] = {"slower": None, "new_high": False}
    names = list(options)
    if "never" in names and set(names) != {"never"}:
        other = next(option for option in names if option != "never")
        raise UsageError(f"--fail-on never: contradicts --fail-on {one_line(other, 100)}; give one of them")
    for option in names:
        name, colon, percent = option.partition(":")
        if name == "slower":
            conditions["slower"] = _share(option, percent) if colon else 0.0
        elif option == "new-high":
            conditions["new_high"] = True
        elif option != "never":
            raise UsageError(f"--fail-on {option}: not slower, slower:PERCENT, new-high or never")
    return FailOn.model_validate(conditions)


def _share(option: str, percent: str) -> float:
    try:
        value = float(percent.removesuffix("%"))
    except ValueError:
        value = -1
    if not 0 <= value <= 1e6:  # noqa: PLR2004 - whatever is more is a slip
        raise UsageError(f"--fail-on {option}: {percent!r} is no percentage; write slower:5 for 5 %")
    return value / 100
