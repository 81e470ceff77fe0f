from __future__ import annotations

import pytest

from advisor.model.finding import Place
from advisor.present import document as doc
from advisor.present.findings import findings, spot, web_link
from tests.render_samples import INPUT_BOUND, RESNET, THIRTY_TWO_BIT, changed, saving


def only(finding: object, **fields: object) -> doc.Finding:
    (shown,) = findings(changed(RESNET, findings=(finding,), **fields)).findings
    return shown


def test_evidence_of_a_recording_without_steps_speaks_of_the_time_used():
    steps = changed(RESNET.source.steps, marked=False)
    finding = only(INPUT_BOUND, source=changed(RESNET.source, steps=steps))
    (evidence,) = (block for block in finding.reasons if isinstance(block, doc.Pairs) and block.title == "Evidence")
    assert [pair.name.split(" waiting ")[0].split(" in ")[0] for pair in evidence.pairs] == [
        "Part of the time used",
        "Time that passes",
    ]


def test_fixes_for_the_framework_of_the_run_come_first():
    of_tensorflow = only(INPUT_BOUND, source=changed(RESNET.source, framework="tensorflow"))
    assert [fix.framework for fix in of_tensorflow.fixes] == [""]
    assert [fix.framework for fix in of_tensorflow.other_fixes] == ["pytorch", "pytorch", "jax"]


@pytest.mark.parametrize("framework", [None, "a framework of tomorrow"])
def test_where_no_fix_is_for_the_framework_all_are_shown(framework: str | None):
    shown = only(INPUT_BOUND, source=changed(RESNET.source, framework=framework))
    assert (len(shown.fixes), shown.other_fixes) == (4, ())


def test_a_fix_says_how_results_change_and_what_excludes_it():
    first, second, *_ = INPUT_BOUND.fixes
    way = {"framework": "pytorch", "choice": "this or that"}
    chosen = (changed(first, **way, numerics="sums are in another order"), changed(second, **way))
    texts = [fix.do for fix in only(changed(INPUT_BOUND, fixes=chosen)).fixes]
    assert texts[0].endswith(" This changes results: sums are in another order. Choose one: this or that.")
    assert "Choose" not in texts[1]
    (alone,) = only(changed(INPUT_BOUND, fixes=chosen[:1])).fixes
    assert "Choose" not in alone.do


AMOUNTS = ("17 ms", "3.1 ms", "2.3 ms", "0.9 ms", "0.4 ms")


def method(finding: object) -> str:
    return next(b.text for b in only(finding).reasons if isinstance(b, doc.Text) and b.label == "The saving")


def test_a_saving_says_what_other_findings_count_of_it():
    won = saving(0.1, 0.36, "memcpy", "High end: all copy time.")
    shared = changed(INPUT_BOUND, saving=changed(won, shared_ms=1.55))
    assert "High end: all copy time. The saving leaves out 1.6 ms that other findings count." in method(shared)
    assert "other findings" not in method(changed(INPUT_BOUND, saving=changed(won, shared_ms=0.005)))


def test_a_saving_of_several_parts_names_them():
    """One that is under a fiftieth of the saving is left out."""
    parts = {"input": 17.4, "outliers": 0.9, "host_ops": 3.1, "host_work": 2.3, "gc_idle": 0.4}
    several = changed(saving(0, 24.1, "input", "m"), parts=parts)
    words = method(changed(INPUT_BOUND, saving=several))
    assert [f"(up to {most})" in words for most in AMOUNTS] == [True] * 4 + [False]
    two = changed(several, parts={"input": 23.1, "gc_idle": 0.5})
    assert "(up to 0.5 ms). m" in method(changed(INPUT_BOUND, saving=two))
    alone = changed(several, parts={"input": 23.2, "gc_idle": 0.4})
    assert "up to" not in method(changed(INPUT_BOUND, saving=alone))


def test_confidence_is_that_of_a_saving():
    assert only(INPUT_BOUND).beside[0] == f"{INPUT_BOUND.confidence} confidence"
    assert not any("confidence" in word for word in only(changed(INPUT_BOUND, saving=None)).beside)


def test_spots_name_step_and_time():
    place = Place(
        table="host_ops", name="x", worker=3, device=None, step=None, start_ns=99, at_ms=1234.56789, dur_ns=61_200_000
    )
    assert spot(place, RESNET.source) == "process 3: 61 ms at 1,234.568 ms"
    assert spot(THIRTY_TWO_BIT.where[0], RESNET.source) == "step 9, device 0: 1.8 ms at 402.100 ms"


def test_places_of_one_name_and_stack_stand_together_three_at_most():
    place = changed(INPUT_BOUND.where[0], op="aten::mm")
    stacked = changed(place, stack="torch/nn/modules/module.py(1): _call_impl;train.py(7): forward")
    blocks = only(changed(INPUT_BOUND, where=(place, stacked, *[place] * 4))).reasons
    pairs = [block for block in blocks if isinstance(block, doc.Pairs) and "aten::mm" in block.pairs[0].text]
    assert [block.title for block in pairs] == ["Where to look", ""]
    assert pairs[0].pairs[0].text.endswith("; 2 more")
    assert [block.text for block in blocks if isinstance(block, doc.Code)] == ["train.py(7): forward"]


@pytest.mark.parametrize("link", ["https://docs.pytorch.org/a_b.html#c-d", "http://x.example/?a=1&b=2"])
def test_web_addresses_are_links(link: str):
    assert web_link(link) == link


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "javascript:alert(1)", "https://", "https://a b", "https://a\n", 'https://a"b', "https://a>b"),
        *("https://a)b", " https://a", "file:///etc/passwd", "https://\N{CYRILLIC SMALL LETTER A}.example"),
    ],
)
def test_anything_else_is_none(text: str | None):
    assert web_link(text) is None
