"""Why a value is unknown: a code of missing.yaml with the facts that its words need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from advisor.model.clause import Clause
from advisor.vocabulary.limits import table

REASONS: Final[Mapping[str, str]] = table(__file__, "missing")


class Missing(Clause):
    """A value that is unknown, and why: a code of missing.yaml with its facts."""

    sentences = REASONS

    @property
    def words(self) -> str:
        """A clause without a full stop; of a file that ends early, that the value may be lost with its end."""
        return super().words + " (or lost: the file ends early)" * ("cut_off" in self.values)

    @classmethod
    def of_failure(cls, kind: str) -> Missing:
        """The value that a bug, an exception of this kind, kept from being computed."""
        return cls("out_of_memory") if kind == MemoryError.__name__ else cls("failed", kind=kind)

    @property
    def encoded(self) -> str:
        """The value as text, for a column of a table; see `decoded`."""
        return json.dumps([self.code, self.values])

    @classmethod
    def decoded(cls, text: str) -> Missing:
        """The value that `encoded` wrote."""
        code, facts = json.loads(text)
        return cls(code, **facts)
