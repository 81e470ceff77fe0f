"""Standard error as a library in another language sees it: the descriptor, not Python's stream."""

from __future__ import annotations

import os

from advisor.system.processes import without_stderr


def test_what_is_written_meanwhile_goes_nowhere_and_the_rest_arrives(capfd, monkeypatch):
    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)
    os.write(2, b"before ")
    with without_stderr():
        os.write(2, b"panicked")
        with without_stderr():
            os.write(2, b"panicked")
        os.write(2, b"panicked")
    os.write(2, b"after")
    assert capfd.readouterr().err == "before after"


def test_who_looks_for_a_bug_sees_it(capfd, monkeypatch):
    monkeypatch.setenv("ADVISOR_DEBUG", "1")
    with without_stderr():
        os.write(2, b"panicked")
    assert capfd.readouterr().err == "panicked"
