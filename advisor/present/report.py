"""A report as a document: for each run the verdict, where its step goes, what to change, and what it rests on."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from advisor.model.action import SMALL
from advisor.model.finding import NotEvaluable
from advisor.model.report import Report, Run, Track, Unreadable, number
from advisor.model.source import Source
from advisor.present import document as doc
from advisor.present import next_recording as again
from advisor.present import tables
from advisor.present.accounting import LARGE, accounting, parts
from advisor.present.actions import actions
from advisor.present.charts import charts
from advisor.present.document import Figure
from advisor.present.findings import findings
from advisor.present.source import facts, left_out, member, members, pace, rank_name, signs, whose, window
from advisor.present.verdict import beside, headline
from advisor.text import bytes_, capital, count, listing, ms, ns, one_line, percent, percents
from advisor.vocabulary.kinds import XLA_FRAMEWORKS
from advisor.vocabulary.limits import table
from advisor.vocabulary.severities import GRADES

_TABLE: Final = table(__file__, "headline_figures")


def figures(run: Run) -> tuple[Figure, ...]:
    """What the frameworks' own tools put first, as far as the profile has it."""
    row = run.of_job
    of_xla = run.source.framework in XLA_FRAMEWORKS
    window = "step" if run.source.steps.marked else "recording"
    low, high = row.get("usual_least_share"), row.get("usual_most_share")
    usual = (
        f"({percents(low, high)} is published for {_TABLE['models'].get(str(row.get('usual_model')), 'such models')})"
        if isinstance(low, float) and isinstance(high, float)
        else ""
    )
    known = [
        Figure(of["called"], percent(share), of["of"].format(window=window, usual=usual))
        for of in _TABLE["figures"]
        if (of_xla or "for" in of) and isinstance(share := row.get(of["metric"]), int | float)
    ]
    peak, part = row.get("peak_memory_bytes"), row.get("peak_memory_share")
    of_all = f" ({percent(part)} of the device's memory)" if isinstance(part, float) else ""
    return (*known, *([Figure("memory peak", bytes_(peak) + of_all)] if isinstance(peak, int) else []))


_FEW_FILES: Final = 2
_FEW_RUNS: Final = 4
_MOST_MEMBERS: Final = 16  # ranks and devices that are listed
_LONGEST_NAME: Final = 24  # characters of a run's name in a table
_IN_A_TEXT: Final = 50  # names of rules: a comment cuts a longer text
_IN_A_LINE: Final = {"too_little": "too little was recorded", "minor": "nothing", "nothing": "nothing"}
_ORDER: Final = (
    "The order is by what is surely saved: the low end of each range. Equal ones follow by what is expected."
)
_SEVERAL: Final = 3  # rules: fewer are no reason to record again
_HEALTHY: Final = frozenset({"minor", "nothing"})
_BEHIND: Final = doc.Level.BEHIND
_Widgets: TypeAlias = Mapping[str, doc.Widget]  # charts by name
_SCREEN: Final = doc.Level.SCREEN


def document(report: Report) -> doc.Document:
    """The report as a document."""
    is_several = len(report.runs) != 1 or bool(report.unreadable)
    words, worst = overview(report), _worst_first(report.runs)
    ids = {id(run): f"run-{number}" for number, run in enumerate(report.runs, 1)}  # runs may be equal
    return doc.Document(
        kind="report",
        title=headline(report.runs[0]) if len(report.runs) == 1 else words,
        overview=words,
        version=report.advisor_version,
        articles=tuple(_article(run, ids[id(run)]) for run in worst),
        front=(*_unreadable(report.unreadable), *_runs(worst, ids)),
        is_several=is_several,
        first=ids[id(worst[0])] if worst else "",
    )


def overview(report: Report) -> str:
    """`3 runs, 6 findings: 2 high, 4 medium; 2 files could not be read`; of one job with its ranks."""
    severities = Counter(finding.severity for run in report.runs for finding in run.findings)
    each = [f"{severities[level]} {grade.word}" for level, grade in GRADES.items() if severities[level]]
    total = f"{count(severities.total(), 'finding')}{': ' if each else ''}{', '.join(each)}"
    unread = sum(1 + len(file.others) for file in report.unreadable)
    part = report.runs[0].source.part if len(report.runs) == 1 else None
    rest = f"; {f'{part} read, ' if part else ''}{count(unread, 'file')} could not be read" if unread else ""
    return f"{count(len(report.runs), 'run')}, {total}{rest}"


