"""The base of every value that is written as JSON; what such a value has of a clause: its code, facts and words.

Apart from `clause`, because readers import clauses, and pydantic takes longer to import than they do.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from advisor.errors import ReadError
from advisor.model.clause import Clause, Fact
from advisor.text import one_line
from advisor.vocabulary.limits import table

_ROUNDING: Final = 1e-6
Share: TypeAlias = Annotated[float, Field(ge=-_ROUNDING, le=1 + _ROUNDING)]
"""A part of 1, but for what rounding adds or takes."""
Length: TypeAlias = Annotated[float, Field(ge=-_ROUNDING)]
"""A time that something takes, or its size."""
Count: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 63)]
"""How many, or how many ns."""

_Record = TypeVar("_Record", bound="Frozen")


class Frozen(BaseModel):
    """A value that never changes, without infinities, which JSON lacks; fields of newer versions are ignored.

    It can be validated from any object that has its fields.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True, from_attributes=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, without what was worked out from the fields of this one and kept."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy


def record(model: type[_Record], row: Mapping[str, object]) -> _Record:
    """What rows of a report's metrics say, as a value: the report may be anybody's.

    Raises:
        ReadError: no check writes such rows.
    """
    try:
        return model.model_validate(row)
    except ValidationError as error:
        at = ".".join(map(str, error.errors()[0]["loc"]))
        raise ReadError(f"a report's metrics have {at} that no check writes; check the profile again") from None


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
