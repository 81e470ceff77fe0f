from __future__ import annotations

import ast
import doctest
import html
import json
import pickle
from contextlib import chdir
from pathlib import Path

import pytest

import advisor
from advisor import api, engine
from advisor.errors import UsageError
from tests import comparisons, profiles
from tests.render_samples import HOSTILE, SAMPLES, hostile

TRACE = profiles.ROOT / "fixtures/simulated-input-bound-v100"


def shown(value):
    """A sample as the API returns it."""
    kind = api.Report if value.kind == "report" else api.Comparison
    return kind.model_construct(**{name: getattr(value, name) for name in type(value).model_fields})


@pytest.fixture(autouse=True)
def checked_once(monkeypatch):
    """Each recording is read once, whoever asks for it."""
    monkeypatch.setattr(
        engine, "check", lambda paths, options: profiles.check(*paths, steps=(options or advisor.Options()).steps)
    )


@pytest.fixture
def report():
    return advisor.check(TRACE)


def test_the_package_offers_what_it_says():
    assert {"check", "compare", "read", "Options", "Report", "Comparison", "AdvisorError"} <= set(advisor.__all__)
    assert [name for name in dir(advisor) if not name.startswith("__")] == sorted(advisor.__all__)
    assert all(hasattr(advisor, name) for name in advisor.__all__)


def test_one_path_is_as_good_as_a_list(report):
    assert advisor.check([str(TRACE)]) == report
    assert isinstance(report, advisor.Report)
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301 - just written


@pytest.mark.parametrize("sample", [*SAMPLES.values(), *comparisons.SAMPLES.values()])
def test_any_result_is_one_line_in_a_console(sample):
    line = repr(shown(sample))
    assert len(line) <= 250
    assert line.isprintable()


def test_printing_shows_the_one_screen(report):
    assert str(report).startswith("The main process loads its batches itself: 48 % of each step.")
    assert len(str(report).splitlines()) < 50
    assert "\x1b" not in str(report)


@pytest.mark.parametrize("name", [*HOSTILE])
def test_a_cell_loads_and_runs_nothing(name):
    cell = shown(hostile(HOSTILE[name]))._repr_html_()
    assert not [tag for tag in ("<script", "<img", "<link", "<iframe", "<a ", "<style", "url(") if tag in cell.lower()]
    assert cell.count("<div") == cell.count("</div>")


def test_a_cell_has_the_bar_what_to_do_and_how_far_to_trust_it(report):
    cell = report._repr_html_()
    assert html.escape(report.findings[0].title) in cell
    assert "Use DataLoader workers: <code>num_workers=2, persistent_workers=True</code>" in cell
    assert f"width:{100 * report.runs[0].accounting.parts[0].share:.2f}%" in cell
    assert "Trust: high, in the saving too." in cell


def test_metrics_are_read_by_name(report):
    assert report.metric("step_mean_ms") == report.runs[0].metrics["run"][0]["step_mean_ms"]
    with pytest.raises(UsageError, match="did you mean 'step_mean_ms'"):
        report.metric("step_mean")
    with pytest.raises(UsageError, match="the report has 1"):
        report.metric("step_mean_ms", run=1)


def test_a_frame_has_a_row_per_finding_and_its_columns_without_any(report):
    assert report.to_frame()["high_ms"].to_list() == [finding.saving.high_ms for finding in report.findings]
    assert shown(SAMPLES["none"]).to_frame().columns == report.to_frame().columns


def test_the_examples_of_the_docs_run():
    with chdir(profiles.ROOT):
        result = doctest.testmod(api, extraglobs={"advisor": advisor}, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 5
    assert result.failed == 0


def test_paths_of_a_comparison_may_be_paths(tmp_path: Path):
    saved = tmp_path / "report.json"
    saved.write_text(advisor.check(TRACE).model_dump_json(), "utf-8")
    assert advisor.compare(saved, saved).verdict == "same"


def test_the_notebook_runs_and_shows_what_it_did():
    """Its cells in this process: a kernel of its own would take longer to start than they take."""
    notebook = json.loads((profiles.ROOT / "docs/notebook.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    results, names = [], {}
    with chdir(profiles.ROOT):
        for cell in cells:
            *statements, last = ast.parse(cell).body
            exec(compile(ast.Module(statements, []), "cell", "exec"), names)  # noqa: S102 - our own notebook
            results.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))  # noqa: S307 - the same
    report, frame, numbers, comparison = results
    assert frame["finding"].to_list() == [finding.key for finding in report.findings]
    assert all(isinstance(number, float) for number in numbers)
    assert comparison.verdict == "faster"
    shown_cells = "".join(map(json.dumps, notebook["cells"]))
    stored = next(cell["outputs"][0] for cell in notebook["cells"] if cell["cell_type"] == "code")
    assert "".join(stored["data"]["text/html"]) == report._repr_html_()
    assert '"output_type": "error"' not in shown_cells


@pytest.mark.parametrize(
    "wrong", [{"workload": "train"}, *({"flops_per_step": flops} for flops in (-1, float("nan"), 10**400))]
)
def test_options_that_would_only_mislead_are_refused(wrong):
    with pytest.raises(UsageError, match=f"--{next(iter(wrong)).replace('_', '-')} "):
        advisor.Options(**wrong)
