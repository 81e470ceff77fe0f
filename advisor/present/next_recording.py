"""How to record the next profile, so that it answers what this one does not: next_recording.yaml."""

import re
from typing import Final

import msgspec

from advisor.model.report import Run
from advisor.present.verdict import was_recorded
from advisor.text import listing
from advisor.vocabulary.limits import table


class Option(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to record next time: an option of a profiler, what it is about, what it adds, and the reasons that it ends.

    `flag` is the option of `advisor record` that sets it, empty where that is set by default.
    """

    option: str
    topic: str
    adds: str
    reasons: tuple[str, ...]
    flag: str = ""


class _Profiler(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"of": "for"}):
    """A profiler's options, and a command to paste that records with some of them."""

    format: str
    options: str
    of: str = ""
    command: str = "advisor record{} -- COMMAND"


class _Recipes(msgspec.Struct, forbid_unknown_fields=True):
    options: dict[str, tuple[Option, ...]]
    profilers: tuple[_Profiler, ...]


_RECIPES: Final = msgspec.convert(table(__file__, "next_recording"), _Recipes)
RECORDING: Final = re.compile(r"`(advisor record (?:--[a-z]+ (?:\d+ )?)*-- COMMAND)`")  # no other: a fix has names
NSYS: Final = "nsys profile "
_OF_NSYS: Final = re.compile(rf"`{NSYS}[^`]*`")
_OPTION: Final = re.compile(r"(--[a-z-]+)=[\w,-]+")  # of Nsight Systems


def recording(run: Run) -> str:
    """`` `advisor record --memory -- COMMAND`; by hand: `profile_memory=True` (how full the memory is)``.

    The command that records what this profile lacks, where there is one, and the profiler's own options that do so.
    """
    options = [f"`{option.option}` ({option.adds})" for option in missing_options(run)]
    by_hand = f"{'by hand' if command(run) else 'the profiler'}: {listing(options)}" if options else ""
    return "; ".join(filter(None, (command(run) and f"`{command(run)}`", by_hand)))


def command(run: Run) -> str:
    """A command to paste that records what this profile lacks; empty of an engine, which starts its profiler itself."""
    known = _profiler(run).command
    texts = [action.do for action in run.listed if action.records and known.startswith(NSYS)]
    options = [of[0] for do in texts[:1] for of in _OPTION.finditer(do)]
    if (part := run.unexplained) and not was_recorded(part, steps := run.source.steps):
        options.append(f"--active {steps.count + len(steps.unprofiled_steps_ms)}")
    options += [of.option if of.option.startswith("--") else of.flag for of in missing_options(run)]
    flags = {name: f" {option}" for option in options if (name := option.partition("=")[0]) and f"{name}=" not in known}
    return known.format("".join(flags.values()))


def combined(do: str, run: Run, *, asks: bool) -> str:
    """What to do, with the one command that records all that is lacking where it names one or `asks` for it."""
    known = command(run)
    if known.startswith(NSYS):
        full = _OF_NSYS.sub(f"`{known}`", do) if asks else do
    else:
        every = known.removesuffix("-- COMMAND")
        full = RECORDING.sub(lambda of: f"`{' '.join(dict.fromkeys(f'{every}{of[1]}'.split()))}`", do)
    return f"{full.removesuffix('.')}: `{known}`." if asks and known and "COMMAND`" not in full else full


def answered(run: Run) -> list[str]:
    """The rules that could not be judged for the lack of these options."""
    codes = {code for option in missing_options(run) for code in option.reasons}
    return [rule.rule for rule in run.not_evaluable if any(why.code in codes for why in rule.missing.values())]


def missing_options(run: Run) -> list[Option]:
    """The profiler's options that would have recorded what this profile lacks."""
    reasons = [*run.source.lacks.values(), *(why for rule in run.not_evaluable for why in rule.missing.values())]
    missing = {why.code for why in reasons}
    return [option for option in _RECIPES.options.get(_profiler(run).options, ()) if missing & set(option.reasons)]


def _profiler(run: Run) -> _Profiler:
    """The one that recorded this profile."""
    ways = {each.of: each for each in _RECIPES.profilers if each.format == run.source.format}
    kinds = run.source.workload.kinds
    of = (kinds[0] if len(kinds) == 1 else "", run.source.framework or "")
    return next((ways[each] for each in of if each and each in ways), ways.get("", _Profiler("", "", command="")))
