"""How fast each group of ranks communicates by a log of collectives, and whom its ranks wait for."""

from typing import Final

from advisor.model.report import Run, number
from advisor.present import document as doc
from advisor.text import bytes_, percent, rank
from advisor.text import number as in_digits

_HEADS: Final = ("group", "collective", "ranks", "calls", "message", "GB/s", "waiting", "awaited")
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
    rows = tuple(
        doc.Row(
            tuple(
                map(
                    doc.Cell,
                    (
                        str(row["group"]),
                        str(row["op"]),
                        in_digits(number(row, "group_size")),
                        f"{row['calls']:,}",
                        "" if row["bytes"] is None else bytes_(number(row, "bytes")),
                        in_digits(number(row, "bus_gbs")),
                        percent(number(row, "wait_share")),
                        f"{rank(int(number(row, 'last')))} ({percent(number(row, 'last_share'))})",
                    ),
                )
            )
        )
        for row in logged
    )
    heads = tuple(doc.Head(head, is_number=head not in _TEXTS) for head in _HEADS)
    table = doc.Table(heads, rows, few=_FEW)
    return doc.Section("Communicators", (doc.Text(_SAYS, "quiet"), table), id="communicators")
