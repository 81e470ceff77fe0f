"""Hostile YAML: every kind of file refuses it with its line and column, in little time, and without quoting it."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from advisor import config
from advisor.errors import ReadError, RuleError, UsageError
from advisor.fleet import labels
from advisor.inputs.names.calls import FILE, FIXES
from advisor.rules.rule_file import RuleFile, files, load
from advisor.yamltree import MOST_BYTES, FormError, Yaml

SECRET = "AWS-live-0123456789abcdef"  # noqa: S105 - it opens nothing
BAD = {
    "an empty number by a tag": ('a: !!int ""', "1:4: a tag (!) is not allowed"),
    "a truth value by a tag": ("a: !!bool foo", "1:4: a tag"),
    "a date by a tag": ("a:\n  !!timestamp foo", "2:3: a tag"),
    "an object": ("a: !!python/object:os.system {}", "1:4: a tag"),
    "a tag on a key": ("!x a: 1", "1:1: a tag"),
    "a number of 5,000 digits": ("a: " + "9" * 5_000, "1:4: a number of more than 100 characters"),
    "a number of 5,000 binary digits": ("a: 0b" + "1" * 5_000, "1:4: a number of more than 100 characters"),
    "a number of 5,000 minutes": ("a: 1" + ":59" * 5_000, "1:4: a number of more than 100 characters"),
    "a number without digits": ("a: 0x_", "1:4: no such number or date"),
    "the year 0": ("a: 0000-00-00", "1:4: no such number or date"),
    "an hour 25": ("a: 2020-01-01 25:00:00", "1:4: no such number or date"),
    "brackets": ("a: " + "[" * 100_000, "nest"),
    "mappings": ("".join(" " * n + "a:\n" for n in range(1_000)), "51:51: nested more than 50 levels deep"),
    "an anchor to itself": ("a: &a [*a]", "1:8: an alias (*) of nothing that stands before it"),
    "aliases of aliases": (
        "a: &a ["
        + "x," * 9
        + "x]\n"
        + "".join(f"{n}: &{n} [{f'*{m},' * 10}]\n" for m, n in itertools.pairwise("abcdefgh")),
        "5:29: too many values, its aliases (*) followed",
    ),
    "aliases of a long text": (f"a: &a {'x' * 500_000}\nb: [*a, *a, *a, *a, *a]", "2:17: too many values"),
    "merged aliases": (
        "a: &a {" + ",".join(f"k{n}: 1" for n in range(1_000)) + "}\n" + "b:\n" + " - <<: *a\n" * 1_000,
        "too many values",
    ),
    "a merged text": ("<<: x", "1:1: << needs a mapping"),
    "a key twice": ("a: 1\na: 2", "2:1: this key stands here twice"),
    "a number whose hash is another's": (f"{2**61}: a", "1:1: a key that is too large a number"),
    "a list as a key": ("[a]: 1", "1:1: a key must be a word"),
    "two documents": ("a: 1\n---\nb: 1", "2:1: more than one document"),
    "half a text": ("a: [", ": not valid YAML"),
    "a zero byte": ("a: b\nc: \0", "2:4: not valid YAML"),
    "an unknown alias": (f"a: *{SECRET}", "1:4: an alias (*) of nothing"),
    "a character that starts nothing": (
        f"a: @{SECRET}",
        "1:4: not valid YAML: found character that cannot start any token",
    ),
    "credentials": (f"[default]\naws_secret_access_key = {SECRET}", "2:1: not valid YAML"),
}


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD)
def test_it_is_refused_with_line_and_column(text: str, says: str):
    with pytest.raises(FormError) as refused:
        Yaml(text)
    assert says in refused.value.of("")[1:]
    assert SECRET not in str(refused.value)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# none\n", None),
        ("\N{ZERO WIDTH NO-BREAK SPACE}a: 1".removeprefix("\ufeff"), {"a": 1}),
        ("a: &a {b: 1, c: 2}\nd: {<<: *a, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("{<<: {b: 1}, c: 4, <<: {b: 2, c: 5, d: 3}}", {"b": 1, "c": 4, "d": 3}),
        (
            "x: [&a {b: 1}, &c {b: 2, d: 3}]\ne: {<<: [*a, *c]}",
            {"x": [{"b": 1}, {"b": 2, "d": 3}], "e": {"b": 1, "d": 3}},
        ),
        ("[1, 0x1f, 017, .5, '1', yes, ~, a]", [1, 31, 15, 0.5, "1", True, None, "a"]),
        ("1: a\ntrue: b", None),
    ],
)
def test_what_is_no_attack_is_read(text: str, value: object):
    if value is None and text[:1] == "1":  # 1 is true in Python
        with pytest.raises(FormError, match="twice"):
            Yaml(text)
    else:
        assert Yaml(text).value == value


def test_a_place_that_is_not_there_has_the_line_of_what_is_around_it():
    text = Yaml("a:\n  b:\n  - 1\n  - c: 2\n    d: &d {e: 3}\nf: *d")
    places = (), ("a", "b"), ("a", "b", 1, "c"), ("a", "b", 1, "d", "e"), ("a", "b", 1, "z"), ("f", "e"), ("z",)
    assert [text.line(place) for place in places] == [1, 2, 4, 5, 4, 1, 1]


def _as_settings(path: Path) -> object:
    return config.load(path)


def _as_rule(path: Path) -> object:
    return RuleFile(path).rule()


def _as_labels(path: Path) -> object:
    return labels.of_file(str(path))


READERS = {_as_settings: UsageError, _as_rule: RuleError, _as_labels: ReadError}
readers = pytest.mark.parametrize(("read", "error"), READERS.items(), ids=["settings", "rule", "labels"])


@readers
def test_each_kind_of_file_is_read_by_the_one_loader(read, error, tmp_path):
    for text, says in BAD.values():
        path = tmp_path / "x.yaml"
        path.write_text(text)
        with pytest.raises(error) as refused:
            read(path)
        assert str(refused.value).startswith(f"{path}:")
        assert says in str(refused.value)
        assert "\n" not in str(refused.value)


@readers
def test_each_kind_of_file_is_a_small_regular_file_in_utf8(read, error, tmp_path):
    files = {name: tmp_path / f"{name}.yaml" for name in ("folder", "pipe", "large", "bytes")}
    files["folder"].mkdir()
    os.mkfifo(files["pipe"])
    files["large"].write_bytes(b"#" * (MOST_BYTES + 1))
    files["bytes"].write_bytes(b"a: 1\nb: \xff")
    says = {
        "folder": "Is a directory|not a regular file",
        "pipe": "not a regular file",
        "large": "larger than 1 MiB",
        "bytes": ":2:4: not UTF-8",
    }
    for name, path in files.items():
        with pytest.raises(error, match=says[name]):
            read(path)


def test_a_file_that_is_another_is_not_quoted(tmp_path):
    for text in (f"{SECRET}: 1", f"api_key: {SECRET}", SECRET, f"[{SECRET}]"):
        (tmp_path / "x.yaml").write_text(text)
        for read in (_as_settings, _as_rule):
            with pytest.raises(UsageError) as refused:
                read(tmp_path / "x.yaml")
            assert SECRET not in str(refused.value)


def test_toml_is_not_quoted_either(tmp_path):
    path = tmp_path / "pyproject.toml"
    for text, says in {
        f"[tool.advisor]\nrules = {SECRET}": "2:9: not valid TOML",
        f"[tool.advisor]\n{SECRET} = 1": ": no such setting",
        "[tool.advisor]\nx = " + "9" * 5_000: ": not valid TOML",
        "# [tool.advisor]\n[" + "a." * 100_000 + "a]": ": a key of more than 50 parts",
    }.items():
        path.write_text(text)
        assert config.find(tmp_path) == path
        with pytest.raises(UsageError, match=says) as refused:
            config.load(path)
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("[ tool.advisor ]", True),
        ("tool.advisor.rules = []", True),
        ("[tool]\nadvisor = {}", True),
        ("tool = 1 # [tool.advisor]", False),
        ("[tool.other]\nname = 'advisor'", False),
    ],
)
def test_settings_in_toml_are_found_in_any_spelling(tmp_path, text, is_ours):
    (path := tmp_path / "pyproject.toml").write_text(text)
    assert (config.find(tmp_path) == path) == is_ours


def test_links_that_lead_out_are_refused(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "ours").mkdir(parents=True)
    outside.mkdir()
    (outside / "x.yaml").write_text(SECRET)
    (outside / "real.yaml").write_text("rules: [ours]")
    (inside / "ours" / "x.yaml").symlink_to(outside / "x.yaml")
    (inside / "linked").symlink_to(outside)
    (inside / "advisor.yaml").symlink_to(outside / "real.yaml")
    with pytest.raises(UsageError, match=r"advisor.yaml: a link that leads out of its folder"):
        config.load(config.find(inside))
    (inside / "advisor.yaml").unlink()
    with pytest.raises(RuleError, match=r"x.yaml:1: a link that leads out of its folder"):
        _as_rule(inside / "ours" / "x.yaml")
    for name in (FILE, FIXES):
        (inside / "ours" / name).symlink_to(outside / "x.yaml")
        with pytest.raises(RuleError, match=rf"{name}:1: a link that leads out of its folder"):
            load([inside / "ours"])
        (inside / "ours" / name).unlink()
    for folder in ("linked", "linked/../out"):
        (inside / "advisor.yaml").write_text(f"rules: [{folder}]")
        with pytest.raises(UsageError, match="a link that leads out of this folder"):
            config.load(inside / "advisor.yaml")
    for text, folder in {"rules: [ours]": inside / "ours", "rules: [../out]": outside}.items():
        (inside / "advisor.yaml").write_text(text)
        assert config.load(inside / "advisor.yaml").rules == (folder,)
    (inside / "same.yaml").symlink_to("advisor.yaml")
    assert config.load(inside / "same.yaml").rules == (outside,)


def test_a_folder_of_a_name_that_is_too_long_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="no such rule folder"):
        files(tmp_path / ("x" * 3_000))


def test_the_null_device_holds_no_settings():
    assert config.load(Path(os.devnull)) == config.Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (r'rules: ["a\0b"]', "rules: no name of a folder"),
        ("fleet: {paths: ['a{99999999999999}']}", "fleet.paths.0: "),
        (f"fleet: {{paths: [{', '.join(['a'] * 33)}]}}", "fleet.paths: "),  # each takes time to compile
        (f"fleet: {{paths: ['{'(' * 5_000}']}}", "fleet.paths.0: "),
    ],
)
def test_settings_that_a_library_chokes_on_are_one_line(text: str, says: str, tmp_path):
    (tmp_path / "advisor.yaml").write_text(text)
    with pytest.raises(UsageError, match=says):
        config.load(tmp_path / "advisor.yaml")
