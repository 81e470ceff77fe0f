"""The charts of a run: titles, what each shows in one sentence, and its rows. Specifications are made in `render`."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

from advisor.errors import contained
from advisor.model.finding import Value
from advisor.model.report import Idle, Part, Piece, Row, Run, Timeline, number
from advisor.present.actions import after_first, sequence
from advisor.present.source import most_awaited, owner, place_name, rank_name, ranks_of, slowest_link, whose
from advisor.text import bytes_, capital, count, listing, ms, ns, one_line, percent, us
from advisor.vocabulary.parts import DEVICE_PARTS, PARTS, UNMARKED, idle_part, part_short

_WORTH_A_LABEL: Final = 0.02  # of the step
_MOST_LABELS: Final = 5
_NEARLY: Final = 0.9  # of what stays of a step: as much is drawn where a part is shorter in it than on average
_MOST_NAMES: Final = 2  # of parts that get shorter


def annotated_step(run: Run) -> Mapping[str, Any] | None:
    """What the picture is drawn from; None where no device's work was recorded.

    `bars` are what runs and what does not, `gaps` the longest gap of each cause with its label; `after` are the bars
    as the first action leaves them, of which `label` and `says` speak.
    """
    line = run.timeline
    if line is None or not any(piece.part in DEVICE_PARTS for piece in line.strip):
        return None
    bars = [{**_place(line, piece), "part": piece.part} for piece in line.strip]
    return {"bars": bars, "gaps": _gaps(run, line), **_after(run, bars)}


def _after(run: Run, bars: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The step after action 1: what it saves is out of the parts that it shortens, each piece shorter by as much."""
    label, saved, how, claims = after_first(run)
    times = {part: sum(bar["end"] - bar["start"] for bar in bars if bar["part"] == part) for part in claims}
    known = {part: claim for part, claim in claims.items() if times[part]}
    total, rest = sum(known.values()), sum(bar["end"] - bar["start"] for bar in bars)
    stays = {part: max(1 - saved * rest * claim / total / times[part], 0.0) for part, claim in known.items()}
    shortened = rest - sum(times[part] * (1 - share) for part, share in stays.items())
    if not stays or rest * (1 - saved) < _NEARLY * shortened:  # the step that is drawn does not have what is saved
        return {}
    end, after = 0.0, []
    for bar in bars:
        size = (bar["end"] - bar["start"]) * stays.get(bar["part"], 1.0) * rest * (1 - saved) / shortened
        after.append({"start": end, "end": (end := end + size), "part": bar["part"]})
    most = sorted(known, key=lambda part: -known[part])[:_MOST_NAMES]
    parts = listing([*map(part_short, most)])
    says = f" Below, this step after action 1: {how}, {percent(saved)}, is taken out of {parts}."
    return {"after": after, "label": label, "says": says}


def _place(line: Timeline, of: Piece | Idle) -> dict[str, float]:
    return {"start": of.start_ns / line.dur_ns, "end": (of.start_ns + of.dur_ns) / line.dur_ns}


def _gaps(run: Run, line: Timeline) -> list[dict[str, Any]]:
    """The longest gap of each cause, with how long the device idles because of it and the action that shortens that."""
    gaps: dict[str, list[Idle]] = {}
    for gap in line.idle:
        gaps.setdefault(idle_part(gap.cause, gap.dur_ns), []).append(gap)
    numbers = {part.part: _number_of(part, run) for part in (run.accounting.parts if run.accounting else ())}
    labels: list[tuple[float, dict[str, Any]]] = []
    for part, each in gaps.items():
        time_ns = line.parts_ns.get(part) or sum(gap.dur_ns for gap in each)
        longest = max(each, key=lambda gap: gap.dur_ns)
        action = f", action {number}" if (number := numbers.get(part)) else ""
        labels.append((time_ns, {**_place(line, longest), "label": f"{part_short(part)} {ns(time_ns)}{action}"}))
    least_ns = _WORTH_A_LABEL * line.dur_ns
    most = sorted((of for of in labels if of[0] >= least_ns), key=lambda of: -of[0])[:_MOST_LABELS]
    return sorted((gap for _, gap in most), key=lambda gap: gap["start"])


