"""Times a program with patches and without, in blocks of one process or pairs of processes; judges each trial."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import Any, Final, Literal, TypeAlias

from advisor.model.clause import Missing
from advisor.model.reason import Reason
from advisor.model.trials import Gain, Result, Trial, Use
from advisor.trials import timings
from advisor.trials.ideas import Idea, toggles, variables
from advisor.trials.processes import Ended, Events, Program, run
from advisor.trials.timings import BLOCKS, LEAST_PAIRS, PROCESSES, Ladder, gain


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured of some patches."""

    by: Literal["blocks", "processes"]
    turns: Sequence[timings.Block]
    gain: Gain | None
    is_reached: bool
    patched: Ended  # the first run with them
    last: Ended  # of all runs
    is_over_time: bool = True  # the time was over, not the program


def trial_of(idea: Idea, evidence: Evidence, digests: Sequence[float | None], seconds: float) -> Trial:
    """The result, with what it rests on."""
    account = timings.account(evidence.patched.events)
    result = _result(evidence, account)
    is_measured = result not in {"not_applied", "failed", "not_tried"}
    gain = evidence.gain.model_copy(update={"spread": timings.spread(evidence.turns)}) if evidence.gain else None
    reasons = [Missing(f"patch_{code}", **{**facts, "patch": name}) for code, (name, facts) in account.refusals.items()]
    if result == "not_applied" and not reasons:
        reasons.append(Missing("patch_without_effect"))
    if result in {"failed", "not_tried"}:
        reasons.append(evidence.last.why("no_step_ended"))
    if result == "unclear" and evidence.gain is None:
        pairs = len(timings.log_ratios(evidence.turns))
        too_few = Missing("too_few_pairs", pairs=pairs, needed=LEAST_PAIRS)
        reasons.append(too_few if evidence.is_over_time else Missing("program_short"))
    return Trial(
        **vars(idea),
        result=result,
        gain=gain if is_measured else None,
        before_ms=timings.mean_ms(evidence.turns, on=False) if is_measured else None,
        after_ms=timings.mean_ms(evidence.turns, on=True) if is_measured else None,
        by=evidence.by,
        training=timings.training(digests, timings.digest(evidence.patched.events)) if is_measured else "unknown",
        proof={**account.hits, **account.proof} if is_measured else {},
        reasons=tuple(map(Reason.of, reasons)),
        seconds=seconds,
    )


def _result(evidence: Evidence, account: timings.Account) -> Result:
    if any(run.exit_code and not run.is_late for run in (evidence.patched, evidence.last)):
        return "failed"
    if timings.ready(evidence.patched.events) is None:
        return "not_tried" if evidence.patched.is_late else "failed"
    if not account.is_applied:
        return "not_applied"
    return verdict(evidence.gain, is_narrow=evidence.is_reached)


def verdict(gain: Gain | None, *, is_narrow: bool) -> Result:
    """What an interval shows: it excludes 1, or it is narrow around it, or neither."""
    if gain is None:
        return "unclear"
    if gain.high < 1:
        return "faster"
    if gain.low > 1:
        return "slower"
    return "same" if is_narrow else "unclear"


_SKIP: Final = 10  # steps before anything is timed: first uses, caches, allocations
_STEPS, _FEWEST_STEPS = 9, 2  # timed steps of a block; one more comes first
_BLOCK_S: Final = 2.0  # that a block times at most: load on the machine comes and goes in seconds
_BASE_PAIRS: Final = BLOCKS[1]
_PROCESS_S: Final = 2.0  # that a process times at least
_FEWEST_BLOCKS, _MOST_BLOCKS = 4, 30
_NOTICE_S: Final = 1.0  # by which all ranks have read when to end
_RESERVE_S: Final = 3.0  # of the budget, to end a run in order
_TURNS: Final = (True, False, False, True)  # a patch that does not apply shows at once

