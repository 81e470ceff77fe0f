"""Which GPU a profile was recorded on, and what that GPU can do: peaks, links, limits and measured bandwidth."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any, Final

import msgspec

from advisor.vocabulary import limits

# Words of a device name that say who made the chip, or nothing at all: a name of these alone identifies no model.
_BRANDS: Final = {
    **dict.fromkeys(("nvidia", "tesla", "geforce", "quadro"), "NVIDIA"),
    **dict.fromkeys(("amd", "ati", "instinct", "radeon"), "AMD"),
    **dict.fromkeys(("intel", "microsoft", "apple", "qualcomm"), "other"),
}
_GENERATIONS: Final = frozenset({"kepler", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"})
_GENERIC: Final = _BRANDS.keys() | _GENERATIONS | {"gpu", "graphics", "device", "r", "tm"}
# Words that tell variants of a model apart. "FHHL", "H" and "LS" are V100s at other clocks, "24Q" a share of an A10.
_VARIANT: Final = re.compile(r"sxm\d*|pcie|nvl|dgxs|hbm\d\w*|\d+gb?")
_ANOTHER_PART: Final = re.compile(r"ti|super|d|laptop|mobile|max|fhhl|h|ls|mig|grid|\d+[abcq]")
# TU116 and TU117 report capability 7.5 without its Tensor Cores: GTX 16xx, MX450, T400 to T2000.
_WITHOUT_TENSOR_CORES: Final = re.compile(r"gtx|mx\d+|t\d{3,4}")
# Reported memory over the size in the name: GDDR with ECC on leaves 92 %, HBM 98 %; above 1 is rounding.
_FP64_RATIOS: Final = {6.0: 2, 6.1: 32, 7.0: 2, 7.5: 32, 8.0: 1, 8.6: 64, 8.9: 64, 9.0: 1, 10.0: 2, 12.0: 64}
_MEMORY_SHARE: Final = (0.90, 1.01)
_HOST = 8  # GPUs of one host: beyond, links between hosts count


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU as CUDA or HIP shows it; a None, or a dtype that is not listed, is not known."""

    id: str
    model: str
    vendor: str
    capability: float  # compute capability; on AMD the gfx version as ROCm reports it (gfx942 is 9.4)
    tensor_dtypes: frozenset[str]  # what Tensor Cores (AMD: matrix cores) multiply; accumulation may be wider
    forms: frozenset[str] = frozenset()  # words of a device name that tell this variant of the model from others
    datacenter: bool = False  # sold for data centres and hardly elsewhere, so that figures identify it
    sm_count: int | None = None
    max_threads_per_sm: int | None = None
    memory_gb: int | None = None
    memory_bandwidth_gbs: float | None = None
    peak_tflops: dict[str, float]  # dense peak per dtype; int8 in TOPS. fp32 is the rate of the ordinary cores.
    link: str | None = None  # nvlink, xgmi, or nvlink-bridge: an option that joins one pair, where it is fitted
    link_gbs: float | None = None  # GB/s in one direction, summed over links
    nccl_ring_gbs: float | None = None  # ring bus bandwidth that NCCL expects of the links
    nccl_peer_gbs: float | None = None  # of two, where links join every pair: n make rings over n - 1 links
    pcie_gbs: float | None = None  # GB/s of 16 views in one direction
    nccl_pcie_gbs: float | None = None  # the same, as NCCL expects it
    all_reduce_curves: dict[int, dict[float, float]] = {}  # measured all-reduce: ranks -> MiB -> bus bandwidth in GB/s
    notes: str | None = None
    sources: tuple[str, ...] = ()
    unsourced: tuple[str, ...] = ()  # fields that rest on general knowledge alone
    variants: tuple[Gpu, ...] = ()  # that name and figures leave open; fields have what they agree on

    @property
    def adds_slowly(self) -> bool:
        """Whether Tensor Cores add in fp32 at half of their rate, as on GeForce boards: int8 then has four times it."""
        peak = self.peak_tflops
        return peak.get("int8", 0.0) > 3 * peak.get("fp16", math.inf)

    @property
    def memory_bytes(self) -> int | None:
        """Nominal memory; the device itself reports up to 8 % less."""
        return None if self.memory_gb is None else self.memory_gb << 30

    @property
    def peaks(self) -> dict[str, float]:
        """Dense peak in TFLOP/s of each dtype, and of three TF32 products for one of fp32."""
        tf32 = self.peak_tflops.get("tf32")
        return self.peak_tflops | ({"3xtf32": tf32 / 3} if tf32 else {})

    @property
    def fp64_ratio(self) -> float | None:
        """Peak of fp32 on the ordinary cores over that of fp64 on the fastest; None where it is not known.

        Source: throughput of native arithmetic instructions, CUDA C++ Programming Guide; 8.0 and 9.0 multiply fp64 on
        Tensor Cores, twice as fast.
        """
        return _FP64_RATIOS.get(self.capability) if self.vendor == "NVIDIA" else None

    def tensor_core_gain(self, from_dtype: str, to_dtype: str) -> float | None:
        """Peak of `to_dtype` on Tensor Cores over peak of `from_dtype`; the least of the variants, None if unknown."""
        gains = list[float]()
        for gpu in self.variants or (self,):
            slow, fast = gpu.peak_tflops.get(from_dtype), gpu.peak_tflops.get(to_dtype)
            if not (slow and fast and to_dtype in gpu.tensor_dtypes):
                return None
            gains.append(fast / slow)
        return min(gains)


