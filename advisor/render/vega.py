"""The charts of a run as Vega-Lite specifications, made with Altair. Imported only where a chart is asked for.

Colours are CSS variables of the page, so that a chart follows the page into the dark and onto paper; a chart that
stands alone has them replaced by the light ones of the page's style.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import altair as alt
from altair.utils.schemapi import debug_mode

from advisor.errors import UsageError
from advisor.present.charts import Chart
from advisor.present.document import Article, Bars, Segment
from advisor.system.resources import reports_folder
from advisor.text import one_line
from advisor.vocabulary.parts import PARTS, part_short, variable

_SANS: Final = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Liberation Sans, sans-serif"
_MANY_STEPS: Final = 120
_FEW_RANKS: Final = 12  # up to so many, a number fits into each cell
_ROW_PX: Final = 22
_AXES: Final = {"awaited": "for this one", "waiting": "this one waits"}
_WORTH_A_NUMBER: Final = 0.005  # of the largest
_DARK: Final = 0.75  # of the shades: from there on a number in the colour of the paper reads better
_PROMPT_GAP: Final = 1.02  # a smaller spread of a heat map's values is no difference


def spec(chart: Chart) -> dict[str, Any]:
    """The chart as a specification."""
    with debug_mode(False):  # noqa: FBT003 - no check of each part against Vega-Lite's schema: tests do that
        return _SPECS[chart.name](chart.data)


def picture(article: Article, kind: str) -> bytes:
    """Where a step of the run goes as a picture, `svg` or `png`, for Markdown and mail.

    Raises:
        UsageError: what draws pictures is not installed.
    """
    try:
        import vl_convert  # noqa: PLC0415 - 84 MB that only pictures need
    except ImportError:
        raise UsageError(f"{kind.upper()} files need more packages: pip install 'gpu-advisor[pictures]'") from None
    spec = json.dumps(_lit(_alone(article)))
    if kind == "png":
        png: bytes = vl_convert.vegalite_to_png(spec, scale=2)
        return png
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg.encode()


@cache
def _light() -> dict[str, str]:
    """The page's colours for light surroundings, as its style gives them."""
    style = (reports_folder() / "templates" / "report.css").read_text("utf-8")
    parts = {variable(code): part.look.colour.light for code, part in PARTS.items()}
    return parts | dict(re.findall(r"(--[\w-]+): light-dark\((#[0-9a-f]{6}),", style))


def _var(name: str) -> str:
    return f"var({name})"


def _lit(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The same with the page's variables replaced by colours."""
    if isinstance(value, dict):
        return {key: _lit(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_lit(item) for item in value]
    if isinstance(value, str) and value.startswith("var("):
        return _light()[value[4:-1]]
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


def _spec(
    chart: alt.TopLevelMixin, rows: Mapping[str, Iterable[Mapping[str, object]]], **more: object
) -> dict[str, Any]:
    """The chart's specification with its rows, by the names that the chart has for them.

    Altair copies a chart with all that is in it at each word said of it: the rows are added at the end.
    """
    spec: dict[str, Any] = chart.to_dict(validate=False)
    spec.pop("$schema", None)
    return {**spec, "datasets": {name: list(of) for name, of in rows.items()}, "config": _config(), **more}


def _chart(rows: str) -> alt.Chart:
    """A chart of the rows of this name."""
    return alt.Chart(alt.NamedData(name=rows))


def _colors(parts: Iterable[str]) -> list[str]:
    return [_var(variable(part)) for part in parts]


_SCALE: Final = alt.Scale(domain=list(map(part_short, PARTS)), range=_colors(PARTS))


def _steps(data: Mapping[str, Any]) -> dict[str, Any]:
    x = alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0, labelOverlap=True, grid=False))
    tip = ["step:O", "part:N", alt.Tooltip("ms:Q", format=",.3~f", title="ms")]
    bars = (
        _chart("bars")
        .mark_bar()
        .encode(
            x=x,
            y=alt.Y("ms:Q", title="ms", stack="zero", axis=alt.Axis(tickCount=4)),
            color=alt.Color("part:N", scale=_SCALE, legend=None),
            order="order:Q",
            opacity=alt.Opacity("used:O", scale=alt.Scale(domain=[True, False], range=[1, 0.35]), legend=None),
            tooltip=tip,
        )
    )
    crosses = (
        _chart("crosses")
        .mark_text(dy=-8, fontSize=12, color=_var("--quiet"))
        .encode(
            x=x,
            y="ms:Q",
            text="mark:N",
            tooltip=["step:O", alt.Tooltip("why:N", title="left out")],
        )
    )
    both = alt.layer(bars, crosses) if data["crosses"] else bars
    rows = {name: data[name] for name in ("bars", "crosses") if data[name]}
    return _spec(both.properties(width="container", height=200), rows)


