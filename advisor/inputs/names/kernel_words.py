"""Names of kernels as people say them: `internode::combine` without a C++ template."""

import re
from functools import cache
from typing import Final

_MOST: Final = 200  # parts of a mangled name
_FUNCTION: Final = re.compile(r"(?:(?:void|static|auto|__global__) )?[A-Za-z_][\w:~]*(?:[<(:]| \S+[<(:]|$)")
_ANONYMOUS: Final = re.compile(r"(?:\(anonymous namespace\)|<unnamed>)(?:::)?|\{lambda[^}]*\}(?:::)?")
_TAG: Final = re.compile(r"\[abi:[^\]]*\]")  # of what Numba compiles, which has one of a hundred letters
_CONDITION: Final = re.compile(r"^std::enable_if<.*?>::type\s+")
_PARAMETERS: Final = re.compile(r"(?<=[\w>])\(.*$", re.DOTALL)
_RETURNS: Final = re.compile(r"^(?:void|static|__global__|auto|\w+\*?)\s+(?=[\w:]+\s*[<(:]|[\w:]+$)")
_SYMBOL: Final = re.compile(r"[A-Za-z_]\w*(?:::[~\w]+)*")
# what follows the type and shape of a tile in names that libraries generate
_TAIL: Final = re.compile(
    r"_(?:tilesize|gridsize|stage|warpsize)\d.*$|(?<=gemm)_f\w*?_cudnn$|_MI\d+x\d.*$"
    r"|_(?:bx\d+_ex\d+|s\d_et\d+x)\w*$"
)
# what says which of many kernels a generic template is
_FUNCTOR: Final = re.compile(r"\b(\w*[Ff]unctor\w*|\w+_kernel_cuda\b|\w+Ops?)\b")
# functors that apply another one, which says more
_WRAPPERS: Final = frozenset({"BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor"})
# templates whose own name says nothing: if their namespace does neither, the first argument is the kernel
_SHELLS: Final = frozenset({"Kernel", "Kernel2", "device_kernel", "kernel", "GemmKernel", "_kernel_agent"})
_GENERIC: Final = frozenset(
    {
        *("at", "native", "detail", "cub", "thrust", "cuda_cub", "cutlass", "std", "c10", "cuda", "internal"),
        *("device", "conv", "gemm", "threadblock", "bool", "char", "int", "long", "float", "double", "half"),
        *("impl", "kernel", "kernels", "pytorch_flash", "__parallel_for", "core", "ck", "tensorflow", "functor"),
        *("Eigen", "gpuprim", "rocprim", "fbgemm_gpu", "flash", "torch", "caffe2", "cudnn", "ops"),
    }
)


@cache
def kernel_name(name: str) -> str:
    """What a person calls a kernel: no return type, template, parameters, nor namespaces that say nothing.

    A generic template keeps the one argument that tells it apart: `vectorized_elementwise_kernel<CUDAFunctor_add>`.
    What is no symbol of a function, such as `Memcpy HtoD (Pageable -> Device)`, stays as it is.
    """
    parts, inside = _demangled(name) or _parsed(name)
    if not parts:
        return name
    own = _TAIL.sub("", parts[-1]) or parts[-1]
    within = next((part for part in parts[-2:-1] if part not in _GENERIC and not part.startswith("_")), None)
    if not within and own in _SHELLS and (kernel := _first_of_its_own(inside)):
        return kernel_name(kernel)
    functor = next((word for word in _FUNCTOR.findall(inside) if word not in {own, *_WRAPPERS}), None)
    name = f"{within}::{own}" if within else own
    return f"{name}<{functor}>" if functor else name


def kernel_symbol(name: str) -> tuple[str, bool]:
    """The word that a profiler finds a kernel by; whether it is all of the function's name, not what it wraps."""
    function = [name, *(_demangled(name) or _parsed(name))[0]][-1]
    called, _, functor = kernel_name(name).removesuffix(">").partition("<")
    own = functor or called.rpartition("::")[2]
    return own, own == function and not _TAG.search(name)


def _first_of_its_own(inside: str) -> str | None:
    """The first name in a template's arguments that says something."""
    return next((name for name in _SYMBOL.findall(inside) if name.rpartition("::")[2] not in _GENERIC | _SHELLS), None)


def _parsed(name: str) -> tuple[list[str], str]:
    """The parts of a qualified name, and its template's arguments; no parts where it is no symbol."""
    plain = _CONDITION.sub("", _ANONYMOUS.sub("", _TAG.sub("", name)))
    if not _FUNCTION.match(plain):
        return [], ""
    outer, inside = _without_templates(_RETURNS.sub("", plain))
    outer = _PARAMETERS.sub("", outer)
    return (outer.split("::"), inside) if _SYMBOL.fullmatch(outer) else ([], "")


def _without_templates(name: str) -> tuple[str, str]:
    """The name outside of its angle brackets, and what they hold; operators' brackets are not expected."""
    depth = 0
    outer: list[str] = []
    inside: list[str] = []
    for sign in name:
        if sign == "(" and not depth:
            break
        depth += sign == "<"
        (inside if depth else outer).append(sign)
        depth -= sign == ">" and depth > 0
    return "".join(outer).strip(), "".join(inside)


def _demangled(name: str) -> tuple[list[str], str] | None:
    """The parts of a name that the Itanium ABI mangled, and what follows them; None where it is none."""
    if not name.startswith("_Z"):
        return None
    rest = re.sub(r"^_ZN?K?L?", "", name)
    parts: list[str] = []
    while (length := re.match(r"(\d{1,4})", rest)) and len(parts) < _MOST:
        size, rest = int(length[1]), rest[length.end() :]
        if not size or size > len(rest):
            return None
        part, rest = rest[:size], rest[size:]
        if not part.startswith("_GLOBAL__N_"):
            parts.append(part)
    return (parts, " ".join(_identifiers(rest))) if parts else None


def _identifiers(mangled: str) -> list[str]:
    """The names in the mangled arguments of a template, as far as their lengths tell them."""
    words: list[str] = []
    at = 0
    while match := re.compile(r"\d{1,3}").search(mangled, at):
        size, start = int(match[0]), match.end()
        word = mangled[start : start + size]
        is_word = size > 1 and len(word) == size and re.fullmatch(r"[A-Za-z_]\w*", word)
        if is_word:
            words.append(word)
        at = start + size if is_word else match.end()
    return words
