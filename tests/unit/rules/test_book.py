"""Rule files: a wrong one is refused with file, line and reason."""

import pytest

from advisor import metrics
from advisor.errors import RuleError, UsageError
from advisor.rules.book import load
from advisor.rules.lint import lint
from advisor.rules.wording import say

RULE = """\
id: slow-copies
title: Copies take long
applies: {device: true}
params: {limit: 0.2}
when: memcpy_share > limit
severity: {medium: true}
confidence: high
saving: {of: memcpy, low_ms: memcpy_ms * 0.5, high_ms: memcpy_ms, method: Half to all of it.}
says: "{{ memcpy_share | percent }} of {{ each_step }}."
why: Copies do no work.
fixes:
  - {for: any, do: Copy less.}
references:
  - {what: "20 %", where: own choice}
cases:
  - {name: long, given: {memcpy_share: 0.3, memcpy_ms: 30.0}, fires: medium, saves: [15.0, 30.0]}
  - {name: short, given: {memcpy_share: 0.2}, fires: false}
  - {name: unknown, given: {}, not_evaluable: [memcpy_share]}
"""


@pytest.fixture
def folder(tmp_path):
    def written(text, name="slow-copies.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path

    return written


def problems(folder):
    return [p.removeprefix(f"{folder}/") for p in lint(folder, metrics.dtypes(), [])]


def test_a_right_rule_has_no_problems(folder):
    assert problems(folder(RULE)) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "memcpy_share > limit",
            "memcpy_shar > limit",
            "5: when: unknown metric or parameter 'memcpy_shar'; did you mean 'memcpy_share'?",
        ),
        ("title: Copies", "titel: Copies", "2: titel: no such key in a rule"),
        ("why: Copies do no work.\n", "", "1: why: missing"),
        ("confidence: high\n", "confidence: high\nconfidence: low\n", "8: confidence: this key stands here twice"),
        ("{limit: 0.2}", "{limit: 0.2, spare: 1}", "4: params.spare: this parameter is not used"),
        ("{limit: 0.2}", "{limit: 0.4}", "16: cases.0: case 'long': fires False, not medium"),
        ("[15.0, 30.0]", "[10.0, 30.0]", "16: cases.0: case 'long': saves 15.0 to 30.0 ms, not 10.0 to 30.0"),
        (
            "{medium: true}",
            "{medium: memcpy_share > 0.1}",
            "6: severity: one level must be `true`, for rows that reach no other",
        ),
        ("of: memcpy", "of: coffee", "8: saving.of:"),
        (
            "{for: any, do",
            "{for: any, when: memcpy_shar > 0, do",
            "12: fixes.0.when: unknown metric or parameter 'memcpy_shar'",
        ),
        (
            "saves: [15.0, 30.0]",
            "fix: Copy more",
            "16: cases.0: case 'long': its first fix is 'Copy less.', not 'Copy more'",
        ),
        ("each_step }}", "each_stop }}", "9: says: unknown metric or parameter 'each_stop'"),
        ("{{ memcpy_share |", "{{ memcpy_share |||", "9: says:"),
        ("confidence: high", "confidence: high\nexplains: [ghost]", "8: explains.0: no rule has the id 'ghost'"),
        ("confidence: high", "confidence: high\nshows: [ghost]", "8: shows.0: unknown metric 'ghost'"),
        (
            "  - {name: short, given: {memcpy_share: 0.2}, fires: false}\n",
            "",
            "15: cases: no case in which the rule does not fire",
        ),
        (
            "  - {name: unknown, given: {}, not_evaluable: [memcpy_share]}\n",
            "",
            "15: cases: no case in which the rule cannot be judged",
        ),
        ("id: slow-copies", "id: fast-copies", "1: id: fast-copies: the file must be named fast-copies.yaml"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(folder, old, new, message):
    assert old in RULE
    found = problems(folder(RULE.replace(old, new)))
    assert any(p.startswith(f"slow-copies.yaml:{message}") for p in found), found


def test_a_rule_must_not_explain_itself_over_others(folder):
    folder(RULE.replace("confidence: high", "confidence: high\nexplains: [b]").replace("slow-copies", "a"), "a.yaml")
    path = folder(
        RULE.replace("confidence: high", "confidence: high\nexplains: [a]").replace("slow-copies", "b"), "b.yaml"
    )
    assert any("a explains itself over a circle of rules" in p for p in problems(path))


def test_yaml_that_is_none_is_an_error_with_a_line(folder):
    with pytest.raises(RuleError, match=r"slow-copies.yaml:2: "):
        load([folder("id: a\n\t- b")])


def test_a_list_is_no_rule(folder):
    with pytest.raises(RuleError, match="a rule file is a mapping"):
        load([folder("- a")])


def test_a_missing_folder_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such rule folder"):
        load([tmp_path / "nowhere"])


def test_a_later_folder_replaces_a_rule(folder, tmp_path):
    first = folder(RULE)
    second = tmp_path / "second"
    second.mkdir()
    (second / "slow-copies.yaml").write_text(RULE.replace("Copies take long", "Ours"))
    assert load([first, second])["slow-copies"].title == "Ours"


def test_parameters_are_numbers_or_have_a_unit_and_a_meaning(folder):
    plain = load([folder(RULE)])["slow-copies"]
    documented = '{limit: {value: 0.2, unit: share, meaning: "the most that is fine"}}'
    whole = load([folder(RULE.replace("{limit: 0.2}", documented))])["slow-copies"]
    assert plain.params == whole.params == {"limit": 0.2}
    assert whole.parameters["limit"].unit == "share"


def test_an_override_changes_the_value_alone(folder):
    documented = '{limit: {value: 0.2, unit: share, meaning: "the most that is fine"}}'
    rule = load([folder(RULE.replace("{limit: 0.2}", documented))])["slow-copies"]
    changed = rule.adjusted({"limit": 0.4}, None)
    assert changed.params == {"limit": 0.4}
    assert changed.parameters["limit"].meaning == "the most that is fine"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{limit: much}", "4: params.limit.value: must be a number"),
        ("{limit: {value: 0.2, unit: furlong}}", "4: params.limit.unit: must be 'ms', 'us'"),
        ("{limit: {value: 0.2, means: x}}", "4: params.limit.means: no such key"),
        ("{limit: {unit: share}}", "4: params.limit.value: missing"),
    ],
)
def test_a_wrong_parameter_is_refused_with_its_line(folder, written, message):
    assert any(
        p.startswith(f"slow-copies.yaml:{message}") for p in problems(folder(RULE.replace("{limit: 0.2}", written)))
    )


def test_only_the_shipped_rules_must_document_their_parameters(folder):
    path = folder(RULE)
    assert lint(path, metrics.dtypes(), []) == []
    (problem,) = lint(path, metrics.dtypes(), [], documented=True)
    assert problem.startswith(f"{path}/slow-copies.yaml:4: params.limit: write its unit and meaning beside it")


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        ("Copies{{ calls | detail }}.", "Copies: a (3)."),
        ("Copies.{{ calls | detail(' Most are {}.') }}", "Copies. Most are a (3)."),
        ("Copies{{ nothing | detail }}.{{ nothing | detail(' Most are {}.') }}", "Copies."),
        ("{{ one | count('step') }}, {{ many | count('step') }}", "1 step, 1,200 steps"),
    ],
)
def test_a_sentence_leaves_out_a_list_that_is_empty_and_counts_nouns(says, sentence):
    assert say(says, {"calls": "a (3)", "nothing": None, "one": 1, "many": 1200}) == sentence