def _number_of(part: Part, run: Run) -> int | None:
    """The number of the action that saves most of a part, half of it or more; of the first if none saves any."""
    pools = PARTS[part.part].pools if part.part in PARTS else ()
    parts = {finding.key: finding.saving.pools if finding.saving else {} for finding in run.findings}
    about = [(number, {*action.findings} & {*part.findings}) for number, action in run.numbered]
    saved = [(-sum(parts[key].get(of, 0.0) for key in keys for of in pools), number) for number, keys in about if keys]
    least, number = min(saved, default=(0.0, None))
    return number if not part.saved_ms or 2 * -least >= part.ms else None


_MOST_BARS: Final = 120  # of steps side by side: of more, as many are one bar as needed
_MOST_ROWS: Final = 64  # ranks of a heat map: of more, their nodes are shown
_LONGEST: Final = 40  # characters of a rank's name
_WHY: Final = 200  # characters of a reason
_CROSS: Final = "\N{MULTIPLICATION X}"
_MEMORY_UNITS: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


class Chart(NamedTuple):
    """One chart: its name in the page, its title, what it shows in one sentence, and what it is drawn from."""

    name: str
    title: str
    says: str
    data: Mapping[str, Any]


def charts(run: Run) -> list[Chart]:
    """The charts that the run has the numbers for; rows that a chart cannot be made of cost it alone."""
    every = (contained(partial(chart, run), lambda _: None) for chart in _CHARTS)
    return [chart for chart in every if chart is not None]


def _known(row: Row, column: str) -> float | None:
    value = row.get(column)
    return float(value) if isinstance(value, int | float) else None


def _step(run: Run) -> Chart | None:
    data, line = annotated_step(run), run.timeline
    if data is None or line is None:
        return None
    what = f"The longest step used, {ns(line.dur_ns)}" if run.source.steps.marked else f"All {ns(line.dur_ns)} used"
    says = "A label at the longest gap of each cause has the time of all its gaps, and the action that shortens them"
    gaps = says if data["gaps"] else "The device hardly waits"
    return Chart("step", "What the device runs, and why it waits", f"{what}. {gaps}.{data.get('says', '')}", data)


def _sequence(run: Run) -> Chart | None:
    rows = sequence(run)
    says = "Grey remains. Full colour is the least that is saved, pale the most: both are estimates."
    return Chart("sequence", "What the actions leave", says, {"bars": rows}) if rows else None


def _parts(rows: Iterable[Row], whole_ms: float) -> Iterable[dict[str, Any]]:
    """Position, name and milliseconds of each part of the accounting that takes any time."""
    order = list(PARTS)
    for row in rows:
        code = str(row["part"])
        position = order.index(code) if code in PARTS else len(order)
        yield {"part": part_short(code), "ms": number(row, "share") * whole_ms, "order": position}


def _grouped(rows: Iterable[Row], *columns: str) -> defaultdict[tuple[Value, ...], list[Row]]:
    """The rows by their values in these columns; none for any others."""
    groups: defaultdict[tuple[Value, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row.get(column) for column in columns)].append(row)
    return groups


