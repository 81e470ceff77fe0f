"""The Python that has torch: this one, or the one that TORCH_PYTHON names."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import pytest


def torch_python() -> str:
    """Its path; the test is skipped where there is none."""
    if python := os.environ.get("TORCH_PYTHON"):
        return python
    if find_spec("torch") is None:
        pytest.skip("torch is not installed; `make test` installs its CPU build where a package index has it")
    return sys.executable
