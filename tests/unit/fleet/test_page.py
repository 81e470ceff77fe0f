"""The week drawn, and the examples of its documentation: options that exist, links that lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
from datetime import date
from pathlib import Path

import pytest
import typer

from advisor import cli
from advisor.config import Config, Fleet
from advisor.engine import check
from advisor.errors import NoRuns
from advisor.fleet.ingest import ingest, rejudge
from advisor.fleet.show import listed, pages, report_of, runs_of
from advisor.fleet.store import Store
from advisor.fleet.weekly import weekly
from advisor.model.week import JobFinding, Week, order
from advisor.options import Options
from advisor.present import document as doc
from advisor.present import document_of
from advisor.present import table_builder as columns
from advisor.present.table_builder import gpu_hours
from advisor.render import json as contract
from advisor.render import markdown
from advisor.render.registry import Request, draw
from tests.command import advisor
from tests.fleet import Here, finding_row, run_row, stored, trace

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "docs/examples").glob("fleet*"))
EVIL = "<script>alert(1)</script> | @everyone [x](http://evil)"


def page_of(week: Week, links: str | None = None) -> str:
    return draw(Request(week, links=links), "html").decode()


def comment(week: Week, **options: object) -> str:
    return markdown.render(document_of(week), **options)


def screen(week: Week, *, verbose: bool = False, width: int = 100) -> str:
    return draw(Request(week, verbose=verbose, screen={"width": width}), "terminal").decode()


def tables(week: Week) -> dict[str, doc.Table]:
    """The tables by the id of their section."""
    (article,) = document_of(week).articles
    blocks = ((section.id, block) for section in article.sections for block in section.blocks)
    return {id_: block for id_, block in blocks if isinstance(block, doc.Table)}


@pytest.fixture
def week(tmp_path):
    store = Store(str(tmp_path / "store"))
    runs = [
        run_row("a", team="vision", job="resnet", owner="ann", expected_share=0.2, high_share=0.3, low_share=0.1),
        run_row("b", team="speech", job=EVIL, verdict=EVIL),
        run_row("c", status="unreadable", reason=EVIL, path=EVIL),
        run_row("d", week="2026-W46"),
    ]
    stored(store, runs=runs, findings=[finding_row("a"), finding_row("b", "other", 0.0, 0.1, says=EVIL, title=EVIL)])
    return weekly(store, Fleet(prices={"a100": 2.0}, prices_from=EVIL))


def test_the_page_shows_text_as_text_and_links_its_runs(week):
    page = page_of(week, links="fleet-runs")
    assert "<script>alert" not in page
    assert 'href="fleet-runs/a.html"' in page
    assert "default-src &#39;none&#39;" in page
    assert '<option data-headline="2026-W47, speech: ' in page
    assert 'data-team="vision"' in page
    assert not re.search(r"(?:src|href)=.https?:", page)
    assert ".html" not in page_of(week)


def test_markdown_formats_nothing_that_comes_from_a_profile(week):
    text = comment(week, links="https://reports.example")
    assert "<script>" not in text
    assert "@everyone" not in text
    assert "(http://evil)" not in text
    assert "(<https://reports.example/a.html>)" in text
    assert "20 GPU-h" in text
    assert len(comment(week, most=1500)) <= 1500


def test_the_terminal_tells_the_rule_and_what_it_rests_on(week):
    text = screen(week, width=80)
    first = " ".join(text.partition("Week 2026")[0].split())
    assert (
        first
        == "2026-W47: fixes save 10 % (20 GPU-h, 40 USD) of the 200 GPU-h paid. First: Input-Bound (20 GPU-h in 1 job)"
    )
    assert "Fixes save: 20 GPU-h (10 %, 40 USD, 10\N{EN DASH}30 GPU-h by the intervals of all findings)" in " ".join(
        text.split()
    )
    assert "Extrapolated" in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(screen(week, verbose=True)) > len(text)


def test_small_amounts_come_in_a_unit_that_suits_them():
    shown = [gpu_hours(hours) for hours in (1235.0, 0.1, 0.05, 0.0005, 0.0)]
    assert shown == ["1,235 GPU-h", "0.1 GPU-h", "3 GPU-min", "1.8 GPU-s", "0 GPU-h"]


def test_what_no_run_is_labelled_with_is_not_called_paid(tmp_path):
    store = stored(Store(str(tmp_path / "store")), runs=[run_row("a", gpu_hours=None, expected_share=0.5)])
    text = screen(weekly(store, Fleet()))
    assert "Recorded: 0.1 GPU-h" in text
    assert "GPU-h paid" not in text


def test_the_json_is_the_value_and_its_schema_is_up_to_date(week):
    assert type(week).model_validate_json(contract.render(week)) == week
    assert json.loads(contract.render(week))["week"] == "2026-W47"
    assert (ROOT / "reports/schema/week-2.json").read_text("utf-8") == contract.schema("week")


def test_a_runs_report_out_of_the_store(tmp_path):
    trace(tmp_path / "root/a", 1)
    store = Store(str(tmp_path / "store"))
    ingest([str(tmp_path / "root")], store, Here(), today=date(2026, 11, 21))
    head, line = listed(store, None)
    assert head.split()[:4] == ["2026-W47", "Team", "Job", "GPU"]
    run_id = line.split()[0]
    assert len(run_id) == 8
    assert report_of(store, run_id).runs[0].name == "a"
    assert report_of(store, run_id[:5]).runs[0].name == "a"
    (name,) = (name for name, _ in pages(store, weekly(store, Fleet())))
    assert name.startswith(run_id)


def test_ids_are_listed_by_what_no_other_of_the_store_begins_with(tmp_path):
    store = Store(str(tmp_path / "store"))
    alike, longer = "ab" * 4 + "01" * 12, "ab" * 4 + "02" * 12
    ids = [alike, f"{alike}-1", f"{alike}-u0", longer, "cd" * 16]
    stored(store, runs=[run_row(one, job=one) for one in [*ids, "named-by-hand"]], findings=[])
    stored(store, runs=[run_row("cd" * 5 + "ee" * 11, week="2026-W40")], findings=[])
    brief = [line.split()[0] for line in listed(store, "2026-W47")][1:]
    assert brief == ["abababab0101", "abababab0101-1", "abababab0101-u0", "abababab0202", "cdcdcdcdcdcd", "named-by"]


def test_the_runs_of_one_job_as_lines_and_as_json(tmp_path):
    store = Store(str(tmp_path / "store"))
    hours = {"gpu_hours": None, "recorded_hours": 5 / 3600}
    rows = [run_row("a", job="my job", **hours), run_row("b", job="my"), run_row("c", job=None, name="my job")]
    stored(store, runs=[*rows, run_row("d", job="my job", week="2026-W40")])
    assert [line.split()[0] for line in listed(store, None, "my job")][1:] == ["a", "c"]
    assert "5 GPU-s" in list(listed(store, None, "my job"))[1]
    words = ("fleet", "runs", "--store", store.uri, "--job", "my job", "--format", "json")
    told = json.loads(advisor(*words, cwd=tmp_path).stdout)
    assert [(one["run_id"], one["week"], one["job"], one["status"]) for one in told] == [
        ("a", "2026-W47", "my job", "checked"),
        ("c", "2026-W47", "my job", "checked"),
    ]
    assert told[0]["gpu_hours"] == 5 / 3600
    with pytest.raises(NoRuns, match="no run of 2026-W47 of the job your job"):
        runs_of(store, None, "your job")


def test_a_column_without_a_word_is_left_out_but_never_the_first(tmp_path):
    rows = [run_row("a", expected_share=0.2, high_share=0.3, low_share=0.1, team=None)]
    made = weekly(stored(Store(str(tmp_path / "store")), runs=rows, findings=[finding_row("a")]), Fleet())
    heads = {id_: [head.text for head in table.heads] for id_, table in tables(made).items()}
    assert heads["teams"] == ["Team", "Paid, GPU-h", "Busy, GPU-h", "Lost, GPU-h", "Busy, %", "Saves, GPU-h", "Runs"]
    assert heads["findings"] == ["Finding", "Job", "Status", "Saves, GPU-h", "Runs"]


def test_tables_for_a_chat_have_six_columns_and_none_that_is_empty(week):
    for links in (None, "runs"):
        rows = [line for line in comment(week, links=links).splitlines() if line.startswith("| ")]
        assert rows
        assert max(line.replace("&#124;", "").count("|") - 1 for line in rows) <= 6


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize(
    "case", ["simulated-input-bound-v100", pytest.param("simulated-ranks-slow-rank-a100", marks=pytest.mark.soak)]
)
def test_the_stored_report_is_the_one_that_check_writes(tmp_path, case):
    store = Store(str(tmp_path / "store"))
    ingest([str(ROOT / "fixtures" / case)], store, Here(), today=date(2026, 11, 21))
    (run,) = report_of(store, "").runs
    (checked,) = check([str(ROOT / "fixtures" / case)], Options(today=date(2026, 11, 21))).runs
    assert run.timeline is not None
    assert run == checked


def test_a_report_without_a_drawing_lacks_what_is_drawn_and_judging_again_keeps_it(tmp_path):
    store = Store(str(tmp_path / "store"))
    ingest([str(ROOT / "fixtures/simulated-input-bound-v100")], store, Here(), today=date(2026, 11, 21))
    changed = Config.model_validate({"suppress": [{"rule": "input-bound", "reason": "known", "until": "2027-01-01"}]})
    rejudge(store, Here(), config=changed, today=date(2026, 11, 21))
    (run,) = report_of(store, "").runs
    assert run.timeline.events.track
    assert set(run.timeline.shows) <= {finding.key for finding in run.findings}
    drawing = store.collect(store.scan("drawings"))
    store.write({"drawings": drawing.clear()}, "run_id", drawing["run_id"])
    (run,) = report_of(store, "").runs
    assert run.timeline is None
    assert "kernel" not in run.metrics


# ---------------------------------------------------------------------------------------------- examples


def commands(text: str) -> list[list[str]]:
    found = re.findall(r"advisor (fleet (?:[^\n#`]|(?<=\S)#)+)", text)
    return [shlex.split(re.sub(r'"?\$\([^)]*\)"?|"?\$\w+"?', "x", line)) for line in found if "--store" in line]


@pytest.mark.parametrize("path", [*EXAMPLES, ROOT / "docs/fleet.md"], ids=lambda path: path.name)
def test_every_command_of_the_docs_has_options_that_exist(path):
    told = commands(path.read_text("utf-8"))
    assert told
    for arguments in told:
        group = typer.main.get_command(cli.app).commands["fleet"]
        command = group.commands[arguments[1]]
        command.make_context(arguments[1], arguments[2:])


def test_money_orders_the_fixes_where_there_is_a_price_and_what_is_surely_saved_where_not():
    def fix(low: float, expected: float, money: float | None) -> list[JobFinding]:
        texts = dict.fromkeys(("rule", "title", "job", "says", "fix", "run_id"), "x")
        rest = {"team": None, "owner": None, "severity": "low", "status": "new", "weeks": 1, "runs": 1, "reason": None}
        return [JobFinding(**texts, **rest, low=low, high=9.0, expected=expected, money=money)]

    wide, narrow = fix(0.0, 5.0, None), fix(3.0, 4.0, None)
    assert sorted([wide, narrow], key=order) == [narrow, wide]
    cheap, dear = fix(4.0, 6.0, 6.0), fix(3.0, 4.0, 40.0)
    assert sorted([wide, cheap, dear], key=order) == [dear, cheap, wide]


def test_a_number_of_hours_reads_the_same_in_each_table_and_every_part_of_them_has_a_column():
    hours = [columns.hours(head, [amount]) for head, amount in (("Busy", 428.0), ("Idle", 94.3), ("Unknown", 77.7))]
    of = columns.table(
        [columns.texts("Team", ["speech"]), columns.hours("Paid", [600.0]), *hours, columns.counts("Runs", [7])]
    )
    assert [cell.text for cell in of.rows[0].cells] == ["speech", "600", "428", "94.3", "77.7", "7"]
    assert min((head.rank, head.text) for head in of.heads if head.rank)[1] == "Team"
    assert sorted((head.rank, head.text) for head in of.heads if head.rank)[1][1] == "Unknown, GPU-h"
