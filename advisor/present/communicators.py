"""How fast each group of ranks communicates by a log of collectives, and whom its ranks wait for."""

from collections.abc import Callable, Iterator
from typing import Final

from advisor.model.report import Row, Run, number
from advisor.present import document as doc
from advisor.text import bytes_, percent, rank
from advisor.text import number as in_digits

_HEADS: Final = ("group", "collective", "ranks", "calls", "message", "bandwidth, GB/s", "waiting", "awaited")
_TEXTS: Final = ("group", "collective", "awaited")
_FEW: Final = 5
_SAYS: Final = (
    "Bus bandwidth once all ranks have arrived; the part of the ranks' time that is waiting, and for whom most."
)


def communicators(run: Run) -> doc.Section | None:
    """A row per group and collective, the most time first; None without a log that has times."""
    logged = run.metrics.get("communicator", ())
    if not logged:
        return None
    rows = tuple(doc.Row(tuple(map(doc.Cell, _cells(row)))) for row in logged)
    heads = tuple(doc.Head(head, is_number=head not in _TEXTS) for head in _HEADS)
    table = doc.Table(heads, rows, few=_FEW)
    level = doc.Level.BEHIND if run.source.steps.marked else doc.Level.BOTH
    return doc.Section("Communicators", (doc.Text(_SAYS, "quiet"), table), id="communicators", level=level)


def _cells(row: Row) -> Iterator[str]:
    yield str(row["group"])
    yield str(row["op"])
    yield _known(row, "group_size", in_digits)
    yield f"{row['calls']:,}"
    yield _known(row, "bytes", bytes_)
    yield _known(row, "bus_gbs", in_digits)
    yield percent(number(row, "wait_share"))
    yield f"{rank(int(number(row, 'last')))} ({percent(number(row, 'last_share'))})"


def _known(row: Row, name: str, wording: Callable[[float], str]) -> str:
    """Empty where it is unknown."""
    return "" if row[name] is None else wording(number(row, name))
