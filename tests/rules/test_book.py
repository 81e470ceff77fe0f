"""The shipped rule book: lint, and that every threshold of every rule is held by a case."""

import re
from pathlib import Path

import pytest
import yaml

import advisor
from advisor import metrics
from advisor.rules.evaluation import fixes_in_order
from advisor.rules.lint import at_limits, failures, lint
from advisor.rules.wording import PHRASES, STEP, Step, say
from advisor.system.resources import rules_folder
from advisor.vocabulary import formerly
from advisor.yamltree import Yaml
from tests import profiles
from tests.limits import misjudged

BOOK = profiles.book()
ON_GPU = {**PHRASES[True], "device": "GPU", STEP: Step("each step", 100.0, 100.0, {})}
NAMES = metrics.dtypes()


@pytest.mark.soak
def test_the_book_is_right():
    assert lint(rules_folder(), BOOK, documented=True) == []


def test_each_shared_fix_is_advised_by_several_rules():
    shared = Yaml((rules_folder() / "fixes.yaml").read_text("utf-8")).value
    texts = [(rules_folder() / f"{rule}.yaml").read_text("utf-8") for rule in BOOK]
    assert [name for name in shared if sum(f"\n- {name}\n" in text for text in texts) < 2] == []


@pytest.mark.parametrize(
    "rule", ["communication-exposed", "too-many-collectives", "idle-ranks", "gpu-oversubscribed", "data-imbalance"]
)
def test_a_program_of_no_framework_on_several_gpus_gets_no_advice_for_a_framework(rule):
    assert any(fix.framework == "cuda" and fix.when is None for fix in BOOK[rule].fixes)


def test_a_fix_says_first_what_is_to_be_done_first_and_leaves_nothing_to_fill_in_that_is_known():
    """A screen may show its first sentence alone."""
    late = re.compile(r"[.:] (?:Before that|Beforehand|First,)|<gpu>")
    texts = [(rule.id, text) for rule in BOOK.values() for fix in rule.fixes for text in (fix.do, fix.code or "")]
    assert [name for name, text in texts if late.search(text)] == []


def test_no_line_of_a_rule_is_longer_than_an_editor_shows():
    lines = (
        (path.name, number, line)
        for path in rules_folder().glob("*.yaml")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
    )
    assert [(name, number) for name, number, line in lines if len(line) > 120] == []


def test_every_rule_and_table_is_read_without_libyaml_too():
    """PyYAML alone refuses `{kernels: (?i)gemv}`, which libyaml reads: a question mark may begin a key."""
    for path in (*rules_folder().glob("*.yaml"), *Path(advisor.__file__).parent.rglob("*.yaml")):
        for _ in yaml.parse(path.read_text("utf-8"), yaml.BaseLoader):
            pass


def mutants(rule):
    """The rule with one threshold or one sign changed, by what was changed."""
    for name, value in rule.params.items():
        step = 1 if value == int(value) and abs(value) < 100 else 0.1 * value
        for other in (value - step, value + step):
            yield f"{name}={other:g}", rule.adjusted({name: other}, None)
    when = rule.texts["when"]
    for at in re.finditer(r">=|<=|>|<", when):
        flipped = {">=": ">", ">": ">=", "<=": "<", "<": "<="}[at[0]]
        text = when[: at.start()] + flipped + when[at.end() :]
        yield text, rule.model_copy(update={"when": text})


@pytest.mark.parametrize("rule", BOOK.values(), ids=BOOK)
def test_each_changed_threshold_breaks_a_case(rule):
    cases, _ = at_limits(rule)
    assert misjudged(rule, cases) == []
    survivors = [
        change for change, mutant in mutants(rule) if not misjudged(mutant, cases) and not any(failures(mutant))
    ]
    assert survivors == [], "no case notices"


def test_every_fix_links_to_documentation_and_every_limit_has_a_source():
    for rule in BOOK.values():
        assert any(fix.link for fix in rule.fixes), rule.id
        assert rule.references, rule.id
        assert len(" ".join(rule.why.split())) > 100, rule.id


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "jax"])
@pytest.mark.parametrize(
    ("cause", "begins"),
    [
        ("checkpoint", "Save"),
        ("collective", "Record all ranks"),
        ("gc", "Keep Python's garbage"),
        ("input", "Prefetch more"),
        ("python", ("Record with stacks", "Look for what")),
        ("host", ("Record with stacks", "Look for what")),
        ("unknown", ("Record with stacks", "Look for what")),
        ("compute", "Compare the shapes"),
        ("allocator", ("Keep sizes alike", "Leave preallocation")),
    ],
)
def test_an_uneven_step_is_answered_by_its_cause_in_every_framework(framework, cause, begins):
    metrics = {"outlier_cause": cause, "peers_recorded": 0, "outlier_restart_part": 0.0, "long_lines": ""}
    metrics["python_frames_per_step"] = 0.0
    ordered = fixes_in_order(BOOK["step-outliers"], metrics)
    first = next(fix for fix in ordered if fix.framework in {framework, "any"})
    assert first.do.startswith(begins)


