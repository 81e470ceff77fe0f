"""Selections in rule files, what a rule measures by names; and thresholds: the value, unit and meaning of each.

`Rule.params` gives the values that a rule judges by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from advisor.inputs.names.calls import alternatives
from advisor.inputs.names.kernels import FAMILIES
from advisor.metrics import Metric
from advisor.metrics.metric import Unit
from advisor.metrics.selection_gains import METHODS, OF_DEVICE, WAYS, Better, Way
from advisor.metrics.selection_gains import metrics as metrics_of
from advisor.metrics.selectors import KINDS, MOST_CHARACTERS, RELATIONS, Idle, Kind, Selector, Thread, interned, no_rows
from advisor.patterns import compiling
from advisor.rules.expressions import as_condition
from advisor.text import did_you_mean, one_line
from advisor.vocabulary.limits import with_limits

Text: TypeAlias = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000), AfterValidator(with_limits)
]

_UNITS: Final[dict[str, tuple[Unit, float]]] = {
    "": ("number", 1),
    "%": ("share", 0.01),
    "us": ("us", 1),
    "ms": ("ms", 1),
    **{size: ("bytes", factor) for size, factor in {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}.items()},
    **{size: ("bytes", 1024**power) for power, size in enumerate(("KiB", "MiB", "GiB"), 1)},
}
"""What a number's unit is to metrics, and the number of theirs that it is."""
_WRITTEN: Final = re.compile(
    rf"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*({'|'.join(sorted(_UNITS, reverse=True))})\s*(?:,\s*(\S.*))?", re.DOTALL
)


