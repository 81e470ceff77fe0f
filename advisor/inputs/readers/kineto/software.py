"""The software of a job and the profiler's options, as a trace's header tells them."""

import re
from typing import Final, TypeGuard

from advisor.inputs.readers.kineto.fields import Distributed, Header

_OPTIONS: Final = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_LARGEST: Final = 10**9  # of a version's number


def software(header: Header) -> str | None:
    """`CUDA 12.4, driver for CUDA 12.9, NCCL 2.17.1`; None where the trace tells none.

    CUDA's number is 1000 x major + 10 x minor (CUDA_VERSION), HIP's 10^7 x major + 10^5 x minor + patch (HIP_VERSION).
    """
    nccl = (header.distributedInfo or Distributed()).nccl_version
    parts = [
        _labelled("CUDA {}", _cuda(header.cuda_runtime_version)),
        _labelled("driver for CUDA {}", _cuda(header.cuda_driver_version)),
        _labelled("HIP {}", _hip(header.hip_runtime_version)),
        _labelled("driver for HIP {}", _hip(header.hip_driver_version)),
        _labelled("NCCL {}", nccl if isinstance(nccl, str) and re.fullmatch(r"[\d.]{1,20}", nccl) else None),
    ]
    return ", ".join(part for part in parts if part) or None


def options(header: Header) -> str | None:
    """The options of torch.profiler that were on; None where the trace does not tell, as those of before 1.11."""
    return ", ".join(name for name in _OPTIONS if is_on(header, name)) or None


def is_on(header: Header, option: str) -> bool:
    """Whether the trace tells that an option of torch.profiler was on; some releases write 1, some true."""
    value = getattr(header, option)
    return value is True or (isinstance(value, int) and value == 1)


def _labelled(words: str, version: str | None) -> str | None:
    return None if version is None else words.format(version)


def _cuda(number: object) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if _is_version(number) else None


def _hip(number: object) -> str | None:
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}" if _is_version(number) else None


def _is_version(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 < number < _LARGEST
