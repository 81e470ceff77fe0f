"""The bot against a GitHub with memory; every case once bare and once behind GitHub's own API description."""

import datetime as dt
import itertools
import threading
import time

import pytest
import requests

from advisor.errors import UsageError
from advisor.pull_request.client import Repository
from advisor.pull_request.comment import MOST, Draft, post
from advisor.pull_request.deliver import Message, Order, deliver
from advisor.pull_request.host import Branch, HostError, Patience, Seal, Target, Unreachable
from advisor.pull_request.hosts import HOSTS
from advisor.pull_request.source import Annotation
from tests.pull_request.contract import proxy
from tests.pull_request.servers import BAD_GATEWAY, READ_ONLY, SECONDARY, SECONDARY_WITH_A_TIME, GitHub, primary

pytestmark = pytest.mark.network_server

BOT = "github-actions[bot]"
QUICK = Patience(tries=4, first_wait_s=0.01, rate_limit_s=2, between_writes_s=0)
DAY = dt.date(2026, 1, 2)
SHA, LATER = "a" * 40, "b" * 40
MARK = "<!-- gpu-advisor default "


@pytest.fixture(scope="module")
def gateway():
    """A proxy that validates, before whichever server a test has just started."""
    with GitHub({"ci": BOT, "alice": "alice", "fork": BOT}, read_only={"fork"}) as server, proxy(server.url) as url:
        server.url = url
        yield server


@pytest.fixture(params=["bare", "contract"])
def server(request):
    if request.param == "bare":
        with GitHub({"ci": BOT, "alice": "alice", "fork": BOT}, read_only={"fork"}) as bare:
            yield bare
        return
    shared = request.getfixturevalue("gateway")
    for memory in (shared.comments, shared.statuses, shared.runs, shared.pulls, shared.faults, shared.requests):
        memory.clear()
    shared.before = lambda _method, _path: None
    yield shared
    assert not shared.faults


def thread(server, token="ci", patience=QUICK):
    return Repository(HOSTS["github"], server.url + server.base, "octo/train", token, patience).thread(7)


def draft(text="### slower by 26 %\n\nbody\n", commit=SHA, **more):
    verdict = text.splitlines()[0].lstrip("# ")
    return Draft(verdict, lambda _most: text, commit, "https://ci.test/run/1", **more)


def texts(server):
    return [comment["body"] for comment in server.comments.values()]


def test_the_first_run_creates_and_a_second_with_the_same_result_touches_nothing(server):
    assert post(thread(server), draft(), DAY)[0] == "created"
    writes = server.writes()
    assert len(writes) == 1
    assert post(thread(server), draft(), DAY)[0] == "unchanged"
    assert server.writes() == writes
    (body,) = texts(server)
    assert body.startswith(MARK)
    assert body.splitlines()[1] == "### slower by 26 %"
    assert "[Full report](<https://ci.test/run/1>)" in body


def test_another_result_edits_the_comment_and_keeps_the_verdict_before_it(server):
    post(thread(server), draft(), DAY)
    outcome, note = post(thread(server), draft("### same\n", LATER), DAY)
    assert outcome == "updated"
    assert list(server.comments) == [note.id]
    (body,) = texts(server)
    assert body.splitlines()[1] == "### same"
    assert "<summary>Earlier verdicts (1 commit)</summary>" in body
    assert "- 2026-01-02 · <code>aaaaaaaa</code> · slower by 26 %" in body


def test_a_second_verdict_on_one_commit_replaces_the_first(server):
    for text in ("### slower\n", "### same\n"):
        post(thread(server), draft(text), DAY)
    assert "Earlier" not in texts(server)[0]


def test_the_history_is_bounded(server):
    for number in range(14):
        post(thread(server), draft(f"### verdict {number}\n", f"{number:040x}"), DAY)
    (body,) = texts(server)
    listed = [line for line in body.splitlines() if line.startswith("- ")]
    assert [line.rpartition(" ")[2] for line in listed] == [str(n) for n in range(12, 9, -1)]


