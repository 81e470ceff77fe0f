"""Rule files: a wrong one is refused with file, line and reason."""

import re

import pytest

from advisor import config
from advisor.errors import RuleError, UsageError
from advisor.rules import wording
from advisor.rules.lint import lint
from advisor.rules.rule_file import load
from advisor.rules.rule_form import Saving
from advisor.rules.wording import say
from tests.profiles import book

RULE = """\
id: slow-copies
title: Copies take long
applies: {device: true}
params: {limit: 20 %}
when: memcpy_share > limit
scope: worker
confidence: high
saving: {of: memcpy, most: memcpy_ms, low: 0.5, method: Half to all of it.}
says: "{{ memcpy_share | percent }} of {{ each_step }}."
why: Copies do no work.
fixes:
  - {for: any, do: Copy less.}
references:
  - own choice: "20 %"
cases:
  - long: {memcpy_share: 30 %, memcpy_ms: 30, saves: [15, 30]}
  - short: {memcpy_share: 0.2, fires: false}
  - unknown: {not_evaluable: [memcpy_share]}
"""
SAVING = RULE.splitlines()[7]


@pytest.fixture
def folder(tmp_path):
    def written(text, name="slow-copies.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path

    return written


def problems(folder):
    return [p.removeprefix(f"{folder}/") for p in lint(folder, [])]


@pytest.mark.parametrize("number", ["1e400", "-1e400", "memcpy_share + 9.9e999"])
def test_a_number_that_no_float_holds_is_refused(number):
    with pytest.raises(ValueError, match="a number that is too large"):
        wording.names(f"{{{{ {number} }}}}")


def test_a_right_rule_has_no_problems(folder):
    assert problems(folder(RULE)) == []


@pytest.mark.parametrize("value", ["'['", "''", "many"])
def test_a_case_with_a_text_for_a_number_is_named(folder, value):
    wrong = RULE.replace("memcpy_share: 30 %", f"memcpy_share: {value}")
    assert "slow-copies.yaml:16: cases.0: case 'long': not evaluable without memcpy_share" in problems(folder(wrong))


def test_a_case_may_have_a_number_for_a_name(folder):
    named = RULE.replace("memcpy_ms: 30,", "memcpy_ms: 30, sync_calls: 5,").replace(
        "each_step }}", "each_step }}{{ sync_calls | detail }}"
    )
    assert problems(folder(named)) == []


def test_a_rule_names_a_fix_that_several_share(folder):
    folder("mine: {for: any, do: Pin it.}\n", "fixes.yaml")
    text = RULE.replace("fixes:\n  - {for: any, do: Copy less.}\n", "fixes: [mine, copy_ahead]\n")
    assert problems(folder(text)) == []
    assert [fix.framework for fix in load([folder(text)])["slow-copies"].fixes] == ["any", "jax"]
    (why,) = problems(folder(text.replace("mine", "mime")))
    assert why.endswith("fixes.0: no fix of fixes.yaml is called 'mime'")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "memcpy_share > limit",
            "memcpy_shar > limit",
            "5: when: unknown metric or parameter 'memcpy_shar'; did you mean 'memcpy_share'?",
        ),
        ("title: Copies take long", 'title: "{{ 1/0 }}"', "2: title: division by zero"),
        ("title: Copies", "titel: Copies", "2: titel: no such key in a rule; did you mean 'title'?"),
        ("why: Copies do no work.\n", "", "1: why: missing"),
        ("confidence: high\n", "confidence: high\nconfidence: low\n", "8:1: this key stands here twice"),
        ("{limit: 20 %}", "{limit: 20 %, spare: 1}", "4: params.spare: this parameter is not used"),
        ("{limit: 20 %}", "{limit: 40 %}", "16: cases.0: case 'long': fires False, not True"),
        ("[15, 30]", "[10, 30]", "16: cases.0: case 'long': saves 15.0 to 30.0 ms, not 10.0 to 30.0"),
        ("why:", "severity: {low: true}\nwhy:", "10: severity: leave it out: the severity is decided by the saving"),
        (SAVING, "severity: {low: memcpy_ms > 1}", "8: severity: without a saving, one level must be `true`"),
        (SAVING, "severity: {grave: true}", "8: severity.grave: no such key in a rule"),
        (SAVING, "", "1: severity: without a saving, one level must be `true`"),
        ("of: memcpy", "of: coffee", "8: saving.of:"),
        ("most: memcpy_ms", "most: memcpy_m", "8: saving.low_ms: unknown metric or parameter 'memcpy_m'"),
        ("most: memcpy_ms", "change: memcpy", "8: saving.low_ms: unknown metric or parameter 'memcpy_least_gain_ms'"),
        ("low: 0.5", "low: memcpy_ms / 60", "8: saving: a part has no unit, and memcpy_ms is a time"),
        ("most: memcpy_ms, ", "", "8: saving: name what is saved: `change: NAME`, or"),
        ("most: memcpy_ms", "most: memcpy_ms, change: copy", "8: saving: name what is saved: `change: NAME`, or"),
        ("low: 0.5", "low_ms: 1", "8: saving: `low_ms` and `high_ms` stand together, and in place of `change`"),
        (
            "{for: any, do",
            "{for: any, when: memcpy_shar > 0, do",
            "12: fixes.0.when: unknown metric or parameter 'memcpy_shar'",
        ),
        (
            "saves: [15, 30]",
            "fix: Copy more",
            "16: cases.0: case 'long': its first fix is 'Copy less.', not 'Copy more'",
        ),
        (
            "memcpy_share | percent",
            "(memcpy_ms / input_exposed_ms) | number",
            "16: cases.0: case 'long': it cannot be put in words: unsupported operand",
        ),
        (
            "do: Copy less.",
            "do: 'Copy {{ input_exposed_ms * 2 }}.'",
            "16: cases.0: case 'long': it cannot be put in words:",
        ),
        ("each_step }}", "each_stop }}", "9: says: unknown metric or parameter 'each_stop'"),
        ("{{ memcpy_share |", "{{ memcpy_share |||", "9: says:"),
        ("confidence: high", "confidence: high\nexplains: [ghost]", "8: explains.0: no rule has the id 'ghost'"),
        ("confidence: high", "confidence: high\nshows: [ghost]", "8: shows.0: unknown metric or parameter 'ghost'"),
        ("device: true}", "known: [ghost]}", "3: applies.known.0: unknown metric or parameter 'ghost'"),
        ("memcpy_share: 30 %", "memcpy_shar: 30 %", "16: cases.0: case 'long': unknown metric 'memcpy_shar'"),
        ("  - long: {memcpy", "  - {name: long, memcpy", "16: cases.0: write its name, the metrics that it gives"),
        (
            "memcpy_share > limit",
            "memcpy_share > limit AND (memcpy_share > 0.1 OR memcpy_ms > 1)",
            "5: when: no case shows what `memcpy_share > 0.1` decides: add one in which nothing else decides",
        ),
        (
            "confidence: high",
            "about: {time: ghost, parts: [ghost]}",
            "7: about.parts.0: no rule has the id 'ghost'",
        ),
        ("confidence: high", "about: {rank: memcpy_ms}", "7: about.rank: 'memcpy_ms' is not the number of a rank"),
        ("confidence: high", "confidence: {lower_if: ghost > 1}", "7: confidence.lower_if: unknown metric"),
        ("when:", "let: {end: memcpy_ms}\nwhen:", "5: let: end is a word of the language"),
        ("when:", "let: {most: memcpy_ms}\nwhen:", "5: let.most: this name is not used"),
        ("when:", "let: {limit: memcpy_ms}\nwhen:", "5: let.limit: this is the name of a metric or a parameter"),
        ("when: m", "let: {a: b, b: memcpy_ms}\nwhen: a > 0 AND m", "6: when: unknown metric or parameter 'b'"),
        ("id: slow-copies", "id: fast-copies", "1: id: fast-copies: the file must be named fast-copies.yaml"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(folder, old, new, message):
    assert old in RULE
    found = problems(folder(RULE.replace(old, new)))
    assert any(p.startswith(f"slow-copies.yaml:{message}") for p in found), found


def test_a_rule_that_always_fires_has_no_case_in_which_it_does_not(folder):
    text = RULE.replace("memcpy_share > limit", "true").replace("  - short: {memcpy_share: 0.2, fires: false}\n", "")
    assert "slow-copies.yaml:15: cases: no case in which the rule does not fire" in problems(folder(text))


def test_a_rule_must_not_explain_itself_over_others(folder):
    folder(RULE.replace("confidence: high", "confidence: high\nexplains: [b]").replace("slow-copies", "a"), "a.yaml")
    path = folder(
        RULE.replace("confidence: high", "confidence: high\nexplains: [a]").replace("slow-copies", "b"), "b.yaml"
    )
    assert any("a explains itself over a circle of rules" in p for p in problems(path))


def test_what_outweighs_savings_is_beneath_no_rule_that_has_one(folder):
    saves = RULE.replace("confidence: high", "confidence: high\nexplains: [b]").replace("slow-copies", "a")
    outweighs = RULE.replace("confidence: high", "confidence: high\nabout: {outweighs_ms: 1}").replace(
        "slow-copies", "b"
    )
    folder(saves, "a.yaml")
    assert any("a explains itself over a circle of rules" in p for p in problems(folder(outweighs, "b.yaml")))


def test_yaml_that_is_none_is_an_error_with_a_line(folder):
    with pytest.raises(RuleError, match=r"slow-copies.yaml:2:1: not valid YAML"):
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
    plain = load([folder(RULE.replace("20 %}", "0.2}"))])["slow-copies"]
    documented = "{limit: '20 %, the most that is fine'}"
    whole = load([folder(RULE.replace("{limit: 20 %}", documented))])["slow-copies"]
    assert plain.params == whole.params == {"limit": 0.2}
    assert (whole.parameters["limit"].unit, whole.parameters["limit"].meaning) == ("share", "the most that is fine")


def test_an_override_changes_the_value_alone(folder):
    documented = "{limit: '20 %, the most that is fine'}"
    rule = load([folder(RULE.replace("{limit: 20 %}", documented))])["slow-copies"]
    changed = rule.adjusted({"limit": 0.4}, None)
    assert changed.params == {"limit": 0.4}
    assert changed.parameters["limit"].meaning == "the most that is fine"


def test_a_rule_that_has_judged_judges_as_overridden_afterwards(folder):
    rule = load([folder(RULE)])["slow-copies"]
    keys = rule.expressions().keys()
    changed = rule.adjusted({}, "low").expressions().keys()
    assert changed == keys | {"severity.low"}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{limit: much}", "4: params.limit: write a number, its unit and what it is: `5 %, "),
        ("{limit: 20 furlongs}", "4: params.limit: write a number, its unit"),
        ("{limit: {value: 20 %}}", "4: params.limit: write a number, its unit"),
        ("{limit: '20 %,'}", "4: params.limit: write a number, its unit"),
        ("{limit: 1e999}", "4: params.limit.value: must be a finite number"),
    ],
)
def test_a_wrong_parameter_is_refused_with_its_line(folder, written, message):
    assert any(
        p.startswith(f"slow-copies.yaml:{message}") for p in problems(folder(RULE.replace("{limit: 20 %}", written)))
    )


def test_only_the_shipped_rules_must_document_what_is_no_limit_of_a_metric(folder):
    path = folder(RULE.replace("{limit: 20 %}", "{limit: 20 %, part: 50 %}").replace("low: 0.5", "low: part"))
    assert lint(path, []) == []
    (meaning,) = lint(path, [], documented=True)
    assert meaning.startswith(f"{path}/slow-copies.yaml:4: params.part: write what it is after its unit")
    stated = RULE.replace(SAVING, "severity: {low: true}").replace(", saves: [15, 30]", ", fires: low")
    (because,) = lint(folder(stated), [], documented=True)
    assert "8: severity: write why no saving decides it" in because


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("cannot_show: data", None),
        ("unless: memcpy_share > 0.9", None),  # a case follows from the limit
        (
            "unless: input_share > 0.2 AND launch_gap_share > 0.2",
            "fixes.0.unless: no case of a job that has this fix already",
        ),
        ("cannot_show: nobody knows", "fixes.0.cannot_show: must be 'environment'"),
        ("cannot_show: data, choice: this or that", "fixes: choice 'this or that': no other fix for any is"),
    ],
)
def test_a_fix_says_how_a_recording_shows_it(folder, keys, problem):
    found = problems(folder(RULE.replace("do: Copy less.", f"do: Copy less., {keys}")))
    assert [problem in line for line in found] == [True] if problem else found == []


def test_a_title_has_no_id(folder):
    lines = RULE.replace("confidence: high", "confidence: {lower_if: memcpy_ms > 1, title: Copies (slow-copies)}")
    assert any("confidence.title: leave out the rule's id" in line for line in problems(folder(lines)))


@pytest.mark.parametrize(
    ("name", "title", "is_wrong"),
    [
        ("slow-copies", "It is slow-copies", True),
        ("slow-copies", "Not-so-slow-copies here", False),
        ("date", "It updates too often", False),
        ("copies", "Many copies", False),
    ],
)
def test_a_word_of_a_title_is_no_id(folder, name, title, is_wrong):
    text = RULE.replace("id: slow-copies", f"id: {name}").replace("title: Copies", f"title: {title}; copies")
    assert any("leave out the rule's id" in line for line in problems(folder(text, f"{name}.yaml"))) is is_wrong


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{limit: 20 %}", "{limit: 20}", "4: params.limit: memcpy_share is a part of 1: write `20 %`"),
        (
            "memcpy_share > limit",
            "memcpy_share > limit AND 90 > memcpy_share",
            "5: when: memcpy_share is a part of 1: write `90 %`",
        ),
    ],
)
def test_a_share_is_held_against_a_share(folder, old, new, message):
    found = problems(folder(RULE.replace(old, new)))
    assert any(line.startswith(f"slow-copies.yaml:{message}") for line in found), found


def test_cases_share_metrics_until_others_are_shared(folder):
    shared = RULE.replace("  - long:", "  - shared: {memcpy_share: 30 %, memcpy_ms: 30, steps: 4}\n  - long:")
    shared = shared.replace("long: {memcpy_share: 30 %, memcpy_ms: 30, ", "long: {steps: null, ")
    rule = load([folder(shared + "  - shared: {}\n  - none: {memcpy_share: 1 kB}\n")])["slow-copies"]
    assert {case.name: case.metrics for case in rule.cases.values()} == {
        "long": {"memcpy_share": 0.3, "memcpy_ms": 30},
        "short": {"memcpy_share": 0.2, "memcpy_ms": 30, "steps": 4},
        "unknown": {"memcpy_share": 0.3, "memcpy_ms": 30, "steps": 4},
        "none": {"memcpy_share": 1000},
    }


@pytest.mark.parametrize(
    ("written", "value", "unit"),
    [
        ("7 %", 0.07, "share"),
        ("2.5%", 0.025, "share"),
        ("2 ms", 2, "ms"),
        ("50 us", 50, "us"),
        ("1 MB", 1_000_000, "bytes"),
        ("64 KiB", 65_536, "bytes"),
        ("-3", -3, "number"),
    ],
)
def test_a_number_has_a_unit(folder, written, value, unit):
    limit = load([folder(RULE.replace("20 %}", f"{written}}}"))])["slow-copies"].parameters["limit"]
    assert (limit.value, limit.unit) == (value, unit)


def test_the_id_is_the_name_of_the_file(folder):
    assert problems(folder(RULE.removeprefix("id: slow-copies\n"))) == []


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        ("Copies{{ calls | detail }}.", "Copies: a (3)."),
        ("It adds {{ least | up_to(most) }}.", "It adds 42\N{EN DASH}46 ms."),
        ("It adds {{ most | up_to(least) }}.", "It adds 46 ms."),
        ("It adds {{ least | up_to(nothing) }}.", "It adds 42 ms."),
        ("It adds {{ least | up_to(many, most, nothing) }}.", "It adds 42\N{EN DASH}46 ms."),
        ("Copies.{{ calls | detail(' Most are {}.') }}", "Copies. Most are a (3)."),
        ("Copies in {{ calls | first }}, {{ (nothing | first) or 'nowhere' }}.", "Copies in a, nowhere."),
        ("Copies{{ nothing | detail }}.{{ nothing | detail(' Most are {}.') }}", "Copies."),
        ("{{ one | count('step') }}, {{ many | count('step') }}", "1 step, 1,200 steps"),
    ],
)
def test_a_sentence_leaves_out_a_list_that_is_empty_and_counts_nouns(says, sentence):
    numbers = {"one": 1, "many": 1200, "least": 42.0, "most": 46.0}
    assert say(says, {"calls": "a (3)", "nothing": None, **numbers}) == sentence


def test_a_sentence_has_the_names_of_a_metric_as_a_text():
    calls = [{"name": "aten::item", "count": None, "ms": 3.14}, {"name": "others", "ms": 0.2}]
    says = "Waits{{ calls | detail }}{% if 'item' in calls %}, read less{% endif %}{{ none | detail }}."
    assert say(says, {"calls": calls, "none": []}) == "Waits: aten::item (3.1 ms), others (0.2 ms), read less."


SAYS = '"{{ memcpy_share | percent }} of {{ each_step }}."'


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("{% for n in [1, 2] %}x{% endfor %}", "For: a sentence has numbers, conditions and arithmetic only"),
        ("{% for n in range(99999999) %}{% for m in range(99999999) %}x{% endfor %}{% endfor %}", "For:"),
        ("{% macro m() %}{{ m() }}{% endmacro %}", "Macro:"),
        ("{{ ''.__class__.__mro__ }}", "Getattr:"),
        ("{{ cycler.__init__.__globals__ }}", "Getattr:"),
        ("{{ memcpy_share['x'] }}", "Getitem:"),
        ("{{ range(9) }}", "Call:"),
        ("{{ 10 ** 10 ** 10 }}", "Pow:"),
        ("{{ '%9999999999d' % 1 }}", "Mod:"),
        ("{% include 'secret' %}", "Include:"),
        ("{{ 'x' | center(999999999) }}", "No filter named 'center'"),
        ("{{ memcpy_share | persent }}", "No filter named 'persent'"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "nested too deep"),
        ("{{ memcpy_share" + " | abs" * 50 + " }}", "nested more than 30 levels deep"),
        ("{% if memcpy_share %}" * 110 + "{% endif %}" * 110, "nested more than 30 levels deep"),
        ("x" * 9_999 + "{{ 1 }}", "longer than 10,000 characters"),
    ],
)
def test_a_template_has_no_loops_calls_or_attributes(folder, says, message):
    (problem,) = problems(folder(RULE.replace(SAYS, f'"{says}"')))
    assert problem.startswith(f"slow-copies.yaml:9: says: {message}")
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("{{ 'x' * 999999999 }}", "only numbers can be multiplied"),
        ("{{ memcpy_share / 0 }}", "float division by zero"),
        ("{{ memcpy_share + 'x' }}", "unsupported operand"),
        ("{{ nothing }}", "'nothing' is undefined"),
    ],
)
def test_a_sentence_that_fails_names_its_file_and_line(folder, says, why):
    rule = load([folder(RULE.replace(SAYS, f'"{says}"'))])["slow-copies"].adjusted({}, "high")
    with pytest.raises(ValueError, match=why) as caught:
        wording.say(rule.says, {"memcpy_share": 0.5})
    error = rule.error(("says",), str(caught.value))
    assert isinstance(error, RuleError)
    assert f"slow-copies.yaml:9: says: {why}" in str(error)


def test_each_filter_adds_its_own_words_and_nothing_is_worked_out_ahead():
    chained = "{{ 'x' " + "| detail('{}{}{}{}{}{}{}{}{}{}')" * 10 + " }}"
    assert wording.names(chained) == set()
    assert len(say(chained, {})) == 1 + 10 * 18
    named = "{{ " + " ~ ".join(["name"] * 1_000) + " }}"
    assert len(wording.fill(named, {"name": "x" * 1_000_000})) == 20_000


def test_words_that_no_filter_takes_are_an_error_of_the_sentence():
    with pytest.raises(ValueError, match="replace"):
        say("{{ 'a' | detail(3) }}", {})


def test_a_name_as_long_as_a_book_is_cut():
    assert len(wording.say("{{ name }}", {"name": "x" * 1_000_000})) == 4_000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("limit: 20 %", "limit: .inf", "4: params.limit.value: must be a finite number"),
        ("limit: 20 %", "limit: .nan", "4: params.limit.value: must be a finite number"),
        ("memcpy_share > limit", " AND ".join(["memcpy_share > limit"] * 300), "5: when: more than 500 words"),
        ("memcpy_share > limit", "NOT " * 600 + "memcpy_share > limit", "5: when: more than 500 words"),
        ("{limit: 20 %}", "[\n" * 3_000, "54:1: nested more than 50 levels deep"),
        ("{limit: 20 %}", "- " * 100_000, "4:9: not valid YAML: block sequence entries"),
        ("{limit: 20 %}", "&a [*a]", "4:13: an alias (*) of nothing that stands before it"),
        ("{limit: 20 %}", "{limit: 0000-00-00}", "4:17: no such number or date"),
        ("{limit: 20 %}", "{[limit]: 1}", "4:10: a key must be a word"),
        (
            "{limit: 20 %}",
            (
                "[&a [x,x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b],"
                " &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c], &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d], [*e,*e,*e,*e,*e,*e,*e,*e]]"
            ),
            "4:169: too many values, its aliases (*) followed",
        ),
    ],
)
def test_a_rule_file_out_of_bounds_is_refused_with_its_line(folder, old, new, message):
    (problem,) = problems(folder(RULE.replace(old, new, 1)))
    assert problem.startswith(f"slow-copies.yaml:{message}")
    assert "\n" not in problem


def test_rules_that_take_too_long_to_read_are_refused(folder, monkeypatch):
    monkeypatch.setattr("advisor.rules.rule_file._MOST_S", 0.0)
    with pytest.raises(
        RuleError, match=r"slow-copies.yaml:\d: measure: the rules up to here take over 0 s; write simpler"
    ):
        load([folder(RULE)])


def test_a_folder_without_rules_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("none")
    with pytest.raises(UsageError, match=r"no rule in this folder; a rule is a \*\.yaml file"):
        load([tmp_path])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("suppress: [{rule: x, reason: known, until: 0000-00-00}]", ":1:44: no such number or date"),
        ("rules: " + "[\n" * 3_000, ":51:1: nested more than 50 levels deep"),
        ("rules: " + "- " * 30_000, ":1:8: not valid YAML: block sequence entries are not allowed"),
        ("overrides: {x: {params: {limit: .inf}}}", "overrides.x.params.limit: must be a finite number"),
        ("fleet: {prices: {h100: .nan}}", "fleet.prices.h100: must be a finite number"),
        ("rules: " + "1" * 5_000, ":1:8: a number of more than 100 characters"),
    ],
)
def test_settings_out_of_bounds_are_one_line(tmp_path, text, message):
    (tmp_path / "advisor.yaml").write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        config.load(tmp_path / "advisor.yaml")
    assert "\n" not in str(caught.value)


def test_a_null_is_never_shown_as_none():
    assert (
        wording.say("{{ calls }} calls{{ names | detail }}", {"calls": None, "names": None}) == "could not tell calls"
    )


@pytest.mark.parametrize(
    ("step", "of_share", "of_ms"),
    [
        (wording.Step("each step", 100.0, 100.0, {}), "25 % of each step (25 ms)", "25 % of each step (25 ms)"),
        # of 100 recorded ms 25 are input, which takes twice as long beside ops that take half of their time
        (wording.Step("each step", 80.0, 100.0, {}, 2.0), "62 % of each step (50 ms)", "62 % of each step (50 ms)"),
        (wording.Step("each step", 20.0, 100.0, {}, 2.0), "100 % of each step (20 ms)", "100 % of each step (20 ms)"),
        (wording.Step("the time used", None, None, {}), "25 % of the time used", "could not tell of the time used"),
    ],
)
def test_a_share_is_told_of_the_step_that_the_bar_is_of(step, of_share, of_ms):
    values = {"input_share": 0.25, "input_ms": 25.0, "step": 7, wording.STEP: step}  # a rule may call its own so
    assert wording.say("{{ step }}", values) == "7"
    assert wording.say("{{ input_share | of_step }}", values) == of_share
    assert wording.say("{{ input_ms | ms_of_step }}", values) == of_ms
    timed = "25 % of each step" if step.ms else "25 % of the time used"
    assert wording.say("{{ input_share | of_timed_step }}", values).partition(" (")[0] == timed


def test_a_name_stands_for_a_part_of_every_expression(folder):
    let = "let: {long: memcpy_share > limit, half_ms: memcpy_ms / 2, quarter_ms: half_ms / 2}\n"
    named = (
        RULE.replace("when: memcpy_share > limit", f"{let}when: long OR memcpy_ms = 'quarter_ms'")
        .replace("most: memcpy_ms, low: 0.5", "low_ms: quarter_ms + 1, high_ms: half_ms")
        .replace("{for: any,", "{for: any, unless: NOT long,")
    )
    rule = load([folder(named)])["slow-copies"]
    assert rule.texts == {
        "when": "(memcpy_share > limit) OR memcpy_ms = 'quarter_ms'",
        "saving.low_ms": "((memcpy_ms / 2) / 2) + 1",
        "saving.high_ms": "(memcpy_ms / 2)",
    }
    assert rule.texts_of_fixes == {(0, "unless"): "NOT (memcpy_share > limit)"}


def test_a_text_has_the_value_of_a_name(folder):
    named = RULE.replace("when:", "let: {half_ms: memcpy_ms / 2}\nwhen:").replace("Copy less.", "'{{ half_ms | ms }}.'")
    assert problems(folder(named.replace("saves: [15, 30]", "fix: 15 ms."))) == []
    assert (
        "its first fix is '15 ms.', not '16 ms.'"
        in problems(folder(named.replace("saves: [15, 30]", "fix: 16 ms.")))[0]
    )


def test_names_that_grow_are_refused(folder):
    let = ", ".join(f"n{at + 1}: n{at} + n{at}" for at in range(1, 30))
    (problem,) = problems(folder(RULE.replace("when:", f"let: {{n1: memcpy_ms, {let}}}\nwhen:")))
    assert problem.startswith("slow-copies.yaml:5: let: more than 10,000 characters")


@pytest.mark.parametrize(
    ("form", "low", "high"),
    [
        ({"change": "foreach"}, "foreach_least_gain_ms", "foreach_gain_ms"),
        ({"change": "copy", "low": "sure_part", "high": 1.05}, "sure_part * copy_least_gain_ms", "1.05 * copy_gain_ms"),
        ({"most": "memcpy_ms", "low": 0}, "0", "memcpy_ms"),
        (
            {"most": "memcpy_share", "high": "1 - rest"},
            "memcpy_share * step_mean_ms",
            "(1 - rest) * memcpy_share * step_mean_ms",
        ),
        ({"least": {"a_ms": "part", "b_ms": -1}, "most": {"a_ms": 1}}, "part * a_ms + (-1) * b_ms", "a_ms"),
        (
            {"most": "a_ms", "limit": {"b_ms": "part"}, "low": 0},
            "0",
            "CASE WHEN part * b_ms < a_ms THEN part * b_ms ELSE a_ms END",
        ),
        ({"most": "a_ms", "sure": "n > 1"}, "CASE WHEN n > 1 THEN a_ms ELSE 0 END", "a_ms"),
        ({"most": "a_ms", "known": "n > 1"}, *["CASE WHEN n > 1 THEN a_ms END"] * 2),
        (
            {"most": "a_ms", "without_device": {"most": "b_ms"}},
            *["CASE WHEN devices_used = 0 THEN b_ms ELSE a_ms END"] * 2,
        ),
        ({"low_ms": 1.0, "high_ms": "a_ms + 1"}, "1.0", "a_ms + 1"),
    ],
)
def test_a_saving_is_two_expressions(form, low, high):
    assert Saving.model_validate({"of": "memcpy", "method": "m", **form}).ends == (low, high)


@pytest.mark.parametrize("rule", ["input-bound", "single-process-data-loader"])
def test_batches_of_a_job_on_a_cpu_are_neither_pinned_nor_changed_on_a_gpu(rule: str):
    of_gpus = re.compile("GPU|pin_memory")
    fixes = [fix for fix in book()[rule].fixes if fix.framework != "cuda"]
    texts = [text for fix in fixes for text in (fix.do, fix.code or "") if of_gpus.search(text)]
    row = {"workers_advised": 6, "loading_calls": [], "file_input": ""}
    for devices in (0, 1):
        filled = (wording.fill(text, {**row, "devices_used": devices}) for text in texts)
        assert [bool(of_gpus.search(text)) for text in filled] == [bool(devices)] * len(texts)
    assert texts
