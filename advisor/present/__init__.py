"""What people read: a value as one document. All sentences but those of the rules are here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.model.report import Report
    from advisor.model.trials import Trials
    from advisor.model.week import Week
    from advisor.present.document import Document


def document_of(value: Report | Comparison | Week | Trials) -> Document:
    """The value as a document, by the module that is called as its kind; none but that one is imported."""
    document: Document = import_module(f"advisor.present.{value.kind}").document(value)
    return document
