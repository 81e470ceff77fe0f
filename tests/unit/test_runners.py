"""Names out of traces form no command of a CI runner, on either stream."""

import errno
import io
import json
import re
import sys
from pathlib import Path

import pytest

from advisor import cli
from advisor.cli import runners
from advisor.errors import UsageError
from advisor.system.processes import panics_as_errors
from tests.command import advisor

HOSTILE = [
    "::add-mask::secret",
    "  ::error file=a.py::broken",
    "\t::stop-commands::x",
    "##[error]broken",
    "kernel ##[add-path]/tmp",
    "##vso[task.setvariable variable=PATH]/tmp",
    "##VSO[task.complete result=Succeeded]",
    "\x1b[0Ksection_start:1700000000:x\r\x1b[0K",
    "section_end:1700000000:x\r\x1b[0K",
    "first\n::debug::second",
    "first\r::debug::second",
    "###[group]x",
    "##teamcity[setParameter name='env.PATH' value='/tmp']",
]
# As runners look for them: GitHub's, Azure's, TeamCity's anywhere in a line, `::` at its start, GitLab's sections.
COMMAND = re.compile(r"##\w*\[|^\s*::|section_(?:start|end):\d", re.IGNORECASE)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_line_is_a_command(name):
    assert any(map(COMMAND.search, re.split("[\r\n]", name)))
    for text in (name, f"{name}\n", f"| {name} |", json.dumps({"name": name}, indent=1)):
        lines = re.split("[\r\n]", runners.disarmed(text))
        assert not any(map(COMMAND.search, lines))


@pytest.mark.parametrize("name", [*HOSTILE, "\\##[x]", '"##[x]', "a::b", "# [x]", "C++ std::vector"])
def test_json_tells_the_same(name):
    assert json.loads(runners.disarmed(json.dumps({"name": name}, indent=1))) == {"name": name}


@pytest.mark.parametrize("text", ["a::b", "at::native::add", "# title", "#[x]", "## [x]", "section_start", ""])
def test_other_text_stays(text):
    assert runners.disarmed(text) == text


def test_the_command_guards_both_streams(capsys, monkeypatch, tmp_path):
    trace = tmp_path / "##[error]x ##vso[y].pt.trace.json"
    trace.write_text("no trace")
    monkeypatch.setattr(sys, "argv", ["advisor", "check", str(trace)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 3
    said = "".join(capsys.readouterr())
    assert "\\u0023#[error]x \\u0023#vso[y]" in said
    assert not COMMAND.search(said)


def test_a_hint_is_one_warning_of_githubs_runner(capsys, monkeypatch):
    runners.guard()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    runners.hint("100 % ##[error]x\n::add-mask::y")
    assert capsys.readouterr().out == "::warning title=gpu-advisor::100 %25 \\u0023#[error]x%0A\\u003a:add-mask::y\n"
    monkeypatch.delenv("GITHUB_ACTIONS")
    runners.hint("no right")
    assert capsys.readouterr().err == "advisor: no right\n"


class Full(io.StringIO):
    """A stream on a disk without room."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("words", [["rules", "list"], ["--help"], ["metrics", "list"]])
def test_a_full_standard_output_is_one_line_and_exit_2(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["advisor", *words])
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "advisor: standard output cannot be written: No space left on device\n"


def test_a_closed_standard_output_is_no_silent_success(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["advisor", "rules", "list"])
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "advisor: standard output cannot be written: it is closed\n"


@pytest.mark.parametrize("threads", ["0", "00", "+0", " 0"])
def test_no_threads_for_polars_are_an_error_of_usage(threads, monkeypatch):
    monkeypatch.setenv("POLARS_MAX_THREADS", threads)
    with pytest.raises(UsageError, match="POLARS_MAX_THREADS is 0"):
        runners.require_surroundings()


def test_a_current_folder_that_was_removed_is_an_error_of_usage(tmp_path, monkeypatch):
    runners.require_surroundings()
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="the current folder was removed"):
        runners.require_surroundings()


def test_a_current_folder_that_is_removed_meanwhile_is_one_too(tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "app", lambda **_: (Path.cwd().rmdir(), Path.cwd()))
    (gone := tmp_path / "gone").mkdir()
    done = advisor(cwd=gone)
    assert (done.returncode, done.stderr) == (2, "advisor: the current folder was removed; change to another one\n")


def test_a_limit_of_open_files_is_named_and_a_panic_over_it_is_no_damage():
    class PanicException(BaseException):
        pass

    with pytest.raises(UsageError, match="ulimit -n"):
        runners.require_surroundings(errno.EMFILE)
    for words, expected in (('Os { code: 24, message: "Too many open files" }', "Too many"), ("index", "damaged")):
        with pytest.raises(OSError, match=expected), panics_as_errors():
            raise PanicException(words)
