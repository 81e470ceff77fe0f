"""Aids of debugging that slow each step."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict

from .patch import Patch

_VARIABLES = {"CUDA_LAUNCH_BLOCKING": "0", "TORCH_DISTRIBUTED_DEBUG": "OFF", "JAX_DEBUG_NANS": "0"}
_OFF = ("", "0", "OFF", "false", "False")


class DebugAids(Patch):
    """Anomaly detection off, no blocking launches, no checks of collectives, no search for NaNs."""

    name = "debug-aids"

    def __init__(self, values: Dict[str, Any]) -> None:
        super().__init__(values)
        self.aids = [name for name in _VARIABLES if os.environ.get(name, "") not in _OFF]

    def variables(self) -> Dict[str, str]:
        """As `Patch.variables`; a count of those that were on goes along."""
        return dict({name: _VARIABLES[name] for name in self.aids}, ADVISOR_DEBUG_AIDS=str(len(self.aids)))

    def begin(self) -> None:
        """As `Patch.begin`: what the program switched on by now is switched off."""
        self.hits = int(os.environ.get("ADVISOR_DEBUG_AIDS") or 0)
        torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
        if torch and torch.is_anomaly_enabled():
            self.hits += 1
            torch.autograd.set_detect_anomaly(False)
        if jax and jax.config.jax_debug_nans:
            self.hits += 1
            jax.config.update("jax_debug_nans", False)
        if not self.hits:
            self.refuse("no_debug_aid")
