"""XLA's programs in a profile: the lines that its ops come from, and in which format fusions of products multiply.

Source of the numbers of fields and types: hlo.proto and xla_data.proto of openxla/xla.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
import polars as pl

from advisor.inputs.readers.xplane.plane import Plane, texts
from advisor.inputs.readers.xplane.wire import Buffer, Fields, Message
from advisor.model.profile import TEXT, Schema

PRODUCTS: Final[Schema] = dict.fromkeys(["hlo_module", "fusion", "operand_type"], TEXT)
ORIGINS: Final[Schema] = dict.fromkeys(["program", "name", "stack", "result"], TEXT)
_RESULTS: Final = {10: '["c10::Half"]', 11: '["float"]', 12: '["double"]', 16: '["c10::BFloat16"]'}  # as in `dtypes`
_TYPES: Final = {10: "fp16", 11: "fp32", 12: "fp64", 16: "bf16", **dict.fromkeys((19, 20, 23, 24, 25, 28, 29), "fp8")}
_PROGRAM: Final = 6  # of a stat that holds bytes
_MODULE: Final = 1  # of a program
_MODULE_NAME, _COMPUTATIONS = 1, 3
_NAME, _INSTRUCTIONS = 1, 2  # of a computation
_OPCODE, _SHAPE, _ID, _OPERANDS = 2, 3, 35, 36  # of an instruction
_ELEMENT_TYPE: Final = 2  # of a shape
_METADATA: Final = 7  # of an instruction
_LINE, _STACK = 4, 15  # of that
_TEXTS: Final = (_NAME, 2, 3)  # an instruction's, and of its metadata: path and file
_STACKS: Final = 17  # of a module: 1 files, 2 functions, 3 places in them, 4 calls, each with what is around it
_MOST_FRAMES: Final = 20
_PRODUCT: Final = "dot"
T = TypeVar("T")
_WITH_PRODUCT: Final = bytes([_OPCODE << 3 | 2, len(_PRODUCT)]) + _PRODUCT.encode()


def programs(plane: Plane) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A row per product in the programs that the plane holds: module, kernel, and format or null; and one per op.

    Its `stack` is the framework's path of the op and the frames that call for it, the innermost first:
    `jit(step)/Net/dot_general;train.py(20): Net.__call__;...`. Its `result` is the floating-point type that it gives.
    """
    buffer, stats = plane.buffer, plane.names.stats
    protos = buffer.all_fields(stats.start, stats.end)[0].messages(_PROGRAM)
    spans = buffer.all_fields(protos.start, protos.end)[0].messages(_MODULE)
    modules = [
        buffer.split(*span, _COMPUTATIONS) for span in zip(spans.start.tolist(), spans.end.tolist(), strict=True)
    ]
    products, ops = ([row for of in modules for row in read(buffer, of)] for read in (_products, _origins))
    return pl.DataFrame(products, PRODUCTS, orient="row"), pl.DataFrame(ops, ORIGINS, orient="row")


def _title(buffer: Buffer, module: Message) -> str:
    return "".join(buffer.text(field.value, field.end) for field in module.fields if field.number == _MODULE_NAME)


def _origins(buffer: Buffer, module: Message) -> Iterator[tuple[str, str, str, str | None]]:
    spans = [(field.value, field.end) for field in module.fields if field.number == _STACKS and field.end >= 0]
    stacks = _stacks(buffer, *spans[-1]) if spans else [[]]
    title, computations = _title(buffer, module), buffer.all_fields(module.starts, module.ends)[0]
    instructions = computations.messages(_INSTRUCTIONS)
    fields, _ = buffer.all_fields(instructions.start, instructions.end)
    metadata, height = fields.messages(_METADATA), len(instructions.owner)
    facts, _ = buffer.all_fields(metadata.start, metadata.end)
    facts = facts._replace(owner=metadata.owner[facts.owner])
    names, paths, files = (texts(buffer, of, height) for of in map(Fields.messages, (fields, facts, facts), _TEXTS))
    for name, path, file, (line, stack), element_type in zip(
        names, paths, files, _numbers(facts, height, _LINE, _STACK), _results(buffer, fields, height), strict=True
    ):
        if path or file:
            around = ";".join([path, *(_at(stacks, stack) or [f"{file}({line}): "] * bool(file))])
            yield title, name, around, _RESULTS.get(element_type)