def _unreadable(files: Sequence[Unreadable]) -> Iterator[doc.Section]:
    if not files:
        return
    pairs = tuple(doc.Pair("", file.why, codes=(file.path,)) for file in files)
    few: tuple[doc.Block, ...] = (doc.Pairs(pairs[:_FEW_FILES], level=_SCREEN),)
    if (more := len(pairs) - _FEW_FILES) > 0:
        few = (*few, doc.Text(f"and {count(more, 'more file')} (`-v`)", "quiet", level=_SCREEN))
    yield doc.Section("Could not be read", (*few, doc.Pairs(pairs, level=_BEHIND)), id="unreadable")


def _runs(runs: Sequence[Run], ids: Mapping[int, str]) -> Iterator[doc.Section]:
    """A line for each of several runs, the worst first: its step, what to do, and what that saves."""
    if len(runs) <= 1:
        return
    heads = (doc.Head("run"), doc.Head("step", is_number=True), doc.Head("what is wrong"), doc.Head("saves"))
    lines = ((id(run), *_line(run)) for run in runs)
    rows = tuple(doc.Row((doc.Cell(name, run=ids[of]), *map(doc.Cell, cells))) for of, name, *cells in lines)
    table = doc.Table(heads, rows, few=_FEW_RUNS, more="and {rows} more runs (`-v`)")
    yield doc.Section("Runs", (table,), id="runs", is_titled=False)


def _worst_first(runs: Sequence[Run]) -> list[Run]:
    """The runs by what is lost in them, or may be saved of their step."""
    shares = ([*(a.shares[1] for a in of.worthwhile), of.unexplained.share if of.unexplained else 0.0] for of in runs)
    keys = [(of.trust == "low" and not of.actions, -max(each)) for of, each in zip(runs, shares, strict=True)]
    return [runs[at] for at in sorted(range(len(runs)), key=keys.__getitem__)]


def _line(run: Run) -> tuple[str, str, str, str]:
    first = next(iter(run.worthwhile), None)
    titles = {finding.key: finding.title for finding in run.findings}
    what = titles[first.findings[0]] if first else _IN_A_LINE.get(run.outcome.code, "a loss of unknown cause")
    saved = percents(*first.shares) if first and first.high_ms else ""
    length_ms = first.step_ms if first and first.high_ms else run.source.steps.length_ms
    return one_line(run.name, _LONGEST_NAME), ms(length_ms), what, saved


def _article(run: Run, id_: str) -> doc.Article:
    many, sentence = f"{whose(run.source)}s", pace(run)  # one sentence on a job of many ranks
    widgets = {chart.name: doc.Widget("chart", chart.name, chart.title, chart.says) for chart in charts(run)}
    bars, block = (*accounting(run), *_chosen(widgets, "step")), actions(run)
    order = (doc.Text(_ORDER, "quiet", level=_BEHIND),) if len(run.listed) > 1 else ()
    todo: tuple[doc.Block, ...] = (*([block] if block else []), *order, *_chosen(widgets, "sequence"))
    # All parts of the step, what the frameworks' own tools put first, and step by step.
    numbers = figures(run)
    all_parts = (*parts(run), *((doc.Figures(numbers),) if numbers else ()), *_chosen(widgets, "steps"))
    first = (
        doc.Section(f"Where {window(run.source.steps)} goes", bars, id="breakdown", is_titled=False, is_lead=True),
        doc.Section("What to do", todo, id="actions", is_titled=False, is_lead=True) if block else None,
        _trust(run),
        doc.Section("Findings", (findings(run),), id="findings", level=_BEHIND) if run.findings else None,
        doc.Section("Parts of the step", all_parts, id="parts", level=_BEHIND) if all_parts else None,
        tables.phases(run),
        doc.Section(f"The {many}", (doc.Text(sentence, "strong"),), id="ranks", level=_BEHIND) if sentence else None,
        tables.communicators(run),
        _timeline(run),
        *_charts(run, widgets),
        tables.loading(run),
        tables.pipeline(run),
    )
    code = again.record(run) if again.is_about_recording(run) and not run.records_first else ""
    then = "Do the first action below; then record" if run.listed else "Record"
    what = "Record again" if run.is_unsound else f"{then} what shows it"
    rest = (tables.flame(run), tables.kernels_and_operators(run), _unknowns(run), _read(run), _hint(run))
    return doc.Article(
        id=id_,
        name=run.name,
        headline=headline(run),
        beside=" ".join(filter(None, (*beside(run), f"{what}: `{code}`" if code else ""))),
        facts=(*facts(run), *tables.in_brief(run)),
        sections=tuple(section for section in (*first, *rest) if section),
    )


