"""Settings, rules with their templates and expressions, and labels, whose values and bytes are changed at random."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from advisor import config
from advisor.errors import ReadError
from advisor.fleet import labels
from advisor.present.reference import rule_page
from advisor.rules import user_config
from tests.fuzz.trees import changed, spoilt

SETTINGS: Final = {
    "rules": ["ours"],
    "overrides": {"input-bound": {"params": {"moderate": 0.2}, "severity": "low"}},
    "suppress": [{"rule": "input-bound", "reason": "known", "until": dt.date(2027, 1, 31)}],
    "fleet": {
        "paths": [r"/(?P<team>\w+)/(?P<job>\w+)"],
        "prices": {"NVIDIA H100": 2.5},
        "prices_as_of": dt.date(2026, 1, 1),
        "gpu_hours_per_week": 1000,
    },
}
LABELS: Final = {
    "team": "vision",
    "commit": 1234567,
    "hosts": {0: "a", 1: "b"},
    "gpu_hours": 12.5,
    "price": 2,
    "started": dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
    "trials": {"input-bound": [0.1, 0.2]},
    "more": [1, {"a": None}],
}
RULE: Final = {
    "id": "x",
    "title": "Copies are slow",
    "applies": {"framework": ["pytorch"], "device": True},
    "params": {"limit": 0.2, "high": {"value": 0.5, "meaning": "own choice", "unit": "share"}},
    "when": "memcpy_share > limit",
    "severity": {"high": "memcpy_share > high", "medium": True},
    "confidence": "high",
    "saving": {"of": "memcpy", "low_ms": 0, "high_ms": "memcpy_ms", "method": "all of it"},
    "shows": ["memcpy_share"],
    "says": "{{ memcpy_share | percent }} of {{ each_step }}{{ sync_calls | detail(': {}') }}.",
    "why": "Copies take time.",
    "fixes": [{"for": "any", "do": "Copy less: {{ memcpy_share | number }}.", "code": "x = {{ limit * 2 }}"}],
    "references": [{"what": "own choice", "where": "here"}],
    "cases": [
        {"name": "much", "given": {"memcpy_share": 0.6, "memcpy_ms": 30.0, "sync_calls": "a (3)"}, "fires": "high"},
        {"name": "little", "given": {"memcpy_share": 0.1, "memcpy_ms": 30.0, "sync_calls": "a (3)"}, "fires": False},
        {"name": "unknown", "given": {}, "not_evaluable": ["memcpy_share"]},
    ],
}
_TREES: Final = {"advisor.yaml": SETTINGS, "run.yaml": LABELS, "ours/x.yaml": RULE}
_FRAGMENTS: Final = (
    *('!!int ""', "!!bool foo", "!!timestamp foo", "!!binary x", "!!python/object:os.system {}", "! x", "!<x> y"),
    *(
        "9" * 5_000,
        "-" + "9" * 90,
        "0x" + "f" * 90,
        "0x_",
        "0b",
        "0o7",
        "017",
        "1:59:59",
        "1_000",
        "1e999",
        "+.inf",
        ".nan",
    ),
    *("2020-13-45", "0000-00-00", "0001-01-01 00:00:00+14:00", "9999-12-31T23:59:59-23:59", "2020-01-01 25:00:00"),
    *("&a [*a]", "*nothing", "&a {<<: *a}", "{<<: {a: 1}, a: 2}", "<<", "=", "~", "yes", "[", "{", "[" * 60, "- " * 60),
    *(
        "? [a]",
        "|\n  x",
        ">\n  x",
        "'",
        '"',
        r'"\0"',
        r'"\ud800"',
        r'"\U0010ffff"',
        "\ufeff",
        "\0",
        "\x85",
        "---\n",
        "...\n",
    ),
    *("%YAML 9.9\n", "# x", "\t", "&a " + "x" * 3_000, "[&b [x,x,x,x], &c [*b,*b,*b], &d [*c,*c,*c], *d]"),
)
_EXPRESSION: Final = (
    *(
        "memcpy_share",
        "step_ms",
        "sync_calls",
        "limit",
        "high",
        "nothing",
        "'a'",
        "1",
        "0",
        "1e309",
        "9" * 60,
        "-",
        "+",
    ),
    *("*", "/", "%", "(", ")", "=", "<", ">", "<>", "!=", "AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *(
        "BETWEEN",
        "IN",
        "TRUE",
        "ABS",
        "ABS(",
        "NULL",
        ",",
        "--",
        "/*",
        "'",
        "memcpy_share > limit AND",
        "\0",
        "\N{ELEPHANT}",
    ),
)
_TEMPLATE: Final = (
    *(
        "{{ ",
        " }}",
        "{% if ",
        " %}",
        "{% endif %}",
        "{% else %}",
        "{% for x in y %}",
        "{% set x = ",
        "{# ",
        " #}",
        "{{",
        "}}",
    ),
    *(
        "memcpy_share",
        "sync_calls",
        "limit",
        "nothing",
        "'{}{}{}{}{}{}{}{}'",
        "9" * 50,
        "1",
        "0",
        "(",
        ")",
        "[",
        "]",
        ",",
    ),
    *(
        "| detail",
        "| detail('{}{}{}{}{}{}')",
        "| percent",
        "| count('x')",
        "| up_to(1)",
        "| int",
        "| upper",
        "| default('x')",
    ),
    *("*", "~", "+", "/", "**", "%", "<", "and", "not", "is divisibleby(0)", "in", "-", ".__class__", "range(99999)"),
)


def case(random: Random, folder: Path) -> Path:
    """Writes the three files, one of which is changed; one of settings always names the rule's folder."""
    (folder / "ours").mkdir()
    chosen = random.choice(list(_TREES))
    for name, tree in _TREES.items():
        (folder / name).write_bytes(_changed(name, tree, random) if name == chosen else _dumped(tree))
    return folder