def _results(buffer: Buffer, fields: Fields, height: int) -> list[int]:
    """The element type of what each instruction gives; 0 where that is not told, or several arrays."""
    shapes, types = fields.messages(_SHAPE), np.zeros(height, np.uint64)
    of_shapes, _ = buffer.all_fields(shapes.start, shapes.end)
    of_shapes._replace(owner=shapes.owner[of_shapes.owner]).put(_ELEMENT_TYPE, types)
    return types.tolist()


def _stacks(buffer: Buffer, start: int, end: int) -> list[list[str]]:
    """The frames of each stack by its number, which counts from 1: `train.py(20): main`, the innermost first."""
    index, _ = buffer.all_fields(np.array([start]), np.array([end]))
    files, functions = (["", *buffer.texts(of.start, of.end)] for of in map(index.messages, (1, 2)))
    inner = [(of, buffer.all_fields(of.start, of.end)[0]) for of in map(index.messages, (3, 4))]
    places, calls = ([(0, 0, 0), *_numbers(fields, len(of.owner), 1, 2, 3)] for of, fields in inner)
    stacks: list[list[str]] = [[]]
    for place, around, _ in calls[1:]:  # what is around one stands before it
        file, function, line = _at(places, place)
        frame = f"{_at(files, file)}({line}): {_at(functions, function)}"
        stacks.append([frame, *_at(stacks, around)][:_MOST_FRAMES])
    return stacks


def _at(rows: Sequence[T], number: int) -> T:
    """The row of this number; the first, which stands for none, where there is no such."""
    return rows[number if number < len(rows) else 0]


def _numbers(fields: Fields, height: int, *numbers: int) -> list[tuple[int, ...]]:
    """The values that so many messages have under these numbers; 0 where one has none."""
    columns = np.zeros((len(numbers), height), np.uint64)
    for number, column in zip(numbers, columns, strict=True):
        fields.put(number, column)
    return list(zip(*columns.tolist(), strict=True))


def _products(buffer: Buffer, module: Message) -> Iterator[tuple[str, str, str | None]]:
    """Those of one module; a kernel is called as its fusion is, but for marks that no name of a function has."""
    spans = zip(module.starts.tolist(), module.ends.tolist(), strict=True)
    multiplies = np.array([_WITH_PRODUCT in buffer.data[at:end] for at, end in spans], bool)
    computations, _ = buffer.all_fields(module.starts[multiplies], module.ends[multiplies])
    names = computations.messages(_NAME)
    kernels = buffer.texts(names.start, names.end).str.strip_suffix("_computation").str.replace_all(r"[.-]", "_")
    called = dict(zip(names.owner.tolist(), kernels, strict=True))
    for computation, element_type in _factors(buffer, computations.messages(_INSTRUCTIONS)):
        yield _title(buffer, module), called.get(computation, ""), _TYPES.get(element_type)


def _factors(buffer: Buffer, instructions: Fields) -> Iterator[tuple[int, int]]:
    """The computation of each product, and the element type of its first factor; 0 where that is not told."""
    fields, _ = buffer.all_fields(instructions.start, instructions.end)
    opcodes, operands = map(fields.messages, (_OPCODE, _OPERANDS))
    ids, first = np.zeros((2, len(instructions.owner)), np.uint64)
    fields.put(_ID, ids)
    first[operands.owner] = buffer.varints(operands.start)[0]
    known = zip(instructions.owner.tolist(), ids.tolist(), strict=True)
    type_of = dict(zip(known, _results(buffer, fields, len(ids)), strict=True))
    products = opcodes.owner[(buffer.texts(opcodes.start, opcodes.end) == _PRODUCT).to_numpy()]
    for factor in zip(instructions.owner[products].tolist(), first[products].tolist(), strict=True):
        yield factor[0], type_of.get(factor, 0)
