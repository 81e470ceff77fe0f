"""The rules' sentences: Jinja2 templates, sandboxed, over metrics and parameters.

A template has numbers, conditions and arithmetic. It has no loops, calls or attributes, each filter gives at most what
it is given and its own words, and nothing is worked out ahead: the time it takes and the text it gives are bounded by
its length.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from jinja2 import StrictUndefined, Template, TemplateError, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from advisor import text
from advisor.vocabulary.parts import UNMARKED

# What the sentences call the window that the numbers hold for, by whether the profile marks steps
PHRASES = {
    True: {"each_step": "each step", "per_step": "per step"},
    False: {"each_step": UNMARKED, "per_step": "in all"},
}
# The same where the step without the profiler is known: of numbers that `of_step` does not tell of that one
OF_RECORDED_STEP: Final = {"each_step": "each recorded step", "per_step": "per step"}
OF_USUAL_STEP: Final = {"each_step": "each usual step", "per_step": "per usual step"}
"""The same where long steps add to the mean one, which savings are of."""


class Step(NamedTuple):
    """The step that `of_step` tells shares and times of: the report's, whatever the recorded one took."""

    words: str
    ms: float | None
    recorded_ms: float | None
    shares: dict[str, float]
    """The shares that a sentence has told of it, by their words."""
    part: float = 1.0
    """What a recorded millisecond of the time that the rule is about takes in it."""


STEP: Final = "the report's step"  # what filters know it by: no name, so that no rule's own hides it
GPU: Final = "GPU"
DEVICE: Final = "device"  # the variable that titles and sentences have for what they call the job's device
_PLAIN: Final = re.compile(r"\{\{ ([a-z_]\w*)(?: \| (\w+))? \}\}")
"""What most sentences have: a number and its filter. They need no parser to tell which names they use."""
_ROUNDING: Final = 0.005  # of a number: what is counted is whole
_NUMBER: Final = re.compile(r"\{\{\s*\(?(\w+).*?\}\}")
_DETAIL: Final = re.compile(r"\{\{[^|}]*\| detail.*?\}\}", re.DOTALL)
_UP_TO_ELSE: Final = re.compile(r"\{% if (?:(?!\{% (?:end)?if).)*?\{% else %\}", re.DOTALL)
_TAG: Final = re.compile(r"\{%.*?%\}", re.DOTALL)
_SENTENCES: Final = re.compile(r"(?<=[.?!])\s+(?=[A-Z`])")
_WITH_DEVICE: Final = re.compile(r"^With a GPU, ")
_WITHOUT: Final = re.compile(r"^(?:Without a GPU|On a CPU), ")
_LONGEST_TEMPLATE: Final = 10_000
_LONGEST_SENTENCE: Final = 4_000  # and the longest name in it
_MOST_NESTED: Final = 30  # the shipped ones: 8; Python compiles no more than 100
_UNSAYABLE: Final = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_FILTERS: Final = ("abs", "capitalize", "default", "int", "lower", "upper")  # those that make nothing longer
_ALLOWED: Final = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.List, nodes.Tuple),
    *(nodes.If, nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.Concat),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.Neg, nodes.Pos),
)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*"})

    def call_binop(self, context: Context, operator: str, first: Any, second: Any) -> Any:  # noqa: ANN401 - as Jinja2 has it
        """A product of numbers: a text times a number is as long as it likes."""
        if isinstance(first, str | list | tuple) or isinstance(second, str | list | tuple):
            raise TypeError("only numbers can be multiplied")
        return super().call_binop(context, operator, first, second)


@cache
def _environment() -> _Environment:
    # The output is plain text: each renderer escapes it for its own medium.
    environment = _Environment(undefined=StrictUndefined, autoescape=False, finalize=_known, optimized=False)
    environment.filters = {name: environment.filters[name] for name in _FILTERS}
    environment.filters |= {name: getattr(text, name) for name in ("percent", "ms", "us", "bytes_", "number", "rank")}
    environment.filters |= {"bytes": text.bytes_, "count": _count, "up_to": _up_to}
    # the words in place of `{}`, as in `: aten::item (3)`; nothing where there are none
    environment.filters["detail"] = lambda words, around=": {}": around.replace("{}", words, 1) if words else ""
    environment.filters |= {"of_step": _of_step, "ms_of_step": _ms_of_step, "of_timed_step": _of_timed_step}
    environment.filters["first"] = lambda words: (words or "").partition(" (")[0]
    environment.globals.clear()
    return environment


@pass_context
def _known(_: Context, value: object) -> object:
    """A null as words: a sentence has no `None`. What takes a context is not worked out while a template compiles."""
    return text.UNKNOWN if value is None else value


@pass_context
def _of_step(context: Context, share: float | None) -> str:
    """`27 % of each step (47 ms)`: a share of the recorded step, told of the step that bar and savings are of."""
    step: Step = context[STEP]
    time_ms = None
    if share is not None and step.ms and step.recorded_ms:
        time_ms = min(share * step.recorded_ms * step.part, step.ms)
        share = time_ms / step.ms
    words = f"{text.percent(share)} of {step.words}" + (f" ({text.ms(time_ms)})" if time_ms is not None else "")
    if share is not None:
        step.shares[words] = share
    return words


