"""The charts of a run as Vega-Lite specifications, made with Altair. Imported only where a chart is asked for.

Colours are CSS variables of the page, so that a chart follows the page into the dark and onto paper; a chart that
stands alone has them replaced by `PALETTE`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import altair as alt
import vl_convert

from advisor.model.report import Run, Value
from advisor.render import words
from advisor.text import bytes_, count, ms, one_line, percent

Row = Mapping[str, Value]
Rows = Sequence[Row]

COLORS: Final = {
    "compute": "--busy-1",
    "memcpy": "--busy-2",
    "memset": "--busy-3",
    "collective": "--busy-4",
    "input": "--idle-1",
    "launch": "--idle-2",
    "host": "--idle-3",
    "output": "--idle-4",
    "compile": "--gap-compile",
    "other": "--idle-5",
}
"""Each category of the breakdown with the page's variable for its colour."""
PALETTE: Final = {
    "--busy-1": "#3b4fd8",
    "--busy-2": "#7d8bf0",
    "--busy-3": "#b4bdf5",
    "--busy-4": "#1d2875",
    "--idle-1": "#d9822b",
    "--idle-2": "#6f778a",
    "--idle-3": "#979eae",
    "--idle-4": "#bcc2ce",
    "--idle-5": "#dde1e8",
    "--gap-compile": "#1f8a70",
    "--ink": "#171a21",
    "--quiet": "#5a6172",
    "--line": "#e2e5ec",
    "--paper": "#ffffff",
    "--accent": "#3b4fd8",
    "--unlisted": "#dde1e8",
}
_SANS: Final = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Liberation Sans, sans-serif"
_NOT_WHOLE: Final = "not recorded whole"
_MANY_STEPS: Final = 120
_MEMORY_UNITS: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))
_FEW_RANKS: Final = 12  # up to so many, a number fits into each cell
_ROW_PX: Final = 22
_LONGEST: Final = 40  # characters of a rank's name
_AXES: Final = {"awaited": "for this one", "waiting": "this one waits"}
_WORTH_A_NUMBER: Final = 0.005  # of the largest
_DARK: Final = 0.75  # of the shades: from there on a number in the colour of the paper reads better
_PROMPT_GAP: Final = 1.02  # a smaller spread of a heat map's values is no difference


class Chart(NamedTuple):
    """One chart: its name in the page, its title, what it shows in one sentence, and its specification."""

    name: str
    title: str
    says: str
    spec: dict[str, Any]


def charts(run: Run) -> list[Chart]:
    """The charts that the run has the numbers for, by name."""
    drawn = (make(run) for make in _CHARTS)
    return [chart for chart in drawn if chart is not None]


