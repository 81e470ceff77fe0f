"""The rules' sentences: Jinja2 templates, sandboxed, over metrics and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from jinja2 import StrictUndefined, TemplateError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from advisor import text

PHRASES = {
    True: {"each_step": "each step", "per_step": "per step"},
    False: {"each_step": "the recording", "per_step": "in all"},
}
"""What the sentences call the window that the numbers hold for, by whether the profile marks steps."""


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    # The output is plain text: each renderer escapes it for its own medium.
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    environment.filters |= {name: getattr(text, name) for name in ("percent", "ms", "us", "bytes_", "number")}
    environment.filters |= {"bytes": text.bytes_, "count": _count, "detail": _detail}
    return environment


def _count(amount: float | None, noun: str) -> str:
    return f"{text.number(amount)} {noun}{'' if amount == 1 else 's'}"


def _detail(words: str | None, around: str = ": {}") -> str:
    """The words in place of `{}`, as in `: aten::item (3)`; nothing where there are none."""
    return around.replace("{}", words) if words else ""


def names(template: str) -> set[str]:
    """The metrics and parameters that a sentence uses.

    Raises:
        ValueError: it is no valid template.
    """
    try:
        return meta.find_undeclared_variables(_environment().parse(template))
    except TemplateError as error:
        raise ValueError(str(error)) from None


def say(template: str, values: Mapping[str, object]) -> str:
    """The sentence with its numbers; a null is shown as "could not tell"."""
    sentence = _environment().from_string(template).render(values)
    return " ".join(sentence.split())
