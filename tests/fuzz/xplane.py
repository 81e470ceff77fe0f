"""XPlane profiles whose messages, fields and bytes are changed at random."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

from tests.fuzz.trees import changed, spoilt
from tests.strategies_xplane import JAX, event, host, message, space

_STAT: Final[dict[int, Any]] = {}
_NAMED: Final = {2: {5: _STAT}}
_SPACE: Final = {1: {3: {4: {4: _STAT}}, 4: _NAMED, 5: {2: {}}, 6: _STAT}}
_TENSORFLOW: Final = host(
    event("train", 0, 100, step_num=1, _r=1),
    event("Iterator::Root::Map", 1, 20, id=1, parent_id=0, iter_num=0),
    event("IteratorGetNextOp::DoCompute", 2, 18, step_num=1),
    event("ExecutorState::Process", 30, 60, group_id=1),
    event("model/dense/MatMul:MatMul", 35, 20, shape="f32[2,3]", is_eager=False),
    event("MemoryAllocation", 40, 1, allocator_name="GPU_0_bfc", bytes_allocated=100, allocation_bytes=10),
    event("train", 110, 100, step_num=2, _r=1),
)


def tree(data: bytes, form: dict[int, Any]) -> list[Any]:
    """A message as its fields, [number, value] each; those that `form` knows as messages are such lists too."""
    fields, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            fields.append([number, value])
            continue
        size, at = (8, at) if kind == 1 else _varint(data, at)
        held, at = data[at : at + size], at + size
        fields.append([number, tree(held, form[number]) if number in form else held])
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def encoded(fields: Any) -> bytes:
    """The bytes of such a tree; what is no field is left out."""
    sound = [one for one in fields if isinstance(one, list) and len(one) == 2 and _is_number(one[0])]
    return message(*((number % (1 << 20), _value(value)) for number, value in sound))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _value(value: Any) -> object:
    return str(value) if isinstance(value, dict) else encoded(value) if isinstance(value, list) else value


WHOLE: Final = [tree(JAX, _SPACE), tree(space(_TENSORFLOW), _SPACE)]


def case(random: Random, folder: Path) -> Path:
    """Writes one changed profile."""
    data = encoded(changed(random.choice(WHOLE), random))
    path = folder / "host.xplane.pb"
    path.write_bytes(spoilt(data, random) if random.random() < 0.25 else data)
    return path