def _ranks(data: Mapping[str, Any]) -> dict[str, Any]:
    chart = (
        _chart("bars")
        .mark_bar(height={"band": 0.8})
        .encode(
            x=alt.X("ms:Q", title=data["unit"], stack="zero", axis=alt.Axis(tickCount=5)),
            y=_by_rank("rank"),
            color=alt.Color("part:N", scale=_SCALE, legend=None),
            order="order:Q",
            tooltip=["rank:N", "part:N", alt.Tooltip("ms:Q", format=",.3~f", title=data["unit"])],
        )
        .properties(width="container", height=data["ranks"] * _row_px(data["ranks"]))
    )
    return _spec(chart, {"bars": data["bars"]})


def _row_px(ranks: int) -> int:
    return max(6, min(_ROW_PX, 640 // ranks))


def _by_rank(field: str, title: str | None = None) -> alt.Y:
    axis = alt.Axis(grid=False, labelOverlap=True, labelLimit=140, title=title)
    return alt.Y(f"{field}:N", sort=alt.EncodingSortField("place", op="min"), axis=axis, title=title)


def _heat(data: Mapping[str, Any]) -> dict[str, Any]:
    cells = data["cells"]
    ranks = len({cell["rank"] for cell in cells})
    chart = _cells(cells, "step:O", "rank", data["unit"])
    return _spec(chart.properties(width="container", height=ranks * _row_px(ranks)), {"cells": cells})


def _cells(cells: Sequence[Mapping[str, object]], x: str, y: str, title: str) -> alt.Chart:
    """A heat map of the cells' `ms`."""
    known = [float(cell["ms"]) for cell in cells if isinstance(cell["ms"], int | float)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    low = low if high > low * _PROMPT_GAP else 0.0  # no difference is drawn where there is none worth one
    field = x.partition(":")[0]
    across = {cell[field] for cell in cells}
    chart: alt.Chart = (
        _chart("cells")
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
            tooltip=[alt.Tooltip(f"{y}:N"), alt.Tooltip(x), alt.Tooltip("ms:Q", format=",.3~f", title=title)],
        )
    )
    return chart


def _waits(data: Mapping[str, Any]) -> dict[str, Any]:
    cells = data["cells"]
    ranks = len({cell["waiting"] for cell in cells})
    chart: Any = _cells(cells, "awaited:N", "waiting", data["unit"])
    rows = {"cells": cells}
    if ranks <= _FEW_RANKS:
        chart = alt.layer(chart, _numbers(cells))
        rows["numbers"] = _worth_a_number(cells)
    return _spec(chart.properties(width="container", height=ranks * max(_row_px(ranks), 14)), rows)


def _worth_a_number(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    most_ms = max(float(cell["ms"]) for cell in cells)
    return [cell for cell in cells if float(cell["ms"]) >= _WORTH_A_NUMBER * most_ms]


def _numbers(cells: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """The milliseconds in the cells where there is room for them: `numbers`."""
    times = [float(cell["ms"]) for cell in cells]
    most_ms, least_ms = max(times), min(times)
    low_ms = least_ms if most_ms > least_ms * _PROMPT_GAP else 0.0
    dark_ms = low_ms + _DARK * (most_ms - low_ms)
    shade = alt.condition(f"datum.ms >= {dark_ms}", alt.value(_var("--paper")), alt.value(_var("--ink")))
    chart: alt.Chart = (
        _chart("numbers")
        .mark_text(fontSize=11)
        .encode(
            x=alt.X("awaited:N", sort=alt.EncodingSortField("across", op="min")),
            y=alt.Y("waiting:N", sort=alt.EncodingSortField("place", op="min")),
            text=alt.Text("ms:Q", format=".2~f"),
            color=shade,
        )
    )
    return chart


def _bandwidth(data: Mapping[str, Any]) -> dict[str, Any]:
    points = data["points"]
    curve = sorted((p for p in points if p["expected"] is not None), key=lambda p: float(p["bytes"]))
    x = _message_size([float(point["bytes"]) for point in points])
    tip = [
        *("op:N", "ranks:Q", "size:N", "calls:Q"),
        alt.Tooltip("bus:Q", format=",.3~r", title="bus GB/s"),
        alt.Tooltip("expected:Q", format=",.3~r", title="expected GB/s"),
    ]
    measured = (
        _chart("points")
        .mark_point(filled=True, size=70, color=_var("--accent"), opacity=0.9)
        .encode(
            x=x,
            y=alt.Y("bus:Q", scale=alt.Scale(type="log"), title="bus bandwidth, GB/s", axis=alt.Axis(tickCount=5)),
            shape=alt.Shape("op:N", legend=alt.Legend(orient="top", title=None, symbolFillColor=_var("--accent"))),
            tooltip=tip,
        )
    )
    expected = (
        _chart("curve")
        .mark_line(color=_var("--quiet"), strokeDash=[4, 3], point=alt.OverlayMarkDef(color=_var("--quiet"), size=20))
        .encode(x=x, y="expected:Q", detail=["op:N", "ranks:Q"], tooltip=tip)
    )
    both = alt.layer(expected, measured) if curve else measured
    rows = {"points": points, "curve": curve} if curve else {"points": points}
    return _spec(both.properties(width="container", height=260), rows)


def _message_size(sizes: Sequence[float]) -> alt.X:
    """Whole powers of two with room on both sides: a job may send messages of one size alone."""
    b, kib, mib = (f"format(datum.value / {unit}, ',.2~f')" for unit in (1, 1024, 1048576))
    label = f"datum.value < 1024 ? {b} + ' B' : datum.value < 1048576 ? {kib} + ' KiB' : {mib} + ' MiB'"
    low, high = math.floor(math.log2(min(sizes)) - 0.5), math.ceil(math.log2(max(sizes)) + 0.5)
    ticks = [2**power for power in range(low, high + 1, max(1, (high - low) // 6))]
    scale = alt.Scale(type="log", base=2, domain=[2**low, 2**high], nice=False)
    return alt.X("bytes:Q", scale=scale, title="message", axis=alt.Axis(labelExpr=label, values=ticks))


def _memory(data: Mapping[str, Any]) -> dict[str, Any]:
    unit = data["unit"]
    x = alt.X(
        "ms:Q",
        title="ms from the first allocation",
        scale=alt.Scale(nice=False),
        axis=alt.Axis(grid=False, tickCount=6),
    )
    tip = [
        alt.Tooltip("ms:Q", format=",.1f"),
        alt.Tooltip("allocated:Q", format=",.3~r", title=f"allocated {unit}"),
        alt.Tooltip("reserved:Q", format=",.3~r", title=f"reserved {unit}"),
    ]
    base, peak = _chart("points"), _chart("peak")
    area = base.mark_area(interpolate="step-after", color=_var("--accent"), opacity=0.25, line=False)
    line = base.mark_line(interpolate="step-after", color=_var("--accent"), strokeWidth=1.5)
    dashed = base.mark_line(interpolate="step-after", color=_var("--quiet"), strokeDash=[4, 3])
    label = peak.mark_text(dy=-10, color=_var("--ink"), fontSize=12, align="center")
    layers = [
        area.encode(x=x, y=alt.Y("allocated:Q", title=unit, axis=alt.Axis(tickCount=4)), tooltip=tip),
        line.encode(x=x, y="allocated:Q"),
        *([dashed.encode(x=x, y="reserved:Q")] if data["reserved"] else []),
        peak.mark_point(filled=True, size=60, color=_var("--accent")).encode(x=x, y="allocated:Q"),
        label.encode(x=x, y="allocated:Q", text="text:N"),
    ]
    rows = {"points": data["points"], "peak": [data["peak"]]}
    return _spec(alt.layer(*layers).properties(width="container", height=180), rows)


def _alone(article: Article) -> dict[str, Any]:
    """The breakdown as one bar with a legend beside it, on white."""
    where, segments = _first_bar(article)
    names = [f"{s.label}  {', '.join(filter(None, (s.value, s.time)))}" for s in segments]
    rows = [{"part": n, "share": s.share, "order": i} for i, (n, s) in enumerate(zip(names, segments, strict=True))]
    chart = (
        _chart("segments")
        .mark_bar(stroke=_var("--paper"), strokeWidth=1, height=44)
        .encode(
            x=alt.X("share:Q", stack="zero", axis=None, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=names, range=_colors(segment.part for segment in segments)),
                legend=alt.Legend(orient="bottom", title=None, columns=4, labelLimit=260, symbolType="square"),
            ),
            order="order:Q",
        )
        .properties(width=720, height=48)
    )
    title = {
        "text": one_line(article.headline, 110),
        "subtitle": f"{one_line(article.name, 60)}: {where[:1].lower()}{where[1:]}",
        "anchor": "start",
        "color": _var("--ink"),
        "subtitleColor": _var("--quiet"),
        "fontSize": 17,
        "subtitleFontSize": 13,
        "offset": 14,
    }
    spec = _spec(chart, {"segments": rows}, title=title, background=_var("--paper"), padding=20)
    return {**spec, "autosize": "pad"}


def _first_bar(article: Article) -> tuple[str, Sequence[Segment]]:
    """The title of the first section with bars, and the segments of the first."""
    every = ((section.title, block) for section in article.sections for block in section.blocks)
    bars = ((title, block.bars[0].segments) for title, block in every if isinstance(block, Bars) and block.bars)
    return next(bars, ("", ()))


_SPECS: Final[dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "steps": _steps,
    "ranks": _ranks,
    "heat": _heat,
    "waits": _waits,
    "bandwidth": _bandwidth,
    "memory": _memory,
}