@pass_context
def _ms_of_step(context: Context, of_ms: float | None) -> str:
    recorded_ms = context[STEP].recorded_ms
    return _of_step(context, None if of_ms is None or not recorded_ms else of_ms / recorded_ms)


@pass_context
def _of_timed_step(context: Context, share: float | None) -> str:
    """`27 % of each step (47 ms)` of steps that were timed without the profiler: the report's step already."""
    step: Step = context[STEP]
    in_recorded = step.ms / (step.recorded_ms * step.part) if step.ms and step.recorded_ms and step.part else 1.0
    return _of_step(context, None if share is None else share * in_recorded)


def device(name: str | None) -> str:
    """What to call the device of this name: a GPU, unless it is known to be none."""
    return "device" if is_tpu(name) else GPU


def is_tpu(name: str | None) -> bool:
    """Whether a device of this name is a TPU."""
    return (name or "").startswith("TPU")


def _count(amount: float | None, noun: str) -> str:
    if amount is not None and math.isclose(amount, round(amount), rel_tol=_ROUNDING):  # 0.999 calls per step
        amount = round(amount)
    return f"{text.number(amount)} {noun if amount == 1 else text.plural(noun)}"


def _up_to(low_ms: float, *high_ms: float | None) -> str:
    """`42-46 ms`, up to the least of the others that are known; the first alone where that is no more."""
    return text.interval(low_ms, max(low_ms, min((most for most in high_ms if most is not None), default=low_ms)))


def names(template: str) -> set[str]:
    """The metrics and parameters that a sentence uses; a ValueError where it is none, or has more than it needs."""
    if len(template) > _LONGEST_TEMPLATE:
        raise ValueError(f"longer than {_LONGEST_TEMPLATE:,} characters")
    if "{" not in template:
        return set()
    try:
        return set(_names(template))
    except (TemplateError, ValueError) as error:
        raise ValueError(text.one_line(str(error), 200)) from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _names(template: str) -> Iterator[str]:
    """The names in a template that has no more than a sentence needs."""
    environment = _environment()
    if "{" not in _PLAIN.sub("", template):
        plain = _PLAIN.findall(template)
        if {called for _, called in plain} <= {"", *environment.filters}:
            yield from (name for name, _ in plain)
            return
    for node in _nodes(environment.parse(template)):
        if not isinstance(node, _ALLOWED):
            raise ValueError(f"{type(node).__name__}: a sentence has numbers, conditions and arithmetic only")  # noqa: TRY004 - one answer to all
        if isinstance(node, nodes.Const) and isinstance(node.value, float) and not math.isfinite(node.value):
            raise ValueError("a number that is too large")
        if isinstance(node, nodes.Filter) and node.name not in environment.filters:
            raise ValueError(f"No filter named {node.name!r}.")
        if isinstance(node, nodes.Test) and node.name not in environment.tests:
            raise ValueError(f"No test named {node.name!r}.")
        if isinstance(node, nodes.Name):
            yield node.name


def say(template: str, values: Mapping[str, object]) -> str:
    """The sentence with its numbers, cut where names make it long; a null is shown as "could not tell".

    A ValueError where it cannot be said of these values.
    """
    return text.shortened(" ".join(_rendered(template, values).split()), _LONGEST_SENTENCE)


def fill(template: str, values: Mapping[str, object]) -> str:
    """A fix or its code with this job's numbers, lines as they are; a ValueError where these cannot be filled in."""
    return text.shortened(_rendered(template, values), 2 * _LONGEST_TEMPLATE)


def prose(words: str, *, on_device: bool) -> str:
    """A rule's text for a job with a device or without: what begins with the condition of the other is left out."""
    own, other = (_WITH_DEVICE, _WITHOUT) if on_device else (_WITHOUT, _WITH_DEVICE)
    sentences = [own.sub("", each) for each in _SENTENCES.split(" ".join(words.split())) if not other.match(each)]
    return " ".join(text.capital(each) for each in sentences)


def formula(words: str, *, on_device: bool) -> str:
    """A metric's formula: what it says of a worker without a device, of such a worker."""
    return words if on_device else words.rpartition("; without a device, ")[2]


def outline(template: str) -> str:
    """A fix or its code as the book shows it: `<workers>` in place of a job's number, of two alternatives the last."""
    return _NUMBER.sub(r"<\1>", _TAG.sub("", _UP_TO_ELSE.sub("", _DETAIL.sub("", template))))


def _rendered(template: str, values: Mapping[str, object]) -> str:
    if not any(mark in template for mark in ("{{", "{%", "{#")):  # as in most titles
        return template
    words = {key: text.in_words(value) if isinstance(value, list) else value for key, value in values.items()}
    short = {key: value[:_LONGEST_SENTENCE] if isinstance(value, str) else value for key, value in words.items()}
    try:
        return _compiled(template).render(short)
    except _UNSAYABLE as error:
        raise ValueError(text.one_line(str(error), 200)) from None


def _nodes(tree: nodes.Node) -> Iterator[nodes.Node]:
    """Every node; of a tree so deep that Python compiles it slowly or not at all, a ValueError."""
    level: list[nodes.Node] = [tree]
    for _ in range(_MOST_NESTED):
        yield from level
        level = [child for node in level for child in node.iter_child_nodes()]
    if level:
        raise ValueError(f"nested more than {_MOST_NESTED} levels deep; make several sentences of it")


@lru_cache(maxsize=256)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)
