from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.clause import Missing
from advisor.model.finding import Finding, NotEvaluable, Reach, Saving
from advisor.model.reason import Reason
from advisor.model.report import Accounting
from advisor.model.source import Steps
from advisor.runs.accounting import account
from advisor.vocabulary.parts import PARTS, POOLS
from tests.render_samples import INPUT_BOUND, changed

STEPS = Steps(marked=True, count=9, used=8, step_ms=100.0, step_mean_ms=100.0, left_out=(), worker=0)
ROWS = [{"part": "compute", "share": 0.5}, {"part": "memcpy", "share": 0.3}, {"part": "host_busy", "share": 0.2}]


def finding(rule: str, of: str | None = None, told_of: int = 0, loss: str | None = None, **parts: float) -> Finding:
    """A finding that claims these ms of these pools."""
    high = sum(parts.values())
    saving = (
        Saving(low_ms=0, high_ms=high, low_share=0, high_share=min(1, high / 100), of=of, method="m", parts=parts)
        if of
        else None
    )
    reach = Reach(workers=(told_of,), steps=(), told_of=told_of)
    return changed(INPUT_BOUND, rule=rule, saving=saving, scope=reach, loss=loss)


def known(
    *findings: Finding, unjudged: tuple[NotEvaluable, ...] = (), rows: list[dict[str, object]] = ROWS
) -> Accounting:
    found = account(rows, STEPS, findings, unjudged)
    assert found
    return found


def test_each_part_has_the_findings_that_save_of_it():
    parts = {part.part: part for part in known(finding("a", "memcpy", memcpy=10, host_busy=5), finding("b")).parts}
    assert {code: (part.ms, part.findings, part.saved_ms, part.is_explained) for code, part in parts.items()} == {
        "compute": (50, (), 0, False),
        "memcpy": (30, ("a",), 10, True),
        "host_busy": (20, ("a",), 5, False),  # it is about the copies, and takes less than half of this
    }


def test_lines_that_only_some_steps_run_explain_what_long_steps_add():
    steps = changed(STEPS, unprofiled_ms=90.0, unprofiled_whole_ms=100.0)
    lines = {"part": "long_steps", "share": 0.0, "lines": "train.py:12 `torch.save(...)` (20 %)"}
    for rows, is_explained in ((ROWS, False), ([*ROWS, lines], True)):
        of = account(rows, steps, (), ())
        assert of
        times = {part.part: (part.ms, part.is_explained) for part in of.parts}
        assert times["compute"] == (pytest.approx(45), False)
        assert times["long_steps"] == (pytest.approx(10), is_explained)
        assert sum(part.ms for part in of.parts) == pytest.approx(of.step_ms)


@pytest.mark.parametrize("lines", [[], [{"name": "train.py:9", "share": 0.15}]])
def test_a_large_loss_needs_a_finding_though_its_lines_are_known(lines: list[dict[str, object]]):
    for share, is_explained in ((0.19, True), (0.2, False)):
        lost = {"part": "between", "share": share, "lines": lines}
        of = known(rows=[{"part": "operators", "share": 1 - share}, lost])
        assert [part.is_explained for part in of.losses] == [is_explained]


def test_the_accounting_of_a_timed_step_has_the_shares_without_the_profiler():
    rows = [{**row, "unprofiled_share": share} for row, share in zip(ROWS, (0.9, 0.0, 0.1), strict=False)]
    of = account(rows, changed(STEPS, unprofiled_ms=80.0), (), ())
    assert of
    assert [(part.part, part.ms) for part in of.parts] == [
        (rows[0]["part"], pytest.approx(72)),
        (rows[2]["part"], pytest.approx(8)),
    ]


def test_what_shortens_useful_work_objects_to_it():
    assert known().needed_share == 0.5
    assert known(finding("a", "compute", compute=20)).needed_share == 0.3


def test_what_the_others_wait_for_is_in_the_largest_part_of_the_latest_rank():
    """It waits for 5 ms itself; the other 15 of the 20 that fixing it saves are in its kernels."""
    rows = [{"part": "compute", "share": 0.7}, {"part": "collective", "share": 0.05}, {"part": "input", "share": 0.25}]
    made = known(finding("late", "skew", skew=20), rows=rows)
    assert {part.part: part.saved_ms for part in made.parts} == {"compute": 15, "collective": 5, "input": 0}
    assert made.needed_share == 0.55


def test_a_finding_of_another_worker_is_not_of_this_step():
    assert known(finding("a", "memcpy", told_of=3, memcpy=10)).parts[1].findings == ()


def test_a_finding_that_holds_for_this_worker_explains_its_loss_with_the_numbers_of_another():
    elsewhere = finding("a", "memcpy", told_of=3, memcpy=10)
    both = changed(elsewhere, scope=Reach(workers=(0, 3), steps=(), told_of=3))
    part = known(both).parts[1]
    assert (part.findings, part.is_explained, part.saved_ms) == (("a",), True, 0)


