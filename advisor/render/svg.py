"""The charts of a run as SVG: no script, and no library, draws them.

Lengths across are in percent and those down in pixels, so that a chart is as wide as its page while its letters stay
as they are. Colours are the variables of the page's style.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from advisor.present.charts import Chart
from advisor.text import bytes_, capital, number
from advisor.vocabulary.parts import PARTS, variable

Rows: TypeAlias = Sequence[Mapping[str, Any]]
_Parts: TypeAlias = Iterator[str]  # of a drawing: its height in pixels, then its elements
_Axis: TypeAlias = tuple[str, str, str]  # of a heat map: what names its rows or columns, what orders them, its title

_KINDS: Final = {"named ": {"ranks", "heat", "waits", "use"}, "plain ": {"step", "sequence"}}
"""Styles of drawings: with names at their left, or without any axis."""
_HEIGHT: Final = 180  # pixels of a chart with an axis upwards
_WITH_AXIS: Final = f"{_HEIGHT + 40}"  # with the names below it
_LONG: Final = 20  # characters of a name: longer ones need more room at the left
_MOST_LABELS: Final = 12
_NARROW: Final = 3  # of so many labels, a narrow page has room for one
_FEW_RANKS: Final = 12  # up to so many, a number fits into each cell
_STEP: Final = 44  # pixels of the annotated step
_LINE: Final = 18  # pixels of a label
_AFTER: Final = 42  # pixels of the step after an action, with its words
_ROW: Final = (6, 22)  # pixels of a rank, at least and at most
_ROWS: Final = 640  # pixels of all ranks
_SHADES: Final = 10
_PROMPT_GAP: Final = 1.02  # a smaller spread of a heat map's values is no difference
_WORTH_A_NUMBER: Final = 0.005  # of the largest
_MARKS: Final = "●■◆▲▼★"


def drawing(chart: Chart, article: str) -> str:
    """The chart as one element, folded below it what is behind its rows; `article` is the id of its run on the page."""
    height, *elements = _DRAWS[chart.name]({**chart.data, "article": article})
    kind = next((style for style, names in _KINDS.items() if chart.name in names), "")
    names = (str(row[key]) for row in numbers(chart) for key in ("rank", "waiting", "use") if key in row)
    kind += "long " * any(len(name) > _LONG for name in names)
    picture = f'<svg class="{kind}drawing" height="{height}">{"".join(elements)}</svg>'
    if not (behind := chart.data.get("behind")):
        return picture
    rows = (
        f'<details><summary>{escape(name)}</summary><div id="{article}-{chart.name}-{at}">'
        f"{drawing(chart._replace(data={**chart.data, 'cells': cells, 'behind': None}), article)}</div></details>"
        for at, (name, cells) in enumerate(behind.items())
    )
    return f"{picture}<details><summary>{capital(chart.data['of'])}s of each node</summary>{''.join(rows)}</details>"


def numbers(chart: Chart) -> Rows:
    """The rows that the chart is picture from, to be given away as a table."""
    return next(rows for name in ("bars", "cells", "points") if (rows := chart.data.get(name)) is not None)


def _text(x: str, y: float, words: object, style: str = "") -> str:
    of_class = f' class="{style}"' if style else ""
    return f'<text{of_class} x="{x}" y="{y:g}">{escape(str(words))}</text>'


def _rect(x: float, y: float, width: float, height: float, part: str) -> str:
    """A rectangle in the colour of a part: x and width of 1, y and height in pixels."""
    size = f'width="{100 * width:.2f}%" height="{height:.1f}"'
    return f'<rect fill="var({variable(part)})" x="{100 * x:.2f}%" y="{y:.1f}" {size}/>'


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _ticks(most: float, amount: int = 4) -> list[float]:
    if most <= 0:
        return [0.0]
    power = 10 ** math.floor(math.log10(most / amount))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * amount >= most)
    return [step * n for n in range(math.floor(most / step) + 1)]


def _annotated(data: Mapping[str, Any]) -> _Parts:
    """What the device runs over the step, with a label for each long gap.

    Labels of the first half stand above and read to the right, those of the second below and to the left, the middle's
    nearest to the step: no line crosses a label at any width.
    """
    early, late = ([gap for gap in data["gaps"] if (gap["start"] + gap["end"] > 1) is half] for half in (False, True))
    top = _LINE * len(early)
    bottom = top + _STEP
    below = bottom + _LINE * len(late) + 6
    yield f"{below + (_LINE + _STEP + 6 if data.get('after') else 0)}"
    yield _strip(data["bars"], top)
    yield from (_label(gap, top, top - _LINE * at - 7, "label") for at, gap in enumerate(reversed(early)))
    yield from (_label(gap, bottom, bottom + _LINE * at, "label left") for at, gap in enumerate(late, 1))
    if data.get("after"):
        yield _text("0", below + 12, data["label"], "dark")
        yield f'<rect class="track" y="{below + _LINE}" width="100%" height="{_STEP}"/>'
        yield _strip(data["after"], below + _LINE)


def _strip(bars: Rows, y: int) -> str:
    """What runs, from left to right, as thick lines: one path of each part; rectangles take much more room."""
    lines: dict[str, list[str]] = {}
    for row in bars:
        size = f"{1000 * (row['end'] - row['start']):.1f}"
        lines.setdefault(row["part"], []).append(f"M{1000 * row['start']:.1f} 0h{size}")
    paths = (f'<path stroke="var({variable(part)})" d="{"".join(of)}"/>' for part, of in lines.items())
    size = f'height="{_STEP}" viewBox="0 -{_STEP // 2} 1000 {_STEP}" stroke-width="{_STEP}"'
    return f'<svg y="{y}" width="100%" {size} preserveAspectRatio="none">{"".join(paths)}</svg>'


def _sequence(data: Mapping[str, Any]) -> _Parts:
    """A waterfall: the step now, and below it the step after each action and all before it."""
    rows = data["bars"]
    now_ms = rows[0]["high_ms"]
    yield f"{_AFTER * len(rows)}"
    for at, row in enumerate(rows):
        least, most = row["low_ms"] / now_ms, row["high_ms"] / now_ms
        size = f'y="{_AFTER * at + 20}" height="{_AFTER - 26}"'
        yield _text("0", _AFTER * at + 14, row["step"], "dark")
        yield f'<rect class="remains" width="{_percent(least)}" {size}/>'
        yield f'<rect class="possible" x="{_percent(least)}" width="{_percent(most - least)}" {size}/>'
        yield f'<rect class="certain" x="{_percent(most)}" width="{_percent(1 - most)}" {size}/>'


def _label(gap: Mapping[str, Any], edge: int, y: int, style: str) -> str:
    x = _percent((gap["start"] + gap["end"]) / 2)
    return f'<line class="pointer" x1="{x}" x2="{x}" y1="{edge}" y2="{y - 4}"/>{_text(x, y, gap["label"], style)}'


def _upwards(most: float, title: str) -> Iterator[str]:
    for tick in _ticks(most):
        y = _HEIGHT * (1 - tick / most) if most else _HEIGHT
        yield f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text("-8", y + 4, number(tick), "left")
    yield _text("-8", -10, title, "left")


def _below(labels: Sequence[object], y: float, title: str = "") -> Iterator[str]:
    """Names below columns of one width, as many as there is room for."""
    every = -(-len(labels) // _MOST_LABELS)
    for nth, at in enumerate(range(0, len(labels), every)):
        style = "middle between" if nth % _NARROW else "middle"
        yield _text(_percent((at + 0.5) / len(labels)), y + 16, labels[at], style)
    yield _text("100%", y + 34, title, "left")


def _stacked(rows: Rows) -> list[tuple[str, str, float]]:
    """The parts of one bar in their order: code, name, and milliseconds."""
    codes = [*PARTS, ""]
    ordered = sorted(rows, key=lambda row: row["order"])
    return [(codes[row["order"]], str(row["part"]), float(row["ms"])) for row in ordered]


def _title(name: str, parts: Iterable[tuple[str, str, float]], unit: str) -> str:
    parts = [*parts]
    texts = ", ".join(f"{part} {number(ms)}" for _, part, ms in parts if ms)
    return f"<title>{escape(f'{name}: {number(sum(ms for *_, ms in parts))} {unit} ({texts})')}</title>"


def _steps(data: Mapping[str, Any]) -> _Parts:
    bars = {place: [*of_bar] for place, of_bar in groupby(data["bars"], key=lambda row: row["place"])}
    most = max((sum(row["ms"] for row in rows) for rows in bars.values()), default=0.0) or 1.0
    width, every = 1 / len(data["first"]), data["every"]
    yield _WITH_AXIS
    yield from _upwards(most, "ms")
    for place, rows in bars.items():
        yield from _step_bar(place * width, width, rows, most)
    yield from _below(data["first"], _HEIGHT, f"step; each bar is the mean of {every}" if every > 1 else "step")
    for cross in data["crosses"]:  # above each step that is left out, with the reason as its title
        y = _HEIGHT * (1 - min(cross["ms"] / most, 1)) - 4
        why = escape(f"step {cross['step']} left out: {cross['why']}")
        x = _percent((cross["place"] + 0.5) * width)
        yield f'<text class="middle" x="{x}" y="{y:.1f}"><title>{why}</title>{cross["mark"]}</text>'


def _step_bar(x: float, width: float, rows: Rows, most: float) -> Iterator[str]:
    parts, name = _stacked(rows), str(rows[0]["step"])
    what = f"step {name}" if name.isdecimal() else f"steps {name}, mean"
    faint = "" if rows[0]["used"] else ' class="faint"'
    yield f"<g{faint}>{_title(what, parts, 'ms')}"
    y = float(_HEIGHT)
    for code, _, ms in parts:
        height = _HEIGHT * ms / most
        y -= height
        yield _rect(x + width * 0.06, y, width * 0.88, height, code)
    yield "</g>"


def _row_px(ranks: int) -> int:
    least, most = _ROW
    return max(least, min(most, _ROWS // max(ranks, 1)))


def _names(names: Sequence[str], row: float) -> Iterator[str]:
    every = math.ceil(_ROW[1] * 0.6 / row)
    for at in range(0, len(names), every):
        yield _text("-8", (at + 0.5) * row + 4, names[at], "left")


def _ranks(data: Mapping[str, Any]) -> _Parts:
    bars = [(str(rank), _stacked([*rows])) for rank, rows in groupby(data["bars"], key=lambda row: row["rank"])]
    row = _row_px(len(bars))
    most = max((sum(ms for *_, ms in parts) for _, parts in bars), default=0.0) or 1.0
    yield f"{len(bars) * row + 40}"
    for at, (name, parts) in enumerate(bars):
        yield f"<g>{_title(name, parts, data['unit'])}"
        x = 0.0
        for code, _, ms in parts:
            yield _rect(x, (at + 0.1) * row, ms / most, 0.8 * row, code)
            x += ms / most
        yield "</g>"
    yield from _names([name for name, _ in bars], row)
    for tick in _ticks(most):
        yield _text(_percent(tick / most), len(bars) * row + 16, number(tick), "middle")
    yield _text("100%", len(bars) * row + 34, data["unit"], "left")


def _waits(data: Mapping[str, Any]) -> _Parts:
    few = len({cell["waiting"] for cell in data["cells"]}) <= _FEW_RANKS
    x, y = ("awaited", "across", "for this one"), ("waiting", "place", "this one waits")
    return _cells(data["cells"], x, y, with_numbers=few)


def _heat(data: Mapping[str, Any]) -> _Parts:
    """Ranks or nodes over the steps; each node is a link to its ranks."""
    yield from _cells(data["cells"], ("step", "step", "step"), ("rank", "place", ""), of=data["range"])
    behind = data.get("behind") or ()
    row = _row_px(len(behind))
    for at, name in enumerate(behind):
        yield (
            f'<a href="#{data["article"]}-heat-{at}" tabindex="-1"><title>{escape(name)}</title>'
            f'<rect class="row" y="{at * row}" height="{row}"/></a>'
        )


def _cells(cells: Rows, x: _Axis, y: _Axis, *, with_numbers: bool = False, of: Sequence[float] = ()) -> _Parts:
    """A heat map of the cells' `ms`: all cells of one shade are one path.

    Cells of one shade side by side are one part of the path. `of` are the least and the most, where there are others.
    """
    across, down = (list(dict(sorted((c[key], str(c[name])) for c in cells)).items()) for name, key, _ in (x, y))
    column, line = ({key: at for at, (key, _) in enumerate(of)} for of in (across, down))
    known = of or [float(cell["ms"]) for cell in cells if cell["ms"] is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    low = low if high > low * _PROMPT_GAP else 0.0  # no difference is drawn where there is none worth one
    row = max(_row_px(len(down)), 14 if with_numbers else 0)
    height = len(down) * row

    def shade(ms: float) -> int:
        return min(_SHADES - 1, int(_SHADES * (ms - low) / (high - low))) if high > low else _SHADES - 1

    yield f"{height + 40}"
    paths: dict[int, list[str]] = {}
    placed = sorted(
        (line[cell[y[1]]], shade(float(cell["ms"])), column[cell[x[1]]]) for cell in cells if cell["ms"] is not None
    )
    for (down_at, tone, _), beside in groupby(enumerate(placed), key=lambda each: (*each[1][:2], each[1][2] - each[0])):
        (_, (*_, first)), *others = beside
        paths.setdefault(tone, []).append(f"M{first} {down_at}h{1 + len(others)}v1H{first}z")
    size = f'width="100%" height="{height}" viewBox="0 0 {len(across)} {len(down)}" preserveAspectRatio="none"'
    paths_of = (f'<path class="shade{number}" d="{"".join(path)}"/>' for number, path in sorted(paths.items()))
    yield f"<svg {size}>{''.join(paths_of)}</svg>"
    for cell in cells if with_numbers else ():
        if cell["ms"] is not None and float(cell["ms"]) >= _WORTH_A_NUMBER * high:
            style = "middle light" if shade(float(cell["ms"])) >= 0.7 * _SHADES else "middle dark"
            at_x, at_y = (column[cell[x[1]]] + 0.5) / len(across), (line[cell[y[1]]] + 0.5) * row + 4
            yield _text(_percent(at_x), at_y, number(float(cell["ms"])), style)
    yield from _names([name for _, name in down], row)
    yield from _below([name for _, name in across], height, x[2])
    yield _text("-8", -10, y[2], "left")


class _Point(NamedTuple):
    """A point of a scatter: where it is, what it is of, its title, and the finding that it leads to."""

    x: float
    y: float
    kind: str
    words: str
    link: str = ""


def _scatter(
    points: Sequence[_Point],
    lines: Sequence[Sequence[tuple[float, float]]],
    across: tuple[float, Callable[[float], str], str],
    unit: str,
) -> _Parts:
    """Points on logarithmic axes; `across` is what round numbers are powers of, how they read, and what is counted."""
    base, form, title = across
    sizes, speeds = [p.x for p in points], [p.y for p in points] + [y for line in lines for _, y in line]
    powers = [math.log(size, base) for size in sizes]
    least, most = math.floor(min(powers) - 0.5), math.ceil(max(powers) + 0.5)
    bottom, top = math.log10(min(speeds)) - 0.1, math.log10(max(speeds)) + 0.1
    kinds = list(dict.fromkeys(point.kind for point in points))

    def place(size: float, speed: float) -> tuple[str, float]:
        up = (math.log10(speed) - bottom) / (top - bottom)
        return _percent((math.log(size, base) - least) / (most - least)), _HEIGHT * (1 - up)

    yield _WITH_AXIS
    ends = min(speeds), max(speeds)
    tens = (10.0**n for n in range(math.ceil(bottom), math.floor(top) + 1))
    apart = [at for at in tens if all(abs(math.log10(at / end)) * _HEIGHT >= _LINE * (top - bottom) for end in ends)]
    for speed in (*apart, *ends):
        y = place(sizes[0], speed)[1]
        yield f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text("-8", y + 4, number(speed), "left")
    yield _text("-8", -10, unit, "left")
    for power in range(least, most + 1, max(1, (most - least) // 6)):
        size = base**power
        yield _text(place(size, speeds[0])[0], _HEIGHT + 16, form(size), "middle")
    yield _text("100%", _HEIGHT + 34, title, "left")
    for line in lines:
        for (x1, y1), (x2, y2) in pairwise(place(*end) for end in line):
            yield f'<line class="dashed" x1="{x1}" y1="{y1:.1f}" x2="{x2}" y2="{y2:.1f}"/>'
    for p in points:
        x, y = place(p.x, p.y)
        mark = _MARKS[kinds.index(p.kind) % len(_MARKS)]
        text = f'<text class="mark" x="{x}" y="{y + 5:.1f}"><title>{escape(p.words)}</title>{mark}</text>'
        yield f'<a href="{escape(p.link)}">{text}</a>' if p.link else text
    legend = "   ".join(f"{_MARKS[at % len(_MARKS)]} {kind}" for at, kind in enumerate(kinds))
    yield _text("0", -10, legend)


def _bandwidth(data: Mapping[str, Any]) -> _Parts:
    """Bus bandwidth by size of message; dashed what the links allow."""
    rows = data["points"]
    points = [
        _Point(
            float(p["bytes"]),
            float(p["bus"]),
            str(p["op"]),
            f"{p['op']}, {p['ranks']} ranks, {p['size']}, {p['calls']} calls: {number(p['bus'])} GB/s ({p['times']})",
        )
        for p in rows
    ]
    curve = sorted((p for p in rows if p["expected"]), key=lambda p: (p["op"], p["ranks"], p["bytes"]))
    lines = [
        [(float(p["bytes"]), float(p["expected"])) for p in of_group]
        for _, of_group in groupby(curve, key=lambda p: (p["op"], p["ranks"]))
    ]
    return _scatter(points, lines, (2, bytes_, "message"), "GB/s")


def _roof(data: Mapping[str, Any]) -> _Parts:
    """What ops reach by their FLOPs per byte; dashed what memory and arithmetic of the device allow."""
    points = [
        _Point(
            p["intensity"],
            p["tflops"],
            str(p["dtype"]),
            f"{p['op']} {p['shape']}: {number(p['tflops'])} TFLOP/s, {p['share']} of the roof, {p['time']}",
            f"#{data['article']}-finding-{p['finding']}" if p["finding"] else "",
        )
        for p in data["points"]
    ]
    lines = []
    for dtype, (peak, gbs) in data["roofs"].items():
        ridge = 1e3 * peak / gbs  # FLOP per byte
        own = [p.x for p in points if p.kind == str(dtype)]
        first, last = min(*own, ridge), max(*own, ridge)
        lines.append([(first, first * gbs / 1e3), (ridge, peak), (last, peak)])
    return _scatter(points, lines, (10, number, "FLOP per byte"), "TFLOP/s")


def _memory(data: Mapping[str, Any]) -> _Parts:
    points, peak = data["points"], data["peak"]
    last = max(float(point["ms"]) for point in points) or 1.0
    names = ["allocated", *(["reserved"] if data["reserved"] else [])]
    most = max(float(point[name] or 0.0) for point in points for name in names) or 1.0

    def line(name: str) -> str:
        steps = (f"H{1000 * p['ms'] / last:.1f}V{_HEIGHT * (1 - (p[name] or 0) / most):.1f}" for p in points)
        return f"M0 {_HEIGHT}{''.join(steps)}"

    yield _WITH_AXIS
    yield from _upwards(most, data["unit"])
    paths = [
        f'<path class="area" d="{line("allocated")}V{_HEIGHT}z"/>',
        f'<path class="line" d="{line("allocated")}"/>',
    ]
    paths += [f'<path class="dashed" d="{line("reserved")}"/>'] if data["reserved"] else []
    size = f'width="100%" height="{_HEIGHT}" viewBox="0 0 1000 {_HEIGHT}" preserveAspectRatio="none"'
    yield f"<svg {size}>{''.join(paths)}</svg>"
    x, y = peak["ms"] / last, _HEIGHT * (1 - peak["allocated"] / most)
    yield f'<circle class="mark" cx="{_percent(x)}" cy="{y:.1f}" r="4"/>'
    yield _text(_percent(x), y - 10, peak["text"], "left dark" if x > 0.5 else "dark")  # noqa: PLR2004 - the middle
    for tick in _ticks(last, 5):
        yield _text(_percent(tick / last), _HEIGHT + 16, number(tick), "middle")
    yield _text("100%", _HEIGHT + 34, "ms from the first allocation", "left")


_DRAWS: Final[dict[str, Callable[[Mapping[str, Any]], _Parts]]] = {
    "step": _annotated,
    "sequence": _sequence,
    "steps": _steps,
    "ranks": _ranks,
    "heat": _heat,
    "waits": _waits,
    "bandwidth": _bandwidth,
    "roof": _roof,
    "use": lambda data: _cells(data["cells"], ("part", "across", "ms"), ("use", "place", ""), of=(0.0, 1.0)),
    "memory": _memory,
}
