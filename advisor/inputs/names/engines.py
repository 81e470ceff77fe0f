"""What the names of serving engines tell: their steps and phases, their code, and the kernels of their caches."""

import re
from typing import Final, NamedTuple

from advisor.inputs.names import shared

_VLLM: Final = r"^execute_(?P<tokens>\d+_)?context_(?P<prompts>\d+)\((?P<read>\d*).*?\)_generation_(?P<answers>\d+)\("
_SGLANG: Final = r"^step\[(?P<mode>[A-Z_]+)(?: bs=(?P<bs>\d+))?(?: toks=(?P<toks>\d+))?"
_TENSORRT: Final = r"^(?:\[Executor\] )?_forward_step \d+: (?P<prompts>\d+) ctx reqs, (?P<answers>\d+) gen"
_JAX: Final = r"^(?:jit_|PjitFunction\()(?P<jax>prefill|generate|decode)"

STEP_MARKS: Final = (
    r"^execute_(?:\d+_)?context_\d+\(|^step\[[A-Z_]+(?: bs=\d+)?|^(?:\[Executor\] )?_forward_step \d+: \d+ ctx reqs"
)
"""Names of ranges that are steps of SGLang, vLLM or TensorRT-LLM."""

JAX_MARKS: Final = r"^(?:jit_|PjitFunction\()(?:prefill|generate|decode)"
"""Calls of jitted functions that JAX's libraries name after phases."""

ENGINES: Final = (
    ("sglang", r"(?:^|/)sglang/\S+\.py"),  # before the others: engines import parts of vLLM
    ("tensorrt_llm", r"(?:^|/)tensorrt_llm/\S+\.py"),
    ("vllm", r"(?:^|/)vllm/\S+\.py"),
    ("sglang", r"^step\[[A-Z_]+(?: bs=\d+)?"),
    ("tensorrt_llm", r"_forward_step \d+: \d+ ctx reqs"),
    ("vllm", r"^execute_(?:\d+_)?context_\d+\(|^gpu_model_runner: "),
)
"""Engines and what only their ranges are called; the first that matches counts."""

ENGINE_CODE: Final = r"(?:^|/)(?:vllm|sglang|tensorrt_llm|lmdeploy|text_generation_server)/\S+\.py"
"""Python calls in the code of an engine."""

CACHE_KERNELS: Final = (
    r"reshape_and_cache|store_kvcache|concat_and_cache_mla|[Pp]aged_?(?:KV|kv|[Aa]ttention)|set_kv_buffer"
    r"|masked_multihead_attention|mmha_|UpdateKVCache"
)
"""Kernels that write or read a cache of keys and values in pages."""

CACHE_WRITES: Final = shared.pattern("cache_writes")
"""Kernels that write keys and values to the cache, and compute nothing else."""

DECODE_ATTENTION: Final = (
    r"(?i)batch_?decode|paged_attention_(?:v[12]_)?kernel|paged_attention_ll4mi|aiter::pa_|flash_?mla|_splitkv_mla"
    r"|mla_decode|decode_attention|attention_decode|_fwd_(?:grouped_)?kernel_stage[12]|masked_multihead_attention|mmha_"
    r"|fmha\w*ForGen|unified_attention_3d|xqa"
)
"""Attention of steps in which each request has one query: engines have other kernels for longer ones.

The names are those of FlashInfer, vLLM, AITER, FlashMLA, SGLang's Triton backend and TensorRT-LLM.
"""

PREFILL_ATTENTION: Final = (
    r"(?i)batch_?prefill|prefill_attention|prefill_kernel|fmhaSm\d+\w*Context|context_attention|extend_attention"
)
"""Attention of steps in which requests have many queries."""

SAMPLERS: Final = (
    r"(?i)arg_?max|multinomial|(?:^|[_:]|top.?[kp]|min.?p|token|prob|greedy|random)sampl(?:e|ing)|top_?k_?top_?p"
)
"""Kernels that choose the next tokens. Images are sampled too: `upsample`, `GridSample`."""

SPECULATION: Final = (
    r"(?i)rejection_(?:random|greedy)_sample|tree_speculative|verify_tree|build_(?:eagle_)?tree|propose_draft"
    r"|\[(?:TARGET_VERIFY|DRAFT_)"
)
"""Kernels and ranges that draft tokens, or check drafts."""

DECODING: Final = ["decode", "verify"]
"""Phases in which every request gets its next tokens."""

PREFILLING: Final = ["prefill", "mixed"]
"""Phases in which prompts are read."""

_PATTERNS: Final = tuple(re.compile(pattern) for pattern in (_VLLM, _SGLANG, _TENSORRT, _JAX))
_MODES: Final = {"EXTEND": "prefill", "PREFILL": "prefill", "DECODE": "decode", "MIXED": "mixed"}
_JITTED: Final = {"prefill": "prefill", "generate": "decode", "decode": "decode"}
_VERIFYING: Final = ("TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2")


class Batch(NamedTuple):
    """What a mark says of a step: its phase (prefill, decode, mixed, verify), requests and tokens; None: not said."""

    phase: str
    requests: int | None = None
    tokens: int | None = None


def batch(name: str) -> Batch | None:
    """The batch that the name of a range announces; None where it is no step of an engine."""
    match = next((fits for pattern in _PATTERNS if (fits := pattern.match(name))), None)
    if match is None:
        return None
    fields = match.groupdict()
    if "mode" in fields:
        return _of_sglang(fields)
    if "jax" in fields:
        return Batch(_JITTED[fields["jax"]])
    prompts, answers = int(fields["prompts"]), int(fields["answers"])
    phase = "decode" if not prompts else "mixed" if answers else "prefill"
    return Batch(phase, prompts + answers, _tokens(fields, prompts, answers))


def _tokens(fields: dict[str, str | None], prompts: int, answers: int) -> int | None:
    """All of the batch, where they stand first; else those of the prompts and one for each answer."""
    if every := fields.get("tokens"):
        return int(every[:-1])
    if not prompts:
        return answers
    read = fields.get("read")
    return int(read) + answers if read else None


def varies(mark: str) -> bool:
    """Whether a mark says that its step prefills: how long that takes is up to the prompts."""
    of = batch(mark)
    return of is not None and of.phase not in DECODING


def _of_sglang(fields: dict[str, str | None]) -> Batch | None:
    mode, requests, tokens = fields["mode"] or "", fields["bs"], fields["toks"]
    phase = "verify" if mode in _VERIFYING else _MODES.get(mode)
    if phase is None:
        return None
    size = int(requests) if requests else None
    return Batch(phase, size, int(tokens) if tokens else size if phase == "decode" else None)
