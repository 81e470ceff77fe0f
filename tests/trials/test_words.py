"""What a reader of trials sees, in every medium; what the command line takes."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from advisor.cli import app
from advisor.errors import ReadError, UsageError
from advisor.model.reason import Reason
from advisor.model.trials import Claim, Gain, Trial, Trials, Use
from advisor.present.trials import document, headline, saved
from advisor.render.json import load_as
from advisor.render.registry import Request, draw
from advisor.trials import ideas, processes
from advisor.trials.processes import Ended
from advisor.trials.session import Session, program_name
from tests.command import advisor
from tests.effort import every

FUSED = Use(patch="optimizer", arguments={"implementation": "fused"}, numerics="rounding")
GAIN = Gain(ratio=0.895, low=0.88, high=0.909, pairs=24, spread=0.02)
FASTER = Trial(
    name="optimizer-not-fused",
    rule="optimizer-not-fused",
    uses=(FUSED,),
    claimed=Claim(low_share=0.05, high_share=0.2),
    result="faster",
    gain=GAIN,
    before_ms=12.4,
    after_ms=11.1,
    by="blocks",
    training="rounding",
)
SLOWER = Trial(
    name="autocast",
    uses=(Use(patch="autocast", arguments={"dtype": "bfloat16"}, numerics="changes"),),
    result="slower",
    gain=Gain(ratio=2.0, low=1.9, high=2.1, pairs=12),
    before_ms=10.0,
    after_ms=20.0,
    training="different",
)
REFUSED = Trial(
    name="dataloader",
    uses=(Use(patch="dataloader", arguments={"num_workers": 4}, numerics="changes"),),
    result="not_applied",
    reasons=(Reason(code="patch_no_loader", words="the program makes no <b>DataLoader</b>"),),
)
TRIALS = Trials(
    advisor_version="1",
    program="train.py",
    step_ms=12.4,
    within=0.05,
    trials=(FASTER, SLOWER, REFUSED),
    untried=("python-bound",),
    seconds=90.0,
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "is no JSON"),
        ('{"kind": "week"}', "is a saved week, not a report of trials"),
        ('{"kind": "trials", "schema_version": 9}', "is a report of trials of version 9, and this advisor reads"),
    ],
)
def test_what_are_no_trials_is_refused_on_one_line(text: str, problem: str):
    with pytest.raises(ReadError, match=f"t.json: {problem}") as refused:
        load_as(Trials, text, "t.json")
    assert "\n" not in str(refused.value)
    assert load_as(Trials, draw(Request(TRIALS), "json"), "t.json") == TRIALS


def shown(kind: str) -> str:
    return " ".join(draw(Request(TRIALS), kind).decode().split())


def test_the_gain_is_a_change_with_its_interval():
    assert saved(GAIN) == "\N{MINUS SIGN}10.5 % (95 % interval: \N{MINUS SIGN}12.0 to \N{MINUS SIGN}9.1 %)"
    assert headline(TRIALS).startswith("optimizer (implementation=fused): 12 → 11 ms a step, \N{MINUS SIGN}10.5 %")


def test_claimed_and_measured_stand_side_by_side():
    for kind in ("terminal", "markdown", "html"):
        text = shown(kind)
        claimed, measured = "\N{MINUS SIGN}20.0 to \N{MINUS SIGN}5.0 %", "(\N{MINUS SIGN}12.0 to \N{MINUS SIGN}9.1 %)"
        assert 0 < text.index(claimed) < text.index(f"\N{MINUS SIGN}10.5 % {measured}"), kind
        assert "the same up to rounding" in text


def test_an_interval_around_nothing_begins_with_what_is_saved():
    around = GAIN.model_copy(update={"ratio": 1.0, "low": 0.846, "high": 1.155})
    assert saved(around) == "+0.0 % (95 % interval: \N{MINUS SIGN}15.4 to +15.5 %)"


def test_a_step_that_other_load_made_longer_at_times_is_no_single_number():
    assert "12 ms per step as it is" in shown("terminal")
    later = SLOWER.model_copy(update={"before_ms": 21.3})
    (article,) = document(TRIALS.model_copy(update={"trials": (later,)})).articles
    assert (
        article.facts[0] == "12\N{EN DASH}21 ms per step as it is, from run to run: each row compares steps of one time"
    )


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (
            Ended(-15, (), "", 90.0, is_late=True),
            "no step ended in the 90 s of the run; give more time with `--budget`",
        ),
        (
            Ended(-9, (), "", 90.0, is_late=True),
            "no step ended in the 90 s of the run, and the program had to be killed; see whether it stops itself",
        ),
        (Ended(2, (), "no such file", 1.0), "the program ended with exit code 2: no such file"),
        (Ended(0, (), "", 1.0), "no step ended, because no optimizer stepped"),
        (
            Ended(1, ({"event": "failed", "number": 28},), "", 1.0),
            "the temporary folder cannot be written (No space left on device); set TMPDIR",
        ),
        (Ended(1, ({"event": "removed"},), "", 0.0), "the folder that the program runs in was removed"),
    ],
)
def test_a_run_that_showed_nothing_says_why_and_what_to_do(ended: Ended, words: str):
    assert ended.why("no_step_ended").words.startswith(words)


def test_what_is_slower_is_not_recommended():
    assert "autocast (dtype=bfloat16) makes the steps longer: not recommended." in shown("terminal")
    assert not SLOWER.is_recommended
    assert headline(TRIALS.model_copy(update={"trials": (SLOWER,)})) == "No fix made the steps shorter"


def test_words_of_a_program_are_no_markup():
    assert "<b>DataLoader</b>" not in shown("html")
    assert "<b>DataLoader</b>" not in shown("markdown")


def test_the_json_holds_all_of_it():
    assert Trials.model_validate(json.loads(draw(Request(TRIALS), "json"))) == TRIALS


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("dataloader:num_workers=4,pin_memory=false", {"num_workers": 4, "pin_memory": False}),
        ("optimizer", {"implementation": "fused"}),
        ("environment:KMP_AFFINITY=granularity=fine,compact", {"KMP_AFFINITY": "granularity=fine,compact"}),
    ],
)
def test_a_patch_is_named_with_its_arguments(text: str, arguments: dict[str, object]):
    assert ideas.of_option(text).uses[0].arguments == arguments


@pytest.mark.parametrize("text", ["nothing", "dataloader", "dataloader:num_workers", "dataloader:workers=1"])
def test_what_is_no_patch_is_a_wrong_option(text: str):
    with pytest.raises(UsageError, match=f"--patch {text.partition(':')[0]}"):
        ideas.of_option(text)


def test_together_arguments_are_joined():
    first, second = ideas.of_option("dataloader:num_workers=2"), ideas.of_option("dataloader:prefetch_factor=4")
    (use,) = ideas.together([first, second]).uses
    assert use.arguments == {"num_workers": 2, "prefetch_factor": 4}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--within", "much"], "--within much: give a share of the step, as 5%"),
        (["--budget", "0m"], "--budget 0m: give a time, as 90s, 15m or 2h"),
        (["--patch", "speed"], "--patch speed: no such patch; there are: dataloader"),
        (["-o", "x.gif"], "-o x.gif: unknown suffix"),
        (["--fix", "python-callbacks"], "--fix python-callbacks: no patch makes its change from outside"),
        (["--fix", "no-rule"], "--fix no-rule: no rule is called that"),
    ],
)
def test_wrong_options_are_refused_before_any_run(tmp_path: Path, words: list[str], message: str):
    done = advisor("try", *words, "--", "no-such-program", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("fixture", "words"),
    every(
        2,
        [
            ("torch-cpu-item-each-step", "no finding has a fix that can be switched on from outside"),
            ("jax-cpu-recompile", "no finding has a fix that can be switched on from outside"),
        ],
    ),
)
def test_nothing_is_run_where_a_recording_shows_nothing_to_try(tmp_path: Path, fixture: str, words: str):
    recording = Path(__file__).parents[2] / "fixtures" / fixture
    done = advisor("try", "--recording", str(recording), "--", "no-such-program", cwd=tmp_path)
    assert done.returncode == 3
    assert words in " ".join(done.stdout.split())


def test_a_program_that_cannot_be_started_is_an_error_of_one_line(tmp_path: Path):
    done = advisor("try", "--patch", "optimizer", "--", "no-such-program", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no-such-program: cannot be started" in done.stderr


def test_no_argument_of_the_program_is_kept():
    assert program_name(["python", "-u", "/home/me/train.py", "--token=secret"]) == "train.py"
    assert program_name(["/usr/bin/torchrun", "-m", "jobs.train"]) == "torchrun"


def test_files_that_a_run_writes_are_those_that_are_new_or_changed(tmp_path: Path):
    (tmp_path / "old").write_text("1")
    (tmp_path / "model.pt").write_text("1")
    before = processes.snapshot(tmp_path)
    (tmp_path / "model.pt").write_text("22")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/events").write_text("1")
    assert processes.written(before, processes.snapshot(tmp_path)) == ("logs/events", "model.pt")


def test_a_trial_s_own_folder_is_no_file_of_a_program_that_starts_around_it(tmp_path: Path):
    own = tmp_path / "advisor-try-1"
    own.mkdir()
    before = processes.snapshot(tmp_path)
    (own / "train.pt.trace.json.gz").write_text("1")
    (tmp_path / "train.py").write_text("1")
    assert processes.written(before, processes.snapshot(tmp_path)) == ("train.py",)
    copy = processes.copied(tmp_path, own / "scratch")
    assert [path.name for path in copy.iterdir()] == ["train.py"]


def test_a_scratch_copy_has_all_but_what_is_apart(tmp_path: Path):
    job = tmp_path / "job"
    (job / ".git").mkdir(parents=True)
    (job / "data").mkdir()
    (job / "data/x").write_text("1")
    (tmp_path / "big").write_text("2")
    (job / "link").symlink_to("../big")
    copy = processes.copied(job, tmp_path / "copy/job")
    (copy / "data/x").write_text("3")
    assert (job / "data/x").read_text() == "1"
    assert (copy / "link").read_text() == "2"
    assert sorted(path.name for path in copy.iterdir()) == ["data", "link"]


def test_a_scratch_copy_without_room_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "job").mkdir()
    (tmp_path / "job/x").write_text("1")
    monkeypatch.setattr(processes.shutil, "copytree", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(UsageError, match=r"--scratch: .*job cannot be copied: .*No space left on device; set TMPDIR"):
        processes.copied(tmp_path / "job", tmp_path / "copy")


def test_trackers_are_told_to_stay_offline(tmp_path: Path):
    variables = processes.offline(tmp_path)
    assert variables["WANDB_MODE"] == "offline"
    assert variables["MLFLOW_TRACKING_URI"].startswith("file://")


def test_what_was_measured_is_said_where_its_file_cannot_be_written(tmp_path, monkeypatch):
    """The program may remove the folder of the report while it is tried."""

    def run(_: Session) -> Trials:
        (tmp_path / "reports").rmdir()
        return TRIALS

    (tmp_path / "reports").mkdir()
    monkeypatch.setattr(Session, "run", run)
    done = CliRunner().invoke(app, ["try", "-o", str(tmp_path / "reports/x.json"), "--", "true"])
    assert "optimizer (implementation=fused)" in done.stdout
    assert isinstance(done.exception, UsageError)