def match(
    name: str | None, *, memory_bytes: int | None = None, sm_count: int | None = None, capability: float | None = None
) -> Gpu | None:
    """The GPU that a profile describes, or None where that is not certain.

    The model must stand in `name` as whole words: "A100-PG509-200" is an A100, not an A10; "RTX 3070 Ti" is no
    RTX 3070. Other words narrow it to variants. A name that names no model ("", "AMD Radeon Graphics") leaves it to the
    figures, all three of them, and to chips that figures identify. A figure of the profile that contradicts an entry
    rules it out; zero counts as not reported. Variants that remain are not guessed between: see `Gpu.variants`.
    """
    words = _words(name or "")
    # Entries whose model stands among the words, and whose variant is none that the words exclude.
    variant = {word for word in words if _VARIANT.fullmatch(word)}
    another = {word for word in words if _ANOTHER_PART.fullmatch(word)}
    gpus = [
        gpu
        for gpu in table()
        if (model := _words(gpu.model)) <= words
        and another <= model
        and variant <= gpu.forms | {f"{gpu.memory_gb}gb"}
        and _is_of_vendor(gpu, words)
    ]
    if not gpus and words <= _GENERIC and memory_bytes and sm_count and capability:
        gpus = [gpu for gpu in table() if gpu.datacenter and _is_of_vendor(gpu, words)]
    gpus = [gpu for gpu in gpus if _admits(gpu, memory_bytes, sm_count, capability)]
    # What all of them agree on; None where there is none, or where they are not even of one generation.
    if len({(gpu.vendor, gpu.capability) for gpu in gpus}) != 1:
        return None
    if len(gpus) == 1:
        return gpus[0]
    agreed = {field: _agreed([getattr(gpu, field) for gpu in gpus]) for field in Gpu.__struct_fields__}
    names = {field: " or ".join(dict.fromkeys(getattr(gpu, field) for gpu in gpus)) for field in ("id", "model")}
    lists = {field: tuple({x: 0 for gpu in gpus for x in getattr(gpu, field)}) for field in ("sources", "unsourced")}
    return Gpu(**agreed | names | lists | {"variants": tuple(gpus)})


