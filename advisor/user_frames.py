"""Frames of Python's stacks: which are of the user's own code."""

from __future__ import annotations

import re
import sys
from typing import Final

_FRAME: Final = re.compile(r"^\s*([^\s():;<>|?*]+\.py)\((\d{1,9})\)")
_LIBRARIES: Final = re.compile(r"(^|/)(site-packages|dist-packages|torch|torchvision|lib/python[\d.]*)/|^<")
# PyTorch leaves out the folder that a library is installed in
_BARE: Final = sys.stdlib_module_names | {
    *("PIL", "accelerate", "aiohttp", "cv2", "deepspeed", "diffusers", "grpc", "httpx", "jax", "jaxlib"),
    *("keras", "lightning", "megatron", "mlflow", "numpy", "pandas", "pyarrow", "pytorch_lightning", "requests"),
    *("scipy", "sklearn", "tensorboard", "tensorboardX", "tensorflow", "timm", "tqdm", "transformers", "triton"),
    *("urllib3", "vllm", "wandb"),
}


def user_line(frame: str) -> tuple[str, int] | None:
    """File and line of a frame, `train.py(31): log`, of the user's own code; None of a library's or a built-in one."""
    match = _FRAME.match(frame)
    if match is None or not int(match[2]):
        return None
    path = match[1].replace("\\", "/")
    is_own = not _LIBRARIES.search(path) and path.partition("/")[0].removesuffix(".py") not in _BARE
    return (path, int(match[2])) if is_own else None
