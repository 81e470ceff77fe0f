from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import text
from advisor.model.finding import Entry
from advisor.text import UNKNOWN, interval, one_line, percents, plain, quantity, runs_of, sentences_of, shortened, shut

FINITE = st.floats(allow_nan=False, allow_infinity=False)
DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 ms"),
        (177.6, "178 ms"),
        (59.3, "59 ms"),
        (9.96, "10 ms"),
        (5.23, "5.2 ms"),
        (0.53, "0.53 ms"),
        (0.09, "90 µs"),
        (0.0043, "4.3 µs"),
        (0.00002, "20 ns"),
        (999.4, "999 ms"),
        (999.5, "1 s"),
        (1234.5, "1.23 s"),
        (5_400_000, "5,400 s"),
        (-5.2, "-5.2 ms"),
    ],
)
def test_durations_take_the_unit_that_suits_them(value: float, expected: str):
    assert text.ms(value) == expected
    assert text.us(value * 1e3) == text.ns(value * 1e6) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0, "0 %"),
        (0.0003, "<0.1 %"),
        (0.0043, "0.4 %"),
        (0.05, "5 %"),
        (0.0996, "10 %"),
        (0.334, "33 %"),
        (0.985, "98 %"),
        (0.996, "99.6 %"),
        (0.9996, ">99.9 %"),
        (1, "100 %"),
        (1.5, "150 %"),
    ],
)
def test_a_share_claims_neither_end_by_rounding(share: float, expected: str):
    assert text.percent(share) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (12, "12"), (1234.5, "1,234"), (12.34, "12.3"), (0.0043, "0.0043"), (1e-9, "1e-09")],
)
def test_numbers_have_three_digits(value: float, expected: str):
    assert text.number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1 KiB"), (17_071_734_784, "15.9 GiB"), (1 << 60, "1,024 PiB")],
)
def test_sizes_are_binary(value: float, expected: str):
    assert text.bytes_(value) == expected


@pytest.mark.parametrize("wording", [text.ms, text.us, text.ns, text.percent, text.number, text.bytes_])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_could_not_be_told(wording: Callable[[float | None], str], value: float | None):
    assert wording(value) == UNKNOWN


@pytest.mark.parametrize("wording", [text.ms, text.us, text.ns, text.percent, text.number, text.bytes_])
@given(value=FINITE)
def test_every_number_has_a_short_wording(wording: Callable[[float | None], str], value: float):
    assert 0 < len(wording(value)) <= 26


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_wording_keeps_the_order_of_shares(one: float, other: float):
    def read(words: str) -> float:
        bound = float(words.strip("<> %").replace(",", ""))
        return bound + (-0.01 if words[0] == "<" else 0.01 if words[0] == ">" else 0)

    low, high = sorted((one, other))
    assert read(text.percent(low)) <= read(text.percent(high))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (29.65, 59.3, "30\N{EN DASH}59 ms"),
        (900, 1200, "0.9\N{EN DASH}1.2 s"),
        (0.09, 0.36, "0.09\N{EN DASH}0.36 ms"),
        (59.1, 59.3, "59 ms"),
        (0, 59.3, "up to 59 ms"),
        (0.77, 144, "up to 144 ms"),
        (3, 60, "up to 60 ms"),
        (3.1, 60, "3.1\N{EN DASH}60 ms"),
        (0, 0, "0 ms"),
    ],
)
def test_intervals_name_their_unit_once(low: float, high: float, expected: str):
    assert interval(low, high) == expected


def test_what_people_count_in_seconds_minutes_hours_and_days():
    assert [text.lapse(minutes * 60e9) for minutes in (1.2e-5, 0.5, 1.5, 90, 120, 1440, 8640)] == [
        *("1 s", "30 s", "1.5 min", "90 min", "2 h", "24 h", "6 days"),
    ]


def test_ranges_of_shares():
    assert percents(0.17, 0.334) == "17\N{EN DASH}33 %"
    assert percents(0, 0.3) == "up to 30 %"


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.334, "share", "33 %"),
        (59.3, "ms", "59 ms"),
        (38, "us", "38 µs"),
        (1024, "bytes", "1 KiB"),
        (412, "count", "412"),
        (1.5, "ratio", "1.5"),
        ("Tesla V100", "text", "Tesla V100"),
        ("odd", "ms", "odd"),
        (7, "a unit of tomorrow", "7"),
        (None, "share", UNKNOWN),
    ],
)
def test_quantities_by_unit(value: float | str | None, unit: str, expected: str):
    assert quantity(value, unit) == expected


