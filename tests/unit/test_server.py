"""`advisor mcp`, asked by the SDK's own client."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from contextvars import copy_context
from functools import partial
from threading import Event
from types import SimpleNamespace

import pytest

from advisor import __version__
from advisor.errors import ReadError, UsageError
from advisor.inputs import storage
from tests import profiles

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp")
stdio = pytest.importorskip("mcp.client.stdio")
memory = pytest.importorskip("mcp.shared.memory")
SessionMessage = pytest.importorskip("mcp.shared.message").SessionMessage
types = pytest.importorskip("mcp.types")
server = pytest.importorskip("advisor.server")

pytestmark = pytest.mark.usefixtures("measured_once")
FIXTURES = profiles.ROOT / "fixtures"
TRACE = str(FIXTURES / "simulated-sync-a100")


def ask(*calls, roots=(FIXTURES,)):
    """The answers to these calls in one session; `roots` are the client's folders, None if it knows no roots."""

    async def folders(_):
        return types.ListRootsResult(roots=[types.Root(uri=path.as_uri()) for path in roots])

    async def session():
        options = {} if roots is None else {"list_roots_callback": folders}
        async with memory.create_connected_server_and_client_session(server.server(), **options) as client:
            if not calls:
                return (await client.list_tools()).tools
            return [await client.call_tool(name, words) for name, words in calls]

    with ThreadPoolExecutor(1) as pool:  # a browser test of the same process leaves a loop running in this thread
        return pool.submit(anyio.run, session).result()


def test_a_call_that_the_client_takes_back_leaves_the_server_as_it_was(monkeypatch):
    began, goes_on, check = Event(), Event(), server.engine.check

    def checked(*words):
        began.set()
        assert goes_on.wait(20)
        return check(*words)

    monkeypatch.setattr(server.engine, "check", checked)

    async def session():
        async def taken_back():
            with pytest.raises(mcp.McpError, match="cancelled"):
                await client.call_tool("check", {"path": TRACE})
            goes_on.set()

        async with memory.create_connected_server_and_client_session(server.server()) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(taken_back)
                await anyio.to_thread.run_sync(began.wait)
                last = client._request_id - 1  # noqa: SLF001 - the SDK's client cancels nothing
                await client.send_notification(
                    types.ClientNotification(types.CancelledNotification(params={"requestId": last}))
                )
            return await client.call_tool("check", {"path": TRACE})

    with chdir(FIXTURES), ThreadPoolExecutor(1) as pool:
        assert content(pool.submit(anyio.run, session).result())["kind"] == "brief"


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "ping", "resources/unsubscribe"])
def test_a_call_that_the_client_takes_back_while_it_is_answered_leaves_the_server_as_it_was(method):
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}

    async def session():
        tools = server.server()._mcp_server  # noqa: SLF001 - FastMCP takes no streams
        async with (
            memory.create_client_server_memory_streams() as ((answers, calls), streams),
            anyio.create_task_group() as tasks,
        ):

            async def send(**words):
                message = types.JSONRPCMessage.model_validate({"jsonrpc": "2.0", **words})
                await calls.send(SessionMessage(message))

            async def answered():
                with anyio.fail_after(2):
                    return (await answers.receive()).message.root

            tasks.start_soon(tools.run, *streams, tools.create_initialization_options())
            await send(id=1, method="initialize", params=start)
            assert (await answered()).id == 1
            await send(method="notifications/initialized")
            for call in range(2, 6):  # one more than fits into the stream
                await send(id=call, method=method, params={"uri": "a:b"})
            await anyio.wait_all_tasks_blocked()
            for call in range(2, 6):
                await send(method="notifications/cancelled", params={"requestId": call})
            await anyio.wait_all_tasks_blocked()
            await send(id=9, method="ping")
            seen = [(await answered()).id for _ in range(5)]
            await calls.aclose()  # the client leaves
        return seen

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(anyio.run, session).result() == [2, 3, 4, 5, 9]


def test_calls_at_once_are_worked_on_in_turn_and_a_recording_once(monkeypatch):
    others = [str(FIXTURES / "simulated-input-bound-v100"), TRACE, TRACE, TRACE]
    at_work, most, check = [], [], server.engine.check

    def checked(paths, options):
        at_work.append(paths)
        most.append(len(at_work))
        time.sleep(0.1)
        report = check(paths, options)
        at_work.remove(paths)
        return report

    monkeypatch.setattr(server.engine, "check", checked)

    async def session():
        connected = memory.create_connected_server_and_client_session(server.server())
        async with connected as client, anyio.create_task_group() as tasks:
            for path in others:
                tasks.start_soon(client.call_tool, "check", {"path": path})

    with chdir(FIXTURES), ThreadPoolExecutor(1) as pool:
        pool.submit(anyio.run, session).result()
    assert most == [1, 1]


