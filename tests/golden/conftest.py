"""What the golden tests say is of findings and numbers: each recording is read and measured once."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _measured_once(measured_once: None) -> None:
    """For every test of this folder."""
