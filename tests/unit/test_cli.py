"""The command line as people and scripts meet it: outputs, exit codes, one-line errors."""

import errno
import gzip
import json
import os
import re
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from advisor.cli.output import error_lines, make, progress_of, write
from advisor.errors import UsageError
from advisor.text import bytes_
from tests import command
from tests.effort import every
from tests.render_samples import RESNET, changed, drawn, report

pytestmark = pytest.mark.usefixtures("measured_once")
ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures" / "simulated-input-bound-v100"
HEALTHY = ROOT / "fixtures" / "simulated-healthy-a100"


@pytest.fixture
def advisor(tmp_path):
    return partial(command.advisor, cwd=tmp_path)


@pytest.fixture
def process(tmp_path):
    """The command as a process of its own."""

    def run(*words, **options):
        line = [sys.executable, "-W", "error", "-m", "advisor", *map(str, words)]
        return subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False, **options)

    return run


@pytest.mark.soak
@pytest.mark.parametrize(
    "words",
    [
        ("check", FIXTURE, "-f", "json", "--fail-on", "low"),
        *(
            pytest.param(words, marks=pytest.mark.soak)
            for words in (("check", "nowhere"), ("check", FIXTURE, "-f", "xml"), ("--version",))
        ),
    ],
)
def test_a_process_and_a_call_say_the_same_however_many_threads_and_whatever_the_hash_seed(advisor, process, words):
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "2",
        "POLARS_MAX_THREADS": "4",
        "POLARS_ENGINE_AFFINITY": "gpu",
    }  # here one thread and another seed
    call, command = advisor(*words), process(*words, env=environment)
    assert (call.returncode, call.stdout, call.stderr) == (command.returncode, command.stdout, command.stderr)


@pytest.mark.parametrize("group", [(), ("rules",), ("metrics",), ("fleet",)])
def test_the_list_of_commands_says_each_in_a_line_of_a_narrow_terminal(advisor, group):
    listed = advisor(*group, "--help").stdout.partition("Commands:\n")[2].splitlines()
    assert listed
    assert [line for line in listed if not line.endswith(".") or line.endswith("...") or len(line) > 80] == []


@pytest.mark.parametrize("format_", every(2, ["json", "brief"]))
def test_an_error_is_json_where_json_is_asked_for(advisor, format_):
    for words in (["check", "nowhere"], ["compare", FIXTURE, "nowhere"], ["check", FIXTURE, "--steps", "x"]):
        done, plain = advisor(*words, "-f", format_), advisor(*words)
        answer = json.loads(done.stdout)
        assert (answer["kind"], answer["exit_code"]) == ("error", done.returncode)
        assert (done.returncode, done.stderr) == (plain.returncode, f"advisor: {answer['error']}\n")
        assert plain.stdout == ""


@pytest.mark.parametrize("kind", every(3, ["training", "inference", "serving", "capture", "benchmark"]))
def test_the_kind_of_work_is_what_the_option_says(advisor, kind: str):
    done = advisor("check", "-v", ROOT / "fixtures" / "torch-cpu-none", "--workload", kind)
    assert done.returncode == 0
    assert f"Workload: {kind}, because of the option" in " ".join(done.stdout.split())


def test_check_prints_the_verdict_and_exits_with_0(advisor):
    done = advisor("check", FIXTURE)
    assert done.returncode == 0
    assert "input-bound" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(("level", "code"), [("high", 1), ("low", 1), ("never", 0)])
def test_fail_on_decides_the_exit_code(advisor, level, code):
    assert advisor("check", FIXTURE, "--fail-on", level).returncode == code


def test_a_healthy_job_passes_at_the_lowest_level(advisor):
    assert advisor("check", HEALTHY, "--fail-on", "low").returncode == 0


def test_reports_are_written_by_suffix(advisor, tmp_path):
    done = advisor("check", FIXTURE, "-o", "r.html", "-o", "r.json", "-o", "r.md", "-o", "r.txt")
    assert done.returncode == 0
    assert (tmp_path / "r.html").read_text().lstrip().lower().startswith("<!doctype html>")
    assert json.loads((tmp_path / "r.json").read_text())["schema_version"] == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "r.json", "r.md", "r.txt"]


