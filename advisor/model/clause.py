"""A code with its facts inside, a clause at the edge."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, TypeAlias

from advisor.text import FORMATS, count, one_line

Fact: TypeAlias = float | int | str


@dataclass(frozen=True, init=False)
class Clause:
    """A code of the table `sentences` with its facts."""

    sentences: ClassVar[Mapping[str, str]] = {}
    code: str
    facts: tuple[tuple[str, Fact], ...]

    def __init__(self, code: str, /, **facts: Fact) -> None:
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "facts", tuple(sorted(facts.items())))

    @property
    def values(self) -> Mapping[str, Fact]:
        """The facts by name."""
        return dict(self.facts)

    @property
    def words(self) -> str:
        """A clause without a full stop; a code that is no entry stands for itself, so that a reader may give its own.

        A name in braces is a fact: in one of our formats (`{share:percent}`), as a number with its noun
        (`{steps:count step}`), or as a text that stands only where the fact does (`{size:? of }`).
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
        if isinstance(self.value, str):
            return one_line(self.value)
        form, _, noun = spec.partition(" ")
        return count(int(self.value), noun) if noun else FORMATS[form](self.value) if form else str(self.value)


class _Blank(dict[str, object]):
    """Facts, where an absent one is empty."""

    def __missing__(self, key: str) -> _Fact:
        return _Fact("")
