"""Switches of runtimes and libraries: threads, TF32, garbage collection, aids of debugging, environment variables."""

from __future__ import annotations

import gc
import os
import sys
from operator import attrgetter
from typing import Any, Dict

from ..wrapping import wrap  # noqa: TID252 - programs have no package `advisor`
from .patch import Patch, Schema


class Threads(Patch):
    """`torch.set_num_threads`; not in a program that calls it itself."""

    name = "threads"
    framework = "torch"
    toggles = ("cpu", "cuda")
    numerics = "rounding"
    arguments = {"number": {"type": "integer", "minimum": 1, "maximum": 1024, "description": "threads of one op"}}

    original: Any = None
    own = 0

    def hook(self, module: Any, census: Any) -> None:
        self.own = module.get_num_threads()
        self.original = module.set_num_threads
        wrap(module, "set_num_threads", self._set)
        if self.own == self.values["number"]:
            self.refuse("as_it_is")

    def begin(self) -> None:
        if self.original and not self.refusals:
            self.hits = 1

    def switch(self, on: bool) -> None:
        super().switch(on)
        if self.original and not self.refusals:
            self.original(self.values["number"] if on else self.own)

    def _set(self, original: Any, number: int) -> None:
        caller = sys._getframe(2)  # before that of `wrap`
        place = "%s:%d" % (os.path.basename(caller.f_code.co_filename), caller.f_lineno)
        self.refuse("own_threads", number=int(number), place=place)
        original(number)


_CAPABILITY = 8  # of GPUs from A100 on


class _Tf32(Patch):
    """A switch of one of PyTorch's backends; on GPUs that have TF32."""

    framework = "torch"
    toggles = ("cuda",)
    numerics = "changes"
    torch: Any = None
    backend: Any = None  # of the framework's module, what has the switch

    def hook(self, module: Any, census: Any) -> None:
        self.torch = module

    def begin(self) -> None:
        """As `Patch.begin`: by now the program has set what it sets itself."""
        cuda = self.torch.cuda if self.torch else None
        if cuda is None or not cuda.is_available() or not cuda.is_initialized():
            self.refuse("no_gpu")
        elif cuda.get_device_capability()[0] < _CAPABILITY:
            self.refuse("no_tf32")
        elif self.backend(self.torch).allow_tf32:
            self.refuse("as_it_is")
        else:
            self.hits = 1

    def switch(self, on: bool) -> None:
        super().switch(on)
        if self.hits:
            self.backend(self.torch).allow_tf32 = on


class Matmul(_Tf32):
    """`torch.backends.cuda.matmul.allow_tf32`."""

    name = "tf32-matmul"
    backend = attrgetter("backends.cuda.matmul")


class Cudnn(_Tf32):
    """`torch.backends.cudnn.allow_tf32`."""

    name = "tf32-cudnn"
    backend = attrgetter("backends.cudnn")


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