def test_a_comment_of_somebody_else_with_our_marker_is_left_alone(server):
    post(thread(server, "alice"), draft("### mine\n"), DAY)
    assert post(thread(server), draft(), DAY)[0] == "created"
    assert post(thread(server), draft(commit=LATER), DAY)[0] == "updated"
    theirs, ours = server.comments.values()
    assert theirs["user"]["login"] == "alice"
    assert "### mine" in theirs["body"]
    assert ours["user"]["login"] == BOT


def test_a_marker_that_is_quoted_inside_a_comment_of_ours_is_none(server):
    server.say(BOT, f"> {MARK}e30= -->")
    assert post(thread(server), draft(), DAY)[0] == "created"


def test_our_comment_is_found_behind_three_pages_of_others(server):
    for number in range(150):
        server.say("alice", f"remark {number}")
    post(thread(server), draft(), DAY)
    for number in range(149):
        server.say("alice", f"answer {number}")
    assert len(server.comments) == 300
    server.requests.clear()
    assert post(thread(server), draft("### same\n", LATER), DAY)[0] == "updated"
    assert len(server.comments) == 300
    pages = [path for method, path in server.requests if method == "GET"]
    assert len(pages) == 3
    assert all("per_page=100" in path for path in pages)


def test_two_keys_are_two_comments(server):
    post(thread(server), draft(key="train"), DAY)
    post(thread(server), draft(key="infer"), DAY)
    assert post(thread(server), draft(key="train"), DAY)[0] == "unchanged"
    assert len(server.comments) == 2


def test_seventy_thousand_characters_are_cut_on_creation_and_on_every_edit(server):
    long = "### verdict\n\n" + "".join(f"- line {number} of many\n\n" for number in range(4000))
    assert len(long) > 70_000
    for commit in (SHA, LATER):
        post(thread(server), draft(long, commit), DAY)
        (body,) = texts(server)
        assert 3_000 < len(body) <= MOST
        assert "Shortened" in body
        assert "[Full report]" in body
    assert post(thread(server), draft(long, LATER), DAY)[0] == "unchanged"


def test_two_jobs_at_once_leave_one_comment(server):
    both_have_looked, posts = threading.Barrier(2), itertools.count()

    def before(method, path):
        if method == "POST" and path.endswith("/comments") and next(posts) < 2:
            both_have_looked.wait(20)  # the first write waits until neither has seen one

    server.before = before
    outcomes = []
    drafts = [draft("### one\n"), draft("### two\n", LATER)]

    def run(said):
        outcomes.append(post(thread(server), said, DAY)[0])

    jobs = [threading.Thread(target=run, args=(said,)) for said in drafts]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert sorted(method for method, _ in map(str.split, server.writes())).count("POST") == 2
    (body,) = texts(server)
    assert ("### one" in body and " two" in body) or ("### two" in body and " one" in body)  # none is lost
    assert len(outcomes) == 2


def test_a_comment_that_went_through_although_the_answer_was_lost_is_not_doubled(server):
    server.say(BOT, draft().body(65_536, DAY))
    kept = next(iter(server.comments))
    server.say(BOT, draft().body(65_536, DAY))
    assert post(thread(server), draft(), DAY)[0] == "unchanged"
    assert list(server.comments) == [kept]


def test_a_comment_deleted_under_our_hands_is_made_again(server):
    post(thread(server), draft(), DAY)
    server.faults.append(("PATCH", (404, {"message": "Not Found"})))
    real = server.answer

    def answer(method, *rest):
        done = real(method, *rest)
        if method == "PATCH" and done[0] == 404:
            server.comments.clear()
        return done

    server.answer = answer
    try:
        assert post(thread(server), draft("### same\n", LATER), DAY)[0] == "created"
    finally:
        del server.answer
    assert len(server.comments) == 1


