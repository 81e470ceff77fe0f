"""What a comparison remarks on its verdict, its sides and its findings: codes of remarks.yaml."""

from collections.abc import Mapping
from typing import Final

from advisor.model.clause import Clause, Fact
from advisor.model.reason import Reason
from advisor.vocabulary.limits import table

REMARKS: Final[Mapping[str, str]] = table(__file__, "remarks")


class _Remark(Clause):
    sentences = REMARKS


def remark(code: str, **facts: Fact) -> Reason:
    """A remark with these facts."""
    return Reason.of(_Remark(code, **facts))
