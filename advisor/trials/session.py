"""A session of trials: the program as it is, each fix alone, those that helped together; and how busy the cores are."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Final

from advisor import __version__
from advisor.errors import UsageError
from advisor.model.clause import Missing
from advisor.model.reason import Reason
from advisor.model.report import Report
from advisor.model.trials import Gain, Trial, Trials
from advisor.recording.launcher import gone_afterwards
from advisor.recording.signals import interrupting
from advisor.trials import ideas, processes
from advisor.trials.ideas import Idea
from advisor.trials.measurement import Base, Bench
from advisor.trials.processes import Program

_STAT: Final = Path("/proc/stat")
_LOOK_S: Final = 0.5
_BUSY: Final = 0.2  # of the cores' time: less is the machine's own
_IDLE: Final = slice(3, 5)  # idle, and idle while a disk is waited for


def busy_share() -> float | None:
    """The share of the time of this process's cores that programs use now; None where the system does not say."""
    available = getattr(os, "sched_getaffinity", None)
    cores = available(0) if available else range(os.cpu_count() or 1)
    ticks_before, idle_before = cpu_time(_lines(), cores)
    time.sleep(_LOOK_S)
    ticks, idle = cpu_time(_lines(), cores)
    return 1 - (idle - idle_before) / (ticks - ticks_before) if ticks > ticks_before else None


def cpu_time(lines: Iterable[str], cores: Iterable[int]) -> tuple[int, int]:
    """The ticks of these cores since they were started, and those idle, of the lines of `/proc/stat` (proc(5))."""
    names = {f"cpu{core}" for core in cores}
    each = [[int(ticks) for ticks in line.split()[1:9]] for line in lines if line.split(" ", 1)[0] in names]
    return sum(map(sum, each)), sum(sum(ticks[_IDLE]) for ticks in each)


def calming(share: float | None) -> Mapping[str, str]:
    """Variables of a program that others keep from its cores; none on a quiet machine, or where it has its own.

    Threads that share an op spin until all are done: at a load of 11 on two cores the median step of a script took 2.7
    s, and 26 ms with threads that sleep.
    """
    is_busy = share is not None and share > _BUSY and "OMP_WAIT_POLICY" not in os.environ
    return {"OMP_WAIT_POLICY": "passive"} if is_busy else {}


def _lines() -> list[str]:
    with suppress(OSError):
        return _STAT.read_text("ascii").splitlines()
    return []


