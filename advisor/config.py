"""`advisor.yaml`, or `[tool.advisor]` in pyproject.toml: rule folders, overrides and suppressions."""

import datetime as dt
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, ValidationError

from advisor.errors import UsageError, wrong_form
from advisor.model.clause import Note
from advisor.patterns import compiling
from advisor.vocabulary.formerly import RULES, lines_of
from advisor.vocabulary.severities import Severity
from advisor.yamltree import FormError, Yaml, content_of, decoded, leads_out

MOST_HOURS = 1e9  # GPU-hours: what 100,000 GPUs take in a year is less
MOST_PRICE = 1e9  # of a GPU-hour, in any currency
_LONGEST_PATTERN = 1_000  # characters
_MOST_PATTERNS = 32  # each may take 60 ms to compile, in each command that reads the file
# tomllib takes the square of its parts
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?>"[^"\n]*"|'[^'\n]*'|[\w-]+)[ \t]*\.[ \t]*){50}""")


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

    `paths` are searched in each run's path; their named groups are labels (`team`, `job`, `owner`, `model`, `commit`,
    `host`, `started`), the last match wins.
    """

    paths: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=_LONGEST_PATTERN), AfterValidator(compiling)], ...],
        Field(max_length=_MOST_PATTERNS),
    ] = ()
    prices: Mapping[str, Annotated[float, Field(ge=0, le=MOST_PRICE)]] = {}  # of a GPU-hour, by GPU type
    currency: str = "USD"  # what the prices are in
    prices_as_of: dt.date | None = None  # when they were looked up
    prices_from: str | None = None  # where
    gpu_hours_per_week: Annotated[float, Field(gt=0, le=MOST_HOURS)] | None = None  # all that the fleet pays for


class Config(_Strict):
    """What a user may set. Rule folders are relative to the file that names them."""

    rules: tuple[Path, ...] = ()
    overrides: Mapping[str, Override] = {}
    suppress: tuple[Suppress, ...] = ()
    fleet: Fleet = Fleet()
    _notes: tuple[Note, ...] = PrivateAttr(())
    _path: Path | None = PrivateAttr(None)

    def place(self, *at: str | int) -> str:
        """`advisor.yaml:3: ` of what stands there, for a message; empty where YAML has it not."""
        if self._path is None or self._path.suffix == ".toml":
            return ""
        return f"{self._path}:{Yaml(decoded(content_of(self._path))).line(at)}: "

    @property
    def notes(self) -> tuple[Note, ...]:
        """A note on each earlier name that the file has."""
        return self._notes


def find(start: Path) -> Path | None:
    """The nearest configuration at or above `start`: advisor.yaml, or a pyproject.toml with [tool.advisor]."""
    for folder in (start, *start.parents):
        for name in ("advisor.yaml", "advisor.yml"):
            if os.path.lexists(folder / name):
                return folder / name
        with suppress(FormError):  # no file, or nothing of ours
            content = content_of(folder / "pyproject.toml")
            try:
                is_ours = b"advisor" in content and _toml(decoded(content)) is not None  # in whatever form
            except FormError:
                is_ours = b"[tool.advisor" in content
            if is_ours:
                return folder / "pyproject.toml"
    return None


def load(path: Path | None) -> Config:
    """The configuration in `path`; the default one where that is None or `/dev/null`.

    A UsageError where it cannot be read, says something unknown, or a link in it or to it leads out of its folder.
    """
    if path is None or path == Path(os.devnull):
        return Config()
    try:
        return _of_now(_read(path), path)
    except FormError as error:
        raise UsageError(error.of(path)) from None


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


def _read(path: Path) -> Config:
    if leads_out(path, path.parent):
        raise FormError("a link that leads out of its folder; give the file that it leads to with --config")
    text = decoded(content_of(path))
    document = None if path.suffix == ".toml" else Yaml(text)
    try:
        config = Config.model_validate((document.value if document else _toml(text)) or {})
    except ValidationError as error:
        at, problem = wrong_form(error, "no such setting")
        raise FormError(problem, (document.line(at),) if document else ()) from None
    config = config.model_copy(update={"rules": tuple(_folder(path.parent, folder) for folder in config.rules)})
    config._path = path  # noqa: SLF001 - it knows where it was read
    return config


def _toml(text: str) -> object:
    if _LONG_KEY.search(text):
        raise FormError("a key of more than 50 parts; settings need five")
    try:
        tools = tomllib.loads(text).get("tool")
    except RecursionError:
        raise FormError("nested too deep; settings need five levels") from None
    except ValueError as error:  # its message may quote the text
        spot = re.search(r"line (\d+), column (\d+)", str(error))
        raise FormError("not valid TOML", tuple(map(int, spot.groups())) if spot else ()) from None
    return tools.get("advisor") if isinstance(tools, dict) else None


def _folder(beside: Path, folder: Path) -> Path:
    """A folder of rules, as the settings in the folder `beside` name it; what they place there must lie there."""
    try:
        place = Path(os.path.realpath(beside / folder))
        is_below = Path(os.path.normpath(beside / folder)).is_relative_to(os.path.normpath(beside))
    except ValueError:
        raise FormError("rules: no name of a folder") from None
    if is_below and leads_out(place, beside):
        raise FormError(f"rules: {folder}: a link that leads out of this folder; name the folder that it leads to")
    return place
