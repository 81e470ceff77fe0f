"""The patches that a trial switches on, by name: what one is used with, when it takes hold, what it sets.

Each is a class in a file of `advisor/recording/inside/patches/`, because it runs in the program that is tried. Write a
new one there and list it in that folder's `__init__.py`; nothing here changes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.errors import UsageError
from advisor.model.trials import Use
from advisor.recording.inside.patches import PATCHES


def use(name: str, values: Mapping[str, Any]) -> Use:
    """A patch with its arguments; a UsageError where there is no such patch, or an argument does not fit."""
    if name not in PATCHES:
        raise UsageError(f"--patch {name}: no such patch; there are: {', '.join(PATCHES)}")
    patch = PATCHES[name]
    try:
        arguments = patch.checked(dict(values))
    except ValueError as error:
        raise UsageError(f"--patch {name}: {error}") from None
    return Use(patch=name, arguments=arguments, numerics=patch.numerics)


def toggles(uses: Sequence[Use], device: str) -> bool:
    """Whether all of them can be switched between two steps."""
    return all(device in PATCHES[use.patch].toggles for use in uses)


def variables(uses: Sequence[Use]) -> dict[str, str]:
    """The environment that the patches need."""
    each = [PATCHES[use.patch](dict(use.arguments)).variables() for use in uses]
    return {name: value for variables in each for name, value in variables.items()}
