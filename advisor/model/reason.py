"""The base of every value that is written as JSON; what such a value has of a clause: its code, facts and words.

Apart from `clause`, because readers import clauses, and pydantic takes longer to import than they do.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from advisor.errors import ReadError, wrong_form
from advisor.model.clause import Clause, Fact
from advisor.text import one_line
from advisor.vocabulary.limits import table

_ROUNDING: Final = 1e-6
Share: TypeAlias = Annotated[float, Field(ge=-_ROUNDING, le=1 + _ROUNDING)]  # a part of 1
Length: TypeAlias = Annotated[float, Field(ge=-_ROUNDING)]  # a time, but for what rounding takes
Count: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 63)]  # how many, or how many ns


class Frozen(BaseModel):
    """A value that never changes, without infinities, which JSON lacks; fields of newer versions are ignored.

    It can be validated from any object that has its fields.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True, from_attributes=True)

    @classmethod
    def of_row(cls, row: Mapping[str, object]) -> Self:
        """What rows of the metrics say; a ReadError where no check writes such, as in anybody's report."""
        try:
            return cls.model_validate(row)
        except ValidationError as error:
            problem = one_line(wrong_form(error, "")[1], 200)
            raise ReadError(f"metrics that no check writes: {problem}; check the profile again") from None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, without what was worked out from the fields of this one and kept."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy


class Reason(Frozen):
    """Why something is unknown, or a note: a code with its facts for programs, and `words` for people.

    The codes are those of missing.yaml, notes.yaml and remarks.yaml in `advisor.model`. A text alone is its own code.
    """

    code: str
    facts: Mapping[str, float | int | str] = {}
    words: str

    @classmethod
    def of(cls, clause: Clause) -> Self:
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
