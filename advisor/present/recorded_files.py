"""What became of a recording, in words: where the files are, what a step takes, or why there is no file."""

import errno
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from signal import Signals
from typing import Any, Final

from advisor.recording.signals import SIGNALLED
from advisor.text import count, listing, ms, one_line

_LONGEST: Final = 80
_BUSY: Final = 0.2  # of a step: with so much of it spent waiting for a CPU, the machine shows in the recording
_AHEAD: Final = 18  # steps from those skipped to the middle of the recorded: ten timed, two to warm up, six recorded
_OFTEN: Final = 0.2  # of the steps: no checkpoint comes so often
_BLIND: Final = ("-I", "-E", "-S")
_IN_CODE: Final = "or record in code: `with advisor.record(...)`"
_REMOVED: Final = "the program removed the log folder; give one with -o that it leaves alone"
DAMAGED: Final = (
    "the program, or what it starts, damaged the recorder's notes in {logdir}, which tell what became of the recording,"
    " or may write no file: give a folder with -o that it leaves alone, or raise the limit: `ulimit -f unlimited`"
)
_NO_STEP: Final = (
    "no step ended: no optimizer stepped, and no model was called, or for less than a minute after an optimizer was"
    " made; give a window of time: `--seconds 10`"
)
_NO_FRAMEWORK: Final = "no process imported torch, jax, keras or tensorflow; give the command that trains"
_BACKGROUND: Final = "the program went on in the background; give a command that ends with the training"
_OTHER_PROFILER: Final = (
    "the program uses a profiler itself, and two at a time lose events; check what it writes, or remove it"
)
_INTERRUPTED: Final = (
    "a signal interrupted a call of the program, maybe the one that samples its lines; record with `--no-samples`"
)
_UNWRITABLE: Final = {  # by the number of the error
    errno.ENOSPC: "the disk of the log folder is full; free some space, or give another folder with -o",
    errno.EMFILE: "the program may open no more files; allow more: `ulimit -n 4096`, or as it sets RLIMIT_NOFILE",
    errno.EFBIG: "the recording is larger than a file of the program may be; raise the limit: `ulimit -f unlimited`",
}
_MARKERS: Final = {
    "optimizer": "a call of {label}.step",
    "engine": "a step of {label}",
    "module": "a call of {label}",
    "function": "a call of {label}",
    "update": "a call of {label}",
    "fit": "a batch of {label}",
    "gradient": "a gradient of {label}",
}


def sentences(
    command: Sequence[str], events: Iterable[Mapping[str, Any]], logdir: str, code: int = 0, *, is_there: bool = False
) -> list[str]:
    """Sentences on the recording of a program with this exit code, or a profile that `is_there`, first what matters."""
    processes = list(_by_process(events).values())
    results = [process["result"] for process in processes if "result" in process]
    files = [result for result in results if result.get("path")]
    interrupted = [_INTERRUPTED] if any("interrupted" in process for process in processes) else []
    markers = [*_markers(processes)]  # first, as it is where damaged notes are found
    if not files:
        if any("damaged" in process for process in processes) and not any("failed" in process for process in processes):
            return [DAMAGED.format(logdir=logdir)]
        if is_there:
            why = _ending(processes, code, "times and lines were in it") or _why_nothing(command, processes, code)
            return [*interrupted, f"1 recording in {logdir}, but {why}"]
        return [*interrupted, f"nothing recorded: {_why_nothing(command, processes, code)}"]
    failed = [_failure(process["failed"]) for process in processes if "failed" in process]
    unread = [f"{count(len(failed), 'rank')} not recorded: {failed[0]}"] if failed else []
    tail = filter(None, [_long_steps(processes)])
    return [*interrupted, *_files(files, processes, logdir), *_steps(files, processes), *tail, *markers, *unread]