_SHARES_WITH_BASE: Final = 2  # of the time that is left: on a busy machine it would take all


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to try."""

    fixes: Sequence[str] = ()  # rules whose fixes to try; without these and `patches` all findings of a recording
    patches: Sequence[str] = ()  # `NAME:key=value,...` each
    recording: str | None = None  # of this program: its findings, in place of those of a new one
    within: float = 0.05  # half-width of the interval to reach, as a share of the step
    budget_s: float = 900.0  # seconds for all runs
    scratch: bool = False  # run in a copy of the working folder
    keep_trackers: bool = False  # leave trackers of experiments online
    may_repeat: Callable[[Sequence[str]], bool] = lambda _: True  # of the files that a run wrote: whether to run again
    tell: Callable[[str, Gain | None], None] = lambda *_: None  # gets the name of what is tried and the gain so far


@dataclass
class Session:
    """What is known of a program so far; `outcome` is complete at any time."""

    command: Sequence[str]
    options: Options
    began: float = field(default_factory=time.monotonic)
    base: Base | None = None
    trials: list[Trial] = field(default_factory=list)
    chosen: list[Idea] = field(default_factory=list)
    untried: list[Idea] = field(default_factory=list)
    files: tuple[str, ...] = ()
    notes: list[Reason] = field(default_factory=list)
    cut_by: int | None = None  # the signal that ended it

    def run(self) -> Trials:
        """Try everything; Ctrl-C, or a signal that asks us to end, ends it with what is known.

        A UsageError where the program cannot be started or may not run again, or a patch or rule is wrong.
        """
        chosen = [ideas.of_option(text) for text in self.options.patches]  # wrong ones before any run
        ideas.check_fixes(self.options.fixes, Path.cwd())
        try:
            place = Path(tempfile.mkdtemp(prefix=processes.TEMPORARY))
            with interrupting(), gone_afterwards(place, "end"):
                trackers = {} if self.options.keep_trackers else processes.offline(place)
                scratch = processes.copied(Path.cwd(), place / "scratch") if self.options.scratch else Path.cwd()
                self._try(Program(self.command, place, scratch, trackers), chosen)
        except KeyboardInterrupt as interrupt:
            (self.cut_by,) = interrupt.args or (signal.SIGINT,)
            cut = Missing("session_cut")
            self.trials += [not_tried(idea, cut) for idea in self.chosen[len(self.trials) :]]
        return self.outcome()

    def outcome(self) -> Trials:
        """What is known."""
        base = self.base
        return Trials(
            advisor_version=__version__,
            program=program_name(self.command),
            step_ms=base.step_ms if base else None,
            start_up_s=base.ready.seconds if base else None,
            spread=base.spread if base else None,
            ranks=base.ready.ranks if base else 1,
            device=base.ready.device if base else "cpu",
            within=self.options.within,
            trials=tuple(self.trials),
            untried=tuple(untried.name for untried in self.untried),
            largest_untried=ideas.largest_untried(self.chosen, self.untried),
            files=self.files,
            notes=tuple(self.notes),
            seconds=time.monotonic() - self.began,
            is_cut=self.cut_by is not None,
        )

    def _try(self, program: Program, chosen: list[Idea]) -> None:
        bench = Bench(program, self.options.within, self.began + self.options.budget_s, self.options.tell)
        looks = bool(self.options.fixes) or not chosen
        with self._files_of_first_run(program):
            if looks:
                chosen = [*self._of_findings(bench), *chosen]
            is_first = bool(self.options.recording or not looks)
            if chosen and is_first:
                self._time_base(bench)
        self.chosen = chosen
        if chosen and not is_first:
            self._time_base(bench)
        if self.base is None:
            return
        for number, idea in enumerate(chosen):
            helped = any(trial.is_recommended for trial in self.trials)
            self.trials.append(self.attempt(bench, idea, self.base, len(chosen) - number + helped))
        helpful = [idea for idea, trial in zip(chosen, self.trials, strict=True) if trial.is_recommended]
        if len(helpful) > 1:
            self.trials.append(self.attempt(bench, ideas.together(helpful), self.base, 1))

    def calm(self, program: Program) -> Program:
        """The program with threads that sleep, from the first time on that others keep the cores busy."""
        share = busy_share()
        variables = calming(share)
        if share is None or not variables or variables.items() <= program.variables.items():
            return program
        self.notes.append(Reason.of(Missing("cores_busy", share=share)))
        return replace(program, variables={**program.variables, **variables})

    def _time_base(self, bench: Bench) -> None:
        bench.program = self.calm(bench.program)
        bench.allot(_SHARES_WITH_BASE)
        self.base, ended = bench.base()
        if self.base is None:
            self.notes.append(Reason.of(ended.why("no_step_ended")))

    def attempt(self, bench: Bench, idea: Idea, base: Base, trials: int) -> Trial:
        """The next of so many trials; one that cannot end in the time that is left is not begun."""
        least_s, remaining_s = base.seconds_for(idea), bench.remaining_s
        if earlier := next((trial for trial in self.trials if trial.uses == idea.uses), None):
            return not_tried(idea, Missing("tried_already", name=earlier.name))
        if least_s > remaining_s:
            return not_tried(idea, Missing("budget_spent", needed=1e3 * least_s, remaining=1e3 * remaining_s))
        bench.program = self.calm(bench.program)
        bench.allot(trials, least_s)
        return bench.trial(idea, base)

    def _of_findings(self, bench: Bench) -> list[Idea]:
        if self.options.recording is None:
            bench.program = self.calm(bench.program)
        report = ideas.diagnosed(bench.program, self.options.budget_s, self.options.recording)
        if isinstance(report, Report):
            bench.step_ms = max((run.source.steps.length_ms or 0.0 for run in report.runs), default=0.0) or None
            chosen, self.untried = ideas.of_report(report, self.options.fixes)
            if not chosen:
                self.notes.append(Reason.of(Missing("nothing_to_try")))
            return chosen
        self.notes.append(report)
        return []

    @contextmanager
    def _files_of_first_run(self, program: Program) -> Iterator[None]:
        """What the run inside writes below the working folder is listed, and running it again is asked for."""
        place = program.cwd
        before, others = processes.snapshot(place), processes.open_now(place)
        yield
        changed = processes.written(before, processes.snapshot(place))
        self.files = tuple(sorted({*changed} - others - processes.open_now(place)))
        if self.files and not self.options.scratch and not self.options.may_repeat(self.files):
            names = ", ".join(self.files[:3])
            raise UsageError(f"files changed while the program ran ({names}), and may again; give --scratch or --yes")


def not_tried(idea: Idea, reason: Missing) -> Trial:
    """What is known of an idea that there was no time for."""
    return Trial(**vars(idea), result="not_tried", reasons=(Reason.of(reason),))


def program_name(command: Sequence[str]) -> str:
    """The script's name, else the program's: no argument, which may be anybody's secret."""
    scripts = [word for word in command if word.endswith(".py")]
    return PurePath((scripts or command)[0]).name