def _steps(run: Run) -> Chart | None:
    rows = run.metrics.get("recorded_step", ())
    if len(rows) + len(run.source.steps.left_out) <= 1 or not run.source.steps.marked or not rows:
        return None
    shares = _grouped(run.metrics.get("step_part", ()), "step")
    parts = {row["step"]: [*_parts(shares[row["step"],], number(row, "step_ms"))] for row in rows}
    used = {row["step"] for row in rows if not row.get("left_out")}
    crosses = _left_out(run, rows)
    steps = sorted({*(step for step, of in parts.items() if of), *(cross["step"] for cross in crosses)})
    if not steps:
        return None
    every = -(-len(steps) // _MOST_BARS)
    groups = [steps[at : at + every] for at in range(0, len(steps), every)]
    bars = [row for at, group in enumerate(groups) for row in _mean(at, group, parts, used)]
    place = {step: at // every for at, step in enumerate(steps)}
    crosses = [cross | {"place": place[cross["step"]]} for cross in crosses]
    out = f"; {_CROSS} marks {count(len(crosses), 'step')} left out" if crosses else ""
    of = f" of {owner(run, rows[0])}" if len(run.source.workers) > 1 else ""
    says = f"Time of each step{of} by part, colours as above{out}."
    data = {"bars": bars, "crosses": crosses, "first": [group[0] for group in groups], "every": every}
    return Chart("steps", "Step by step", says, data)


def _mean(
    place: int, steps: Sequence[Any], parts: Mapping[Any, Sequence[dict[str, Any]]], used: Container[Any]
) -> Iterator[dict[str, Any]]:
    """The parts of a bar: of one step, or the mean of a few in a row."""
    rows = sorted((row for step in steps for row in parts.get(step, ())), key=lambda row: row["order"])
    name = str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    is_used = any(step in used for step in steps)
    for order, of_part in groupby(rows, key=lambda row: row["order"]):
        each = [*of_part]
        mean_ms = sum(row["ms"] for row in each) / len(steps)
        yield {"step": name, "part": each[0]["part"], "ms": mean_ms, "order": order, "place": place, "used": is_used}


def _left_out(run: Run, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A cross above each step that is left out, with the reason; on the axis where the step is not there as a whole."""
    reasons = {(s.worker, s.device, s.step): s.why.words for s in run.source.steps.left_out}
    worker, device = rows[0].get("worker"), rows[0].get("device")
    here: dict[Value, str] = {step: why for (w, d, step), why in reasons.items() if (w, d) == (worker, device)}
    lengths = {row["step"]: number(row, "step_ms") for row in rows}
    crosses = {row["step"]: here.get(row["step"], "left out") for row in rows if row.get("left_out")} | {
        step: why for step, why in here.items() if step not in lengths
    }
    return [
        {"step": step, "ms": lengths.get(step, 0), "why": one_line(why, _WHY), "mark": _CROSS}
        for step, why in crosses.items()
    ]


def _ranks(run: Run) -> Chart | None:
    rows = run.metrics.get("device", ())
    if len(rows) <= 1:
        return None
    parts = _grouped(run.metrics.get("accounting", ()), "worker", "device")
    bars = [
        {"rank": one_line(owner(run, row), _LONGEST), "place": place, **part}
        for place, row in enumerate(rows)
        for part in _parts(parts[row.get("worker"), row.get("device")], number(row, "step_mean_ms"))
    ]
    if not bars:
        return None
    many = whose(run.source)
    window = "a mean step" if run.source.steps.marked else UNMARKED
    says = (
        f"Where {window} of each {many} goes, colours as above. "
        f"The {many} that takes longest without its waits sets the pace of the job."
    )
    return Chart("ranks", f"{capital(many)} by {many}", says, {"bars": bars, "ranks": len(rows), "unit": _unit(run)})


def _heat(run: Run) -> Chart | None:
    rows = run.metrics.get("pace", ())
    if not rows or len({row["step"] for row in rows}) < 2:  # noqa: PLR2004 - one column is a bar chart
        return None
    column = "own_ms" if all(row.get("own_ms") is not None for row in rows) else "step_ms"
    meaning = "time of the rank without its waits" if column == "own_ms" else "length of the step"
    many, marks, cells = whose(run.source), _marks(run), list[dict[str, Any]]()
    for of in rows:
        label = _with_marks(name := _called(run, of["rank"], of["name"]), marks[name])
        cells.append({"rank": label, "place": of["rank"], "step": of["step"], "ms": of[column]})
    known = [float(cell["ms"]) for cell in cells if cell["ms"] is not None]
    data = {"unit": column.replace("_ms", " ms"), "range": (min(known, default=0.0), max(known, default=1.0))}
    marks_say = "marked: pace, awaited, or # and the number of their finding."
    if len({row["rank"] for row in rows}) > _MOST_ROWS and all(row.get("node") is not None for row in rows):
        says = (
            f"Darker is longer: {meaning}, of the {many} of a node that takes longest. A dark row is a slow node; it"
            f" leads to its {many}s, below. These are {marks_say}"
        )
        return Chart("heat", "Nodes over the steps", says, {**data, **_by_node(run, rows, cells), "of": many})
    says = (
        f"Darker is longer: {meaning}. A dark row is a slow {many}, a dark column a slow step. The {many} that sets the"
        f" pace and the one that the others wait for most are {marks_say}"
    )
    return Chart("heat", f"{capital(many)}s over the steps", says, {**data, "cells": cells})


def _by_node(run: Run, rows: Sequence[Row], cells: Sequence[Row]) -> dict[str, Any]:
    """A cell per node and step, its longest rank's, and behind each node's name the cells of its ranks."""
    marks, of_nodes, behind = _marks(run), list[Row](), dict[str, list[Row]]()
    for place, ((node,), of) in enumerate(
        _grouped([{**row, **cell} for row, cell in zip(rows, cells, strict=True)], "node").items()
    ):
        first = [mark for row in of for mark in marks[_called(run, row["place"], row["name"])][:1]]
        label = _with_marks(one_line(f"node {node}", _LONGEST), first)
        of_nodes += [
            {"rank": label, "place": place, "step": step, "ms": max(number(cell, "ms") for cell in of_step)}
            for (step,), of_step in _grouped(of, "step").items()
        ]
        behind[label] = of
    return {"cells": of_nodes, "behind": behind}


def _waits(run: Run) -> Chart | None:
    rows = [row for row in run.metrics.get("wait", ()) if number(row, "wait_ms") > 0]
    if not rows:
        return None
    cells = [
        {
            "waiting": _called(run, row["waiting"], row["waiting_name"]),
            "awaited": _called(run, row["awaited"], row["awaited_name"]),
            "place": row["waiting"],
            "across": row["awaited"],
            "ms": row["wait_ms"],
        }
        for row in rows
    ]
    (most, total_ms), many = most_awaited(run) or ("", 0.0), whose(run.source)
    per = " per step" if run.source.steps.marked else ""
    says = (
        f"Milliseconds{per} in which the {many} of the row waits for the {many} of the column. "
        f"The {many}s wait most for {most}: {ms(total_ms)}{per}, all {many}s together."
    )
    return Chart("waits", "Who waits for whom", says, {"cells": cells, "unit": _unit(run)})


def _unit(run: Run) -> str:
    return "ms per step" if run.source.steps.marked else "ms"


def _bandwidth(run: Run) -> Chart | None:
    rows = [row for row in run.metrics.get("collective", ()) if number(row, "bytes") > 0 and number(row, "bus_gbs")]
    if not rows:
        return None
    points = [_point(row) for row in rows]
    is_known = any(point["expected"] is not None for point in points)
    dashed = "The dashed curve is what the links allow." if is_known else "What the links allow is not known here."
    bound = (
        ""
        if all(point["exact"] for point in points)
        else " These are lower bounds: the recording cannot separate waits for other ranks from the transfer."
    )
    link = slowest_link(run)
    links = f" {capital(link)}." if link else ""
    says = f"Bus bandwidth of each kind of collective against the size of its messages. {dashed}{bound}{links}"
    return Chart("bandwidth", "Bandwidth of the collectives", says, {"points": points})


def _point(row: Row) -> dict[str, Any]:
    bus, took, should = (_known(row, column) for column in ("bus_gbs", "transfer_us", "expected_us"))
    # What a collective takes beside what the link allows, by the model and by the guides' quick formula.
    times = (("", "transfer_us"), ("expected: ", "expected_us"), ("bytes / bandwidth: ", "quick_us"))
    return {
        "op": one_line(str(row.get("op")), _LONGEST),
        "ranks": row.get("group_size"),
        "bytes": row.get("bytes"),
        "size": bytes_(number(row, "bytes")),
        "calls": row.get("calls"),
        "bus": bus,
        "expected": bus * took / should if bus and took and should else None,
        "exact": bool(row.get("exact")),
        "times": ", ".join(f"{what}{us(value)}" for what, column in times if (value := _known(row, column))),
    }


def _roof(run: Run) -> Chart | None:
    """Ops with known work as points; a point that a finding shows leads to it."""
    findings = {place.op: at for at, of in reversed([*enumerate(run.findings, 1)]) for place in of.where if place.op}
    rows = [row for row in run.metrics.get("roof", ()) if number(row, "gflops") > 0 and number(row, "megabytes") > 0]
    points = [
        {
            "op": one_line(str(row["op"]), _LONGEST),
            "shape": row["shape"],
            "dtype": row["dtype"],
            "intensity": number(row, "gflops") * 1e3 / number(row, "megabytes"),  # FLOP per byte
            "tflops": number(row, "gflops") * number(row, "calls") / number(row, "total_ms"),
            "time": ms(number(row, "total_ms") / max(1, run.source.steps.used)),
            "share": percent(number(row, "reached")),
            "finding": findings.get(str(row["op"])),
        }
        for row in rows
    ]
    if not points:
        return None
    roofs = {row["dtype"]: (row["peak_tflops"], row["memory_gbs"]) for row in rows if row.get("peak_tflops")}
    says = (
        "Matrix products, convolutions and attention: what each reaches against its FLOPs per byte moved. The lines are"
        " what memory and arithmetic of the device allow; a convolution above them needs fewer products (Winograd). A"
        " point in another colour leads to its finding; the table of kernels has the numbers."
    )
    return Chart("roof", "Kernels against the roof of the device", says, {"points": points, "roofs": roofs})


_USES: Final = {"kernels": "kernels", "sm_efficiency": "SMs", "copies": "copies"}


def _use(run: Run) -> Chart | None:
    """Use of the device over time, a row for each kind that is known; of several devices kernels alone, a row each."""
    rows = run.metrics.get("over_time", ())
    several = len({(row.get("worker"), row.get("device")) for row in rows}) > 1
    begins = dict(sorted((row["part"], number(row, "at_ms")) for row in rows))  # the latest: each device has as many
    cells = [
        {
            "use": one_line(owner(run, row) if several else words, _LONGEST),
            "place": (row.get("worker"), row.get("device"), at),
            "part": f"{begins[row['part']]:.3g}",
            "across": row["part"],
            "ms": round(number(row, use), 2),
        }
        for row in rows
        for at, (use, words) in enumerate(_USES.items())
        if row.get(use) is not None and (at == 0 or not several)
    ]
    if not cells:
        return None
    shares = "kernels run" if several else "kernels run; they could fill the multiprocessors (SMs); copies run"
    says = f"Darker is more of the time: {shares}. From the start of the first used step to the end of the last."
    return Chart("use", "Use of the device over time", says, {"cells": cells})


def _memory(run: Run) -> Chart | None:
    rows = [row for row in run.metrics.get("memory", ()) if row.get("allocated_bytes") is not None]
    if len(rows) <= 1:
        return None
    first = min(number(row, "start_ns") for row in rows)
    most = max(number(row, "allocated_bytes") for row in rows)
    unit, size = next((unit, size) for unit, size in _MEMORY_UNITS if most >= size or size == 1)
    points = [
        {
            "ms": (number(row, "start_ns") - first) / 1e6,
            "allocated": number(row, "allocated_bytes") / size,
            "reserved": number(row, "reserved_bytes") / size if row.get("reserved_bytes") else None,
        }
        for row in rows
    ]
    peak = max(points, key=lambda point: point["allocated"] or 0.0)
    has_reserved = any(point["reserved"] for point in points)
    memory = "Device memory" if run.source.devices else "Memory"
    dashed = "; dashed: what the allocator has reserved" if has_reserved else ""
    sizes = [*{device.memory_bytes for device in run.source.devices}]
    capacity = f" The device has {bytes_(sizes[0])}." if len(sizes) == 1 and sizes[0] is not None else ""
    says = f"{memory} that tensors occupy over the recording{dashed}.{capacity}"
    data = {"points": points, "unit": unit, "peak": {**peak, "text": f"peak {bytes_(most)}"}, "reserved": has_reserved}
    return Chart("memory", memory, says, data)


def _marks(run: Run) -> defaultdict[str, list[str]]:
    """By the name of a rank: the first finding that sets it apart, and what it does to the others."""
    awaited, setter, marks = most_awaited(run), run.source.steps.worker, defaultdict[str, list[str]](list)
    for at, finding in reversed([*enumerate(run.findings, 1)]):
        marks |= {rank_name(run.source, worker): [f"#{at}"] for worker in ranks_of(finding, run.source)}
    if setter is not None:
        marks[rank_name(run.source, setter)].append("pace")
    if awaited:
        marks[awaited[0]].append("awaited")
    return marks


def _with_marks(name: str, marks: Iterable[str]) -> str:
    return f"{name}: {', '.join(dict.fromkeys(marks))}" if marks else name


def _called(run: Run, position: Value, name: Value) -> str:
    return one_line(place_name(run.source, position, name), _LONGEST)


_CHARTS: Final[tuple[Callable[[Run], Chart | None], ...]] = (
    _step,
    _sequence,
    _steps,
    _ranks,
    _heat,
    _waits,
    _bandwidth,
    _roof,
    _use,
    _memory,
)
