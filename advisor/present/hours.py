"""GPU-hours, money and labels of a fleet in words."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from advisor.model.week import Hours
from advisor.text import DASH, UNKNOWN, number, percent

_NO_LABEL: Final = "(no label)"
_UNITS: Final = (("GPU-h", 1.0), ("GPU-min", 60.0), ("GPU-s", 3600.0))


def label(name: str | None) -> str:
    """A label, or what stands for its absence."""
    return name or _NO_LABEL


def gpu_hours(hours: float) -> str:
    """An amount of GPU-hours, in the unit that suits it."""
    if not hours or hours >= 0.1:  # noqa: PLR2004 - a smaller decimal hour says little
        return f"{number(hours)} GPU-h"
    return f"{number(hours * 60)} GPU-min" if hours >= 1 / 60 else f"{number(hours * 3600)} GPU-s"


def unit_of(amounts: Iterable[float]) -> tuple[str, float]:
    """The unit that suits the largest amount of GPU-hours, and how many of it an hour has."""
    most = max(amounts, default=0.0)
    return next((unit, times) for unit, times in _UNITS if most * times >= 1 or unit == _UNITS[-1][0])


def money_in(amounts: Sequence[float]) -> Callable[[float], str]:
    """How to write amounts that stand below one another: decimals as the largest needs them, none where all are whole.

    A small amount is never written as none.
    """
    most = max(amounts, default=0.0)
    decimals = 0 if most >= 100 else 1 if most >= 10 else 2  # noqa: PLR2004 - three digits of the largest
    if all(amount == round(amount) for amount in amounts):
        decimals = 0
    least: float = 10**-decimals
    return lambda amount: f"<{least:.{decimals}f}" if 0 < amount < least / 2 else f"{amount:,.{decimals}f}"


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