def _trust(run: Run) -> doc.Section:
    """How far to trust it, in one line, and the command that records what it lacks."""
    (says, others), code = again.trust(run), again.record(run)
    blocks = [doc.Text(says, label=again.TRUST)]
    if tries := again.measures(run):
        blocks.append(doc.Text(tries, level=doc.Level.BOTH if "COMMAND`" in tries else doc.Level.SPARE))
    if others:
        blocks.append(doc.Text(others, label="Besides:", level=_BEHIND))
    if code and "COMMAND`" not in says and not again.is_about_recording(run):
        is_spare = len(again.answered(run)) >= _SEVERAL and "compare" not in tries  # which records, too
        level = doc.Level.SPARE if is_spare else _BEHIND
        blocks.append(doc.Text(f"`{code}`", label="To record what is missing:", level=level))
    if then := [*_judges(run)]:
        blocks.append(doc.Text(" ".join(then), label="Next:", level=_BEHIND))
    return doc.Section("How far to trust it", tuple(blocks), id="trust", is_titled=False, is_lead=True)


def _timeline(run: Run) -> doc.Section | None:
    """The longest step of the rank that sets the pace."""
    if run.timeline is None:
        return None
    steps, several = run.source.steps, len(run.source.workers) > 1
    what = "The longest step used" if steps.marked else "The whole recording"
    title = f"{what}{f' of {rank_name(run.source, run.timeline.worker)}' if several else ''}"
    sample = timeline_sample(run)
    says = "; ".join(filter(None, (timeline_title(run), sample)))
    longest = f" By itself, waiting excluded, this {whose(run.source)} takes longest for its steps." if several else ""
    every = "Whole step" if steps.marked else "Everything"
    words = (every, timeline_title(run))
    widget = doc.Widget("timeline", "timeline", title, f"{capital(says)}.{longest}", words)
    return doc.Section(title, (widget,), id="timeline", level=_BEHIND, is_wide=True)


def timeline_title(run: Run) -> str:
    """`step 9 of rank 3, 178 ms`."""
    line = run.timeline
    if line is None:
        return ""
    which = f"step {line.step}" if line.step is not None else "the whole recording"
    rank = f" of {rank_name(run.source, line.worker)}" if len(run.source.workers) > 1 else ""
    return f"{which}{rank}, {ns(line.dur_ns)}"


def timeline_sample(run: Run) -> str | None:
    """What of the step's events is left out; None where they are all there."""
    line = run.timeline
    if line is None or line.recorded <= len(line.events.name):
        return None
    return f"{len(line.events.name):,} of {line.recorded:,} events: the shortest are left out"


def track_label(track: Track) -> str:
    """`stream 7`, `thread 1234`, or the thread's name."""
    return f"{track.kind} {track.number}" if track.name is None else f"thread {track.name}"


def _charts(run: Run, widgets: _Widgets) -> Iterator[doc.Section]:
    """The charts of ranks, communication and memory, with what memory was in use for."""
    many = f"{whose(run.source)}s"
    about = {"ranks": many, "heat": many, "waits": "communication", "bandwidth": "communication"}
    about |= {"roof": "kernels", "use": "use over time", "memory": "memory"}
    chosen = _chosen(widgets, *about)
    if not chosen:
        return
    topics = listing(list(dict.fromkeys(about[widget.name] for widget in chosen)))
    memory = tables.peak(run) if "memory" in widgets else None
    yield doc.Section(capital(topics), (*chosen, *((memory,) if memory else ())), id="charts", level=_BEHIND)


def _chosen(widgets: _Widgets, *names: str) -> tuple[doc.Widget, ...]:
    return tuple(widget for name, widget in widgets.items() if name in names)


def _unknowns(run: Run) -> doc.Section | None:
    if not run.not_evaluable:
        return None
    pairs = [doc.Pair("", why, codes=tuple(rules)) for why, rules in unknowns(run.not_evaluable)]
    blocks: list[doc.Block] = [doc.Pairs(tuple(pairs))]
    if again.answered(run):
        blocks.append(
            doc.Text(f"To judge {listing(again.answered(run))} next time, record with {again.recording(run)}.")
        )
    return doc.Section("Could not tell", tuple(blocks), id="unknowns", level=_BEHIND)


def unknowns(rules: Sequence[NotEvaluable]) -> list[tuple[str, list[str]]]:
    """Why rules could not be judged, and which; the rules with the same reasons together."""
    by_reason: dict[str, list[str]] = {}
    for rule in rules:
        by_reason.setdefault("; ".join(sorted(rule.words)) or "no reason given", []).append(rule.rule)
    return list(by_reason.items())