def test_counts_and_lists():
    assert [text.count(n, "step") for n in (0, 1, 1200)] == ["0 steps", "1 step", "1,200 steps"]
    assert [text.listing(list("abc"[:n])) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_numbers_in_a_row_are_drawn_together():
    assert runs_of([]) == ""
    assert runs_of([7, 0, 1, 2, 2, 5, 8]) == "0\N{EN DASH}2, 5, 7\N{EN DASH}8"


@given(st.sets(st.integers(-50, 50)))
def test_numbers_in_a_row_lose_none(numbers: set[int]):
    told: set[int] = set()
    for part in filter(None, runs_of(numbers).split(", ")):
        first, _, last = part.partition("\N{EN DASH}")
        told |= set(range(int(first), int(last or first) + 1))
    assert told == numbers


@given(st.text())
def test_plain_text_acts_on_nothing(value: str):
    for character in plain(value).replace("\n", ""):
        assert unicodedata.category(character) not in {"Cc", "Cs", "Zl", "Zp"}
        assert unicodedata.bidirectional(character) not in DIRECTIONS


@pytest.mark.parametrize("value", ["aten::mm <b> [red] `x`", "\N{WOMAN}\u200d\N{ROCKET}", "שלום", "é\nü"])
def test_plain_text_keeps_what_only_shows(value: str):
    assert plain(value) == value


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ann:hush@host/x.json: not there", "https://\u2026@host/x.json: not there"),
        (
            "s3://b/x.json?X-Amz-Date=1&X-Amz-Signature=hush&v=2",
            "s3://b/x.json?X-Amz-Date=1&X-Amz-Signature=\u2026&v=2",
        ),
        ("redis://:hush@host/0", "redis://\u2026@host/0"),
        ("https://hushhush@host/x", "https://\u2026@host/x"),
        ("x.json?sig=hush: empty", "x.json?sig=\u2026: empty"),
        ("https://ci/run?id=5 by ann@host: `a ? key=1 : 2`", "https://ci/run?id=5 by ann@host: `a ? key=1 : 2`"),
    ],
)
def test_what_is_shown_of_a_url_lets_nobody_in(url, shown):
    assert plain(url) == shown


@pytest.mark.parametrize("end", ["", "\\", '\\"', '"', "\\\\", "\n", "\\u"])
def test_a_url_in_json_lets_nobody_in_and_json_stays(end):
    names = {"op": f"get https://ann:hush@host/x?v=1&X-Amz-Signature=hush{end}", "a:b@c": ["https://host", "x:y@z"]}
    done = json.loads(shut(json.dumps(names, separators=(",", ":")), "\\u2026"))
    assert done["op"].startswith("get https://\u2026@host/x?v=1&X-Amz-Signature=\u2026")
    assert "hush" not in done["op"]
    assert done["a:b@c"] == names["a:b@c"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("op AKIAIOSFODNN7EXAMPLE x", "op AKIA\u2026 x"),
        ("token=hf_" + "abcdefgh01" * 3, "token=hf_\u2026"),
        ("hf_" + "aBcDeFgHiJkLmNoPq" * 2 + " x", "hf_\u2026 x"),  # letters alone
        ("ghp_" + "aBcDeFgHiJkLmNoPqR" * 2, "ghp_\u2026"),
        ("sk-ant-api03-" + "aBcD3_fG-" * 5 + "aBcD3fGhIjKlMnOp" + "-aB_c", "sk-\u2026"),
        ("xoxb-123456789012-123456789012-" + "aBcD3fGh" * 3, "xoxb-\u2026"),
        ("Authorization: Bearer " + "aBcD" * 4, "Authorization: Bearer \u2026"),
        ("Authorization: Basic " + "aBcD" * 4 + "=", "Authorization: Basic \u2026"),
        ("wget --api-key kL9mN2pQ8r x", "wget --api-key \u2026 x"),
        ("--db-password=kL9mN2pQ8r", "--db-password=\u2026"),
        ("https://hooks.slack.com/services/T0/B0/kL9mN2pQ", "https://hooks.slack.com/services/\u2026"),
        ("https://discord.com/api/webhooks/12/kL9mN2pQ8r", "https://discord.com/api/webhooks/12/\u2026"),
        ("-----BEGIN RSA PRIVATE KEY----- MIIEowaB3d", "-----BEGIN RSA PRIVATE KEY----- \u2026"),
        *[(name, name) for name in ("Basic BlockForwardAndBackward", "a --tokens 4096", "decode--token-12345678")],
        ("AccountKey=" + "aB3/" * 20 + "==", "AccountKey=\u2026"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7", "AWS_SECRET_ACCESS_KEY=\u2026"),
        ('{"name":"a\\nghp_abcdEFGH0123456789","dur":1}', '{"name":"a\\nghp_\u2026","dur":1}'),
        *[(name, name) for name in ("hf_LlamaDecoderLayer_forward", "hf_model_layer_12", "max_token=4096", "SG.Block")],
        *[(name, name) for name in ("hf_BertForSequenceClassificationForward", "Bearer of news")],
    ],
)
def test_no_token_is_shown(text: str, shown: str):
    assert shut(text) == shown


