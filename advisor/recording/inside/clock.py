"""Step times and the waits for a CPU, in nanoseconds; and steps after the recording, how many are much longer."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from . import real_time as time
from .job import cpus
from .threads import others_part, work

now_ns = time.perf_counter_ns
_DIGITS = 6  # of milliseconds: nanoseconds
_LEAST_MS = 1e-6
_PLACE = slice(1, 3)  # of a file's facts: its number and its device
_THREE_SIGMA, _LEAST_EXCESS = 3 * 1.4826, 0.1  # of the median absolute deviation; of the median
_SAMPLE_MS = 0.5  # of one sample of the stacks, at most
_PIECES, _LEAST_PIECE = 20, 2  # steps
_QUEUED = 2  # own choice: steps that a loop which looks at the result before last leaves to be waited for


class Times:
    """Median step time without the waits for a CPU that other programs cause, and the mean of these waits per step.

    `steps_ms` are the steps that the median is of. `own_delay_ms` is the mean of the waits that the job causes itself,
    `cpu_ms` what its threads and child processes run per step, all together. All in milliseconds; None where unknown. A
    device's step includes the waits: its clock runs on. `work_ms` is its time of a step where steps return before.
    """

    def __init__(
        self,
        steps_ms: Sequence[float] = (),
        run_delay_ms: float | None = None,
        own_delay_ms: float | None = None,
        cpu_ms: float | None = None,
        work_ms: float = 0.0,
    ) -> None:
        self.steps_ms = [round(step, _DIGITS) for step in steps_ms]
        self.step_ms = _median(self.steps_ms)
        self.run_delay_ms, self.own_delay_ms, self.cpu_ms, self.work_ms = run_delay_ms, own_delay_ms, cpu_ms, work_ms


class CudaClock:
    """Marks on a device's queue: CUDA events on the current stream."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def event(self) -> Any:
        """A mark behind all work queued so far; None while a graph is captured, which admits no event."""
        if self.cuda.is_current_stream_capturing():
            return None
        event = self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def steps_ms(self, events: List[Any]) -> Optional[List[float]]:
        """Milliseconds between consecutive marks; None where the device does not say."""
        if any(event is None for event in events):
            return None
        self.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in zip(events, events[1:])]


class RunDelay:
    """Time that the calling thread waited for a CPU since it began, in ns; None where the system does not say.

    A program may close all files and give the number of this one to its own, which is then left alone.
    """

    def __init__(self) -> None:
        try:
            self.file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self.file = -1
        self.opened = os.fstat(self.file)[_PLACE] if self.file >= 0 else None

    def __call__(self) -> int | None:
        try:
            return int(os.pread(self.file, 64, 0).split()[1]) if os.fstat(self.file)[_PLACE] == self.opened else None
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        """Give the file back."""
        if self() is not None:
            os.close(self.file)
        self.file = -1


class Lap:
    """Ends of consecutive steps on the host's clock; on a device's, where a device works behind the host."""

    def __init__(self, device: CudaClock | None = None) -> None:
        self.run_delay = RunDelay()
        self.device = device
        self.events: list[Any] = []
        self.ends: list[tuple[int, int | None]] = []
        self.sent_ns: int | None = None  # when the last step had handed all its work over
        self.work = work()
        self.add()

    @property
    def steps(self) -> int:
        """How many steps have ended."""
        return len(self.ends) - 1

    def add(self) -> None:
        """The end of a step."""
        delay_ns, at_ns = self.run_delay(), now_ns()
        if (again_ns := self.run_delay()) != delay_ns:  # it lost its CPU between the two
            delay_ns, at_ns = again_ns, now_ns()
        self.ends.append((at_ns, delay_ns))
        if self.device:
            self.events.append(self.device.event())

    def sent(self) -> None:
        """The last step has handed its work over: what follows waits until that of all steps is done."""
        self.sent_ns = now_ns()

    def close(self) -> Times:
        """The steps without the waits for a CPU that others cause; ends the lap.

        Where the wait for what steps handed over is longer than two of them, each takes its part of all: it is no step.
        """
        self.run_delay.close()
        steps = list(zip(self.ends, self.ends[1:]))
        after = work()
        part = others_part(self.work, after, cpus(), self.ends[-1][0] - self.ends[0][0])
        cpu_ms = None
        if self.work and after and steps:
            cpu_ms = max(0, after.run_ns - self.work.run_ns) / 1e6 / len(steps)
        waits = [None if a is None or b is None else (b - a) / 1e6 for (_, a), (_, b) in steps]
        known = [wait for wait in waits if wait is not None]
        delay_ms = sum(known) / len(steps) if steps and len(known) == len(steps) else None
        of_others, own = (None if delay_ms is None else of * delay_ms for of in (part, 1 - part))
        steps_ms, work_ms = self.device.steps_ms(self.events) if self.device else None, 0.0
        if steps_ms is None:
            lengths = ((end - start) / 1e6 for (start, _), (end, _) in steps)
            steps_ms = [max(_LEAST_MS, ms - part * (wait or 0.0)) for ms, wait in zip(lengths, waits)]
            begin_ns, end_ns = self.ends[0][0], self.ends[-1][0]
            sent_ns = self.sent_ns or end_ns
            if (end_ns - sent_ns) * len(steps) > _QUEUED * (sent_ns - begin_ns):
                work_ms = sum(steps_ms) / len(steps_ms)
                steps_ms = [work_ms] * len(steps_ms)
        return Times(steps_ms, of_others, own, cpu_ms, work_ms)


