"""What stands behind the findings: kernels and operators, time by module, tf.data's pipeline, memory at the peak."""

from collections.abc import Mapping
from typing import Final

from advisor.model.finding import Value
from advisor.model.report import Run, number
from advisor.model.source import Steps
from advisor.present import document as doc
from advisor.present.headline_figures import run_row
from advisor.text import bytes_, count, listing, ms, percent

MOST_ROWS: Final = 80
"""Rows of the tables of kernels and operators on a page: those that take most time."""

_TABLES: Final = {"kernels": "kernel_group", "operators": "op"}
_OWNERS: Final = {"others": "all others", "earlier": "allocated before the recording began, such as weights"}
_DEEPEST: Final = 40
_COLOUR: Final = "The stronger the colour, the more of the time a frame takes by itself."
# how much of the kernel time uses Tensor Cores, and the part of the step whose colour stands for it
_CORES: Final = {"used": "compute", "eligible": "memcpy", "unknown": "launch_gap", "rest": "unknown"}


def kernels_and_operators(run: Run) -> doc.Section | None:
    """The tables that a page's script groups and sorts."""
    present = [name for name, scope in _TABLES.items() if run.metrics.get(scope)]
    if not present:
        return None
    title = listing(present).capitalize()
    cores = tensor_cores(run)
    says, per = _what_tables_count(run), (", per step" if run.source.steps.marked else "",)
    widgets = (doc.Widget("tables", name, says=says if name == present[0] else "", words=per) for name in present)
    blocks: tuple[doc.Block, ...] = (*([cores] if cores else []), *widgets)
    return doc.Section(title, blocks, id="tables", level=doc.Level.BEHIND, is_wide=True)


def tensor_cores(run: Run) -> doc.Bars | None:
    """How the kernel time divides by its use of Tensor Cores."""
    row = run_row(run)
    used, eligible = (row.get(f"tensor_core_{name}") for name in ("share", "eligible_share"))
    if not isinstance(used, float) or not isinstance(eligible, float):
        return None
    unknown = number(row, "tensor_core_unknown_share")
    parts = {
        "use them": (used, _CORES["used"]),
        "could use them": (max(0.0, eligible - used), _CORES["eligible"]),
        "could not tell": (unknown, _CORES["unknown"]),
        "no gain from them": (max(0.0, 1 - eligible - unknown), _CORES["rest"]),
    }
    segments, start = [], 0.0
    for what, (share, part) in parts.items():
        if share > 0:
            segments.append(doc.Segment(part, start, share, None, what, percent(share)))
            start += share
    bar = doc.Bar("Tensor Cores, by time of compute kernels", tuple(segments))
    return doc.Bars((bar,), level=doc.Level.BEHIND)


def _what_tables_count(run: Run) -> str:
    """What the numbers of the tables are numbers of."""
    of = "Calls and times of a mean step" if run.source.steps.marked else "Calls and times of the recording"
    kernels, ops = run.metrics.get("kernel_group"), run.metrics.get("op")
    several = len(run.source.devices) > 1
    whose = ["kernels of the device that sets the pace"] if kernels and several else []
    whose += ["operators of the average device"] if ops and several else []
    host = (
        " An operator's host time excludes the operators inside it; its device time is that of what it launches itself."
    )
    cut = max(len(kernels or ()), len(ops or ())) > MOST_ROWS
    most = f" The {MOST_ROWS} that take most time of each; the JSON has all." if cut else ""
    return f"{of}{f': {listing(whose)}' if whose else ''}.{most}{host if ops else ''}"


def flame(run: Run) -> doc.Section | None:
    """The time of a step by module; None where there are no frames."""
    rows = run.metrics.get("call_tree", ())
    if all(row.get("name") is None for row in rows):  # one frame of what nothing is known of shows nothing
        return None
    kinds = {row.get("kind") for row in rows}
    part = next((kind for kind in ("module", "scope", "annotation") if kind in kinds), None)
    whose = "device" if run.source.devices else "host"
    title = f"{whose.capitalize()} time by {listing([part, 'operator'] if part else ['operator'])}"
    total = sum(number(row, "total_ms") for row in rows if row.get("parent") is None)
    when = "a step" if run.source.steps.marked else "the recording"
    everything = f"{whose} time of {when}{', all threads' if whose == 'host' else ''}: {ms(total)}"
    widget = doc.Widget(
        "flame", "flame", title, _what_frames_count(whose, with_modules="module" in kinds), (everything,)
    )
    return doc.Section(title, (widget,), id="flame", level=doc.Level.BEHIND, is_wide=True)


def _what_frames_count(whose: str, *, with_modules: bool) -> str:
    if whose == "host":
        return f"Time of the host's ranges, all threads together. {_COLOUR}"
    backward = "; the backward pass counts where the forward op ran" if with_modules else ""
    return f"Time of kernels and copies under what launched them; where they overlap, each counts{backward}. {_COLOUR}"


def pipeline(run: Run) -> doc.Section | None:
    """The pipelines of tf.data that the steps ask, each from the transformation that is asked first."""
    rows = run.metrics.get("iterator", ())
    if not rows:
        return None
    all_ms = sum(number(row, "waited_ms") for row in rows)
    known = {row.get("iterator") for row in rows}
    inner: dict[Value, list[Mapping[str, Value]]] = {}
    for row in rows:
        inner.setdefault(row.get("parent") if row.get("parent") in known else None, []).append(row)

    def node(row: Mapping[str, Value], depth: int) -> doc.Node:
        return doc.Node(
            name=str(row.get("transformation")),
            text=", ".join(_stage_facts(row, run.source.steps)),
            share=number(row, "waited_ms") / all_ms if all_ms else 0.0,
            mark="bottleneck" if row.get("bottleneck") else "",
            on_path=bool(row.get("critical")),
            nodes=tuple(node(asks, depth + 1) for asks in inner.get(row.get("iterator"), []) if depth < _DEEPEST),
        )

    lead = (
        "A step asks the transformation at the top, and each asks the one below it. The line is the critical path, down"
        " to the one that holds up the others."
    )
    tree = doc.Tree(tuple(node(row, 0) for row in inner.get(None, [])))
    blocks = (doc.Text(lead, "quiet"), tree)
    return doc.Section("The input pipeline of tf.data", blocks, id="pipeline", level=doc.Level.BEHIND)


def _stage_facts(row: Mapping[str, Value], steps: Steps) -> list[str]:
    """How long the steps wait for a transformation, how long it works, how often it is asked, how much runs at once."""
    each = "each" if steps.used > 1 else "in all"
    waited, works = (
        number(row, f"{name}_ms") / max(1, n) for name, n in (("waited", steps.used), ("self", steps.count))
    )
    calls, parallel = row.get("calls"), row.get("parallelism")
    return [
        f"steps wait {ms(waited)} {each}" if waited > 0 else "no step waits for it",
        f"works {ms(works)} a step" if steps.count > 1 else f"works {ms(works)}",
        *([count(calls, "call")] if isinstance(calls, int) else []),
        *([f"{parallel} at once"] if isinstance(parallel, int) else []),
    ]


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
