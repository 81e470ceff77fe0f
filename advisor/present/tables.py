"""What stands behind the findings: kernels, operators, modules, tf.data, memory at the peak, collectives, phases."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from advisor.inputs.names.stacks import stage_of
from advisor.model.finding import Value
from advisor.model.report import Row, Run, number
from advisor.model.source import Steps
from advisor.present import document as doc
from advisor.text import bytes_, count, in_words, listing, ms, percent, rank
from advisor.text import number as in_digits
from advisor.vocabulary.kinds import PHASES
from advisor.vocabulary.parts import UNMARKED

MOST_ROWS: Final = 50
"""Rows of the tables of kernels and operators on a page: those that take most time."""

_OWNERS: Final = {"others": "all others", "earlier": "allocated before the recording began, such as weights"}
_HOLDS: Final = {
    **dict.fromkeys(("loading", "storage", "sleep", "work"), "loading"),
    **dict.fromkeys(("ready", "step"), "the step's rest"),
    "cores": "the cores",
    "delay": "waits for a core",
    "lock": "Python's lock",
    "transport": "handing over",
}
_DEEPEST: Final = 40
_INDENT: Final = "\N{NO-BREAK SPACE}" * 2
_COLOUR: Final = "The stronger the colour, the more of the time a frame takes by itself."


def kernels_and_operators(run: Run) -> doc.Section | None:
    """The tables that a page's script groups and sorts."""
    present = [name for name, scope in {"kernels": "kernel_group", "operators": "op"}.items() if run.metrics.get(scope)]
    if not present:
        return None
    says, per = _what_tables_count(run), (", per step" if run.source.steps.marked else "",)
    widgets = (doc.Widget("tables", name, says=says if name == present[0] else "", words=per) for name in present)
    return doc.Section(listing(present).capitalize(), tuple(widgets), id="tables", level=doc.Level.BEHIND, is_wide=True)


def _what_tables_count(run: Run) -> str:
    of = "Calls and times of a mean step" if run.source.steps.marked else f"Calls and times in {UNMARKED}"
    kernels, ops = run.metrics.get("kernel_group"), run.metrics.get("op")
    several = len(run.source.devices) > 1
    whose = ["kernels of the device that sets the pace"] if kernels and several else []
    whose += ["operators of the average device"] if ops and several else []
    host = (
        " An operator's host time excludes the operators inside it; its device time is that of what it launches itself."
    )
    cut = max(len(kernels or ()), len(ops or ())) > MOST_ROWS
    most = (
        f" Behind the first {MOST_ROWS}, rows of one name are one; the JSON and `-o kernels.csv` have all."
        if cut
        else ""
    )
    return f"{of}{f': {listing(whose)}' if whose else ''}.{most}{host if ops else ''}"


def flame(run: Run) -> doc.Section | None:
    """The time of a step by module; None where there are no frames."""
    rows = run.metrics.get("call_tree", ())
    if all(row.get("name") is None for row in rows):  # one frame of what nothing is known of shows nothing
        return None
    kinds = {row.get("kind") for row in rows}
    whose = "device" if run.source.devices else "host"
    total = sum(number(row, "total_ms") for row in rows if row.get("parent") is None)
    when = "a step" if run.source.steps.marked else UNMARKED
    everything = f"{whose} time of {when}{', all threads' if whose == 'host' else ''}: {ms(total)}"
    backward = "; the backward pass counts where the forward op ran" if "module" in kinds else ""
    says = f"Time of kernels and copies under what launched them; where they overlap, each counts{backward}. {_COLOUR}"
    says = f"Time of the host's ranges, all threads together. {_COLOUR}" if whose == "host" else says
    return flame_of(whose, kinds, says, (everything,))


