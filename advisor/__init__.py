"""Why a GPU job is slow, what to change, and what the change is worth."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.api import Comparison, Report, Trials, check, compare, measure, what_if
    from advisor.engine import read
    from advisor.options import Options
    from advisor.recording.session import record

from advisor.errors import AdvisorError, NoRuns, ReadError, UsageError

__version__ = "0.1.0"

__all__ = ["AdvisorError", "NoRuns", "ReadError", "UsageError"]
__all__ += ["Comparison", "Options", "Report", "Trials", "check", "compare", "measure", "read", "record", "what_if"]
_ELSEWHERE = {"Options": "advisor.options", "read": "advisor.engine", "record": "advisor.recording.session"}


def __dir__() -> list[str]:
    """What the package offers, imported or not."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module holds
    """Import on first use: `advisor --help` needs no data frames."""
    if name in __all__:
        return getattr(import_module(_ELSEWHERE.get(name, "advisor.api")), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
