"""The bot against a GitLab with memory."""

import datetime as dt
import itertools
import threading

import pytest

from advisor.errors import UsageError
from advisor.pull_request.client import Repository
from advisor.pull_request.comment import MOST, Draft, post
from advisor.pull_request.deliver import Message, Order, deliver
from advisor.pull_request.host import HostError, Patience, Target, Unreachable
from advisor.pull_request.hosts import HOSTS
from tests.pull_request.servers import BAD_GATEWAY, GitLab

pytestmark = pytest.mark.network_server

BOT = "project_1_bot"
QUICK = Patience(tries=4, first_wait_s=0.01, rate_limit_s=1, between_writes_s=0)
DAY = dt.date(2026, 1, 2)
SHA, LATER = "a" * 40, "b" * 40
TOO_MANY = (429, {"message": "Retry later"}, {"Retry-After": "0"})


@pytest.fixture
def server():
    with GitLab({"ci": BOT, "alice": "alice", "fork": "forker"}, read_only={"fork"}) as running:
        yield running
        assert not running.faults


def thread(server, token="ci"):
    return Repository(HOSTS["gitlab"], server.url, "octo/train", token, QUICK).thread(7)


def draft(text="### slower by 26 %\n", commit=SHA):
    return Draft(text.splitlines()[0].lstrip("# "), lambda _most: text, commit, "https://ci.test/job/1")


def test_create_no_change_update(server):
    assert post(thread(server), draft(), DAY)[0] == "created"
    assert post(thread(server), draft(), DAY)[0] == "unchanged"
    assert len(server.writes()) == 1
    assert post(thread(server), draft("### same\n", LATER), DAY)[0] == "updated"
    (note,) = server.comments.values()
    assert "### same" in note["body"]
    assert "slower by 26 %" in note["body"]


def test_the_address_may_be_that_of_the_server_or_of_its_api(server):
    repository = Repository(HOSTS["gitlab"], f"{server.url}/api/v4/", "octo/train", "ci", QUICK)
    assert post(repository.thread(7), draft(), DAY)[0] == "created"


def test_the_notes_of_others_and_of_the_system_are_left_alone(server):
    post(thread(server, "alice"), draft("### mine\n"), DAY)
    server.say(BOT, draft().body(60_000, DAY), system=True)
    assert post(thread(server), draft(), DAY)[0] == "created"
    assert len(server.comments) == 3


def test_our_note_is_found_behind_three_pages_of_others(server):
    for number in range(299):
        server.say("alice", f"remark {number}")
    post(thread(server), draft(), DAY)
    server.requests.clear()
    assert post(thread(server), draft(commit=LATER), DAY)[0] == "updated"
    assert len([path for method, path in server.requests if "/notes" in path and method == "GET"]) == 3


def test_a_long_report_fits_by_bytes(server):
    post(thread(server), draft("### verdict\n\n" + "火火火火火火火火\n\n" * 30_000), DAY)
    (note,) = server.comments.values()
    assert 3_000 < len(note["body"]) <= MOST


def test_two_jobs_at_once_leave_one_note(server):
    both_have_looked, looks = threading.Barrier(2), itertools.count()

    def before(method, path):
        if method == "GET" and "/notes" in path and next(looks) < 2:
            both_have_looked.wait(20)

    server.before = before
    drafts = draft("### one\n"), draft("### two\n", LATER)
    jobs = [threading.Thread(target=post, args=(thread(server), each, DAY)) for each in drafts]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    (note,) = server.comments.values()
    assert " one" in note["body"]
    assert " two" in note["body"]


@pytest.mark.parametrize("fault", [BAD_GATEWAY, (500, {"message": "500"}), TOO_MANY])
def test_a_burst_of_failures_is_sat_out(server, fault):
    server.faults.extend([("GET", fault), ("GET /notes", fault), ("GET", fault)] + [("POST", fault)] * 3)
    assert post(thread(server), draft(), DAY)[0] == "created"
    server.faults.extend([("PUT", fault)] * 3)
    assert post(thread(server), draft(commit=LATER), DAY)[0] == "updated"


def test_a_host_that_stays_down_is_an_error_of_one_line():
    with GitLab({"ci": BOT}) as bare:
        bare.faults.extend([("GET", BAD_GATEWAY)] * 20)
        with pytest.raises(Unreachable, match="no answer after several tries"):
            post(thread(bare), draft(), DAY)
        assert len(bare.requests) == QUICK.tries + 1


def where(server, **more):
    known = {"kind": "gitlab", "api_url": server.url, "repo": "12", "token": "ci", "number": 7, "commit": SHA}
    return Target(**known | more)


def message():
    return Message("slower by 26 %", lambda _: "### slower by 26 %\n", failed=True)


def test_a_status_carries_the_verdict(server):
    told = list(deliver(message(), where(server, link="https://ci.test/job/1"), Order(status=True), QUICK))
    assert not any(one.hint for one in told)
    (status,) = server.statuses
    assert (status["state"], status["description"], status["sha"]) == ("failed", "slower by 26 %", SHA)


@pytest.mark.parametrize("token", ["fork", None])
def test_a_fork_gets_a_hint_and_no_error(server, token):
    (told,) = deliver(message(), where(server, token=token, fork=True), Order(), QUICK)
    assert told.hint
    assert "Pull requests from forks" in told.line
    assert not server.comments


def test_what_gitlab_does_not_have_or_know_is_an_error(server):
    with pytest.raises(UsageError, match="use --status"):
        list(deliver(message(), where(server), Order(check_run=True), QUICK))
    with pytest.raises(HostError, match=r"\(401\); set GITLAB_TOKEN"):
        list(deliver(message(), where(server, token="no"), Order(), QUICK))
