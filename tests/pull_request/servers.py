"""GitHub and GitLab as far as the bot needs them: with memory, limits, pages, rights and bad days."""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]
WHEN = "2026-01-02T03:04:05Z"
BAD_GATEWAY: Answer = (502, {"message": "Bad Gateway"})
SECONDARY: Answer = (403, {"message": "You have exceeded a secondary rate limit. Please wait a few minutes."})
SECONDARY_WITH_A_TIME: Answer = (*SECONDARY, {"Retry-After": "0"})
READ_ONLY: Answer = (403, {"message": "Resource not accessible by integration", "documentation_url": "https://d"})


def primary(reset: int) -> Answer:
    return 403, {"message": "API rate limit exceeded for installation."}, {"X-RateLimit-Reset": str(reset)}


@dataclass
class Server:
    """Answers requests one by one from its memory; `faults` come first, each once, to those like `POST /comments`."""

    tokens: dict[str, str]  # token to login
    read_only: set[str] = field(default_factory=set)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    faults: deque[tuple[str, Answer]] = field(default_factory=deque)
    requests: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[str, str], object] = lambda _method, _path: None
    base: str = ""
    url: str = ""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1000
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body leave together: apart, each answer would wait 40 ms for an acknowledgement

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                owner.before(self.command, self.path)
                with owner._lock:
                    answer = owner.answer(self.command, self.path, dict(self.headers), body)
                status, content, headers = (*answer, {})[:3]
                data = b"" if content is None else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json; charset=utf-8", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        for method in ("GET", "POST", "PATCH", "PUT", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.do)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.own_url = f"http://127.0.0.1:{self._http.server_port}"
        self.url = self.url or self.own_url
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        self.requests.append((method, target))
        for at, (wanted, fault) in enumerate(self.faults):
            verb, _, part = wanted.partition(" ")
            if verb == method and part in target:
                del self.faults[at]
                return fault
        token = next((v.rpartition(" ")[2] for k, v in headers.items() if k.lower() in self.token_headers), "")
        if token not in self.tokens:
            return 401, {"message": "Bad credentials"}
        split = urlsplit(target)
        path = unquote(split.path.removeprefix(self.base))
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        sent = json.loads(body) if body else {}
        if token in self.read_only and method != "GET" and path not in self.open_to_all:
            return self.refused
        for (wanted, pattern), respond in self.routes().items():
            found = re.fullmatch(pattern, path)
            if wanted == method and found:
                return respond(self.tokens[token], query, sent, *map(_number, found.groups()))
        return 404, {"message": f"Not Found: {method} {path}"}

    def writes(self) -> list[str]:
        return [f"{method} {path}" for method, path in self.requests if method != "GET" and "graphql" not in path]

    def fresh(self) -> int:
        self._next += 1
        return self._next

    def page(self, rows: list[Any], query: dict[str, str], path: str) -> Answer:
        size, at = min(int(query.get("per_page", 30)), 100), int(query.get("page", 1))
        more = at * size < len(rows)
        following = f"{self.url}{self.base}{path}?per_page={size}&page={at + 1}"
        headers = {"Link": f'<{following}>; rel="next"'} if more else {}
        headers |= {"X-Next-Page": str(at + 1) if more else "", "X-Page": str(at), "X-Per-Page": str(size)}
        return 200, rows[(at - 1) * size : at * size], headers


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


