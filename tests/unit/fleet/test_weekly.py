"""The week's figures, each computed by hand from a handful of rows."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer import BadParameter

from advisor import cli
from advisor.config import Fleet
from advisor.errors import NoRuns, StoreError, UsageError
from advisor.fleet import verify
from advisor.fleet.columns import expected, frame
from advisor.fleet.labels import monday_of, week_name, week_of, weeks_before
from advisor.fleet.store import Store
from advisor.fleet.weekly import weekly
from advisor.present import document as doc
from advisor.present import document_of
from advisor.present.table_builder import label
from advisor.present.week import caveats, facts, figures, linked, trend_parts
from advisor.render.registry import Request, draw
from advisor.vocabulary.severities import SEVERITIES
from tests.effort import every
from tests.fleet import WEEK, finding_row, run_row, stored, trace

LAST = "2026-W46"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def drawn(week, kind):
    return draw(Request(week), kind).decode()


def tables(week):
    """The tables by the id of their section."""
    (article,) = document_of(week).articles
    blocks = ((section.id, block) for section in article.sections for block in section.blocks)
    return {id_: block for id_, block in blocks if isinstance(block, doc.Table)}


def of(status, week):
    return [(f.job, f.rule, f.weeks) for f in week.findings if f.status == status]


def test_gpu_hours_and_money_by_hand(store):
    saves = {"low_share": 0.1, "high_share": 0.3, "expected_share": 0.2}
    stored(
        store,
        runs=[
            run_row("a", team="vision", **saves),  # 100 h: 50 busy, 10 to 30 to win
            run_row("b", team="vision", gpu_hours=None, recorded_hours=2.0, price=5.0),  # 2 h recorded, 10 USD
            run_row("c", team="speech", gpu_type="odd", busy_share=None, gpu_hours=50.0),  # no price, busy unknown
            run_row("d", status="unreadable", reason="empty", gpu_hours=7.0, recorded_hours=None),
            run_row("f", status="unprofiled", reason="no profile", gpu_hours=99.0, recorded_hours=None),
            run_row("e", status="unreadable", reason="empty", gpu_hours=None, recorded_hours=None),
        ],
        findings=[finding_row("a")],
    )
    found = weekly(
        store, Fleet(prices={"a100": 2.0, "a-100": 3.0}, prices_as_of=date(2026, 11, 1), gpu_hours_per_week=600)
    )
    total = found.total
    assert (total.runs, total.estimated, total.paid, total.priced) == (3, 1, 152.0, 2)
    assert (total.busy, total.wasted, total.unknown) == (51.0, 51.0, 50.0)
    assert total.priced_hours == 102
    assert (total.low, total.high, total.expected) == pytest.approx((10, 30, 20))
    assert (total.paid_money, total.expected_money) == pytest.approx((210, 40))
    assert [(g.name, g.hours.paid, g.hours.paid_money) for g in found.teams] == [
        ("vision", 102, 210),
        ("speech", 50, None),
    ]
    (rule,) = found.rules
    assert (rule.rule, rule.runs, rule.jobs, rule.new) == ("input-bound", 1, 1, 1)
    assert (rule.low, rule.high, rule.expected, rule.money) == pytest.approx((10, 30, 20, 40))
    assert rule.teams == ("vision",)
    assert [(r.run_id, r.expected) for r in found.runs] == [("a", pytest.approx(20))]
    coverage = found.coverage
    assert (coverage.runs, coverage.unreadable, coverage.without_gpu_hours, coverage.without_price) == (3, 2, 1, 1)
    assert (coverage.unreadable_hours, coverage.unprofiled, coverage.unprofiled_hours) == (7, 1, 99)
    assert (coverage.gpus_without_price, coverage.prices_of_no_gpu) == (("odd",), ("a-100",))
    said = " ".join([*facts(found), *caveats(found)])
    assert "Paid: 152 GPU-h (210 USD for the 102 GPU-h with a price)" in said
    assert "Busy: 34 % (51 GPU-h, 51 GPU-h lost, 50 GPU-h unknown)" in said
    assert "2 could not be read (7 GPU-h more), 1 without a profile (99 GPU-h more)" in said
    assert "Coverage of 258 GPU-h: 102 GPU-h (40 %) profiled, with known use of the GPUs, 50 GPU-h (19 %)" in said
    assert "No run of this week is on a-100" in said
    assert coverage.profiled_share == 0.25
    assert [(u.why, u.runs) for u in coverage.reasons] == [("empty", 2), ("no profile", 1)]


@pytest.mark.parametrize("hours", every(2, [1e308, float("inf"), float("nan"), -1.0]))
def test_hours_that_no_label_may_have_leave_the_other_runs(store, hours):
    """They count as unknown: the run has those of its recorded steps, which the report says."""
    stored(store, runs=[run_row("a"), run_row("b", gpu_hours=hours, price=hours, step_ms=hours)])
    week = weekly(store, Fleet())
    assert (week.total.paid, week.coverage.without_gpu_hours) == (100.1, 1)
    assert drawn(week, "json")


def test_new_persisting_suppressed_and_fixed(store):
    stored(
        store,
        runs=[
            *(run_row(f"{week}-{job}", week=week, job=job) for week in ("2026-W44", LAST) for job in ("x", "y", "z")),
            run_row("x", job="x"),
            run_row("y", job="y", passed=["input-bound"], step_ms=8.0),
            run_row("z", job="z", not_evaluable=["input-bound"]),
        ],
        findings=[
            *(finding_row(f"{week}-x", week=week) for week in ("2026-W44", LAST)),
            *(finding_row(f"{LAST}-{job}", week=LAST, tried_low_share=0.18, tried_high_share=0.22) for job in "yz"),
            finding_row("x"),
            finding_row("x", "new-rule"),
            finding_row("x", "old-rule", suppressed="known", low_share=None, high_share=None, expected_share=None),
        ],
    )
    found = weekly(store, Fleet(), WEEK)
    assert of("persisting", found) == [("x", "input-bound", 3)]
    assert of("new", found) == [("x", "new-rule", 1)]
    assert of("suppressed", found) == [("x", "old-rule", 1)]
    assert of("fixed", found) == [("y", "input-bound", 0)]  # z's is not: the rule could not be judged
    (came,) = found.realised
    assert (came.job, came.low, came.high, came.before_ms, came.after_ms) == ("y", 0.1, 0.3, 10.0, 8.0)
    assert (came.tried_low, came.tried_high) == (0.18, 0.22)
    cells = [cell.text for row in tables(found)["realised"].rows for cell in row.cells]
    assert "20 % of 10\N{EN DASH}30 %, tried 18\N{EN DASH}22 %" in cells
    assert came.realised == pytest.approx(0.2)
    assert came.hours == 100
    assert came.brought == pytest.approx(25)  # 100 hours at 8 ms would have been 125 at 10 ms
    assert came.came_true
    assert "old-rule" not in [rule.rule for rule in found.rules]


def test_what_was_tried_of_several_fixes_alone_is_no_sum(store):
    known = {"week": LAST, "tried_low_share": 0.1, "tried_high_share": 0.2}
    stored(
        store,
        runs=[run_row(f"{LAST}-x", week=LAST, job="x"), run_row("x", job="x", passed=["input-bound", "copies"])],
        findings=[finding_row(f"{LAST}-x", **known), finding_row(f"{LAST}-x", "copies", **known)],
    )
    (came,) = weekly(store, Fleet(), WEEK).realised
    assert (came.low, came.tried_low, came.tried_high) == (pytest.approx(0.2), None, None)


def test_runs_whose_gpus_did_nothing_are_named_whether_or_not_there_is_a_fix(store):
    stored(
        store,
        runs=[
            run_row("a", busy_share=0.9),  # 100 h: 10 not busy
            run_row("b", busy_share=0.2, gpu_hours=None, recorded_hours=100.0),
            run_row("c", busy_share=None),
            run_row("d", busy_share=1.0, useful_share=0.6),  # busy with communication that nothing hides
            *(run_row(f"e{number}", gpu_hours=number) for number in range(1, 5)),
        ],
        findings=[
            finding_row("b", "second", rank=2),
            finding_row("b", "top", rank=1),
            finding_row("a", "quiet", suppressed="known"),
        ],
    )
    found = weekly(store, Fleet())
    assert [(one.run_id, one.wasted, one.paid, one.first) for one in found.unused] == [
        ("b", pytest.approx(80), 100, "Top"),
        ("d", pytest.approx(40), 100, None),
        ("a", pytest.approx(10), 100, None),
        ("e4", 2, 4, None),
        ("e3", 1.5, 3, None),
    ]
    text = drawn(found, "markdown")
    assert "<summary>Most wasted GPU-hours</summary>" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| b | Top"))
    assert line == "| b | Top | 80 | 80 % | 100 | recorded steps |"
    assert "Most wasted GPU-hours" in drawn(found, "html")
    assert linked(found)[:1] == ["b"]


def test_teams_of_one_name_on_the_page_each_have_their_numbers(store):
    """A run without a team, and one whose team is an empty text."""
    stored(store, runs=[run_row("a", team=None), run_row("b", team="", gpu_hours=7.0)])
    found = weekly(store, Fleet())
    assert {group.name for group in found.teams} == {"", None}
    assert label(None) in drawn(found, "html")


def test_in_a_first_week_no_finding_is_called_new(store):
    def told():
        made = tables(weekly(store, Fleet(), WEEK))
        (row,) = made["findings"].rows
        heads = {id_: [head.text for head in table.heads] for id_, table in made.items()}
        return "New" in heads["rules"], row.cells[heads["findings"].index("Status")].text

    stored(store, runs=[run_row("a")], findings=[finding_row("a")])
    assert told() == (False, "first week")
    stored(store, runs=[run_row("b", job="other", week=LAST)])
    assert told() == (True, "new")


def test_a_fix_on_other_gpus_is_not_compared(store):
    stored(
        store,
        runs=[run_row("p", week=LAST, job="y"), run_row("y", job="y", gpus=4, passed=["input-bound"], step_ms=8.0)],
        findings=[finding_row("p", week=LAST)],
    )
    found = weekly(store, Fleet())
    assert found.realised == ()
    assert of("fixed", found) == []


def test_slower_faster_and_too_few_runs(store):
    def series(job, week, *times):
        return [run_row(f"{job}-{week}-{i}", job=job, week=week, step_ms=ms) for i, ms in enumerate(times)]

    steady = (10.0, 10.1, 9.9, 10.0, 10.2, 9.8)
    stored(
        store,
        runs=[
            *(row for job in ("slow", "fast", "same", "few") for row in series(job, LAST, *steady)),
            *series("slow", "2026-W41", 99, 99, 99, 99, 99, 99, 99),  # more than four weeks ago
            *series("slow", WEEK, *(1.2 * ms for ms in steady)),
            *series("fast", WEEK, *(0.8 * ms for ms in steady)),
            *series("same", WEEK, *(1.01 * ms for ms in steady)),
            *series("few", WEEK, 20.0, 20.0),
        ],
    )
    found = weekly(store, Fleet())
    (slower,) = found.regressions
    assert (slower.job, slower.runs, slower.runs_before, slower.hours) == ("slow", 6, 6, 600)
    assert (slower.before_ms, slower.after_ms, slower.ratio) == pytest.approx((10, 12, 1.2))
    assert 1.15 < slower.low <= slower.ratio <= slower.high < 1.25
    assert [(win.job, win.ratio) for win in found.wins] == [("fast", pytest.approx(0.8))]
    assert found.too_few_to_compare == 1


def test_hosts_that_are_slow_in_two_runs(store):
    workers = [
        {"week": WEEK, "recording": run, "run_id": run, "scope": "worker", "worker": rank, "device": 0, "host": host}
        for run in "abc"
        for rank, host in enumerate(("good", "bad"))
    ]
    store = stored(
        store,
        runs=[run_row(name) for name in "abc"],
        findings=[
            finding_row("a", "straggler-rank", worker=1),
            finding_row("b", "throttled-gpu", worker=1),
            finding_row("c", "straggler-rank", worker=0),
            finding_row("c", "input-bound", worker=1),
        ],
    )
    store.write({"workers": frame("workers", workers)}, "run_id", "abc")
    (host,) = weekly(store, Fleet()).repeats
    assert (host.host, host.gpu, host.named, host.runs) == ("bad", "GPU 0", 2, 3)
    assert host.rules == ("straggler-rank", "throttled-gpu")


def test_the_trend_is_weighed_with_gpu_hours(store):
    stored(
        store,
        runs=[
            run_row("a", busy_share=0.9, breakdown='{"compute": 0.9, "unknown": 0.1}', gpu_hours=300.0),
            run_row("b", busy_share=0.1, breakdown='{"compute": 0.1, "unknown": 0.9}'),
            run_row("c", week=LAST),
        ],
    )
    last, now = weekly(store, Fleet()).trend
    assert (last.week, last.paid, last.busy) == (LAST, 100, 50)
    assert (now.runs, now.paid, now.busy) == (2, 400, pytest.approx(280))
    assert {name: share for name, share in now.shares.items() if share} == pytest.approx(
        {"compute": 0.7, "unknown": 0.3}
    )


def test_what_moved_the_busy_share_adds_up_to_it(store):
    def runs(week, **busy):
        return [
            run_row(f"{week}-{job}", job=job, week=week, gpu_hours=hours, busy_share=share)
            for job, (hours, share) in busy.items()
        ]

    stored(
        store,
        runs=[
            *runs(LAST, better=(100.0, 0.4), same=(100.0, 0.6), gone=(50.0, 0.2), dark=(70.0, None)),
            *runs(WEEK, better=(100.0, 0.8), same=(200.0, 0.44), new=(100.0, 1.0)),
        ],
    )
    found = weekly(store, Fleet())
    before, now = 110 / 250, 268 / 400  # "same" is as busy as the fleet was: its growth moves nothing
    moved = {
        "better": (80 - 100 * before) / 400 - (40 - 100 * before) / 250,
        "same": 0 - (60 - 100 * before) / 250,
        "new": (100 - 100 * before) / 400,
        "gone": 0 - (10 - 50 * before) / 250,
    }
    assert {shift.job: shift.points for shift in found.shifts} == pytest.approx(moved)
    assert sum(moved.values()) == pytest.approx(now - before)
    by_job = {shift.job: shift for shift in found.shifts}
    assert (by_job["gone"].busy, by_job["gone"].hours, by_job["new"].busy_before) == (None, 0, None)
    rows = {row.cells[0].text: [cell.text for cell in row.cells[1:]] for row in tables(found)["weeks"].rows}
    assert rows["All jobs"] == ["44 %", "67 %", "250", "400", "+23.0"]
    assert rows["new"] == ["\N{EN DASH}", "100 %", "0", "100", "+14.0"]
    assert "Other jobs" not in rows  # these are all


def test_three_actions_with_owner_and_money_and_those_of_each_team(store):
    stored(
        store,
        runs=[
            run_row(name, job=name, team=name[0], owner=f"owner of {name}", gpu_hours=100.0 * n)
            for n, name in enumerate(("b1", "a1", "a2", "a3", "a4"), 1)
        ],
        findings=[finding_row(name, fix=f"Mend {name}. Then go on.") for name in ("b1", "a1", "a2", "a3", "a4")],
    )
    found = weekly(store, Fleet(prices={"a100": 2.0}))
    table = tables(found)["actions"]
    assert [head.text for head in table.heads] == [
        "Finding",
        "Job",
        "Owner",
        "Saves, GPU-h",
        "Worth, USD",
        "Range, GPU-h",
    ]
    cells = [[cell.text for cell in row.cells[1:5]] for row in table.rows]
    assert cells == [
        [name, f"owner of {name}", hours, worth]
        for name, hours, worth in (("a4", "100", "200"), ("a3", "80", "160"), ("a2", "60", "120"))
    ]
    assert [row.cells[0].beside for row in table.rows] == ["→ Mend a4.", "→ Mend a3.", "→ Mend a2."]
    assert table.rows[0].cells[0].run == "a4"
    assert [(row.group, row.cells[1].text) for row in table.extra] == [("b", "b1")]
    (article,) = document_of(found).articles
    assert [group.name for group in article.groups] == ["a", "b"]
    assert article.groups[1].headline == (
        "2026-W47, b: fixes save 0 % (0 GPU-h, 0 USD) of the 100 GPU-h paid. First: Input-Bound (20 GPU-h in 1 job)"
    )
    page = drawn(found, "html")
    assert page.count("data-extra hidden") == 1
    assert "Mend b1." not in drawn(found, "terminal")


def test_savings_by_finding_add_up(store):
    stored(
        store,
        runs=[run_row("a", job="a"), run_row("b", job="b")],
        findings=[finding_row("a"), finding_row("b", low=0.0, high=0.5), finding_row("a", "other", 0.1, 0.1)],
    )
    every, *rules = tables(weekly(store, Fleet()))["rules"].rows
    assert [cell.text for cell in every.cells][:3] == ["All findings", "55", "20\N{EN DASH}90"]
    assert [row.cells[1].text for row in rules] == ["45", "10"]
    assert every.tone == "strong"


def test_amounts_of_any_runs_agree_with_each_other(store):
    """What is expected lies inside its interval, and no run loses less than its fixes save."""
    draw = random.Random(0)  # noqa: S311 - seeded runs need no cryptography
    runs, findings = [], []
    for number in range(40):
        name, savings = f"r{number}", []
        for rule in ("a", "b")[: draw.randrange(3)]:
            low, high = sorted(draw.uniform(0, 0.5) for _ in range(2))
            confidence = draw.choice(SEVERITIES)
            due = expected(Mock(saving=Mock(low_share=low, high_share=high), confidence=confidence))
            savings.append((low, high, due))
            findings.append(finding_row(name, rule, low, high, expected_share=due, confidence=confidence))
        sums = [min(1.0, sum(column)) for column in zip(*savings, strict=True)] or [0.0] * 3
        shares = dict(zip(("low_share", "high_share", "expected_share"), sums, strict=True))
        known = {"job": draw.choice("xyz"), "team": draw.choice("tu"), "gpu_hours": draw.uniform(1, 100)}
        busy = draw.choice([None, draw.random()])
        runs.append(run_row(name, busy_share=busy, useful_share=busy and busy * draw.random(), **known, **shares))
    found = weekly(stored(store, runs=runs, findings=findings), Fleet())
    hours = [found.total, *(group.hours for of in (found.teams, found.models, found.gpu_types) for group in of)]
    for amount in [*hours, *found.findings, *found.rules]:
        assert amount.low <= amount.expected + 1e-9 <= amount.high + 2e-9
    assert sum(finding.expected for finding in found.findings) == pytest.approx(sum(r.expected for r in found.rules))
    saved = {run.run_id: run.expected for run in found.runs}
    assert all(run.wasted >= saved.get(run.run_id, 0.0) - 1e-9 for run in found.unused)


def test_every_number_of_the_hours_has_the_same_whole(store):
    stored(
        store,
        runs=[
            run_row("a", team="x", busy_share=0.6, breakdown='{"compute": 0.4, "collective": 0.2, "input": 0.3}'),
            run_row("b", team="x", busy_share=None, gpu_hours=50.0, breakdown='{"host_busy": 1.0}'),
            run_row("c", team="y", busy_share=0.2, gpu_hours=50.0, breakdown=None),
        ],
    )
    found = weekly(store, Fleet())
    (now,) = found.trend
    for hours in (found.total, now, *(group.hours for group in (*found.teams, *found.models, *found.gpu_types))):
        assert hours.busy + hours.wasted + hours.unknown == pytest.approx(hours.paid)
    assert (now.busy, now.wasted, now.unknown) == (found.total.busy, found.total.wasted, found.total.unknown)
    told = dict(trend_parts(now))
    assert told == pytest.approx(
        {"compute": 0.2, "collective": 0.1, "input": 0.15, "unknown": 0.3, "could not tell": 0.25}
    )
    tiles = {figure.name: figure for figure in figures(found.total, found, all_teams=True)}
    assert (tiles["Busy"].value, tiles["Busy"].beside) == ("35 %", "70 GPU-h, 80 GPU-h lost, 50 GPU-h unknown")
    every, *_ = tables(found)["teams"].rows
    assert [cell.text for cell in every.cells][:5] == ["All", "200", "70", "80", "50"]


def test_a_run_without_gpus_is_not_said_to_lack_a_label(store):
    stored(store, runs=[run_row("a", gpu_type=None, model=None)])
    first = {id_: table.rows[0].cells[0].text for id_, table in tables(weekly(store, Fleet())).items() if table.rows}
    assert (first["gpus"], first["models"]) == ("none or unknown", "(no label)")


def test_no_line_is_dropped_in_silence(store):
    rules = [f"rule-{number}" for number in range(30)]
    stored(
        store,
        runs=[run_row(f"r{n}", team=f"t{n}", not_evaluable=[f"u{m}" for m in range(50)]) for n in range(45)],
        findings=[finding_row("r0", rule) for rule in rules],
    )
    found = weekly(store, Fleet())
    made = tables(found)
    assert (len(made["rules"].rows), len(made["unknown"].rows)) == (31, 50)  # one is the sum
    assert (len(made["teams"].rows), made["teams"].left_out) == (41, 5)
    text = drawn(found, "markdown")
    assert [text.count(f"and {rest} more") for rest in (23, 22, 42, 38)] == [1] * 4  # rules, findings, untold, teams
    page = drawn(found, "html")
    assert "<summary>22 more</summary>" in page
    assert "<summary>42 more</summary>" in page
    assert "and 5 more" in page


def test_runs_judged_by_other_rules_than_now_are_said_first(store):
    stored(store, runs=[run_row("a"), run_row("b", rule_set="r2")])
    assert weekly(store, Fleet()).coverage.stale is None
    found = weekly(store, Fleet(), rules="r2")
    assert found.coverage.stale == 1
    for text in (drawn(found, "terminal"), drawn(found, "markdown"), drawn(found, "html")):
        assert "1 of 2 runs were judged by other rules or suppressions than those of now" in " ".join(text.split())
    assert weekly(store, Fleet(), rules="r1").coverage.stale == 1


def test_rows_of_a_write_that_was_cut_off_are_no_report(store, monkeypatch):
    """They may be the rows of runs that an older table of runs does not have."""
    monkeypatch.setattr(verify, "_MOMENT_S", 0.0)
    stored(store, findings=[finding_row("lost")], runs=[run_row("a")])
    with pytest.raises(StoreError, match="findings: rows of 1 run that the table of runs does not have"):
        weekly(store, Fleet())


def test_a_week_of_bad_runs_only(store):
    stored(store, runs=[run_row("a", status="unreadable", reason="empty"), run_row("b", week=LAST)])
    found = weekly(store, Fleet())
    assert (found.total.runs, found.total.paid, found.total.busy, found.total.paid_money) == (0, 0, None, None)
    assert (found.coverage.unreadable, found.rules) == (1, ())
    assert "no run could be read" in drawn(found, "terminal")


def test_weeks():
    assert week_of(monday_of("2026-W01")) == "2026-W01"
    assert monday_of("2026-W01").date() == date(2025, 12, 29)
    assert weeks_before("2026-W02", 3) == ["2025-W51", "2025-W52", "2026-W01"]
    for wrong in ("2026-47", "2026-W60", "2025-W53", "W47", "0001-W01"):
        with pytest.raises(UsageError, match="no ISO week"):
            monday_of(wrong)


def test_the_week_that_ended_last():
    monday, sunday = (datetime(2026, 11, day, 7, tzinfo=UTC) for day in (16, 22))
    assert week_name("last", monday) == LAST
    assert week_name("last", sunday) == LAST
    assert week_name(WEEK) == WEEK
    assert week_name(None) is None
    with pytest.raises(UsageError, match="or last"):
        week_name("next")


def test_a_week_without_runs(store):
    with pytest.raises(NoRuns, match="any week"):
        weekly(store, Fleet())
    stored(store, runs=[run_row("a")])
    with pytest.raises(NoRuns, match="it holds 2026-W47 to 2026-W47"):
        weekly(store, Fleet(), "2026-W40")


def largest(store):
    return max(file.stat().st_size for file in Path(store.uri).glob("drawings/_delta_log/*.json"))


def test_prune_forgets_older_weeks_and_compact_keeps_all_rows(store):
    stored(store, runs=[run_row("a", week=LAST), run_row("b"), run_row("c")], findings=[finding_row("a", week=LAST)])
    for run in "abc":
        store.write({"drawings": frame("drawings", [run_row(run, drawing="x" * 10**6)])}, "run_id", run)
    assert largest(store) < 10_000
    assert store.compact()["runs"][0] == 2
    assert largest(store) < 10_000  # the log holds no report, not even as the largest value of a column
    assert store.prune(WEEK) == 1
    assert store.weeks() == [WEEK]
    assert store.collect(store.scan("findings")).height == 0
    assert store.collect(store.scan("runs")).height == 2


def parquet(store):
    return sorted(Path(store.uri).glob("runs/week=*/*.parquet"))


def test_compact_removes_what_was_replaced_long_ago(store):
    for number in range(4):
        stored(store, runs=[run_row("a", step_ms=float(number))])
    first = store.compact()["runs"]
    assert first == (1, 3)
    assert len(parquet(store)) == 4
    orphan = parquet(store)[0].with_name("left-by-a-killed-writer.parquet")
    orphan.write_bytes(b"half")
    store.compact()
    assert orphan.exists()  # its writer may be at work
    stored(store, runs=[run_row("b", week=LAST)])
    done = store.compact(keep_days=0)["runs"]
    assert done == (2, 0)
    assert len(parquet(store)) == 2
    assert store.collect(store.scan("runs")).height == 2


def test_compact_touches_nothing_that_a_link_leads_to(store, tmp_path):
    stored(store, runs=[run_row("a")])
    (tmp_path / "else").mkdir()
    (tmp_path / "else/precious.parquet").write_bytes(b"half")
    Path(store.uri, "runs/week=2020-W01").symlink_to(tmp_path / "else")
    with pytest.raises(StoreError, match="week=2020-W01 is a link, and compacting clears what it leads to"):
        store.compact(keep_days=0)
    assert (tmp_path / "else/precious.parquet").exists()


@pytest.fixture
def advisor(store, capsys, monkeypatch, tmp_path):
    """Runs a command on the store and gives its output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(command, *words):
        cli.app(["fleet", command, *words, "--store", store.uri], standalone_mode=False)
        return capsys.readouterr()

    return run


