"""Both sides' time along the modules, scopes and ops that cause it, as one tree."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from advisor.model.arrays import Floats
from advisor.model.comparison import Frame
from advisor.model.finding import Value
from advisor.model.report import Run

_TABLE: Final = "call_tree"
_MOST_FRAMES: Final = 400  # as many as one side has at most; the rest is too small to be seen
_DEEPEST: Final = 500

_Path: TypeAlias = tuple[tuple[str | None, str], ...]
"""Names and kinds from the top down."""


def frames(base: Sequence[Run], head: Sequence[Run]) -> tuple[Frame, ...]:
    """Every frame of either side, parents first; nothing where a run has no such tree.

    Frames are the same where they bear the same names along the same path. Of several runs, times are means.
    """
    if not all(run.metrics.get(_TABLE) for run in (*base, *head)):
        return ()
    times: defaultdict[_Path, Floats] = defaultdict(lambda: np.zeros(4))
    for at, runs in ((0, base), (2, head)):
        for path, total_ms, self_ms in (frame for run in runs for frame in _paths(run.metrics[_TABLE])):
            times[path][at : at + 2] += np.array([total_ms, self_ms]) / len(runs)
    longest = sorted(times, key=lambda path: (-float(times[path][::2].max()), len(path)))[:_MOST_FRAMES]
    number = {path: i for i, path in enumerate(sorted(longest, key=lambda path: (len(path), longest.index(path))))}
    return tuple(
        Frame(
            parent=number[path[:-1]] if len(path) > 1 else None,
            name=path[-1][0],
            kind=path[-1][1],
            base_ms=float(base_ms),
            base_self_ms=float(base_self_ms),
            head_ms=float(head_ms),
            head_self_ms=float(head_self_ms),
        )
        for path in number
        for base_ms, base_self_ms, head_ms, head_self_ms in [times[path]]
    )


def _paths(rows: Sequence[Mapping[str, Value]]) -> Iterator[tuple[_Path, float, float]]:
    """Each frame's path, total and self time; a frame whose parent does not stand before it is left out."""
    paths: dict[Value, _Path] = {None: ()}
    for row in rows:
        above, name, total, own = paths.get(row.get("parent")), row.get("name"), row.get("total_ms"), row.get("self_ms")
        if above is None or len(above) >= _DEEPEST or not isinstance(total, int | float):
            continue
        paths[row.get("id")] = path = (*above, (None if name is None else str(name), str(row.get("kind"))))
        yield path, float(total), float(own) if isinstance(own, int | float) else 0.0
