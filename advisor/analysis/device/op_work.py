"""What an op must compute and move at least, from its name and its inputs: FLOPs and bytes.

The formulas are those of PyTorch's torch.utils.flop_counter and of AMD's TraceLens; bytes count every input and output
once. An op without a formula, or without the inputs that its formula needs, is unknown.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple, TypeAlias

from advisor.vocabulary.limits import table

MOST_ELEMENTS: Final = 1 << 62  # what a column of integers holds; more elements than any device has

TABLES: Final = table(__file__, "op_work")
_CONVOLUTIONS: Final[dict[str, list[int | None]]] = TABLES["convolutions"]
_ATTENTIONS: Final[dict[str, tuple[int | None, int, bool]]] = TABLES["attentions"]
ELEMENTWISE: Final = "|".join(TABLES["elementwise"])
_FIRST_FACTOR: Final = {"addmm": 1, "baddbmm": 1, "_addmm_activation": 1}
_FACTORS: Final = 2
# Ops of other libraries: of two matrices whose inner sides agree, the name says that they are multiplied.
_PRODUCT: Final = r"(?i)(?:^|_)(?:b?mm|gemm|matmul|linear)(?:_|$)|matmul|gemm"
_TRANSPOSED: Final = 7  # of convolution_backward
_MASK: Final = 10
_BACKWARD: Final = 2.5  # five products for the two of the forward pass
_LENGTH_BYTES: Final = 4
_DIMENSIONS: Final = 4  # of a batch of heads; packed sequences have three, and their lengths are not in the shapes


class Work(NamedTuple):
    """What one call of an op has to do."""

    kind: str  # product, convolution, attention, or moving, which hardly computes
    flops: float  # a multiplication and an addition are two
    least_flops: float  # less if an attention may be causal, or gradients of a convolution absent
    nbytes: int  # each input and output once


class Tensor(NamedTuple):
    """An input: its shape, and bytes per element, None where the type is not known."""

    shape: tuple[int, ...]
    size: int | None

    @property
    def elements(self) -> int:
        """Elements; one of a scalar."""
        return min(prod(self.shape), MOST_ELEMENTS)

    @property
    def nbytes(self) -> int:
        """Bytes.

        Raises:
            LookupError: the type is not known.
        """
        if self.size is None:
            raise LookupError
        return self.elements * self.size


class _Call(NamedTuple):
    """One kind of call: the op's name without its library, inputs by place (None: no tensor), options as text."""

    name: str
    inputs: Sequence[Tensor | None]
    options: Sequence[object]

    def tensor(self, place: int) -> Tensor:
        tensor = self.inputs[place]
        if tensor is None:
            raise LookupError
        return tensor

    @property
    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in self.inputs if tensor is not None]

    def option(self, place: int | None) -> object:
        """The value of an option; None where it was not recorded."""
        text = self.options[place] if place is not None and place < len(self.options) else None
        return values_of(text.lower()) if isinstance(text, str) else None


_Formula: TypeAlias = Callable[[_Call], Work]


def work(name: str | None, shapes: str | None, dtypes: str | None, options: str | None) -> Work | None:
    """What a call with these inputs has to do; None where that is unknown.

    `shapes` and `dtypes` are JSON lists by place, `options` one of texts, as PyTorch's profiler writes them.
    """
    library, _, bare = (name or "").rpartition("::")
    if library == "aten":
        formula = next((formula for pattern, formula in _OF_PYTORCH if pattern.match(bare)), None)
    else:
        formula = _attention if bare in _ATTENTIONS else _foreign_product if re.search(_PRODUCT, bare) else None
    if formula is None:
        return None
    values = values_of(options or "")
    call = _Call(bare, inputs(shapes, dtypes), values if isinstance(values, list) else ())
    try:
        todo = formula(call)
    except (LookupError, ValueError, TypeError, ArithmeticError):  # an input that the formula needs is not there
        return None
    return todo if todo.nbytes <= MOST_ELEMENTS else None


def inputs(shapes: str | None, dtypes: str | None) -> list[Tensor | None]:
    """The inputs by place; None for what is no tensor."""
    sides, types = values_of(shapes or ""), values_of(dtypes or "")
    if not isinstance(sides, list) or not isinstance(types, list):
        return []
    types = [*types, *[None] * (len(sides) - len(types))]
    return [_input(shape, dtype) for shape, dtype in zip(sides, types, strict=False)]