def test_prune_says_what_it_would_do_and_keeps_the_last_week_unless_told(store, advisor):
    stored(store, runs=[run_row("a", week=LAST), run_row("b"), run_row("c")])
    assert advisor("prune", "--before", WEEK, "--dry-run").out == "would forget 1 row of 1 week, 2026-W46 to 2026-W46\n"
    assert store.weeks() == [LAST, WEEK]
    with pytest.raises(UsageError, match=r"every week \(3 rows of 2 weeks.*--every-week"):
        advisor("prune", "--before", "2099-W01")
    assert store.weeks() == [LAST, WEEK]
    assert advisor("prune", "--before", "2099-W01", "--every-week").out.startswith("forgot 3 rows")
    assert store.weeks() == []


def test_a_week_that_has_not_begun_hides_no_other(store, advisor):
    """The time of a file may be wrong: the newest week is one that has begun, and a note names the run."""
    stored(store, runs=[run_row("a"), run_row("b", week="2200-W01")])
    for command in ("runs", "report"):
        said = advisor(command)
        assert said.out.startswith(WEEK)
        assert said.err.startswith("advisor: 1 run of the future, from week 2200-W01 on: /b; --week shows them")
        assert advisor(command, "--week", "2200-W01").err == ""


def test_of_weeks_that_have_not_begun_the_last_is_shown(store, advisor):
    stored(store, runs=[run_row("a", week="2199-W01"), run_row("b", week="2200-W01")])
    assert advisor("runs").out.startswith("2200-W01")