@pytest.mark.parametrize("fault", [BAD_GATEWAY, (503, {"message": "Unavailable"}), SECONDARY_WITH_A_TIME])
def test_a_burst_of_failures_is_sat_out(server, fault):
    server.faults.extend([("POST /graphql", fault), ("GET", fault), ("GET", fault), *[("POST comments", fault)] * 2])
    assert post(thread(server), draft(), DAY)[0] == "created"
    server.faults.extend([("PATCH", fault)] * 3)
    assert post(thread(server), draft(commit=LATER), DAY)[0] == "updated"
    assert len(server.comments) == 1


@pytest.mark.parametrize("limit", [SECONDARY, primary(0)])
def test_a_rate_limit_without_a_time_is_waited_for(server, limit):
    server.faults.append(("POST comments", limit))
    assert post(thread(server, patience=Patience(4, 0.01, 1, 0)), draft(), DAY)[0] == "created"


def test_a_rate_limit_that_lasts_an_hour_is_an_error_of_one_line(server):
    server.faults.append(("GET", primary(int(time.time()) + 3600)))
    with pytest.raises(Unreachable, match=r"rate limit.*again later") as caught:
        post(thread(server), draft(), DAY)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5


def test_a_host_that_stays_down_is_an_error_of_one_line():
    with GitHub({"ci": BOT}) as bare:
        bare.faults.extend([("POST", BAD_GATEWAY)] * 20)
        with pytest.raises(Unreachable, match="no answer after several tries"):
            post(thread(bare), draft(), DAY)
        assert len(bare.requests) == QUICK.tries + 1


def test_a_token_that_is_wrong_is_an_error_of_the_host(server, capfd):
    with pytest.raises(HostError, match=r"\(401\); set GITHUB_TOKEN"):
        post(thread(server, "stolen"), draft(), DAY)
    assert not capfd.readouterr().err


def test_enterprise_has_its_api_under_a_path():
    with GitHub({"ci": BOT}, base="/api/v3") as server:
        real = server.answer
        server.answer = lambda method, path, *rest: real(method, path.replace("/api/graphql", "/api/v3/graphql"), *rest)
        assert post(thread(server), draft(), DAY)[0] == "created"
        assert {path.split("/repos")[0] for _, path in server.requests} == {"/api/v3/graphql", "/api/v3"}


def test_the_proxy_does_refuse_what_the_description_does_not_allow(gateway):
    api, headers = f"{gateway.url}/repos/octo/train", {"Authorization": "token ci"}
    for path, sent in (
        ("issues/7/comments", {}),
        ("issues/7/comments", {"body": 7}),
        (f"statuses/{SHA}", {"state": "bad"}),
    ):
        assert requests.post(f"{api}/{path}", json=sent, headers=headers, timeout=20).status_code == 422
    assert not gateway.writes()


def where(server, **more):
    known = {"kind": "github", "api_url": server.url, "repo": "octo/train", "token": "ci", "number": 7, "commit": SHA}
    return Target(**known | more)


def message(*findings):
    return Message("slower by 26 %", lambda _: "### slower by 26 %\n", failed=True, findings=findings)


def test_a_fork_that_may_only_read_gets_a_hint_and_no_error(server):
    told = list(deliver(message(), where(server, token="fork", fork=True), Order(status=True, check_run=True), QUICK))
    assert len(told) == 3
    for one in told:
        assert one.hint
        assert "Resource not accessible by integration" in one.line
        assert "Pull requests from forks" in one.line
        assert "\n" not in one.line
    assert not server.comments


def test_a_token_without_the_right_is_an_error_that_names_it_once_the_rest_is_posted(server, capfd):
    server.faults.append(("POST comments", READ_ONLY))
    told = deliver(message(), where(server), Order(status=True), QUICK)
    assert "status on" in next(told).line
    with pytest.raises(HostError, match=r"\(403\).*pull-requests: write"):
        next(told)
    assert not capfd.readouterr().err


