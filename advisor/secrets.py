"""What recordings hold of people and machines that no analysis needs: secrets, users and hosts, in bytes of any text.

What is masked keeps its length, so that what refers to places in the bytes still does.
"""

import io
import json
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import lru_cache
from html import unescape
from itertools import chain, pairwise, repeat
from typing import Final, TypeAlias
from unicodedata import normalize
from urllib.parse import unquote

from advisor.text import PREFIXES, UNSEEN, shut

Pattern: TypeAlias = bytes | re.Pattern[bytes]

_ITEM: Final = rb"\r?\n[ \t]{0,20}- [\"']?"  # of a list in YAML
# `tokens: ["a1", ...]`, `tokens=R,R`, `tokens:` and `- R` on lines of their own: other tokens are words
_LISTED: Final = (
    rb"[\\\"']{0,4}[ \t]?[=:][ \t]?(?:(?:\[\s{0,9}(?=[^\]]{0,200}\d)|(?=.[^\s\"']{0,60}\d))\\{0,2}[\"']"
    rb"|(?:" + _ITEM + rb"|(?=[^\s,;=]{8,200}[,;][ \t]?\S))(?=[^\s\d,]{0,60}\d)(?=[^\sA-Za-z,]{0,60}[A-Za-z]))"
)
_ABROAD: Final = (  # a password in other languages
    "mots?[_-]?de[_-]?passe|contrase(?:ñ|Ñ|n)as?|senhas?|kennw(?:oe?|ö|Ö)rt|wachtwoord|l(?:oe?|ö|Ö)senord|adgangskode"
    "|salasana|has(?:l|ł|Ł)o|heslo|jelsz(?:o|ó|Ó)|parola|(?:ş|Ş)ifre|пароль|密码|密碼|口令|パスワード|비밀번호|암호"
)
_ALONE: Final = rb"secret|passw(?:or)?[dt]|passcode|pass[_-]?phrase|api[_.-]?key|" + _ABROAD.encode()  # no counts
_PASSED: Final = (  # what passes over data, or of a program, are called
    b"ward wd num n no ion ing er is did by per one two three first second last next this each multi single both all"
    b" max total test eval train loop code graph model"
)
_PASSES: Final = rb"".join(rb"(?<!%b_)" % word for word in _PASSED.split()) + rb"(?<=_)(?:pass|pwd)(?==)"
_NAME: Final = (  # two letters tell nearly every other text apart, before one word after the other is compared
    rb"(?=(?i:to|s[eshitumqfa]|p[agrosw]|c[rlos]|a[ucpnd]|r[eo]|x[s-]|k[ae]|wa|d[ebs]|e[nm]|l[ido\xc3]|m[ayo]|ng|j[wes]"
    rb"|o[pt]|us|va|h[ae]|b[ei])|\xd0\xbf|\xe5[\xaf\x8f]|\xe3\x83|\xeb\xb9|\xec\x95|\xc5[\x9e\x9f])"
    rb"(?:(?P<only>(?![Tt])(?:(?i:" + _ALONE + rb"|(?<![\w-])otp(?==)"
    rb"|(?:db|my_?sql|pg|postgres|redis|mongo|smtp|e?mail|sql|ldap|root|admin|login|user|ssh|sftp|proxy|keystore"
    rb"|become|sudo|vault|bind)[_.-]?(?:pass|pwd|pw))|(?<=_)PWD|(?<![\w-])[Pp]wd(?==))(?![\w-]))"
    rb"|(?i:token(?:s(?=" + _LISTED + rb"))?|(?:" + _ALONE + rb")s?|cred(?:ential)?s?|authorization"
    rb"|account\.key(?:\.[\w.-]{1,80}+)?|(?:access|refresh|auth|client|[cx]srf)token"
    rb"|(?:X-(?:Amz|Goog)-|SharedAccess)Signature|auth(?==|\\{0,2}\":)|(?:secret)?accesskey(?:id)?"
    rb"|(?:access|secret|private|account|signing|encryption|license|ssh|wandb|ngc|comet|kaggle|openai"
    rb"|anthropic|app|session|master|shared|storage|service|deploy|subscription|consumer)[_.-]?keys?)(?:[_-][\w-]{0,40}+)?+"
    rb"|(?<=_)(?:KEY|PAT|PASS|AUTH|DSN|PW|pw)(?![\w-])|"
    + _PASSES
    + rb"|(?:(?<=hf_)|(?<=hmac_)|(?<=gemini_))key(?![\w-])"
    rb"|(?<![\w-])(?:[Pp]ass|PASS|psk|[Pp][Ww](?==\D)|(?i:jwt|j?session_?id|totp|ssl_?key|access_code|conn_str))(?==)|(?<=[;&?])(?i:pwd?|pass)(?==))"
)
# a word: `token`, `-Dtoken`, `apiToken`, `MYTOKEN`, `dbpassword`; `hftoken` of a value as no word or shape is
_STARTS: Final = (
    rb"(?=[a-zA-Z\xc5\xd0\xe3\xe5\xeb\xec])(?:(?<![A-CE-Za-z])|(?=[A-Zapst])(?:(?=[A-Z])(?:(?<=[a-z])|(?=[TSP][A-Z]{4}|API_?KEY|CREDENT))"
    rb"|(?i:(?=pa|se|ap|to)(?=pass(?:w|code|[_-]?phrase)|secret|api[_.-]?key|token(?:\Z|\W{1,9}+"
    rb"(?![a-z]+\d+\b|[\dx]+\b)(?=[a-z_+/=-]*\d)(?=[\d_+/=-]*[a-z])[\w+/=-]{8,}+(?![.(\[]))))))"
)
_TRUTH: Final = rb"(?i:true|false|none|null|nan|-?infinity)(?![\w.])"
# `next_token=4096` is no secret
_PLAIN: Final = rb"(?!(?!(?<=[\"'])\d{8})[\d.]{1,12}(?![\w.])|" + _TRUTH + rb")"
_CHARACTER: Final = rb"[^\s\"'\\,;&|<>(){}\[\]]"
_WORDS: Final = (
    rb"(?:(?<=[\"'])[^\s\"'\\,:;}\])](?:[^\"'\\\r\n]{2,}"
    rb"|[^\"'\\\r\n()=]{1,200}\r?\n[^\"'\\\r\n()=:]{1,200})"
    rb"|(?<=[^\\][\"'])(?=[^\s\"',:;}\])])(?:[^\"'\\\r\n]|\\[^\r\n]){3,2000}+)(?=[\"'])"
)
_VALUE: Final = (  # in shells, of several pieces: `"a"'b'c\ d`
    rb"((?(only)(?!" + _TRUTH + rb")|" + _PLAIN + rb")(?:" + _WORDS + rb"|" + _CHARACTER + rb"{3,})"
    rb"(?:(?:[\"']{1,2}(?=[\w$])|\\ )" + _CHARACTER + rb"+)*)"
)
_QUOTE: Final = rb"(?:[\"']|\\(?![bfnrtu])){0,4}"  # not into what an escape says
_SIGN: Final = (  # `environ['TOKEN'] = b'` too
    _QUOTE + rb"(?:(?<=[\"'])\])?[ \t]{0,4}(?:[:+?]?=>?|->|<-|:|[!=]==?(?=[ \t]{0,4}[bBrRuU]?[\"'])"
    rb"|(?:</[a-z]+>\s{0,40}<|[\"'] )value[=>])"
    rb"[ \t]{0,4}(?:[bBuUfFrR$](?=[\"']))?" + _QUOTE
)
# on the next line, where no other variable stands
_FOLDED: Final = rb"(?:[ \t]{0,4}(?:\\|[|>][-+]?)?[\r\n]{1,4}[ \t]{0,20}(?:- )?" + _QUOTE + rb"(?![\w.-]{1,60}[=:]))?"
_MIXED: Final = rb"(?=[^\s\"'\\,:=]{6})(?=[^\s\d\"',:=]{0,60}\d)(?=[^\sA-Za-z\"',:=]{0,60}[A-Za-z])"
_HOLDS_MIXED: Final = (  # in brackets: looked for word by word, where there is a digit at all
    rb"(?=[^\])}>`\d]{0,200}+\d)(?=(?:[^\s\"'\\,:=\])}>`]{0,200}+[\s\"'\\,:=]){0,40}?" + _MIXED + rb")"
)
# a value among others: not a name before `:`, and not a number
_LEAF: Final = re.compile(
    rb"(?<=[\"'])[^\s\"'\\,:][^\"'\\\r\n]{2,}(?=\\{0,2}[\"'](?!\s{0,9}[:=]))"
    rb"|(?<![^\s\"'\\,;&|<>(){}\[\]:=])" + _PLAIN + rb"[^\s\"'\\,;&|<>(){}\[\]:=]{3,}+(?!\\{0,2}[\"']?\s{0,9}[:=(\[])"
)
_GAP: Final = _QUOTE + rb",?(?:[\s\0]|\\\r?\n){1,20}" + _QUOTE