def test_compact_says_what_is_in_use_and_what_waits(store, advisor):
    for _ in range(3):
        stored(store, runs=[run_row("a")])
    said = advisor("compact").out
    assert "runs: 1 file in use; 2 replaced, which a compact removes once they are 7 days old\n" in said
    with pytest.raises(BadParameter, match="36500"):  # more days than the store can count back
        advisor("compact", "--keep", "99999999999999")


def test_compact_names_a_table_that_is_missing(store):
    stored(store, runs=[run_row("a")])
    shutil.rmtree(f"{store.uri}/reports")
    with pytest.raises(StoreError, match="the table reports is missing; restore"):
        store.compact()


def test_settings_are_those_above_the_root_or_the_store_and_are_named(store, advisor, tmp_path):
    trace(tmp_path / "runs/a", 1)
    (tmp_path / "runs/advisor.yaml").write_text("fleet: {paths: ['/(?P<team>a)$']}\n")
    said = advisor("ingest", str(tmp_path / "runs"), "--processes", "1")
    assert said.err == f"advisor: settings are those of {tmp_path / 'runs' / 'advisor.yaml'}\n"
    assert said.out == "1 recording: 0 known, 1 added (1 run); of them 0 cannot be read\n"
    assert store.collect(store.scan("runs"))["team"].to_list() == ["a"]
    (tmp_path / "advisor.yaml").write_text("fleet: {currency: EUR}\n")
    (tmp_path / "store/advisor.yaml").write_text("fleet: {currency: CHF, prices: {x: 1}}\n")
    assert '"CHF"' in advisor("report", "--format", "json").out
    (tmp_path / "store/advisor.yaml").unlink()
    assert '"EUR"' in advisor("report", "--format", "json").out