def flame_of(whose: str, kinds: Container[Value], says: str, words: tuple[str, ...], when: str = "") -> doc.Section:
    """The flame graph of the time of a device or host, of frames of these kinds."""
    part = next((kind for kind in ("module", "scope", "annotation") if kind in kinds), None)
    title = f"{whose.capitalize()} time by {listing([part, 'operator'] if part else ['operator'])}{when}"
    widget = doc.Widget("flame", "flame", title, says, words)
    return doc.Section(title, (widget,), id="flame", level=doc.Level.BEHIND, is_wide=True)


def pipeline(run: Run) -> doc.Section | None:
    """The pipelines of tf.data that the steps ask, each from the transformation that is asked first."""
    rows = run.metrics.get("iterator", ())
    known = {row.get("iterator") for row in rows}
    inner: dict[Value, list[Row]] = {}
    for row in rows:
        inner.setdefault(row.get("parent") if row.get("parent") in known else None, []).append(row)

    def below(iterator: Value, depth: int) -> Iterator[doc.Row]:
        for row in inner.get(iterator, []) if depth < _DEEPEST else ():
            yield _stage(row, depth, run.source.steps, sum(number(row, "waited_ms") for row in rows))
            yield from below(row.get("iterator"), depth + 1)

    stages = tuple(below(None, 0))
    if not stages:
        return None
    per = " a step" if run.source.steps.marked else ""
    numbers = (f"Steps wait{per}", f"It works{per}", "Calls", "At once")
    heads = (doc.Head("Transformation"), *(doc.Head(what, is_number=True) for what in numbers))
    lead = (
        "A step asks the transformation at the top, and each asks the one below it. The critical path is marked, down"
        " to the one that holds up the others."
    )
    table = doc.Table(heads, stages, bars="Bars: how long the steps wait for it.")
    blocks = (doc.Text(lead, "quiet"), table)
    return doc.Section("The input pipeline of tf.data", blocks, id="pipeline", level=doc.Level.BEHIND)


def _stage(row: Row, depth: int, steps: Steps, all_ms: float) -> doc.Row:
    """How long the steps wait for a transformation, how long it works, how often it is asked, how much runs at once."""
    waited, works = (
        number(row, f"{name}_ms") / max(1, n) for name, n in (("waited", steps.used), ("self", steps.count))
    )
    mark = "bottleneck" if row.get("bottleneck") else "critical path" if row.get("critical") else ""
    counts = (str(row[name]) if isinstance(row.get(name), int) else "" for name in ("calls", "parallelism"))
    name = doc.Cell(f"{_INDENT * depth}{row.get('transformation')}", beside=mark)
    share = number(row, "waited_ms") / all_ms if all_ms else 0.0
    return doc.Row((name, doc.Cell(ms(waited)), doc.Cell(ms(works)), *map(doc.Cell, counts)), extent=(share, share))


def loading(run: Run) -> doc.Section | None:
    """The journey of a batch through the loader, and how soon the next one comes after a change."""
    stages, paces = run.metrics.get("loading_stage", ()), run.metrics.get("loading_pace", ())
    if not stages or not paces:
        return None
    slow = next((in_words(of) for row in run.metrics.get("device", ()) if (of := row.get("slow_samples"))), "")
    heads = (doc.Head("Change"), doc.Head("A batch each", is_number=True), doc.Head("Batches/s", is_number=True))
    says = (
        "Predicted from the measured stages: processes load beside each other and beside the step, and share the cores"
        " with no other program. That storage becomes slower with more readers is not in it."
    )
    fastest = max((1e3 / period for row in paces if (period := number(row, "period_ms"))), default=0.0)
    rows = tuple(_paced(row, fastest) for row in paces)
    table = doc.Table((*heads, doc.Head("What holds it")), rows, bars="Bars: batches per second.")
    samples = (doc.Text(slow, label="Samples that take longest, by index:"),) if slow else ()
    # The stages of a batch on one line, in the order in which it passes them.
    times = [number(row, "ms") for row in stages]
    total = sum(times) or 1.0
    parts = (
        doc.Segment(str(row["stage"]), time / total, time, str(row["words"]), ms(time), ms(time))
        for row, time in zip(stages, times, strict=True)
    )
    blocks = doc.Bars((doc.Bar("a batch", tuple(parts)),)), *samples, doc.Text(says, "quiet"), table
    return doc.Section("The journey of a batch", blocks, id="loading", level=doc.Level.BEHIND)