def under_way(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sentences on a program that still runs: what ends its steps, and how long the recording takes."""
    processes = list(_by_process(events).values())
    return [*_markers(processes), *filter(None, [_rest(processes)])]


def _rest(processes: Iterable[Mapping[str, Mapping[str, Any]]]) -> str:
    """How long the slowest process still records; empty where none has timed its steps."""
    timed = [event for process in processes if (event := process.get("timed")) and event["step_ms"]]
    slowest = max(timed, key=lambda event: float(event["step_ms"]), default=None)
    if slowest is None:
        return ""
    step_ms, more_ms = slowest["step_ms"], slowest.get("more_ms", 0)
    return f"a step takes {ms(step_ms)}; recording it takes about {ms(step_ms * slowest['steps'] + more_ms)} more"


def _by_process(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    processes: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for event in events:
        processes[event["process"]][event["event"]] = event
    return processes


def _why_nothing(command: Sequence[str], processes: Sequence[Mapping[str, Mapping[str, Any]]], exit_code: int) -> str:
    events = {kind: event for process in processes for kind, event in process.items()}
    counted = max((process["result"]["steps"] for process in processes if "result" in process), default=0)
    if not events or "removed" in events:
        return _REMOVED if events else _never_hooked(command)
    if "stood_back" in events or "failed" in events:
        return _OTHER_PROFILER if "stood_back" in events else _failure(events["failed"])
    failed = f" with exit code {exit_code}" if 0 < exit_code < SIGNALLED else ""
    if counted:
        fewer = "give fewer to skip and to time before it: `--skip 2 --active 3`"
        return f"the program ended{failed} after {count(counted, 'step')}; {fewer}"
    if ending := _ending(processes, exit_code, "the recording was written"):
        return ending
    if not failed:
        return _BACKGROUND if "outlived" in events else _NO_STEP if "framework" in events else _NO_FRAMEWORK
    early = "a step ended" if "framework" in events else "it imported torch, jax, keras or tensorflow"
    return f"the program ended{failed} before {early}"


def _ending(processes: Iterable[Mapping[str, Mapping[str, Any]]], exit_code: int, before: str) -> str:
    """What ended a program amid its recording, by its exit code, and how much was left; empty if all had ended that."""
    cut = [process for process in processes if "framework" in process and "result" not in process]
    causes = {SIGNALLED + signal: f"the signal {signal.name} ended the program" for signal in Signals}
    causes[0] = "`os._exit` ended the program, or the recorder could not write (an audit hook of it may refuse files),"
    rest = f": {rest}; `--active 3` and `--stop` need less" if (rest := _rest(cut)) else ""
    return f"{causes.get(exit_code, 'a signal or `os._exit` ended the program')} before {before}{rest}" if cut else ""


def _never_hooked(command: Sequence[str]) -> str:
    if option := next((word for word in command if word in _BLIND), None):
        return f"Python does not read PYTHONPATH with `{option}`; remove it, {_IN_CODE}"
    if any(word.startswith("PYTHONPATH=") for word in command):
        return "the command sets PYTHONPATH anew; set it in front: `PYTHONPATH=... advisor record -- ...`"
    cause = "A wrapper may overwrite it, or run the program as another user, who cannot read the recorder's folder"
    return f"no Python process read PYTHONPATH. {cause}; call Python directly, as the user of `advisor`, {_IN_CODE}"


def _failure(event: Mapping[str, Any]) -> str:
    if number := event.get("number"):
        return _UNWRITABLE.get(number) or f"the log folder cannot be written: {os.strerror(number)}"
    return f"advisor failed in the program, which ran on ({one_line(str(event.get('kind')), _LONGEST)})"


def _files(
    files: Sequence[Mapping[str, Any]], processes: Iterable[Mapping[str, Mapping[str, Any]]], logdir: str
) -> Iterator[str]:
    yield f"{count(len(files), 'recording')} in {logdir}"
    worlds = [int(file["world"]) for file in files if re.fullmatch("[0-9]{1,9}", str(file.get("world")))]
    if worlds and max(worlds) > len(files):
        names = listing(sorted({PurePath(file["path"]).name for file in files}))
        ended = sum("marker" in process and "result" not in process for process in processes)  # the launcher has none
        yield f"{len(files)} of {max(worlds)} ranks are here ({names}): " + (
            f"{count(ended, 'rank')} ended before the recording was written; see above why, and record again"
            if ended
            else f"each node writes into its own {logdir}; copy the files of the others into one folder and run "
            "`advisor check` on it"
        )


def _steps(files: Sequence[Mapping[str, Any]], processes: Sequence[Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Of the process whose steps take longest."""
    blocks = [file["block"] for file in files if (file.get("block") or {}).get("unprofiled", {}).get("before_ms")]
    if blocks:
        block = max(blocks, key=lambda block: block["unprofiled"]["before_ms"])
        unprofiled, profiled = block["unprofiled"], block["profiled"]["step_ms"]
        after = f", {ms(unprofiled['after_ms'])} after it" if unprofiled["after_ms"] else ""
        during = f", {ms(profiled)} in it" if profiled else ""
        before = ms(unprofiled["before_ms"])
        yield f"median step, less its waits for other programs: {before} before the recording{during}{after}"
        waited = block["profiled"].get("run_delay_ms")
        if waited and profiled and waited > _BUSY * profiled:
            delay = f"other programs kept the CPU from it for {ms(waited)} of each recorded step"
            known = [process.get("framework", {}) for process in processes]
            # threads of PyTorch's ops that wait for one without a core hold theirs
            hold = any(framework.get("name") == "torch" and not framework.get("is_passive") for framework in known)
            passive = ", or with `OMP_WAIT_POLICY=passive`: then threads that wait leave their cores" if hold else ""
            yield f"{delay}; record on a quiet machine{passive}"


def _long_steps(processes: Iterable[Mapping[str, Mapping[str, Any]]]) -> str:
    """Of the process that lost most: steps after the recording that take many times as long; empty without any."""
    tails = (process["tail"] for process in processes if process.get("tail", {}).get("long"))
    tail = max(tails, key=lambda tail: float(tail["long_ms"]), default=None)
    if tail is None:
        return ""
    cause = ", maybe because steps grow" if tail["long"] > _OFTEN * tail["steps"] else ""
    return (
        f"not in the recording: {tail['long']:,} of the {count(tail['steps'], 'step')} after it took over five times as"
        f" long ({ms(tail['long_ms'])} of {ms(tail['all_ms'])}){cause};"
        f" `--skip {max(0, tail['first'] - _AHEAD)}` records the first of them"
    )


def _markers(processes: Iterable[Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    marks = {(p["marker"]["kind"], p["marker"]["label"]): None for p in processes if "marker" in p}
    for kind, label in marks:
        yield f"a step ends with {_MARKERS[kind].format(label=one_line(str(label), _LONGEST))}"
