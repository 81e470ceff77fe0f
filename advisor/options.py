"""What a check or a comparison can be asked for beside its paths."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, get_args

from advisor.analysis.device.selection import STEADY
from advisor.config import Config
from advisor.errors import UsageError
from advisor.rules.rule_form import Workload
from advisor.system.processes import LOCAL

# Gets the file that is read next; returns what gets each number of bytes read
Progress: TypeAlias = Callable[[str], Callable[[int], object]]
_MOST_FLOPS: Final = 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to read, measure and judge; all have a default.

    Attributes:
        config: Rule folders, overrides and suppressions.
        steps: `steady`, `all` or `A:B`. A comparison of `steady` steps also counts the outliers.
        step_range: Regular expression of the host's ranges that are steps, in place of those that the profile marks.
        workload: The kind of work, in place of what the recording shows.
        flops_per_step: FLOPs that the model needs in a step of one device: what its share of the peak is then of.
        ncu: A file with what `ncu --csv --page raw` printed of the same kernels.
        run: Of the runs in one TensorFlow or JAX log folder, the one to check instead of the newest.
        all_runs: Check all of them.
        baseline: A report saved as JSON; findings say whether they are new against it.
        trials: A report of `advisor try` saved as JSON: a comparison shows its gains beside what was predicted.
        today: Date that ends suppressions; the current one by default.
        max_bytes: The size, unpacked, up to which a file is read; by default what fits into 70 % of the memory.
        processes: How many read a run: each a file of it, or together one large file. A script that asks for
            more than one needs the guard `if __name__ == "__main__":`, as always with multiprocessing.
        engine: Where the ranks of one job are read: `local`, or `dask=ADDRESS` of a scheduler, whose workers see the
            same paths.
        sample: How many ranks of one job to read at most; by default all.
        progress: Where to report the bytes read.
    """

    config: Config = field(default_factory=Config)
    steps: str = STEADY
    step_range: str | None = None
    workload: Workload | None = None
    flops_per_step: float | None = None
    ncu: str | None = None
    run: str | None = None
    all_runs: bool = False
    baseline: str | None = None
    trials: str | None = None
    today: dt.date = field(default_factory=lambda: dt.datetime.now(dt.UTC).date())
    max_bytes: int | None = None
    processes: int = 1
    engine: str = LOCAL
    sample: int | None = None
    progress: Progress = lambda _: lambda _: None

    def __post_init__(self) -> None:
        """Raise UsageError where a value would only show as a wrong verdict."""
        if self.workload is not None and self.workload not in (kinds := get_args(Workload)):
            raise UsageError(f"--workload {self.workload}: not one of {', '.join(kinds)}")
        if self.flops_per_step is not None and not 1 <= self.flops_per_step <= _MOST_FLOPS:
            raise UsageError(f"--flops-per-step {self.flops_per_step}: not from 1 to {_MOST_FLOPS:g}")

    @property
    def fixes_steps(self) -> str | None:
        """The option that chooses the steps, as the command line has it; None where it is the default."""
        if self.step_range is not None:
            return f"--step-range {self.step_range}"
        return None if self.steps == STEADY else f"--steps {self.steps}"
