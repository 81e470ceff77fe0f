"""Names with what is known of each: what a metric gives that names kernels, calls or causes, not yet in words."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from pydantic import Field

from advisor.model.frozen import Frozen

Entries: TypeAlias = list[dict[str, Any]]
"""Such names as a metric gives them, each with the fields of `Entry` that it has; for words `advisor.text.in_words`."""

_MOST_NAMES: Final = 3
_LITTLE: Final = 0.01


def _is_unknown(value: object) -> bool:
    return value is None


class Entry(Frozen):
    """A name that a metric lists; of its amounts it has those that the metric is about.

    `count`, `bytes` and `ms` are per step unless the metric says otherwise. `share` is a part of 1; `what` says what it
    is of, or what else is known of the name.
    """

    name: str
    count: float | None = Field(None, exclude_if=_is_unknown)
    bytes: float | None = Field(None, exclude_if=_is_unknown)
    ms: float | None = Field(None, exclude_if=_is_unknown)
    share: float | None = Field(None, exclude_if=_is_unknown)
    what: str | None = Field(None, exclude_if=_is_unknown)


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
