"""GPU-hours, money and labels of a fleet in words."""

from __future__ import annotations

from typing import Final

from advisor.model.week import Hours
from advisor.text import UNKNOWN, number, percent

DASH: Final = "\N{EN DASH}"
"""What stands in the place of a number that is none."""

_NO_LABEL: Final = "(no label)"


def label(name: str | None) -> str:
    """A label, or what stands for its absence."""
    return name or _NO_LABEL


def gpu_hours(hours: float) -> str:
    """An amount of GPU-hours, in the unit that suits it."""
    if not hours or hours >= 0.1:  # noqa: PLR2004 - a smaller decimal hour says little
        return f"{number(hours)} GPU-h"
    return f"{number(hours * 60)} GPU-min" if hours >= 1 / 60 else f"{number(hours * 3600)} GPU-s"


def paid_word(hours: Hours) -> str:
    """`recorded` where no run is labelled with its GPU-hours, else `paid`."""
    return "recorded" if hours.estimated == hours.runs else "paid"


def share(part: float | None, total: float) -> str:
    """A part of a whole in per cent."""
    return UNKNOWN if part is None or not total else percent(part / total)


def with_share(part: float | None, total: float) -> str:
    """`51 GPU-h (34 %)`."""
    if part is None:
        return UNKNOWN
    return f"{gpu_hours(part)} ({percent(part / total)})" if total else gpu_hours(part)


def money(sum_: float | None, currency: str) -> str:
    """An amount of money; a dash where there is no price."""
    return DASH if sum_ is None else f"{amount(sum_)} {currency}"


def amount(sum_: float) -> str:
    """An amount of money without its currency."""
    if 0 < sum_ < 0.01:  # noqa: PLR2004 - a cent
        return "<0.01"
    return f"{sum_:,.0f}" if abs(sum_) >= 100 else number(sum_)  # noqa: PLR2004 - cents say nothing of more


def join(*parts: str) -> str:
    """The parts that are not empty, with commas."""
    return ", ".join(filter(None, parts))
