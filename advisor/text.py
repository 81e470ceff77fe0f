"""Numbers and names as people read them: few digits, a unit, "could not tell" for the unknown, nothing that acts."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache, wraps
from itertools import groupby
from typing import Any, Final, NamedTuple

UNKNOWN: Final = "could not tell"

# The blank between a number and its unit, where no line may break
UNIT_BLANK: Final = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s\b|[KMGT]iB\b|GB/s))")
WIDE: Final = 20  # from so many times the lower end on, an interval rests on nothing but its upper end
_SENTENCE: Final = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")
_LITTLE: Final = 0.01  # of a step: less has digits of its own
_LEAST_OF_UNIT: Final = 0.1  # less has the next smaller unit
_ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"
DASH: Final = "\N{EN DASH}"
PER_MS: Final = {"s": 1e-3, "ms": 1.0, "\N{MICRO SIGN}s": 1e3, "ns": 1e6}  # how many of a unit a millisecond has
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Control characters drive a terminal, bidirectional marks make text read as what it is not, fillers and tags say what
# nobody sees, lone surrogates cannot be encoded. Zero-width joiners stay: emoji and several scripts need them.
_ACTS: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# Colours, titles and links of a terminal, and what joins or varies characters: each may stand within a word.
_DRIVES: Final = (
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\\\)"
    "|\x1b(?:[ -/]{1,3}[0-~]|[0-?])|[\u200c\u200d\ufe00-\ufe0f\ufffd]"
)
UNSEEN: Final = f"(?:{_DRIVES}|(?!\t){_ACTS.pattern})"  # what nobody sees of a text: it drives a terminal, or acts
_LETS_IN: Final = re.compile(  # the login in a URL, and what lets its bearer read there: `?X-Amz-Signature=x`
    r"(?i)(://)(?:[^\s/@\"]{0,200}:[^\s/\"]{1,200}|[^\s/:@.\"]{8,200})(?=@)"
    r"|([?&][\w.-]{0,40}(?:sig|signature|token|key|secret|password|credential)=)(?:[^\s&#\"'<>\\]|\\[^\"'])+(?<!:)"
)

PREFIXES: Final = (
    *("hf_", "api_org_", "sk-", "gsk_", "r8_", "nvapi-", "wandb_v1_", "tgp_v1_", "pplx-", "xai-", "dapi", "ghp_"),
    *("gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "glrt-", "glcbt-", "gldt-", "ATATT", "ATBB", "xoxa-"),
    *("xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-", "lin_api_", "ntn_", "figd_", "PMAK-", "shpat_", "AKIA"),
    *("ASIA", "AIza", "ya29.", "GOCSPX-", "dop_v1_", "doo_v1_", "dor_v1_", "dckr_pat_", "dckr_oat_", "tskey-", "npm_"),
    *("pypi-", "rubygems_", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "SG.", "hvs.", "hvb.", "sq0atp-"),
    *("sq0csp-", "phc_", "phx_", "sntrys_", "glc_", "glsa_", "AGE-SECRET-KEY-", "eyJ", "mfa.", "AVNS_", "dp.ct."),
    *("dp.pt.", "dp.st.", "dp.sa.", "dp.scim.", "dp.audit.", "dt0c01.", "atlasv1.", "p8e-", "dnkey-", "csk-", "LTAI"),
    *("ABIA", "ACCA", "ABSK", "AKCp", "cmVmd", "CLOJARS_", "EZAK", "EZTK", "FLWSECK", "HRKU-", "NRAK-", "NRII-"),
    *("NRJS-", "glft-", "glffct-", "glimt-", "glagent-", "gloas-", "glptt-", "glsoat-", "GR1348941", "fio-u-", "fm2_"),
    *("duffel_test_", "duffel_live_", "shippo_test_", "shippo_live_", "sk_prod_", "rk_prod_", "shpca_", "shppa_"),
    *("shpss_", "sha256~", "pscale_", "pul-", "rdme_", "tk-us-", "xkeysib-", "sntryu_", "sm_aat_", "sm_pat_"),
    *("sm_sat_", "rpa_", "lsv2_pt_", "lsv2_sk_", "pcsk_", "sbp_", "tvly-"),
)
"""How the tokens of services begin, most by the rules of gitleaks (b58d3f1) and detect-secrets (d66a988)."""
_TOKEN: Final = re.compile(  # one of those before random letters and digits; what a variable of such a name is set to
    rf"(?=[A-Za-z])(?:(?<![A-Za-z\d])|(?<=\\[bfnrt]))({'|'.join(map(re.escape, PREFIXES))})"
    r"(?:(?:(?<=hf_)[A-Za-z\d]{34}|(?<=gh[a-z]_)[A-Za-z\d]{36})(?![\w-])"  # by chance without a digit
    r"|[\w-]{0,80}?(?=[A-Za-z]{0,40}\d)(?:(?=[a-z\d]{0,40}[A-Z])[A-Za-z\d]{16,}|[a-z\d]{28,})[\w.+/=-]*)"
    r"|(?=[BbuAh/STP-])([Bb]earer (?=[\w.+/=~-]{16})|uthorization: Basic |AccountKey="
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY----- ?|hooks\.slack\.com/services/|/api/webhooks/\d{1,40}/"
    r"|--(?:[a-z]{1,20}-){0,3}(?:token|password|secret|api-key)[ =]"
    r"|(?:SECRET|TOKEN|PASSWORD|PASSWD|(?:API|ACCESS|PRIVATE)_?KEY)[A-Z\d_]{0,20}=)[^\s\"'\\,;&]{8,}"
)


def _of_known(wording: Callable[[float], str]) -> Callable[[float | None], str]:
    """Lets a wording of numbers answer "could not tell" to None, and to what is no number."""

    @wraps(wording)
    def worded(value: float | None) -> str:
        return UNKNOWN if value is None or not math.isfinite(value) else wording(value)

    return worded


number = _of_known(lambda value: _rounded(value, 3))  # a number without a unit: `1,235`, `12.3`, `0.0043`


@_of_known
def percent(share: float) -> str:
    """A share of 1 as `33 %`; one decimal below 10 % and next to 100 %, so that neither end is claimed by rounding."""
    points = 100 * share
    if 0 < points < 0.05:  # noqa: PLR2004 - half of the last digit shown
        return "<0.1 %"
    if 99.95 <= points < 100:  # noqa: PLR2004 - the same
        return ">99.9 %"
    near_an_end = points < 9.95 or 99 < points < 100  # noqa: PLR2004 - where a decimal tells something
    return f"{_trimmed(points, 1 if near_an_end else 0)} %"


# A duration in milliseconds, in the unit that suits it: `178 ms`, `5.2 ms`, `1.23 s`, `43 µs`
ms = _of_known(lambda value: _duration(value, 2))
# The same with three digits, `58.3 ms`: for two durations beside their difference, so that they add up
precise_ms = _of_known(lambda value: _duration(value, 3))
us = _of_known(lambda value: ms(value / 1e3))  # the same of microseconds
ns = _of_known(lambda value: ms(value / 1e6))  # the same of nanoseconds


def _duration(value: float, digits: int) -> str:
    size = abs(value)
    if size >= 999.5:  # noqa: PLR2004 - what would round to 1,000 ms
        return f"{_rounded(value / 1e3, 3)} s"
    if size >= 0.1 or not size:  # noqa: PLR2004 - "0.53 ms" compares with a step of 178 ms, "530 µs" does not
        return f"{_rounded(value, digits)} ms"
    if size >= 1e-4:  # noqa: PLR2004 - the same, for nanoseconds
        return f"{_rounded(value * 1e3, digits)} \N{MICRO SIGN}s"
    return f"{_rounded(value * 1e6, digits)} ns"


@_of_known
def lapse(value: float) -> str:
    """Nanoseconds of waiting rather than of work: `20 s`, `2 min`, `5 h`, `3 days`."""
    minutes = value / 60e9
    if minutes < 1:
        return f"{max(1, round(value / 1e9))} s"
    if minutes < 100:  # noqa: PLR2004 - what people count in minutes
        return f"{_rounded(minutes, 2)} min"
    return f"{_rounded(minutes / 60, 2)} h" if minutes < 4320 else f"{_rounded(minutes / 1440, 2)} days"  # noqa: PLR2004 - three days


@_of_known
def bytes_(value: float) -> str:
    """A size in binary units: `15.9 GiB`."""
    power = min(int(math.log2(abs(value)) / 10), len(_SIZES) - 1) if abs(value) >= 1 else 0
    return f"{_rounded(value / 1024**power, 3)} {_SIZES[power]}"


def same_scale(first_ms: float, *others_ms: float, least: int = 0) -> tuple[list[str], str]:
    """Durations with the decimals, `least` or more, and the unit that suit the first, and that unit."""
    first_ms = first_ms if math.isfinite(first_ms) else 0.0  # of a changed report
    unit = precise_ms(first_ms).rpartition(" ")[2]
    scaled = first_ms * PER_MS[unit]
    decimals = max(least, 2 - math.floor(math.log10(scaled if scaled > 0 else 1)))
    texts = (f"{value * PER_MS[unit]:,.{decimals}f}" for value in (first_ms, *others_ms))
    return [text if text.strip("-0.") else "0" for text in texts], unit


class Shorter(NamedTuple):
    """A step, what it becomes, what that saves at least and at most, as printed, to add up; and how much of it."""

    before: str
    change: str
    ends: Sequence[str]
    saved: str
    share: str


def shorter(whole_ms: float, low_ms: float, high_ms: float) -> Shorter:
    """`25.4 ms`, `25.4 → 21.8-24.4 ms`, `1.0 ms` and `3.6 ms`, `1.0-3.6 ms`, `4-14 %`; little has its own unit."""
    (was, *less), unit = same_scale(whole_ms, low_ms, high_ms)
    before, least, most = (float(text.replace(",", "")) for text in (was, *less))
    after = (f"{before - saved:,.{len(was.partition('.')[2])}f} {unit}" for saved in (most, least))
    is_little = high_ms < max(_LITTLE * whole_ms, _LEAST_OF_UNIT / PER_MS[unit])
    ends = [*_in_one_unit(low_ms, high_ms)] if is_little else [f"{text} {unit}" for text in less]
    shares = (percent(saved / whole_ms if before else 0.0) for saved in (low_ms, high_ms))  # of a changed report
    change = f"{was} \N{RIGHTWARDS ARROW} {_both(*after)}"
    saved = f"up to {ends[1]}" if 0 < high_ms >= low_ms * WIDE else _both(*ends)
    return Shorter(f"{was} {unit}", change, ends, saved, _both(*shares))


def quantity(value: float | str | Sequence[Any] | None, unit: str) -> str:
    """A metric's value in its unit; text stays as it is."""
    if isinstance(value, float | int):
        return _QUANTITIES.get(unit, number)(value)
    return UNKNOWN if value is None else in_words(value)


