"""What to do first in a fleet: the fixes of several jobs together, each team's for its own page."""

from __future__ import annotations

from types import SimpleNamespace

from advisor.model.week import JobFinding
from advisor.present import table_builder as columns
from advisor.present.week_tables import actions


def finding(job: str, team: str, expected: float, fix: str = "Use workers: `num_workers=4`. They load ahead."):
    return JobFinding(
        rule="input-bound",
        title="The GPU waits for data",
        job=job,
        team=team,
        owner=None,
        severity="high",
        status="new",
        weeks=1,
        runs=1,
        low=expected / 2,
        high=2 * expected,
        expected=expected,
        money=None,
        says="",
        fix=fix,
        reason=None,
        run_id=job,
    )


def rows(*findings: JobFinding):
    week = SimpleNamespace(findings=findings, prices=SimpleNamespace(currency="EUR"))
    (_, table) = actions(week).blocks
    return table


def test_one_fix_of_several_jobs_is_one_row():
    table = rows(*(finding(f"job{n}", "vision", 10.0) for n in range(5)), finding("lm", "text", 40.0, "Compile: `x`."))
    cells = [[cell.text for cell in row.cells] for row in table.rows]
    assert [row[1] for row in cells] == ["job0, job1, job2 and 2 more", "lm"]
    assert [row[3] for row in cells] == ["50", "40"]
    assert table.extra == ()  # each row is of one team


def test_a_team_has_its_part_of_a_fix_that_several_share():
    table = rows(finding("a", "vision", 30.0), finding("b", "text", 10.0))
    assert [(row.cells[1].text, row.group) for row in table.rows] == [("a and b", "vision and text")]
    assert [(row.cells[1].text, row.group) for row in table.extra] == [("a", "vision"), ("b", "text")]


def test_one_fix_with_other_code_is_the_same_and_has_the_code_of_none():
    table = rows(
        finding("a", "vision", 30.0), finding("b", "vision", 10.0, "Use workers: `num_workers=2`, of 4 cores.")
    )
    assert [(row.cells[1].text, row.cells[0].beside) for row in table.rows] == [("a and b", "→ Use workers.")]
    alike = rows(finding("a", "vision", 30.0), finding("b", "vision", 10.0))
    assert alike.rows[0].cells[0].beside == "→ Use workers: `num_workers=4`."


def test_the_hours_of_a_table_have_one_unit():
    """0.5 hours and 6 seconds beside each other: both in minutes."""
    made = columns.table([columns.hours("Paid", [0.5]), columns.ranges("Range", [1 / 600], [1 / 300])])
    assert [head.text for head in made.heads] == ["Paid, GPU-min", "Range, GPU-min"]
    assert [cell.text for cell in made.rows[0].cells] == ["30", "0.1\N{EN DASH}0.2"]
