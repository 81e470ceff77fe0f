"""Cases at limits: what follows from a comparison, and which limits decide nothing."""

from advisor.rules.lint import at_limits
from advisor.rules.rule_file import Rule
from tests.limits import misjudged


def rule(when, given, **changes):
    form = {
        "id": "a",
        "title": "A",
        "params": {"limit": "20 %"},
        "when": when,
        "severity": {"low": True},
        "says": "it does",
        "why": "because",
        "fixes": [{"for": "any", "do": "less"}],
        "references": [{"own choice": "x"}],
        "cases": [{"one": {**given, "fires": "low"}}],
    }
    return Rule.model_validate(form | changes)


def answers(of, metric):
    cases, idle = at_limits(of)
    return [(case.values[metric], case.answer) for case in cases], [limit for _, limit in idle]


FIRES, SILENT = ("fired", "low", False, 0.0), ("passed", None, False, 0.0)


def test_a_metric_stands_at_its_limit_and_on_either_side():
    cases, idle = answers(rule("memcpy_share >= limit", {"memcpy_share": 0.5}), "memcpy_share")
    assert [answer for _, answer in cases] == [SILENT, FIRES, FIRES]
    assert [round(value, 6) for value, _ in cases] == [0.198, 0.2, 0.202]
    assert idle == []


def test_a_sum_is_solved_for_one_of_its_metrics():
    of = rule("memcpy_ms * 2 + 1 > limit * step_mean_ms", {"memcpy_ms": 30, "step_mean_ms": 100})
    cases, _ = answers(of, "memcpy_ms")
    assert [round(value, 6) for value, _ in cases] == [9.405, 9.5, 9.595]  # 2 x 9.5 + 1 = 20 % of 100
    assert [answer for _, answer in cases] == [SILENT, SILENT, FIRES]


def test_a_whole_number_moves_by_one():
    cases, _ = answers(rule("steps >= 3 AND memcpy_share > limit", {"steps": 9, "memcpy_share": 0.5}), "steps")
    assert [(value, answer) for value, answer in cases][:3] == [(2, SILENT), (3.0, FIRES), (4, FIRES)]


def test_a_limit_that_another_hides_decides_nothing():
    hidden = rule("memcpy_share > limit AND (memcpy_share > 0.1 OR steps > 5)", {"memcpy_share": 0.5, "steps": 9})
    assert "memcpy_share > 0.1" in answers(hidden, "memcpy_share")[1]


def test_a_text_is_another_one():
    fixes = [{"for": "any", "do": "less", "unless": "engine = 'vllm'"}]
    cases, _ = at_limits(rule("memcpy_share > limit", {"memcpy_share": 0.5}, fixes=fixes))
    assert [(c.values["engine"], c.answer) for c in cases if c.key == ("fixes", 0, "unless")] == [
        ("vllm", True),
        ("?", False),
    ]


def test_a_rule_with_another_limit_misjudges_its_cases():
    before = rule("memcpy_share >= limit", {"memcpy_share": 0.5})
    cases, _ = at_limits(before)
    assert misjudged(before, cases) == []
    assert misjudged(before.adjusted({"limit": 0.21}, None), cases)
    assert misjudged(before.model_copy(update={"when": "memcpy_share > limit"}), cases)
