"""Servers that answer wrongly, slowly, without end, or from elsewhere: one sentence, exit 5, and the token stays."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from advisor.errors import UsageError
from advisor.pull_request.deliver import Message, Order, deliver
from advisor.pull_request.host import HostError, Patience, Target
from tests.effort import every

pytestmark = pytest.mark.network_server

QUICK = Patience(tries=1, first_wait_s=0.01, rate_limit_s=1, between_writes_s=0, total_s=0.7)
SECRET = "s3cr3t-token"  # noqa: S105 - of a server that the test starts
ME = json.dumps({"data": {"viewer": {"login": "bot"}}, "username": "bot"})

Answer = Callable[[socket.socket, str], None]


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """A server whose `answer` writes what it likes; its URL, and the requests that it got."""
    got: list[str] = []
    open_: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def one(connection: socket.socket) -> None:
            with connection:
                try:
                    request = connection.recv(1 << 16).decode("latin-1")
                    if request:
                        got.append(request)
                        answer(connection, request)
                except OSError:  # the client is gone
                    return

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                open_.append(connection)
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", got
        finally:
            for each in (listening, *open_):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


def reply(connection: socket.socket, body: str | bytes, status: str = "200 OK", **headers: str) -> None:
    content = body if isinstance(body, bytes) else body.encode()
    known = {"Content-Type": "application/json", "Content-Length": str(len(content)), "Connection": "close"} | headers
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in known.items())
    connection.sendall(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + content)


def saying(body: str) -> Answer:
    return lambda connection, _: reply(connection, body)


def endless(connection: socket.socket, _: str) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"')
    while True:
        connection.sendall(b"x" * (1 << 20))


def slow_head(connection: socket.socket, _: str) -> None:
    for letter in "HTTP/1.1 200 OK\r\n" + "X-Slow: x\r\n" * 1000:
        connection.sendall(letter.encode())
        time.sleep(0.05)


def slow_body(connection: socket.socket, _: str) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"')
    for _ in range(1000):
        connection.sendall(b"x")
        time.sleep(0.05)


def in_a_circle(connection: socket.socket, request: str) -> None:
    reply(connection, "", "301 Moved Permanently", Location=request.split()[1] + "x")


def pages(connection: socket.socket, request: str) -> None:
    """Pages of comments of which each leads to another one."""
    path = request.split(maxsplit=2)[1]
    if "comments" not in path and "notes" not in path:
        reply(connection, ME)
        return
    host = request.partition("Host: ")[2].partition("\r\n")[0]
    note = {"id": 1, "system": False, "author": {"username": "a"}, "user": {"login": "a"}, "body": "", "html_url": "x"}
    place, _, number = path.partition("?page=")
    link = f'<http://{host}{place.partition("?")[0]}?page={int(number or 1) + 1}>; rel="next"'
    reply(connection, json.dumps([note] * 100), Link=link)


def comments(*notes: object) -> Answer:
    """A thread that holds these comments; each names the author of both hosts."""
    author = {"author": {"username": "bot"}, "user": {"login": "bot"}, "system": False}
    rows = json.dumps([author | note if isinstance(note, dict) else note for note in notes])
    return lambda connection, request: reply(
        connection, rows if any(word in request.split()[1] for word in ("comments", "notes")) else ME
    )


MARKED = "<!-- gpu-advisor default e30= -->"
ANSWERS: dict[str, Answer] = {
    "numbers that are texts": comments({"id": "a", "body": MARKED}, {"id": 2, "body": MARKED}),
    "no numbers": comments({"id": None, "body": MARKED}),
    "texts that are numbers": comments({"id": 1, "body": 5}),
    "a limit without end": lambda connection, _: reply(
        connection, '{"message": "rate limit"}', "403 No", X_RateLimit_Reset="1" + "0" * 400
    ),
    "another aeon": lambda c, _: reply(c, "", "503 No", Retry_After="Fri, 31 Dec 99999999999 23:59:59 GMT"),
    "an eternal cookie": lambda connection, _: reply(connection, "[]", Set_Cookie="a=b; Max-Age=" + "9" * 400),
    "what it was sent": lambda connection, request: reply(
        connection, json.dumps({"message": request[:4000]}), "422 No"
    ),
    "null": saying("null"),
    "nothing": saying(""),
    "a list": saying("[]"),
    "a number": saying("17"),
    "half": saying('{"data": '),
    "nulls": saying('{"data": null, "username": null, "viewer": null}'),
    "another kind": saying('{"data": {"viewer": [1]}, "users": []}'),
    "deep": saying("[" * 100_000),
    "HTML": lambda connection, _: reply(connection, "<html>Sign in</html>", Content_Type="text/html"),
    "HTML 500": lambda connection, _: reply(connection, "<html>", "500 No", Content_Type="text/html"),
    "no HTTP": lambda connection, _: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "a hang-up": lambda connection, _: connection.close(),
    "silence": lambda connection, _: connection.recv(1),
    "no end": endless,
    "a slow head": slow_head,
    "a slow body": slow_body,
    "a circle": in_a_circle,
    "endless pages": pages,
}


def told(kind: str, url: str, token: str = SECRET) -> HostError:
    where = Target(kind=kind, api_url=url, repo="octo/train", token=token, number=7, commit="a" * 40)
    with pytest.raises(HostError) as caught:
        list(deliver(Message("same", lambda _: "### same\n", failed=False), where, Order(), QUICK))
    assert caught.value.exit_code == 5
    return caught.value


def test_a_secret_in_the_hosts_own_words_is_not_told():
    words = json.dumps({"message": "proxy refused password=kL9mN2pQ8r"})
    with serving(lambda connection, _: reply(connection, words, "422 No")) as (url, _):
        said = str(told("github", url))
    assert "proxy refused password=xxxxxxxxxx" in said


def with_token(words: str) -> Answer:
    """An answer that repeats the token in the place of `{}`, of which `{:.8}` is the first eight letters."""

    def answer(connection: socket.socket, request: str) -> None:
        sent = next(line for line in request.split("\r\n") if line.startswith(("Authorization", "PRIVATE-TOKEN")))
        connection.sendall(words.format(sent.split()[-1]).encode())

    return answer


@pytest.mark.parametrize("kind", ["github", "gitlab"])
@pytest.mark.parametrize(
    "words",
    [
        *("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}\r\nabc", "HTTP/1.1 {} x\r\n\r\n", "{:.8}\r\n\r\n"),
        *("HTTP/1.1 422 {0:.8}\u200b{0}\r\nContent-Length: 0\r\n\r\n",),
        "HTTP/1.1 302 x\r\nLocation: https://{}.example/\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_no_piece_of_a_token_that_a_host_sends_back_is_told(kind, words):
    with serving(with_token(words)) as (url, got):
        said = str(told(kind, url))
    assert got
    assert not any(SECRET[at : at + 6] in said for at in range(len(SECRET) - 5))


def test_a_host_that_sends_much_costs_little_memory():
    size = 17 << 20

    def answer(connection: socket.socket, _: str) -> None:
        reply(connection, b"[" + b"[]," * (size // 3) + b"1]")

    with serving(answer) as (url, _):
        assert "its answer is larger than 16 MiB" in str(told("gitlab", url))


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_token_with_a_line_break_at_its_end_is_sent_without_it_and_one_within_is_not_told(kind):
    with serving(saying(ME)) as (url, got):
        told(kind, url, f" {SECRET}\r\n")
        assert f"{SECRET}\r\n" in got[0]
        where = Target(kind=kind, api_url=url, repo="octo/train", token=f"{SECRET}\nX", number=7)
        with pytest.raises(UsageError, match=r"^GIT(?:HUB|LAB)_TOKEN is no token: it has blanks or control characters"):
            list(deliver(Message("same", lambda _: "### same\n", failed=False), where, Order(), QUICK))


@pytest.mark.parametrize("kind", ["github", "gitlab"])
@pytest.mark.parametrize("answer", every(2, ANSWERS))
def test_a_wrong_answer_is_one_sentence_in_time(kind, answer):
    with serving(ANSWERS[answer]) as (url, _):
        begin = time.monotonic()
        said = str(told(kind, url))
        took = time.monotonic() - begin
    assert took < 30  # a bound on hanging, not on speed
    assert len(said) > 20
    assert "\n" not in said
    assert SECRET not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("answer", [slow_head, slow_body])
def test_one_slow_request_does_not_take_the_time_of_all(answer, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "QUICK", QUICK._replace(answer_s=0.3, total_s=60.0))
    with serving(answer) as (url, _):
        begin = time.monotonic()
        assert "was not done after" in str(told("github", url))
        assert time.monotonic() - begin < 10


@pytest.mark.parametrize("kind", ["github", "gitlab"])
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_token_never_follows_a_redirect_to_another_host(kind, status):
    with serving(saying(ME)) as (other, got):
        away = lambda connection, _: reply(connection, "", status, Location=f"{other}/api/v4/user")  # noqa: E731
        with serving(away) as (url, asked):
            said = str(told(kind, url))
    assert asked
    assert not got
    assert f"points to {other}, which the token is not meant for; give that address with --api-url" in said


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_token_never_follows_a_link_to_another_hosts_page(kind):
    with serving(saying("[]")) as (other, got):

        def first(connection: socket.socket, request: str) -> None:
            if "comments" in request.split()[1] or "notes" in request.split()[1]:
                reply(connection, "[]", Link=f'<{other}/next>; rel="next"')
            else:
                reply(connection, ME)

        with serving(first) as (url, _):
            told(kind, url)
    assert not got


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_page_that_is_its_own_next_one_is_the_last(kind):
    asked = list[str]()

    def answer(connection: socket.socket, request: str) -> None:
        asked.append(request.split(maxsplit=2)[1])
        host = request.partition("Host: ")[2].partition("\r\n")[0]
        is_list = "comments" in asked[-1] or "notes" in asked[-1]
        link = {"Link": f'<http://{host}{asked[-1]}>; rel="next"'} if is_list else {}
        reply(connection, "[]" if is_list else ME, **link)

    with serving(answer) as (url, _):
        told(kind, url)
    assert len(asked) < 6


def test_the_address_of_a_comment_is_told_on_one_line():
    note = {"id": 1, "user": {"login": "bot"}, "body": "", "html_url": "x\n::error::y"}

    def answer(connection: socket.socket, request: str) -> None:
        path = request.split()[1]
        made = json.dumps(note) if request.startswith("POST") else "[]"
        reply(connection, made if "comments" in path else ME)

    with serving(answer) as (url, _):
        where = Target(kind="github", api_url=url, repo="octo/train", token=SECRET, number=7)
        (notice,) = deliver(Message("same", lambda _: "### same\n"), where, Order(), QUICK)
    assert "created x ::error::y" in notice.line


def test_a_redirect_to_another_protocol_of_the_host_is_refused():
    with serving(lambda c, _: reply(c, "", "301 Moved", Location="https://127.0.0.1/api/v4/user")) as (url, _):
        assert "points to https://127.0.0.1:443" in str(told("gitlab", url))


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_no_other_password_goes_beside_the_token_nor_after_a_redirect(kind, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("default login me password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    def answer(connection: socket.socket, request: str) -> None:
        away = {} if "?again" in request.split()[1] else {"Location": f"{request.split()[1]}?again"}
        reply(connection, ME, "307 Temporary" if away else "200 OK", **away)

    with serving(answer) as (url, got):
        told(kind, url.replace("//", "//me:other@"))
    assert len(got) > 1
    assert all(f"{SECRET}\r\n" in request and "Basic " not in request for request in got)


def test_a_proxy_of_the_environment_is_asked(monkeypatch):
    with serving(saying(ME)) as (url, got):
        monkeypatch.setenv("http_proxy", url)
        told("github", "http://github.test")
    assert got[0].startswith("POST http://github.test/graphql")
