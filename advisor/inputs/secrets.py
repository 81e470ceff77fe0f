"""What recordings hold of people and machines that no analysis needs: secrets, users and hosts, in bytes of any text.

What is masked keeps its length, so that what refers to places in the bytes still does.
"""

import re
from collections.abc import Iterable
from typing import Final

_NAME: Final = (
    rb"(?:(?i:token|secret|passw(?:or)?d|passphrase|credentials?|authorization"
    rb"|(?:api|access|secret|private|account|signing|ssh)[_-]?key)(?:[_-][\w-]{0,40})?"
    rb"|(?<=_)(?:KEY|PAT|PASS|AUTH|DSN)(?![\w-]))"
)
_PLAIN: Final = rb"(?!(?:[\d.]{1,12}|(?i:true|false|none|null))(?![\w.]))"  # `next_token=4096` is no secret
_CHARACTER: Final = rb"[^\s\"'\\,;&|<>(){}\[\]]"
_VALUE: Final = rb"(" + _PLAIN + _CHARACTER + rb"{3,})"
_QUOTE: Final = rb"[\\\"']{0,4}"
_SIGN: Final = _QUOTE + rb"[ \t]{0,4}[=:][ \t]{0,4}" + _QUOTE
_ASSIGNED: Final = re.compile(rb"(?<![A-Za-z])" + _NAME + _SIGN + rb"(?:(?:Bearer|Basic) )?" + _VALUE)
_OPTION: Final = re.compile(
    rb"--?(?:[\w-]{1,40}[_-])?" + _NAME + _QUOTE + rb",?\s{1,4}" + _QUOTE + rb"(" + _PLAIN + _CHARACTER + rb"+)"
)
_LOGIN: Final = re.compile(rb"://([^\s/:@\"'\\]{0,100}:[^\s/@\"'\\]{1,200})@")
_KNOWN: Final = re.compile(
    rb"(?<![A-Za-z0-9])(hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|A[KS]IA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}"
    rb"|github_pat_\w{20,}|glpat-[\w-]{15,}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}[\w.-]*)"
)
_HOME: Final = re.compile(rb"(?:/home/|/Users/|[A-Z]:[\\/]{1,2}Users[\\/]{1,2})([^\s/\\\"':;,()<>]+)")
_TEXTS: Final = (_ASSIGNED, _OPTION, _LOGIN, _KNOWN, _HOME)
_HINT: Final = (
    rb"(?i:token|secret|passw|passphrase|credential|authoriz|key)|_(?:PAT|PASS|AUTH|DSN)|://|/home/|Users"
    rb"|hf_|sk-|A[KS]IA|gh[pousr]_|github_pat_|glpat-|xox|eyJ"
)
IN_JSON: Final = re.compile(
    rb'(?i)"(?:trace_?(?:id|name)|job_?name|cwd|working_?dir(?:ectory)?|(?:command|cmd)_?(?:line)?|argv)"'
    rb'\s*:\s*"((?:[^"\\]|\\.)+)"'
)
"""A value of a JSON object by whose name it is of a job or a place."""
OWNERS_IN_JSON: Final = re.compile(rb'(?i)"(?:user_?(?:name)?|host_?(?:names?)?)"\s*:\s*"((?:[^"\\]|\\.)+)"')
"""The same of a user or a host."""
_VARIABLE: Final = re.compile(rb"(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_]{1,60})" + _SIGN)
_SECRET_VARIABLE: Final = re.compile(rb"(?:^|.*_)" + _NAME)
_COMMON_NAMES: Final = frozenset({b"root", b"user", b"localhost", b"ubuntu", b"runner", b"admin", b"docker", b"local"})
_SHORTEST: Final = 4  # characters of a name that is looked for elsewhere


def masked(text: bytes, more: Iterable[re.Pattern[bytes]] = ()) -> bytes:
    """The text, as long as before, with `x` in place of secrets and of users' names in paths."""
    for pattern in (*_TEXTS, *more):
        text = pattern.sub(_filled, text)
    return text


def _filled(match: re.Match[bytes]) -> bytes:
    start, end = match.start(1) - match.start(), match.end(1) - match.start()
    return match[0][:start] + b"x" * (end - start) + match[0][end:]


def naming(names: Iterable[bytes]) -> list[re.Pattern[bytes]]:
    """Finds these names of users and hosts as whole words; those that everybody has are no secret."""
    known = {name for name in names if len(name) >= _SHORTEST and name.lower() not in _COMMON_NAMES}
    return [re.compile(rb"(?<![A-Za-z0-9])(" + re.escape(name) + rb")(?![A-Za-z0-9])") for name in sorted(known)]


def hints(data: bytes, names: Iterable[bytes]) -> list[int]:
    """Where among other bytes there may be something to mask, ascending: a place in each text that has any."""
    return [match.start() for match in re.finditer(b"|".join([_HINT, *map(re.escape, filter(None, names))]), data)]


def secret_variables(text: bytes) -> list[str]:
    """The names of the variables in an environment that are called like secrets and have a value, each once."""
    names = (
        match[1].decode()
        for match in _VARIABLE.finditer(text)
        if _SECRET_VARIABLE.fullmatch(match[1]) and re.match(_VALUE, text[match.end() : match.end() + 20])
    )
    return list(dict.fromkeys(names))
