"""From a file on disk to the body of a comment, hostile files included."""

import datetime as dt
import json
import os
import re
import sys
from html import unescape
from pathlib import Path

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import ReadError, UsageError
from advisor.pull_request.comment import Draft, defused
from advisor.pull_request.deliver import Message, Order, deliver, dry_run, read
from advisor.pull_request.host import Target
from advisor.render import json as report_json
from tests.command import advisor
from tests.comparisons import slower
from tests.effort import soak
from tests.render_samples import HOSTILE, SAMPLES, hostile

pytestmark = pytest.mark.usefixtures("measured_once")

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures" / "simulated-input-bound-v100"
NOTHING: dict[str, str] = {}  # in the environment: no token, no pull request
HERE = Target(kind="github", api_url="", repo="", token=None, commit="a" * 40, link="https://ci.test/run/1")
CALLING = {"script", "style", "template", "pipes", "blocks", "backticks", "links", "mentions", "actions"}
DAY = dt.date(2026, 1, 2)
CALLS = re.compile(r"[@#!%~$](?=\w)|&(?=\d)|\bGH-\d", re.IGNORECASE)
CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
SAFE = r"p|h\d|table|thead|tbody|t[hrd]|details|summary|strong|em|code|sub|ul|ol|li|br|a"
RAW = re.compile(rf"<(?!/?(?:{SAFE})\b)[^!][^>]*>")


def calls_nobody(body):
    """Neither as read, where hosts look for names and numbers, nor as written, where GitLab looks for quick actions."""
    html = CODE.sub("", cmarkgfm.github_flavored_markdown_to_html(body, Options.CMARK_OPT_UNSAFE))
    seen = unescape(re.sub(r"<[^>]*>", " ", html))
    report = body.partition("\n")[2]  # without the marker
    return not CALLS.findall(seen) and not RAW.findall(html) and html.count("<!--") == 1 and defused(report) == report


def saved(folder, report):
    path = folder / "report.json"
    path.write_text(report_json.render(report))
    return path


@pytest.mark.parametrize("name", soak(HOSTILE, unless=CALLING.__contains__))
def test_nothing_in_a_report_calls_anybody(tmp_path, name):
    body = dry_run(read(saved(tmp_path, hostile(HOSTILE[name])), []), HERE, Order())
    assert calls_nobody(body)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_in_an_earlier_verdict_calls_anybody(text):
    before = Draft(text, lambda _: "x", "a" * 40).body(65_536, DAY)
    body = Draft("same", lambda _: "y", "b" * 40).body(65_536, DAY, before)
    assert "Earlier verdicts" in body
    assert calls_nobody(body)
    assert body.count("<details>") == body.count("</details>") == 1


@given(st.text(max_size=300), st.text(max_size=100), st.integers(3000, 20_000))
def test_any_text_fits_and_is_remembered(text, verdict, most):
    first = Draft(verdict, lambda _: text * 50, "a" * 40)
    body = Draft("same", lambda _: text, "b" * 40).body(most, DAY, first.body(most, DAY))
    assert len(body) <= most
    assert "Earlier verdicts (1 commit)" in body


@pytest.mark.parametrize("state", ["", "e30=", "bm9uc2Vuc2U=", "====", "A", "éé"])
def test_a_marker_that_remembers_nonsense_is_started_afresh(state):
    body = Draft("same", lambda _: "y").body(65_536, DAY, f"<!-- gpu-advisor default {state} -->\nold")
    assert "Earlier" not in body


def test_markdown_says_its_first_line_and_is_defused(tmp_path):
    path = tmp_path / "own.md"
    path.write_text("\n## **Slower** by 26&nbsp;% `x`\n\ncc @everyone, fixes #12\n/close\n")
    message = read(path, [])
    assert message.verdict == "Slower by 26 % x"
    assert message.failed is None
    body = dry_run(message, HERE, Order())
    assert calls_nobody(body)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("no.json", b"", "is no JSON"),
        ("no.json", b"[" * 100_000, "is no JSON"),
        ("no.json", b"{}", "is no report"),
        ("no.json", b'{"kind": "comparison", "verdict": 1}', "is no comparison"),
        ("no.md", b"\xff\xfe", "is no UTF-8 text"),
        ("no.html", b"<!doctype html>", "is neither .json nor .md"),
        ("no", b"# v", "is neither .json nor .md"),
    ],
)
def test_a_file_that_says_nothing_is_an_error_of_one_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ReadError, match=said) as caught:
        read(tmp_path / name, [])
    assert "\n" not in str(caught.value)