def test_line_ends_and_tabs_become_plain():
    assert plain("a\r\nb\tc") == "a\nb   c"


def test_plain_text_shows_where_something_was():
    assert plain("a\x1b[31mb\x00\u202e\ud800") == "a\ufffd[31mb\ufffd\ufffd\ufffd"


@pytest.mark.parametrize("unseen", "\xad\u034f\u180e\u3164\U000e0000\U000e0041\U000e007f")
def test_what_nobody_sees_is_no_text(unseen: str):
    assert plain(f"a{unseen}b") == "a\N{REPLACEMENT CHARACTER}b"


@given(st.text(), st.integers(1, 50))
def test_a_line_is_one_and_no_longer_than_asked(value: str, most: int):
    line = one_line(value, most)
    assert len(line) <= most
    assert len(line.splitlines()) <= 1
    assert line == line.strip()


def test_shortened_text_says_so():
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abc def", 5) == "abc\N{HORIZONTAL ELLIPSIS}"


def test_names_that_occur_several_times_are_told_apart():
    assert text.numbered(["pool", "main", "pool", "pool"]) == ["pool 1", "main", "pool 2", "pool 3"]


@pytest.mark.parametrize(
    ("ratio", "expected"), [(16.2, "16.2 times as long"), (1, "1 times as long"), (0.0639, "6.4 % of the time")]
)
def test_what_got_shorter_is_a_share(ratio, expected):
    assert text.times_as_long(ratio) == expected


def test_names_have_what_is_known_of_each_in_brackets():
    norms, gather = {"name": "norms", "count": 49.0, "ms": 7.42}, {"name": "gather", "share": 0.12, "what": "in excess"}
    setting = {"name": "A=1", "count": None, "ms": None, "share": None, "what": "each launch waits"}
    words = "norms (49 x, 7.4 ms), gather (12 % in excess), A=1 (each launch waits), idle (0 ms), b"
    assert text.in_words([norms, Entry(**gather), setting, {"name": "idle", "ms": 0.0}, {"name": "b"}]) == words
    assert (text.in_words([]), text.in_words("as earlier versions wrote it")) == ("", "as earlier versions wrote it")


def test_a_full_stop_in_code_ends_no_sentence():
    assert sentences_of("It printed `Error: no file. Try again.` last. The rest ran.") == [
        "It printed `Error: no file. Try again.` last.",
        "The rest ran.",
    ]


@pytest.mark.parametrize("ends", [(0.0, 0.0, 0.0), (math.inf, 0.0, 1e308), (-1.0, 0.0, -1.0), (1e-320, 0.0, 1.0)])
def test_a_step_that_no_recording_has_is_written_all_the_same(ends: tuple[float, float, float]):
    """A saved report may have been changed."""
    assert text.shorter(*ends).before


def test_both_ends_of_what_a_step_gets_shorter_by_have_one_unit():
    assert text.shorter(176.0, 0.0999, 0.36).saved == "0.1\N{EN DASH}0.36 ms"
