"""Changes to a tree of lists and mappings that keep most of its structure: what fuzzers of all formats share."""

from __future__ import annotations

import copy
from random import Random
from typing import Any, Final

EXTREME: Final = (
    *(0, 1, -1, 7, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63)),
    *(0.5, -0.0, 1e-9, 1e18, 1e19, 1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
    *("", "7", "-1", "nan", "\x00", "\N{ELEPHANT}", "9" * 40, "x" * 3_000, '},{"ph":"X"', "[[1, 2], [", "a;b;c"),
    *(None, True, False, b"", b"\xff\xfe\x00"),
)
_DEPTH: Final = 12


def changed(tree: Any, random: Random, most: int = 6) -> Any:
    """A copy of the tree with up to so many changes."""
    tree = copy.deepcopy(tree)
    for _ in range(random.randint(1, most)):
        holder, key = _place(tree, random)
        if holder is not None:
            _change(holder, key, random)
    return tree


def _place(tree: Any, random: Random) -> tuple[Any, Any]:
    """Somewhere in the tree: what holds it, and its key or position there."""
    holder, key = None, None
    for _ in range(random.randint(1, _DEPTH)):
        keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
        if not keys:
            break
        holder, key = tree, random.choice(keys)
        tree = tree[key]
    return holder, key


def _change(holder: Any, key: Any, random: Random) -> None:
    value = holder[key]
    match random.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder[key:key] = [copy.deepcopy(value) for _ in range(random.choice((1, 1, 2, 40)))]
        case 2 if isinstance(value, int | float) and not isinstance(value, bool):
            holder[key] = _scaled(value, random)
        case 3:
            holder[key] = [value] * random.choice((1, 3)) if random.random() < 0.5 else {"": value}
        case 4:
            other, there = _place(holder, random)
            if other is not None:
                holder[key] = copy.deepcopy(other[there])
        case 5 if isinstance(holder, list):
            random.shuffle(holder)
        case _:
            holder[key] = random.choice(EXTREME)


def _scaled(value: float, random: Random) -> float:
    scale = random.choice((-1, 0, 2, 1000, 10**6, 10**9, 10**15, 1e-3))
    return value * scale + random.choice((0, 0, 1, -1))


def spoilt(data: bytes, random: Random) -> bytes:
    """The bytes of a file, a few of which are changed, cut out, repeated or missing at the end."""
    broken = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at, size = random.randrange(len(broken) + 1), random.choice((1, 2, 8, 64, 512))
        match random.randrange(5):
            case 0:
                del broken[at:]
            case 1:
                del broken[at : at + size]
            case 2:
                broken[at:at] = broken[at : at + size] * random.choice((1, 2, 50))
            case _:
                broken[at : at + size] = random.randbytes(size)
    return bytes(broken)