class GitHub(Server):
    token_headers = frozenset({"authorization"})
    open_to_all = frozenset({"/graphql"})
    refused = READ_ONLY
    repo = "/repos/octo/train"

    def routes(self):
        comments, comment = rf"{self.repo}/issues/(\d+)/comments", rf"{self.repo}/issues/comments/(\d+)"
        return {
            ("POST", "/graphql"): lambda me, _q, _s: (200, {"data": {"viewer": {"login": me}}}),
            ("GET", comments): self.list_comments,
            ("POST", comments): self.add_comment,
            ("PATCH", comment): self.edit_comment,
            ("DELETE", comment): self.delete_comment,
            ("POST", rf"{self.repo}/statuses/(\w+)"): self.add_status,
            ("POST", rf"{self.repo}/check-runs"): self.add_run,
            ("PATCH", rf"{self.repo}/check-runs/(\d+)"): self.edit_run,
            ("GET", rf"{self.repo}/pulls"): self.list_pulls,
        }

    def list_comments(self, _me, query, _sent, number):
        rows = [c for c in self.comments.values() if c["issue_url"].endswith(f"/{number}")]
        return self.page(rows, query, f"{self.repo}/issues/{number}/comments")

    def add_comment(self, me, _query, sent, number):
        if (wrong := self.wrong(sent)) is not None:
            return wrong
        made = self.say(me, sent["body"], number)
        return 201, made

    def edit_comment(self, me, _query, sent, which):
        if which not in self.comments:
            return 404, {"message": "Not Found"}
        if self.comments[which]["user"]["login"] != me:
            return READ_ONLY
        if (wrong := self.wrong(sent)) is not None:
            return wrong
        self.comments[which]["body"] = sent["body"]
        return 200, self.comments[which]

    def delete_comment(self, me, _query, _sent, which):
        if which not in self.comments:
            return 404, {"message": "Not Found"}
        if self.comments[which]["user"]["login"] != me:
            return READ_ONLY
        del self.comments[which]
        return 204, None

    def wrong(self, sent):
        body = sent.get("body")
        if not isinstance(body, str) or not body:
            return 422, {"message": "Validation Failed"}
        if len(body) > 65_536:
            return 422, {"message": "Validation Failed: body is too long (maximum is 65536 characters)"}
        return None

    def say(self, author: str, body: str, number: int = 7) -> dict[str, Any]:
        which = self.fresh()
        api = f"{self.url}{self.base}"
        self.comments[which] = {
            "id": which,
            "node_id": f"IC_{which}",
            "url": f"{api}{self.repo}/issues/comments/{which}",
            "html_url": f"https://github.test/octo/train/pull/{number}#issuecomment-{which}",
            "issue_url": f"{api}{self.repo}/issues/{number}",
            "body": body,
            "user": self.user(author),
            "created_at": WHEN,
            "updated_at": WHEN,
            "author_association": "NONE",
        }
        return self.comments[which]

    def user(self, login: str) -> dict[str, Any]:
        api = f"{self.url}{self.base}/users/x"
        links = "followers_url following_url gists_url starred_url subscriptions_url organizations_url repos_url"
        return {
            "login": login,
            "id": 41898282,
            "node_id": "MDM6Qm90",
            "avatar_url": "https://avatars.test/u/1",
            "gravatar_id": "",
            "url": api,
            "html_url": "https://github.test/x",
            **dict.fromkeys([*links.split(), "events_url", "received_events_url"], api),
            "type": "Bot" if login.endswith("[bot]") else "User",
            "site_admin": False,
        }

    def add_status(self, me, _query, sent, sha):
        if sent.get("state") not in {"error", "failure", "pending", "success"}:
            return 422, {"message": "Validation Failed: state"}
        if len(sent.get("description") or "") > 140:
            return 422, {"message": "Validation Failed: description is too long (maximum is 140 characters)"}
        which = self.fresh()
        made = {
            "url": f"{self.url}{self.base}{self.repo}/statuses/{sha}",
            "avatar_url": None,
            "id": which,
            "node_id": f"S_{which}",
            "state": sent["state"],
            "description": sent.get("description"),
            "target_url": sent.get("target_url"),
            "context": sent.get("context", "default"),
            "created_at": WHEN,
            "updated_at": WHEN,
            "creator": self.user(me),
        }
        self.statuses.append({**made, "sha": sha})
        return 201, made

    def add_run(self, _me, _query, sent):
        if (wrong := self.wrong_run(sent)) is not None:
            return wrong
        which = self.fresh()
        self.runs[which] = {**sent, "id": which, "annotations": list(sent["output"].get("annotations", []))}
        return 201, self.run(which)

    def edit_run(self, _me, _query, sent, which):
        if (wrong := self.wrong_run(sent)) is not None:
            return wrong
        self.runs[which]["annotations"] += sent["output"].get("annotations", [])
        return 200, self.run(which)

    def wrong_run(self, sent):
        output = sent.get("output", {})
        if len(output.get("annotations", [])) > 50:
            return 422, {"message": "Invalid request. No more than 50 annotations"}
        if len(output.get("summary", "")) > 65_535 or not output.get("title"):
            return 422, {"message": "Invalid request. summary"}
        return None

    def run(self, which: int) -> dict[str, Any]:
        kept, api = self.runs[which], f"{self.url}{self.base}{self.repo}"
        return {
            "id": which,
            "head_sha": kept["head_sha"],
            "node_id": f"CR_{which}",
            "external_id": None,
            "url": f"{api}/check-runs/{which}",
            "html_url": None,
            "details_url": None,
            "status": "completed",
            "conclusion": kept["conclusion"],
            "started_at": WHEN,
            "completed_at": WHEN,
            "output": {
                "title": kept["output"]["title"],
                "summary": kept["output"]["summary"],
                "text": None,
                "annotations_count": len(kept["annotations"]),
                "annotations_url": f"{api}/check-runs/{which}/annotations",
            },
            "name": kept["name"],
            "check_suite": {"id": 1},
            "app": None,
            "pull_requests": [],
        }

    def list_pulls(self, _me, query, _sent):
        rows = [p for p in self.pulls if p["head"]["label"] == query.get("head") and p["state"] == query.get("state")]
        return self.page(rows, query, f"{self.repo}/pulls")

    def pull(self, number: int, label: str, sha: str) -> None:
        head = {"label": label, "sha": sha, "ref": label.partition(":")[2]}
        url = f"{self.url}{self.base}{self.repo}/pulls/{number}"
        self.pulls.append({"number": number, "state": "open", "head": head, "url": url})


