"""Where the files that ship beside the code lie: at the root of a checkout, inside the package in a wheel."""

from functools import cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]


def rules_folder() -> Path:
    """The shipped rule book."""
    return _root(_PACKAGE) / "rules"


def reports_folder() -> Path:
    """Templates, style and the schema of a report."""
    return _root(_PACKAGE) / "reports"


@cache
def _root(package: Path) -> Path:
    # The wheel's copy goes first: beside an installed package, a folder called `rules` would be somebody else's.
    in_wheel = package / "_data"
    return in_wheel if in_wheel.is_dir() else package.parent
