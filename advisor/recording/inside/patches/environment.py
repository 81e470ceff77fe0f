"""Environment variables of runtimes and libraries."""

from __future__ import annotations

import os
from typing import Dict

from .patch import Patch, Schema

_NAMES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "MALLOC_ARENA_MAX",
    "MALLOC_TRIM_THRESHOLD_",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_MAX_CTAS",
    "NCCL_MIN_CTAS",
    "NCCL_PROTO",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_GPU_THREAD_COUNT",
    "TF_GPU_THREAD_MODE",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
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
