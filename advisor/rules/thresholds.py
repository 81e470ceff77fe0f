"""The thresholds of a rule: value, unit and meaning of each. `Rule.params` gives the values that a rule judges by."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, model_validator

from advisor.metrics.metric import Unit
from advisor.vocabulary.limits import with_limits

Text: TypeAlias = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000), AfterValidator(with_limits)
]


class Strict(BaseModel):
    """A part of a rule file: no key but those that it has."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False, defer_build=True)


class Threshold(Strict):
    """A number of a rule, under `params`, that users may override. A plain number has neither unit nor meaning."""

    value: float
    unit: Unit | None = None
    meaning: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_number(cls, written: object) -> object:
        return {"value": written} if isinstance(written, int | float | str) else written
