"""`advisor.yaml`, or `[tool.advisor]` in pyproject.toml: rule folders, overrides and suppressions."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, ValidationError, field_validator

from advisor.errors import UsageError, form_in_words
from advisor.model.notes import Note
from advisor.vocabulary.formerly import RULES, lines_of
from advisor.vocabulary.severities import Severity

_NAMES = ("advisor.yaml", "advisor.yml")
_MOST_BYTES = 1 << 20


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Override(_Strict):
    """Other parameters or another severity for one rule."""

    params: Mapping[str, float] = {}
    severity: Severity | None = None


class Suppress(_Strict):
    """A rule not to report, why, and the last day on which that holds."""

    rule: str
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=3)]
    until: dt.date


class Fleet(_Strict):
    """What the weekly report of a fleet needs to know beside its runs.

    Attributes:
        paths: Regular expressions searched in each run's path; their named groups are labels (`team`, `job`, `owner`,
            `model`, `commit`, `host`, `started`), the last match wins.
        prices: Price of a GPU-hour by GPU type, as the report names it.
        currency: What the prices are in.
        prices_as_of: When the prices were looked up.
        prices_from: Where.
        gpu_hours_per_week: What the fleet pays for altogether; tells which share of it was profiled.
    """

    paths: tuple[str, ...] = ()
    prices: Mapping[str, Annotated[float, Field(ge=0)]] = {}
    currency: str = "USD"
    prices_as_of: dt.date | None = None
    prices_from: str | None = None
    gpu_hours_per_week: Annotated[float, Field(gt=0)] | None = None

    @field_validator("paths")
    @classmethod
    def _compiles(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            try:
                re.compile(path)
            except re.error as error:
                raise ValueError(f"{path!r} is no regular expression: {error}") from None
        return paths


class Config(_Strict):
    """What a user may set. Rule folders are relative to the file that names them."""

    rules: tuple[Path, ...] = ()
    overrides: Mapping[str, Override] = {}
    suppress: tuple[Suppress, ...] = ()
    fleet: Fleet = Fleet()
    _notes: tuple[Note, ...] = PrivateAttr(())

    @property
    def notes(self) -> tuple[Note, ...]:
        """A note on each earlier name that the file has."""
        return self._notes


def find(start: Path) -> Path | None:
    """The nearest configuration at or above `start`: advisor.yaml, or a pyproject.toml with [tool.advisor]."""
    for folder in (start, *start.parents):
        for name in _NAMES:
            if (folder / name).is_file():
                return folder / name
        project = folder / "pyproject.toml"
        if project.is_file() and "[tool.advisor" in project.read_text("utf-8", errors="replace"):
            return project
    return None


def load(path: Path | None) -> Config:
    """The configuration in `path`; the default one where that is None.

    Raises:
        UsageError: it cannot be read, or says something unknown.
    """
    if path is None:
        return Config()
    try:
        config = Config.model_validate(_data(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        what = "no such setting" if first["type"] == "extra_forbidden" else form_in_words(first)
        raise UsageError(": ".join(filter(None, (str(path), place, what)))) from None
    folders = tuple((path.parent / folder).resolve() for folder in config.rules)
    return _of_now(config.model_copy(update={"rules": folders}), path)


def _of_now(config: Config, path: Path) -> Config:
    """The same with the ids that rules have now, and a note on each earlier one."""
    ids = {*config.overrides, *(each.rule for each in config.suppress)}
    if not (earlier := {old: new for old, new in RULES.items() if old in ids}):
        return config
    for old, new in earlier.items():
        if {old, new} <= config.overrides.keys():
            raise UsageError(f"{path}: overrides.{old}: is called {new} now, which stands here too; leave out {old}")
    overrides = {RULES.get(rule, rule): override for rule, override in config.overrides.items()}
    suppress = tuple(each.model_copy(update={"rule": RULES.get(each.rule, each.rule)}) for each in config.suppress)
    now = config.model_copy(update={"overrides": overrides, "suppress": suppress})
    lines = lines_of(path.read_text("utf-8"), earlier)
    notes = [Note("renamed", place=f"{path}:{at}", old=old, new=earlier[old]) for old, at in lines.items()]
    now._notes = tuple(notes)  # noqa: SLF001 - it knows where it was read
    return now


def _data(path: Path) -> object:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UsageError(f"{path}: larger than {_MOST_BYTES >> 20} MiB, so no settings file; check the path")
        text = content.decode("utf-8")
        if path.suffix == ".toml":
            return tomllib.loads(text).get("tool", {}).get("advisor", {})
        return yaml.safe_load(text) or {}
    except RecursionError:
        raise UsageError(f"{path}: nested too deep; settings need five levels") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, OverflowError, yaml.YAMLError) as error:
        raise UsageError(
            f"{path}: not valid {'TOML' if path.suffix == '.toml' else 'YAML'}: {' '.join(str(error).split())}"
        ) from None