def interval(low: float, high: float, form: Callable[[float], str] = ms) -> str:
    """Both ends with one unit and an en dash, `30-59 ms`; one number where they read the same.

    `up to 59 ms` where the lower end is a twentieth or less.

    So wide an interval rests on nothing but its upper end: the lower one would read like a claim.
    """
    first, last = _in_one_unit(low, high) if form is ms else (form(low), form(high))
    if 0 < high >= low * WIDE:
        return f"up to {last}"
    return _both(first, last)


def _in_one_unit(low_ms: float, high_ms: float) -> tuple[str, str]:
    """`0.09 ms` beside `0.36 ms`, not `90 µs`."""
    first, last = ms(low_ms), ms(high_ms)
    unit = last.rpartition(" ")[2]
    is_other = unit in PER_MS and not first.endswith(f" {unit}")
    return f"{_rounded(low_ms * PER_MS[unit], 2)} {unit}" if is_other else first, last


def _both(first: str, last: str) -> str:
    return last if first == last else f"{without_shared_unit(first, last)}{DASH}{last.removeprefix('>')}"


def without_shared_unit(first: str, last: str) -> str:
    """`first` without its unit where `last` has the same: `30 ms`, `59 ms` gives `30`."""
    amount, _, unit = first.rpartition(" ")
    return amount if amount and last.endswith(f" {unit}") else first