Arm: TypeAlias = Literal["on", "off", "turns"]
Tell: TypeAlias = Callable[[str, Gain | None], None]  # gets the name of what is tried, and what is known of it so far


@dataclass(frozen=True, slots=True)
class Base:
    """The program as it is: what its first timed run showed. `block_s` is what a block takes, waits included."""

    step_ms: float
    ready: timings.Ready
    spread: Gain | None
    block_s: float

    @property
    def blocks(self) -> int:
        """How many blocks a process of its own times."""
        block_ms = block_steps(self.step_ms) * self.step_ms
        return min(_MOST_BLOCKS, max(_FEWEST_BLOCKS, ceil(_PROCESS_S * 1e3 / block_ms)))

    def seconds_for(self, idea: Idea) -> float:
        """What trying it takes up to the first look, after the start of each process."""
        if toggles(idea.uses, self.ready.device):
            return self.ready.seconds + 2 * BLOCKS[0] * self.block_s
        return 2 * PROCESSES[0] * (self.ready.seconds + self.blocks * self.block_s)


def block_steps(step_ms: float | None) -> int:
    """Timed steps of a block: nine, fewer of long steps."""
    return _STEPS if step_ms is None else min(_STEPS, max(_FEWEST_STEPS, int(_BLOCK_S * 1e3 / step_ms)))


