"""A document as one HTML page that needs nothing else: no network, no fonts, and a policy that forbids both.

What it shows beside its words: charts as SVG, and as JSON their numbers, the timeline and the tables.
`picture`: where a run's step goes, as SVG or PNG that stands alone; its colours are the page's light ones.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from advisor import text
from advisor.errors import UsageError, contained, failure
from advisor.inputs.names.kernels import kernel_name
from advisor.model.comparison import Amount, Comparison
from advisor.model.finding import Value
from advisor.model.report import Report, Row, Run, Timeline, number
from advisor.present import document as doc
from advisor.present.charts import Chart, charts
from advisor.present.comparison import work_name, work_size, work_status
from advisor.present.document import Article, Bars
from advisor.present.findings import WEB
from advisor.present.report import track_label
from advisor.present.tables import MOST_ROWS
from advisor.render.markdown import code_spans
from advisor.render.svg import drawing, numbers
from advisor.system.resources import reports_folder
from advisor.text import first_sentence, one_line
from advisor.vocabulary.kinds import DocumentKind
from advisor.vocabulary.parts import IDLE_WORDS, LOOKS, idle_part, look, variable
from advisor.vocabulary.severities import GRADES

Payload: TypeAlias = Mapping[str, Any]
"""What the scripts of an article draw from, by what it is."""

_Sums: TypeAlias = Mapping[str, Callable[[list[float]], float]]
_LONGEST_NAME: Final = 120  # characters of a name in a table
_LONGEST_EVENT: Final = 80  # characters of a name in the timeline
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
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def payloads(value: object) -> dict[str, Payload]:
    """The data of every article that has any, by its id."""
    if isinstance(value, Report):
        return {f"run-{number}": _payload(run) for number, run in enumerate(value.runs, 1)}
    if not isinstance(value, Comparison):
        return {}
    frames = [
        (number, frame.parent, frame.name, frame.kind, frame.head_ms, frame.head_self_ms, frame.base_ms or None)
        for number, frame in enumerate(value.frames)
    ]
    work = [
        (
            *(work_status(of), of.work, work_name(of), of.name, work_size(of) or None),
            *(*_amount(of.base), *_amount(of.head), of.change_ms, abs(of.change_ms)),
        )
        for of in value.work
    ]
    flame = table((*_FRAMES, "base_ms"), frames) if frames else None
    return {"compare": {"tables": {"work": table(_WORK, work) if work else None}, "flame": flame}}


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
    articles = {f"run-{number}": charts(run) for number, run in enumerate(runs, 1)}
    instead = "<p>Not drawn: {}.</p>".format
    return {
        article: {of.name: contained(partial(drawing, of, article), lambda kind: instead(failure(kind))) for of in each}
        for article, each in articles.items()
    }


def _of_chart(chart: Chart) -> dict[str, object]:
    """The numbers of a chart as a table: what only orders them is left out."""
    rows = numbers(chart)
    columns = [name for name in (rows[0] if rows else ()) if name not in {"order", "place", "across"}]
    return table(columns, [[row[name] for name in columns] for row in rows])


def _amount(of: Amount | None) -> tuple[Value, Value]:
    return (of.per_step, of.ms_per_step) if of else (None, None)


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
        plain = re.sub(r"_\d+$", "", name) if isinstance(name, str) else name
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
        return one_line(value, _LONGEST_NAME)
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
                "title": one_line(titles.get(key, key), _LONGEST_NAME),
                "spans": [[s.start_ns, s.dur_ns] for s in spans],
            }
            for key, spans in timeline.shows.items()
        ],
    }


_ASSETS: Final[dict[DocumentKind, tuple[str, ...]]] = {
    "report": ("charts.js", "tables.js", "timeline.js", "flame.js"),
    "comparison": ("changes.css", "compare.css", "tables.js", "flame.js"),
    "week": ("changes.css", "fleet.css", "fleet.js"),
    "trials": (),
}
"""What a page has beside the style and the script of all pages."""
_LONGEST, _LONGEST_PROSE, _LONGEST_CODE = 400, 1500, 4000  # characters of one text: the whole of it is in the JSON
_FEW_RUNS: Final = 5  # in a cell of a notebook
_INTERVAL: Final = re.compile(r"\d[\d.]*\N{EN DASH}\d[\d.]*|GPU-(?:h|min|s)\b|--[a-z][a-z-]{0,30}")
_LONG_NAME: Final = re.compile(r"[\w/:.]{20,}")
_PART_OF_NAME: Final = re.compile(r"(?<=[_/:.])(?=[A-Za-z]{2})")
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect y='6' width='16' "
    "height='5' rx='2' fill='%23b9bfd0'/%3E%3Crect y='6' width='10' height='5' rx='2' fill='%233b4fd8'/%3E%3C/svg%3E"
)


def render(
    document: doc.Document,
    payloads: Mapping[str, Payload],
    drawings: Mapping[str, Mapping[str, str]],
    *,
    links: str | None = None,
) -> str:
    """The document as a page for any browser, light or dark, wide or narrow, on screen or on paper.

    `payloads` are what the scripts draw from, and `drawings` the charts by name as SVG, both by the id of an article.
    `links` is the folder or URL of the reports of runs; without it nothing is linked.
    """
    charts = {of: {name: Markup(svg) for name, svg in each.items()} for of, each in drawings.items()}  # noqa: S704 - as below
    texts = {name: json.dumps(of, separators=(",", ":"), allow_nan=False) for name, of in payloads.items()}
    data = {name: Markup(text.translate(_ESCAPES)) for name, text in texts.items()}  # noqa: S704 - ends no element
    assets = ("report.css", "report.js", *_ASSETS[document.kind])
    style = Markup().join([part_colours(), *(asset(name) for name in assets if name.endswith(".css"))])
    scripts = [asset(name) for name in assets if name.endswith(".js")]
    return (
        environment()
        .get_template("document.html")
        .render(
            document=document,
            payloads=data,
            charts=charts,
            links=links,
            style=style,
            scripts=scripts,
            policy=escape(
                f"default-src 'none'; style-src {_hash(style)}; script-src {' '.join(map(_hash, scripts))}; "
                "img-src data:; base-uri 'none'; form-action 'none'"
            ),
            icon=Markup(_ICON),  # noqa: S704 - our own constant
        )
    )


def fragment(document: doc.Document) -> str:
    """The verdicts and findings with bars, for a cell of a notebook: no script, and nothing that is loaded."""
    return environment().get_template("notebook.html").render(document=document, few=_FEW_RUNS)


@cache
def environment() -> Environment:
    """What fills our templates, with their filters; all values are escaped."""
    environment = Environment(
        loader=FileSystemLoader(reports_folder() / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "capital": text.capital,
        "code": _code,
        "colour": lambda part: f"var({variable(part)})",
        "grade": GRADES.__getitem__,
        "kind": lambda block: type(block).__name__,
        "level": lambda block: block.level.value,
        "lines": _lines,
        "link": lambda value: bool(WEB.fullmatch(value)),  # no medium can read it as anything else
        "points": lambda share: f"{100 * min(max(share, 0.0), 1.0):.2f}",
        "prose": _prose,
        "paint": lambda part: look(part).colour.light,  # a notebook's cell has no style of its own
        "percent": text.percent,
        "ms": text.ms,
    }
    return environment


@cache
def part_colours() -> Markup:
    """The variables of the parts' colours, for light and dark surroundings."""
    colours = {variable(code): each.colour for code, each in LOOKS.items()}
    lines = (f"  {name}: light-dark({colour.light}, {colour.dark});" for name, colour in colours.items())
    return Markup("\n".join((":root {", *lines, "}", "")))  # noqa: S704 - our own constants


