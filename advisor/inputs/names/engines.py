"""What names tell of serving engines and of the kind of work, by work.yaml; the batch that the name of a step says."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from advisor.inputs.names.calls import alternatives, pattern
from advisor.vocabulary.limits import table

_VLLM: Final = r"^execute_(?P<tokens>\d+_)?context_(?P<prompts>\d+)\((?P<read>\d*).*?\)_generation_(?P<answers>\d+)\("
_SGLANG: Final = r"^step\[(?P<mode>[A-Z_]+)(?: bs=(?P<bs>\d+))?(?: toks=(?P<toks>\d+))?"
_TENSORRT: Final = r"^(?:\[Executor\] )?_forward_step \d+: (?P<prompts>\d+) ctx reqs, (?P<answers>\d+) gen"
_JAX: Final = r"^(?:jit_|PjitFunction\()(?P<jax>prefill|generate|decode)"

_WRITTEN: Final = table(__file__, "work")


def _joined(written: str | list[Any]) -> str:
    """The patterns of a list, and of lists in it, as one that each of them matches."""
    return written if isinstance(written, str) else str(alternatives([_joined(each) for each in written]))


_PATTERNS: Final = {name: _joined(written) for name, written in _WRITTEN["patterns"].items()}
STEP_MARKS: Final = _PATTERNS["step_marks"]
JAX_MARKS: Final = _PATTERNS["jax_marks"]
DECODE_ATTENTION: Final = _PATTERNS["decode_attention"]
PREFILL_ATTENTION: Final = _PATTERNS["prefill_attention"]
SAMPLERS: Final = _PATTERNS["samplers"]
CACHE_WRITES: Final = pattern("cache_writes")  # kernels that write keys and values, and compute nothing else
# Engines and what only their code and ranges are called; the first that matches counts
ENGINES: Final[list[tuple[str, str]]] = _WRITTEN["engines"]
DECODING: Final = ["decode", "verify"]  # phases in which every request gets its next tokens
PREFILLING: Final = ["prefill", "mixed"]  # phases in which prompts are read
_BATCHES: Final = tuple(re.compile(form) for form in (_VLLM, _SGLANG, _TENSORRT, _JAX))
_MODES: Final = {"EXTEND": "prefill", "PREFILL": "prefill", "DECODE": "decode", "MIXED": "mixed"}
_JITTED: Final = {"prefill": "prefill", "generate": "decode", "decode": "decode"}


class Sign(NamedTuple):
    """A pattern that shows a kind of work in names of kernels, ranges or Python's functions (`whose`)."""

    kind: str
    code: str
    whose: str
    pattern: str


def signs() -> Iterator[Sign]:
    """All signs of kinds of work, in order."""
    for row in _WRITTEN["signs"]:
        names = ((whose, written) for whose, written in row.items() if whose not in {"kind", "code"})
        yield from (Sign(row["kind"], row["code"], whose, _joined(written)) for whose, written in names)


class Batch(NamedTuple):
    """What a mark says of a step; None: not said."""

    phase: str  # prefill, decode, mixed or verify
    requests: int | None = None
    tokens: int | None = None


def batch(name: str) -> Batch | None:
    """The batch that the name of a range announces; None where it is no step of an engine."""
    match = next((fits for form in _BATCHES if (fits := form.match(name))), None)
    if match is None:
        return None
    fields = match.groupdict()
    if "mode" in fields:
        mode, requests, tokens = fields["mode"] or "", fields["bs"], fields["toks"]
        phase = "verify" if mode in {"TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2"} else _MODES.get(mode)
        if phase is None:
            return None
        size = int(requests) if requests else None
        return Batch(phase, size, int(tokens) if tokens else size if phase == "decode" else None)
    if "jax" in fields:
        return Batch(_JITTED[fields["jax"]])
    prompts, answers = int(fields["prompts"]), int(fields["answers"])
    phase = "decode" if not prompts else "mixed" if answers else "prefill"
    every, read = fields.get("tokens"), fields.get("read")  # of all of the batch; of the prompts
    tokens = answers if not prompts else int(read) + answers if read else None
    return Batch(phase, prompts + answers, int(every[:-1]) if every else tokens)


def varies(mark: str) -> bool:
    """Whether a mark says that its step prefills: how long that takes is up to the prompts."""
    of = batch(mark)
    return of is not None and of.phase not in DECODING