# Options that mean a password, or a user with one, to these programs alone
_OPTIONS: Final = {
    b"-p": rb"mysql[a-z]*|mariadb[a-z-]*|mongo[a-z]*|kinit|sshpass|7z[ar]?|twine|cqlsh|snowsql|restic|user(?:add|mod)"
    rb"|[a-z][\w-]{1,20}(?: registry| auth)? login",
    b"-a": rb"redis-cli|https?",
    b"-w": rb"ldap[a-z]+|kinit",
    b"-[cAX]": rb"snmp[a-z]+",
    b"-k(?![a-z])": rb"openssl",
    b"(?:-b|--cookie)": rb"curl",
    b"-U": rb"smbclient",
    b"-P": rb"zip|unzip|sqlcmd|bcp|ipmitool|mosquitto_[a-z]+",
    b"(?:-[a-zA-Z]{0,8}[uU]|--user|--proxy-user)": rb"curl|ftp|lftp",
}
_READS: Final = rb"(?:--password-stdin|--with-token|sudo -S|chpasswd)"  # a password from its input
# between a program and its option: not the next command, unless it is quoted, nor another field or object of JSON
_BETWEEN: Final = (
    rb"(?:'[^'\n]{0,200}'|\\\"[^\"\n]{0,200}\\\"|[^\n|;&}\"-]|\}(?!\s?[,\]}])|\"(?!\s?:)|(?<=\\)\n|(?<=\\\r)\n){0,200}+"
)
_ANY_PREFIX: Final = b"|".join(re.escape(prefix.encode()) for prefix in PREFIXES)
_FORMS: Final = (  # of Discord's and Telegram's bots, Azure AD, 1Password, Amazon, Octopus, Harness: sources above
    rb"[MNO](?=[A-Za-z_-]{0,24}\d)[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38}|(?=....Q~)[\w~.-]{3}\dQ~[\w~.-]{31,34}"
    rb"|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}|A3T[A-Z0-9]{17}"
    rb"|(?:bot)?\d{8,10}:A[\w-]{34}|API-[A-Z0-9]{26}|[ps]at(?:\.[\w-]{20,24}){3}|1//0[a-z][\w-]{28,200}"
)
_ADDRESS: Final = rb"://(?:[^\s\"'\\?;#:]|:(?!//))"  # up to the next address at most, however many there are
_LONG: Final = re.compile(
    rb"(?<![^\s\"'=:,;@&?(\[.])(?!_Z)((?:[A-Za-z0-9_+-]{32,}|[A-Za-z0-9+/]{32,})={0,2})(?![^\s\"',;&)\]\\.])"
    rb"|" + _ADDRESS + rb"{3,200}?[/:]([\w-]{20,200})(?![\w.-])"
)
_HEX: Final = re.compile(rb"(?:AC|SK)?[0-9a-f]{32,}|[0-9A-F]{32,}")
_BASE32: Final = re.compile(rb"(?=(?:[A-Z]*[2-7]){4})[A-Z2-7]{32,}")
_FOLDER: Final = re.compile(rb"[A-Z]?[a-z]{3,}")
_WRITTEN: Final = re.compile(rb"[A-Z]?[a-z]{4,}")  # a word within a name; half of a random text seldom is in such
_LETTERS: Final = 4  # different ones of a number in hexadecimal; Triton's names have `0d1d2d3d`
_FEWEST: Final = 20  # characters on end without a sign between them
_SIGN_EVERY: Final = 10  # characters at most, in names; in random ones, one of 32 is a sign
_STRETCH: Final = 12  # characters between two signs, of a random text with `/`; the parts of a path are shorter
_CHANGES: Final = 0.42  # between capitals, small letters and digits, per character; random ones have 0.62, words 0.35

