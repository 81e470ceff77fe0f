"""The thresholds of a rule: value, unit and meaning of each. `Rule.params` gives the values that a rule judges by."""

import re
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, model_validator

from advisor.metrics.metric import Unit
from advisor.vocabulary.limits import with_limits

Text: TypeAlias = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000), AfterValidator(with_limits)
]

_UNITS: Final[dict[str, tuple[Unit, float]]] = {
    "": ("number", 1),
    "%": ("share", 0.01),
    "us": ("us", 1),
    "ms": ("ms", 1),
    **{size: ("bytes", factor) for size, factor in {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}.items()},
    **{size: ("bytes", 1024**power) for power, size in enumerate(("KiB", "MiB", "GiB"), 1)},
}
"""What a number's unit is to metrics, and the number of theirs that it is."""
_WRITTEN: Final = re.compile(
    rf"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*({'|'.join(sorted(_UNITS, reverse=True))})\s*(?:,\s*(\S.*))?", re.DOTALL
)


class Strict(BaseModel):
    """A part of a rule file: no key but those that it has."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False, defer_build=True)


class Threshold(Strict):
    """A number of a rule, under `params`, that users may override: `5 %, what it is`. A plain number has no meaning."""

    value: float
    unit: Unit = "number"
    meaning: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, written: object) -> object:
        if isinstance(written, int | float):
            return {"value": written}
        if not isinstance(written, str) or not (match := _WRITTEN.fullmatch(written)):
            raise ValueError("write a number, its unit and what it is: `5 %, idle time as a share of the step`")
        number, unit, meaning = match.groups()
        return {"value": in_unit(number, unit), "unit": _UNITS[unit][0], "meaning": meaning}


def in_unit(number: str, unit: str) -> float:
    """The number as metrics have it: `5 %` is 0.05, `64 KiB` is 65,536."""
    return float(number) / 100 if unit == "%" else float(number) * _UNITS[unit][1]


def number(written: float | str | None) -> float | str | None:
    """The value of a metric in a case: `20 %` is 0.2; other texts stay as they are."""
    match = _WRITTEN.fullmatch(written) if isinstance(written, str) else None
    return in_unit(match[1], match[2]) if match and match[2] and not match[3] else written