@lru_cache(maxsize=1 << 6)  # calls on end have the same, and most texts are empty where inputs were not recorded
def values_of(text: str) -> object:
    """The JSON value, which is not to be changed; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_shape(value: object) -> bool:
    """Whether it is a tensor's shape; a list of tensors holds lists, a scalar's is empty."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(side) is int and 0 <= side <= MOST_ELEMENTS for side in value)
    )


def factors(name: str, tensors: Sequence[Tensor | None]) -> tuple[int, int, int, int] | None:
    """(count, m, n, k) of a product of `count` pairs of (m x k) and (k x n) matrices; None where it is none."""
    at = _FIRST_FACTOR.get(name, 0)
    matrices = [tensor for tensor in tensors[at:] if tensor is not None and len(tensor.shape) >= _FACTORS]
    if len(matrices) < _FACTORS:
        return None
    a, b = (tensor.shape for tensor in matrices[:_FACTORS])
    (rows, inner), (first, second) = a[-2:], b[-2:]
    if inner not in {first, second}:
        return None
    columns = second if inner == first and name != "linear" else first  # a linear layer's weight is transposed
    return _broadcast(a[:-2], b[:-2]), rows, columns, inner


def _input(shape: object, dtype: object) -> Tensor | None:
    size = TABLES["sizes"].get(dtype) if isinstance(dtype, str) else None
    if is_shape(shape):
        return Tensor(tuple(shape), size)  # type: ignore[arg-type]
    return Tensor((), size) if shape == [] and size else None


def _broadcast(first: Sequence[int], second: Sequence[int]) -> int:
    """Elements of two shapes together, each side of 1 as long as the other's."""
    longer, shorter = sorted((first, second), key=len, reverse=True)
    padded = (*[1] * (len(longer) - len(shorter)), *shorter)
    return min(prod(map(max, longer, padded)), MOST_ELEMENTS)


def _product(call: _Call) -> Work:
    sides = factors(call.name, call.inputs)
    if sides is None:
        raise LookupError
    count, m, n, k = sides
    a, b = [tensor for tensor in call.inputs[_FIRST_FACTOR.get(call.name, 0) :] if tensor][:_FACTORS]
    flops = 2.0 * count * m * n * k
    return Work("product", flops, flops, a.nbytes + b.nbytes + count * m * n * (a.size or 0))


def _foreign_product(call: _Call) -> Work:
    """Of another library, whose first input may be the result: known where just two inputs are matrices."""
    matrices = [tensor for tensor in call.tensors if len([side for side in tensor.shape if side > 1]) >= _FACTORS]
    if len(matrices) != _FACTORS:
        raise LookupError
    return _product(_Call("", matrices, ()))


