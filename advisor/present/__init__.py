"""What people read: a value as one document. All sentences but those of the rules are here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.model.report import Report
    from advisor.model.trials import Trials
    from advisor.model.week import Week
    from advisor.present.document import Document


def document_of(value: Report | Comparison | Week | Trials) -> Document:
    """The value as a document."""
    if value.kind == "report":  # each imports what it shows
        from advisor.present.report import document as of_report  # noqa: PLC0415

        return of_report(value)
    if value.kind == "comparison":
        from advisor.present.comparison import document as of_comparison  # noqa: PLC0415

        return of_comparison(value)
    if value.kind == "trials":
        from advisor.present.trials import document as of_trials  # noqa: PLC0415

        return of_trials(value)
    from advisor.present.week import document as of_week  # noqa: PLC0415

    return of_week(value)
