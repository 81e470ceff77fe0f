"""What Kineto's category and event names mean, over every generation of PyTorch."""

from typing import Final

import polars as pl

from advisor.model.schemas import MEMORY_KINDS

# Category -> the table an event goes to and, for host_ops, the kind it starts as. 2021's names are capitalised.
DEVICE_CATEGORIES: Final = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "Memcpy": "memcpy",
    "gpu_memset": "memset",
    "Memset": "memset",
}
HOST_CATEGORIES: Final = {
    "cpu_op": "op",
    "Operator": "op",
    "user_annotation": "annotation",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "hip_runtime": "runtime",
    "Runtime": "runtime",
    "python_function": "python",
    "python_gc": "gc",
    "overhead": "overhead",
}
LEFT_OUT_CATEGORIES: Final = frozenset(
    {"Trace", "gpu_user_annotation", "fwdbwd", "ac2g", "async_cpu_to_gpu", "async_gpu", "cuda_sync"}
)
"""What else Kineto writes: its own summary, copies of ranges, arrows, and waits that the calls show as well."""


def copy_kind(name: pl.Expr) -> pl.Expr:
    """HtoD, DtoH, ... from a copy's name, null where it does not say."""
    return name.str.extract(r"\b([HDP]to[HDP])\b").cast(pl.Categorical())


def copy_memory(name: pl.Expr, side: int) -> pl.Expr:
    """Kind of memory at the copy's source (side 1) or target (side 2), from `(Pageable -> Device)`."""
    memory = name.str.extract(r"\((\w+) -> (\w+)\)", side).str.to_lowercase()
    return memory.cast(MEMORY_KINDS, strict=False)


# Element sizes by c10 name, as NCCL metadata spells them.
DTYPE_BYTES: Final = {
    "ComplexDouble": 16,
    **dict.fromkeys(["Double", "Long", "UInt64", "ComplexFloat"], 8),
    **dict.fromkeys(["Float", "Int", "UInt32", "ComplexHalf"], 4),
    **dict.fromkeys(["Half", "BFloat16", "Short", "UInt16"], 2),
    **dict.fromkeys(["Byte", "Char", "Bool", "Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz"], 1),
}

NEXT_DATA: Final = r"(?:^|/)torch/utils/data/dataloader\.py\(\d+\): _next_data$"
FETCH: Final = r"(?:^|/)torch/utils/data/_utils/fetch\.py\(\d+\): fetch$"
"""Functions of PyTorch's DataLoader: asked for a batch; loads it in the same process, where there are no workers."""
