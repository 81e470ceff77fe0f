"""Where the files that ship beside the code lie: at the root of a checkout, inside the package in a wheel."""

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]
_IN_WHEEL: Final = _PACKAGE / "_data"


def rules_folder() -> Path:
    """The shipped rule book."""
    return _folder("rules")


def reports_folder() -> Path:
    """Templates, style and the schema of a report."""
    return _folder("reports")


def _folder(name: str) -> Path:
    # The wheel's copy goes first: beside an installed package, a folder called `rules` would be somebody else's.
    return _IN_WHEEL / name if _IN_WHEEL.is_dir() else _PACKAGE.parent / name
