"""A code with its facts inside, a clause at the edge: why a value is unknown, what to know; and names with numbers."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, Self, TypeAlias

from advisor.secrets import without_secrets
from advisor.text import FORMATS, count, one_line
from advisor.vocabulary.limits import table

Fact: TypeAlias = float | int | str
# Names with what is known of each, the fields of `Entry`, as metrics give them; `advisor.text.in_words` words them
Entries: TypeAlias = list[dict[str, Any]]
_MOST_NAMES: Final = 3
_LITTLE: Final = 0.01


@dataclass(frozen=True, init=False)
class Clause:
    """A code of the table `sentences` with its facts; what they quote of a file has no secrets."""

    sentences: ClassVar[Mapping[str, str]] = {}
    code: str
    facts: tuple[tuple[str, Fact], ...]

    def __init__(self, code: str, /, **facts: Fact) -> None:
        clean = {name: without_secrets(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}
        object.__setattr__(self, "code", code if code in self.sentences else without_secrets(code))
        object.__setattr__(self, "facts", tuple(sorted(clean.items())))

    @property
    def values(self) -> Mapping[str, Fact]:
        """The facts by name."""
        return dict(self.facts)

    @property
    def words(self) -> str:
        """A clause without a full stop; a code that is no entry stands for itself, so that a reader may give its own.

        A name in braces is a fact: in one of our formats (`{share:percent}`), as a number with its noun
        (`{steps:count step}`), a side of a comparison (`{side:side}`), or a text beside a fact (`{size:? of }`).
        """
        values = {name: _Fact(value) for name, value in self.facts}
        sentence = self.sentences.get(self.code)
        clause = one_line(self.code) if sentence is None else sentence.format_map(_Blank(values))
        return f"{clause} ({values['of_workers']})" if "of_workers" in values else clause

    def of(self, workers: str) -> Self:
        """The same, where it is true of these workers alone."""
        return type(self)(self.code, **self.values, of_workers=workers)


@dataclass(frozen=True, slots=True)
class _Fact:
    value: Fact

    def __format__(self, spec: str) -> str:
        if spec.startswith("?"):
            return spec[1:] if self.value else ""
        if isinstance(self.value, str) or spec == "side":
            words = one_line(str(self.value))
            return words.replace("base", "before").replace("head", "after") if spec == "side" else words
        form, _, noun = spec.partition(" ")
        return count(int(self.value), noun) if noun else FORMATS[form](self.value) if form else str(self.value)


class _Blank(dict[str, object]):
    """Facts, where an absent one is empty."""

    def __missing__(self, key: str) -> _Fact:
        return _Fact("")


REASONS: Final[Mapping[str, str]] = table(__file__, "missing")


class Missing(Clause):
    """A value that is unknown, and why: a code of missing.yaml with its facts."""

    sentences = REASONS

    @property
    def words(self) -> str:
        """A clause without a full stop; of a file that ends early, that the value may be lost with its end."""
        return super().words + " (or lost: the file ends early)" * ("cut_off" in self.values)

    @classmethod
    def of_failure(cls, kind: str) -> Self:
        """The value that a bug, an exception of this kind, kept from being computed."""
        return cls("out_of_memory") if kind == MemoryError.__name__ else cls("failed", kind=kind)

    @property
    def encoded(self) -> str:
        """The value as text, for a column of a table; see `decoded`."""
        return json.dumps([self.code, self.values])

    @classmethod
    def decoded(cls, text: str) -> Self:
        """The value that `encoded` wrote."""
        code, facts = json.loads(text)
        return cls(code, **facts)


FRAGMENT: Final = "fragment"
BARELY_RECORDED: Final = "barely_recorded"
ONE_RUN: Final = "one_run"

NOTES: Final[Mapping[str, str]] = table(__file__, "notes")
DOUBTS: Final = frozenset(chain(*table(__file__, "doubts")))
"""Notes that make numbers doubtful, and reasons why clocks do not fit."""


class Note(Clause):
    """A code of notes.yaml with its facts."""

    sentences = NOTES


def largest_first(parts: Iterable[tuple[str, float]], amount: str = "ms", unit: float = 1.0) -> Entries:
    """Three names with the most, or four if there are no more, and the sum of the others; the amounts in this unit.

    What is under a hundredth of all is not worth a name, nor is what is left out of it.
    """
    sums = defaultdict[str, float](float)
    for name, number in parts:
        sums[name] += number
    ordered = sorted(sums.items(), key=lambda part: (-part[1], part[0]))
    total = sum(number for _, number in ordered)
    top = [part for part in ordered if part[1] > _LITTLE * total]
    top = top if len(top) <= _MOST_NAMES + 1 else top[:_MOST_NAMES]
    rest = total - sum(number for _, number in top)
    top += [("others", rest)] if rest > _LITTLE * total else []
    return [{"name": name, amount: number / unit} for name, number in top]
