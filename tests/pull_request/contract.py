"""GitHub's own description of its API as a proxy that refuses whatever departs from it, requests and answers alike."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("@octokit/openapi@23.0.2", "@stoplight/prism-cli@5.14.2")
PATHS = (
    "/repos/{owner}/{repo}/issues/{issue_number}/comments",
    "/repos/{owner}/{repo}/issues/comments/{comment_id}",
    "/repos/{owner}/{repo}/statuses/{sha}",
    "/repos/{owner}/{repo}/check-runs",
    "/repos/{owner}/{repo}/check-runs/{check_run_id}",
)
# Not part of the REST description; only that it is asked with a query.
GRAPHQL = {
    "post": {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object", "required": ["query"]}}},
        },
        "responses": {"200": {"description": "data", "content": {"application/json": {"schema": {"type": "object"}}}}},
    }
}


def installed() -> Path:
    """The folder of the npm packages, kept between runs; skips where they cannot be had."""
    npm = shutil.which("npm")
    if not npm:
        pytest.skip("npm is not installed: the contract check needs @octokit/openapi and @stoplight/prism-cli")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-advisor-tests"
    home = cache / hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    if not (home / "excerpt.json").exists():
        partial = home.with_name(f"{home.name}.{os.getpid()}")
        partial.mkdir(parents=True)
        words = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(partial), *PACKAGES]
        try:
            done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=240)
            if done.returncode:
                pytest.skip(f"npm cannot install {' and '.join(PACKAGES)}: {done.stderr.strip()[-200:]}")
            described = partial / "node_modules/@octokit/openapi/generated"
            (partial / "excerpt.json").write_text(json.dumps(excerpt(described / "api.github.com.json")))
            shutil.rmtree(described)  # 380 MB
            with suppress(OSError):  # another checkout was first
                partial.rename(home)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not install the packages within 240 s")
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return home


def excerpt(path: Path) -> dict[str, Any]:
    """The paths that the bot uses, and all that they refer to."""
    whole = json.loads(path.read_text())
    kept: dict[str, Any] = {
        "openapi": whole["openapi"],
        "info": whole["info"],
        "paths": {name: whole["paths"][name] for name in PATHS} | {"/graphql": GRAPHQL},
        "components": {},
    }
    pending = list(references(kept["paths"]))
    while pending:
        kind, name = pending.pop().removeprefix("#/components/").split("/", 1)
        room = kept["components"].setdefault(kind, {})
        if name not in room:
            room[name] = whole["components"][kind][name]
            pending += references(room[name])
    return kept


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


@contextmanager
def proxy(upstream: str) -> Iterator[str]:
    """The address of a validating proxy before `upstream`: 422 for a wrong request, 500 for a wrong answer."""
    home = installed()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    prism = home / "node_modules/.bin/prism"
    words = [
        str(prism),
        "proxy",
        str(home / "excerpt.json"),
        upstream,
        "--errors",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    log = home / f"prism.{port}.log"
    with log.open("w") as out:
        running = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        until(lambda: "Prism is listening" in log.read_text(), running, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(20)
        log.unlink()


def until(ready, running: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if running.poll() is not None or time.monotonic() > end:
            pytest.fail(f"prism does not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)