def _read(run: Run) -> doc.Section:
    source = run.source
    pairs = [doc.Pair("Path", "", codes=(source.path,))]
    pairs += [doc.Pair(what.capitalize(), how) for what, how in source.environment.items()]
    pairs += [doc.Pair("Workload", what, codes=tuple(filter(None, (example,)))) for what, example in signs(source)]
    pairs += [doc.Pair("", note.words) for note in source.notes]
    pairs += [doc.Pair(f"{which} left out", why) for which, why in left_out(source)]
    pairs += [doc.Pair("", note.words) for note in source.salvaged]
    pairs += [doc.Pair("Lacks", why.words, codes=(what,)) for what, why in source.lacks.items()]
    blocks: tuple[doc.Block, ...] = (doc.Pairs(tuple(pairs), level=_BEHIND), *_folds(run))
    return doc.Section("What was read", blocks, id="read", level=_BEHIND)


def _folds(run: Run) -> Iterator[doc.Fold]:
    if workers := run.source.workers:
        devices = run.source.devices
        title = listing(
            [count(len(workers), member(run.source)), *([count(len(devices), "device")] if devices else [])]
        )
        yield doc.Fold(title, (doc.Pairs(tuple(_members(run.source))),))
    if run.suppressed:
        pairs = tuple(
            doc.Pair(
                f"{rule.title} ({GRADES[rule.severity].word})",
                f"{rule.reason}{f' (until {rule.until})' if rule.until else ''}",
                codes=(rule.rule,),
            )
            for rule in run.suppressed
        )
        yield doc.Fold(
            f"{count(len(pairs), 'finding')} suppressed in the configuration", (doc.Pairs(pairs),), is_open=True
        )
    for rules, outcome in ((run.passed, "found nothing wrong"), (run.not_applicable, "not applicable here")):
        if rules:
            rows = (rules[at : at + _IN_A_TEXT] for at in range(0, len(rules), _IN_A_TEXT))
            codes = tuple(doc.Text(", ".join(f"`{rule}`" for rule in row)) for row in rows)
            yield doc.Fold(f"{count(len(rules), 'rule')} {outcome}", codes)


def _members(source: Source) -> Iterator[doc.Pair]:
    for worker in source.workers[:_MOST_MEMBERS]:
        yield doc.Pair(f"rank {worker.rank}" if worker.rank is not None else worker.name, "", codes=(worker.file,))
    for device in source.devices[:_MOST_MEMBERS]:
        size = bytes_(device.memory_bytes) if device.memory_bytes is not None else ""
        of = f" of {members(source, [device.worker])}" if len(source.workers) > 1 else ""
        yield doc.Pair(f"Device {device.device}{of}", device.name or "unnamed", value=size)
    if (more := len(source.workers) - _MOST_MEMBERS) > 0:
        yield doc.Pair("", f"and {count(more, member(source))} more: `-o report.json` names all files")


def _judges(run: Run) -> Iterator[str]:
    known, is_healthy = run.of_job, run.source.devices and run.outcome.code in _HEALTHY
    if is_healthy and number(known, "dominant_kernel_share") >= LARGE and known.get("dominant_kernel_command"):
        yield f"To see what limits the largest kernel: `{known['dominant_kernel_command']}`"


def _hint(run: Run) -> doc.Section:
    keys = {key for action in run.listed for key in action.findings}
    is_healthy = run.outcome.code in _HEALTHY
    more = [finding for finding in run.findings if finding.key not in keys]
    most = max((of.saving for of in more if of.saving), key=lambda of: of.high_share, default=None)
    worth = f" ({more[0].title})" if len(more) == 1 and not (keys or more[0].of_recording) else ""
    worth = f" (up to {ms(most.high_ms)})" if most and most.high_share >= SMALL else worth
    none = "No action is advised." if is_healthy and not run.worthwhile else ""
    none += " See whether the step needs its largest ops at this size." if none and not run.source.devices else ""
    rest = [f"{count(len(more), 'more finding' if keys else 'note' if none else 'finding')}{worth}"] if more else []
    shows = listing(["evidence", "all fixes", *rest] if run.findings else ["what was read and judged"])
    words = " ".join(filter(None, (none, f"`-v` shows {shows}.", *_judges(run))))
    return doc.Section("Next", (doc.Text(words, label="Next:", level=_SCREEN),), level=_SCREEN, is_titled=False)
