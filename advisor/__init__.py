"""Why a GPU job is slow, what to change, and what the change is worth."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.engine import check as check
    from advisor.engine import compare as compare
    from advisor.engine import read as read
    from advisor.model.comparison import Comparison as Comparison
    from advisor.model.report import Report as Report
    from advisor.options import Options as Options

from advisor.errors import AdvisorError as AdvisorError

__version__ = "0.1.0"

_PUBLIC = {
    "Comparison": "advisor.model.comparison",
    "Options": "advisor.options",
    "check": "advisor.engine",
    "compare": "advisor.engine",
    "read": "advisor.engine",
    "Report": "advisor.model.report",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module holds
    """Import on first use: `advisor --help` needs no data frames."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
