"""Why a GPU job is slow, what to change, and what the change is worth."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.api import Comparison as Comparison
    from advisor.api import Report as Report
    from advisor.api import Trials as Trials
    from advisor.api import check as check
    from advisor.api import compare as compare
    from advisor.api import measure as measure
    from advisor.api import what_if as what_if
    from advisor.engine import read as read
    from advisor.options import Options as Options
    from advisor.recording.session import record as record

from advisor.errors import AdvisorError as AdvisorError
from advisor.errors import NoRuns as NoRuns
from advisor.errors import ReadError as ReadError
from advisor.errors import UsageError as UsageError

__version__ = "0.1.0"

_PUBLIC = {
    "Comparison": "advisor.api",
    "Options": "advisor.options",
    "Report": "advisor.api",
    "Trials": "advisor.api",
    "check": "advisor.api",
    "compare": "advisor.api",
    "measure": "advisor.api",
    "read": "advisor.engine",
    "record": "advisor.recording.session",
    "what_if": "advisor.api",
}
__all__ = ["AdvisorError", "NoRuns", "ReadError", "UsageError", *_PUBLIC]  # noqa: PLE0604 - names all the same


def __dir__() -> list[str]:
    """What the package offers, imported or not."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module holds
    """Import on first use: `advisor --help` needs no data frames."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
