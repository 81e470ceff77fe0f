"""What recordings hold of people and machines that no analysis needs: secrets, users and hosts, in bytes of any text.

What is masked keeps its length, so that what refers to places in the bytes still does.
"""

import json
import re
from collections.abc import Iterable
from typing import Final

_NAME: Final = (
    rb"(?:(?i:token|secret|passw(?:or)?d|passphrase|credentials?|authorization"
    rb"|(?:access|refresh|auth|client)(?:token|secret)|PGPASSWORD|SSHPASS|X-Amz-Signature|auth(?==)"
    rb"|(?:api|access|secret|private|account|signing|ssh)[_-]?key)(?:[_-][\w-]{0,40})?"
    rb"|(?<=_)(?:KEY|PAT|PASS|PWD|AUTH|DSN)(?![\w-]))"
)
_PLAIN: Final = rb"(?!(?:[\d.]{1,12}|(?i:true|false|none|null))(?![\w.]))"  # `next_token=4096` is no secret
_CHARACTER: Final = rb"[^\s\"'\\,;&|<>(){}\[\]]"
_WORDS: Final = rb"(?<=[\"'])[^\s\"'\\,:;}\])][^\"'\\\r\n]{2,}(?=[\"'])"
_VALUE: Final = rb"(" + _PLAIN + rb"(?:" + _WORDS + rb"|" + _CHARACTER + rb"{3,}))"
_QUOTE: Final = rb"[\\\"']{0,4}"
_SIGN: Final = _QUOTE + rb"[ \t]{0,4}[=:][ \t]{0,4}" + _QUOTE
_ASSIGNED: Final = re.compile(rb"(?<![A-Za-z])" + _NAME + _SIGN + rb"(?:(?:Bearer|Basic|Token) )?" + _VALUE)
_OPTION: Final = re.compile(
    rb"--?(?:[\w-]{1,40}[_-])?" + _NAME + _QUOTE + rb",?\s{1,4}" + _QUOTE + _VALUE.replace(b"{3,}))", b"+))")
)
_LOGIN: Final = re.compile(rb"://([^\s/:@\"'\\]{0,100}:[^\s/@\"'\\]{1,200}|[^\s/:@\"'\\]{8,200})@")
_HEADER: Final = re.compile(rb"(?i:cookie):[ \t]{0,4}([^\s\"'\\][^\"'\\\r\n]*)")
_PRIVATE: Final = re.compile(rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----([^\"]{3,20000}?)-----END")
_HOOK: Final = re.compile(rb"hooks\.slack\.com/services/([\w/-]+)")
_KNOWN: Final = re.compile(
    rb"(?<![A-Za-z0-9])(hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|A[KS]IA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}"
    rb"|github_pat_\w{20,}|glpat-[\w-]{15,}|xox[abprs]-[\w-]{10,}"
    rb"|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|nvapi-[\w-]{16,}|ya29\.[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    rb"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|pypi-Ag[\w-]{16,}|gsk_[A-Za-z0-9]{20,}|glrt-[\w-]{15,}|hvs\.[\w-]{16,}"
    rb"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}[\w.-]*)"
)
_HOME: Final = re.compile(rb"(?:/home/|/Users/|[A-Z]:[\\/]{1,2}Users[\\/]{1,2})([^\s/\\\"':;,()<>]+)")
_TEXTS: Final = (_ASSIGNED, _OPTION, _LOGIN, _HEADER, _PRIVATE, _HOOK, _KNOWN, _HOME)
_HINT: Final = (
    rb"(?i:token|secret|passw|passphrase|credential|auth|key|cookie|signature)|_(?:PAT|PASS|PWD|DSN)|SSHPASS"
    rb"|://|/home/|Users"
    rb"|hf_|sk-|A[KS]IA|gh[pousr]_|github_pat_|glpat-|xox|eyJ"
    rb"|AIza|npm_|nvapi-|ya29|SG\.|k_live_|k_test_|pypi-|gsk_|glrt-|hvs\.|hooks\.slack"
)
# Values of a JSON object by whose name they are of a job or a place, and of a user or a host.
_IN_JSON: Final = re.compile(
    rb'(?i)"(?:trace_?(?:id|name)|job_?name|cwd|working_?dir(?:ectory)?|(?:command|cmd)_?(?:line)?|argv)"'
    rb'\s*:\s*"((?:[^"\\]|\\.)+)"'
)
_OWNERS_IN_JSON: Final = re.compile(rb'(?i)"(?:user_?(?:name)?|host_?(?:names?)?)"\s*:\s*"((?:[^"\\]|\\.)+)"')
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_VARIABLE: Final = re.compile(rb"(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9_]{1,60})" + _SIGN)
_SECRET_VARIABLE: Final = re.compile(rb"(?:^|.*_)" + _NAME)
_COMMON_NAMES: Final = frozenset({b"root", b"user", b"localhost", b"ubuntu", b"runner", b"admin", b"docker", b"local"})
_SHORTEST: Final = 4  # characters of a name that is looked for elsewhere


def masked(text: bytes, more: Iterable[re.Pattern[bytes]] = ()) -> bytes:
    """The text, as long as before, with `x` in place of secrets and of users' names in paths."""
    for pattern in (*_TEXTS, *more):
        text = pattern.sub(_filled, text)
    return text


def masked_json(text: bytes) -> bytes:
    """The same of a JSON text, in what its strings say: an escape may spell a part of a secret, or end before one."""
    owners = naming({_text(b'"%b"' % match[1]).encode(errors="replace") for match in _OWNERS_IN_JSON.finditer(text)})
    if b"\\" in text:
        text = _STRING.sub(lambda match: _respelt(match[0], owners) if b"\\" in match[0] else match[0], text)
    for pattern in (*_TEXTS, _IN_JSON, _OWNERS_IN_JSON, *owners):  # a value by its key, which is another string
        text = pattern.sub(lambda match: match[0] if _splits_escape(match) else _filled(match), text)
    return text


def _text(string: bytes) -> str:
    try:
        return str(json.loads(string, strict=False))
    except ValueError:
        return ""


def _respelt(string: bytes, owners: Iterable[re.Pattern[bytes]]) -> bytes:
    """The string, masked, with no more escapes than it needs; as it was where it is none."""
    clean = masked(_text(string).encode(errors="surrogatepass"), owners).decode(errors="surrogatepass")
    if not clean:
        return string
    try:
        return json.dumps(clean, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a pair
        return json.dumps(clean).encode()


def _splits_escape(match: re.Match[bytes]) -> bool:
    """Whether the backslash before what would be masked belongs to it: it was masked as what it says before."""
    before = match.string[max(0, match.start(1) - 64) : match.start(1)]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


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
