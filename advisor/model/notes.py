"""What a reader of a report should know of the recording and of how it was read and judged: codes, and the words."""

from typing import Final

from advisor.model.clause import Clause
from advisor.text import ns
from advisor.vocabulary.limits import QUEUED_GAP_NS

_AS_STEPS: Final = (
    'the {ranges:count} ranges "{label}" of one thread count as the steps: between the first and the last'
)
_COVER: Final = (
    "{of_all:?, and }{of_all:percent}{of_all:? of all that was recorded}{option:?; --step-range chooses other ranges}"
)
_BY_CALLS: Final = "no steps are marked, so a step lasts from one"
_TO_NEXT: Final = "to the next ({confidence} confidence that this is a step)"
FRAGMENT: Final = "fragment"
_ONE_JOB: Final = "may be of different jobs; keep one job per folder"

NOTES: Final = {
    # how a file could be read
    "malformed": "some of the file is malformed: repaired where possible",
    "ends_early": "the end of the file is missing or damaged: what comes before it counts",
    "gzip_damaged": "the gzip data is damaged (or its checksum is wrong): what comes before the damage counts",
    "gzip_cut_off": "the gzip data ends early: what comes before counts",
    "bytes_changed": "the file was copied or opened as text (UTF-8), which changed its bytes",
    "cut_off": "the file is cut off after {bytes:bytes}",
    "damaged": "the file is damaged at byte {byte:count}",
    "no_header": "the header could not be read: devices and ranks are unknown",
    "no_rank_of_job": "the header says rank {rank}{size:? of }{size}, and no job has such a rank: left out",
    "untimed_events": "{events:count event} without a valid start and length left out",
    "unreadable_events": "{events:count unreadable event} left out",
    "odd_values": "{values:count value} of events, such as a text for a number, taken as unknown",
    "other_processes": "{processes:count other process} in the file launched nothing on the GPU: left out",
    "partial_lines": "{lines:count} of the threads and streams could be read in part only",
    "open_ranges": "{ranges:count NVTX range} never closed, left out",
    "unsound_ops": "{rows:count} of {ops:count device op} have no sound times and are left out",
    "viewers_copy": "only the trace viewer's copy: no memory, no data of the devices, at most 1 M events",
    "profiler_message": "the profiler says: {message}",
    "newest_run": "the newest of {runs:count} runs: {run}; --run NAME or --all-runs takes others",
    "last_cycle": (
        "{recordings:count recording} of the same process with fewer than half of these steps left out: without "
        "`repeat=1` the profiler's schedule begins again; --all-runs takes all"
    ),
    "long_ops": (
        "even the shortest ops take {shortest:ms}: the times may be in nanoseconds, and those of a Chrome trace are in "
        "microseconds; or short ops were left out"
    ),
    "several_formats": "this folder holds {formats} profiles: each format is a separate run, even if of one job",
    # what the recording holds
    "holds_secrets": (
        "the file holds the values of {names}{more:?, and }{more:count}{more:? more variables}, and everybody who gets "
        "it can read them; `advisor scrub FILE -o CLEAN` writes a copy without them"
    ),
    "tpu": "a TPU profile: its XLA ops are read as kernels; what only TPUs have is left out",
    FRAGMENT: (
        "kernels were recorded in only {kernels:ms} of the {host:ms} in which the host runs ops; the numbers may not "
        "be those of a usual step"
    ),
    "whole_graphs": (
        "CUDA graphs recorded as a whole ({times:count time}): what runs, waits or idles inside one is unknown; "
        "--cuda-graph-trace=node records it"
    ),
    "busy_machine": (
        "the machine was busy: other programs kept the CPU from the job for {delay:ms} of a recorded step on average; "
        "host times are too long by that, so record on a quiet machine"
    ),
    "few_cpus": (
        "the host's threads waited for a CPU for at least {share:percent} of the time: {ops:count op} without work, "
        "such as a view, took up to {longest:ms}; host times are too long by that, so record on a quiet machine, or "
        "give the job more cores"
    ),
    "unrecorded_start": (
        "the recording began {length:ms} earlier: that time is left out, because the GPU was busy with work that was "
        "not recorded"
    ),
    "barely_recorded": (
        "too little was recorded to say where the time goes: another thread or process may do the work; start the "
        "profiler in the one that runs the model"
    ),
    "graph_pauses": (
        f"{{share:percent}} of the time is pauses of at most {ns(QUEUED_GAP_NS)} between nodes of CUDA graphs: a "
        "profiler that records nodes makes such pauses itself; record graphs as a whole to see how long they take"
    ),
    "busiest_processes": "{read:count} of {processes:count} processes were read: those with most work",
    "busiest_devices": "{measured:count} of {devices:count} devices were measured: those with most work",
    # clocks
    "clock_ahead": "the clock of device {device} is {offset:ms} ahead of the host's: its times were moved by that",
    "clock_behind": "the clock of device {device} is {offset:ms} behind the host's: its times were moved by that",
    "early_ops": "{ops:count device op} began before the call of the same number: what launched such an op is unknown",
    "ranks_aligned": (
        "the ranks' clocks differ by up to {shift:ms}; aligned by the ends of their collectives{far:?; unless that is "
        "how far their hosts' clocks are off, they are of different jobs}"
    ),
    # steps
    "no_step_range": "a process has no range called like --step-range {pattern}",
    "ranges_launch": f"{_AS_STEPS} they launched {{inside:percent}} of the device's work{_COVER}",
    "ranges_hold": f"{_AS_STEPS} they hold {{inside:percent}} of the ops' time{_COVER}",
    "steps_by_optimizer": f"{_BY_CALLS} call of Optimizer.step {_TO_NEXT}",
    "steps_by_requests": f"{_BY_CALLS} request for a batch {_TO_NEXT}",
    "steps_by_work": (
        f"{_BY_CALLS} sequence of {{ops:count op}} {_TO_NEXT}; the {{turns:count}} that are equal, or nearly so, hold "
        "{share:percent} of the work"
    ),
    "steps_by_calls": f"{_BY_CALLS} call of {{call}} {_TO_NEXT}",
    "steps_by_executions": f"{_BY_CALLS} execution of {{program}} on XLA's threads {_TO_NEXT}",
    "steps_late_executions": (
        "JAX runs what a step dispatches after the step's range: a step lasts from one execution of {program} on XLA's "
        "threads to the next"
    ),
    "steps_late": (
        "the {marks} steps are not used: JAX runs most of what they dispatch after their ranges; call "
        "jax.block_until_ready at the end of each step that is recorded"
    ),
    "marks_unused": (
        "the marks of steps are not used: nothing in the recording joins the device's work with the host's calls"
    ),
    "pauses": "{pauses:count pause} between steps ({total:ms} in all, after {after}) left out",
    "replayed": "savings are replayed on {replayed:count} of {steps:count} used steps, which follow each other",
    # ranks
    "rank_repeated": "more than one file claims rank {ranks}: taken as different jobs; keep one job per folder",
    "same_rank": (
        "all files say rank {rank}, but are of different processes: the ranks are taken from {order:?the order of }the "
        "file names"
    ),
    "no_rank": (
        "{silent:count} of {files:count} files do not say their rank, which is taken from {order:?the order of }the "
        "file names"
    ),
    "other_process": (
        "recorded at the same time without a GPU and without a rank, so not judged alone: {files}{more:? and others}"
    ),
    "different_gpus": f"the ranks use different GPUs ({{models}}): they {_ONE_JOB}",
    "one_rank_of_job": (
        "only rank {ranks} of {job:count} was recorded: its own times hold, but who waits for whom is not known; "
        "record the others, too"
    ),
    "some_ranks_of_job": (
        "{here:count} of {job:count} ranks were recorded (ranks {ranks}): each rank's own numbers hold; waiting is "
        "counted between these only"
    ),
    "ranks_apart": (
        "{ranks} left out where ranks are compared: of the steps that most ranks recorded, none is complete there"
    ),
    "ranks_strangers": f"{{ranks}} never meet each other: their files {_ONE_JOB}",
    "ranks_sittings": f"not recorded at one time ({{ranks}}): the files {_ONE_JOB}",
    "common_steps": "comparisons between ranks rest on the {steps:count step} that all of them recorded",
    "job_sizes_differ": f"the files disagree on the number of ranks: they {_ONE_JOB}",
    "unmatched": "{share:percent} of the time in collectives could not be matched between the ranks",
    # rules
    "own_rule": "{rule} is your own rule, in place of the shipped one",
    "renamed": "{place}: {old} is called {new} now; write {new}",
    "suppression_expired": "the suppression of {rule} expired on {until} ({reason})",
    # the store of a fleet
    "wrong_labels": "{path}: {why}",
    "copies": "{path}: a copy of {home}, whose labels count{more:?, and }{more:count}{more:? more such}",
    "not_judged_again": "{run}: cannot be judged again: {why}",
}
"""Notes as clauses without a full stop; see `clause.words` for names in braces."""


DOUBTS: Final = frozenset(
    {
        *("malformed", "ends_early", "gzip_damaged", "gzip_cut_off", "bytes_changed", "cut_off", "damaged"),
        *("untimed_events", "unreadable_events", "odd_values", "partial_lines", "unsound_ops", "long_ops", "early_ops"),
        *(
            FRAGMENT,
            "busy_machine",
            "few_cpus",
            "barely_recorded",
            "ranks_strangers",
            "ranks_sittings",
            "job_sizes_differ",
        ),
    }
)
"""Notes that make numbers doubtful."""


class Note(Clause):
    """A code of `NOTES` with its facts."""

    sentences = NOTES
