"""Words of rules and fixes."""

from __future__ import annotations

from typing import Final

UNSEEN: Final = {
    "environment": "it has no environment variables",
    "code": "it shows what ran, not how the program asks for it",
    "machine": "it does not show how the machine is set up",
    "data": "it does not show how the data are stored",
    "option": "no profiler records this option",
    "elsewhere": "the answer lies outside of it",
}
"""Why a recording cannot show whether a job has a fix already."""

SIDES: Final = {
    ">=": "at",
    ">": "above",
    "<": "below",
    "<=": "up to",
    "=": "at",
    "<>": "other than",
    "!=": "other than",
}
"""Where a rule fires, by how its condition compares a metric with a limit."""
