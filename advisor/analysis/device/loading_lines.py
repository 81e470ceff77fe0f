"""Where loading a batch takes its time: lines of the program, and what the loader does itself, as stacks show them."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from advisor.analysis.device.host_lines import place_of_node, sampled
from advisor.analysis.device.line_tree import Node
from advisor.analysis.device.loading_stages import with_stages
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.loading_stages import COLLATE, TRANSPORT

_OWN: Final = {TRANSPORT: "copying the batch into shared memory", COLLATE: "collating samples into a batch"}
_REST: Final = "the loader itself"
_LEAST: Final = 0.05


def loading_lines(view: DeviceView) -> list[tuple[str, float]]:
    """What takes most of the loading, and its part of that: of the workers if there are any, else of the main process.

    A line of the program is named by the function or line below it that holds four fifths of its time.
    """
    main = view.once(sampled)
    rows = with_stages(view, of_loader=sampled(view, of_loader=True).height > 0)
    total = int(rows["ns"].sum()) if rows.height else 0
    if not total:
        return []
    outside = {key for row in main.filter(pl.col("kind") != "loading").to_dicts() for key in map(_key, _frames(row))}
    tree, own = Node(""), dict.fromkeys([*_OWN.values(), _REST], 0)
    for row in rows.to_dicts():
        frames = [frame for frame in _frames(row) if _key(frame) not in outside]
        if frames and row["is_called"]:
            tree.add(frames, row["ns"], row["kind"], counts=True, is_own=False)
        else:
            own[_OWN.get(row["stage"], _REST)] += row["ns"]
    entry = tree
    while len(entry.below) == 1:  # what the loader calls, `__getitem__`, and what alone that calls
        (entry,) = entry.below.values()
    each = [(place_of_node(node.place()), node.ns) for node in entry.below.values() or [entry]]
    parts = [(name, ns / total) for name, ns in (*each, *own.items()) if ns >= _LEAST * total]
    return sorted(parts, key=lambda part: -part[1])


def _frames(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(row.get("callers") or []), row]


def _key(frame: Mapping[str, Any]) -> tuple[str, str]:
    return frame["line"], frame["function"]
