"""A small Chrome trace of the part of a recording that shows a finding, of one rank or of many on one clock."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from advisor.analysis.device.timeline import thread_names
from advisor.analysis.device.view import DeviceView
from advisor.model.finding import Finding
from advisor.model.profile import END_NS, Profile
from advisor.secrets import masked_text
from advisor.text import one_line
from advisor.text import rank as rank_name

MOST_EVENTS: Final = 100_000  # the longest; what opens quickly in a viewer
_AROUND: Final = 2  # lengths of a place to show on both sides of it where no step encloses it
_LEAST_NS: Final = 1_000_000
_HOST_PID: Final = 1000
_PIDS: Final = 2000  # of one rank: its devices, and its host
_FINDINGS_PID: Final = 1 << 30  # a number that no device and no host process of the excerpt has

Event = Mapping[str, Any]


class _Rank(NamedTuple):
    """What one rank did in the window, on the clock of the one that the finding speaks of."""

    worker: int
    label: str  # before the names of its processes; empty where there is one rank
    first_pid: int
    ahead_ns: int  # of that clock is its own
    device: pl.DataFrame
    host: pl.DataFrame
    tids: Mapping[int, int]


def excerpt(
    profile: Profile,
    views: Sequence[DeviceView],
    findings: Iterable[Finding],
    subject: Finding,
    ahead_ns: Mapping[int, int] | None = None,
) -> dict[str, Any]:
    """The trace as a JSON object.

    The window is the step that holds the first place of the finding to show, the `subject`; where it names none
    (`advisor.note` says so), the longest used step; where no steps are marked, the place and as much again on both
    sides. The run's `findings` with a place in it get a track of their own. `views` are the worker and device that the
    subject speaks of, and one of each other rank to show, on the first one's clock: `ahead_ns` says how far each
    worker's is ahead of one that all share.
    """
    view = views[0]
    start, end = window(view, subject)
    of = ahead_ns or {}
    ahead = {each.worker: of.get(each.worker, 0) - of.get(view.worker, 0) for each in views}
    ranks = [
        _rank(profile, worker, ns, (start, end), at if len(ahead) > 1 else None)
        for at, (worker, ns) in enumerate(ahead.items())
    ]
    # Perfetto drops what begins before 0, as what runs on from before the window would
    opened = (int(ops["start_ns"].to_numpy().min()) for rank in ranks for ops in (rank.device, rank.host) if ops.height)
    zero = min([start, *opened])
    events = [
        _meta("process_name", _FINDINGS_PID, "Findings of gpu-advisor"),
        {"ph": "M", "name": "process_sort_index", "pid": _FINDINGS_PID, "args": {"sort_index": -1}},
        *_findings(findings, subject, ahead, (start, end), zero),
    ]
    for rank in ranks:
        most = MOST_EVENTS // len(ranks)
        events += _activity(rank, thread_names(profile.threads.filter(pl.col("worker") == rank.worker)), most, zero)
    about = {
        "finding": subject.key,
        "worker": view.worker,
        "start_ns": start,
        "dur_ns": end - start,
        "ts": (start - zero) / 1000,
    }
    if len(ranks) > 1:
        about["workers"] = [*ahead]
    if not any(place.worker == view.worker for place in subject.where):
        what = "the longest step used" if view.has_marks and view.steps.height else "the whole recording"
        whose = f"process {view.worker}" + ("" if view.device is None else f", device {view.device}")
        about["note"] = f"{subject.key} names no place in the recording; shown is {what} of {whose}"
    return {"traceEvents": events, "displayTimeUnit": "ms", "advisor": about}


def _rank(profile: Profile, worker: int, ahead_ns: int, span: tuple[int, int], place: int | None) -> _Rank:
    """What a rank did in the window; `place` is its place among several, None where it is alone."""
    start, end = span
    device, host = (
        ops.filter(pl.col("worker") == worker)
        .with_columns(pl.col("start_ns") - ahead_ns)
        .filter(pl.col("start_ns") < end, start < END_NS)
        for ops in (profile.device_ops, profile.host_ops)
    )
    label = "" if place is None else f"{rank_name(worker)}, "
    known = device.drop_nulls("device")  # the number of an odd op may be none
    threads = enumerate(sorted(host["thread"].unique().drop_nulls()), 1)
    tids = {thread: thread if 0 <= thread < 1 << 31 else at for at, thread in threads}  # which viewers can tell
    return _Rank(worker, label, (place or 0) * _PIDS, ahead_ns, known, host, tids)


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
    return one_line(masked_text(text), 1000)


def _meta(what: str, pid: int, name: str, tid: int | None = None) -> Event:
    return {"ph": "M", "name": what, "pid": pid, **({} if tid is None else {"tid": tid}), "args": {"name": name}}


def _findings(
    findings: Iterable[Finding], subject: Finding, ahead_ns: Mapping[int, int], span: tuple[int, int], zero: int
) -> Iterator[Event]:
    """A track for each finding with a place in the window; one that names none is drawn over the whole of it."""
    start, end = span
    for row, finding in enumerate(findings):
        times = ((p.start_ns - ahead_ns[p.worker], p.dur_ns) for p in finding.where if p.worker in ahead_ns)
        places = [(at, dur) for at, dur in times if at < end and at + dur > start]
        if not places and finding.key == subject.key:
            places = [(start, end - start)]
        if places:
            yield _meta("thread_name", _FINDINGS_PID, _safe(finding.title), row)
        for at, dur in places:
            args = {"rule": finding.rule, "severity": finding.severity, "says": _safe(finding.says)}
            yield _complete(_FINDINGS_PID, row, "finding", finding.title, max(at - zero, 0), max(dur, 1), args)


def _complete(  # noqa: PLR0913, PLR0917 - the fields of an event
    pid: int, tid: int, kind: str, name: str | None, at: int, dur: int, args: Mapping[str, Any]
) -> Event:
    times = {"ts": at / 1000, "dur": dur / 1000}
    return {"ph": "X", "cat": kind, "name": _safe(name or ""), "pid": pid, "tid": tid, **times, "args": args}


def _activity(rank: _Rank, titles: Mapping[int, str], most: int, zero: int) -> Iterator[Event]:
    """What the rank's devices and host did, the longest of it, under their names; an arrow from each launch."""
    for gpu, stream in rank.device.select("device", "stream").unique().sort("device", "stream").rows():
        yield _meta("process_name", rank.first_pid + gpu, f"{rank.label}GPU {gpu}")
        yield _meta("thread_name", rank.first_pid + gpu, f"stream {stream}", stream or 0)
    host_pid = rank.first_pid + _HOST_PID
    yield _meta("process_name", host_pid, f"{rank.label}host")
    for thread, tid in rank.tids.items():
        yield _meta("thread_name", host_pid, _safe(titles.get(thread, f"thread {thread}")), tid)
    columns = ("device", "stream", "kind", "name", "start_ns", "dur_ns", "bytes", "grid", "block")
    ops = rank.device.top_k(most, by="dur_ns").sort("start_ns").select(columns)
    for gpu, stream, kind, name, at, dur, *values in ops.iter_rows():
        args = {key: value for key, value in zip(columns[-3:], values, strict=True) if value is not None}
        yield _complete(rank.first_pid + gpu, stream or 0, kind, name, at - zero, dur, args)
    ops = rank.host.top_k(max(0, most - rank.device.height), by="dur_ns").sort("start_ns")
    ops = ops.select("thread", "kind", "name", "start_ns", "dur_ns", "shapes")
    for thread, kind, name, at, dur, shapes in ops.iter_rows():
        args = {} if shapes is None else {"Input Dims": _safe(shapes)}
        yield _complete(host_pid, rank.tids.get(thread, 0), kind, name, at - zero, dur, args)
    calls = rank.host.select(launch="id", thread="thread", called_ns="start_ns")
    launched = rank.device.drop_nulls("launch").join(calls, on="launch")
    for number, thread, called, gpu, stream, at in launched.select(
        "id", "thread", "called_ns", "device", "stream", "start_ns"
    ).iter_rows():
        flow = {"cat": "launch", "name": "launch", "id": number}
        yield {"ph": "s", **flow, "pid": host_pid, "tid": rank.tids.get(thread, 0), "ts": (called - zero) / 1000}
        yield {"ph": "f", "bp": "e", **flow, "pid": rank.first_pid + gpu, "tid": stream or 0, "ts": (at - zero) / 1000}
