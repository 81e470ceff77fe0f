"""What a GPU kernel's name alone tells, by the table of kernels.yaml: what it computes, where, in which format, whose.

A name is judged by itself, and each distinct one once in a process. Tensor Cores stand for the matrix units of either
vendor (HMMA, WGMMA, tcgen05; MFMA, WMMA). The table began with the substrings of XProf's `kernel_stats_utils.cc` and
was corrected on the names of public traces from V100 to B200 and MI250 to MI300X.
"""

import re
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from advisor.vocabulary import limits

FAMILIES: Final = pl.Enum(limits.table(__file__, "families"))
# What a collective does; send_recv is a kernel of transfers that its name does not tell apart
COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter"),
    *("send", "recv", "send_recv", "barrier"),
)
PRODUCTS = ["gemm", "gemv", "convolution", "attention"]  # families of kernels that multiply matrices
DTYPE_BYTES: Final[dict[str, int]] = limits.table(__file__, "dtypes")
"""How many bytes an element of each of PyTorch's types has."""


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of one origin; `library` is of each of them that states none."""

    source: str
    rows: list[dict[str, Any]]
    library: str | None = None


class Row(NamedTuple):
    """One row: patterns, of each of which an alternative must match, what it says of such a name, and its source."""

    patterns: dict[str, tuple[str, ...]]
    columns: dict[str, Any]
    source: str


class Reason(NamedTuple):
    """Why a name has a value in a column: what matched of the row that decides it, and the row's source."""

    column: str
    value: Any
    matched: tuple[str, ...]
    source: str


_PATTERNS: Final[tuple[str, ...]] = ("own", "any")
_COLUMNS: Final = ("family", "multiplies", "cores", "type", "values", "library", "generation", "collective")

_SCHEMA: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "name": pl.String,
    "family": FAMILIES,
    "multiplies": pl.Boolean,
    "tensor_cores": pl.Boolean,
    "element_type": pl.String,
    "alignment": pl.UInt8,
    "library": pl.String,
    "generation": pl.String,
    "collective": pl.String,
}
_MOST_NAMES: Final = 100_000
_classes: list[pl.DataFrame] = []
"""What is known of the names so far: the ranks of a job run the same kernels, and a search takes long."""


@cache
def table() -> tuple[Row, ...]:
    """The rows of kernels.yaml in order."""
    rows = []
    for group in msgspec.convert(limits.table(__file__, "kernels"), list[_Group]):
        for written in group.rows:
            texts = {where: written[where] for where in _PATTERNS if where in written}
            patterns = {where: (of,) if isinstance(of, str) else tuple(of) for where, of in texts.items()}
            columns = {"library": group.library} if group.library else {}
            columns |= {name: value for name, value in written.items() if name not in _PATTERNS}
            rows.append(Row(patterns, columns, group.source))
    return tuple(rows)


def classify(names: pl.Series) -> pl.DataFrame:
    """All that each kernel name tells, one row per name, in order; a null name is null in every column.

    Columns:
        name
        family: What the kernel does, as FAMILIES.
        multiplies: Whether it may multiply matrices; false where its family or its role rules that out.
        tensor_cores: Whether Tensor Cores are used, null where the name does not settle it. False as well for a kernel
            that multiplies no matrices: `multiplies` tells it from a missed chance.
        element_type: Input type of the multiplication (fp64 fp32 tf32 3xtf32 fp16 bf16 fp8 fp4 int8), of other kernels
            the type of their values; null where not told.
        alignment: The N of `alignN` in CUTLASS and cuDNN names, in elements; null where the name holds none.
        library, generation: Who wrote it, and the oldest GPU that it was written for; null where not told.
        collective: Which of COLLECTIVES it is, whatever its family; null where the name does not say.
    """
    text = names.cast(pl.String).alias("name")
    distinct = text.unique().to_frame()
    known = _classes[0] if _classes else pl.DataFrame(schema=_SCHEMA)
    unseen = distinct.join(known, on="name", how="anti", nulls_equal=True)
    if unseen.height:
        known = pl.concat([known, _searched(unseen)])
    if known.height > _MOST_NAMES:
        known = known.join(distinct, on="name", how="semi", nulls_equal=True)
    _classes[:] = [known]
    return text.to_frame().join(known, on="name", how="left", nulls_equal=True, maintain_order="left")


def family(names: pl.Series) -> pl.Series:
    """What each kernel does, as FAMILIES."""
    return classify(names)["family"]


def collective_op(names: pl.Series) -> pl.Series:
    """String: which of COLLECTIVES it is, if it is one (ask `family`); null where the name does not say."""
    return classify(names)["collective"]


def explanation(name: str) -> list[Reason]:
    """What the table says of a name, a reason for each column that some row states."""
    subject = _subjects(pl.DataFrame({"name": [name]})).row(0, named=True)
    reasons: dict[str, Reason] = {}
    for row in table():
        matched = [next((a for a in of if re.search(a, subject[where])), None) for where, of in row.patterns.items()]
        if None not in matched:
            reasons |= {
                column: Reason(column, value, tuple(filter(None, matched)), row.source)
                for column, value in row.columns.items()
                if column not in reasons
            }
    is_typed = "type" in reasons
    return [reasons[column] for column in _COLUMNS if column in reasons and not (column == "values" and is_typed)]