def test_a_pipe_is_no_file_to_wait_for(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe.md")
    with pytest.raises(ReadError, match="not a regular file"):
        read(pipe, [])


def test_what_fails_is_said_in_the_words_of_the_command(tmp_path):
    path = saved(tmp_path, SAMPLES["resnet"])
    assert read(path, []).failed is False
    assert read(path, ["high"]).failed is True
    with pytest.raises(UsageError, match="--fail-on slower"):
        read(path, ["slower"])
    (tmp_path / "own.md").write_text("x")
    with pytest.raises(UsageError, match="--fail-on"):
        read(tmp_path / "own.md", ["high"])


def test_a_comparison_that_can_tell_nothing_fails_where_it_is_strict(tmp_path):
    path = tmp_path / "comparison.json"
    unsure = slower().model_copy(update={"verdict": "inconclusive", "obstacle": "few-steps", "findings": ()})
    path.write_text(report_json.render(unsure))
    assert [read(path, ["slower"], strict=strict).failed for strict in (False, True)] == [False, True]
    report = saved(tmp_path, SAMPLES["healthy"])
    assert read(report, ["high"], strict=True).failed is False
    (tmp_path / "own.md").write_text("# Mine")
    with pytest.raises(UsageError, match="--strict"):
        read(tmp_path / "own.md", [], strict=True)


def test_the_command_prints_what_it_would_post(tmp_path):
    assert advisor("check", FIXTURE, "-o", "r.json", "-o", "r.md", cwd=tmp_path, env=NOTHING).returncode == 0
    for name in ("r.json", "r.md"):
        done = advisor("comment", name, "--dry-run", cwd=tmp_path, env=NOTHING)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("<!-- gpu-advisor default ")
        assert "loads its batches itself" in done.stdout.splitlines()[1]


def test_a_comparison_is_posted_as_such(tmp_path):
    assert advisor("compare", FIXTURE, FIXTURE, "-o", "c.json", cwd=tmp_path, env=NOTHING).returncode == 0
    shown = advisor("comment", "c.json", "--dry-run", cwd=tmp_path, env=NOTHING).stdout
    assert "No change" in shown.splitlines()[1]
    assert json.loads((tmp_path / "c.json").read_text())["verdict"] == "same"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["comment", "none.json"], 3, "none.json: no such file"),
        (["comment", "r.md"], 2, "--repo"),
        (["comment", "r.md", "--repo", "a/b"], 2, "--pr"),
        (["comment", "r.md", "--repo", "a/b", "--pr", "1"], 2, "GITHUB_TOKEN"),
        (["comment", "r.md", "--repo", "a/b", "--pr", "1", "--status"], 2, "need the JSON"),
        (["comment", "r.md", "--host", "svn"], 2, "--host svn"),
        (["comment", "r.md", "--dry-run", "--link", "javascript:alert(1)"], 2, "--link"),
        (["comment", "r.md", "--dry-run", "--link", "https://h/\udcff"], 2, "--link"),
        (["comment", "r.md", "--dry-run", "--commit", "a" * 65], 2, "--commit"),
    ],
)
def test_a_wrong_command_is_an_error_of_one_line(tmp_path, words, code, said):
    (tmp_path / "r.md").write_text("# v\n")
    done = advisor(*words, cwd=tmp_path, env=NOTHING)
    assert done.returncode == code
    assert done.stderr.startswith("advisor: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_the_extra_packages_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)
    monkeypatch.delitem(sys.modules, "advisor.pull_request.client", raising=False)
    where = Target(kind="github", api_url="http://127.0.0.1:1", repo="a/b", token="t", number=1)
    with pytest.raises(UsageError, match=r"pip install 'gpu-advisor\[bot\]'"):
        list(deliver(Message("v", lambda _: "v"), where, Order()))


def test_a_report_of_several_runs_says_how_many(tmp_path):
    message = read(saved(tmp_path, SAMPLES["several"]), [])
    assert "runs" in message.verdict
    assert len(message.findings) == sum(len(run.findings) for run in SAMPLES["several"].runs)
