"""Why a recorded step is not used."""

from collections.abc import Mapping
from typing import Final

from advisor.vocabulary.limits import table

LEFT_OUT: Final[Mapping[str, str]] = table(__file__, "left_out")

ONCE: Final = ("first_uses", "first_pass", "cold_ops")
"""Why a first step is left out that is long by what happens once."""

START_UP: Final = ("queue_filling", *ONCE)
"""Why a first step is left out whose length the steps after it do not have."""
