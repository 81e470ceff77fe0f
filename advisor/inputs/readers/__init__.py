"""One module or package per profile format, each with `read`; `advisor.inputs.discover` tells the formats apart."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def reader(profile_format: str) -> ModuleType:
    """The reader of a format, imported at its first use."""
    return import_module(f"advisor.inputs.readers.{profile_format}")
