"""What a loader hands over: the sizes of a batch of sequences, and how much of it is padding."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Tuple

_MOST_BATCHES, _MOST_VALUES = 8, 1 << 22
_SHORTEST = 8  # a second dimension that is shorter counts channels or classes


def noted(batch: Any) -> Dict[str, Any] | None:
    """Rows and length of the batch's sequences, the longest without its padding, and the part that is padding.

    Of a mask where there is one, else of numbers of tokens, else of features. Padding is what a mask leaves out, else
    the tail or the head of a row that repeats the last or the first value of most rows. None without sequences.
    """
    tensors = [(name, tensor) for name, tensor in _tensors(batch) if _is_of_sequences(tensor)]
    order = sorted(tensors, key=lambda pair: (not _is_mask(pair[0]), pair[1].is_floating_point()))
    if not order:
        return None
    name, tensor = order[0]
    rows, length = tensor.shape[:2]
    present = tensor != 0 if _is_mask(name) else _present(tensor)
    used = present.reshape(rows, length, -1).any(-1)
    return {
        "rows": rows,
        "length": length,
        "longest": int(used.sum(1).max()),
        "padding": 1 - float(used.float().mean()),
    }


class Batches:
    """What of the first batches was noted."""

    def __init__(self) -> None:
        self.looked = 0
        self.notes: List[Dict[str, Any]] = []

    def add(self, batch: Any, *, profiled: bool) -> None:
        """Look at a batch, unless enough were seen or a profiler would record how."""
        if profiled or self.looked >= _MOST_BATCHES:
            return
        self.looked += 1
        try:
            note = noted(batch)
        except Exception:  # a batch of another kind is the program's own affair
            note = None
        if note:
            self.notes.append(note)


def _tensors(batch: Any) -> Iterator[Tuple[str, Any]]:
    if isinstance(batch, Mapping):
        pairs = [(str(name), each) for name, each in batch.items()]
    elif isinstance(batch, (list, tuple)):
        pairs = [("", each) for each in batch]
    else:
        pairs = [("", batch)]
    for name, each in pairs:
        if hasattr(each, "is_floating_point"):
            yield name, each
        elif isinstance(each, (Mapping, list, tuple)) and each is not batch:
            yield from _tensors(each)


def _is_of_sequences(tensor: Any) -> bool:
    is_small = tensor.device.type == "cpu" and 0 < tensor.numel() <= _MOST_VALUES
    dimensions = (3,) if tensor.is_floating_point() else (2, 3)
    return is_small and tensor.dim() in dimensions and tensor.shape[1] >= _SHORTEST


def _is_mask(name: str) -> bool:
    return name.endswith("attention_mask") or name == "mask"


def _present(tensor: Any) -> Any:
    """Which values belong to no tail and no head of a row that repeats one value."""
    last = tensor[:, -1].flatten().mode().values
    first = tensor[:, 0].flatten().mode().values
    tail = _run(tensor.flip(1) == last).flip(1)
    head = _run(tensor == first)
    padding = tail if int(tail.sum()) >= int(head.sum()) else head
    return ~padding | bool(int(padding.sum(1).max()) <= 1)  # once it ends, or begins, any row


def _run(equal: Any) -> Any:
    """Of each row what is equal from its begin on."""
    return equal.int().cumprod(1).bool()
