"""Selections in rule files: what a rule measures by names, without Python of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self, TypeAlias

import polars as pl
from pydantic import Field, StringConstraints, field_validator, model_validator

from advisor.metrics import Metric
from advisor.metrics.selectors import KINDS, MOST_CHARACTERS, Selector, Thread
from advisor.rules.thresholds import Strict

MOST_SELECTIONS: Final = 20
"""Of one rule: each takes a pass over the names of a recording."""
_DEEPEST: Final = 4

Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
Pattern: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARACTERS)]
Names: TypeAlias = tuple[Name, ...]


class Copies(Strict):
    """Which copies; all where neither is given."""

    kind: Annotated[str, StringConstraints(pattern=r"^(HtoD|DtoH|DtoD|PtoP|HtoH)$")] = ""
    memory: Annotated[str, StringConstraints(pattern=r"^(pageable|pinned|managed)$")] = ""


class Selection(Strict):
    """One entry of `measure`: one kind, with the pattern of names, and conditions.

    A pattern is a regular expression that a name has to contain, in Rust's form: without look-around, so that it takes
    time in proportion to the name. `within` and `outside` name other selections of the rule, or shared ones.
    """

    ops: Pattern | None = None
    kernels: Pattern | None = None
    calls: Pattern | None = None
    frames: Pattern | None = None
    ranges: Pattern | None = None
    copies: Copies | None = None
    launched_by: Pattern | None = None
    thread: Thread | None = None
    stream: Annotated[int, Field(ge=0)] | None = None
    within: Names = ()
    outside: Names = ()
    longer_us: Annotated[float, Field(ge=0, le=1e12)] | None = None
    shorter_us: Annotated[float, Field(gt=0, le=1e12)] | None = None
    exposed: bool = False

    @field_validator("within", "outside", mode="before")
    @classmethod
    def _one_or_several(cls, written: object) -> object:
        return (written,) if isinstance(written, str) else written

    @field_validator("ops", "kernels", "calls", "frames", "ranges", "launched_by")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                pl.Series([""]).str.contains(pattern)
            except pl.exceptions.PolarsError:
                raise ValueError(f"{pattern!r} is no regular expression of Rust (no look-around)") from None
        return pattern

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(KINDS)}; here {' and '.join(given) or 'none'} is given")
        of_device, kind = given[0] in {"kernels", "copies"}, given[0]
        if of_device and self.thread:
            raise ValueError(f"thread is of what runs on the host, not of {kind}")
        if not of_device and (self.stream is not None or self.launched_by):
            raise ValueError(f"stream and launched_by are of kernels and copies, not of {kind}")
        return self

    def selector(self, others: Mapping[str, Selection], depth: int = 0) -> Selector:
        """The selection with those that it names.

        Raises:
            ValueError: it names one that is not there, or itself.
        """
        if depth > _DEEPEST:
            raise ValueError(f"selections name each other more than {_DEEPEST} times over")
        (kind,) = (kind for kind in KINDS if getattr(self, kind) is not None)
        names: dict[str, Any] = {"names": getattr(self, kind)}
        if self.copies is not None:
            names = {"way": self.copies.kind, "memory": self.copies.memory}
        around = {}
        for key in ("within", "outside"):
            if unknown := [name for name in getattr(self, key) if name not in others]:
                raise ValueError(f"{key}: no selection is called {unknown[0]!r}")
            around[key] = tuple(others[name].selector(others, depth + 1) for name in getattr(self, key))
        return Selector(
            kind,
            **names,
            **around,
            op=self.launched_by or "",
            thread=self.thread,
            stream=self.stream,
            longer_ns=None if self.longer_us is None else round(self.longer_us * 1e3),
            shorter_ns=None if self.shorter_us is None else round(self.shorter_us * 1e3),
            exposed=self.exposed,
        )


def of_rule(rule: str, measure: Mapping[str, Selection], shared: Mapping[str, Selection]) -> dict[str, Metric]:
    """The metrics of a rule's selections, by the name that they have in the rule; their own begins with the rule's id.

    Raises:
        ValueError: a selection names one that is not there, or itself.
    """
    return {
        metric.name: metric.called(f"{rule}.{metric.name}")
        for name, selection in measure.items()
        for metric in selection.selector({**shared, **measure}).metrics(name)
    }