def test_a_report_after_a_suppression_says_that_it_was_not_applied_yet(advisor, tmp_path):
    trace(tmp_path / "runs/a", 1)
    advisor("ingest", str(tmp_path / "runs"), "--processes", "1")
    assert "other rules" not in advisor("report").out
    quiet = [{"rule": "low-gpu-utilisation", "reason": "known", "until": "2099-01-01"}]
    (tmp_path / "sup.yaml").write_text(json.dumps({"suppress": quiet}))
    asked = ("report", "--config", str(tmp_path / "sup.yaml"))
    assert "1 of 1 run were judged by other rules or suppressions than those of now" in " ".join(
        advisor(*asked).out.split()
    )
    advisor("rejudge", "--config", str(tmp_path / "sup.yaml"), "--processes", "1")
    assert "other rules" not in advisor(*asked).out


def test_files_of_a_report_lead_to_the_runs_and_leave_the_screen_short(store, advisor, tmp_path):
    trace(tmp_path / "runs/a", 1)
    advisor("ingest", str(tmp_path / "runs"), "--processes", "1")
    for folder in ("www", "mail"):
        (tmp_path / folder).mkdir()
    said = advisor("report", "-o", "www/fleet.html", "-o", "mail/fleet.md")
    assert len(said.out.splitlines()) <= 8
    assert "Runs: 1 (0 could not be read)" in said.out
    assert said.out.endswith("wrote www/fleet.html\nwrote mail/fleet.md\n")
    (run_id,) = store.collect(store.scan("runs"))["run_id"]
    text = (tmp_path / "mail/fleet.md").read_text("utf-8")
    assert (
        f"](<../www/fleet-runs/{run_id}.html>)"
        in text.partition("Savings by finding")[2].partition("**Findings by job**")[0]
    )
    assert f'href="fleet-runs/{run_id}.html"' in (tmp_path / "www/fleet.html").read_text("utf-8")
    assert (tmp_path / f"www/fleet-runs/{run_id}.html").is_file()
    with pytest.raises(UsageError, match="no folder nowhere"):
        advisor("report", "-o", "nowhere/fleet.html")
    assert not (tmp_path / "nowhere").exists()
