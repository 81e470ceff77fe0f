"""How to record the next profile, so that it answers what this one does not: next_recording.yaml."""

from functools import cache
from typing import Final

import msgspec
from jinja2 import Environment, Template

from advisor.model.report import Run
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
    """A profiler's options, and its call with some of them, by hand and as a command to paste."""

    format: str
    options: str
    call: str
    of: str = ""
    command: str = "advisor record{% for each in options if each.flag %} {{ each.flag }}{% endfor %} -- COMMAND"


class _Recipes(msgspec.Struct, forbid_unknown_fields=True):
    options: dict[str, tuple[Option, ...]]
    profilers: tuple[_Profiler, ...]


_RECIPES: Final = msgspec.convert(table(__file__, "next_recording"), _Recipes)
_OF_NO_READER: Final = _Profiler("", "", "", command="")


def recording(run: Run) -> str | None:
    """The profiler's call with the options that this profile was recorded without; None where no option would help."""
    return recipe(run) if missing_options(run) else None


def recipe(run: Run) -> str:
    """The profiler's call that marks ten steps, with the options that this profile was recorded without."""
    return _filled(_profiler(run).call, run)


def command(run: Run) -> str:
    """The same as a command to paste; empty of an engine that starts its profiler itself, and of no format."""
    return _filled(_profiler(run).command, run)


def answered(run: Run) -> list[str]:
    """The rules that could not be judged for the lack of these options."""
    codes = {code for option in missing_options(run) for code in option.reasons}
    return [rule.rule for rule in run.not_evaluable if any(why.code in codes for why in rule.missing.values())]


def missing_options(run: Run) -> list[Option]:
    """The profiler's options that would have recorded what this profile lacks."""
    reasons = [*run.source.lacks.values(), *(why for rule in run.not_evaluable for why in rule.missing.values())]
    missing = {why.code for why in reasons}
    return [option for option in _RECIPES.options.get(_profiler(run).options, ()) if missing & set(option.reasons)]


def _filled(template: str, run: Run) -> str:
    return _compiled(template).render(options=missing_options(run))


@cache
def _compiled(template: str) -> Template:
    return Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True).from_string(template)  # noqa: S701 - no HTML


def _profiler(run: Run) -> _Profiler:
    """The one that recorded this profile."""
    ways = {each.of: each for each in _RECIPES.profilers if each.format == run.source.format}
    kinds = run.source.workload.kinds
    of = (kinds[0] if len(kinds) == 1 else "", run.source.framework or "")
    return next((ways[each] for each in of if each and each in ways), ways.get("", _OF_NO_READER))
