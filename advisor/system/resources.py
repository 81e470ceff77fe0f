"""Where the files that ship beside the code lie: at the root of a checkout, inside the package in a wheel."""

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]
# The wheel's copy goes first: beside an installed package, a folder called `rules` would be somebody else's.
_ROOT: Final = _PACKAGE / "_data" if (_PACKAGE / "_data").is_dir() else _PACKAGE.parent


def rules_folder() -> Path:
    """The shipped rule book."""
    return _ROOT / "rules"


def reports_folder() -> Path:
    """Templates, style and the schema of a report."""
    return _ROOT / "reports"