def evened(steps_ms: Sequence[float], work_ms: float) -> list[float]:
    """Steps that return before their work is done, with equal parts of the time up to where the host waited for it."""
    even, total_ms = list(steps_ms[:0]), 0.0
    for at, step_ms in enumerate(steps_ms, 1):
        total_ms, size = total_ms + step_ms, at - len(even)
        if total_ms >= size * work_ms:
            even += [total_ms / size] * size
            total_ms = 0.0
    return even + [work_ms] * (len(steps_ms) - len(even))


def long_steps(laps: Sequence[Sequence[float]]) -> Tuple[Set[int], float]:
    """The numbers of the steps that are far longer than the median of their lap, and what they take beyond it, in ms.

    Far longer is by three standard deviations, robustly, by a tenth, and by more than a sample of the stacks takes.
    """
    numbers: Set[int] = set()
    first, excess_ms = 0, 0.0
    for steps_ms in laps:
        median = _median(steps_ms) or 0.0
        spread = _median([abs(step - median) for step in steps_ms]) or 0.0
        limit = median + max(_THREE_SIGMA * spread, _LEAST_EXCESS * median, _SAMPLE_MS)
        longer = {at: step - median for at, step in enumerate(steps_ms, first) if step > limit}
        numbers.update(longer)
        first, excess_ms = first + len(steps_ms), excess_ms + sum(longer.values())
    return numbers, excess_ms


def thinned(steps_ms: Sequence[float]) -> list[float]:
    """The medians of twenty equal pieces of a run of steps; none of fewer than forty steps."""
    size = len(steps_ms) // _PIECES
    pieces = [steps_ms[at * size : (at + 1) * size] for at in range(_PIECES)] if size >= _LEAST_PIECE else []
    return [median for median in map(_median, pieces) if median is not None]


def _median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


_LONG = 5  # times the typical step


class Tail:
    """Counts the steps that end after the recording, and those that are long without their waits for a CPU.

    `step_ms` is the typical step, and `number` of them ended so far. `work_ms` is as `Times` has it.
    """

    def __init__(self, step_ms: float, number: int, work_ms: float = 0.0) -> None:
        self.step_ms, self.number, self.work_ms = step_ms, number, work_ms
        self.steps, self.long, self.first, self.open = 0, 0, 0, 0  # the last: steps whose work may go on
        self.all_ms = self.long_ms = self.open_ms = 0.0
        self.run_delay = RunDelay()
        self.at_ns, self.waited_ns = self._now()
        self.began_ns = self.at_ns

    def step(self) -> None:
        """A step ended."""
        at_ns, waited_ns = self._now()
        step_ms = (at_ns - self.at_ns - (waited_ns - self.waited_ns)) / 1e6
        self.at_ns, self.waited_ns = at_ns, waited_ns
        self.steps += 1
        self.all_ms += step_ms
        self.open_ms, self.open = self.open_ms + step_ms, self.open + 1
        if self.open_ms >= self.open * self.work_ms:
            if self.open_ms > _LONG * self.open * self.step_ms:
                self.first = self.first or self.number + self.steps
                self.long += self.open
                self.long_ms += self.open_ms
            self.open_ms, self.open = 0.0, 0

    @property
    def seconds(self) -> float:
        """How long ago the recording ended."""
        return (time.perf_counter_ns() - self.began_ns) / 1e9

    def facts(self) -> Dict[str, Any]:
        """What came of it; `first` is the number of the first long step."""
        return {name: getattr(self, name) for name in ("steps", "long", "first", "all_ms", "long_ms", "step_ms")}

    def _now(self) -> tuple[int, int]:
        return time.perf_counter_ns(), self.run_delay() or 0
