"""Why a value is unknown, as a code and the facts that its words need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from advisor.model import reasons

Fact: TypeAlias = float | int | str


@dataclass(frozen=True, init=False)
class Missing:
    """A value that is unknown, and why: a code of `reasons.REASONS` with its facts."""

    code: str
    facts: tuple[tuple[str, Fact], ...]

    def __init__(self, code: str, /, **facts: Fact) -> None:
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "facts", tuple(sorted(facts.items())))

    @classmethod
    def of_failure(cls, kind: str) -> Missing:
        """The value that a bug, an exception of this kind, kept from being computed."""
        return cls("out_of_memory") if kind == MemoryError.__name__ else cls("failed", kind=kind)

    @property
    def values(self) -> Mapping[str, Fact]:
        """The facts by name."""
        return dict(self.facts)

    @property
    def encoded(self) -> str:
        """The value as text, for a column of a table; see `decoded`."""
        return json.dumps([self.code, self.values])

    @classmethod
    def decoded(cls, text: str) -> Missing:
        """The value that `encoded` wrote."""
        code, facts = json.loads(text)
        return cls(code, **facts)

    @property
    def words(self) -> str:
        """The reason as a clause without a full stop."""
        return reasons.words(self.code, self.values)