def _changed(name: str, tree: Any, random: Random) -> bytes:
    if name.endswith("x.yaml") and random.random() < 0.6:
        tree = _reworded(tree, random)
    elif random.random() < 0.5:
        tree = changed(tree, random)
    data = _dumped(tree)
    if random.random() < 0.5:
        data = _with_fragments(data, random)
    return spoilt(data, random) if random.random() < 0.15 else data


def _reworded(rule: Any, random: Random) -> Any:
    key, words = random.choice([("when", _EXPRESSION), ("says", _TEMPLATE), ("title", _TEMPLATE), ("do", _TEMPLATE)])
    text = " ".join(random.choices(words, k=random.choice((1, 3, 6, 12, 400))))
    text = f"{{{{ {text} }}}}" if words is _TEMPLATE and random.random() < 0.5 else text
    if key == "do":
        return {**rule, "fixes": [{**rule["fixes"][0], "do": text}]}
    return {**rule, key: text}


def _with_fragments(data: bytes, random: Random) -> bytes:
    """Some values of the text in place of which stands something that YAML reads in its own way."""
    lines = data.decode().splitlines()
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(lines))
        head, colon, _ = lines[at].partition(": ")
        lines[at] = f"{head}{colon}{random.choice(_FRAGMENTS)}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _dumped(tree: Any) -> bytes:
    text: str = yaml.safe_dump(tree, allow_unicode=True, sort_keys=False)
    return text.encode("utf-8", "surrogatepass")


def check(folder: Path) -> None:
    """What commands do with these files: settings with the rules they name, and the labels of a run."""
    _use_labels(str(folder / "run.yaml"))
    settings = config.load(config.find(folder))
    book = user_config.rule_book(settings)
    user_config.suppressions(settings, dt.date(2026, 1, 1))
    labels.of_path("/a/b/c", settings.fleet.paths)
    if "x" in book:
        rule_page(book["x"])


def _use_labels(path: str) -> None:
    try:
        right, _ = labels.valid_labels(labels.of_file(path))
    except ReadError as error:
        if "\n" in str(error) or len(str(error)) > 500:
            raise AssertionError("an error is one short line") from None
        return
    known = labels.labels_of(right)
    known.canonical()
    if known.when:
        labels.week_of(known.when)