def percents(low: float, high: float) -> str:
    """Two shares as a range with one sign."""
    return interval(low, high, percent)


def count(amount: int, noun: str) -> str:
    """`1 step`, `1,200 steps`, `2 processes`."""
    return f"{amount:,} {noun if amount == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """`steps`, `processes`, `launches`."""
    return f"{noun}es" if noun.endswith(("s", "sh", "ch")) else f"{noun}s"


@lru_cache(maxsize=1 << 14)  # fixes are compared by theirs
def first_sentence(text: str) -> str:
    """The text up to its first full stop that ends a sentence."""
    return sentences_of(text)[0]


def sentences_of(text: str) -> list[str]:
    """The text cut behind each full stop that ends a sentence; none in code does."""
    stops = [stop for stop in _SENTENCE.finditer(text) if text.count("`", 0, stop.start()) % 2 == 0]
    begins, ends = [0, *(stop.end() for stop in stops)], [*(stop.start() for stop in stops), len(text)]
    return [text[begin:end] for begin, end in zip(begins, ends, strict=True)]


def capital(words: str) -> str:
    """The words with a capital in front, also where a name (`rank 3`) comes first."""
    return words[:1].upper() + words[1:]


def listing(parts: Sequence[str], most: int | None = None) -> str:
    """`a, b and c`; of more than `most` parts the first: `a, b and 3 more`."""
    if most is not None and len(parts) > most:
        parts = [*parts[:most], f"{len(parts) - most} more"]
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""


def rank(number: int | None, device: int | None = None) -> str:
    """`rank 3`, or `process 0, GPU 3` with the device of a process that drives several."""
    if number is None:
        return UNKNOWN
    return f"rank {number}" if device is None else f"process {number}, GPU {device}"


def listed_ranks(numbers: Collection[int]) -> str:
    """`rank 3`, or `ranks 0` to `2` and others as `runs_of` draws them together."""
    return f"rank{'s' if len(numbers) > 1 else ''} {runs_of(numbers)}"


def in_words(names: Any) -> str:  # noqa: ANN401 - rows of any kind, or a text
    """`norms (49 x, 1.2 ms), others (0.1 ms)`: names with what is known of each (`model.clause.Entries`); text stays.

    A share stands beside what it is of: `gather (1.2 ms, 12 % in excess)`.
    """
    return names if isinstance(names, str) else ", ".join(_entry(dict(row)) for row in names or ())


def _entry(row: Mapping[str, Any]) -> str:
    words = {column: form(row[column]) for column, form in _OF_NAMES.items() if row.get(column) is not None}
    share = " ".join(words[column] for column in ("share", "what") if column in words)
    amounts = ", ".join(filter(None, (*map(words.get, ("count", "bytes", "ms")), share)))
    return f"{row['name']} ({amounts})" if amounts else str(row["name"])


def numbered(names: Sequence[str]) -> list[str]:
    """The names, those that occur several times numbered in their order: `pool 1`, `pool 2`."""
    times, so_far, labels = Counter(names), Counter[str](), list[str]()
    for name in names:
        so_far[name] += 1
        labels.append(f"{name} {so_far[name]}" if times[name] > 1 else name)
    return labels


def runs_of(numbers: Iterable[int]) -> str:
    """Whole numbers with those in a row drawn together: 0, 1, 2, 5 as `0` to `2` with an en dash, then `, 5`."""
    in_a_row = groupby(enumerate(sorted(set(numbers))), key=lambda item: item[1] - item[0])
    rows = [[number for _, number in row] for _, row in in_a_row]
    return ", ".join(str(row[0]) if len(row) == 1 else f"{row[0]}{DASH}{row[-1]}" for row in rows)


def plain(text: str) -> str:
    """The text without a character that acts, not shows, or a login in a URL; newlines stay, tabs are expanded."""
    return _ACTS.sub("\N{REPLACEMENT CHARACTER}", shut(text).replace("\r\n", "\n").expandtabs(4))


def shut(text: str, sign: str = _ELLIPSIS) -> str:
    """The text, which may be JSON, with a sign for each login in a URL, each signature of one, and each token."""
    for secret in (_LETS_IN, _TOKEN):
        text = secret.sub(lambda match: f"{match[1] or match[2]}{sign}", text)
    return text


def visible(text: str) -> str:
    """What of the text a reader sees."""
    return plain(re.sub(UNSEEN, "", text))


def one_line(text: str, most: int = 2000) -> str:
    """Plain text with its white space collapsed, `most` characters long at most."""
    return shortened(" ".join(plain(text).split()), most)


def times_as_long(ratio: float) -> str:
    """`16 times as long`; `6.4 % of the time` of what got shorter."""
    return f"{number(ratio)} times as long" if ratio >= 1 else f"{percent(ratio)} of the time"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'input-bound'?` of the known name that comes closest, if any does."""
    close = get_close_matches(name[:200], list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def shortened(text: str, most: int) -> str:
    """The text, cut with an ellipsis where it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}{_ELLIPSIS}"


def _rounded(value: float, significant: int) -> str:
    """Rounded to so many digits, but never in front of the decimal point."""
    if 0 < abs(value) < 1e-5:  # noqa: PLR2004 - below this a power of ten is shorter
        return f"{value:.{significant}g}"
    return _trimmed(value, max(0, significant - 1 - math.floor(math.log10(abs(value) or 1))))


def _trimmed(value: float, decimals: int) -> str:
    """Thousands grouped, no zeros behind the last decimal that is none."""
    if abs(value) >= 1e15:  # noqa: PLR2004 - beyond this a power of ten is shorter
        return f"{value:.3g}"
    digits = f"{value:,.{decimals}f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


_OF_NAMES: Final[dict[str, Callable[[Any], str]]] = {
    "count": lambda times: f"{number(times)} x",
    "bytes": bytes_,
    "ms": ms,
    "share": percent,
    "what": str,
}
_QUANTITIES: Final[dict[str, Callable[[float], str]]] = {
    "ms": ms,
    "us": us,
    "share": percent,
    "bytes": bytes_,
    "rank": lambda worker: f"rank {worker}",
    "device": lambda device: f"device {device}",
}
FORMATS: Final[dict[str, Callable[[float], str]]] = {
    **_QUANTITIES,
    "percent": percent,
    "number": number,
    "times_as_long": times_as_long,
    "count": lambda amount: f"{amount:,}",
}
"""The formats that numbers in texts may ask for, as `{share:percent}`."""
