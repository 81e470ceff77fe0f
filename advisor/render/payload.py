"""What a page shows beside its words: charts as SVG, and as JSON their numbers, the timeline and the tables."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from advisor.errors import contained, failure
from advisor.inputs.names.kernels import kernel_name
from advisor.model.comparison import Amount, Comparison, WorkChange
from advisor.model.finding import Value
from advisor.model.report import Report, Row, Run, Timeline, number
from advisor.present.charts import Chart, charts
from advisor.present.comparison import work_name, work_size, work_status
from advisor.present.report import track_label
from advisor.present.tables import MOST_ROWS
from advisor.render.svg import drawing, numbers
from advisor.text import one_line
from advisor.vocabulary.idle_causes import IDLE_WORDS, idle_part

Payload: TypeAlias = Mapping[str, Any]
"""What the scripts of an article draw from, by what it is."""

_Sums: TypeAlias = Mapping[str, Callable[[list[float]], float]]
_LONGEST: Final = 120  # characters of a name in a table
_LONGEST_EVENT: Final = 80  # characters of a name in the timeline
_ORDERING: Final = frozenset({"order", "place", "across"})
_DIGITS: Final = 4  # significant ones
_KERNELS: Final = (
    *("name", "symbol", "op", "module", "shapes", "grid", "block", "registers", "family", "verdict"),
    *("calls_per_step", "ms_per_step", "min_us", "max_us", "blocks_per_sm", "sm_efficiency", "occupancy"),
    *("tflops", "gbs", "reached"),
)
_FRAMES: Final = ("id", "parent", "name", "kind", "total_ms", "self_ms")
_WORK: Final = (
    *("status", "work", "name", "symbol", "size"),
    *("base_calls", "base_ms", "head_calls", "head_ms", "change_ms", "moved_ms"),
)
_OPERATORS: Final = (
    *("name", "shapes", "types", "stack", "calls_per_step", "total_ms_per_step", "ms_per_step", "device_ms_per_step"),
)
_KERNEL_SUMS: Final[_Sums] = {"total_ms": sum, "calls": sum, "min_us": min, "max_us": max}
_OPERATOR_SUMS: Final[_Sums] = dict.fromkeys(
    ("total_ms_per_step", "calls_per_step", "ms_per_step", "device_ms_per_step"), sum
)
_ALIKE: Final = ("name", "family", "verdict")
_OF_OTHERS: Final = dict.fromkeys(("name", "op", "module", "shapes", "types", "stack"), "others")
_NUMBER: Final = re.compile(r"_\d+$")
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def payloads(value: object) -> dict[str, Payload]:
    """The data of every article that has any, by its id."""
    if isinstance(value, Report):
        return {f"run-{number}": _payload(run) for number, run in enumerate(value.runs, 1)}
    return {"compare": _of_comparison(value)} if isinstance(value, Comparison) else {}


def _payload(run: Run) -> Payload:
    return {
        "charts": {chart.name: contained(partial(_of_chart, chart), lambda _: {}) for chart in charts(run)},
        "tables": {
            "kernels": _table(
                [_kernel(row, run) for row in _longest(run.metrics.get("kernel_group", ()), _KERNEL_SUMS)], _KERNELS
            ),
            "operators": _table(_longest(run.metrics.get("op", ()), _OPERATOR_SUMS), _OPERATORS),
        },
        "flame": _table(_merged(run.metrics.get("call_tree", ())), _FRAMES),
        "timeline": None if run.timeline is None else _timeline(run, run.timeline),
    }


def drawings(value: object) -> dict[str, dict[str, str]]:
    """The charts of every article that has any, by its id and their names, as SVG; a bug costs its chart alone."""
    runs = value.runs if isinstance(value, Report) else ()
    return {f"run-{n}": {of.name: _picture(of, f"run-{n}") for of in charts(run)} for n, run in enumerate(runs, 1)}


def _picture(chart: Chart, article: str) -> str:
    return contained(lambda: drawing(chart, article), lambda kind: f"<p>Not drawn: {failure(kind)}.</p>")


def _of_chart(chart: Chart) -> dict[str, object]:
    """The numbers of a chart as a table: what only orders them is left out."""
    rows = numbers(chart)
    columns = [name for name in (rows[0] if rows else ()) if name not in _ORDERING]
    return table(columns, [[row[name] for name in columns] for row in rows])


def _of_comparison(comparison: Comparison) -> Payload:
    """The table of work and the flame graph of both sides."""
    work = table(_WORK, map(_work, comparison.work)) if comparison.work else None
    frames = [
        (number, frame.parent, frame.name, frame.kind, frame.head_ms, frame.head_self_ms, frame.base_ms or None)
        for number, frame in enumerate(comparison.frames)
    ]
    return {"tables": {"work": work}, "flame": table((*_FRAMES, "base_ms"), frames) if frames else None}


def _work(change: WorkChange) -> tuple[Value, ...]:
    return (
        *(work_status(change), change.work, work_name(change), change.name, work_size(change) or None),
        *_amount(change.base),
        *_amount(change.head),
        change.change_ms,
        abs(change.change_ms),
    )


def _amount(of: Amount | None) -> tuple[Value, Value]:
    return (of.per_step, of.ms_per_step) if of else (None, None)


def embedded(data: object) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def table(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> dict[str, object]:
    """A table as the page's scripts take it: names shortened, numbers rounded."""
    return {"columns": columns, "rows": [[_cell(value) for value in row] for row in rows]}


