"""Tiny profiles built by hand: times in microseconds, one dict per row, only what the test is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl

from advisor.analysis.device.selection import Selection, select_steps
from advisor.analysis.device.view import DeviceView
from advisor.metrics import METRICS, Measurements, evaluate, measure
from advisor.metrics.metric import Value
from advisor.model.intervals import Intervals
from advisor.model.profile import Profile
from advisor.text import in_words

Row = dict[str, Any]

US: Final = 1_000  # ns
V100: Final[Row] = {
    "device": 0,
    "name": "Tesla V100-SXM2-16GB",
    "memory_bytes": 16 << 30,
    "sm_count": 80,
    "capability": 7.0,
}
A100: Final[Row] = V100 | {
    "name": "NVIDIA A100-SXM4-80GB",
    "memory_bytes": 80 << 30,
    "sm_count": 108,
    "capability": 8.0,
}


def span(start: float, end: float) -> Row:
    return {"start_ns": round(start * US), "dur_ns": round((end - start) * US)}


def on_device(kind: str, start: float, end: float, launched: float | None = None, **columns: object) -> Row:
    """A device op from `start` to `end`; the call that launched it returned at `launched` after 1 us, or is unknown."""
    call = None if launched is None else {"kind": "runtime", "name": "cudaLaunchKernel"} | span(launched - 1, launched)
    names = {"name": kind, "stream": 7, "device": 0, "worker": 0}
    return names | columns | {"kind": kind, "call": call} | span(start, end)


def kernel(start: float, end: float, launched: float | None = None, **columns: object) -> Row:
    return on_device("kernel", start, end, launched, **columns)


def pageable(start: float, end: float, **columns: object) -> Row:
    """A copy from pageable host memory."""
    memory = {"copy_kind": "HtoD", "source_memory": "pageable", "target_memory": "device"}
    return on_device("memcpy", start, end, **memory | columns)


def on_host(kind: str, start: float, end: float, **columns: object) -> Row:
    return {"name": kind, "thread": 1, "worker": 0} | columns | {"kind": kind} | span(start, end)


def step(number: int, start: float, end: float, host: tuple[float, float] | None = None, **columns: object) -> Row:
    """A step whose window is `start` to `end`; the host's own range is the same where not given."""
    of_host = {f"host_{column}": ns for column, ns in span(*host or (start, end)).items()}
    return (
        {"step": number, "name": f"ProfilerStep#{number}", "device": 0, "worker": 0}
        | columns
        | span(start, end)
        | of_host
    )


def profile(
    device_ops: Sequence[Row] = (),
    host_ops: Sequence[Row] = (),
    steps: Sequence[Row] = (),
    *,
    devices: Sequence[Row] = (V100,),
    lacks: Mapping[str, str] | None = None,
    **tables: Sequence[Row],
) -> Profile:
    """A profile of these rows. The ids of `host_ops` are their positions; the calls that launched come after them."""
    launched = [op for op in device_ops if op["call"]]
    calls = [op["call"] | {"worker": op["worker"], "thread": 2} for op in launched]
    launch = {id(op): len(host_ops) + i for i, op in enumerate(launched)}
    rows = {
        "workers": [{"worker": worker} for worker in _workers(device_ops, host_ops, steps)],
        "devices": [{"worker": 0} | device for device in devices],
        "steps": steps,
        "device_ops": [{"launch": launch.get(id(op))} | op for op in device_ops],
        "host_ops": [*host_ops, *calls],
        **tables,
    }
    return replace(Profile.of({name: frame(made) for name, made in rows.items()}, format="test"), lacks=lacks or {})


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    numbered = [{"id": i} | {key: value for key, value in row.items() if key != "call"} for i, row in enumerate(rows)]
    return pl.DataFrame(numbered, infer_schema_length=None)


def view(made: Profile, choice: str = "all") -> DeviceView:
    """The only view of a profile."""
    (only,) = select_steps(made, choice).views
    return only


def of_tensorflow(worker: DeviceView) -> DeviceView:
    return replace(worker, process={**worker.process, "framework": "tensorflow"}, _computed={})


def of_pytorch(worker: DeviceView) -> DeviceView:
    return replace(worker, process={**worker.process, "framework": "pytorch"}, _computed={})


class _ByName(dict[str, Value]):
    def __init__(self, *subject: Any) -> None:
        self.subject = subject

    def __missing__(self, name: str) -> Value:
        self[name] = told(METRICS[name].value(*self.subject))
        return self[name]


def told(value: Any) -> Any:
    """Names with what is known of each as a sentence has them; any other value as it is."""
    return in_words(value) if isinstance(value, list) else value


def metrics_of(*subject: Any) -> Mapping[str, Value]:
    """The metrics of a view, of a job, or of a job and the position of a rank, each when it is asked for by name."""
    return _ByName(*subject)


def values_of(names: Iterable[str], *subject: Any) -> Row:
    """These of `metrics_of`."""
    return {name: told(METRICS[name].value(*subject)) for name in names}


def measured(made: Profile, choice: str = "all") -> Measurements:
    return measure(select_steps(made, choice))


class _OfWorker(dict[str, Value]):
    def __init__(self, selection: Selection) -> None:
        self.selection = selection

    def __missing__(self, name: str) -> Value:
        (only,) = self.selection.views
        (value,) = evaluate._values([METRICS[name]], {}, self.selection, only).values()  # noqa: SLF001 - as a check has it
        self[name] = told(value)
        return self[name]


def worker_row(made: Profile, choice: str = "all") -> Mapping[str, Value]:
    """The metrics of the profile's only device, each when it is asked for by name: null where nobody knows it."""
    return _OfWorker(select_steps(made, choice))


def _workers(*tables: Iterable[Row]) -> list[int]:
    return sorted({row["worker"] for rows in tables for row in rows})


def us(times: Intervals) -> list[tuple[float, float]]:
    """The time ranges, in µs."""
    return [(start / US, end / US) for start, end in zip(times.starts.tolist(), times.ends.tolist(), strict=True)]


def union(*spans: tuple[float, float]) -> Intervals:
    """The union of these time ranges, in µs."""
    return Intervals.of([round(start * US) for start, _ in spans], [round(end * US) for _, end in spans])


def cpu_steps(ops: Sequence[Row], count: int = 1) -> DeviceView:
    """Steps of 100 us without a device, each with these host ops."""
    rows = [row | {"start_ns": row["start_ns"] + 100_000 * i} for i in range(count) for row in ops]
    return view(profile((), rows, [step(i, 100 * i, 100 * i + 100, device=None) for i in range(count)], devices=()))
