"""The check as tools for coding agents: a server of the Model Context Protocol on standard input and output."""

import io
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from operator import methodcaller
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlparse

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import mcp.shared.session
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.types import ClientCapabilities, RootsCapability, ToolAnnotations
from pydantic import ValidationError

from advisor import __version__, engine
from advisor.analysis.device.selection import select_steps
from advisor.errors import AdvisorError, UsageError, wrong_form
from advisor.inputs.discover import discover
from advisor.inputs.storage import FOLDERS, is_url, tidy
from advisor.inputs.storage import stamp as stamp_of
from advisor.metrics import METRICS
from advisor.model.brief import NOTE
from advisor.model.finding import Finding
from advisor.model.report import Report, Run
from advisor.options import Options
from advisor.present.next_recording import recording
from advisor.present.report import unknowns
from advisor.present.trials import sentences
from advisor.render import brief
from advisor.text import did_you_mean, one_line, plain, shortened
from advisor.whatif.scenario import scenario

Client = Context[ServerSession, None, Any]
_T = TypeVar("_T")
_Stamp = tuple[tuple[str, str], ...]

MOST_BYTES: Final = 20_000  # the size of an answer
_ITEMS: Final = (400, 200, 100, 50, 20, 10, 5, 2, 1)
_LETTERS: Final = 16  # of a text, per item that a list may have
_FEW_LETTERS: Final = 40
_KEEP: Final = 4
_ABSENCE: Final = Event()
_ONE_AT_A_TIME: Final = anyio.CapacityLimiter(1)  # two large recordings take twice the memory
_CLEARING_S: Final = 2.0
_THIS_MACHINE: Final = frozenset({"", "localhost"})
_READ: Final = ToolAnnotations(readOnlyHint=True, destructiveHint=False, idempotentHint=True, openWorldHint=False)
_INSTRUCTIONS: Final = (
    "Tells why a GPU job is slow, from profiles of PyTorch (Kineto), TensorFlow and JAX (XPlane) and Nsight Systems. "
    "Start with `check`. A saving is an interval: the truth should lie between its ends. What could not be told is no "
    f"good news: `record_recipe` says how to record it. {NOTE}"
)


async def _report(path: str, client: Client, known: dict[_Stamp, Report]) -> Report:
    """The report of the profiles under a path that the client may read; a known one of files that are as they were."""
    files, options = await _allowed(path, client), _options(client)

    def report() -> Report:
        stamp = tuple((str(file), stamp_of(str(file))[0]) for file in files)
        if stamp not in known:
            known[stamp] = engine.check([path], options)
        for earlier in [*known][:-_KEEP]:
            del known[earlier]
        return known[stamp]

    return await _aside(report)


class _Tools(FastMCP):  # they say on one line what is wrong with the words of a call
    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as the base
        try:
            return await super().call_tool(name, arguments)
        except ToolError as error:
            if isinstance(wrong := error.__cause__, ValidationError) and wrong.title == f"{name}Arguments":
                problem = one_line(wrong_form(wrong, "")[1], 200)
                raise UsageError(f"{name}: {problem}; `tools/list` says what it takes") from None
            raise


