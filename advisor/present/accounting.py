"""The accounting: the step as a bar, how much is busy, what becomes of the rest, and what fills its large parts."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from advisor.inputs.names.kernels import kernel_name
from advisor.inputs.names.stacks import user_line
from advisor.model.report import Accounting, Part, Row, Run, number
from advisor.present import document as doc
from advisor.present.source import is_on_cpu, most_awaited, whose, window
from advisor.present.verdict import LINES, headline, place
from advisor.text import UNKNOWN, capital, first_sentence, in_words, listing, ms, one_line, percent
from advisor.vocabulary.limits import HEALTHY_SHARE
from advisor.vocabulary.parts import PARTS, UNMARKED, part_gloss, part_short

_WORTH_A_WORD: Final = 0.01  # of the step: nobody looks for the cause of less
_NUMBERS: Final = (doc.Head("share", is_number=True), doc.Head("time", is_number=True))


def accounting(run: Run) -> tuple[doc.Block, ...]:
    """A bar with its legend, and one line."""
    known = run.accounting
    if known is None:
        lacks = run.source.lacks
        whose = " of the GPU" if "device_ops" in lacks and "host_ops.start_ns" not in lacks else ""
        return (doc.Bars((), none=f"Where the time{whose} goes: {UNKNOWN}."),)
    parts = (doc.Segment(p.part, p.share, p.ms, part_short(p.part), percent(p.share), ms(p.ms)) for p in known.parts)
    bar = doc.Bar("step" if run.source.steps.marked else "used", tuple(parts))
    inside = "" if run.is_mostly_once else large_parts(run)
    brief = "" if any(of.of_recording and of.loss == "unknown" for of in run.findings[:1]) else _in_brief(run, known)
    texts = (doc.Text(brief), doc.Text(inside, level=doc.Level.SPARE))
    return doc.Bars((bar,)), *(text for text in texts if text.text)


def parts(run: Run) -> tuple[doc.Block, ...]:
    """A table of all parts with the findings that explain them, and what these save of each."""
    known = run.accounting
    if known is None:
        return ()
    of = "step" if run.source.steps.marked else UNMARKED.removeprefix("the ")
    heads = (doc.Head(f"part of the {of}"), *_NUMBERS, doc.Head("finding"))
    rows = []
    for part in known.parts:
        texts = (percent(part.share), ms(part.ms), _explained(part))
        name = doc.Cell(part_short(part.part), beside=part_gloss(part.part))
        rows.append(doc.Row((name, *map(doc.Cell, texts)), part=part.part))
    return (doc.Table(heads, tuple(rows)),)


def _in_brief(run: Run, known: Accounting) -> str:
    """`Busy 74 %.`, and how much a finding says is missing from the recording: the device may work there.

    No sum where what looks busy is what is missing, and of a file that lacks the kernels.
    """
    lacks, lacking = run.source.lacks.get("device_ops"), {of.loss for of in run.findings if of.lacks_work}
    missing = [part for part in known.parts if part.part in lacking]
    if (lacks and lacks.code == "kernels_not_exported") or any(part.is_useful for part in missing):
        return f"How much of that is work and how much are waits: {UNKNOWN}."
    unrecorded = sum(part.share for part in missing)
    if not any(part.is_useful for part in known.parts):
        computes = "No op was recorded" if is_on_cpu(run) else "Nothing computes"  # an op may run in another thread
        return f"{computes} in {window(run.source.steps)}."
    absent = f", not recorded {percent(unrecorded)}" if unrecorded >= _WORTH_A_WORD else ""
    return f"Busy {percent(known.busy_share)}{absent}."


def _explained(part: Part) -> str:
    """The findings that explain a part, why none does, or what to do where its name is its cause."""
    inside = place(part, "this part")[:-1] if part.share >= _WORTH_A_WORD else ""
    where = f"; {inside}" if inside else ""
    if part.findings:
        return f"{', '.join(part.findings)}{f': up to {ms(part.saved_ms)}' if part.saved_ms else ''}{where}"
    if part.is_useful:
        return f"busy{where}"
    if part.share < _WORTH_A_WORD:
        return ""
    if part.reasons:
        return f"cause unknown: {part.reasons[0].words}{where}"
    known = PARTS.get(part.part)
    return f"{known.remedy[:-1] if known and known.remedy else 'cause unknown'}{where}"


LARGE: Final = 0.2
"""Of the step: a reader asks what a part of it is."""

_SHORTENED: Final = 0.25  # of useful work: an action that saves less of it says little about the rest
_LEAST, _MOST = 0.1, 2  # of the part: what is smaller explains nothing; names of it
_LEAST_ALONE, _MOST_ALONE = 0.05, 4  # where no action is advised: then what takes the time is the question
_OPERANDS: Final = 2  # of an op
_LONGEST: Final = 64  # characters of a name
_READABLE: Final = 40  # characters of a kernel's name: a longer one is a library's, and what it computes says more
_FAMILIES: Final = {"gemm": "matrix products", "gemv": "products with a vector", "convolution": "convolutions"}
_SHAPE: Final = re.compile(r"\[(\d[\d,]*)\]")
_PATH: Final = re.compile(r"p?jit\(.*?\)/")
_SEGMENTS: Final = 3  # of a path: the module, a function in it, and what that calls
_TYPE: Final = re.compile(r"(?<!:):(?!:)")  # TensorFlow's ops are called `path:type`
_CAUSELESS: Final = frozenset({"unknown", "unrecorded"})  # whose names say that there is no cause
_PARTS_OF_NAMES: Final = frozenset({"compute", "collective", "memcpy", "memset", "operators"})
_TEXTS: Final = {"allocator": "allocator_calls", "input": "loading_calls", "long_steps": "outlier_causes"}
"""Metrics that say what is in a part."""


def large_parts(run: Run) -> str:
    """`Largest kernel: flash_fwd_kernel (136 ms).`, a sentence for each such part; empty where there is none."""
    least = LARGE if run.worthwhile else 1 - HEALTHY_SHARE
    parts = run.accounting.parts if run.accounting else ()
    large = (part for part in parts if part.share >= (LARGE if part.is_useful else least))
    return " ".join(filter(None, (_sentence(part, run) for part in large)))


def _sentence(part: Part, run: Run) -> str:
    """The largest things in it by name, else the finding that explains it, else what a metric says of it."""
    keys = {key for action in run.listed for key in action.findings}
    first = run.findings[:1] if run.outcome.code == "finding" else ()
    listed = [finding for finding in run.findings if finding.key in keys or finding in first]
    is_on_screen = run.unexplained == part or any(finding.key in part.findings for finding in listed)
    if is_on_screen and (part.saved_ms >= _SHORTENED * part.ms if part.is_useful else part.part not in _PARTS_OF_NAMES):
        return ""
    verdict = headline(run)
    largest = _inside(part, run)
    names = [words for name, words, _ in largest if name not in verdict]
    most = most_awaited(run) if part.part == "collective" else None
    is_waited_for = most and most[1] >= _WORTH_A_WORD * part.ms
    waits = f"the {whose(run.source)}s wait longest for {most[0]}" if most and is_waited_for else ""
    if names:
        ran_ms = {"compute": part.ms, "collective": number(run.of_pace, "communication_ms")}.get(part.part, 0.0)
        at_once = ", several at once" * (0 < (1 + _WORTH_A_WORD) * ran_ms < sum(time for _, _, time in largest))
        lines = f"{LINES.get(run.source.framework or '', LINES[''])}: {in_words(part.lines)}. " if part.lines else ""
        largest_of = "Largest" if len(names) == len(largest) else "Next largest"  # the headline names the others
        return f"{lines}{largest_of} {part_short(part.part)}: {listing(names)}{at_once}{waits and f'; {waits}'}."
    why = next((f.says for f in run.findings if f.key in part.findings and f not in listed), "")
    if why or part.is_useful or is_on_screen:
        return first_sentence(why)
    known = waits or in_words(run.of_job.get(_TEXTS.get(part.part, "")) or part.lines) or place(part).removesuffix(".")
    words = known or ("" if part.part in _CAUSELESS else "cause not recorded")
    return f"{capital(part_short(part.part))}: {words}." if words else ""


def _inside(part: Part, run: Run) -> list[tuple[str, str, float]]:
    """What takes most of the part, by name, in words, and its time in ms: kernels, copies or ops."""
    times: dict[str, float] = defaultdict(float)
    for name, time in _rows(part.part, run):
        times[name.replace("`", "'")] += time
    most, least = (_MOST, _LEAST) if run.worthwhile else (_MOST_ALONE, _LEAST_ALONE)
    largest = sorted(times.items(), key=lambda of: -of[1])[:most]
    code = {name: name if name in _FAMILIES.values() else f"`{one_line(name, _LONGEST)}`" for name, _ in largest}
    return [(name, f"{code[name]} ({ms(time)})", time) for name, time in largest if time >= least * part.ms]


def _rows(part: str, run: Run) -> Iterator[tuple[str, float]]:
    """Names and milliseconds per step of what runs in a part."""
    steps = max(1, run.source.steps.used)
    if part in {"compute", "collective"}:
        for row in run.metrics.get("kernel_group", ()):
            if (row.get("family") == "collective") == (part == "collective"):
                name = kernel_name(str(row["name"]))  # or what it computes, where only a library's authors read that
                short = name if len(name) <= _READABLE else _FAMILIES.get(str(row.get("family")), name)
                yield short, number(row, "total_ms") / steps
    elif part == "operators":
        rows = [(str(row["name"]).partition("EagerLocalExecute: "), row) for row in run.metrics.get("op", ())]
        types = {_op(row) for (_, call, _), row in rows if not call}
        ops = (row for (_, call, op), row in rows if not call or op not in types)  # the call waits for the op itself
        yield from ((_op(row).strip(), number(row, "ms_per_step")) for row in ops)
    else:
        of_part = (row for row in run.metrics.get("launch", ()) if row.get("kind") == part)
        yield from ((str(row["name"]), number(row, "ms_per_step")) for row in of_part)


def _op(row: Row) -> str:
    """`aten::mm 64x512 512x512`, the type of TensorFlow's op, or the end of JAX's path of one, and the user's line."""
    path, *frames = str(row.get("stack") or "").split(";")
    if _PATH.match(path):
        line = next(filter(None, map(user_line, frames)), None)
        at = f" at {line[0].rpartition('/')[2]}:{line[1]}" if line else ""
        return "/".join(path.split("/")[1:][-_SEGMENTS:]) + at
    shapes = [size.replace(",", "\N{MULTIPLICATION SIGN}") for size in _SHAPE.findall(str(row.get("shapes") or ""))]
    return " ".join([_TYPE.split(str(row["name"]))[-1], *shapes[:_OPERANDS]])
