"""Numbers as people read them: three significant digits, a unit, and "could not tell" for what is not known."""

from __future__ import annotations

UNKNOWN = "could not tell"


def _sig(v):
    return f"{v:.3g}"


def ms(v):
    return UNKNOWN if v is None else f"{_sig(v)} ms"


def us(v):
    return UNKNOWN if v is None else f"{_sig(v)} us"


def percent(v):
    return UNKNOWN if v is None else f"{100 * v:.3g} %"


def number(v):
    return UNKNOWN if v is None else f"{v:.3g}"


def bytes_(v):
    return UNKNOWN if v is None else f"{v / 1e6:.3g} MB"