def server() -> FastMCP:
    """The server with its seven tools; all of them only read."""
    tools, known = _Tools("gpu-advisor", instructions=_INSTRUCTIONS, log_level="WARNING"), dict[_Stamp, Report]()
    tools._mcp_server.version = __version__  # noqa: SLF001 - FastMCP takes none, and would show the SDK's

    @tools.tool(annotations=_READ, structured_output=False)
    async def check(path: str, client: Client) -> str:
        """Why the profiled jobs under a file or folder are slow, what to change, and what it saves: JSON of 5 kB."""
        return brief.render(await _report(path, client, known))

    @tools.tool(annotations=_READ, structured_output=False)
    async def finding(path: str, id: str, client: Client) -> str:  # noqa: A002 - as the brief calls it
        """A finding of `check` in full, of each run that has it: evidence with thresholds, every fix, places."""
        runs = _runs_with(id, await _report(path, client, known))
        return _answer(runs=[{"run": run, "finding": each.model_dump(mode="json")} for run, each in runs])

    @tools.tool(annotations=_READ, structured_output=False)
    async def metric(path: str, name: str, client: Client) -> str:
        """A number of each run, worker and device, with unit, meaning and formula; null is unknown, with the reason."""
        if name not in METRICS:
            hint = did_you_mean(name, METRICS) or "; `advisor metrics list` prints all"
            raise UsageError(f"{one_line(name, 80)}: no such metric{hint}")
        values = [_values(run, name) for run in (await _report(path, client, known)).runs]
        about = METRICS[name]
        return _answer(metric=name, unit=about.unit, meaning=about.meaning, formula=about.formula, runs=values)

    @tools.tool(annotations=_READ, structured_output=False)
    async def compare(base: str, head: str, client: Client) -> str:
        """Whether the job under `head` is slower than the one under `base`, and why: JSON of 5 kB."""
        for path in (base, head):
            await _allowed(path, client)
        return brief.render(await _aside(partial(engine.compare, [base], [head], _options(client))))

    @tools.tool(annotations=_READ, structured_output=False)
    async def excerpt(path: str, id: str, client: Client) -> str:  # noqa: A002 - as the brief calls it
        """The events of the profile that show a finding, the longest first; times in microseconds of the recording."""
        await _allowed(path, client)
        trace = await _aside(partial(engine.excerpt, path, id, _options(client)))
        events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        longest = sorted(events, key=lambda event: -event["dur"])
        rows = [{key: event.get(key) for key in ("name", "cat", "ts", "dur", "pid", "tid")} for event in longest]
        return _answer(finding=id, events=rows)

    @tools.tool(annotations=_READ, structured_output=False)
    async def what_if(path: str, changes: list[str], client: Client) -> str:
        """What a step takes with changes in turn (`input=0`, `kernels:gemm=2x`, `link=2x`), and what paces it then."""
        await _allowed(path, client)
        options = _options(client)
        selection = await _aside(lambda: select_steps(engine.read(path, options), options.steps))
        return _answer(says=list(sentences(await _aside(partial(scenario, selection, changes)))))

    @tools.tool(annotations=_READ, structured_output=False)
    async def record_recipe(path: str, client: Client) -> str:
        """How to record the next profile, so that it answers what this one does not; `lacks` says what that was."""
        runs = (await _report(path, client, known)).runs
        lacks = [[{"why": why, "rules": rules} for why, rules in unknowns(run.not_evaluable)] for run in runs]
        each = zip(runs, lacks, strict=True)
        return _answer(runs=[{"run": run.name, "record": recording(run), "lacks": lack} for run, lack in each])

    return tools


def serve() -> None:
    """Answer on standard input and output until the client leaves."""
    try:
        anyio.run(_serve)
    except* (anyio.ClosedResourceError, anyio.BrokenResourceError, BrokenPipeError):  # it left before the last answer
        pass


async def _serve() -> None:
    tools = server()._mcp_server  # noqa: SLF001 - FastMCP takes no streams
    messages = anyio.wrap_file(_Messages(sys.stdin.buffer, encoding="utf-8", errors="replace"))
    async with stdio_server(messages) as (read, write):
        await tools.run(read, write, tools.create_initialization_options())


def _end_without_client() -> None:
    """Ends what still runs once nobody reads answers either: reading clears up first, other threads just stop."""
    answers = select.poll()
    answers.register(sys.stdout.fileno(), 0)
    answers.poll()
    _ABSENCE.set()
    time.sleep(_CLEARING_S)
    os._exit(0)


class _Call(mcp.shared.session.RequestResponder[Any, Any]):
    """A call with one answer: the SDK ends if one is taken back while it is answered, or answered once taken back."""

    async def respond(self, response: Any) -> None:  # noqa: ANN401 - as the base
        if not self._completed:
            self._on_complete(self)
            await super().respond(response)


mcp.shared.session.RequestResponder = _Call  # type: ignore[misc] # sessions of the SDK take no class


