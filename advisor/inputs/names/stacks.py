"""What stacks of Python show: what a line calls, which stage of loading a batch it is, whose code a frame is of.

The first two by `host_calls.yaml` and `loading_stages.yaml`: what each is called, and how to do it more rarely.
"""

import re
import sys
from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec
import polars as pl

from advisor.vocabulary.limits import table

TRANSPORT: Final = "transport"
POOL: Final = "pool"
COLLATE: Final = "collate"
PIN: Final = "pin"
CHOOSE: Final = "choose"
COMPILED: Final = "compiled"  # so begin kinds of ops in compiled code that take no part in a training
OWN: Final = "own"  # a kind beside those of calls: Python's or a library's work that no kind names
OP: Final = "op"  # the kind of an op of the framework that the line calls itself
AWAITED: Final = "waiting"  # the kind of calls that return before their work is done: the line that waits stands for it
CALLBACK: Final = r"(?:^|\.)on_\w*(?:batch|step|backward|optimizer)\w*$"  # of Lightning, Keras and transformers
_FRAME: Final = re.compile(r"^\s*([^\s():;<>|?*]+\.py)\((\d{1,9})\)")
_LIBRARIES: Final = re.compile(r"(^|/)(site-packages|dist-packages|torch|torchvision|lib/python[\d.]*)/|^<")
# PyTorch leaves out the folder that a library is installed in
_BARE: Final = sys.stdlib_module_names | {
    *("PIL", "accelerate", "aiohttp", "cv2", "deepspeed", "diffusers", "grpc", "httpx", "jax", "jaxlib"),
    *("keras", "lightning", "megatron", "mlflow", "numpy", "pandas", "pyarrow", "pytorch_lightning", "requests"),
    *("scipy", "sklearn", "tensorboard", "tensorboardX", "tensorflow", "timm", "tqdm", "transformers", "triton"),
    *("urllib3", "vllm", "wandb"),
}


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls of one kind."""

    name: str
    patterns: tuple[str, ...]
    words: str = ""  # that go on after a line; empty, as `fix`, where a rule judges them
    fix: str = ""  # what to do
    once: str = ""  # what to do where each step needs the result: before the loop, or a cheaper way
    elsewhere: str = ""  # goes on after that where no other process does the work
    keeps: float = 0.0  # the part of the work that it takes all the same, as done otherwise
    rests: bool = False  # no core of this machine is at work meanwhile

    @property
    def pattern(self) -> str:
        """The regular expression of all: found in the lines of a stack."""
        return "(?m)" + "|".join(self.patterns)


@cache
def kinds(of: str = "kinds") -> tuple[Kind, ...]:
    """All kinds, in the order in which they decide; or `rewrites` or `searches`, of what a line calls itself."""
    return msgspec.convert(table(__file__, "host_calls")[of], tuple[Kind, ...])


def kind_of(text: pl.Expr, otherwise: pl.Expr, among: Sequence[Kind]) -> pl.Expr:
    """The name of the first of these kinds with a pattern that is found in a text."""
    return pl.coalesce(*(pl.when(text.str.contains(each.pattern)).then(pl.lit(each.name)) for each in among), otherwise)


class Stage(Kind, frozen=True, forbid_unknown_fields=True):
    """A stage of loading a batch."""

    waits: bool = False  # a thread may sleep in it
    names: str = ""  # the group that is what a library does there
    on_device: str = ""  # goes on after `fix` where a device is there


@cache
def stages() -> tuple[Stage, ...]:
    """All stages, in the order in which they decide."""
    return msgspec.convert(table(__file__, "loading_stages")["kinds"], tuple[Stage, ...])


def stage_of(name: str) -> Stage:
    """The stage of this name."""
    return next(stage for stage in stages() if stage.name == name)


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
