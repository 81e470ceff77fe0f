"""The version of NCCL, and settings of libraries that slow a job down."""

import re
from typing import Final

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import Value, of_devices
from advisor.model.missing import Missing

_NCCL: Final = re.compile(r"\bNCCL (\d+)\.(\d+)(?:\.(\d+))?")
_NCCL_GUIDE: Final = "docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
# Of each setting: the values that slow a job down, and what they do, by the documentation of its library.
_SLOW: Final = {
    "CUDA_LAUNCH_BLOCKING": ("1", "each launch waits for its kernel"),
    "HIP_LAUNCH_BLOCKING": ("1", "each launch waits for its kernel"),
    "NCCL_IB_DISABLE": ("1", "NCCL uses IP sockets in place of InfiniBand or RoCE"),
    "NCCL_P2P_DISABLE": ("1", "NCCL does not copy from GPU to GPU"),
    "NCCL_P2P_LEVEL": ("LOC|0", "NCCL does not copy from GPU to GPU"),
    "NCCL_SHM_DISABLE": ("1", "NCCL uses the network between GPUs of a host that have no direct path"),
    "NVIDIA_TF32_OVERRIDE": ("0", "libraries multiply without TF32"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (".+", "PyTorch takes and frees device memory with each tensor"),
    "TORCHDYNAMO_DISABLE": ("1", "torch.compile does nothing"),
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL", "PyTorch checks each collective on all ranks"),
    "TORCH_NCCL_BLOCKING_WAIT": ("1", "the host waits for each collective"),
    "XLA_PYTHON_CLIENT_ALLOCATOR": ("platform", "JAX takes and frees device memory with each array"),
}
_OF_RANKS: Final = re.compile("NCCL|DISTRIBUTED")  # they do nothing in a job of one rank
_SOURCES: Final = (
    f"NCCL's user guide ({_NCCL_GUIDE}); PyTorch's CUDA environment variables "
    "(docs.pytorch.org/docs/stable/cuda_environment_variables.html) and torch.distributed; JAX's GPU memory allocation "
    "(docs.jax.dev/en/latest/gpu_memory_allocation.html); CUDA C++ Programming Guide, environment variables"
)


def _nccl(view: DeviceView) -> int:
    match = _NCCL.search(view.process.get("software") or "")
    major, minor, patch = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return 10_000 * major + 100 * minor + patch


def _slow_settings(view: DeviceView) -> Value:
    settings = view.process.get("settings")
    if settings is None and view.process.get("profiled_ms") is None:
        return Missing("settings_unrecorded")
    meets_others = view.collectives.height > 0 or (view.process.get("world_size") or 1) > 1
    pairs = [setting.partition("=")[::2] for setting in (settings or "").split(" ")]
    slow = [
        f"{name}={value} ({_SLOW[name][1]})"
        for name, value in pairs
        if name in _SLOW and re.fullmatch(_SLOW[name][0], value) and (meets_others or not _OF_RANKS.search(name))
    ]
    return ", ".join(slow)


measure = of_devices(__name__, needs_steps=False)
measure("nccl_version", _nccl, unit="count").says(
    "Version of NCCL, in its own form: 21903 is 2.19.3; 0 where the profile does not tell.",
    "10,000 x major + 100 x minor + patch",
)
measure("slow_settings", _slow_settings, unit="text").says(
    "Settings in the job's environment that slow it down, with what each does.",
    "variables that `advisor record` noted, of a closed list, with a value that its library documents as slower",
    _SOURCES,
)