class _Messages(io.TextIOWrapper):
    """The client's messages, with `?` for half of a pair of surrogates: the SDK would not answer."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override] # of bytes, says the base
        line = super().readline(size)
        if not line:
            Thread(target=_end_without_client, daemon=True).start()
        with suppress(ValueError, RecursionError):
            return json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace").decode() + "\n"
        return line


async def _allowed(path: str, client: Client) -> list[Path]:
    """The files of the profiles under a path of the client's folders, links followed; else a UsageError.

    Links that lead out of the path are among what is rejected, also those that come to lead out later.
    """
    roots, path = await _roots(client), tidy(path)
    if is_url(path):
        raise UsageError(f"{one_line(path, 200)}: only local paths; copy the profile into a folder of the project")
    if not any(map(Path(os.path.realpath(path)).is_relative_to, roots)):  # noqa: ASYNC240 - as above; loops have an end
        allowed = ", ".join(map(str, roots)) or "none"
        raise UsageError(f"{one_line(path, 200)}: outside of the folders that the client gives: {allowed}")
    FOLDERS.set(roots)
    recordings, _ = await _aside(partial(discover, [path]))
    return [Path(path), *(Path(file) for run in recordings for of in (run, *run.logs) for file in of.files)]


async def _roots(client: Client) -> list[Path]:
    """The folders that the client gives; the current one if it gives none because it knows no roots."""
    if not client.session.check_client_capability(ClientCapabilities(roots=RootsCapability())):
        return [Path.cwd().resolve()]
    try:
        return _folders(str(root.uri) for root in (await client.session.list_roots()).roots)
    except ValidationError:
        raise UsageError("the client gives a root that is no file:// address; give folders of this machine") from None


def _folders(addresses: Iterable[str]) -> list[Path]:
    parts = map(urlparse, addresses)
    here = (part.path for part in parts if part.scheme == "file" and part.netloc in _THIS_MACHINE)
    return [Path(folder).resolve() for folder in map(unquote, here) if os.path.isdir(folder)]  # noqa: PTH112 - any name


def _runs_with(key: str, report: Report) -> list[tuple[str, Finding]]:
    """The name of each run that has this finding, or one that accounts for it, with that; else a UsageError."""
    each = [(run.name, finding) for run in report.runs for finding in run.findings]
    runs = [(run, known) for run, known in each if key in {known.key, *(s.rule for s in known.symptoms)}]
    if not runs:
        keys = list(dict.fromkeys(finding.key for _, finding in each))
        names = shortened(", ".join(keys) or "none", 2000)
        raise UsageError(f"{one_line(key, 80)}: not among the findings: {names}{did_you_mean(key, keys)}")
    return runs


def _values(run: Run, name: str) -> dict[str, Any]:
    reasons = [rule.missing[name].words for rule in run.not_evaluable if name in rule.missing]
    keys = ("worker", "device", "step", name)
    rows = {
        scope: [{key: row[key] for key in keys if key in row} for row in map(dict[str, Any], rows) if name in row]
        for scope, rows in run.metrics.items()
    }
    return {"run": run.name, "values": {s: r for s, r in rows.items() if r}, "unknown_because": reasons[:1]}


def _answer(**content: object) -> str:
    """The content as JSON of at most `MOST_BYTES`: long lists lose their end, long texts too."""
    complete = json.loads(json.dumps(content, default=methodcaller("model_dump")))
    for items in _ITEMS:
        cut = _cut(complete, items)
        text = json.dumps({"note": NOTE, "truncated": cut != complete, **cut})
        if len(text) <= MOST_BYTES:
            break
    return text


def _cut(value: Any, items: int) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return shortened(plain(value), max(_FEW_LETTERS, _LETTERS * items))
    if isinstance(value, dict):
        return {_cut(key, items): _cut(item, items) for key, item in value.items()}
    return [_cut(item, items) for item in value[:items]] if isinstance(value, list | tuple) else value


async def _aside(work: Callable[[], _T]) -> _T:
    """The result of work on another thread, in turn: the client is answered meanwhile. An error's text is plain."""
    try:
        return await anyio.to_thread.run_sync(work, limiter=_ONE_AT_A_TIME)
    except AdvisorError as error:
        raise UsageError(one_line(str(error))) from None


def _options(client: Client) -> Options:
    """Reports the bytes read to the client, from whichever thread reads."""
    read, loop = 0, anyio.lowlevel.current_token()

    def started(file: str) -> Callable[[int], object]:
        message = f"reads {one_line(Path(file).name, 100)}"

        def advance(count: int) -> None:
            nonlocal read
            if _ABSENCE.is_set():
                raise UsageError("the client has left")
            read += count
            anyio.from_thread.run(client.report_progress, read, None, message, token=loop)

        return advance

    return Options(progress=started)