def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, to stand in a page."""
    script: str = vl_convert.javascript_bundle(None)  # type: ignore[arg-type] # typed as needing the snippet that it does without
    # the one thing that could end the element early
    return script.replace("</script", "<\\/script")


def breakdown(run: Run, kind: str) -> bytes:
    """Where a step of the run goes as a picture, `svg` or `png`, for Markdown and mail."""
    spec = json.dumps(_lit(_alone(run)))
    if kind == "png":
        png: bytes = vl_convert.vegalite_to_png(spec, scale=2)
        return png
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg.encode()


def _var(name: str) -> str:
    return f"var({name})"


def _lit(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The same with the page's variables replaced by colours."""
    if isinstance(value, dict):
        return {key: _lit(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_lit(item) for item in value]
    if isinstance(value, str) and value.startswith("var("):
        return PALETTE[value[4:-1]]
    return value


def _config() -> dict[str, Any]:
    text = {"labelColor": _var("--quiet"), "titleColor": _var("--quiet"), "labelFontSize": 12, "titleFontSize": 12}
    return {
        "font": _SANS,
        "background": None,
        "view": {"stroke": None},
        "axis": {
            **text,
            "titleFontWeight": "normal",
            "domain": False,
            "ticks": False,
            "gridColor": _var("--line"),
            "labelPadding": 6,
            "titlePadding": 10,
        },
        "legend": {**text, "titleFontWeight": "normal"},
        "aria": False,  # the figure as a whole has a name; a thousand unnamed marks help nobody
    }


def _spec(chart: alt.TopLevelMixin, **more: object) -> dict[str, Any]:
    spec: dict[str, Any] = chart.to_dict(validate=False)
    spec.pop("$schema", None)
    return {**spec, "config": _config(), **more}


def _data(rows: Iterable[Mapping[str, object]]) -> alt.InlineData:
    return alt.InlineData(values=list(rows))


def _colors(categories: Iterable[str]) -> list[str]:
    return [_var(COLORS.get(category, "--unlisted")) for category in categories]


def _number(row: Row, column: str) -> float | None:
    value = row.get(column)
    return float(value) if isinstance(value, int | float) else None


_SCALE: Final = alt.Scale(domain=list(words.CATEGORIES), range=_colors(words.CATEGORIES))


def _shares(row: Row, whole_ms: float) -> Iterable[tuple[int, str, float]]:
    """Position, category and milliseconds of each category that takes any time."""
    for position, category in enumerate(words.CATEGORIES):
        share = _number(row, f"{category}_share")
        if share:
            yield position, category, share * whole_ms


def _steps(run: Run) -> Chart | None:
    rows = run.metrics.get("recorded_step", ())
    if len(rows) + len(run.source.steps.left_out) <= 1 or not run.source.steps.marked or not rows:
        return None
    bars, labels = [], []
    worker, device = rows[0].get("worker"), rows[0].get("device")
    for row in rows:
        whole, out = _number(row, "step_ms") or 0.0, row.get("left_out")
        for order, category, time in _shares(row, whole):
            bars.append({"step": row["step"], "category": category, "ms": time, "order": order, "used": not out})
        if out:
            labels.append(
                {"step": row["step"], "ms": whole, "why": one_line(str(out), 200), "mark": "\N{MULTIPLICATION X}"}
            )
    whole_ones = {row["step"] for row in rows}
    mine = (s for s in run.source.steps.left_out if (s.worker, s.device) == (worker, device))
    labels += [
        {"step": s.step, "ms": 0, "why": one_line(s.why, 200), "mark": "\N{MULTIPLICATION X}"}
        for s in mine
        if s.step not in whole_ones
    ]
    x = alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0, labelOverlap=True, grid=False))
    tip = [alt.Tooltip("step:O"), alt.Tooltip("category:N"), alt.Tooltip("ms:Q", format=",.3~f", title="ms")]
    drawn = (
        alt.Chart(_data(bars))
        .mark_bar()
        .encode(
            x=x,
            y=alt.Y("ms:Q", title="ms", stack="zero", axis=alt.Axis(tickCount=4)),
            color=alt.Color("category:N", scale=_SCALE, legend=None),
            order=alt.Order("order:Q"),
            opacity=alt.Opacity("used:O", scale=alt.Scale(domain=[True, False], range=[1, 0.35]), legend=None),
            tooltip=tip,
        )
    )
    marks = (
        alt.Chart(_data(labels))
        .mark_text(dy=-8, fontSize=12, color=_var("--quiet"))
        .encode(x=x, y="ms:Q", text="mark:N", tooltip=[alt.Tooltip("step:O"), alt.Tooltip("why:N", title="left out")])
    )
    out_ = f"; \N{MULTIPLICATION X} marks {count(len(labels), 'step')} left out" if labels else ""
    shown = f" of {words.owner(run, rows[0])}" if len(run.source.workers) > 1 else ""
    says = f"Time of each step{shown} by category, colours as above{out_}."
    both = alt.layer(drawn, marks) if labels else drawn
    return Chart("steps", "Step by step", says, _spec(both.properties(width="container", height=200)))


def _ranks(run: Run) -> Chart | None:
    rows = run.metrics.get("device", ())
    if len(rows) <= 1:
        return None
    bars = []
    for place, row in enumerate(rows):
        whole = _number(row, "step_mean_ms")
        if whole is None:
            continue
        owner = one_line(words.owner(run, row), _LONGEST)
        bars += [
            {"rank": owner, "place": place, "category": category, "ms": time, "order": order}
            for order, category, time in _shares(row, whole)
        ]
    if not bars:
        return None
    drawn = (
        alt.Chart(_data(bars))
        .mark_bar(height={"band": 0.8})
        .encode(
            x=alt.X("ms:Q", title="ms per step", stack="zero", axis=alt.Axis(tickCount=5)),
            y=_by_rank("rank"),
            color=alt.Color("category:N", scale=_SCALE, legend=None),
            order=alt.Order("order:Q"),
            tooltip=["rank:N", "category:N", alt.Tooltip("ms:Q", format=",.3~f", title="ms per step")],
        )
        .properties(width="container", height=len(rows) * _row_px(len(rows)))
    )
    whose = words.whose(run.source)
    says = (
        f"Where a mean step of each {whose} goes, colours as above. "
        f"The {whose} whose step takes longest by itself, waiting left out, sets the pace of the job."
    )
    return Chart("ranks", f"{whose[0].upper()}{whose[1:]} by {whose}", says, _spec(drawn))