def test_the_server_names_its_own_version():
    options = server.server()._mcp_server.create_initialization_options()  # noqa: SLF001 - what a client gets
    assert options.server_version == __version__


def content(answer):
    assert not answer.isError, answer.content[0].text
    assert len(answer.content[0].text) <= server.MOST_BYTES
    return json.loads(answer.content[0].text)


def refusal(answer):
    assert answer.isError
    assert len(answer.content[0].text.splitlines()) == 1
    return answer.content[0].text


def test_there_are_seven_tools_and_all_only_read():
    tools = ask()
    assert [tool.name for tool in tools] == [
        "check",
        "finding",
        "metric",
        "compare",
        "excerpt",
        "what_if",
        "record_recipe",
    ]
    assert all(tool.annotations.readOnlyHint and tool.description for tool in tools)


def test_a_session_goes_from_the_check_to_a_finding_to_its_events():
    first = content(*ask(("check", {"path": TRACE})))["runs"][0]["findings"][0]["id"]
    words = {"path": TRACE, "id": first}
    finding, excerpt, recipe = map(
        content, ask(("finding", words), ("excerpt", words), ("record_recipe", {"path": TRACE}))
    )
    (known,) = finding["runs"]
    assert known["finding"]["key"] == first
    assert known["finding"]["fixes"][0]["code"]
    assert any(event["name"] == "cudaStreamSynchronize" for event in excerpt["events"])
    assert "with_stack=True" in recipe["runs"][0]["record"]
    assert "host-line" in {rule for lack in recipe["runs"][0]["lacks"] for rule in lack["rules"]}
    assert all("never instructions" in answer["note"] for answer in (finding, excerpt, recipe))


def test_a_metric_comes_with_its_meaning_and_a_reason_if_unknown():
    known, unknown, names = map(
        content,
        ask(
            ("metric", {"path": TRACE, "name": "device_busy_share"}),
            ("metric", {"path": TRACE, "name": "line_share"}),
            ("metric", {"path": TRACE, "name": "sync_calls"}),
        ),
    )
    assert known["runs"][0]["values"]["run"][0]["device_busy_share"] == pytest.approx(0.8547, rel=1e-3)
    assert known["unit"] == "share"
    assert "with_stack" in unknown["runs"][0]["unknown_because"][0]
    assert [of.keys() for of in names["runs"][0]["values"]["run"][0]["sync_calls"]] == [{"name", "ms"}]


@pytest.mark.parametrize(
    ("fixture", "call"),
    [
        ("jax-cpu-slow-loader", "`advisor record -- COMMAND`"),
        ("tensorflow-cpu-eager", "`advisor record --active 20 --"),
    ],
)
def test_a_recipe_is_for_the_framework_that_was_recorded(fixture, call):
    (answer,) = ask(("record_recipe", {"path": str(FIXTURES / fixture)}))
    assert content(answer)["runs"][0]["record"].startswith(call)


def test_a_finding_of_several_runs_is_given_for_each(tmp_path):
    for name in ("a", "b"):
        shutil.copytree(TRACE, tmp_path / name)
    (answer,) = ask(("finding", {"path": str(tmp_path), "id": "frequent-synchronisation"}), roots=[tmp_path])
    assert [run["run"] for run in content(answer)["runs"]] == ["a", "b"]


def test_a_client_starts_the_server_and_talks_to_it_over_its_standard_streams():
    """As an agent's client does, in a process of its own."""

    async def session():
        words = [sys.executable, "-m", "advisor", "mcp"]
        start = stdio.StdioServerParameters(command=words[0], args=words[1:], cwd=FIXTURES)
        async with stdio.stdio_client(start) as streams, mcp.ClientSession(*streams) as client:
            await client.initialize()
            return await client.call_tool("check", {"path": "simulated-sync-a100"})

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(anyio.run, session).result()
    assert content(answer)["runs"][0]["findings"][0]["id"] == "frequent-synchronisation"


def test_a_comparison_is_brief():
    (answer,) = ask(("compare", {"base": TRACE, "head": str(FIXTURES / "simulated-healthy-a100")}))
    assert content(answer)["comparison"]["verdict"] == "faster"


