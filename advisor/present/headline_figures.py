"""The headline figures: the metrics that people look for first, with what they are called."""

from typing import Final

from advisor.model.report import Run
from advisor.present.document import Figure
from advisor.text import bytes_, percent, percents
from advisor.vocabulary.kinds import XLA_FRAMEWORKS

_WINDOW: Final = "of the {window}"
_KERNELS: Final = "of kernel time"
_MODELS: Final = {
    "dense": "dense language models",
    "experts": "language models with experts",
    "convolution": "convolutional networks",
}

# metric, what it is called, what it is a share of, and whether users of PyTorch look for it too
_HEADLINES: Final = (
    ("device_busy_share", "device at work", _WINDOW, True),
    ("device_op_share", "ops that use the device", "of all ops", False),
    ("tensor_core_share", "Tensor Cores", _KERNELS, True),
    ("sixteen_bit_kernel_share", "16-bit kernels", _KERNELS, True),
    ("flops_of_peak_share", "share of peak FLOPs", "{usual}", True),
    ("xla_flops_of_peak_share", "share of peak FLOPs", "", False),
    ("xla_share", "XLA", _KERNELS, False),
    ("host_eager_share", "eager ops", "of the ops' time on the host", False),
    ("function_tracing_share", "tracing", "of the time in tf.functions", False),
)


def figures(run: Run) -> tuple[Figure, ...]:
    """What the frameworks' own tools put first, as far as the profile has it."""
    row = run.of_job
    of_xla = run.source.framework in XLA_FRAMEWORKS
    window = "step" if run.source.steps.marked else "recording"
    low, high = row.get("usual_least_share"), row.get("usual_most_share")
    usual = (
        f"({percents(low, high)} is published for {_MODELS.get(str(row.get('usual_model')), 'such models')})"
        if isinstance(low, float) and isinstance(high, float)
        else ""
    )
    shares = [(what, row.get(name), base) for name, what, base, for_all in _HEADLINES if for_all or of_xla]
    known = [
        Figure(what, percent(share), base.format(window=window, usual=usual))
        for what, share, base in shares
        if isinstance(share, int | float)
    ]
    peak, part = row.get("peak_memory_bytes"), row.get("peak_memory_share")
    of_all = f" ({percent(part)} of the device's memory)" if isinstance(part, float) else ""
    return (*known, *([Figure("memory peak", bytes_(peak) + of_all)] if isinstance(peak, int) else []))
