"""Frames of Python's stacks: which are of the user's own code."""

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


def is_of_library(frame: str) -> bool:
    """Whether a frame of a stack, `torch/nn/modules/module.py(9): f`, is of a library, of Python's or built in."""
    path = frame.strip().replace("\\", "/")
    return bool(_LIBRARIES.search(path)) or re.split(r"[/(:]", path, maxsplit=1)[0].removesuffix(".py") in _BARE


def user_line(frame: str) -> tuple[str, int] | None:
    """File and line of a frame, `train.py(31): log`, of the user's own code; None of a library's or a built-in one."""
    match = _FRAME.match(frame)
    if match is None or not int(match[2]) or is_of_library(frame):
        return None
    return match[1].replace("\\", "/"), int(match[2])
