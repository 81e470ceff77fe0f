"""Where one trace event ends and the next begins, and what of broken JSON can be put right."""

import re
from itertools import pairwise
from typing import Final

BETWEEN: Final = b" \t\r\n,"  # what may stand between two events
_LOOK_BACK_BYTES: Final = 64 << 10

_BOUNDARY = re.compile(rb'\}(?=\s*,\s*\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|args)")')
# Possessive throughout: linear on hostile text.
_JSON_RUN = re.compile(
    rb"""
    ( (?: [NIin,-]{16,}+                             # that many on end are no JSON, whatever is made of them
        | "[^"\\\x00-\x1f]*+" | "(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+" | [^",NIin-]++
        | -(?![NIin]) | ,(?!\s*+[\]}]) | null )++ )  # all is well
    | "(?:[^"\\]++|\\.)*+"?                          # a string with control characters, or without an end
    | ,                                              # in front of a closing bracket
    | -?\b(?:NaN|Infinity|inf|nan)\b
    """,
    re.DOTALL | re.VERBOSE,
)
_CONTROL = re.compile(rb"[\x00-\x1f]")
# An escaped backslash or a pair of surrogates, which are well; or a surrogate alone, which no text can hold.
_SURROGATE = re.compile(rb"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def last_boundary(text: bytes | bytearray) -> int:
    """Where the last event but one seems to end; 0 where no such place is found."""
    reach = _LOOK_BACK_BYTES
    while True:
        start = max(0, len(text) - reach)
        ends = [match.end() for match in _BOUNDARY.finditer(text, start)]
        if ends:
            return ends[-1]
        if not start:
            return 0
        reach *= 4


def apart(text: bytes) -> list[bytes]:
    """Text cut at every place where one event seems to end and the next to begin."""
    cuts = [match.end() for match in _BOUNDARY.finditer(text)]
    return [text[a:b].strip(BETWEEN) for a, b in pairwise([0, *cuts, len(text)])]


def repaired(text: bytes | bytearray) -> bytes:
    """The same text as valid JSON where only encoding, control characters, NaN or trailing commas were wrong."""
    text = _SURROGATE.sub(lambda match: match[1] or rb"\ufffd", text.decode("utf-8", "replace").encode())
    return _JSON_RUN.sub(_repair_run, text)


def _repair_run(match: re.Match[bytes]) -> bytes:
    run = match[0]
    if match[1] is not None:
        return run
    if run.startswith(b'"'):
        return _CONTROL.sub(b" ", run)
    return b"" if run == b"," else b"null"