def test_a_finding_explains_a_loss_without_a_saving():
    rows = [{"part": "compute", "share": 0.4}, {"part": "unknown", "share": 0.6}]
    assert known(finding("holes", loss="unknown"), rows=rows).parts[1].is_explained


def test_a_finding_that_saves_next_to_nothing_of_a_loss_does_not_explain_it():
    rows = [{"part": "compute", "share": 0.4}, {"part": "memcpy", "share": 0.6}]  # 60 of 100 ms
    little, enough = (known(finding("a", "memcpy", memcpy=ms), rows=rows).parts[1] for ms in (5.9, 6.0))
    assert [part.is_explained for part in (little, enough)] == [False, True]
    assert little.findings == ("a",)


def test_an_open_loss_tells_what_kept_its_rules_from_judging():
    missing = {"x": Reason.of(Missing("no_copy_sizes")), "y": Reason.of(Missing("no_shapes"))}
    often = {"x": Reason.of(Missing("no_shapes")), "y": Reason.of(Missing("no_shapes"))}
    rules = (
        NotEvaluable(rule="a", title="A", of="memcpy", missing=missing),
        NotEvaluable(rule="b", title="B", of="memcpy", missing=often),
        NotEvaluable(rule="c", title="C", of="compute", missing={"z": Reason.of(Missing("no_stacks"))}),
    )
    assert [why.code for why in known(unjudged=rules).parts[1].reasons] == ["no_shapes", "no_copy_sizes"]


def test_a_rule_about_copies_does_not_tell_why_the_device_is_idle():
    rows = [{"part": "host_busy", "share": 0.6}, {"part": "memcpy", "share": 0.4}]
    sizes = Reason.of(Missing("no_copy_sizes"))
    copies = NotEvaluable(rule="a", title="A", of="memcpy", beyond=("host_busy",), missing={"x": sizes})
    assert [part.reasons for part in known(unjudged=(copies,), rows=rows).parts] == [(), (sizes,)]


def test_a_reason_with_a_share_of_the_time_goes_first_and_rules_about_work_tell_nothing_of_a_loss():
    rows = [{"part": "between", "share": 0.6}, {"part": "operators", "share": 0.4}]
    silent, stacks, shapes = (Reason.of(Missing(code)) for code in ("silent_host", "no_stacks", "no_shapes"))
    silent = changed(silent, facts={"share": 0.5})
    rules = (
        NotEvaluable(rule="a", title="A", of="launch_gap", beyond=("host_work",), missing={"x": stacks}),
        NotEvaluable(rule="b", title="B", of="launch_gap", beyond=("host_work",), missing={"x": silent}),
        NotEvaluable(rule="c", title="C", of="compute", beyond=("host_ops", "host_work"), missing={"x": shapes}),
    )
    assert known(unjudged=rules, rows=rows).parts[0].reasons == (silent, stacks)


def test_what_shortens_the_ops_of_a_cpu_explains_no_time_outside_of_them():
    rows = [{"part": "between", "share": 0.2}, {"part": "operators", "share": 0.8}]
    between, operators = known(finding("a", "host_ops", host_ops=30), rows=rows).parts
    assert (between.is_explained, between.saved_ms, operators.saved_ms) == (False, 0, 30)


def test_without_time_there_is_nothing_to_account_for():
    assert account((), STEPS, (), ()) is None
    assert account(ROWS, changed(STEPS, step_mean_ms=None), (), ()) is None


def test_what_long_steps_add_is_a_part_of_the_mean_step():
    """100 ms a usual step, 125 ms with the uneven ones, which a finding shortens by 20."""
    whole = account(ROWS, changed(STEPS, whole_mean_ms=125.0), [finding("a", "outliers", outliers=20)], ())
    assert whole
    assert whole.step_ms == 125
    assert {part.part: (part.ms, part.share) for part in whole.parts} == {
        "compute": (50, 0.4),
        "memcpy": (30, 0.24),
        "host_busy": (pytest.approx(20), pytest.approx(0.16)),
        "long_steps": (pytest.approx(25), pytest.approx(0.2)),
    }
    assert (whole.parts[-1].saved_ms, whole.parts[-1].findings) == (20, ("a",))


@given(
    st.lists(st.tuples(st.sampled_from(sorted(POOLS)), st.floats(0, 300)), max_size=8),
    st.lists(st.sampled_from(sorted(PARTS)), unique=True, min_size=1),
)
def test_what_findings_save_of_a_part_never_exceeds_it(claims: list[tuple[str, float]], codes: list[str]):
    rows = [{"part": code, "share": 1 / len(codes)} for code in codes]
    claimed = [finding(f"r{i}", pool, **{pool: ms}) for i, (pool, ms) in enumerate(claims)]
    accounting = known(*claimed, rows=rows)
    assert all(0 <= part.saved_ms <= part.ms + 1e-9 for part in accounting.parts)
    assert abs(sum(part.ms for part in accounting.parts) - 100) < 1e-9
    assert 0 <= accounting.needed_share <= 1 + 1e-9
