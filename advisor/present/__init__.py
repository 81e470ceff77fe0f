"""What people read: a report, a comparison or a week as one document. All sentences but those of the rules are here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model.report import Report

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.model.week import Week
    from advisor.present.document import Document


def document_of(value: Report | Comparison | Week) -> Document:
    """The value as a document.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(value, Report):
        from advisor.present import report  # noqa: PLC0415 - each imports what it shows

        return report.document(value)
    raise TypeError(f"{type(value).__name__}: nothing shows it")