def _paced(row: Row, fastest: float) -> doc.Row:
    """After a change: another number of processes, or without a stage."""
    period_ms, processes, without = number(row, "period_ms"), row.get("processes"), row.get("without")
    change = "1 worker" if processes == 1 else f"{processes} workers"
    if without:
        change = f"without {stage_of(str(without)).words}" if without != "all" else "every batch ready at once"
    rate = 1e3 / period_ms if period_ms else 0.0
    times = (doc.Cell(ms(period_ms)), doc.Cell(f"{rate:,.4g}" if rate else ""))
    cells = (doc.Cell(change, beside="now" if row.get("is_now") else ""), *times)
    share = rate / fastest if fastest else 0.0
    return doc.Row((*cells, doc.Cell(_HOLDS.get(str(row.get("limit")), ""))), extent=(share, share))


def peak(run: Run) -> doc.Table | None:
    """What memory was in use for when it was fullest, the most first; what was there before, and the rest, last."""
    rows = run.metrics.get("memory_peak", ())
    total = sum(number(row, "bytes") for row in rows)
    if not total:
        return None
    heads = (doc.Head("Memory at the peak"), doc.Head("Size", is_number=True), doc.Head("Share", is_number=True))
    return doc.Table(heads, tuple(_peak_row(row, total) for row in rows), level=doc.Level.BEHIND)


def _peak_row(row: Mapping[str, Value], total: float) -> doc.Row:
    size, blocks, within = number(row, "bytes"), row.get("blocks"), row.get("within")
    name = _OWNERS.get(str(row.get("what"))) or str(row.get("op") or "allocated outside any recorded op")
    beside = [str(within)] if within is not None else []
    beside += [count(blocks, "block")] if isinstance(blocks, int) else []
    what = doc.Cell(name, is_code=row.get("op") is not None, beside=", ".join(beside))
    share = size / total
    return doc.Row((what, doc.Cell(bytes_(size)), doc.Cell(percent(share))), extent=(share, share))


_HEADS: Final = ("group", "collective", "ranks", "calls", "message", "bandwidth, GB/s", "waiting", "awaited")
_FEW: Final = 5
_SAYS: Final = (
    "Bus bandwidth once all ranks have arrived; the part of the ranks' time that is waiting, and for whom most."
)


def communicators(run: Run) -> doc.Section | None:
    """A row per group and collective, the most time first; None without a log that has times."""
    logged = run.metrics.get("communicator", ())
    if not logged:
        return None
    rows = tuple(doc.Row(tuple(map(doc.Cell, _cells(row)))) for row in logged)
    heads = tuple(doc.Head(head, is_number=head not in ("group", "collective", "awaited")) for head in _HEADS)
    table = doc.Table(heads, rows, few=_FEW)
    level = doc.Level.BEHIND if run.source.steps.marked else doc.Level.BOTH
    return doc.Section("Communicators", (doc.Text(_SAYS, "quiet"), table), id="communicators", level=level)


def _cells(row: Row) -> Iterator[str]:
    yield str(row["group"])
    yield str(row["op"])
    yield _known(row, "group_size", in_digits)
    yield f"{row['calls']:,}"
    yield _known(row, "bytes", bytes_)
    yield _known(row, "bus_gbs", in_digits)
    yield percent(number(row, "wait_share"))
    yield f"{rank(int(number(row, 'last')))} ({percent(number(row, 'last_share'))})"


def _known(row: Row, name: str, wording: Callable[[float], str]) -> str:
    return "" if row[name] is None else wording(number(row, name))


