"""Kinds of work, what shows them, and the phases of a server's steps."""

from typing import Final

WORKLOADS: Final = {
    "training": "training",
    "inference": "inference",
    "serving": "serving",
    "capture": "capture of CUDA graphs",
    "benchmark": "one kernel repeated",
}
"""Kinds of work as a report names them."""

SIGNS: Final = {
    "backward_ops": "ops of a backward pass",
    "backward_kernels": "kernels of a backward pass or an update of parameters",
    "optimizer_calls": "calls of an optimizer",
    "training_ranges": "ranges named after training",
    "engine_steps": "steps of a serving engine",
    "engine_code": "code of a serving engine",
    "speculation": "speculative decoding",
    "cache_kernels": "kernels that read or write a cache of keys and values",
    "inference_kernels": "kernels of inference only",
    "inference_ranges": "ranges named after inference",
    "forward_only": "matrix products without autograd",
    "graph_capture": "half of the host's time or more in captures",
    "one_kernel": "one kernel takes nearly all of the time, again and again",
    "option": "the option `--workload`",
}
"""What shows a kind of work."""

PHASES: Final = {
    "prefill": "prefill",
    "decode": "decode",
    "mixed": "prefill and decode",
    "verify": "check of drafts",
    "unnamed": "not known",
}
"""Phases of a server's steps as a report names them."""