class GitLab(Server):
    token_headers = frozenset({"private-token"})
    open_to_all = frozenset[str]()
    refused = (403, {"message": "403 Forbidden"})

    def routes(self):
        notes = r"/api/v4/projects/([^/]+(?:/train)?)/merge_requests/(\d+)/notes"
        return {
            ("GET", "/api/v4/user"): lambda me, _q, _s: (200, {"id": 1, "username": me}),
            ("GET", notes): self.list_notes,
            ("POST", notes): self.add_note,
            ("PUT", rf"{notes}/(\d+)"): self.edit_note,
            ("DELETE", rf"{notes}/(\d+)"): self.delete_note,
            ("POST", r"/api/v4/projects/([^/]+(?:/train)?)/statuses/(\w+)"): self.add_status,
        }

    def list_notes(self, _me, query, _sent, project, number):
        rows = [n for n in self.comments.values() if n["noteable_iid"] == number]
        return self.page(rows, query, f"/api/v4/projects/{project}/merge_requests/{number}/notes")

    def add_note(self, me, _query, sent, _project, number):
        if (wrong := self.wrong(sent)) is not None:
            return wrong
        return 201, self.say(me, sent["body"], number)

    def edit_note(self, me, _query, sent, _project, _number, which):
        if which not in self.comments:
            return 404, {"message": "404 Not found"}
        if self.comments[which]["author"]["username"] != me:
            return self.refused
        if (wrong := self.wrong(sent)) is not None:
            return wrong
        self.comments[which]["body"] = sent["body"]
        return 200, self.comments[which]

    def delete_note(self, me, _query, _sent, _project, _number, which):
        if which not in self.comments:
            return 404, {"message": "404 Not found"}
        if self.comments[which]["author"]["username"] != me:
            return self.refused
        del self.comments[which]
        return 204, None

    def wrong(self, sent):
        body = sent.get("body")
        if not body or len(body.encode()) > 1_048_576:
            return 400, {"message": {"note": ["is too long (1 MiB)."]}}
        return None

    def say(self, author: str, body: str, number: int = 7, *, system: bool = False) -> dict[str, Any]:
        which = self.fresh()
        note = {"id": which, "body": body, "author": {"username": author}, "system": system, "noteable_iid": number}
        self.comments[which] = note
        return note

    def add_status(self, _me, _query, sent, _project, sha):
        if sent.get("state") not in {"pending", "running", "success", "failed", "canceled", "skipped"}:
            return 400, {"message": "state does not have a valid value"}
        self.statuses.append({**sent, "sha": sha})
        return 201, {"id": self.fresh(), "sha": sha, **sent}