def _searched(names: pl.DataFrame) -> pl.DataFrame:
    rows = table()
    searches = dict[str, pl.Expr]()
    for at, row in enumerate(rows):
        # Without the letters and digits of all scripts, which take three times as long to compile.
        forms = {where: "|".join(of).replace(r"[\w", "[a-z0-9_") for where, of in row.patterns.items()}
        forms = {where: form.replace(r"\w", "[a-z0-9_]").replace(r"\d", "[0-9]") for where, form in forms.items()}
        searches[str(at)] = pl.all_horizontal(pl.col(where).str.contains(form) for where, form in forms.items())
    hits = _subjects(names).select("name", "any", **searches)
    stating = {of: [(str(at), row.columns[of]) for at, row in enumerate(rows) if of in row.columns] for of in _COLUMNS}
    firsts = {
        column: pl.coalesce(pl.when(at).then(pl.lit(value)) for at, value in of) for column, of in stating.items()
    }
    stated = hits.select("name", "any", **firsts)
    stated = stated.with_columns(family=pl.when(pl.col("name").is_not_null()).then(pl.col("family").fill_null("other")))
    is_product = pl.col("family").is_in(PRODUCTS)
    multiplies = (is_product | (pl.col("family") == "other")) & pl.col("multiplies").fill_null(value=True)
    is_moved = ~pl.col("family").is_in(["collective", "fused_collective"]) & ~(is_product & multiplies)
    alignment = pl.when(is_product).then(pl.col("any").str.extract(r"_align[abc]?(\d+)").cast(pl.UInt8, strict=False))
    return stated.with_columns(
        pl.col("family").cast(FAMILIES),
        multiplies=multiplies,
        tensor_cores=pl.when(multiplies).then(pl.col("cores") == "tensor").otherwise(multiplies),
        element_type=pl.when(is_moved).then(pl.coalesce("type", "values")).otherwise("type"),
        alignment=alignment,
    ).select(*_SCHEMA)


def _subjects(names: pl.DataFrame) -> pl.DataFrame:
    """The names with what patterns are held against, in lower case: `any` is all of a name, `own` says what it is.

    That is its own name without return type, anonymous namespace and arguments (nor FBGEMM's name, which promises a
    product that most of its kernels are not); but of a template that runs what it is given, everything.
    """
    name = pl.col("name")
    plain = name.str.replace_many(["(anonymous namespace)::", "<unnamed>::", "fbgemm"], [""])
    plain = plain.str.replace(r"^(?:void )?(?:std::enable_if<.*?>::type )?", "")
    head = plain.str.extract(r"^([^<(]*)")
    is_wrapper = head.str.contains(r"^(?:cutlass\w*|ck|ck_tile|thrust)::")
    own = pl.when(is_wrapper).then(name).otherwise(head).str.to_lowercase()
    return names.with_columns(own=own, any=name.str.to_lowercase())


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
_WRAPPERS: Final = frozenset({"BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor"})  # which apply another one
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
    """
    parts, inside = _demangled(name) or _parsed(name)
    if not parts:
        return name  # no symbol of a function, such as `Memcpy HtoD (Pageable -> Device)`
    own = _TAIL.sub("", parts[-1]) or parts[-1]
    within = next((part for part in parts[-2:-1] if part not in _GENERIC and not part.startswith("_")), None)
    telling = (of for of in _SYMBOL.findall(inside) if of.rpartition("::")[2] not in _GENERIC | _SHELLS)
    kernel = next(telling, None) if not within and own in _SHELLS else None
    functor = next((word for word in _FUNCTOR.findall(inside) if word not in {own, *_WRAPPERS}), None)
    name = kernel_name(kernel) if kernel else f"{within}::{own}" if within else own
    return f"{name}<{functor}>" if functor else name


def kernel_symbol(name: str) -> tuple[str, bool]:
    """The word that a profiler finds a kernel by; whether it is all of the function's name, not what it wraps."""
    function = [name, *(_demangled(name) or _parsed(name))[0]][-1]
    called, _, functor = kernel_name(name).removesuffix(">").partition("<")
    own = functor or called.rpartition("::")[2]
    return own, own == function and not _TAG.search(name)


def _parsed(name: str) -> tuple[list[str], str]:
    """The parts of a qualified name, and its template's arguments; no parts where it is no symbol."""
    plain = _CONDITION.sub("", _ANONYMOUS.sub("", _TAG.sub("", name)))
    if not _FUNCTION.match(plain):
        return [], ""
    depth = 0
    outer: list[str] = []
    inside: list[str] = []
    for sign in _RETURNS.sub("", plain):
        if sign == "(" and not depth:
            break
        depth += sign == "<"
        (inside if depth else outer).append(sign)
        depth -= sign == ">" and depth > 0
    symbol = _PARAMETERS.sub("", "".join(outer).strip())
    return (symbol.split("::"), "".join(inside)) if _SYMBOL.fullmatch(symbol) else ([], "")


def _demangled(name: str) -> tuple[list[str], str] | None:
    """The parts of a name that the Itanium ABI mangled, and what follows them; None where it is none."""
    if not name.startswith("_Z"):
        return None
    rest = re.sub(r"^_ZN?K?L?", "", name)
    parts: list[str] = []
    while (length := re.match(r"(\d{1,4})", rest)) and len(parts) < (_MOST if name.startswith("_ZN") else 1):
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