@cache
def asset(name: str) -> Markup:
    """Style or script, as it stands in its element; the policy allows it by its hash."""
    return Markup((reports_folder() / "templates" / name).read_text("utf-8"))  # noqa: S704 - ships with the package


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _printable(value: object) -> object:
    """What a template prints for a value, before it is escaped."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return text.UNKNOWN if value is None else value
    return _together(text.shortened(text.plain(value), _LONGEST))


def _together(words: str) -> str:
    return text.UNIT_BLANK.sub("\N{NO-BREAK SPACE}", words)


def _prose(value: str) -> Markup:
    spans = ((code, _unbroken(part)) for code, part in code_spans(_together(text.one_line(value, _LONGEST_PROSE))))
    return Markup().join(Markup("<code>{}</code>").format(part) if code else part for code, part in spans)


def _unbroken(words: str) -> Markup:
    """Escaped text whose intervals, units and options stay on one line, and whose long names break behind a part."""
    # a plain string: `sub` joins with the type of its subject, and Markup would escape the spans
    broken = _LONG_NAME.sub(lambda name: _PART_OF_NAME.sub("<wbr>", name[0]), str(escape(words)))
    return Markup(_INTERVAL.sub(r'<span class="interval">\g<0></span>', broken))  # noqa: S704 - digits and options alone


def _code(value: str) -> Markup:
    """An escaped name, with a chance to break a long one behind each of its parts."""
    parts = re.split(r"(?<=[_/.:#])(?=\w)", text.one_line(value, _LONGEST))
    return Markup("<wbr>").join(escape(part) for part in parts)


def _lines(value: str) -> Markup:
    """Escaped lines that keep their breaks and indentation; not a string, which `_printable` would cut short."""
    lines = text.shortened(text.plain(value).rstrip(), _LONGEST_CODE).splitlines(keepends=True)
    return Markup().join(Markup('<span class="line">{}</span>').format(line) for line in lines)


def picture(article: Article, kind: str) -> bytes:
    """Where a step of the run goes as a picture, `svg` or `png`, for Markdown and mail.

    Raises:
        UsageError: what draws PNG is not installed.
    """
    # The title of the first section with bars, and the segments of the first.
    every = ((section.title, block) for section in article.sections for block in section.blocks)
    bars = ((title, block.bars[0].segments) for title, block in every if isinstance(block, Bars) and block.bars)
    where, segments = next(bars, ("", ()))
    svg = (
        environment()
        .get_template("picture.svg")
        .render(
            title=one_line(first_sentence(article.headline), 90),
            subtitle=f"{one_line(article.name, 60)}: {where[:1].lower()}{where[1:]}",
            segments=segments,
            colours=dict(re.findall(r"(--[\w-]+): light-dark\((#[0-9a-f]{6}),", asset("report.css"))),
        )
    )
    if kind == "svg":
        return svg.encode()
    try:
        from resvg_py import svg_to_bytes  # noqa: PLC0415 - only pictures in pixels need it
    except ImportError:
        raise UsageError("PNG files need one more package: pip install 'gpu-advisor[pictures]'") from None
    return bytes(svg_to_bytes(svg_string=svg, zoom=2))
