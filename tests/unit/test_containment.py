"""A bug stays where it came up: in one file, one metric or one rule, and tells nothing of what it was working on."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from advisor import cli, engine
from advisor.analysis.device.view import DeviceView
from advisor.errors import BUG_EXIT_CODE, UsageError, contained, failure
from advisor.inputs.readers import kineto
from advisor.metrics import evaluate
from advisor.model.report import Report
from advisor.render.registry import Request, draw
from advisor.rules import judge
from advisor.runs import summary
from advisor.runs.files import _MOST_LINES, summed_up, unreadable
from tests.effort import every
from tests.strategies_kineto import LAUNCH, text

SECRET = "\x1b[31mtoken=hunter2"  # noqa: S105 - of nobody
WORDS = "advisor failed on it (ValueError); please report this"


def fail(*_: object, **__: object) -> NoReturn:
    raise ValueError(SECRET)


class Panic(BaseException):
    """As those of libraries in Rust: no Exception."""


def put(folder: Path, *names: str) -> list[str]:
    paths = [folder / name for name in names]
    for path in paths:
        path.write_bytes(text(*LAUNCH))
    return list(map(str, paths))


def checked(paths: list[str]) -> Report:
    report = engine.check(paths)
    assert "hunter2" not in report.model_dump_json()
    return report


def test_work_that_succeeds_gives_its_result_and_a_bug_its_kind():
    assert contained(lambda: 1, len) == 1
    assert contained(fail, failure) == WORDS

    def panic() -> NoReturn:
        raise Panic(SECRET)

    assert contained(panic, failure) == "advisor failed on it (Panic); please report this"


def test_what_was_measured_is_gone_as_soon_as_the_report_is_there(tmp_path: Path):
    gc.collect()
    gc.disable()
    try:
        before = {id(each) for each in gc.get_objects() if type(each) is DeviceView}  # of other tests
        report = engine.check(put(tmp_path, "one.pt.trace.json"))
        left = [each for each in gc.get_objects() if type(each) is DeviceView and id(each) not in before]
    finally:
        gc.enable()
    assert (len(report.runs), left) == (1, [])


@pytest.mark.parametrize("error", [UsageError, KeyboardInterrupt, SystemExit])
def test_what_is_no_bug_goes_on(error: type[BaseException]):
    def stop() -> NoReturn:
        raise error

    with pytest.raises(error):
        contained(stop, str)


def test_memory_that_runs_out_is_no_bug_to_report():
    def exhaust() -> NoReturn:
        raise MemoryError

    assert contained(exhaust, failure).startswith("there is not enough memory")


@pytest.mark.parametrize("debug", [False, True])
def test_the_traceback_shows_only_when_asked_for(
    debug: bool,  # noqa: FBT001 - drawn
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)
    if debug:
        monkeypatch.setenv("ADVISOR_DEBUG", "1")
    contained(fail, str)
    assert ("Traceback" in capsys.readouterr().err) == debug


def test_a_file_that_breaks_the_reader_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    good, bad = put(tmp_path, "a.json", "b.json")
    read = kineto.read

    def reading(stream: object, name: str, *others: object) -> object:
        return fail() if name == bad else read(stream, name, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(kineto, "read", reading)
    report = checked([good, bad])
    assert [run.source.path for run in report.runs] == [good]
    assert [(file.path, file.why) for file in report.unreadable] == [(bad, WORDS)]


def test_a_metric_that_fails_is_null_with_the_reason_and_the_rest_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (path,) = put(tmp_path, "a.json")
    whole = checked([path]).runs[0]
    lost = {"idle_share", "optimizer_share"}
    for name in lost:
        monkeypatch.setitem(evaluate.METRICS, name, replace(evaluate.METRICS[name], of=fail))
    run = checked([path]).runs[0]
    (before,), (after,) = whole.metrics["run"], run.metrics["run"]
    assert {name: value for name, value in after.items() if name not in lost} == {
        name: value for name, value in before.items() if name not in lost
    }
    assert all(after[name] is None for name in lost)
    reasons = [why for rule in run.not_evaluable for name, why in rule.missing.items() if name in lost]
    assert reasons
    assert {reason.words for reason in reasons} == {WORDS}


def test_a_table_that_fails_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (path,) = put(tmp_path, "a.json")
    monkeypatch.setitem(evaluate.TABLES, "step", fail)
    assert checked([path]).runs[0].metrics["step"] == ()


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize("part", every(3, ["verdicts", "with_words", "finding"]))
def test_a_rule_that_fails_could_not_tell(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (path,) = put(tmp_path, "a.json")
    whole = checked([path]).runs[0]
    broken = whole.findings[0].rule
    working = getattr(judge, part)

    def failing(of: object, *others: object) -> object:
        rule = getattr(of, "rule", of)
        return fail() if rule.id == broken else working(of, *others)

    monkeypatch.setattr(judge, part, failing)
    run = checked([path]).runs[0]
    assert broken not in {finding.rule for finding in run.findings}
    assert {unknown.rule: unknown.words for unknown in run.not_evaluable}[broken] == (WORDS,)
    assert outcomes(run) == outcomes(whole)


def outcomes(run: object) -> set[str]:
    """The rules that anything at all came of."""
    beneath = {s.rule for f in run.findings for s in f.symptoms}  # type: ignore[attr-defined]
    told = {of.rule for of in (*run.findings, *run.not_evaluable, *run.suppressed)}  # type: ignore[attr-defined]
    return told | beneath | {*run.passed, *run.not_applicable}  # type: ignore[attr-defined]


@pytest.mark.usefixtures("measured_once")
def test_a_run_that_cannot_be_summed_up_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    good, bad = put(tmp_path, "a.json", "b.json")
    summarise = engine.summarise
    monkeypatch.setattr(
        engine, "summarise", lambda name, path, *o: fail() if path == bad else summarise(name, path, *o)
    )
    report = checked([good, bad])
    assert [run.source.path for run in report.runs] == [good]
    assert [(file.path, file.why) for file in report.unreadable] == [(bad, WORDS)]


@pytest.mark.usefixtures("measured_once")
def test_rows_that_a_chart_cannot_be_made_of_cost_it_alone(tmp_path: Path):
    report = checked(put(tmp_path, "a.json"))
    (run,) = report.runs
    rows = {"wait": ({"waiting": 0},), "pace": ({"rank": 0},)}
    hostile = report.model_copy(update={"runs": (run.model_copy(update={"metrics": {**run.metrics, **rows}}),)})
    for kind in ("html", "terminal", "markdown", "sarif", "svg"):
        assert draw(Request(hostile), kind)


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize("part", ["_rows_of", "_track"])
def test_what_charts_need_and_cannot_be_had_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str):
    kept = summary._rows_of  # noqa: SLF001
    broken = fail if part != "_rows_of" else lambda scope, *o: fail() if scope == "op" else kept(scope, *o)
    monkeypatch.setattr(summary, part, broken)
    (run,) = checked(put(tmp_path, "a.json")).runs
    assert run.metrics["run"]
    assert run.timeline is None if part == "_track" else run.metrics["op"] == ()


def test_what_nothing_contains_ends_in_one_line_and_a_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(engine, "check", fail)
    monkeypatch.setattr("sys.argv", ["advisor", "check", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == BUG_EXIT_CODE == 70
    assert capsys.readouterr().err == f"advisor: {WORDS}\n"


def test_many_unreadable_files_are_one_line():
    lost = [unreadable(f"run{n}/rank0.json", f"damaged at byte {n:,}; copy it again") for n in range(5_000)]
    (line,) = summed_up(lost)
    assert line.path == "run0/rank0.json"
    assert line.why == "damaged at byte 0; copy it again (and 4,999 more)"
    assert len(line.others) == 4_999


def test_few_unreadable_files_keep_their_folders_and_reasons():
    lost = [unreadable(f"run{n % 2}/{n}", f"cut off at {n // 2}") for n in range(_MOST_LINES)]
    assert summed_up(lost) == lost
    alike: Mapping[str, str] = {
        file.path: file.why for file in summed_up([*lost, unreadable("run0/x", "cut off at 0")])
    }
    assert alike["run0/0"] == "cut off at 0 (and 1 more)"


def test_a_name_that_is_no_utf_8_is_read_and_shown(tmp_path: Path):
    path = str(tmp_path / "rank0\udcff.json")
    put(tmp_path, "rank0\udcff.json")
    (run,) = checked([path]).runs
    assert run.source.path == path.replace("\udcff", "\N{REPLACEMENT CHARACTER}")