# Compiled at the first text that hints at one, which few recordings have: that takes 4 ms.
_SECRETS: Final[tuple[Pattern, ...]] = (
    # `name=value`, `name: {key: value}`, `names=value,value`, `- value` or `key: value` on lines of their own, or
    # `name value` of all kinds of letters, or `"name", "value"`
    _STARTS + _NAME + rb"(?:[ \r\n]{1,4}(?=[^\sA-Z_]{0,60}[A-Z])(?=[^\sa-z_]{0,60}[a-z])(?=[^\s\d_]{0,60}\d)"
    rb"([A-Za-z0-9+/=.~-]{12,200})(?![^\s\"'\\,;])|" + _SIGN + _FOLDED + rb"(?i:(?:Bearer|Basic|Token) )?"
    rb"(?:(?P<group>(?:\$?[\[({<`]" + _HOLDS_MIXED + rb"[^\])}>`]{3,2000}"
    rb"|(?<=s:)(?:\r?\n[ \t]{1,20}[\w\"'][^\r\n:]{0,60}:[ \t][^\r\n]{3,200}){1,100}+"
    rb"|(?:(?<=[=:])|(?<=[:-] )|(?<=- [\"']))(?:[^\s\"'\\,;&|<>(){}\[\]=]{1,200}+(?!=)"
    rb"(?:[,;][ \t]?(?=" + _MIXED + rb")|[\"']?" + _ITEM + rb"|\b)){2,100}))"
    rb"|(?:(?:Secret\w{1,9}|[\w.]{1,40}(?=\([\"']" + _MIXED + rb"))\([\"'])?" + _VALUE + rb")"
    rb"|(?:\\{0,2}[\"'],[ \t]?|(?<![a-z]Token)\()\\{0,2}[\"'](?=[^\s\"']{0,60}\d)" + _VALUE + rb")",
    # `--name value`
    rb"(?<![\w-])--?[\w.-]{0,40}?" + _STARTS + _NAME + _GAP + _VALUE.replace(b"{3,})", b"+)"),
    (  # `user:password@`
        rb"(?:://|(?<![\w-])(?:scp|sftp|rsync)[ \t](?:[^\n;|&@]{0,200}[ \t])?)"
        rb"([^\s/:@\"'\\]{0,100}:(?:[^\s/\"'\\]{1,200}|(?!\d{1,5}/)[^\s/@\"'\\]{1,200}/[^\s@\"'\\]{0,200})"
        rb"|[^\s/:@\"'\\]{8,200})@"
    ),
    _ADDRESS + rb"{1,2000}+[?;#]([^\s\"'\\]+)",  # what a server is asked
    rb"(?:[?&](?:[Ss]ig(?:nature)?|sign|key|code)=|, ?Signature=|hooks\.slack\.com/services/|/webhookb2/"
    rb"|conda[\w.:-]{0,60}/t/|/t/(?=[a-z]{2}-[0-9a-f]{8}-)"
    rb"|/api/webhooks/\d{1,30}/)(" + _CHARACTER + rb"{3,})",
    rb"(?<![A-Za-z])[Bb]earer:? (" + _CHARACTER + rb"{8,})",
    rb"(?<![\w-])(?:--?(?:(?:store|key)?pass|pw)[ =]|--(?:(?:basic|http|proxy)-)?auth[ =]|-pass(?:in|out) pass:"
    rb"|pass(?:phrase|wo?r?d)[ \t]{1,8}(?!(?:is|was|for)\b)"
    rb"|(?:sqlplus |thin:)[^\s/]{1,60}/|[A-Z\d_]{1,40}_(?:KEY|TOKEN|SECRET|PASSWORD)[ \t]|configure set \w{1,40}_key "
    rb"|(?:wandb|vault) login (?:-[\w=-]{1,40} ){0,5}|key=[\"']|username\W{3,9}[^\s\"'\\]{1,60}\W{2,9}key\W{3,9}"
    rb"|echo[ \t]{1,4}(?:-n[ \t])?[\"']?(?=[^\n|]{1,400}\|[^\n|]{0,200}?" + _READS + rb")"
    rb"|" + _READS + rb"[^\n|<]{0,200}<<<[ \t]?[\"']?"
    rb"|<(?:pass(?:wo?r?d)?|secret|token|api_?key)(?:>| value=[\"'])"
    rb"|HTTP[A-Z][a-z]{1,9}Auth\([\"'][^\"'\n]{1,80}[\"'],[ \t]?[\"']|set PASSWORD[ \t]"
    rb"|[xw]freerdp[^\n|;&]{0,200}?[ \t]/p:"
    rb"|(?i:identified (?:with \S{1,40} )?by(?: password)?|password) ?[( ]\\{0,2}[\"'])"
    rb"(" + _WORDS + b"|" + _CHARACTER + rb"{3,})",
    # in a sentence
    rb"(?i:(?<![a-z])(?:(?:pass(?:word|phrase)?|pw|pwd(?!\S?(?: is| was)?:? [/~.])|secret|token|auth"
    rb"|(?:api|access) key)(?: for (?:key )?\S{1,60}(?::| =)|:|[ \t]{1,4}(?:is|was)(?: set to)?:?)"
    rb"|(?:secret|token|credential)(?= [^\s_]{12,60}\b))[ \t]{1,4}[\"']?(?=[^\s\d]{0,60}\d)(?=[^\sa-z]{0,60}[a-z])"
    rb"(" + _CHARACTER + rb"{5,}))",
    rb"(?:(?i:cookie)|SSH_C(?:LIENT|ONNECTION))" + _SIGN + rb"([^\s\"'\\][^\"'\\\r\n]*)",
    rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY(?: BLOCK)?-----((?:[^\"-]|-(?!----)){3,20000})",
    *(  # each by itself, as commands of a list in JSON look like one
        rb"(?<![\w-])(?:%b)(?:\.exe)?[\"']?[ ,](?:%b-){0,20}?%b(?<=[ \n,\"'])%b"
        rb"[\"'=, ]{0,4}(?:\\\r?\n[ \t]{0,20})?(%b+(?:,%b+)?)"
        % (programs, _BETWEEN, _BETWEEN, option, _CHARACTER, _CHARACTER)
        for option, programs in _OPTIONS.items()
    ),
    # by its form
    rb"(?<![A-Za-z0-9])(?=[\w~.-])(?:((?:" + _ANY_PREFIX + rb")(?=[a-z_.+/=-]{0,40}[0-9A-Z])[\w.+/=-]{15,2000}[\w=])"
    rb"|(" + _FORMS + rb")(?![\w-]))",
)
_OWNERS: Final[tuple[Pattern, ...]] = (
    (
        rb"[/~\\](?:(?<=/)(?:(?i:home)s?|Users|(?:var|spool)/mail)/(?:\.?[\\/]){0,3}(?:[a-z]/)?([^\s/\\\"':;,()<>]+)"
        rb"|(?<=\\)(?i:users|home)[\\/]{1,4}([^\s/\\\"':;,()<>]+(?: [^/\\\"':;,()<>]{1,40}(?=\\))?)"
        rb"|(?:(?<=/)(?:users?|scratch)/(?:\.?/){0,3}(?:[a-z]/)?|(?<![\w./:~]~)(?<=~))([A-Za-z][\w.-]*)(?=/))"
    ),
    rb"(?<![A-Za-z])(?i:user(?:_?name)?|log(?:name|in)|host(?:_?name)?|node(?:_?name|(?==)))"
    rb"(?:=|:[ \t]|(?:(?<=--user)|(?<=hostname))[ \t])[\"']?" + _PLAIN + rb"(" + _CHARACTER + rb"+)",
    rb"(?<![\w.])([A-Za-z][\w.+-]{0,60}@[A-Za-z0-9-]{1,60}(?:\.[A-Za-z0-9-]{1,60}){0,5}\.[a-z]{2,})",
    rb"(?<![\w-])(?:ssh|scp|sftp|rsync)[ \t](?:[^\n;|&@]{0,200}[ \t])?([A-Za-z_][\w.-]{0,60}@\w[\w.-]*)",
)
_NAMES: Final = (
    "token secret pass cred auth key signature _pat _dsn pw jwt otp session contrase senha kennw wachtwoord senord"
    " access_code conn_str psk adgangskode salasana haslo hasł hasŁ heslo jelsz parola şifre Şifre пароль 密码 密碼"
    " 口令 パスワード 비밀번호 암호"
)
_PROGRAMS: Final = (
    "mysql maria mongo kinit sshpass 7z twine cqls snows login redis http ldap openssl smbcl zip sqlc bcp curl ftp"
    " restic useradd usermod snmp ipmitool mosquitto"
)
_SIGNS: Final = tuple(
    frozenset(signs.encode().split())
    for signs in (
        *(_NAMES, _NAMES, "@", "://", "sig= sign= signature key= code= hooks.slack webhook /t/", "bearer"),
        "pass pw auth key token secret thin: login sqlplus username sudo identified freerdp",
        *("pass pw secret token auth key credential", "cookie ssh_c", "-----begin"),
        *repeat(_PROGRAMS, len(_OPTIONS)),
        *("", "home user scratch ~ mail/", "user log host node= nodename node_name", "@", "@"),  # of owners: four
    )
)
"""Texts in small letters of which a text has one where the pattern with this number matches; none: any text."""
_ALL_SIGNS: Final = sorted({*chain(*_SIGNS)})
_ANY_SIGN: Final = "|".join(re.escape(sign.decode()) for sign in _ALL_SIGNS if sign.isascii()) + "|q~|a3-|a3t|api-"
MAY_LET_IN: Final = (
    f"(?i-u:{_ANY_SIGN}|{_ANY_PREFIX.decode()})|[^\t\n -~]|%[2-7]|\\\\u00"
    r"|\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}|:A[A-Za-z0-9_-]{34}|[ps]at\.[A-Za-z0-9_-]{20}"  # of `_FORMS`
)
"""A text without a match, in Rust's regular expressions, lets nobody in, unless it is `LONG`."""
LONG: Final = "[A-Za-z0-9_+/.-]{32}"

_SPLITS: Final = (  # what nobody sees, within a word
    rb"|\w(?:\x1b[\[\]]|[\x00-\x1f\x7f]\w|\xc2[\x80-\x9f\xad]|\xcd\x8f|\xe2\x80[\x8b-\x8f]|\xe2\x81[\xa0-\xaf]"
    rb"|\xef\xb8[\x80-\x8f]|\xef\xbb\xbf|\xf3\xa0[\x80\x81])|%[2-7][\dA-Fa-f]|\\u00|\xef\xbc|\xf0\x9d[\x90-\x9f]"
)
_HINT: Final = f"(?i:{_ANY_SIGN}|{_ABROAD})|{LONG}|".encode() + _ANY_PREFIX + _SPLITS
# Values of a JSON object by whose name they are of a user or a host.
_OWNER: Final = rb"(?i:user_?(?:name)?|host_?(?:names?)?)"
_OWNERS_IN_JSON: Final = re.compile(rb'"' + _OWNER + rb'"\s{0,9}:\s{0,9}"((?:[^"\\]|\\.){1,250})"')
_LONGEST_FIELD: Final = 1_000  # bytes of such a field, each character an escape
_SPELT: Final = re.compile(rb'"(?=[^"]{0,80}\\u00)(?:[^"\\]|\\.){1,80}+"(?=\s{0,9}:)')  # a name with an escape
# a string that says more or less than its bytes
_STRING: Final = re.compile(rb'"(?=[^"]*(?:[\\&\x1b\x7f-\xff]|%[2-7]|\^\[))[^"\\]*(?:\\.[^"\\]*)*"')
_ESCAPE: Final = (  # of JSON, of C and shells, of HTML
    r"\\(?:(?:u[dD][89abAB][0-9A-Fa-f]{2}\\)?u[0-9A-Fa-f]{4}|[\"\\/bfnrt])|\\(?:x[0-7][0-9A-Fa-f]|[01][0-7]{2}|[eE](?=\[))|\^\[(?=\[)"
    r"|&(?:#(?:[0-9]{2,3}|x[2-7][0-9A-Fa-f])|equals|colon|quot|nbsp);"
)
_PIECES: Final = re.compile(
    f"({UNSEEN}|%[2-7][0-9A-Fa-f]|[\xa0\u2000-\u200a\u3000\uff01-\uff5e\U0001d400-\U0001d7ff]|{_ESCAPE})"
)  # read as another
_VARIABLE: Final = re.compile(rb"(?<!\w)([A-Za-z]\w{1,60})" + _SIGN + rb"(?=(" + _CHARACTER + rb"{3,20}))")
is_of_owner: Final = re.compile(_OWNER).fullmatch  # whether a field of this name says a user or a host
_COMMON_NAMES: Final = frozenset({b"root", b"user", b"localhost", b"ubuntu", b"runner", b"admin", b"docker", b"local"})
_SHORTEST: Final = 4  # characters of a name that is looked for elsewhere
_MOST_NAMES: Final = 64  # so looked for; others are masked where a field says them


def masked(text: bytes, more: Iterable[Pattern] = ()) -> bytes:
    """The text, as long as before, with `x` in place of secrets and of users' names in paths."""
    return _without(text, (*_SECRETS, *_OWNERS, *more), _filled)


def _without(text: bytes, patterns: Iterable[Pattern], filled: Callable[[re.Match[bytes]], bytes]) -> bytes:
    small = text.lower()
    signs_there = {sign for sign in _ALL_SIGNS if sign in small}
    for pattern, signs in zip(patterns, chain(_SIGNS, repeat(())), strict=False):
        if not signs or not signs_there.isdisjoint(signs):
            text = re.sub(pattern, filled, text)
    return _LONG.sub(_filled_if_random, text)


def masked_in_sight(text: bytes, more: Collection[Pattern] = (), masking: Callable[..., bytes] = masked) -> bytes:
    """The same of a text that somebody reads: what nobody sees may split a secret, and stays where it was."""
    return masking(_as_read(text, more, masking), more)


def _as_read(text: bytes, more: Collection[Pattern], masking: Callable[..., bytes] = masked, levels: int = 5) -> bytes:
    """The text, masked in what its escapes say, the innermost first: it may be quoted in another, as JSON in JSON."""
    pieces = _PIECES.split(text.decode(errors="surrogateescape"))
    if len(pieces) == 1 or not levels:
        return text
    readings = [_reading(piece).encode(errors="surrogateescape") for piece in pieces]
    clean = io.BytesIO(masking(_as_read(b"".join(readings), more, masking, levels - 1), more))
    return b"".join(
        _as_written(clean.read(len(reading)), reading, piece.encode(errors="surrogateescape"))
        for reading, piece in zip(readings, pieces, strict=True)
    )


def _reading(piece: str) -> str:
    """How a reader, or a server, takes a piece of a text; nothing of what nobody sees."""
    if piece in {"\\e", "\\E", "^["}:
        return "\x1b"
    if not _PIECES.fullmatch(piece):
        return piece
    if piece.startswith("\\"):
        read = piece.encode().decode("unicode_escape") if piece[1] in "x01" else str(json.loads(f'"{piece}"'))
        return read.encode(errors="ignore").decode()  # no half of a pair
    letter = normalize("NFKC", unescape(unquote(piece)))
    return letter if letter.isascii() and letter.isprintable() else ""


def _as_written(clean: bytes, reading: bytes, written: bytes) -> bytes:
    if len(reading) == len(written):
        return clean
    return written if clean == reading else b"x" * len(written)


def masked_text(text: str, more: Collection[Pattern] = (), masking: Callable[..., bytes] = masked) -> str:
    """A text, masked with regard to what nobody sees of it."""
    return masked_in_sight(text.encode(errors="surrogatepass"), more, masking).decode(errors="surrogatepass")


@lru_cache(maxsize=1 << 12)  # the ranks of a job say the same
def without_secrets(text: str) -> str:
    """A text that a report may quote: users' names stay, as the files of a program are found by their paths."""
    return masked_text(shut(text), (), lambda text, _: _without(text, _SECRETS, _filled_unless_call))


def without_random(text: str) -> str:
    """The same of a text in which nothing but `LONG` is found: most names of kernels are."""
    return _LONG.sub(_filled_if_random, text.encode()).decode()


def masked_json(text: bytes, owners: Collection[Pattern] = ()) -> bytes:
    """The same of a JSON text, in what its strings say: an escape may spell a part of a secret, or end before one."""
    text = _STRING.sub(lambda match: _as_read(match[0], owners), _SPELT.sub(_spelt_out, text))
    patterns = (*_SECRETS, *_OWNERS, _OWNERS_IN_JSON, *owners)  # a value by its key, which is another string
    return _without(text, patterns, lambda match: match[0] if _splits_escape(match) else _filled(match))


def owners_in_json(pieces: Iterable[bytes]) -> list[re.Pattern[bytes]]:
    """Finds the names of users and hosts that fields of a JSON text, given in pieces, say."""
    names, end = set(), b""
    for piece in pieces:
        text = _SPELT.sub(_spelt_out, end + piece)
        values = (_PIECES.split(match[1].decode(errors="replace")) for match in _OWNERS_IN_JSON.finditer(text))
        names |= {"".join(map(_reading, pieces)).encode() for pieces in values}
        end = text[-_LONGEST_FIELD:]
    return naming(names)


def _spelt_out(name: re.Match[bytes]) -> bytes:
    with suppress(ValueError):
        return json.dumps(json.loads(name[0])).encode()
    return name[0]


def _splits_escape(match: re.Match[bytes]) -> bool:
    """Whether the backslash before what would be masked belongs to it: it was masked as what it says before."""
    start = match.start(match.lastindex or 0)
    before = match.string[max(0, start - 64) : start]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _filled(match: re.Match[bytes]) -> bytes:
    start, end = (place - match.start() for place in match.span(match.lastindex or 0))
    hidden = _LEAF if match.lastgroup else rb"(?s:.+)"  # the signs and names of a group stay
    of_json = match.lastgroup or match[0][:start].rstrip().endswith((b":", b",", b"["))
    crossed = _hidden if of_json else lambda part: b"x" * len(part[0])
    return match[0][:start] + re.sub(hidden, crossed, match[0][start:end]) + match[0][end:]


def _hidden(part: re.Match[bytes]) -> bytes:
    """A number stays one: JSON has no other word for it."""
    is_number = re.fullmatch(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", part[0])
    return re.sub(rb"\d", b"1", part[0]) if is_number else b"x" * len(part[0])


def _filled_unless_call(match: re.Match[bytes]) -> bytes:
    """The line of a program `token = next(tokens)` tells no secret."""
    return match[0] if match.string.startswith(b"(", match.end()) else _filled(match)


def _filled_if_random(match: re.Match[bytes]) -> bytes:
    token = match[match.lastindex or 0]
    return match[0].replace(token, b"x" * len(token)) if _is_secret(token) else match[0]


def _is_secret(token: bytes) -> bool:
    parts = re.split(rb"[_+/-]", token.rstrip(b"="))
    joined = b"".join(parts)
    if b"/" in token and not token.endswith(b"="):  # a path, if any part is a word or all are short
        return max(map(len, parts)) >= _STRETCH and _is_disordered(joined) and not any(map(_FOLDER.fullmatch, parts))
    long = [part for part in parts if len(part) >= _FEWEST]
    return any(map(_is_random, long)) or (_SIGN_EVERY * (len(parts) - 1) <= len(token) and _is_random(joined))


def _is_random(text: bytes) -> bool:
    """Whether nobody would write this: a long hexadecimal number, or what is in disorder."""
    if _HEX.fullmatch(text):
        return len({*text.lower()} & {*b"abcdef"}) >= _LETTERS
    return bool(_BASE32.fullmatch(text)) or _is_disordered(text)


def _is_disordered(text: bytes) -> bool:
    """Whether capitals, small letters and digits follow each other as by chance."""
    kinds = [1 if byte < 58 else 2 if byte < 91 else 3 for byte in text]  # noqa: PLR2004 - after 9, after Z
    changes = sum(kind != following for kind, following in pairwise(kinds))
    if len(text) < _FEWEST or len({*kinds}) < 3 or changes <= _CHANGES * len(text):  # noqa: PLR2004 - all kinds
        return False
    return 2 * sum(map(len, _WRITTEN.findall(text))) < len(text)


def naming(names: Iterable[bytes]) -> list[re.Pattern[bytes]]:
    """Finds these names of users and hosts as whole words; those that everybody has are no secret."""
    known = {name for name in names if len(name) >= _SHORTEST and name.lower() not in _COMMON_NAMES}
    chosen = sorted(known, key=lambda name: (len(name), name))[:_MOST_NAMES]
    if not chosen:
        return []
    any_name = b"|".join(map(re.escape, chosen[::-1]))  # one that begins like another stands before it
    return [re.compile(rb"(?<![A-Za-z0-9])(" + any_name + rb")(?![A-Za-z0-9])")]


def is_of_secret(name: bytes) -> bool:
    """Whether a field or variable is called like a secret."""
    return bool(re.fullmatch(rb".*?" + _STARTS + _NAME, name))


def is_secret(name: bytes, value: bytes) -> bool:
    """Whether what a field or variable says may be one by its name: it is not empty, no truth value and no count."""
    parts = re.findall(_CHARACTER + rb"{3,}", value)
    return any(re.match(rb".*?" + _STARTS + _NAME + b"=" + _VALUE, name + b"=" + part) for part in parts)


def hints(data: bytes, names: Iterable[bytes]) -> list[tuple[int, int]]:
    """Spans among other bytes, ascending, that reach into each text in which there may be something to mask."""
    return [match.span() for match in re.finditer(b"|".join([_HINT, *map(re.escape, filter(None, names))]), data)]


def secret_variables(text: bytes) -> list[str]:
    """The names of the variables in an environment that are called like secrets and have a value, each once."""
    names = (match[1].decode() for match in _VARIABLE.finditer(text) if is_secret(match[1], match[2]))
    return list(dict.fromkeys(names))
