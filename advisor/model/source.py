"""What a check read: the workers, the devices, the steps, the kind of work."""

from collections.abc import Mapping
from typing import Literal

from advisor.model.reason import Count, Frozen, Length, Reason
from advisor.text import count


class LeftOutStep(Frozen):
    """A step that was recorded and not used.

    `step_ms` is null where the recording does not hold the whole of it; the codes are those of
    `advisor.vocabulary.kinds`: `outlier` is left out for nothing but its length.
    """

    worker: int
    device: int | None
    step: int
    why: Reason
    step_ms: Length | None = None


class StepLength(Frozen):
    """How many of the used steps are of one length, and their mean."""

    steps: Count
    mean_ms: Length


class Steps(Frozen):
    """How many steps the numbers of `worker` rest on: the one that sets the job's pace.

    `whole_mean_ms` is the mean with uneven steps, null where these hardly add to it; savings and accounting are of it.
    `unprofiled_ms` is the typical step without the profiler, null where it was not timed; savings and the accounting
    are of that step, or of `unprofiled_whole_ms`, its mean with uneven steps.
    `unprofiled_steps_ms` are the steps that it is typical of, `unprofiled_delay_ms` what one of them waited for a CPU
    because of other programs, on average, and is without; `profiled_delay_ms` is that wait of a recorded step.
    `timed_by` says what a step's time is: the period from its start to the next one's, or, in reports of earlier
    versions, the range that marks it.
    `lengths` are the two lengths that the steps have, the shorter first; empty where they are all of one.
    """

    marked: bool
    timed_by: Literal["period", "range"] = "range"
    count: Count
    used: Count
    step_ms: Length | None
    step_mean_ms: Length | None
    whole_mean_ms: Length | None = None
    unprofiled_ms: Length | None = None
    unprofiled_whole_ms: Length | None = None
    unprofiled_steps_ms: tuple[Length, ...] = ()
    unprofiled_delay_ms: Length | None = None
    profiled_delay_ms: Length | None = None
    left_out: tuple[LeftOutStep, ...]
    worker: int | None = None
    lengths: tuple[StepLength, ...] = ()

    @property
    def are_cut(self) -> bool:
        """Whether no step is usable because the file ends early."""
        return not self.used and any(step.why.code == "file_cut" for step in self.left_out)

    @property
    def are_few(self) -> bool:
        """Whether one of them weighs much, though a median knows it apart."""
        return self.marked and self.used in {3, 4}

    @property
    def longer(self) -> float:
        """The part by which a recorded step is longer than one without the profiler; 0 where that was not timed."""
        return (self.step_mean_ms or 0.0) / self.unprofiled_ms - 1 if self.unprofiled_ms else 0.0

    @property
    def length_ms(self) -> float | None:
        """The step that all times of a report are of: without the profiler where that was timed, else as recorded."""
        whole_ms = self.whole_mean_ms if self.unprofiled_ms is None else self.unprofiled_whole_ms
        return self.usual_ms if whole_ms is None else whole_ms

    @property
    def is_mean(self) -> bool:
        """Whether long steps add to the step that savings are of."""
        return self.length_ms != self.usual_ms

    @property
    def usual_ms(self) -> float | None:
        """The same without uneven steps."""
        return self.step_mean_ms if self.unprofiled_ms is None else self.unprofiled_ms


class Worker(Frozen):
    """One process of the job."""

    worker: int
    rank: int | None
    name: str
    file: str


class Device(Frozen):
    """One device of one worker; `again` says that an earlier one of the list is the same chip."""

    worker: int
    device: int
    name: str | None
    model: str | None
    memory_bytes: int | None
    again: bool = False


class Sign(Frozen):
    """What shows a kind of work: a code of `advisor.vocabulary.kinds`, and a name from the recording as example."""

    kind: str
    code: str
    example: str | None = None


class Workload(Frozen):
    """The kinds of work that a recording shows, and what shows them; none where nothing does."""

    kinds: tuple[str, ...] = ()
    signs: tuple[Sign, ...] = ()


class Source(Frozen):
    """What was read; `notes` say what holds and what does not where the job is not here as a whole.

    `workload` is what kind of work it does. `environment` is what the job ran on and how it was recorded, as far as
    the profile tells: hardware, software, profiler, options; of the environment the closed list that `advisor record`
    notes.
    """

    path: str
    format: str
    framework: str | None
    world_size: int | None
    workers: tuple[Worker, ...]
    devices: tuple[Device, ...]
    steps: Steps
    salvaged: tuple[Reason, ...]
    notes: tuple[Reason, ...] = ()
    lacks: Mapping[str, Reason]
    environment: Mapping[str, str] = {}
    workload: Workload = Workload()

    @property
    def part(self) -> str | None:
        """`3 of 8 ranks`, where that is not all of them."""
        read = len(self.workers)
        return f"{read:,} of {count(self.world_size, 'rank')}" if self.world_size and self.world_size > read else None