def generation(name: str | None, capability: float | None) -> Gpu | None:
    """What all listed GPUs of a compute capability have in common, for a GPU that is not listed itself.

    It has no peaks and no bandwidth. None where the capability is of none or of two vendors, or this chip of the
    generation may have no Tensor Cores.
    """
    words = _words(name or "")
    gpus = [gpu for gpu in table() if _is_of_vendor(gpu, words) and _admits(gpu, None, None, capability)]
    vendors = {gpu.vendor for gpu in gpus}
    if not capability or len(vendors) != 1 or not has_tensor_cores(capability, name or ""):
        return None
    return Gpu(
        id=f"{min(vendors)} {capability}",
        model=f"unlisted GPU of capability {capability}",
        vendor=min(vendors),
        capability=capability,
        tensor_dtypes=_agreed([gpu.tensor_dtypes for gpu in gpus]),
        max_threads_per_sm=_agreed([gpu.max_threads_per_sm for gpu in gpus]),
        peak_tflops={},
        variants=tuple(gpus),
    )


def has_tensor_cores(capability: float | None, name: str = "") -> bool | None:
    """Whether a GPU has Tensor Cores (AMD: matrix cores), for parts the table does not list; None if unknown.

    NVIDIA from 7.0 on, except the small Turing chips, told by `name`. AMD: gfx9.0 covers chips with and without; CDNA
    from gfx9.4 and RDNA from gfx11 on have them. Sources: CUDA C++ Programming Guide, AMD ISA references.
    """
    if not capability:
        return None
    words = _words(name)
    if "AMD" not in {_BRANDS.get(word) for word in words}:
        return capability >= 7.0 and not any(map(_WITHOUT_TENSOR_CORES.fullmatch, words))  # noqa: PLR2004 - Volta
    if round(capability, 1) == 9.0:  # noqa: PLR2004 - gfx900 to gfx90a
        return None
    return 9.4 <= capability < 10.0 or capability >= 11.0  # noqa: PLR2004 - CDNA 3, RDNA 3


@cache
def table() -> tuple[Gpu, ...]:
    """All GPUs of gpus.yaml, variants of one model as entries of their own."""
    rows = limits.table(__file__, "gpus")["gpus"]
    entries = [{"id": re.sub(r"\W+", "-", row["model"].lower()), **row} for row in rows]
    return msgspec.convert(entries, tuple[Gpu, ...])


def _words(text: str) -> frozenset[str]:
    joined = re.sub(r"(?<=\d)\s+(?=gb\b)", "", text.lower())
    return frozenset(re.findall(r"[^\W_]+", joined))


def _is_of_vendor(gpu: Gpu, words: frozenset[str]) -> bool:
    return {_BRANDS[word] for word in words & _BRANDS.keys()} <= {gpu.vendor}


def _admits(gpu: Gpu, memory_bytes: int | None, sm_count: int | None, capability: float | None) -> bool:
    low, high = _MEMORY_SHARE
    return (
        (not memory_bytes or not gpu.memory_bytes or low * gpu.memory_bytes <= memory_bytes <= high * gpu.memory_bytes)
        and (not sm_count or sm_count == gpu.sm_count)
        and (not capability or abs(capability - gpu.capability) < 0.05)  # noqa: PLR2004 - half of the last digit
    )


def _agreed(values: list[Any]) -> Any:  # noqa: ANN401 - any field's value
    first, *others = values
    if isinstance(first, dict):
        return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
    if isinstance(first, frozenset):
        return first.intersection(*others)
    return first if all(other == first for other in others) else None


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published run: what it trained, how the GPU's id begins, billions of parameters, GPUs, share of the peak."""

    model: str
    gpu: str
    parameters: float
    gpus: int
    share: float
    source: str


@cache
def figures() -> tuple[Figure, ...]:
    """What others publish of the utilisation of FLOPs."""
    return msgspec.convert(limits.table(__file__, "published")["utilisation"], tuple[Figure, ...])


def usual(model: str, gpu: str, gpus: int) -> tuple[float, float] | None:
    """The lowest and the highest share for such a model on this GPU, of runs on one host, or on several, as this."""
    alike = [of for of in figures() if of.model == model and gpu.startswith(of.gpu)]
    shares = [of.share for of in alike if (of.gpus <= _HOST) == (gpus <= _HOST)]
    return (min(shares), max(shares)) if shares else None