def test_a_picture_of_the_breakdown_is_written_by_suffix(advisor, tmp_path):
    assert advisor("check", FIXTURE, "-o", "b.svg", "-o", "b.png").returncode == 0
    drawn = (tmp_path / "b.svg").read_text()
    assert drawn.startswith("<svg")
    assert "kernels" in drawn
    assert "var(" not in drawn
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_sarif_is_written_by_suffix(advisor, tmp_path):
    assert advisor("check", FIXTURE, "-o", "r.sarif").returncode == 0
    assert json.loads((tmp_path / "r.sarif").read_text())["version"] == "2.1.0"


def test_an_excerpt_shows_the_finding_that_is_asked_for(advisor, tmp_path):
    done = advisor("excerpt", FIXTURE, "--finding", "input-bound", "-o", "w.json.gz")
    assert (done.returncode, done.stderr) == (0, "")
    trace = json.loads(gzip.decompress((tmp_path / "w.json.gz").read_bytes()))
    assert trace["advisor"]["finding"]
    assert any(event.get("cat") == "finding" for event in trace["traceEvents"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--finding", "nothing-such", "-o", "w.json"), "'nothing-such': no such finding in"),
        (("--finding", "input-bound", "-o", "w.txt"), "-o w.txt: a trace ends in .json or .json.gz"),
    ],
)
def test_an_excerpt_that_cannot_be_made_says_why(advisor, words, message):
    done = advisor("excerpt", FIXTURE, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_json_on_standard_output_is_the_same_twice(advisor):
    first, second = advisor("check", FIXTURE, "-f", "json"), advisor("check", FIXTURE, "-f", "json")
    assert first.stdout == second.stdout
    assert json.loads(first.stdout)["runs"][0]["findings"]


def test_several_runs_come_in_one_report(advisor):
    done = advisor("check", FIXTURE, HEALTHY, "-f", "json")
    assert [r["name"] for r in json.loads(done.stdout)["runs"]] == [FIXTURE.name, HEALTHY.name]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["check", "nowhere"], 3, "nowhere"),
        (["check", "."], 3, "."),
        (["check", FIXTURE, "-o", "r.pdf"], 2, "-o r.pdf: unknown suffix"),
        (
            ["check", FIXTURE, "-o", "no/such/folder/r.md"],
            2,
            "-o no/such/folder/r.md: there is no folder no/such/folder; make",
        ),
        (["check", FIXTURE, "-o", f"{'r' * 300}.md"], 2, "File name too long"),
        (["record", "-o", "r" * 300, "--", "true"], 2, "File name too long"),
        (["check", "https://ann:hush@127.0.0.1:1/x?sig=hush"], 3, "https://\u2026@127.0.0.1:1/x?sig=\u2026: "),
        (["check", FIXTURE, "-f", "xml"], 2, "--format xml: not one of"),
        (["check", FIXTURE, "--fail-on", "sometimes"], 2, "--fail-on sometimes: not one of"),
        (["check", FIXTURE, "--steps", "some"], 2, "--steps some: not steady, all or A:B"),
        (["check", FIXTURE, "--steps", "٣:٣"], 2, "--steps ٣:٣: not steady, all or A:B"),
        (["check", FIXTURE, "--ranks", "sample:٣"], 2, "--ranks sample:٣: give how many to read"),
        (["check", FIXTURE, "--max-size", "٣GB"], 2, "--max-size ٣GB: not a size"),
        (["try", "--within", "٣%", "--", "true"], 2, "--within ٣%: give a share of the step"),
        (["try", "--budget", "٣m", "--", "true"], 2, "--budget ٣m: give a time"),
        (["whatif", FIXTURE, "--change", "rank:٣=0"], 2, "change rank:٣=0: "),
        (["check", FIXTURE, "--steps", "900:950"], 2, "--steps 900:950: no complete step in that range"),
        (["check", FIXTURE, "--config", "missing.yaml"], 2, "missing.yaml: cannot be read"),
        (["rules", "show", "ghost"], 2, "no rule is called 'ghost'"),
        (["kernels", "gemm\udcff"], 2, "is no UTF-8"),
        (["metrics", "show", "ghost"], 2, "no metric is called 'ghost'"),
        (["rules", "test", "nowhere"], 2, "nowhere: no such rule folder"),
        (["rules", "test", ROOT / "docs/img"], 2, "no rule in this folder"),
    ],
)
def test_an_error_is_one_line_with_the_right_exit_code(advisor, tmp_path, words, code, message):
    done = advisor(*words)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("advisor: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    every(
        3,
        [
            ["check", ".", "-o", "a.json"],
            ["compare", "a.json", "a.json", "-o", "linked.json"],
            ["excerpt", "a.json", "--finding", "single-process-data-loader", "-o", "a.json"],
        ],
    ),
    ids=lambda words: words[0],
)
def test_no_recording_is_written_over(advisor, tmp_path, words):
    recorded = gzip.decompress(next(FIXTURE.glob("*.gz")).read_bytes())
    (tmp_path / "a.json").write_bytes(recorded)
    (tmp_path / "linked.json").symlink_to("a.json")
    done = advisor(*words)
    assert (done.returncode, done.stderr) == (2, f"advisor: -o {words[-1]}: is a recording; give another name\n")
    assert (tmp_path / "a.json").read_bytes() == recorded
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "linked.json"}