class Strict(BaseModel):
    """A part of a rule file: no key but those that it has."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False, defer_build=True)


class Threshold(Strict):
    """A number of a rule, under `params`, that users may override: `5 %, what it is`. A plain number has no meaning."""

    value: float
    unit: Unit = "number"
    meaning: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, written: object) -> object:
        if isinstance(written, int | float):
            return {"value": written}
        if not isinstance(written, str) or not (match := _WRITTEN.fullmatch(written)):
            raise ValueError("write a number, its unit and what it is: `5 %, idle time as a share of the step`")
        number, unit, meaning = match.groups()
        return {"value": in_unit(number, unit), "unit": _UNITS[unit][0], "meaning": meaning}


def in_unit(number: str, unit: str) -> float:
    """The number as metrics have it: `5 %` is 0.05, `64 KiB` is 65,536."""
    return float(number) / 100 if unit == "%" else float(number) * _UNITS[unit][1]


def number(written: float | str | None) -> float | str | None:
    """The value of a metric in a case: `20 %` is 0.2; other texts stay as they are."""
    match = _WRITTEN.fullmatch(written) if isinstance(written, str) else None
    return in_unit(match[1], match[2]) if match and match[2] and not match[3] else written


MOST_SELECTIONS: Final = 20  # of one rule: each takes a pass over the names of a recording
_DEEPEST: Final = 4
_ALL: Final = "."  # what has no name, too
_MOST_NAMES: Final = 5
_OF_DEVICE: Final[tuple[Kind, ...]] = ("kernels", "copies", "collectives", "device_ops")


def _one_or_several(written: object) -> object:
    return (written,) if isinstance(written, str) else written


def _known_family(family: str) -> str:
    known = FAMILIES.categories.to_list()
    if family not in known:
        raise ValueError(f"{family!r} is no family of kernels{did_you_mean(family, known)}; give {', '.join(known)}")
    return family


Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
Pattern: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MOST_CHARACTERS),
    BeforeValidator(alternatives),
    AfterValidator(compiling),
]
Names: TypeAlias = Annotated[tuple[Name, ...], Field(max_length=_MOST_NAMES), BeforeValidator(_one_or_several)]
Families: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_known_family)], ...], BeforeValidator(_one_or_several)
]
Microseconds: TypeAlias = Annotated[float, Field(ge=0, le=1e12)]
Bytes: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 62)]


class Copies(Strict):
    """Which copies; all where neither is given."""

    kind: Literal["", "HtoD", "DtoH", "DtoD", "PtoP", "HtoH"] = ""
    memory: Literal["", "pageable", "pinned", "managed"] = ""


class Selection(Strict):
    """One entry of `measure`: one kind, with the pattern of names, or others of a kind; and conditions.

    A pattern is a regular expression that a name has to contain, in Rust's form: without look-around, so that it takes
    time in proportion to the name. `within`, `outside`, `follows` and `right_inside` name other selections of the
    rule, or shared ones.
    """

    ops: Pattern | None = None
    kernels: Pattern | None = None
    calls: Pattern | None = None
    frames: Pattern | None = None
    ranges: Pattern | None = None
    copies: Copies | None = None
    collectives: Pattern | None = None
    device_ops: Pattern | None = None
    host_ops: Pattern | None = None
    several: Annotated[Names, Field(alias="any")] = ()
    besides: Annotated[Pattern | None, Field(alias="except")] = None
    launched_by: Pattern | None = None
    call: Pattern | None = None
    where: Text | None = None
    family: Families = ()
    thread: Thread | None = None
    stream: Annotated[int, Field(ge=0)] | None = None
    within: Names = ()
    outside: Names = ()
    follows: Names = ()
    right_inside: Names = ()
    longer_us: Microseconds | None = None
    shorter_us: Microseconds | None = None
    at_least_bytes: Bytes | None = None
    at_most_bytes: Bytes | None = None
    exposed: Annotated[bool | tuple[Idle, ...], BeforeValidator(_one_or_several)] = False

    @model_validator(mode="before")
    @classmethod
    def _of_name(cls, written: object) -> object:
        return {"any": written} if isinstance(written, str) else written

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None] + ["any"] * bool(self.several)
        if len(kinds) != 1:
            raise ValueError(
                f"give one of {', '.join(KINDS)}, or `any` with names of other selections; "
                f"here {' and '.join(kinds) or 'none'} is given"
            )
        if not self.several:
            self._fits(self.kind)
        return self

    @property
    def kind(self) -> Kind:
        """What it selects."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    def _fits(self, kind: Kind) -> None:
        sizes = self.at_least_bytes is not None or self.at_most_bytes is not None
        refused = (
            (kind != "ops" and self.call, "call is of ops"),
            (kind not in _OF_DEVICE and self.follows, "follows is of kernels, copies and collectives"),
            (kind in _OF_DEVICE and self.thread, "thread is of what runs on the host"),
            (kind in _OF_DEVICE and self.right_inside, "right_inside is of what runs on the host"),
            (kind not in _OF_DEVICE and self.stream is not None, "stream is of kernels and copies"),
            (kind not in _OF_DEVICE and self.launched_by, "launched_by is of kernels and copies"),
            (kind != "kernels" and self.family, "family is of kernels"),
            (kind != "copies" and sizes, "at_least_bytes and at_most_bytes are of copies"),
        )
        if why := next((words for is_wrong, words in refused if is_wrong), None):
            raise ValueError(f"{why}, not of {kind}")

    def selector(self, others: Mapping[str, Selection], path: tuple[str, ...] = ()) -> Selector:
        """The selection with those that it names, to which `path` led; a ValueError where it names none, or itself."""
        of = tuple(_lookup(name, others, path) for name in self.several)
        if len(of) == len(self.model_fields_set) == 1:
            return of[0]
        kind = of[0].kind if of else self.kind
        if any(each.kind != kind for each in of):
            raise ValueError(f"any: {', '.join(self.several)} are of different kinds")
        self._fits(kind)
        return interned(
            kind,
            "" if of or self.copies is not None or getattr(self, self.kind) == _ALL else getattr(self, self.kind),
            of,
            besides=self.besides or "",
            call=self.call or "",
            where=" AND ".join(self._where(kind)),
            op=self.launched_by or "",
            families=self.family,
            thread=self.thread,
            **{key: tuple(_lookup(name, others, path) for name in getattr(self, key)) for key in RELATIONS},
            exposed=self.exposed is True,
            idle=self.exposed if isinstance(self.exposed, tuple) else (),
        )

    def _where(self, kind: Kind) -> Iterator[str]:
        if self.copies and self.copies.kind:
            yield f"kind = '{self.copies.kind}'"
        if self.copies and self.copies.memory:
            yield f"(source = '{self.copies.memory}' OR target = '{self.copies.memory}')"
        for condition, value in (
            ("stream = ", self.stream),
            ("us > ", self.longer_us),
            ("us < ", self.shorter_us),
            ("bytes >= ", self.at_least_bytes),
            ("bytes <= ", self.at_most_bytes),
        ):
            if value is not None:
                yield f"{condition}{value:.12g}" if isinstance(value, float) else f"{condition}{value}"
        if self.where:
            yield f"({as_condition(self.where, no_rows(kind))})"


Times: TypeAlias = Annotated[float, Field(ge=1, le=1e6)]
Portion: TypeAlias = Annotated[float, Field(ge=0, le=1), BeforeValidator(number)]
Gains: TypeAlias = Mapping[str, tuple[Way, tuple[float, float]]]
"""By selection what changes, and the parts of its time that are left: at the least and at the most saved."""


