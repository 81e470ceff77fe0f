"""A code host that has a declaration and a client, and nothing else, gets its comment."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from advisor.errors import UsageError
from advisor.pull_request.comment import Note
from advisor.pull_request.deliver import Order, deliver
from advisor.pull_request.environment import CodeHost, Target
from advisor.pull_request.errors import Refused
from advisor.pull_request.hosts import HOSTS, target_of
from advisor.pull_request.message import Message

MESSAGE = Message("The job waits", lambda _: "The job waits")
ENV = {"SMITHY": "1", "SMITHY_PR": "7", "SMITHY_TOKEN": "t"}


class Repository:
    """Comments in memory."""

    bodies = ()
    most = 65_536

    def __init__(self, url, repo, token, patience):
        assert (url, repo, token) == ("https://smithy.test", "octo/train", "t")
        assert patience.tries

    def thread(self, number):
        assert number == 7
        return self

    def me(self):
        return "bot"

    def notes(self):
        return [Note(at, "bot", body) for at, body in enumerate(self.bodies)]

    def create(self, body):
        Repository.bodies = (*self.bodies, body)
        return Note(len(self.bodies), "bot", body)

    def edit(self, note, body):
        raise AssertionError(note, body)

    def delete(self, note):
        raise AssertionError(note)

    def set_status(self, seal):
        raise Refused(f"status {seal.name}")


@pytest.fixture(autouse=True)
def smithy(monkeypatch):
    def target(env):
        number, token = int(env["SMITHY_PR"]), env.get("SMITHY_TOKEN")
        return Target("smithy", "https://smithy.test", "octo/train", token, number, commit="a" * 40)

    host = CodeHost("Smithy CI", "an own Smithy", "SMITHY", "SMITHY_TOKEN", "the right to hammer", target)
    monkeypatch.setitem(HOSTS, "smithy", host)
    monkeypatch.setitem(sys.modules, "advisor.pull_request.hosts.smithy.client", SimpleNamespace(Repository=Repository))


def test_a_declaration_and_a_client_are_enough():
    message = Message(MESSAGE.verdict, MESSAGE.markdown, failed=False)
    notices = list(deliver(message, replace(target_of(ENV), fork=True), Order(status=True)))
    assert "The job waits" in Repository.bodies[0]
    assert [notice.hint for notice in notices] == [False, True]
    with pytest.raises(Refused, match="give it the right to hammer"):
        list(deliver(message, target_of(ENV), Order(status=True)))


def test_the_messages_name_it():
    with pytest.raises(UsageError, match="set SMITHY_TOKEN"):
        list(deliver(MESSAGE, target_of(ENV | {"SMITHY_TOKEN": ""}), Order()))
    with pytest.raises(UsageError, match="neither GitHub Actions nor GitLab CI nor Smithy CI"):
        list(deliver(MESSAGE, target_of({}), Order()))