@dataclass
class Bench:
    """Measures one program, without patches and with them."""

    program: Program
    within: float  # half-width of the interval to reach
    end: float  # on the monotonic clock
    tell: Tell
    step_ms: float | None = None  # as far as it is known: long ones get short blocks
    digests: list[float | None] = field(default_factory=list)  # of the parameters, of each run without patches

    def __post_init__(self) -> None:
        self.until = self.end

    @property
    def remaining_s(self) -> float:
        """What is left of the budget."""
        return max(0.0, self.end - time.monotonic())

    def allot(self, trials: int, least_s: float = 0.0) -> None:
        """The next of so many trials may take half of the time that is left, the last one all; and what it needs."""
        remaining_s = self.remaining_s
        self.until = time.monotonic() + min(remaining_s, max(remaining_s / min(2, trials), least_s))

    def base(self) -> tuple[Base | None, Ended]:
        """The program as it is, against itself; no base where no block of steps ended."""
        ended = self._run((), "turns", 2 * _BASE_PAIRS, self._telling("as it is"))
        turns = timings.blocks(ended.events)
        ready, step_ms = timings.ready(ended.events), timings.mean_ms(turns, on=False)
        if ready is None or step_ms is None:
            return None, ended
        self.digests.append(ready.digest)
        self.step_ms = step_ms
        against_itself, _ = gain(timings.log_ratios(turns), BLOCKS, 0.0)
        return Base(step_ms, ready, against_itself, (ended.seconds - ready.seconds) / len(turns)), ended

    def itself(self) -> Gain | None:
        """The program against itself, with blocks and an end as a trial has them."""
        return self._in_blocks(Idea("as it is", ())).gain

    def trial(self, idea: Idea, base: Base) -> Trial:
        """Try the patches until the interval is narrow enough or the time is over."""
        began = time.monotonic()
        in_blocks = toggles(idea.uses, base.ready.device)
        evidence = self._in_blocks(idea) if in_blocks else self._in_processes(idea, base.blocks)
        patched = timings.digest(evidence.patched.events)
        if timings.training(self.digests, patched) == "different" and len(self.digests) == 1:
            # Whether the program repeats its own parameters.
            self.digests.append(timings.digest(self._run((), "off", 1, lambda _: None).events))
        return trial_of(idea, evidence, self.digests, time.monotonic() - began)

    def _in_blocks(self, idea: Idea) -> Evidence:
        """Processes whose blocks take turns; mostly one, more where the program ends too soon."""
        turns: list[timings.Block] = []
        runs: list[Ended] = []
        while not runs or self._goes_on(turns, runs[-1]):
            most = 2 * (BLOCKS[-1] - len(turns) // 2)
            runs.append(self._run(idea.uses, "turns", most, self._telling(idea.name, turns)))
            turns += timings.paired(timings.blocks(runs[-1].events))
        return self._evidence("blocks", turns, runs, BLOCKS)

    def _goes_on(self, turns: Sequence[timings.Block], last: Ended) -> bool:
        _, is_reached = gain(timings.log_ratios(turns), BLOCKS, self.within)
        is_fruitful = bool(timings.blocks(last.events)) and timings.account(last.events).is_applied
        is_enough = is_reached or len(turns) >= 2 * BLOCKS[-1] or last.exit_code != 0
        return is_fruitful and not is_enough and self._has_time(last.seconds)

    def _in_processes(self, idea: Idea, blocks: int) -> Evidence:
        """Processes in the order ABBA, neighbours against each other."""
        turns: list[timings.Block] = []
        runs: list[Ended] = []
        while len(turns) < 2 * PROCESSES[-1]:
            on = _TURNS[len(turns) % len(_TURNS)]
            if turns and not self._has_time(max(ended.seconds for ended in runs)):
                break
            runs.append(self._run(idea.uses, "on" if on else "off", blocks, self._telling(idea.name, turns, PROCESSES)))
            blocks_ms = [block.step_ms for block in timings.blocks(runs[-1].events)]
            if not blocks_ms or (on and not timings.account(runs[-1].events).is_applied):
                break
            if not on:
                self.digests.append(timings.digest(runs[-1].events))
            turns.append(timings.Block(on, median(blocks_ms)))  # a hiccup of the machine is no effect of a patch
            if gain(timings.log_ratios(turns), PROCESSES, self.within)[1]:
                break
        return self._evidence("processes", turns, runs, PROCESSES)

    def _evidence(
        self, by: Literal["blocks", "processes"], turns: Sequence[timings.Block], runs: Sequence[Ended], ladder: Ladder
    ) -> Evidence:
        measured, is_reached = gain(timings.log_ratios(turns), ladder, self.within)
        is_over_time = not self._has_time(max(_RESERVE_S, runs[-1].seconds))
        return Evidence(by, turns, measured, is_reached, runs[0], runs[-1], is_over_time=is_over_time)

    def _has_time(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self.until

    def _telling(
        self, name: str, earlier: Sequence[timings.Block] = (), ladder: Ladder = BLOCKS
    ) -> Callable[[Events], int | None]:
        """What watches a run: it tells how it goes, and says when to end."""

        def watch(events: Events) -> int | None:
            blocks = timings.blocks(events)
            ratios = timings.log_ratios([*earlier, *timings.paired(blocks)])
            so_far, is_reached = gain(ratios, ladder, self.within)
            self.tell(name, so_far)
            ready = timings.ready(events)
            hits = [number for event in events if event["event"] == "ready" for number in event["hits"].values()]
            is_futile = bool(hits) and not any(hits)  # no patch took hold
            if is_reached or is_futile or not self._has_time(_RESERVE_S):
                # After how many blocks all ranks are to end: so many ahead that each reads it in time.
                step_ms = blocks[-1].step_ms if blocks else 0.0
                block_s = block_steps(step_ms) * step_ms / 1e3 if step_ms else 0.0
                return len(blocks) + 2 + (ceil(_NOTICE_S / block_s) if block_s and ready and ready.ranks > 1 else 0)
            return None

        return watch

    def _run(self, uses: Sequence[Use], arm: Arm, blocks: int, watch: Callable[[Events], int | None]) -> Ended:
        switches: list[dict[str, Any]] = [{"name": use.patch, "arguments": dict(use.arguments)} for use in uses]
        config = {"patches": switches, "arm": arm, "blocks": blocks, "skip": _SKIP, "stop": True}
        config |= {"steps": block_steps(self.step_ms)}
        return run(self.program, config, variables(uses) if arm != "off" else {}, self.until, watch)
