"""Where a step goes: its parts as a bar, and the numbers that people look for first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from advisor.model.report import Run, Value
from advisor.present.document import Bar, Bars, Figure, Segment
from advisor.text import UNKNOWN, bytes_, ms, percent
from advisor.vocabulary import CATEGORIES

OF_XLA: Final = ("tensorflow", "jax")
"""The frameworks whose users know XProf's overview and pod viewer."""
# metric, what it is called, and whether users of PyTorch look for it too
_HEADLINES: Final = (
    ("device_busy_share", "device at work", True),
    ("device_op_share", "ops on the device", False),
    ("tensor_core_share", "Tensor Cores", True),
    ("sixteen_bit_kernel_share", "16-bit kernels", True),
    ("flops_of_peak_share", "share of peak FLOPs", True),
    ("xla_share", "XLA", False),
    ("host_eager_share", "eager ops", False),
    ("function_tracing_share", "tracing of tf.functions", False),
)
_WORTH_A_WORD: Final = 0.02  # of the step


def run_row(run: Run) -> Mapping[str, Value]:
    """The metrics of the job as a whole."""
    return next(iter(run.metrics.get("run", ())), {})


def bars(run: Run) -> Bars:
    """The step as one bar."""
    name = "step" if run.source.steps.marked else "recorded"
    parts = segments(run)
    return Bars((Bar(name, parts),) if parts else (), none=f"Where the time goes: {UNKNOWN}.")


def segments(run: Run) -> tuple[Segment, ...]:
    """The categories that take any time, in the order of the breakdown."""
    parts: list[Segment] = []
    start = 0.0
    for category, share in run.breakdown.items():
        if share > 0:
            parts.append(_segment(run, category, share, start))
            start += share
    return tuple(parts)


def _segment(run: Run, category: str, share: float, start: float) -> Segment:
    step_ms = run.source.steps.length_ms
    mostly = _mostly(run, category, share)
    known = CATEGORIES.get(category)
    time_ms = None if step_ms is None else share * step_ms
    label = f"{category} (mostly {mostly})" if mostly else category
    time = "" if time_ms is None else ms(time_ms)
    return Segment(category, start, share, time_ms, label, percent(share), known.meaning if known else "", time)


def _mostly(run: Run, category: str, share: float) -> str:
    """What most of a category is where its name says something else."""
    allocating = run_row(run).get("allocator_idle_share")
    if category != "launch" or not isinstance(allocating, float):
        return ""
    return "allocating or freeing memory" if allocating > max(share / 2, _WORTH_A_WORD) else ""


def figures(run: Run) -> tuple[Figure, ...]:
    """What the frameworks' own tools put first, as far as the profile has it."""
    row = run_row(run)
    of_xla = run.source.framework in OF_XLA
    shares = [(what, row.get(name)) for name, what, for_all in _HEADLINES if for_all or of_xla]
    known = [Figure(what, percent(share)) for what, share in shares if isinstance(share, int | float)]
    peak, part = row.get("peak_memory_bytes"), row.get("peak_memory_share")
    of_all = f" ({percent(part)})" if isinstance(part, float) else ""
    return (*known, *([Figure("memory peak", bytes_(peak) + of_all)] if isinstance(peak, int) else []))
