"""A code host that has a declaration, and nothing else, gets its comment."""

from dataclasses import replace

import pytest

from advisor.errors import UsageError
from advisor.pull_request.deliver import Message, Order, deliver
from advisor.pull_request.host import Patience, Refused, Target
from advisor.pull_request.hosts import HOSTS, target_of
from tests.pull_request.servers import GitLab

pytestmark = pytest.mark.network_server

MESSAGE = Message("The job waits", lambda _: "The job waits")
ENV = {"SMITHY": "1", "SMITHY_PR": "7", "SMITHY_TOKEN": "t"}
QUICK = Patience(tries=0, between_writes_s=0)


@pytest.fixture(autouse=True)
def server(monkeypatch):
    with GitLab({"t": "bot"}) as server:

        def target(env):
            number, token = int(env["SMITHY_PR"]), env.get("SMITHY_TOKEN")
            return Target("smithy", server.url, "octo/train", token, number, commit="a" * 40)

        smithy = HOSTS["gitlab"]._replace(
            ci="Smithy CI",
            signal="SMITHY",
            token="SMITHY_TOKEN",
            rights="the right to hammer",
            target=target,
            api=HOSTS["gitlab"].api._replace(name="Smithy", status="no/{sha}"),
        )
        monkeypatch.setitem(HOSTS, "smithy", smithy)
        yield server


def test_a_declaration_is_enough(server):
    message = Message(MESSAGE.verdict, MESSAGE.markdown, failed=False)
    server.faults.append(("POST /no/", server.refused))
    notices = list(deliver(message, replace(target_of(ENV), fork=True), Order(status=True), QUICK))
    assert "The job waits" in next(iter(server.comments.values()))["body"]
    assert [notice.hint for notice in notices] == [False, True]
    server.faults.append(("POST /no/", server.refused))
    with pytest.raises(Refused, match=r"Smithy, asked to set a commit status.*give it the right to hammer"):
        list(deliver(message, target_of(ENV), Order(status=True), QUICK))


def test_the_messages_name_it():
    with pytest.raises(UsageError, match="set SMITHY_TOKEN"):
        list(deliver(MESSAGE, target_of(ENV | {"SMITHY_TOKEN": ""}), Order()))
    with pytest.raises(UsageError, match="neither GitHub Actions nor GitLab CI nor Smithy CI"):
        list(deliver(MESSAGE, target_of({}), Order()))
