"""How many examples a property is tried on: a share of what the profile gives, so that `make fuzz` raises them all."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(share: float, **options: Any) -> settings:
    """Settings with this share of the profile's examples: below 1 where one is slow, above where one is quick."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)), **options)
