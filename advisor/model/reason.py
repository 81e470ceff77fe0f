"""What a report has of a clause: its code and facts, and its words.

A module of its own, because readers import clauses, and pydantic takes longer to import than they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import model_validator

from advisor.model.clause import Clause, Fact
from advisor.model.frozen import Frozen
from advisor.text import one_line
from advisor.vocabulary.limits import table


class Reason(Frozen):
    """Why something is unknown, or a note: a code with its facts for programs, and `words` for people.

    The codes are those of missing.yaml, notes.yaml and remarks.yaml in `advisor.model`. A text alone is its own code.
    """

    code: str
    facts: Mapping[str, float | int | str] = {}
    words: str

    @classmethod
    def of(cls, clause: Clause) -> Reason:
        """The reason that a metric or a reader gave; what it quotes of a file is safe to show."""
        facts = {name: one_line(fact) if isinstance(fact, str) else fact for name, fact in clause.values.items()}
        return cls(code=clause.code, facts=facts, words=clause.words)

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, reason: object) -> object:
        return {"code": reason, "words": reason} if isinstance(reason, str) else reason


REMARKS: Final[Mapping[str, str]] = table(__file__, "remarks")


class _Remark(Clause):
    sentences = REMARKS


def remark(code: str, **facts: Fact) -> Reason:
    """A remark with these facts."""
    return Reason.of(_Remark(code, **facts))