def _kernel(row: Mapping[str, Value], run: Run) -> dict[str, Value]:
    """A row of kernels with its sums over the used steps as means of one step; of a recording without, as they are.

    `name` is what people call the kernel, `symbol` its full name.
    """
    steps = max(1, run.source.steps.used)
    sums = {name: value for name in ("calls", "total_ms") if isinstance(value := row.get(name), int | float)}
    means = {"calls_per_step": sums.get("calls", 0) / steps, "ms_per_step": sums.get("total_ms", 0.0) / steps}
    symbol = row.get("name")
    return {**row, **means, "symbol": symbol, "name": kernel_name(symbol) if isinstance(symbol, str) else symbol}


def _table(rows: Sequence[Mapping[str, Value]], columns: Sequence[str]) -> dict[str, object] | None:
    known = [name for name in columns if any(row.get(name) is not None for row in rows)]
    return table(known, [[row.get(name) for name in known] for row in rows]) if rows else None


def _merged(rows: Sequence[Row]) -> list[dict[str, Value]]:
    """Frames of one kind and name in one frame as one, whatever number the name ends in: `24 x Layer`."""
    merged: dict[tuple[Value, str, Value], dict[str, Value]] = {}
    ids: dict[Value, Value] = {}
    amounts: Counter[Value] = Counter()
    for row in rows:  # those around come before those inside
        name, parent = row.get("name"), ids.get(row.get("parent"))
        plain = _NUMBER.sub("", name) if isinstance(name, str) else name
        frame = merged.setdefault(
            (parent, str(plain), row.get("kind")),
            {"id": None, **row, "parent": parent, "total_ms": 0.0, "self_ms": 0.0},
        )
        for time in ("total_ms", "self_ms"):
            frame[time] = number(frame, time) + number(row, time)
        ids[row.get("id")] = frame["id"]
        amounts[frame["id"]] += 1
        if amounts[frame["id"]] > 1 and plain != name:
            frame["name"] = f"{amounts[frame['id']]} \N{MULTIPLICATION SIGN} {plain}"
    return [*merged.values()]


def _longest(rows: Sequence[Row], sums: _Sums) -> list[Mapping[str, Value]]:
    """The rows that take most time; then the others, those of one name as one, so that its times add up, and a rest.

    `sums` has what becomes of each number of rows that are one; the first is what all are ordered by.
    """

    def order(row: Row) -> float:
        return -number(row, next(iter(sums)))

    ordered = sorted(rows, key=order)
    first, alike = ordered[:MOST_ROWS], dict[tuple[Value, ...], list[Row]]()
    for row in ordered[MOST_ROWS:]:
        alike.setdefault(tuple(row.get(name) for name in _ALIKE), []).append(row)
    others: list[Row] = [
        {**_OF_OTHERS, **dict(zip(_ALIKE, key, strict=True)), **_sums(of, sums)} for key, of in alike.items()
    ]
    names = {row.get("name") for row in first}
    others.sort(key=lambda row: (row.get("name") not in names, order(row)))
    rest = others[MOST_ROWS:]
    return [*first, *others[:MOST_ROWS], *([{**_OF_OTHERS, **_sums(rest, sums)}] if rest else [])]


def _sums(rows: Sequence[Row], sums: _Sums) -> dict[str, Value]:
    known = {name: [value for row in rows if isinstance(value := row.get(name), int | float)] for name in sums}
    return {name: of(known[name]) for name, of in sums.items() if known[name]}


def _cell(value: Value) -> Value:
    if isinstance(value, str):
        return one_line(value, _LONGEST)
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _timeline(run: Run, timeline: Timeline) -> dict[str, object]:
    titles = {finding.key: finding.title for finding in run.findings}
    return {
        "dur": timeline.dur_ns,
        "tracks": [{"kind": t.kind, "label": track_label(t)} for t in timeline.tracks],
        "texts": [one_line(text, _LONGEST_EVENT) for text in timeline.texts],
        "events": timeline.events.model_dump(),
        "idle": {
            "cause": [idle_part(idle.cause, idle.dur_ns) for idle in timeline.idle],
            "start_ns": [idle.start_ns for idle in timeline.idle],
            "dur_ns": [idle.dur_ns for idle in timeline.idle],
        },
        "causes": IDLE_WORDS,
        "shows": [
            {
                "key": key,
                "title": one_line(titles.get(key, key), _LONGEST),
                "spans": [[s.start_ns, s.dur_ns] for s in spans],
            }
            for key, spans in timeline.shows.items()
        ],
    }