def test_a_folder_that_cannot_be_made_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file/runs: cannot be made: Not a directory"):
        make(tmp_path / "file/runs")


def test_flops_without_end_are_no_flops(advisor):
    done = advisor("check", FIXTURE, "--flops-per-step", "inf")
    assert (done.returncode, "--flops-per-step inf: not from 1 to 1e+30" in done.stderr) == (2, True)


def test_overrides_and_suppressions_from_advisor_yaml(advisor, tmp_path):
    (tmp_path / "advisor.yaml").write_text(
        "suppress: [{rule: input-bound, reason: known, until: 2999-01-01}]\n", encoding="utf-8"
    )
    run = json.loads(advisor("check", FIXTURE, "-f", "json").stdout)["runs"][0]
    assert run["suppressed"][0]["rule"] == "input-bound"
    (tmp_path / "advisor.yaml").write_text("overrides: {input-bound: {params: {moderate: 0.99}}}\n")
    assert "input-bound" in json.loads(advisor("check", FIXTURE, "-f", "json").stdout)["runs"][0]["passed"]


def test_an_expired_suppression_no_longer_holds(advisor, tmp_path):
    (tmp_path / "advisor.yaml").write_text("suppress: [{rule: input-bound, reason: known, until: 2020-01-01}]\n")
    run = json.loads(advisor("check", FIXTURE, "-f", "json").stdout)["runs"][0]
    assert not run["suppressed"]
    assert "the suppression of input-bound expired on 2020-01-01 (known)" in [
        note["words"] for note in run["source"]["notes"]
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("overides: {}", "overides: no such setting"),
        ("suppress: [{rule: input-bound, until: 2027-01-01}]", "reason"),
        ("suppress: [{rule: inputbound, reason: why not, until: 2027-01-01}]", "did you mean 'input-bound'?"),
        ("rules: [nowhere]", "no such rule folder"),
        ("rules: nowhere", "rules: must be a list"),
        ("suppress: [{rule: input-bound, reason: why not, until: soon}]", "until: must be a date, as 2027-01-31"),
        ("overrides: {input-bound: {params: {moderate: much}}}", "params.moderate: must be a number"),
        (
            "overrides: {input-bound: {params: {moderat: 0.1}}}",
            "overrides.input-bound.params.moderat: no such parameter; input-bound has moderate, loader_slowdown",
        ),
        ("\noverrides:\n  nope: {}", "advisor.yaml:3: no rule is called 'nope'"),
        (
            "overrides:\n  input-bound:\n    params:\n      moderat: 0.1",
            "advisor.yaml:4: overrides.input-bound.params.moderat",
        ),
        ("suppress:\n- until: 2027-01-01\n  reason: why not\n  rule: nope", "advisor.yaml:4: no rule is called 'nope'"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_wrong_configuration_is_said(advisor, tmp_path, text, message):
    (tmp_path / "advisor.yaml").write_text(text)
    done = advisor("check", FIXTURE)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


OWN_RULE = """\
title: Copies take a large part of the step
applies: {device: true}
params:
  limit: 15 %
  low_part: 50 %, the low end of the saving, as a part of the copy time
when: memcpy_share > limit
saving: {of: memcpy, most: memcpy_ms, low: low_part, method: Between half and all of the copy time.}
says: "The GPU only copies for {{ memcpy_share | percent }} of {{ each_step }}."
why: Copies do no work.
fixes:
- {for: any, do: Keep tensors on the GPU.}
references:
- own choice: 15 % of the step
cases:
- copies: {memcpy_share: 20 %, memcpy_ms: 20, saves: [10, 20]}
"""


@pytest.mark.parametrize(
    "command", [("check", FIXTURE), pytest.param(("compare", FIXTURE, FIXTURE), marks=pytest.mark.soak)]
)
def test_ranks_to_read_are_a_sample(advisor, command):
    done = advisor(*command, "--ranks", "first:3")
    assert done.returncode == 2
    assert "--ranks first:3: give how many to read, such as sample:64" in done.stderr
    assert advisor(*command, "--ranks", "sample:3").returncode == 0


def test_a_users_rule_is_judged_with_the_others(advisor, tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "mostly-memcpy.yaml").write_text(OWN_RULE)
    (tmp_path / "advisor.yaml").write_text("rules: [ours]\n")
    assert "1 rule, 1 case: all right" in advisor("rules", "test", "ours").stdout
    assert "mostly-memcpy" in json.loads(advisor("check", FIXTURE, "-f", "json").stdout)["runs"][0]["passed"]


def test_the_cases_of_a_users_rule_are_for_rules_test(advisor, tmp_path):
    (tmp_path / "ours").mkdir()
    wrong = OWN_RULE.replace("saves: [10, 20]", "saves: [1, 2]")
    (tmp_path / "ours" / "mostly-memcpy.yaml").write_text(wrong)
    (tmp_path / "advisor.yaml").write_text("rules: [ours]\n")
    tested = advisor("rules", "test", "ours")
    assert tested.returncode == 2
    assert "saves 10.0 to 20.0 ms, not 1.0 to 2.0" in tested.stderr
    assert advisor("check", FIXTURE).returncode == 0


def test_a_rule_that_takes_the_place_of_a_shipped_one_is_said(advisor, tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "input-bound.yaml").write_text((ROOT / "rules" / "input-bound.yaml").read_text("utf-8"))
    (tmp_path / "advisor.yaml").write_text("rules: [ours]\n")
    assert "input-bound takes the place of the shipped rule" in advisor("rules", "test", "ours").stdout
    notes = json.loads(advisor("check", FIXTURE, "-f", "json").stdout)["runs"][0]["source"]["notes"]
    assert "input-bound is your own rule, in place of the shipped one" in [note["words"] for note in notes]


def test_a_lone_step_is_no_profile(advisor, tmp_path):
    event = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 9000}
    (tmp_path / "one.pt.trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    done = advisor("check", "one.pt.trace.json")
    assert done.returncode == 3
    assert "no host or device activity" in done.stderr


def test_the_version_is_told(advisor):
    assert advisor("--version").stdout.startswith("advisor 0.")


def test_a_run_of_which_little_can_be_told_does_not_pass(advisor, tmp_path):
    (whole,) = FIXTURE.glob("*.json.gz")
    (tmp_path / "cut.pt.trace.json.gz").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    for level in ("high", "never"):
        done = advisor("check", "cut.pt.trace.json.gz", "--fail-on", level)
        assert done.returncode == 3
        assert "the file is cut off, and no step" in " ".join(done.stdout.split())


def test_a_run_that_cannot_be_read_passes_no_gate_beside_a_good_one(advisor, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "rank0.pt.trace.json").write_text("")
    line = "advisor: 1 file could not be read; broken/rank0.pt.trace.json: "
    for good, level, code in ((HEALTHY, "high", 3), (FIXTURE, "high", 1), (HEALTHY, "never", 0)):
        done = advisor("check", good, "broken", "--fail-on", level)
        assert done.returncode == code
        assert "could not be read" in done.stdout
        assert done.stderr.count("\n") == (level != "never")
        assert done.stderr.startswith(line) == (level != "never")


@pytest.mark.parametrize("kind", ["json", "markdown", "html", "sarif"])
def test_what_could_not_be_read_is_said_beside_a_report_for_machines(advisor, tmp_path, kind):
    (tmp_path / "broken.pt.trace.json").write_text("")
    done = advisor("check", HEALTHY, "broken.pt.trace.json", "-f", kind)
    assert done.returncode == 0
    assert done.stderr.startswith("advisor: 1 file could not be read; broken.pt.trace.json: ")
    assert done.stderr.count("\n") == 1


def test_rules_and_metrics_are_listed_and_shown(advisor):
    assert "input-bound" in advisor("rules", "list").stdout
    assert "input_share >= moderate" in advisor("rules", "show", "input-bound").stdout
    assert "input_share" in advisor("metrics", "list").stdout
    assert "formula" in advisor("metrics", "show", "input_share").stdout
    assert "## host_bound_idle_share" in advisor("metrics", "show", "host_bound_idle").stdout


def test_the_name_of_a_kernel_does_nothing_to_a_terminal_or_a_runner(advisor):
    shown = advisor("kernels", "--", "a\x1b]8;;http://e\x07x", "\n::add-mask::x", "\N{RIGHT-TO-LEFT OVERRIDE}b").stdout
    assert not any(sign in shown for sign in ("\x1b", "\x07", "\n::", "\N{RIGHT-TO-LEFT OVERRIDE}"))


def test_a_closed_pipe_is_no_traceback(tmp_path):
    line = f"{sys.executable} -m advisor check {FIXTURE} -v | head -1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=tmp_path, check=False)  # noqa: S602
    assert "Traceback" not in done.stderr


def test_the_steps_of_a_saved_report_are_fixed(advisor):
    assert advisor("check", FIXTURE, "-o", "r.json").returncode == 0
    done = advisor("compare", "r.json", "r.json", "--steps", "3:5")
    assert done.returncode == 2
    assert "--steps 3:5: r.json is a saved report" in done.stderr
    assert advisor("compare", "r.json", "r.json").returncode == 0


def test_compare_writes_every_kind_and_fails_where_asked(advisor, tmp_path):
    names = ["c.html", "c.json", "c.md", "c.txt"]
    done = advisor("compare", FIXTURE, FIXTURE, "--strict", *(word for name in names for word in ("-o", name)))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No change")
    assert json.loads((tmp_path / "c.json").read_text())["verdict"] == "same"
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert (tmp_path / "c.md").read_text().startswith("### ")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    every(
        2,
        [
            (["--fail-on", "new-high"], 1, "hardware"),
            (["--strict"], 4, "hardware"),
            ([], 0, "hardware"),
            (["--fail-on", "nonsense"], 2, "not slower, slower:PERCENT, new-high or never"),
            (["--head", "missing"], 3, "missing"),
            (["--base", HEALTHY, "--head", FIXTURE], 0, "hardware"),
        ],
    ),
)
def test_exit_codes_of_compare(advisor, words, code, said):
    done = advisor("compare", HEALTHY, FIXTURE, *words)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_baseline_marks_what_is_new(advisor):
    advisor("check", HEALTHY, "-o", "base.json")
    done = advisor("check", FIXTURE, "--baseline", "base.json")
    assert "NEW" in done.stdout
    assert advisor("check", FIXTURE, "--baseline", "none.json").returncode == 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("suppress: [{rule: x, reason: because, until: 0000-00-00}]", "advisor.yaml:1:46: no such number or date"),
        ("rules: " + "[\n" * 3000 + "]" * 3000, "advisor.yaml:51:1: nested more than 50 levels deep"),
        ("#" * (1 << 20) + "\n", "advisor.yaml: larger than 1 MiB"),
        ("- rules", "advisor.yaml:1: must be a mapping"),
    ],
    ids=["the year 0", "nesting", "a large file", "a list"],
)
def test_settings_that_break_yaml_are_told_in_a_line(advisor, tmp_path, settings, says):
    (tmp_path / "advisor.yaml").write_text(settings)
    done = advisor("check", FIXTURE)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_links_that_lead_in_circles_and_names_that_are_none_are_told_in_a_line(advisor, tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log/self").symlink_to("self")
    for path in ("log", "log/self", "a" * 5000, "a\0b"):
        done = advisor("check", path)
        assert done.returncode in {2, 3}
        assert done.stderr.count("\n") == 1
        assert "report this" not in done.stderr


def test_a_pipe_is_written_into_and_a_link_stays_one(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe.json")
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "file").touch()
    (link := tmp_path / "link").symlink_to("file")
    for path in (pipe, link):
        write({path: b"a\n::error::b"})
    assert os.read(reading, 50) == b"a\n\\u003a:error::b"  # a runner of CI may be at its end
    assert (tmp_path / "file").read_bytes() == b"a\n::error::b"
    assert pipe.is_fifo()
    assert link.is_symlink()
    os.close(reading)


def test_what_is_no_text_goes_into_a_pipe_as_it_is(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe.png")
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write({pipe: b"\x89PNG\n::"})
    assert os.read(reading, 50) == b"\x89PNG\n::"
    os.close(reading)


def test_names_of_files_and_changes_that_are_no_text_are_told_in_json(advisor, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.symlink_to(FIXTURE)
    for words in (["compare", odd, FIXTURE, "--head", odd, "--head", odd, "-f", "json"], ["check", odd, "-f", "json"]):
        done = advisor(*words)
        assert done.returncode == 0, done.stderr
        assert f"{tmp_path}/\N{REPLACEMENT CHARACTER}" in str(json.loads(done.stdout))
    done = advisor("whatif", odd, "--change", "kernels:\udcff=2x", "--json")
    assert "kernels:\N{REPLACEMENT CHARACTER}" in str(json.loads(done.stdout))


def test_who_may_read_a_file_stays_who_may(tmp_path):
    (path := tmp_path / "r.json").touch(mode=0o600)
    write({path: b"new"})
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)


def test_a_report_that_does_not_fit_leaves_what_a_link_leads_to(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (real := tmp_path / "folder/old.html").write_text("old")
    (link := tmp_path / "r.html").symlink_to(real)
    with monkeypatch.context() as full:
        full.setattr(Path, "replace", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        with pytest.raises(UsageError, match="No space left"):
            write({link: b"new"})
    assert real.read_text() == "old"
    assert [*real.parent.iterdir()] == [real]
    write({link: b"new"})
    assert (real.read_text(), link.is_symlink()) == ("new", True)


def test_of_several_files_all_are_written_or_none(advisor, tmp_path):
    (tmp_path / "old.md").write_text("old")
    done = advisor("check", FIXTURE, "-o", "new.json", "-o", "old.md", "-o", f"{'x' * 300}.html")
    assert done.returncode == 2
    assert done.stderr == f"advisor: -o {'x' * 300}.html: cannot be written: File name too long\n"
    assert [path.name for path in tmp_path.iterdir()] == ["old.md"]
    assert (tmp_path / "old.md").read_text() == "old"


def test_a_rule_that_takes_a_text_for_a_number_is_told_in_a_line(advisor, tmp_path):
    (tmp_path / "advisor.yaml").write_text("rules: [ours]")
    (tmp_path / "ours").mkdir()
    rule = (ROOT / "rules/input-bound.yaml").read_text()
    when = re.search(r"^when: .*(?:\n .*)*", rule, re.MULTILINE)[0]
    (tmp_path / "ours/input-bound.yaml").write_text(rule.replace(when, "when: device_name > 1"))
    for words in (["rules", "test", "ours"], ["check", FIXTURE]):
        done = advisor(*words)
        assert done.returncode == 2
        assert re.fullmatch(r"advisor: \S*ours/input-bound.yaml:\d+: when: .*cannot compare string.*\n", done.stderr)


def test_the_name_of_a_rule_stays_in_its_line(advisor, tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/a\n::error::b.yaml").write_text("title: x")
    assert advisor("rules", "test", "ours").stderr.count("\n") == 1


def test_the_longest_name_can_be_written_and_no_name_leads_elsewhere(tmp_path):
    (victim := tmp_path / "victim").write_text("kept")
    (tmp_path / f".r.html.{os.getpid()}").symlink_to(victim)
    write({tmp_path / "r.html": b"report"})
    write({(long := tmp_path / f"{'r' * 250}.html"): b"report"})
    assert (victim.read_text(), (tmp_path / "r.html").is_symlink(), long.read_bytes()) == ("kept", False, b"report")


def test_a_report_below_a_file_is_refused(advisor, tmp_path):
    (tmp_path / "file").write_text("")
    done = advisor("check", FIXTURE, "-o", "file/report.html")
    assert (done.returncode, done.stderr) == (
        2,
        "advisor: -o file/report.html: there is no folder file; make it first\n",
    )


def test_what_cannot_be_written_is_told_before_the_work(advisor, tmp_path):
    program = ("--", sys.executable, "-c", "open('ran', 'w')")
    assert "there is no folder none" in advisor("try", "-o", "none/x.json", *program).stderr
    assert [*tmp_path.iterdir()] == []


def test_a_size_limits_what_is_read(advisor):
    for ranks in ("sample:0", "all", f"sample:{'9' * 5_000}"):
        assert advisor("check", FIXTURE, "--ranks", ranks).returncode == 2
    done = advisor("check", FIXTURE, "--max-size", "large")
    assert (done.returncode, done.stderr) == (2, "advisor: --max-size large: not a size; write it as 500M or 12G\n")
    assert advisor("check", FIXTURE, "--max-size", "1k").returncode == 3


def test_a_file_that_opens_and_cannot_be_read_is_no_bug(advisor):
    """As on a disk that fails."""
    for words in (("show", "/proc/self/mem"), ("compare", "/proc/self/mem", "/proc/self/mem")):
        done = advisor(*words)
        assert (done.returncode, done.stderr.count("\n")) == (3, 1)
        assert "Input/output error" in done.stderr


def test_a_saved_report_is_drawn_in_any_form(advisor, tmp_path):
    saved, page = tmp_path / "report.json", tmp_path / "page.html"
    checked = advisor("check", HEALTHY, "-o", saved)
    drawn = advisor("show", saved, "-o", page)
    assert (drawn.returncode, drawn.stdout) == (0, checked.stdout)
    assert page.read_text().startswith("<!doctype html>")
    assert advisor("show", saved, "-f", "json").stdout == saved.read_text()
    assert advisor("show", HEALTHY).returncode == 3


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_report_that_is_interrupted_leaves_nothing_beside_it(tmp_path, monkeypatch, end):
    def ended(*_):
        raise end

    monkeypatch.setattr(Path, "replace", ended)
    with pytest.raises(end):
        write({tmp_path / "report.html": b"<html>"})
    assert [*tmp_path.iterdir()] == []


def test_a_report_without_a_run_has_no_picture(advisor, tmp_path):
    (tmp_path / "none.json").write_text(drawn(report(), "json"))
    ended = advisor("show", "none.json", "-o", "none.svg")
    assert (ended.returncode, "no run to draw" in ended.stderr) == (2, True)


def test_a_number_beyond_any_is_no_report(advisor, tmp_path):
    text = drawn(report(changed(RESNET, metrics={"worker": ({"worker": 0, "step_ms": 1.5},)})), "json")
    (tmp_path / "large.json").write_text(re.sub(r'("step_ms": )1\.5', rf"\g<1>1{'0' * 400}", text))
    ended = advisor("show", "large.json")
    assert (ended.returncode, "is no report" in ended.stderr) == (3, True)


def test_a_log_says_how_much_of_all_files_is_read(monkeypatch, capsys):
    monkeypatch.setattr("time.monotonic", iter([0.0, 20.0, 60.0]).__next__)
    with progress_of("read", bytes_) as add:
        first, second = add(1 << 30), add(3 << 30)
        first(1 << 29)
        second(3 << 29)
    assert capsys.readouterr().err == "advisor: 2 GiB of 4 GiB read, about 1 min left\n"


def test_an_error_is_as_wide_as_the_terminal_with_its_command_on_a_line(monkeypatch):
    text = "advisor: x.sqlite: no GPU activity in it. Record again: `nsys profile --trace=cuda,nvtx,osrt COMMAND`"
    assert error_lines(text) == text  # a log has an error in a line
    monkeypatch.setenv("COLUMNS", "30")
    assert error_lines(text).splitlines() == [
        "advisor: x.sqlite: no GPU",
        "activity in it. Record again:",
        "  nsys profile --trace=cuda,nvtx,osrt COMMAND",
    ]
    assert error_lines("advisor: no such file, folder or bucket") == "advisor: no such file, folder\nor bucket"
