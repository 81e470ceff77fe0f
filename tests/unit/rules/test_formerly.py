"""A renamed rule or metric keeps its earlier name in what users wrote and in what was stored, with a note."""

import datetime as dt
import re

import polars as pl
import pytest

from advisor.config import load
from advisor.engine import check
from advisor.errors import UsageError
from advisor.fleet import columns
from advisor.fleet.columns import Context, as_checked, of_now
from advisor.model.clause import Missing
from advisor.model.reason import Reason
from advisor.model.report import Report
from advisor.options import Options
from advisor.render import json
from advisor.rules import user_config
from advisor.rules.lint import lint
from advisor.rules.rule_file import load as load_rules
from advisor.rules.user_config import replaced, rule_book, suppressions
from advisor.vocabulary import formerly
from tests.profiles import ROOT
from tests.render_samples import RESNET, report

pytestmark = pytest.mark.usefixtures("measured_once")

TODAY = dt.date(2026, 1, 1)


@pytest.fixture(autouse=True)
def book(tmp_path, monkeypatch):
    """A book in which `input-bound` is called `late-batches`, and was before; and a metric of another name."""
    folder = tmp_path / "book"
    folder.mkdir()
    for path in (ROOT / "rules").glob("*.yaml"):
        text = re.sub(r"(?<![\w-])input-bound(?![\w-])", "late-batches", path.read_text("utf-8"))
        (folder / path.name.replace("input-bound", "late-batches")).write_text(text)
    monkeypatch.setitem(formerly.RULES, "input-bound", "late-batches")
    monkeypatch.setitem(formerly.METRICS, "loader_wait_share", "input_share")
    monkeypatch.setattr(user_config, "rules_folder", lambda: folder)
    return folder


def with_settings(folder, text):
    (folder / "advisor.yaml").write_text(text)
    return load(folder / "advisor.yaml")


def words(config):
    return [note.words for note in replaced(config)]


def test_settings(tmp_path):
    config = with_settings(
        tmp_path,
        "# input-bound was too loud\noverrides:\n  input-bound: {params: {moderate: 0.33}}\n"
        "suppress:\n  - {rule: input-bound, reason: known, until: 2027-01-31}\n",
    )
    assert rule_book(config)["late-batches"].params["moderate"] == 0.33
    assert list(suppressions(config, TODAY)) == ["late-batches"]
    file = tmp_path / "advisor.yaml"
    assert words(config) == [f"{file}:3, 5: input-bound is called late-batches now; write late-batches"]
    (run,) = check([str(ROOT / "fixtures/simulated-input-bound-v100")], Options(config=config, today=TODAY)).runs
    assert [rule.rule for rule in run.suppressed] == ["late-batches"]
    assert [note.code for note in run.source.notes].count("renamed") == 1


def test_settings_that_name_a_rule_twice(tmp_path):
    text = "overrides:\n  input-bound: {severity: low}\n  late-batches: {severity: high}\n"
    with pytest.raises(UsageError, match=r"overrides\.input-bound: is called late-batches now, which stands here too"):
        with_settings(tmp_path, text)


def test_names_of_now_bring_no_note(tmp_path):
    config = with_settings(tmp_path, "overrides:\n  late-batches: {severity: low}\n")
    assert words(config) == []


def own_rule(tmp_path, book, name, **changes):
    """A user's rule made of a shipped one, which still says the earlier names."""
    text = (book / "late-batches.yaml").read_text()
    text = re.sub(r"\binput_share\b", "loader_wait_share", text)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    own = tmp_path / "own"
    own.mkdir()
    (own / f"{name}.yaml").write_text(text)
    return own, text.splitlines()


def test_a_rule_of_the_user(tmp_path, book):
    own, lines = own_rule(
        tmp_path, book, "mine", **{"\nsays:": "\nabout: {time: step_mean_ms, parts: [input-bound]}\nsays:"}
    )
    assert "loader_wait_share" in "\n".join(lines)
    assert lint(own, load_rules([book])) == []
    config = with_settings(tmp_path, "rules: [own]\n")
    rule = rule_book(config)["mine"]
    assert rule.about.parts == ("late-batches",)
    assert "loader_wait_share" not in rule.model_dump_json()
    at = next(n for n, line in enumerate(lines, start=1) if line.startswith("about"))
    spots = ", ".join(str(n) for n, line in enumerate(lines, start=1) if "loader_wait_share" in line)
    renamed = "loader_wait_share is called input_share now; write input_share"
    expected = {
        f"{own}/mine.yaml:{spots}: {renamed}",
        f"{own}/mine.yaml:{at}: input-bound is called late-batches now; write late-batches",
    }
    assert set(words(config)) == expected


@pytest.mark.soak
def test_a_rule_of_the_user_in_place_of_a_renamed_one(tmp_path, book):
    own, _ = own_rule(tmp_path, book, "input-bound", **{"title: ": "title: My "})
    assert lint(own, load_rules([book])) == []
    config = with_settings(tmp_path, "rules: [own]\n")
    assert rule_book(config)["late-batches"].title.startswith("My ")
    assert "input-bound" not in rule_book(config)
    assert f"{own}/input-bound.yaml:1: input-bound is called late-batches now; write late-batches" in words(config)
    assert "late-batches is your own rule, in place of the shipped one" in words(config)


def test_saved_and_stored_reports():
    text = json.render(report(RESNET))
    assert '"input-bound"' in text
    assert '"input_share"' in text
    old = text.replace('"input_share"', '"loader_wait_share"')
    now, before, as_bytes = (json.load_as(Report, of, "report") for of in (text, old, old.encode()))
    (run,) = before.runs
    assert {finding.rule for finding in run.findings} >= {"late-batches"}
    assert as_bytes == before == now
    stored = RESNET.model_dump_json().replace('"input_share"', '"loader_wait_share"')
    assert as_checked(stored, None) == run
    context = Context(
        frameworks={},
        used_steps={},
        reasons={"loader_wait_share": Reason.of(Missing("no_loader"))},
        notes=(),
        file_notes=(),
        places={"loader_wait_share/0": ()},
    )
    before, beside, names = columns.stored(stored, context.model_dump_json())
    assert before == run
    assert columns.as_measured(before, beside, names).reasons["input_share"].code == "no_loader"
    assert list(beside.places) == ["input_share/0"]


def test_tables_of_a_store():
    findings = of_now("findings", pl.DataFrame({"rule": ["input-bound", "launch-bound"]}))
    assert findings["rule"].to_list() == ["late-batches", "launch-bound"]
    runs = of_now("runs", pl.DataFrame({"passed": [["input-bound"]], "not_evaluable": [["launch-bound"]]}))
    assert runs["passed"].to_list() == [["late-batches"]]
    both = {"loader_wait_share": [0.5, 0.5], "input_share": [None, 0.25]}
    assert of_now("workers", pl.DataFrame(both))["input_share"].to_list() == [0.5, 0.25]
    alone = of_now("workers", pl.LazyFrame({"loader_wait_share": [0.5]}))
    assert alone.select("input_share").collect().item() == 0.5
