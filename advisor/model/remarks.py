"""What a comparison remarks on its verdict, its sides and its findings: codes, and the same in words."""

from typing import Final

from advisor.model.clause import Clause, Fact
from advisor.model.reason import Reason

_TESTED: Final = "({p:p_value}, {base:count} against {head:count} steps)"

REMARKS: Final = {
    # what the verdict rests on
    "few_steps": "too few steps: {base:count} against {head:count}; profile 10 or more on each side, 20 are better",
    "steps_differ": f"the steps differ by more than their noise {_TESTED}",
    "profiler_costs": (
        "profiler overhead: recording costs about {base:ms} per step on the base and {head:ms} on the head, which may "
        "be the complete change; record both sides with the same settings, without stacks"
    ),
    "no_complete_step": (
        "no complete step on the {sides}: the recording ends early, or each step compiles; record it again"
    ),
    "no_marked_step": "no marked, complete step on the {sides}: mark each step",
    "no_marked_step_kineto": "no marked, complete step on the {sides}: call `prof.step()` at the end of each step",
    "no_marked_step_nsys": (
        "no marked, complete step on the {sides}: put each step in an NVTX range, or name the ranges with "
        "`--step-range`"
    ),
    "no_marked_step_xplane": (
        "no marked, complete step on the {sides}: record complete steps, each in a `StepTraceAnnotation` or `Trace`"
    ),
    "one_recording": "both sides are the same recording",
    "change_excluded": f"the steps exclude a change of {{share:percent}} or more {_TESTED}",
    "shared_recording": f"a recording is on both sides ({{runs}}): remove it from one of them {_TESTED}",
    "noise": (
        "the steps vary too much: the head takes {low:number} to {high:number} times as long as the base "
        f"{_TESTED}; profile more steps"
    ),
    "noise_of_runs": (
        "the runs vary too much: the head takes {low:number} to {high:number} times as long as the base "
        f"{_TESTED}; give more runs of each side"
    ),
    "other_hardware": "different hardware: {base} against {head}",
    "other_machine": (
        "the machine differs, or the cores or clocks that the job gets: {ops:count} ops that did not change take "
        "{ratio:times_as_long} each"
    ),
    "other_machine_or_work": (
        "the machine differs, or the sizes or types of the ops do, which were not recorded: {ops:count} ops of the "
        "same names take {ratio:times_as_long} each"
    ),
    "other_programs": (
        "other programs kept the CPU from the job for {base:ms} of each step on the base and {head:ms} on the head, "
        "which is at least half of the change; record both sides on a quiet machine"
    ),
    "busy_sides": (
        "other programs kept the CPU from the job for {base:ms} of each step on the base and {head:ms} on the head, "
        "which changes the pace of all work: compare on a quiet machine, or record each side {runs} times in turns and "
        "give all runs (`--base`, `--head`)"
    ),
    "other_pace": (
        "{ops:count} ops that did not change take {ratio:times_as_long} each, and no other program used the cores: the "
        "change itself (threads, caches, memory layout) or the clocks may be the reason"
    ),
    "unprofiled": (
        "timed without the profiler and without waits for other programs, the typical step takes {base:ms} on the base "
        "and {head:ms} on the head"
    ),
    "mixed_hardware": "different hardware within a side: {models}",
    "other_world_size": "different world size: {base} against {head} ranks",
    "mixed_world_size": "different world size within a side: {ranks} ranks",
    # what may explain the verdict besides speed
    "other_sizes": (
        "the work of a step differs: other sizes in {ops:count} of its ops, such as {op} "
        "({base} \N{RIGHTWARDS ARROW} {head})"
    ),
    "other_types": (
        "the work of a step differs: other types in {ops:count} of its ops, such as {op} "
        "({base} \N{RIGHTWARDS ARROW} {head})"
    ),
    # what the comparison rests on
    "repeated_path": "given {times:count} times for the {side}, counted once: {path}",
    "not_measured": (
        "not measured: the {sides}; parts of the step, kernels and ops are not compared, and a finding of one side may "
        "be on the other too"
    ),
    "no_steps": (
        "no steps on the {sides}: its times are of the complete recording; parts are compared as shares, kernels and "
        "ops are not compared"
    ),
    "phase_of_steps": (
        "step times are those of the steps that {phase}; parts, kernels and findings are of all steps: other prompts "
        "change them too"
    ),
    "common_ranks": "step times are those of the {ranks:count} ranks that all runs recorded, of {recorded:count}",
    "other_frameworks": "the sides were recorded with different frameworks",
    "other_profilers": (
        "the sides were recorded with different profilers: names of work may differ for that reason alone"
    ),
    "settings_of_one_side": "only the {side} was recorded with {settings}",
    "hidden_work": "could not tell which kernels and copies are new, gone or more frequent: {why}",
    "no_work_tables": ("the {side} is a report without tables of kernels and ops: write it again from its profile"),
    "read_with_note": "the {side} was read with a note ({note})",
    "read_with_notes": "the {side} was read with a note ({note}) and {more:count} more",
    "unreadable": "could not read {path} of the {side}: {why}",
    "unreadable_alike": "could not read {path} of the {side}: {why} (the same for {others:count} more)",
    "unreadable_others": "could not read {files:count} more files of the {side}",
    # why nothing can be said of a finding
    "side_not_measured": "the {side} was not measured",
    "side_without_steps": ("no steps are marked on the {side}: the recording may end before what showed the finding"),
    "side_could_not_tell": "the {side} could not tell: {why}",
    "suppressed": "suppressed on the {side}",
    "dwarfed": "its time is as before ({base:ms} and {head:ms} per step), in a longer step",
    "dominant": "its time is as before ({base:ms} and {head:ms} per step), in a shorter step",
    "masked": "the step did not get shorter, and this may hide it: {title}",
    "without_rule": "the {side} was checked without this rule",
}
"""Remarks as clauses without a full stop; see `clause.words` for names in braces."""


class _Remark(Clause):
    sentences = REMARKS


def remark(code: str, **facts: Fact) -> Reason:
    """A remark with these facts."""
    return Reason.of(_Remark(code, **facts))