if TYPE_CHECKING:  # a check does without what compares
    from advisor.model.comparison import Comparison

_UNKNOWN: Final = "?"
_AMOUNTS: Final = {"steps": "steps", "requests": "requests per step", "tokens": "tokens per step"}
_SHARES: Final = {
    "idle_share": "device idle",
    "host_share": "because of the host",
    "launch_share": "launch calls",
    "communication_share": "communication",
}
_SHARES_COMPARED: Final = {name: words for name, words in _SHARES.items() if name != "host_share"}
_NONE: Final = "none"
_ARROW: Final = " \N{RIGHTWARDS ARROW} "
_PHASE_HEADS: Final = ("phase", *_AMOUNTS.values(), "step time", *_SHARES.values(), "graph launches")
_MEANS: Final = (
    "All numbers except the count of steps are means per step. Launch calls are the host's time in calls that launch "
    "work. Communication is a share of the time in which the device works; the other shares are of the step."
)
_SPECULATION: Final = "Speculative decoding: drafts of tokens are checked."


def phases(run: Run) -> doc.Section | None:
    """Each phase with the means of its steps; None where the recording has no steps of a server."""
    rows = of_pace(run)
    if not rows:
        return None
    table = doc.Table(tuple(map(doc.Head, _PHASE_HEADS)), tuple(doc.Row(_phase_cells(row)) for row in rows))
    speculates = any(sign.code == "speculation" for sign in run.source.workload.signs)
    words = f"{_MEANS} {_SPECULATION}" if speculates else _MEANS
    return doc.Section("Phases of the server", (table, doc.Text(words, "quiet")), id="phases", level=doc.Level.BEHIND)


def of_pace(run: Run) -> list[Mapping[str, Value]]:
    """The rows of the worker that sets the pace."""
    return [row for row in run.metrics.get("phase", ()) if row["worker"] == run.source.steps.worker]


def in_brief(run: Run) -> tuple[str, ...]:
    """`1 prefill step of 15,360 tokens`, a phrase for each phase."""
    rows = [(row, round(number(row, "tokens"))) for row in of_pace(run)]
    steps = (count(int(number(row, "steps")), f"{PHASES.get(str(row['phase']), row['phase'])} step") for row, _ in rows)
    return tuple(f"{of} of {count(size, 'token')}" if size else of for of, (_, size) in zip(steps, rows, strict=True))


def changes(comparison: Comparison) -> doc.Section | None:
    """Each phase on both sides; None where neither has steps of a server."""
    if not comparison.phases:
        return None
    heads = tuple(doc.Head(words) for words in ("phase", "steps", "step time", *_SHARES_COMPARED.values()))
    rows, none = [], [_NONE] * (2 + len(_SHARES_COMPARED))
    for phase in comparison.phases:
        each = [
            [str(of.steps), ms(of.step_ms), *(percent(getattr(of, name)) for name in _SHARES_COMPARED)] if of else none
            for of in (phase.base, phase.head)
        ]
        texts = (PHASES.get(phase.phase, phase.phase), *map(_ARROW.join, zip(*each, strict=True)))
        rows.append(doc.Row(tuple(map(doc.Cell, texts))))
    table = doc.Table(heads, tuple(rows))
    return doc.Section("Phases of the server", (table,), id="phases", level=doc.Level.BEHIND)


def _phase_cells(row: Mapping[str, Value]) -> tuple[doc.Cell, ...]:
    amounts = [_written(row[name]) for name in _AMOUNTS]
    shares = [percent(v) if isinstance(v := row.get(name), float) else _UNKNOWN for name in _SHARES]
    phase = PHASES.get(str(row["phase"]), str(row["phase"]))
    texts = [phase, *amounts, ms(number(row, "step_ms")), *shares, _written(row["graph_launches"])]
    return tuple(doc.Cell(text) for text in texts)


def _written(value: Value) -> str:
    return in_digits(value) if isinstance(value, int | float) else _UNKNOWN