@pytest.mark.parametrize(
    ("size", "begins"),
    [
        (2048.0, "Copies block their thread until they end, 2 per step (2 KiB): hipMemcpyWithStream (38 µs)."),
        (None, "Copies block their thread until they end, 2 per step: hipMemcpyWithStream (38 µs)."),
    ],
)
def test_the_size_of_copies_is_left_out_where_it_is_unknown(size, begins):
    metrics = {
        "sync_copies_per_step": 2.0,
        "sync_copy_bytes_per_step": size,
        "sync_copy_cost_share": 0.1,
        "sync_copy_calls": "hipMemcpyWithStream (38 µs)",
        "sync_copy_gain_ms": 0.1,
        "pinning_cost_ms": 0.0,
        "step_mean_ms": 1.0,
    }
    assert say(BOOK["synchronous-memcpy"].says, {**metrics, **ON_GPU}).startswith(begins)


@pytest.mark.parametrize(("gain_ms", "less"), [(0.27, True), (0.28, False)])
def test_copies_that_cost_more_than_a_fix_saves_say_so(gain_ms, less):
    metrics = {
        "sync_copies_per_step": 2.0,
        "sync_copy_bytes_per_step": None,
        "sync_copy_cost_share": 0.059,
        "sync_copy_calls": "hipMemcpyWithStream (38 µs)",
        "sync_copy_gain_ms": gain_ms,
        "pinning_cost_ms": 0.0,
        "step_mean_ms": 9.3,
    }
    assert ("saves less" in say(BOOK["synchronous-memcpy"].says, {**metrics, **ON_GPU})) == less


@pytest.mark.parametrize(("told", "included"), [(1.0, False), (0.49, True), (None, True)])
def test_a_bandwidth_says_whether_waits_are_in_it(told, included):
    metrics = {
        "exposed_communication_ms": 1.9,
        "exposed_share": 0.19,
        "exposed_collectives": None,
        "overlap_room_ms": None,
        "exposed_transfer_ms": 1.9,
        "transfer_told_share": told,
        "bus_bandwidth_gbs": 64.1,
        "expected_bus_bandwidth_gbs": 211.0,
        "majority": 0.5,
    }
    assert (
        "waits for other ranks included" in say(BOOK["communication-bound"].says, {**metrics, **ON_GPU})
    ) == included


def test_something_is_left_to_advise_where_a_fix_is_made_already():
    for rule in BOOK.values():
        once = {fix.framework for fix in rule.fixes if fix.unless}
        left = {fix.framework for fix in rule.fixes if not fix.unless}
        assert "any" in left or once <= left, rule.id


@pytest.mark.parametrize(
    "rule",
    [
        *("python-bound", "eager-execution", "launch-bound", "small-kernels", "elementwise-chains"),
        "compile-in-steady-steps",
    ],
)
def test_keras_is_answered_in_its_own_terms(rule):
    def first(keras: int) -> str:
        ordered = fixes_in_order(
            BOOK[rule],
            dict.fromkeys([*NAMES, *BOOK[rule].types]) | {"keras_fit_ranges": keras, "host_eager_share": 0.9},
        )
        fix = next(fix for fix in ordered if fix.framework == "tensorflow")
        return f"{fix.do} {fix.code}"

    assert "Keras" in first(16)
    assert "Keras" not in first(0)


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
@pytest.mark.parametrize(("part", "begins"), [(0.7, "Record again"), (0.69, ("Keep Python", "Put the Python"))])
def test_where_nothing_was_recorded_between_ops_the_first_thing_is_to_record_it(framework, part, begins):
    rule = BOOK["python-bound"]
    ordered = fixes_in_order(rule, dict.fromkeys([*NAMES, *rule.types]) | {"python_unrecorded_part": part})
    assert next(fix for fix in ordered if fix.framework == framework).do.startswith(begins)


@pytest.mark.parametrize(("known", "begins"), [("RMSprop", "Update all parameters at once"), (None, "Use PyTorch's")])
def test_of_fixes_that_exclude_each_other_none_stands_whose_condition_is_unknown_beside_one_that_fits(known, begins):
    rule = BOOK["optimizer-not-fused"]
    row = dict.fromkeys([*NAMES, *rule.types]) | {"devices_used": 1, "optimizer_class": known, "optimizer_form": "loop"}
    ordered = [fix.do for fix in fixes_in_order(rule, row) if fix.do.startswith(("Use", "Update", "If"))]
    assert ordered[0].startswith(begins)
    assert known or len(ordered) == 1


def test_what_is_told_any_framework_of_uneven_steps_is_of_no_other_and_needs_no_gpu():
    told = [fix for fix in BOOK["step-outliers"].fixes if fix.framework != "pytorch"]
    assert not [fix.do for fix in told if re.search("torch|nvidia-smi", f"{fix.do} {fix.code} {fix.link}")]


def test_a_capture_saves_nothing_of_gaps_over_1_ms():
    """It is at most the gaps of up to 1 ms and the pauses between queued kernels."""
    captured = [rule.saving for rule in BOOK.values() if rule.saving and "launch_gain_ms" in rule.saving.ends[1]]
    assert [(of.of, of.then_from) for of in captured] == [("launch_gap", ("queued_idle",))] * 4


def test_an_earlier_name_leads_to_one_of_now_and_is_free():
    for names, known in ((formerly.RULES, BOOK), (formerly.METRICS, NAMES)):
        assert set(names.values()) <= known.keys()
        assert not names.keys() & known.keys()
