"""What a comparison remarks on its verdict, its sides and its findings: codes of remarks.yaml."""

from typing import Final

from advisor.model.clause import Clause, Fact, sentences
from advisor.model.reason import Reason

REMARKS: Final = sentences("remarks")


class _Remark(Clause):
    sentences = REMARKS


def remark(code: str, **facts: Fact) -> Reason:
    """A remark with these facts."""
    return Reason.of(_Remark(code, **facts))