_HOW_MUCH: Final = {"faster": "[2, 4]", "shorter": "[0.2, 0.5]"}


class Saves(Strict):
    """A change to a selection, at most one of them.

    `without` an op is without its host time, its calls and the kernels that they launched. `faster` gives how many
    times as fast it is at least and at most, `shorter` how much of its time is gone.
    """

    without: Name | None = None
    faster: Annotated[Mapping[Name, tuple[Times, Times]], Field(max_length=1)] = {}
    shorter: Annotated[Mapping[Name, tuple[Portion, Portion]], Field(max_length=1)] = {}
    overlapped: Name | None = None
    merged: Name | None = None
    fused: Name | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_change(cls, written: object) -> object:
        """Adds the name that the change has then, and how its saving is told."""
        changes = [way for way in WAYS if way in written] if isinstance(written, Mapping) else []
        if len(changes) > 1:
            raise ValueError(f"give one of {', '.join(WAYS)}; here {' and '.join(changes)} are given")
        for way in changes:
            change = written[way]  # type: ignore[index]  # a mapping
            name = next(iter(change), "") if isinstance(change, Mapping) else change
            has_ends = isinstance(change, Mapping) and all(isinstance(ends, list | tuple) for ends in change.values())
            if way in _HOW_MUCH and not has_ends:
                form = f"`{way}: {{{one_line(str(name), 40)}: {_HOW_MUCH[way]}}}`"
                raise ValueError(f"say how much at least and at most: {form}")
            return {"change": name, "method": METHODS[way], **written}  # type: ignore[dict-item]  # a mapping
        return written

    @property
    def gains(self) -> Gains:
        """The change by the selection that it is of."""
        plain = {name: (way, (0.0, 0.0)) for way in WAYS if isinstance(name := getattr(self, way), str)}
        faster = {name: ("faster", (1 / least, 1 / most)) for name, (least, most) in self.faster.items()}
        shorter = {name: ("shorter", (1 - least, 1 - most)) for name, (least, most) in self.shorter.items()}
        return {**plain, **faster, **shorter}  # type: ignore[dict-item]  # names of ways


def _lookup(name: str, others: Mapping[str, Selection], path: tuple[str, ...]) -> Selector:
    if name in path:
        raise ValueError(f"the selection {name} names itself: {' > '.join((*path, name))}")
    if len(path) >= _DEEPEST:
        raise ValueError(f"selections name each other more than {_DEEPEST} times over: {' > '.join((*path, name))}")
    if name not in others:
        raise ValueError(f"no selection is called {name!r}{did_you_mean(name, others)}")
    return others[name].selector(others, (*path, name))


class Selections:
    """A rule's selections with the shared ones that they may name; its own go before those of the same name."""

    def __init__(self, rule: str, measure: Mapping[str, Selection], shared: Mapping[str, Selection]) -> None:
        self._rule, self._own = rule, measure
        aliases = {name: f"shared {name}" for name in measure.keys() & shared.keys()}
        self._all = {**shared, **{alias: shared[name] for name, alias in aliases.items()}, **measure}
        for name, alias in aliases.items():  # `logging: {any: logging, exposed: true}` is of the shared one
            if measure[name].several == (name,):
                self._all[name] = measure[name].model_copy(update={"several": (alias,)})

    def selector(self, name: str) -> Selector:
        """One of them by name; a ValueError where there is none, or it names one that is not there, or itself."""
        return _lookup(name, self._all, ())

    def metrics(self, gains: Gains) -> dict[str, Metric]:
        """Their metrics by the name that they have in the rule; a metric's own name begins with the rule's id.

        `gains` are the changes whose savings the rule asks for, by selection. A ValueError as for `selector`, or where
        a change is of what runs on the device, and the selection is not.
        """
        before = f"{self._rule}."
        metrics = [metric for name in self._own for metric in metrics_of(self.selector(name), before + name)]
        for name, (way, rest) in gains.items():
            if name not in self._all:
                close = did_you_mean(name, self._own) or f"; the rule has {', '.join(self._own) or 'none'}"
                raise ValueError(f"no selection is called {name!r}{close}")
            selector = self.selector(name)
            if way in OF_DEVICE and selector.is_of_host:
                raise ValueError(f"{way} is of what runs on the device; {name} is of {selector.kind}")
            metrics += Better(selector, way, rest).metrics(before + name)
        return {metric.name.removeprefix(before): metric for metric in metrics}
