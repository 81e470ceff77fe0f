"""A small Chrome trace of the part of a recording that shows a finding, for Perfetto and chrome://tracing."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import polars as pl

from advisor.analysis.device.timeline import thread_names
from advisor.analysis.device.view import DeviceView
from advisor.inputs.secrets import masked_text
from advisor.model.finding import Finding
from advisor.model.profile import END_NS, Profile
from advisor.text import one_line

MOST_EVENTS: Final = 100_000  # the longest; what opens quickly in a viewer
_AROUND: Final = 2  # lengths of a place to show on both sides of it where no step encloses it
_LEAST_NS: Final = 1_000_000
_LONGEST: Final = 1000  # characters of a text
_FINDINGS_PID: Final = 1_000_000  # a number that no device and no host process of the excerpt bears
_HOST_PID: Final = 1000
_MOST_TID: Final = 1 << 31

Event = Mapping[str, Any]


def excerpt(profile: Profile, view: DeviceView, findings: Iterable[Finding], subject: Finding) -> dict[str, Any]:
    """The trace as a JSON object.

    The window is the step that holds the first place of the finding; where it names none, the longest used step; where
    no steps are marked, the place and as much again on both sides. `advisor.note` says where it names no place.

    Args:
        profile: What was read, with its events.
        view: The worker and device that the finding speaks of.
        findings: All findings of the run: those with a place in the window get a track of their own.
        subject: The finding to show, one of them; the window as a whole where it names no place.
    """
    start, end = window(view, subject)
    inside = (pl.col("start_ns") < end) & (start < END_NS)
    of_worker = pl.col("worker") == view.worker
    device = profile.device_ops.filter(of_worker, inside)
    host = profile.host_ops.filter(of_worker, inside)
    tids = _tids(host)
    # Perfetto drops what begins before 0, as what runs on from before the window would
    zero = min([start, *(int(ops["start_ns"].to_numpy().min()) for ops in (device, host) if ops.height)])
    events = [
        *_names(device, tids, thread_names(profile.threads.filter(of_worker))),
        *_findings(findings, subject, view.worker, (start, end), zero),
    ]
    room = max(0, MOST_EVENTS - device.height)
    events += _device(device.top_k(MOST_EVENTS, by="dur_ns").sort("start_ns"), zero)
    events += _host(host.top_k(room, by="dur_ns").sort("start_ns"), tids, zero)
    events += _flows(device, host, tids, zero)
    about = {
        "finding": subject.key,
        "worker": view.worker,
        "start_ns": start,
        "dur_ns": end - start,
        "ts": _us(start - zero),
    }
    if not any(place.worker == view.worker for place in subject.where):
        about["note"] = f"{subject.key} names no place in the recording; shown is {_instead(view)}"
    return {"traceEvents": events, "displayTimeUnit": "ms", "advisor": about}


def _instead(view: DeviceView) -> str:
    what = "the longest step used" if view.has_marks and view.steps.height else "the whole recording"
    return f"{what} of process {view.worker}" + ("" if view.device is None else f", device {view.device}")


def window(view: DeviceView, finding: Finding) -> tuple[int, int]:
    """Start and end of what to show, in ns on the profile's clock."""
    place = next((p for p in finding.where if p.worker == view.worker), None)
    steps = view.steps
    if place is not None:
        steps_there = steps.filter(pl.col("start_ns") < place.start_ns + max(place.dur_ns, 1), place.start_ns < END_NS)
        if view.has_marks and steps_there.height:
            return _span(steps_there.row(0, named=True))
        around = max(_AROUND * place.dur_ns, _LEAST_NS)
        return place.start_ns - around, place.start_ns + place.dur_ns + around
    if steps.height:
        return _span(steps.sort("dur_ns").row(-1, named=True))
    ranges = pl.concat([ops.select("start_ns", end_ns=END_NS) for ops in (view.ops, view.host)])
    return int(ranges["start_ns"].to_numpy().min()), int(ranges["end_ns"].to_numpy().max())


def _span(row: Mapping[str, int]) -> tuple[int, int]:
    return row["start_ns"], row["start_ns"] + row["dur_ns"]


def _safe(text: str) -> str:
    """A text of the recording, without secrets."""
    return one_line(masked_text(text), _LONGEST)


def _us(ns: int) -> float:
    return ns / 1000


def _meta(what: str, pid: int, name: str, tid: int | None = None) -> Event:
    return {"ph": "M", "name": what, "pid": pid, **({} if tid is None else {"tid": tid}), "args": {"name": name}}