@pytest.mark.parametrize("kind", ["github", "gitlab"])
@pytest.mark.parametrize("url", ["", "nonsense", "ftp://x", "http://", "https://a b", "http://[::1", "http://x:99999"])
def test_an_address_that_is_none_is_a_usage_error(kind, url):
    target = Target(kind=kind, api_url=url, repo="o/r", token="t", number=1)
    with pytest.raises(UsageError, match=r"--api-url .*: no web address"):
        list(deliver(message(), target, Order(), QUICK))


def test_status_and_check_run_carry_the_verdict_and_the_lines(server):
    repository = Repository(HOSTS["github"], server.url, "octo/train", "ci", QUICK)
    seal = Seal(SHA, "slower " * 40, failed=True, link="https://ci.test/run/1")
    remarks = [Annotation("train.py", line, "high", "Loads", "says") for line in range(1, 121)]
    repository.set_status(seal)
    repository.add_check_run(seal, "x" * 70_000, remarks)
    (status,), (run,) = server.statuses, server.runs.values()
    assert (status["state"], status["context"], status["sha"]) == ("failure", "gpu-advisor", SHA)
    assert len(status["description"]) == 140
    assert [a["start_line"] for a in run["annotations"]] == list(range(1, 121))
    assert run["conclusion"] == "failure"
    assert [method for method, _ in map(str.split, server.writes())] == ["POST", "POST", "PATCH", "PATCH"]


@pytest.mark.parametrize("number", ["{sign:>9}", "../../user", None, 1.5])
def test_a_check_run_whose_number_is_none_is_not_asked_for(number):
    remarks = [Annotation("train.py", line, "high", "Loads", "says") for line in range(1, 60)]
    with GitHub({"ci": BOT}) as server:
        server.fresh = lambda: number
        repository = Repository(HOSTS["github"], server.url, "octo/train", "ci", QUICK)
        with pytest.raises(HostError, match="its answer is not one of its API"):
            repository.add_check_run(Seal(SHA, "slower", failed=True, link=""), "", remarks)
        assert len(server.writes()) == 1


def test_a_check_run_needs_no_annotation(server):
    list(deliver(message(), where(server), Order(check_run=True), QUICK))
    (run,) = server.runs.values()
    assert run["annotations"] == []


def test_a_workflow_run_finds_its_pull_request_by_head_and_commit():
    with GitHub({"ci": BOT}) as server:
        server.pull(7, "forker:fast", SHA)
        server.pull(8, "forker:other", SHA)
        branch = Branch("forker", "fast", SHA)
        (told,) = deliver(message(), where(server, number=None, branch=branch), Order(), QUICK)
        assert "octo/train 7: created" in told.line
        stale = Branch("forker", "fast", LATER)
        (told,) = deliver(message(), where(server, number=None, branch=stale), Order(), QUICK)
        assert not told.hint
        assert "a later push has a run of its own" in told.line
        assert len(server.comments) == 1


def test_a_push_without_a_pull_request_posts_nothing(server):
    (told,) = deliver(message(), where(server, number=None, event="push"), Order(), QUICK)
    assert told.line == "no comment: push is no event of a pull request"
    assert not server.comments


@pytest.mark.parametrize(
    ("more", "wanted", "said"),
    [
        ({"number": None}, Order(), "--pr"),
        ({"repo": ""}, Order(), "--repo"),
        ({"token": None}, Order(), "GITHUB_TOKEN"),
        ({"commit": None}, Order(status=True), "--commit"),
        ({}, Order(key="a b"), "--key"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_posted(server, more, wanted, said):
    with pytest.raises(UsageError, match=said):
        list(deliver(message(), where(server, **more), wanted, QUICK))
    assert not server.comments


def test_a_pull_request_that_is_not_there_is_an_error(server):
    server.faults.append(("GET", (404, {"message": "Not Found"})))
    with pytest.raises(HostError, match="--pr"):
        post(thread(server), draft(), DAY)