def _convolution(call: _Call) -> Work:
    padding, stride, dilation, transposed = (call.option(place) for place in _CONVOLUTIONS[call.name])
    image, weight = call.tensor(0), call.tensor(1)
    if transposed:  # each element of the input meets each of the filter
        flops, size = 2.0 * image.elements * prod(weight.shape[1:]), 0
    else:
        sides = zip(image.shape[2:], weight.shape[2:], *map(_sides, (padding, stride, dilation or [1])), strict=False)
        sizes = (
            max(0, (size + 2 * pad - apart * (kernel - 1) - 1) // by + 1) for size, kernel, pad, by, apart in sides
        )
        size = image.shape[0] * weight.shape[0] * prod(sizes)
        flops = 2.0 * size * prod(weight.shape[1:])
    return Work("convolution", flops, flops, image.nbytes + weight.nbytes + size * (image.size or 0))


def _sides(values: object) -> list[int]:
    """One value per spatial dimension: a single one holds for all."""
    if not isinstance(values, list) or not values:
        raise LookupError
    return values * 3 if len(values) == 1 else values


def _convolution_gradients(call: _Call) -> Work:
    """Each gradient takes what the forward pass took; without the mask it is open whether there is one or both."""
    result, image, weight = (call.tensor(place) for place in range(3))
    mask, transposed = call.option(_MASK), call.option(_TRANSPOSED)
    forward = 2.0 * (image if transposed else result).elements * prod(weight.shape[1:])
    most = sum(map(bool, mask[:2])) if isinstance(mask, list) else 2
    least = most if isinstance(mask, list) else 1
    return Work("convolution", most * forward, least * forward, result.nbytes + image.nbytes + weight.nbytes)


def _image_gradient(call: _Call) -> Work:
    result, weight = call.tensor(1), call.tensor(2)
    flops = 2.0 * result.elements * prod(weight.shape[1:])
    return Work("convolution", flops, flops, 2 * result.nbytes + weight.nbytes)


def _attention(call: _Call) -> Work:
    causal_at, first, heads_first = _ATTENTIONS[call.name]
    query, key, value = (call.tensor(first + place) for place in range(3))
    # with lengths of sequences that share one batch, only pairs within each count
    are_packed = any(len(tensor.shape) == 1 and tensor.size == _LENGTH_BYTES for tensor in call.tensors)
    if {len(tensor.shape) for tensor in (query, key, value)} != {_DIMENSIONS} or are_packed:
        raise LookupError
    positions = 2 if heads_first else 1
    rows, columns = query.shape[positions], key.shape[positions]
    pairs = query.elements // query.shape[-1] * columns  # of positions, in all heads
    full = 2.0 * pairs * (query.shape[-1] + value.shape[-1]) * (_BACKWARD if first else 1.0)
    causal = call.option(causal_at)
    half = full * (columns + 1) / (2 * columns) if rows == columns else full / 2  # with the diagonal
    known = rows == columns and isinstance(causal, bool)
    flops = half if known and causal else full
    nbytes = (2 * query.nbytes + key.nbytes + value.nbytes) * (2 if first else 1)
    return Work("attention", flops, full if causal is False else half, nbytes)


def _moves(nbytes: int) -> Work:
    return Work("moving", 0.0, 0.0, nbytes)


def _elementwise(call: _Call) -> Work:
    """Inputs once and the result once, which is as wide as the widest input, or the first one's in place."""
    tensors = call.tensors
    shape: tuple[int, ...] = max((tensor.shape for tensor in tensors), key=len)
    elements = max(_broadcast(shape, tensor.shape) for tensor in tensors)
    wide = tensors[:1] if call.name.endswith("_") else [tensor for tensor in tensors if tensor.shape] or tensors
    size = 1 if re.match(r"(?:eq|ne|lt|le|gt|ge|isnan|logical_\w+)$", call.name) else max(t.size or 0 for t in wide)
    return _moves(sum(tensor.nbytes for tensor in tensors) + elements * size)


def _passes(number: int) -> _Formula:
    """Of the first input, `number` times: what it reads and writes is all of that size."""
    return lambda call: _moves(number * call.tensor(0).nbytes)


def _rows(call: _Call) -> Work:
    """Rows of a table, each read and written."""
    table, index = call.tensor(0), call.tensor(2 if call.name == "index_select" else 1)
    if call.name == "index_select" and call.option(1) not in {0, None}:
        raise LookupError
    return _moves(2 * index.elements * prod(table.shape[1:]) * (table.size or 0) + index.nbytes)


_OF_PYTORCH: Final[tuple[tuple[re.Pattern[str], _Formula], ...]] = tuple(
    (re.compile(pattern), formula)
    for pattern, formula in (
        (r"(?:mm|addmm|bmm|baddbmm|linear|matmul|_addmm_activation|_scaled_mm|_int_mm)$", _product),
        (rf"(?:{'|'.join(_CONVOLUTIONS)})$", _convolution),
        (r"convolution_backward$", _convolution_gradients),
        (r"(?:cudnn|miopen)_convolution_backward_input$", _image_gradient),
        (rf"(?:{'|'.join(_ATTENTIONS)})$", _attention),
        (r"(?:fill|zero)_$", _passes(1)),
        (r"copy_$", lambda call: _moves(call.tensor(0).nbytes + call.tensor(1).nbytes)),
        (rf"(?:{ELEMENTWISE})_?(?:_backward)?$", _elementwise),
        (r"(?:(?:native|cudnn|miopen)_(?:layer|batch|group)_norm|_fused_rms_norm|_(?:log_)?softmax)$", _passes(2)),
        (r"(?:(?:native|cudnn|miopen)_(?:layer|batch|group)_norm|_(?:log_)?softmax)_backward(?:_data)?$", _passes(3)),
        (r"(?:sum|mean|amax|amin|max|min|norm|linalg_vector_norm|var|std|argmax|argmin|any|all)$", _passes(1)),
        # beside its input and result a mask of bytes
        (r"native_dropout$", lambda call: _moves(2 * call.tensor(0).nbytes + call.tensor(0).elements)),
        (r"(?:embedding|index_select)$", _rows),
    )
)