def _tids(host: pl.DataFrame) -> dict[int, int]:
    """The number that each thread bears in the excerpt: its own, or its place where viewers cannot tell that number."""
    threads = sorted(host["thread"].unique().drop_nulls())
    return {thread: thread if 0 <= thread < _MOST_TID else place for place, thread in enumerate(threads, 1)}


def _names(device: pl.DataFrame, tids: Mapping[int, int], titles: Mapping[int, str]) -> Iterator[Event]:
    yield _meta("process_name", _FINDINGS_PID, "Findings of gpu-advisor")
    yield {"ph": "M", "name": "process_sort_index", "pid": _FINDINGS_PID, "args": {"sort_index": -1}}
    for gpu, stream in device.select("device", "stream").unique().sort("device", "stream").rows():
        yield _meta("process_name", gpu, f"GPU {gpu}")
        yield _meta("thread_name", gpu, f"stream {stream}", stream or 0)
    yield _meta("process_name", _HOST_PID, "host")
    for thread, tid in tids.items():
        yield _meta("thread_name", _HOST_PID, _safe(titles.get(thread, f"thread {thread}")), tid)


def _findings(
    findings: Iterable[Finding], subject: Finding, worker: int, span: tuple[int, int], zero: int
) -> Iterator[Event]:
    """A track for each finding with a place in the window; one that names none is drawn over the whole of it."""
    start, end = span
    for row, finding in enumerate(findings):
        places = [
            (p.start_ns, p.dur_ns)
            for p in finding.where
            if p.worker == worker and p.start_ns < end and p.start_ns + p.dur_ns > start
        ]
        if not places and finding.key == subject.key:
            places = [(start, end - start)]
        if places:
            yield _meta("thread_name", _FINDINGS_PID, one_line(finding.title, _LONGEST), row)
        for at, dur in places:
            yield {
                "ph": "X",
                "cat": "finding",
                "name": one_line(finding.title, _LONGEST),
                "pid": _FINDINGS_PID,
                "tid": row,
                "ts": _us(max(at - zero, 0)),
                "dur": _us(max(dur, 1)),
                "args": {"rule": finding.rule, "severity": finding.severity, "says": one_line(finding.says, _LONGEST)},
            }


def _device(ops: pl.DataFrame, zero: int) -> Iterator[Event]:
    columns = ("device", "stream", "kind", "name", "start_ns", "dur_ns", "bytes", "grid", "block")
    for gpu, stream, kind, name, at, dur, size, grid, block in ops.select(columns).iter_rows():
        facts = {"bytes": size, "grid": grid, "block": block}
        args = {key: value for key, value in facts.items() if value is not None}
        yield _complete(gpu, stream or 0, kind, name, at - zero, dur, args)


def _host(ops: pl.DataFrame, tids: Mapping[int, int], zero: int) -> Iterator[Event]:
    for thread, kind, name, at, dur, shapes in ops.select(
        "thread", "kind", "name", "start_ns", "dur_ns", "shapes"
    ).iter_rows():
        args = {} if shapes is None else {"Input Dims": _safe(shapes)}
        yield _complete(_HOST_PID, tids.get(thread, 0), kind, name, at - zero, dur, args)


def _complete(  # noqa: PLR0913, PLR0917 - the fields of an event
    pid: int, tid: int, kind: str, name: str | None, at: int, dur: int, args: Mapping[str, Any]
) -> Event:
    text = _safe(name or "")
    return {"ph": "X", "cat": kind, "name": text, "pid": pid, "tid": tid, "ts": _us(at), "dur": _us(dur), "args": args}


def _flows(device: pl.DataFrame, host: pl.DataFrame, tids: Mapping[int, int], zero: int) -> Iterator[Event]:
    """An arrow from each launch to what it launched."""
    calls = host.select(launch="id", thread="thread", called_ns="start_ns")
    launched = device.drop_nulls("launch").join(calls, on="launch")
    for number, thread, called, gpu, stream, at in launched.select(
        "id", "thread", "called_ns", "device", "stream", "start_ns"
    ).iter_rows():
        flow = {"cat": "launch", "name": "launch", "id": number}
        yield {"ph": "s", **flow, "pid": _HOST_PID, "tid": tids.get(thread, 0), "ts": _us(called - zero)}
        yield {"ph": "f", "bp": "e", **flow, "pid": gpu, "tid": stream or 0, "ts": _us(at - zero)}
