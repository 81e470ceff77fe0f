"""What a fleet knows of a run beside its profile: team, job, owner, GPU-hours, price, and when it ran.

Later sources win: the command line, the path, the `run.yaml` nearest to the profile.
"""

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Final

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator

from advisor.config import MOST_HOURS, MOST_PRICE
from advisor.errors import ReadError, UsageError
from advisor.inputs.discover import is_report
from advisor.inputs.storage import head_of
from advisor.model.trials import Trials
from advisor.render.json import read_as
from advisor.secrets import is_of_secret, without_secrets
from advisor.text import one_line, plain
from advisor.vocabulary.limits import table
from advisor.yamltree import MOST_BYTES, FormError, Yaml, decoded

FILE: Final = "run.yaml"
_OF_TENSORBOARD: Final = "/plugins/profile/"  # below it lie the runs of a log folder
TRIALS: Final = "trials.json"  # what `advisor try` measured on the job, beside its recordings
LAST: Final = "last"
_MAY_BE_RANDOM: Final = ("job", "model", "commit")  # as keys are
_MOST_ERRORS: Final = 5
_YEARS: Final = range(1970, 2200)  # within the nanoseconds of the store

SYSTEMS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = table(__file__, "systems")
"""By system, the variables of its environment that tell a label, the first one first: systems.yaml."""


class Labels(BaseModel):
    """Labels of one run."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    team: str | None = None
    job: str | None = None
    owner: str | None = None
    model: str | None = None
    commit: str | None = None
    host: str | None = None
    hosts: Mapping[int, str] = {}
    gpu_hours: Annotated[float, Field(ge=0, le=MOST_HOURS, allow_inf_nan=False)] | None = None
    price: Annotated[float, Field(ge=0, le=MOST_PRICE, allow_inf_nan=False)] | None = None
    started: dt.datetime | dt.date | None = None
    trials: Mapping[str, tuple[FiniteFloat, FiniteFloat]] = {}  # by rule, shares of the step that fixes saved if tried
    other: Mapping[str, str] = {}  # of names that nothing here gives a meaning

    @field_validator("started")
    @classmethod
    def _of_our_time(cls, started: dt.date | None) -> dt.date | None:
        if started and started.year not in _YEARS:
            raise ValueError(f"a run starts between {_YEARS[0]} and {_YEARS[-1]}")
        return started

    def canonical(self) -> str:
        """As JSON: the same labels give the same text."""
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True)

    @property
    def when(self) -> dt.datetime | None:
        """When the run started, in UTC; a time without a zone is taken for UTC."""
        if self.started is None:
            return None
        if not isinstance(self.started, dt.datetime):
            return dt.datetime.combine(self.started, dt.time(), dt.UTC)
        return self.started.replace(tzinfo=self.started.tzinfo or dt.UTC).astimezone(dt.UTC)


def labels_of_run(pairs: Iterable[str], systems: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Labels from the command line, `key=value`, and from a scheduler's environment; a UsageError where one is none."""
    labels: dict[str, str] = {}
    for system in systems:
        if system not in SYSTEMS:
            raise UsageError(f"--labels-from {system}: not one of {', '.join(SYSTEMS)}")
        for label, names in SYSTEMS[system].items():
            known = [environment[name] for name in names if environment.get(name)]
            labels |= {label: known[0]} if known else {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not (key and sign):
            raise UsageError(f"--label {pair}: give it as KEY=VALUE")
        labels[key] = value
    labels_of(labels)
    return labels


def labels_of(*sources: Mapping[str, object]) -> Labels:
    """The labels in these sources, a later one's over an earlier one's; a UsageError where one is of the wrong kind."""
    values, other = dict[str, object](), dict[str, str]()
    for source in sources:
        for key, value in source.items():
            if value is None:
                continue
            if key in Labels.model_fields and key != "other":
                clean = value if key in _MAY_BE_RANDOM or not isinstance(value, str) else without_secrets(value)
                values[key] = _short(clean) if isinstance(clean, str) else clean
            else:
                is_public = not is_of_secret(str(key).encode())
                other[_short(str(key))] = _short(without_secrets(str(value))) if is_public else "..."
    try:
        return Labels.model_validate({**values, "other": other})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[:_MOST_ERRORS]
        wrong = (f"{one_line('.'.join(map(str, e['loc'][:2])), 100)}: {one_line(e['msg'], 200)}" for e in first)
        raise UsageError(f"label {'; '.join(wrong)}") from None


def valid_labels(source: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """The labels of a source that are of the right kind, and what is wrong with each of the others."""
    right, wrong = dict[str, object](), list[str]()
    for key, value in source.items():
        try:
            labels_of({key: value})
            right[key] = value
        except UsageError as error:
            wrong.append(str(error))
    return right, wrong


def of_path(path: str, patterns: Sequence[str]) -> dict[str, str]:
    """The named groups of every pattern that matches in the path; that of a log folder for the runs below it."""
    folder = path.partition(_OF_TENSORBOARD)[0]
    text = pl.Series([folder.encode(errors="replace").decode()])  # which may be any bytes
    groups = [group for pattern in patterns for group in text.str.extract_groups(pattern).to_list()[0].items()]
    return {label: value for label, value in groups if value is not None and not label.isdecimal()}


def of_file(path: str) -> dict[str, object]:
    """What a `run.yaml` says; a ReadError where it cannot be read, or is no mapping."""
    try:
        document = Yaml(decoded(head_of(path, MOST_BYTES + 1))).value
    except FormError as error:
        raise ReadError(error.of(path)) from None
    if not isinstance(document, dict):
        raise ReadError("a list of labels is a mapping, `team: vision` for one", path)
    return {str(key): value for key, value in document.items()}


def of_trials(path: str) -> dict[str, object]:
    """What a `trials.json` says, as a label; nothing where it is another program's, a ReadError where it is damaged."""
    return {"trials": read_as(Trials, path).saved_shares} if is_report(path) else {}


def week_of(moment: dt.datetime) -> str:
    """ISO week, `2026-W47`."""
    year, week, _ = moment.isocalendar()
    return f"{year}-W{week:02}"


def week_name(text: str | None, now: dt.datetime | None = None) -> str | None:
    """A week as a user names it: as `2026-W47`, or `last` for the one that ended last; else a UsageError."""
    if text is None:
        return None
    if text == LAST:
        return weeks_before(week_of((now or dt.datetime.now(dt.UTC)).astimezone(dt.UTC)), 1)[0]
    monday_of(text)
    return text


def weeks_before(week: str, number: int) -> list[str]:
    """The `number` weeks before this one, ascending."""
    monday = monday_of(week)
    return [week_of(monday - dt.timedelta(weeks=back)) for back in range(number, 0, -1)]


def is_week(text: str) -> bool:
    """Whether a text is an ISO week."""
    with suppress(UsageError):
        return bool(monday_of(text))
    return False


def monday_of(week: str) -> dt.datetime:
    """The first instant of an ISO week, in UTC; a UsageError where it is none."""
    try:
        if not re.fullmatch(r"[1-9]\d{3}-W\d{2}", week):
            raise ValueError(week)  # noqa: TRY301 - the same answer as to week 60
        return dt.datetime.combine(dt.date.fromisoformat(f"{week}-1"), dt.time(), dt.UTC)
    except ValueError:
        raise UsageError(f"{week}: no ISO week; write it as 2026-W47, or last") from None


def _short(text: str) -> str:
    return one_line(plain(text), 300)
