"""The numbers that people look for first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from advisor.model.finding import Value
from advisor.model.report import Run
from advisor.present.document import Figure
from advisor.text import bytes_, percent
from advisor.vocabulary.kinds import XLA_FRAMEWORKS

# metric, what it is called, and whether users of PyTorch look for it too
_HEADLINES: Final = (
    ("device_busy_share", "device at work", True),
    ("device_op_share", "ops on the device", False),
    ("tensor_core_share", "Tensor Cores", True),
    ("sixteen_bit_kernel_share", "16-bit kernels", True),
    ("flops_of_peak_share", "share of peak FLOPs", True),
    ("xla_flops_of_peak_share", "share of peak FLOPs", False),
    ("xla_share", "XLA", False),
    ("host_eager_share", "eager ops", False),
    ("function_tracing_share", "tracing of tf.functions", False),
)


def run_row(run: Run) -> Mapping[str, Value]:
    """The metrics of the job as a whole."""
    return next(iter(run.metrics.get("run", ())), {})


def figures(run: Run) -> tuple[Figure, ...]:
    """What the frameworks' own tools put first, as far as the profile has it."""
    row = run_row(run)
    of_xla = run.source.framework in XLA_FRAMEWORKS
    shares = [(what, row.get(name)) for name, what, for_all in _HEADLINES if for_all or of_xla]
    known = [Figure(what, percent(share)) for what, share in shares if isinstance(share, int | float)]
    peak, part = row.get("peak_memory_bytes"), row.get("peak_memory_share")
    of_all = f" ({percent(part)})" if isinstance(part, float) else ""
    return (*known, *([Figure("memory peak", bytes_(peak) + of_all)] if isinstance(peak, int) else []))
