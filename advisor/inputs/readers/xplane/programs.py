"""XLA's programs in a profile: in which number format each fusion around a product multiplies.

Source of the numbers of fields and types: hlo.proto and xla_data.proto of openxla/xla.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from advisor.inputs.readers.xplane.plane import Plane
from advisor.inputs.readers.xplane.wire import Buffer, Fields
from advisor.model.schemas import TEXT, Schema

PRODUCTS: Final[Schema] = dict.fromkeys(["hlo_module", "fusion", "operand_type"], TEXT)
_TYPES: Final = {10: "fp16", 11: "fp32", 12: "fp64", 16: "bf16", **dict.fromkeys((19, 20, 23, 24, 25, 28, 29), "fp8")}
_PROGRAM: Final = 6  # of a stat that holds bytes
_MODULE: Final = 1  # of a program
_MODULE_NAME, _COMPUTATIONS = 1, 3
_NAME, _INSTRUCTIONS = 1, 2  # of a computation
_OPCODE, _SHAPE, _ID, _OPERANDS = 2, 3, 35, 36  # of an instruction
_ELEMENT_TYPE: Final = 2  # of a shape
_PRODUCT: Final = "dot"
_WITH_PRODUCT: Final = bytes([_OPCODE << 3 | 2, len(_PRODUCT)]) + _PRODUCT.encode()


def operand_types(plane: Plane) -> pl.DataFrame:
    """A row per product in the programs that the plane holds, as `PRODUCTS`: module, kernel, and format or null."""
    stats, _ = plane.buffer.all_fields(plane.names.stats.start, plane.names.stats.end)
    programs = stats.messages(_PROGRAM)
    protos, _ = plane.buffer.all_fields(programs.start, programs.end)
    modules = protos.messages(_MODULE)
    ends = zip(modules.start.tolist(), modules.end.tolist(), strict=True)
    return pl.DataFrame([row for at, end in ends for row in _products(plane.buffer, at, end)], PRODUCTS, orient="row")


def _products(buffer: Buffer, start: int, end: int) -> Iterator[tuple[str, str, str | None]]:
    """Those of one module; a kernel is called as its fusion is, but for marks that no name of a function has."""
    module = buffer.split(start, end, _COMPUTATIONS)
    title = "".join(buffer.text(field.value, field.end) for field in module.fields if field.number == _MODULE_NAME)
    spans = zip(module.starts.tolist(), module.ends.tolist(), strict=True)
    multiplies = np.array([_WITH_PRODUCT in buffer.data[at:end] for at, end in spans], bool)
    computations, _ = buffer.all_fields(module.starts[multiplies], module.ends[multiplies])
    names = computations.messages(_NAME)
    kernels = buffer.texts(names.start, names.end).str.strip_suffix("_computation").str.replace_all(r"[.-]", "_")
    called = dict(zip(names.owner.tolist(), kernels, strict=True))
    for computation, element_type in _factors(buffer, computations.messages(_INSTRUCTIONS)):
        yield title, called.get(computation, ""), _TYPES.get(element_type)


def _factors(buffer: Buffer, instructions: Fields) -> Iterator[tuple[int, int]]:
    """The computation of each product, and the element type of its first factor; 0 where that is not told."""
    fields, _ = buffer.all_fields(instructions.start, instructions.end)
    opcodes, shapes, operands = map(fields.messages, (_OPCODE, _SHAPE, _OPERANDS))
    of_shapes, _ = buffer.all_fields(shapes.start, shapes.end)
    ids, first, types = np.zeros((3, len(instructions.owner)), np.uint64)
    fields.put(_ID, ids)
    first[operands.owner] = buffer.varints(operands.start)[0]
    of_shapes._replace(owner=shapes.owner[of_shapes.owner]).put(_ELEMENT_TYPE, types)
    known = zip(instructions.owner.tolist(), ids.tolist(), strict=True)
    type_of = dict(zip(known, types.tolist(), strict=True))
    products = opcodes.owner[(buffer.texts(opcodes.start, opcodes.end) == _PRODUCT).to_numpy()]
    for factor in zip(instructions.owner[products].tolist(), first[products].tolist(), strict=True):
        yield factor[0], type_of.get(factor, 0)