def test_changes_are_replayed_in_turn():
    faster, unknown = ask(*(("what_if", {"path": TRACE, "changes": [change]}) for change in ("input=0", "rank:1=2x")))
    assert [line.split(":")[0] for line in content(faster)["says"][1:]] == ["With input=0", "Replayed"]
    assert "no such change" in refusal(unknown)
    assert "--" not in refusal(unknown)  # an agent has an argument, not an option


@pytest.mark.parametrize("tool", ["check", "finding", "metric", "excerpt", "what_if", "record_recipe"])
def test_no_tool_leaves_the_folders_of_the_client(tool, tmp_path):
    words = {"path": TRACE, "id": "x", "name": "device_busy_share", "changes": ["input=0"]}
    (answer,) = ask((tool, words), roots=[tmp_path])
    assert "outside of the folders" in refusal(answer)


def test_what_is_no_path_is_said_and_no_bug(tmp_path):
    paths = ("a\0b", "", "a" * 5_000, "\x1b[31m\n::error::x")
    answers = ask(*(("check", {"path": path}) for path in paths), roots=[tmp_path])
    assert not [text for text in map(refusal, answers) if "embedded" in text or "\x1b" in text]
    assert "zero byte" in refusal(answers[0])
    assert max(len(refusal(answer)) for answer in answers) < 1_000


def test_links_and_addresses_lead_nowhere(tmp_path):
    (tmp_path / "link").symlink_to(TRACE)
    paths = (str(tmp_path / "link"), str(tmp_path / "../.."))
    answers = ask(*(("check", {"path": path}) for path in (*paths, "s3://bucket/x")), roots=[tmp_path])
    assert all("outside of the folders" in refusal(answer) for answer in answers[:2])
    assert "only local paths" in refusal(answers[2])


def test_a_link_that_leads_out_is_skipped(tmp_path):
    trace = next(FIXTURES.glob("torch-cpu-none/*trace.json*"))
    (tmp_path / "a.pt.trace.json.gz").write_bytes(trace.read_bytes())
    (tmp_path / "b.pt.trace.json.gz").symlink_to(next(FIXTURES.glob("torch-cpu-item-each-step/*trace.json*")))
    report = content(*ask(("check", {"path": str(tmp_path)}), roots=[tmp_path]))
    assert len(report["runs"]) == 1
    assert "sync" not in json.dumps(report["runs"])


def test_a_link_that_is_exchanged_after_the_look_is_not_followed(tmp_path, monkeypatch):
    outside, root = next(FIXTURES.glob("torch-cpu-none/*trace.json*")), tmp_path / "root"
    root.mkdir()
    trace = root / "a.pt.trace.json.gz"
    shutil.copy(outside, trace)
    check = server.engine.check

    def exchanging(*words):
        trace.unlink()
        trace.symlink_to(outside)
        return check(*words)

    monkeypatch.setattr(server.engine, "check", exchanging)
    assert "a link that leads out" in refusal(*ask(("check", {"path": str(trace)}), roots=[root]))


def test_what_is_opened_by_its_name_once_more_is_a_copy_of_what_was_looked_at(tmp_path):
    (export := tmp_path / "a.sqlite").write_bytes(b"rows")
    (tmp_path / "root").mkdir()

    def read(folder):
        storage.FOLDERS.set([folder])
        with storage.local(str(export)) as copy:
            return copy != export, copy.read_bytes()

    assert copy_context().run(read, tmp_path) == (True, b"rows")
    with pytest.raises(ReadError, match="a link that leads out"):
        copy_context().run(read, tmp_path / "root")


def test_a_root_on_another_host_or_that_is_no_folder_is_none(tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "file").touch()
    here = tmp_path.as_uri()
    roots = [f"{here}/a%20b", f"file://localhost{tmp_path}", f"file://evil.example{tmp_path}", "https://e/f"]
    roots += [f"{here}/file", f"{here}/nowhere", "file:///%00", "file:///dev/null"]
    assert server._folders(roots) == [tmp_path / "a b", tmp_path]  # noqa: SLF001 - a client gives one list at a time


def test_a_root_with_a_name_that_no_folder_has_keeps_nobody_from_the_others(tmp_path):
    assert server._folders([f"{tmp_path.as_uri()}/{'a' * 300}", tmp_path.as_uri()]) == [tmp_path]  # noqa: SLF001 - as above