def _called(run: Run, rank: Value) -> str:
    return one_line(words.host_names(run.source).get(str(rank), str(rank)), _LONGEST)


def _row_px(ranks: int) -> int:
    return max(6, min(_ROW_PX, 640 // ranks))


def _by_rank(field: str, title: str | None = None) -> alt.Y:
    axis = alt.Axis(grid=False, labelOverlap=True, labelLimit=140, title=title)
    return alt.Y(f"{field}:N", sort=alt.EncodingSortField("place", op="min"), axis=axis, title=title)


def _heat(run: Run) -> Chart | None:
    rows = run.metrics.get("pace", ())
    if not rows or len({row["step"] for row in rows}) < 2:  # noqa: PLR2004 - one column is a bar chart
        return None
    column = "own_ms" if all(row.get("own_ms") is not None for row in rows) else "step_ms"
    cells = [
        {
            "rank": _called(run, row["name"]),
            "place": row["rank"],
            "step": row["step"],
            "ms": row[column],
        }
        for row in rows
    ]
    meaning = "what the step takes the rank by itself, waiting left out" if column == "own_ms" else "length of the step"
    ranks = len({cell["rank"] for cell in cells})
    drawn = _cells(cells, "step:O", "rank", column.replace("_ms", " ms")).properties(
        width="container", height=ranks * _row_px(ranks)
    )
    whose = words.whose(run.source)
    says = f"Darker is longer: {meaning}. A dark row is a slow {whose}, a dark column a slow step."
    return Chart("heat", f"{whose[0].upper()}{whose[1:]}s over the steps", says, _spec(drawn))


def _cells(cells: Sequence[Mapping[str, object]], x: str, y: str, title: str) -> alt.Chart:
    """A heat map of the cells' `ms`."""
    known = [float(cell["ms"]) for cell in cells if isinstance(cell["ms"], int | float)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    low = low if high > low * _PROMPT_GAP else 0.0  # no difference is drawn where there is none worth one
    field = x.partition(":")[0]
    across = {cell[field] for cell in cells}
    drawn: alt.Chart = (
        alt.Chart(_data(cells))
        .mark_rect(fill=_var("--accent"), stroke=_var("--paper"), strokeWidth=1 if len(cells) < _MANY_STEPS * 8 else 0)
        .encode(
            x=alt.X(
                x,
                title=_AXES.get(field, field),
                sort=None if field == "step" else alt.EncodingSortField("across", op="min"),
                axis=alt.Axis(
                    grid=False, labelAngle=-40 if len(across) > _FEW_RANKS and field != "step" else 0, labelOverlap=True
                ),
            ),
            y=_by_rank(y, title=_AXES.get(y)),
            opacity=alt.Opacity("ms:Q", scale=alt.Scale(domain=[low, high], range=[0.08, 1], clamp=True), legend=None),
            tooltip=[f"{y}:N", x, alt.Tooltip("ms:Q", format=",.3~f", title=title)],
        )
    )
    return drawn


def _waits(run: Run) -> Chart | None:
    rows = [row for row in run.metrics.get("wait", ()) if (_number(row, "wait_ms") or 0) > 0]
    if not rows:
        return None
    cells = [
        {
            "waiting": _called(run, row["waiting_name"]),
            "awaited": _called(run, row["awaited_name"]),
            "place": row["waiting"],
            "across": row["awaited"],
            "ms": row["wait_ms"],
        }
        for row in rows
    ]
    ranks = len({cell["waiting"] for cell in cells})
    drawn: Any = _cells(cells, "awaited:N", "waiting", "ms per step")
    if ranks <= _FEW_RANKS:
        most_ms = max(float(str(cell["ms"])) for cell in cells)
        least_ms = min(float(str(cell["ms"])) for cell in cells)
        low_ms = least_ms if most_ms > least_ms * _PROMPT_GAP else 0.0
        dark_ms = low_ms + _DARK * (most_ms - low_ms)
        told = [cell for cell in cells if float(str(cell["ms"])) >= _WORTH_A_NUMBER * most_ms]
        over = alt.Chart(_data(told)).encode(
            x=alt.X("awaited:N", sort=alt.EncodingSortField("across", op="min")),
            y=alt.Y("waiting:N", sort=alt.EncodingSortField("place", op="min")),
            text=alt.Text("ms:Q", format=".2~f"),
        )
        shade = alt.condition(f"datum.ms >= {dark_ms}", alt.value(_var("--paper")), alt.value(_var("--ink")))
        drawn = alt.layer(drawn, over.mark_text(fontSize=11).encode(color=shade))
    spec = _spec(drawn.properties(width="container", height=ranks * max(_row_px(ranks), 14)))
    total: dict[str, float] = {}
    for cell in cells:
        total[str(cell["awaited"])] = total.get(str(cell["awaited"]), 0.0) + float(str(cell["ms"]))
    most = max(total, key=lambda name: total[name])
    whose = words.whose(run.source)
    says = (
        f"Milliseconds per step in which the {whose} of the row waits for the {whose} of the column. "
        f"Most is waited for {most}: {ms(total[most])} per step by all {whose}s together."
    )
    return Chart("waits", "Who waits for whom", says, spec)


def _bandwidth(run: Run) -> Chart | None:
    rows = [r for r in run.metrics.get("collective", ()) if (_number(r, "bytes") or 0) > 0 and _number(r, "bus_gbs")]
    if not rows:
        return None
    points = [_point(row) for row in rows]
    curve = sorted((p for p in points if p["expected"] is not None), key=lambda p: float(str(p["bytes"])))
    b, kib, mib = (f"format(datum.value / {unit}, ',.2~f')" for unit in (1, 1024, 1048576))
    size = f"datum.value < 1024 ? {b} + ' B' : datum.value < 1048576 ? {kib} + ' KiB' : {mib} + ' MiB'"
    sizes = [float(str(point["bytes"])) for point in points]
    low, high = math.floor(math.log2(min(sizes)) - 0.5), math.ceil(math.log2(max(sizes)) + 0.5)
    ticks = [2**power for power in range(low, high + 1, max(1, (high - low) // 6))]
    x = alt.X(
        "bytes:Q",
        # whole powers of two with room on both sides: a job may send messages of one size alone
        scale=alt.Scale(type="log", base=2, domain=[2**low, 2**high], nice=False),
        title="message",
        axis=alt.Axis(labelExpr=size, values=ticks),
    )
    tip = [
        alt.Tooltip("op:N"),
        alt.Tooltip("ranks:Q"),
        alt.Tooltip("size:N"),
        alt.Tooltip("calls:Q"),
        alt.Tooltip("bus:Q", format=",.3~r", title="bus GB/s"),
        alt.Tooltip("expected:Q", format=",.3~r", title="expected GB/s"),
    ]
    measured = (
        alt.Chart(_data(points))
        .mark_point(filled=True, size=70, color=_var("--accent"), opacity=0.9)
        .encode(
            x=x,
            y=alt.Y("bus:Q", scale=alt.Scale(type="log"), title="bus bandwidth, GB/s", axis=alt.Axis(tickCount=5)),
            shape=alt.Shape("op:N", legend=alt.Legend(orient="top", title=None, symbolFillColor=_var("--accent"))),
            tooltip=tip,
        )
    )
    expected = (
        alt.Chart(_data(curve))
        .mark_line(color=_var("--quiet"), strokeDash=[4, 3], point=alt.OverlayMarkDef(color=_var("--quiet"), size=20))
        .encode(x=x, y="expected:Q", detail=["op:N", "ranks:Q"], tooltip=tip)
    )
    both = alt.layer(expected, measured) if curve else measured
    bound = (
        " At least: waiting for other ranks could not be told from the transfer."
        if not all(p["exact"] for p in points)
        else ""
    )
    dashed = " The dashed curve is what the links allow." if curve else " What the links allow is not known here."
    link = words.slowest_link(run)
    compared = f" {link[0].upper()}{link[1:]}." if link else ""
    says = f"Bus bandwidth of each kind of collective against the size of its messages.{dashed}{bound}{compared}"
    return Chart(
        "bandwidth", "Bandwidth of the collectives", says, _spec(both.properties(width="container", height=260))
    )


def _point(row: Row) -> dict[str, object]:
    bus, took, should = (_number(row, c) for c in ("bus_gbs", "transfer_us", "expected_us"))
    return {
        "op": one_line(str(row.get("op")), _LONGEST),
        "ranks": row.get("group_size"),
        "bytes": row.get("bytes"),
        "size": bytes_(float(str(row.get("bytes")))),
        "calls": row.get("calls"),
        "bus": bus,
        "expected": bus * took / should if bus and took and should else None,
        "exact": bool(row.get("exact")),
    }


def _memory(run: Run) -> Chart | None:
    rows = [row for row in run.metrics.get("memory", ()) if row.get("allocated_bytes") is not None]
    if len(rows) <= 1:
        return None
    first = min(int(str(row["start_ns"])) for row in rows)
    most = max(_number(row, "allocated_bytes") or 0 for row in rows)
    unit, size = next((unit, size) for unit, size in _MEMORY_UNITS if most >= size or size == 1)
    points = [
        {
            "ms": (int(str(row["start_ns"])) - first) / 1e6,
            "allocated": (_number(row, "allocated_bytes") or 0) / size,
            "reserved": None if not row.get("reserved_bytes") else float(str(row["reserved_bytes"])) / size,
        }
        for row in rows
    ]
    peak = max(points, key=lambda point: point["allocated"] or 0)
    x = alt.X(
        "ms:Q",
        title="ms from the first allocation",
        scale=alt.Scale(nice=False),
        axis=alt.Axis(grid=False, tickCount=6),
    )
    base = alt.Chart(_data(points))
    tip = [
        alt.Tooltip("ms:Q", format=",.1f"),
        alt.Tooltip("allocated:Q", format=",.3~r", title=f"allocated {unit}"),
        alt.Tooltip("reserved:Q", format=",.3~r", title=f"reserved {unit}"),
    ]
    layers = [
        base.mark_area(interpolate="step-after", color=_var("--accent"), opacity=0.25, line=False).encode(
            x=x, y=alt.Y("allocated:Q", title=unit, axis=alt.Axis(tickCount=4)), tooltip=tip
        ),
        base.mark_line(interpolate="step-after", color=_var("--accent"), strokeWidth=1.5).encode(x=x, y="allocated:Q"),
    ]
    if any(point["reserved"] for point in points):
        layers.append(
            base.mark_line(interpolate="step-after", color=_var("--quiet"), strokeDash=[4, 3]).encode(
                x=x, y="reserved:Q"
            )
        )
    label = {**peak, "text": f"peak {bytes_((peak['allocated'] or 0) * size)}"}
    layers += [
        alt.Chart(_data([label])).mark_point(filled=True, size=60, color=_var("--accent")).encode(x=x, y="allocated:Q"),
        alt.Chart(_data([label]))
        .mark_text(dy=-10, color=_var("--ink"), fontSize=12, align="center")
        .encode(x=x, y="allocated:Q", text="text:N"),
    ]
    held = _capacity(run)
    whose = "Device memory" if run.source.devices else "Memory"
    dashed = "; dashed: what the allocator has reserved" if any(point["reserved"] for point in points) else ""
    says = f"{whose} held by tensors over the recording{dashed}."
    says += f" The device has {held}." if held else ""
    return Chart("memory", whose, says, _spec(alt.layer(*layers).properties(width="container", height=180)))


def _capacity(run: Run) -> str | None:
    sizes = {device.memory_bytes for device in run.source.devices}
    (size,) = sizes if len(sizes) == 1 else (None,)
    return None if size is None else bytes_(size)


def _alone(run: Run) -> dict[str, Any]:
    """The breakdown as one bar with a legend beside it, on white."""
    segments = words.segments(run)
    names = [f"{s.category}  {percent(s.share)}" + (f", {ms(s.ms)}" if s.ms is not None else "") for s in segments]
    rows = [
        {"part": name, "share": s.share, "order": i} for i, (name, s) in enumerate(zip(names, segments, strict=True))
    ]
    drawn = (
        alt.Chart(_data(rows))
        .mark_bar(stroke=_var("--paper"), strokeWidth=1, height=44)
        .encode(
            x=alt.X("share:Q", stack="zero", axis=None, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=names, range=_colors(s.category for s in segments)),
                legend=alt.Legend(orient="bottom", title=None, columns=4, labelLimit=260, symbolType="square"),
            ),
            order=alt.Order("order:Q"),
        )
        .properties(width=720, height=48)
    )
    title = {
        "text": one_line(run.verdict, 110),
        "subtitle": f"{one_line(run.name, 60)}: where {words.whole(run.source.steps)} goes",
        "anchor": "start",
        "color": _var("--ink"),
        "subtitleColor": _var("--quiet"),
        "fontSize": 17,
        "subtitleFontSize": 13,
        "offset": 14,
    }
    spec = _spec(drawn, title=title, background=_var("--paper"), padding=20)
    return {**spec, "autosize": "pad"}


_CHARTS: Final[tuple[Callable[[Run], Chart | None], ...]] = (_steps, _ranks, _heat, _waits, _bandwidth, _memory)
