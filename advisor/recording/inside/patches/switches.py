"""Switches of runtimes and libraries: garbage collection, aids of debugging, environment variables."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any, Dict

from ..wrapping import wrap  # noqa: TID252 - programs have no package `advisor`
from .patch import Patch, Schema


class Garbage(Patch):
    """No collection in the steps: neither Python's own nor one that the program asks for. What exists is frozen."""

    name = "gc"
    toggles = ("cpu", "cuda")

    def __init__(self, values: Dict[str, Any]) -> None:
        super().__init__(values)
        self.collects_itself = False

    def begin(self) -> None:
        """As `Patch.begin`: what the program asks for is left out from here on."""
        self.hits = int(self.collects_itself)
        wrap(gc, "collect", self._collect)

    def switch(self, on: bool) -> None:
        super().switch(on)
        if on:
            self.collects_itself = self.collects_itself or gc.isenabled()
            gc.freeze()
            gc.disable()
        elif self.collects_itself:
            gc.unfreeze()
            gc.enable()

    def _collect(self, collect: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.on:
            return collect(*args, **kwargs)
        self.hits += 1
        return 0


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


_NAMES = (
    *("CUDA_DEVICE_MAX_CONNECTIONS", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_BLOCKTIME", "MALLOC_ARENA_MAX"),
    *("MALLOC_TRIM_THRESHOLD_", "MKL_NUM_THREADS", "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS"),
    *("NCCL_PROTO", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_WAIT_POLICY", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_CUDA_ALLOC_CONF", "TF_ENABLE_ONEDNN_OPTS", "TF_GPU_THREAD_COUNT", "TF_GPU_THREAD_MODE"),
    *("TF_XLA_FLAGS", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "XLA_FLAGS"),
)
"""No variable that loads code, as LD_PRELOAD and PYTHONSTARTUP do."""


class Environment(Patch):
    """Sets variables before the program starts; those that the program sets again do not count."""

    name = "environment"
    numerics = "rounding"
    arguments: Schema = {name: {"type": "string", "description": "as its library has it"} for name in _NAMES}

    def variables(self) -> Dict[str, str]:
        return {name: str(value) for name, value in self.values.items()}

    def begin(self) -> None:
        for name, value in self.variables().items():
            if os.environ.get(name) == value:
                self.hits += 1
            else:
                self.refuse("own_variable", name=name)