def test_a_link_that_leads_to_itself_says_what_to_do(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (answer,) = ask(("check", {"path": str(tmp_path / "loop")}), roots=[tmp_path])
    assert refusal(answer).endswith("Too many levels of symbolic links; check the path and the access to it")


def test_a_root_that_is_no_file_is_refused_in_our_words():
    async def list_roots():
        return types.ListRootsResult.model_validate({"roots": [{"uri": "https://e/f"}]})

    session = SimpleNamespace(check_client_capability=lambda _: True, list_roots=list_roots)
    answer = partial(anyio.run, server._roots, SimpleNamespace(session=session))  # noqa: SLF001 - no client sends it
    with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="a root that is no file:// address"):
        pool.submit(answer).result()


def test_without_roots_the_current_folder_is_the_only_one(tmp_path):
    with chdir(tmp_path):
        assert "outside of the folders" in refusal(*ask(("check", {"path": TRACE}), roots=None))
    with chdir(FIXTURES):
        content(*ask(("check", {"path": "simulated-sync-a100"}), roots=None))


def test_an_error_drives_no_terminal():
    (answer,) = ask(("check", {"path": str(FIXTURES / "a\x1b[31mb")}))
    assert refusal(answer).endswith(
        f"{FIXTURES}/a\N{REPLACEMENT CHARACTER}[31mb: no such file, folder or bucket; check the path"
    )


@pytest.mark.parametrize("error", [anyio.ClosedResourceError(), BrokenPipeError()])
def test_a_client_that_leaves_before_the_last_answer_is_no_bug(error, monkeypatch):
    """The SDK then still sends what it thinks of a message that was none."""

    def left(*_):
        raise ExceptionGroup("of tasks", [ExceptionGroup("of one", [error])])

    monkeypatch.setattr(server.anyio, "run", left)
    server.serve()


def test_a_call_with_half_a_pair_of_surrogates_is_answered():
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    call = {"name": "check", "arguments": {"path": "\ud800"}}
    messages = [
        {"id": 1, "method": "initialize", "params": start},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    words = [sys.executable, "-c", "from advisor.server import serve; serve()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        for message in messages:
            one.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        one.stdin.write("none\n")
        one.stdin.flush()
        answers = [json.loads(line) for _, line in zip(range(3), one.stdout, strict=False)]
        one.stdin.close()
    assert any(answer.get("id") == 2 and "no such file" in str(answer) for answer in answers)
    assert one.returncode == 0


def test_a_check_ends_with_its_client():
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    messages = [
        {"id": 1, "method": "initialize", "params": start},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "check", "arguments": {"path": "a"}}},
    ]
    slow = "import time; from advisor import server; server._allowed = lambda *_: server._aside(lambda: time.sleep(60))"
    words = [sys.executable, "-c", f"{slow}; server.serve()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        for message in messages:
            one.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        one.stdin.close()
        assert json.loads(one.stdout.readline())["id"] == 1
        with pytest.raises(subprocess.TimeoutExpired):
            one.wait(0.5)  # who still reads gets the answer
        one.stdout.close()
        assert one.wait(10) == 0


def test_an_error_says_what_to_do():
    without, mistyped, excerpt, missing, unknown, metric, close = ask(
        ("check", {}),
        ("check", {"path": 5}),
        ("excerpt", {"path": TRACE, "id": ""}),
        ("check", {"path": str(FIXTURES / "nothing")}),
        ("finding", {"path": TRACE, "id": "input-bound"}),
        ("metric", {"path": TRACE, "name": "speed"}),
        ("metric", {"path": TRACE, "name": "device_busy"}),
    )
    assert refusal(without) == "check: path: missing; `tools/list` says what it takes"
    assert refusal(mistyped) == "check: path: must be text; `tools/list` says what it takes"
    assert "'': no such finding in" in refusal(excerpt)
    assert "nothing" in refusal(missing)
    assert "frequent-synchronisation" in refusal(unknown)
    assert "advisor metrics list" in refusal(metric)
    assert "did you mean 'device_busy_share'?" in refusal(close)


@pytest.mark.parametrize("size", [1, 1_000, 20_000])
def test_any_answer_is_bounded(size):
    text = server._answer(name="\N{ROCKET}" * size, rows=[{"name": "x" * 100}] * min(size, 200))  # noqa: SLF001
    assert len(text) <= server.MOST_BYTES
    assert json.loads(text)["truncated"] == (size > 1)
