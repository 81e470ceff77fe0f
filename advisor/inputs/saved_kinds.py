"""Advisor's own files: tells reports, comparisons, weeks and trials that were saved as JSON from each other."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["report", "comparison", "week", "trials"]


class _Keys(msgspec.Struct):
    """The keys of a document that tell its kind; their values stay as they are."""

    kind: Kind | None = None
    verdict: msgspec.Raw = msgspec.Raw()
    week: msgspec.Raw = msgspec.Raw()


_DECODER: Final = msgspec.json.Decoder(_Keys)


def is_saved(head: bytes) -> bool:
    """Whether a file that begins with these bytes is one of advisor's own, of whatever kind."""
    return head.lstrip().startswith(b"{") and b'"advisor_version"' in head


def kind_of(text: bytes | str) -> Kind:
    """What a saved JSON object holds: by its `kind`, or by the keys that only one kind has.

    A document of neither counts as a report, whose loader says what is wrong with it.
    """
    try:
        keys = _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return "report"
    return keys.kind or ("comparison" if bytes(keys.verdict) else "week" if bytes(keys.week) else "report")
