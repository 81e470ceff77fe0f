"""What others publish of the utilisation of FLOPs, as published.yaml has it."""

from functools import cache
from pathlib import Path

import msgspec

from advisor.yamltree import Yaml

_HOST = 8  # GPUs of one host: beyond, links between hosts count


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published run: how the GPU's id begins, parameters in billions, how many GPUs, and the share of the peak."""

    gpu: str
    parameters: float
    gpus: int
    share: float
    source: str


@cache
def table() -> tuple[Figure, ...]:
    """All of them."""
    document = Yaml(Path(__file__).with_name("published.yaml").read_text("utf-8"))
    return msgspec.convert(document.value["utilisation"], tuple[Figure, ...])


def usual(gpu: str, gpus: int) -> tuple[float, float] | None:
    """The lowest and the highest share for this GPU, of runs on one host, or on several, as this; None without any."""
    shares = [of.share for of in table() if gpu.startswith(of.gpu) and (of.gpus <= _HOST) == (gpus <= _HOST)]
    return (min(shares), max(shares)) if shares else None
