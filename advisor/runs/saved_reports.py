"""Reports saved as JSON, read back as a side of a comparison or as a baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from advisor.errors import ReadError
from advisor.inputs.saved_kinds import is_saved, kind_of
from advisor.inputs.storage import HEAD_BYTES, listing, open_file
from advisor.model.report import Report
from advisor.render import json

if TYPE_CHECKING:
    from advisor.model.trials import Trials

_MOST_BYTES: Final = 1 << 29  # a report of thousands of ranks is a tenth of it


def is_report(path: str) -> bool:
    """Whether the file begins as what advisor saves."""
    if listing(path) is not None:
        return False
    with open_file(path) as stream:
        return is_saved(stream.read(HEAD_BYTES))


def load_report(path: str) -> Report:
    """A report saved as JSON.

    Raises:
        ReadError: it cannot be opened, is no report, or is too large for one.
    """
    text = _text(path, "give the profile itself")
    if (kind := kind_of(text)) != "report":
        raise ReadError(f"{path}: is a saved {kind}, not a report; give what `advisor check -o FILE.json` wrote")
    return json.load(text, path)


def load_trials(path: str) -> Trials:
    """What `advisor try` measured, saved as JSON.

    Raises:
        ReadError: it cannot be opened, or is something else.
    """
    return json.load_trials(_text(path, "give what `advisor try -o FILE.json` wrote"), path)


def _text(path: str, instead: str) -> bytes:
    with open_file(path) as stream:
        text = stream.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ReadError(f"{path}: larger than any report; {instead}")
    return text
