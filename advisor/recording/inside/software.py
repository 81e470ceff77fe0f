"""Versions of what the program runs on, and settings of its libraries from a closed list."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Dict

SETTINGS = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "HIP_LAUNCH_BLOCKING",
    "NCCL_ALGO",
    "NCCL_IB_DISABLE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_SHM_DISABLE",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_THREAD_COUNT",
    "TF_GPU_THREAD_MODE",
    "TF_XLA_FLAGS",
    "TORCHDYNAMO_DISABLE",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_NCCL_BLOCKING_WAIT",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
)
"""Those that change how fast a program runs. None holds a secret, a path that it must have, or the name of a person."""

_PLAIN = re.compile(r"[\w.:,=+-]{1,100}(?: [\w.:,=+-]{1,100}){0,9}")
_VERSION = re.compile(r"\d+(?:\.\w+){1,3}")
_CUDNN_9 = 90000
_DRIVER = "/proc/driver/nvidia/version"


def software() -> Dict[str, Dict[str, str]]:
    """`versions` by library, and `settings` by name; a value that is no plain text is noted as `set`."""
    values = {name: os.environ[name].strip() for name in SETTINGS if os.environ.get(name, "").strip()}
    settings = {name: value if _PLAIN.fullmatch(value) else "set" for name, value in values.items()}
    versions = {name: str(version) for name, version in _versions().items() if version}
    return {"versions": versions, "settings": settings}


def _versions() -> Dict[str, Any]:
    versions = {"driver": _driver()}
    torch = sys.modules.get("torch")
    if torch is not None:
        versions["PyTorch"] = _plain(torch.__version__)
        if torch.cuda.is_initialized():
            versions["cuDNN"] = _cudnn(torch.backends.cudnn.version())
    for module, name in (("tensorflow", "TensorFlow"), ("jax", "JAX"), ("jaxlib", "jaxlib")):
        versions[name] = _plain(getattr(sys.modules.get(module), "__version__", None))
    return versions


def _plain(version: object) -> str:
    match = _VERSION.match(str(version))
    return match.group() if match else ""


def _cudnn(number: object) -> str:
    """Its number is 10,000 x major + 100 x minor + patch from 9 on, 1,000 x major + 100 x minor + patch before."""
    if not isinstance(number, int):
        return ""
    of_major = 10000 if number >= _CUDNN_9 else 1000
    return "%d.%d.%d" % (number // of_major, number % of_major // 100, number % 100)


def _driver() -> str:
    try:
        with open(_DRIVER, encoding="ascii", errors="replace") as stream:
            match = re.search(r"  (\d+\.\d+(?:\.\d+)?)  ", stream.readline())
    except OSError:
        return ""
    return match.group(1) if match else ""
