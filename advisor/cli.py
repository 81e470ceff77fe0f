"""The command line: each command parses, makes one library call, renders, and picks the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import typer

from advisor.errors import AdvisorError, UsageError

if TYPE_CHECKING:
    from advisor.comparison import Comparison
    from advisor.config import Config
    from advisor.fleet.engines import Engine
    from advisor.fleet.engines import Progress as RunProgress
    from advisor.parts import Progress
    from advisor.report import Report
    from advisor.week import Week

# Heavy imports stand inside the commands: `advisor --help` answers at once.

Format: TypeAlias = Literal["terminal", "markdown", "json", "html", "sarif"]
Picture: TypeAlias = Literal["svg", "png"]
FailOn: TypeAlias = Literal["high", "medium", "low", "never"]
_Choice = TypeVar("_Choice", bound=str)
_FORMATS: tuple[Format, ...] = ("terminal", "markdown", "json", "html", "sarif")
_CORES = os.cpu_count() or 1
_LEVELS: tuple[FailOn, ...] = ("high", "medium", "low", "never")
_OF_COMPARISONS: tuple[Format, ...] = ("terminal", "markdown", "json", "html")
_PICTURES: dict[str, Picture] = {".svg": "svg", ".png": "png"}
_SUFFIXES: dict[str, Format] = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".md": "markdown",
    ".txt": "terminal",
    ".sarif": "sarif",
}

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Why a GPU job is slow, what to change, and what the change is worth.",
)
rules_app = typer.Typer(no_args_is_help=True, help="The rule book: list, show and test rules.")
metrics_app = typer.Typer(no_args_is_help=True, help="The metrics that rules can use.")
app.add_typer(rules_app, name="rules")
app.add_typer(metrics_app, name="metrics")
fleet_app = typer.Typer(no_args_is_help=True, help="All runs of a fleet: a store of them, and the report of a week.")
app.add_typer(fleet_app, name="fleet")

ConfigPath = Annotated[
    Path | None, typer.Option("--config", help="advisor.yaml to use; by default the nearest one above the folder.")
]


def _version(wanted: bool) -> None:
    if wanted:
        from advisor import __version__

        typer.echo(f"advisor {__version__}")
        raise typer.Exit


@app.callback()
def advisor(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Why a GPU job is slow, what to change, and what the change is worth."""


@app.command()
def check(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Profiles: files, folders or URLs.")],
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Also write a report; its kind by suffix: .html .json .md .txt .sarif; or .svg .png, a picture of"
            " where a step of the first run goes. Repeatable.",
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help="Standard output: terminal, markdown, json, html or sarif."
        ),
    ] = "terminal",
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="LEVEL",
            help="Exit 1 at this severity: high, medium, low or never; 3 if too little can be told.",
        ),
    ] = "never",
    steps: Annotated[str, typer.Option("--steps", help="Steps to use: steady, all, or A:B.")] = "steady",
    step_range: Annotated[
        str | None,
        typer.Option("--step-range", metavar="REGEX", help="Ranges to take for steps, by name; NVTX ranges, say."),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", min=1, help="Files of one run to read at a time; by default one per core.")
    ] = os.cpu_count() or 1,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="NAME", help="Of the runs in a TensorFlow or JAX log folder; else the newest."),
    ] = None,
    all_runs: Annotated[bool, typer.Option("--all-runs", help="All runs in such a folder.")] = False,
    config: ConfigPath = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="REPORT", help="An earlier report.json: marks what is new.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Evidence, every fix and the places.")] = False,
) -> None:
    """Find out why the profiled jobs are slow, and what to change."""
    from advisor.engine import check as run_check

    standard = _chosen("--format", format_, _FORMATS)
    level = _chosen("--fail-on", fail_on, _LEVELS)
    files = {path: _format_of(path) for path in output or []}
    with _progress() as progress:
        report = run_check(
            paths,
            config=_config(config),
            steps=steps,
            progress=progress,
            processes=processes,
            step_range=step_range,
            run=run,
            all_runs=all_runs,
            baseline=baseline,
        )
    for path, kind in files.items():
        _write(path, _content(report, kind))
    sys.stdout.write(_rendered(report, standard, verbose=verbose, to_screen=True))
    raise typer.Exit(report.exit_code(level))


@app.command()
def excerpt(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Profile of one run: a file, a folder or a URL.")],
    finding: Annotated[str, typer.Option("--finding", metavar="KEY", help="The finding to show, as `check` names it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it: .json or .json.gz.")],
    steps: Annotated[str, typer.Option("--steps", help="Steps to use: steady, all, or A:B.")] = "steady",
    config: ConfigPath = None,
) -> None:
    """Cut out the part of a recording that shows a finding, for Perfetto and chrome://tracing."""
    import gzip
    import json

    from advisor.engine import excerpt as cut

    if not output.name.lower().endswith((".json", ".json.gz")):
        raise UsageError(f"-o {output}: a trace ends in .json or .json.gz")
    trace = json.dumps(cut(path, finding, config=_config(config), steps=steps), separators=(",", ":")).encode()
    _write(output, gzip.compress(trace, mtime=0) if output.suffix.lower() == ".gz" else trace)


@app.command()
def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="Before: a profile, folder, URL or saved report.json.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="After: the same.")],
    more_base: Annotated[
        list[str] | None, typer.Option("--base", metavar="PATH", help="Another run of the base. Repeatable.")
    ] = None,
    more_head: Annotated[
        list[str] | None, typer.Option("--head", metavar="PATH", help="Another run of the head. Repeatable.")
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help="Also write it; its kind by suffix: .html .json .md .txt. Repeatable."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help="Standard output: terminal, markdown, json or html.")
    ] = "terminal",
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="WHAT",
            help="Exit 1 if so: slower (the default), slower:PERCENT, new-high, never. Repeatable.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 4 if nothing can be told.")] = False,
    steps: Annotated[str, typer.Option("--steps", help="Steps to use: steady, all, or A:B.")] = "steady",
    processes: Annotated[
        int, typer.Option("--processes", min=1, help="Files of one run to read at a time; by default one per core.")
    ] = os.cpu_count() or 1,
    config: ConfigPath = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every finding, kernel and op.")] = False,
) -> None:
    """Tell whether a change made the job slower, and why."""
    from advisor.comparison import fail_on as wanted
    from advisor.engine import compare as run_compare

    standard = _chosen("--format", format_, _OF_COMPARISONS)
    failing = wanted(fail_on or ["slower"])
    files = {path: _comparison_format_of(path) for path in output or []}
    sides = [base, *(more_base or [])], [head, *(more_head or [])]
    with _progress() as progress:
        found = run_compare(*sides, config=_config(config), steps=steps, progress=progress, processes=processes)
    for path, kind in files.items():
        _write(path, _rendered_comparison(found, kind, verbose=True).encode())
    sys.stdout.write(_rendered_comparison(found, standard, verbose=verbose, to_screen=True))
    raise typer.Exit(found.exit_code(failing, strict=strict))


@app.command()
def comment(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON of `advisor check` or `advisor compare`, or Markdown.")
    ],
    forge: Annotated[
        str | None, typer.Option("--forge", metavar="HOST", help="github or gitlab; by default as CI tells.")
    ] = None,
    repo: Annotated[
        str | None, typer.Option("--repo", metavar="OWNER/NAME", help="By default the one that CI runs for.")
    ] = None,
    pr: Annotated[
        int | None, typer.Option("--pr", metavar="NUMBER", min=1, help="Pull or merge request; by default the event's.")
    ] = None,
    commit: Annotated[
        str | None, typer.Option("--commit", metavar="SHA", help="What was measured; by default the event's head.")
    ] = None,
    link: Annotated[
        str | None, typer.Option("--link", metavar="URL", help="The full report; by default the page of the CI run.")
    ] = None,
    api_url: Annotated[
        str | None, typer.Option("--api-url", metavar="URL", help="Of GitHub Enterprise or an own GitLab.")
    ] = None,
    key: Annotated[
        str, typer.Option("--key", metavar="NAME", help="Tells several comments on one pull request apart.")
    ] = "default",
    post: Annotated[bool, typer.Option("--comment/--no-comment", help="Whether to comment.")] = True,
    status: Annotated[bool, typer.Option("--status", help="Also set a commit status.")] = False,
    check_run: Annotated[
        bool, typer.Option("--check-run", help="Also add a check run, with remarks on the lines that findings name.")
    ] = False,
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", metavar="WHAT", help="When status and check run fail; as in check and compare."),
    ] = None,
    root: Annotated[Path, typer.Option("--root", metavar="DIR", help="The checkout that remarks refer to.")] = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the comment and post nothing.")] = False,
) -> None:
    """Post a report as the one comment on a pull request, and edit it from then on.

    The token is GITHUB_TOKEN or GITLAB_TOKEN of the environment.
    """
    from advisor.forge import deliver, message
    from advisor.forge.situation import KINDS, situation
    from advisor.text import plain

    kind = _chosen("--forge", forge, KINDS) if forge else None
    told = message.read(file, fail_on or [])
    where = situation(os.environ, kind, repo=repo, number=pr, commit=commit, link=link, api_url=api_url)
    wanted = deliver.Wanted(key=key, comment=post, check_run=check_run, status=status, root=root)
    if dry_run:
        sys.stdout.write(deliver.dry_run(told, where, wanted))
        return
    for done in deliver.deliver(told, where, wanted):
        if done.hint and os.environ.get("GITHUB_ACTIONS"):
            typer.echo(f"::warning title=gpu-advisor::{plain(done.line)}")
        else:
            typer.echo(f"advisor: {plain(done.line)}", err=done.hint)


@rules_app.command("list")
def rules_list(config: ConfigPath = None) -> None:
    """One line per rule: its id, its severities and its title."""
    from advisor.engine import rule_book

    for rule in rule_book(_config(config)).values():
        typer.echo(f"{rule.id:28} {'/'.join(rule.severity):12} {rule.title}")


@rules_app.command("show")
def rules_show(rule_id: Annotated[str, typer.Argument(metavar="ID")], config: ConfigPath = None) -> None:
    """The page of one rule: what it means, when it fires, what to change, where its numbers come from."""
    from advisor.engine import rule_book
    from advisor.reference import rule_page

    book = rule_book(_config(config))
    if rule_id not in book:
        raise UsageError(f"no rule is called {rule_id!r}; `advisor rules list` names them all")
    typer.echo(rule_page(book[rule_id]), nl=False)


@rules_app.command("test")
def rules_test(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A folder of rules; the shipped ones if absent.")
    ] = None,
) -> None:
    """Lint the rules of a folder and run their cases; exit 2 if anything is wrong."""
    from advisor import metrics
    from advisor.resources import rules_folder
    from advisor.rulebook import load
    from advisor.rulelint import lint
    from advisor.text import count

    tested = folder or rules_folder()
    shipped = load([rules_folder()])
    if problems := lint(tested, metrics.dtypes(), shipped):
        raise UsageError("\n".join(problems))
    rules = load([tested])
    if not rules:
        raise UsageError(f"{tested}: no rule in this folder; a rule is a *.yaml file")
    for name in sorted(rules.keys() & shipped.keys()) if folder else ():
        typer.echo(f"{name} takes the place of the shipped rule")
    cases = sum(len(rule.cases) for rule in rules.values())
    typer.echo(f"{count(len(rules), 'rule')}, {count(cases, 'case')}: all right")


@metrics_app.command("list")
def metrics_list() -> None:
    """One line per metric: its name, its unit and its meaning."""
    from advisor.metrics import METRICS

    for metric in sorted(METRICS.values(), key=lambda m: m.name):
        typer.echo(f"{metric.name:30} {metric.unit:7} {metric.meaning}")


@metrics_app.command("show")
def metrics_show(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """One metric with its formula, its source and what it needs from a profile."""
    from advisor.metrics import METRICS
    from advisor.reference import metric_entry

    if name not in METRICS and f"{name}_share" in METRICS:
        name = f"{name}_share"  # a part of the step, as savings name it
    if name not in METRICS:
        raise UsageError(f"no metric is called {name!r}; `advisor metrics list` names them all")
    typer.echo(metric_entry(METRICS[name]), nl=False)


StoreUri = Annotated[str, typer.Option("--store", metavar="URI", help="The fleet store: a folder, s3:// or gs://.")]
StoreOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="For the object store, such as aws_endpoint. Repeatable."),
]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="ENGINE", help="local, or dask=ADDRESS of a Dask scheduler.")
]
EngineProcesses = Annotated[
    int, typer.Option("--processes", min=1, help="Runs to check at a time on this machine; by default one per core.")
]


def _week(text: str | None) -> str | None:
    from advisor.fleet.labels import named_week

    return named_week(text)


WeekName = Annotated[
    str | None,
    typer.Option(
        "--week",
        metavar="WEEK",
        callback=_week,
        help="As 2026-W47, or last for the one that ended last; by default the newest in the store.",
    ),
]


@fleet_app.command("ingest")
def fleet_ingest(
    roots: Annotated[list[str], typer.Argument(metavar="ROOT...", help="Folders of profiles, or URLs.")],
    store: StoreUri,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="KEY=VALUE", help="Of all runs: team, job, owner, model, gpu_hours. Repeatable."
        ),
    ] = None,
    labels_from: Annotated[
        list[str] | None,
        typer.Option("--labels-from", metavar="SYSTEM", help="Environment to label by: slurm, kubernetes or wandb."),
    ] = None,
    engine: EngineName = "local",
    processes: EngineProcesses = _CORES,
    option: StoreOptions = None,
    config: ConfigPath = None,
) -> None:
    """Check every run under the roots that the store does not hold, and write it there."""
    from advisor.fleet.engines import engine as engine_of
    from advisor.fleet.ingest import ingest
    from advisor.fleet.labels import given
    from advisor.fleet.store import opened
    from advisor.text import plain

    target, settings = opened(store, option or ()), _config(config)
    labels = given(label or (), labels_from or (), os.environ)
    with _working(engine_of(engine, processes)) as where, _progress_of_runs() as progress:
        done = ingest(roots, target, where, config=settings, labels=labels, progress=progress)
    for note in done.notes:
        typer.echo(f"advisor: {plain(note)}", err=True)
    gone = f", {done.gone} gone meanwhile" if done.gone else ""
    typer.echo(
        f"{done.recordings} recordings: {done.known} known, {done.runs} runs added, "
        f"{done.unreadable} could not be read{gone}"
    )


@fleet_app.command("rejudge")
def fleet_rejudge(
    store: StoreUri,
    week: Annotated[
        str | None,
        typer.Option("--week", metavar="WEEK", callback=_week, help="As 2026-W47, or last; by default all weeks."),
    ] = None,
    engine: EngineName = "local",
    processes: EngineProcesses = _CORES,
    option: StoreOptions = None,
    config: ConfigPath = None,
) -> None:
    """Judge stored runs by the rules as they are now, without reading a profile; of all weeks unless one is given."""
    from advisor.fleet.engines import engine as engine_of
    from advisor.fleet.rejudge import rejudge
    from advisor.fleet.store import existing, opened

    target, weeks = existing(opened(store, option or ())), None if week is None else [week]
    with _working(engine_of(engine, processes)) as where, _progress_of_runs() as progress:
        done = rejudge(target, where, config=_config(config), weeks=weeks, progress=progress)
    for note in done.notes:
        typer.echo(f"advisor: {note}", err=True)
    typer.echo(f"{done.runs} runs judged again")


@fleet_app.command("report")
def fleet_report(
    store: StoreUri,
    week: WeekName = None,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help="Write it; its kind by suffix: .html .json .md .txt. Repeatable."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help="Standard output: terminal, markdown, json or html.")
    ] = "terminal",
    links: Annotated[
        str | None,
        typer.Option("--links", metavar="URL", help="Where the runs' reports will lie; by default beside the .html."),
    ] = None,
    option: StoreOptions = None,
    config: ConfigPath = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every table.")] = False,
) -> None:
    """What the fleet's GPU-hours of a week went into, and what to fix first."""
    from advisor.fleet.show import pages
    from advisor.fleet.store import existing, opened
    from advisor.fleet.weekly import weekly

    standard = _chosen("--format", format_, _OF_COMPARISONS)
    files = {path: _chosen("-o", _format_of(path), _OF_COMPARISONS) for path in output or []}
    target = existing(opened(store, option or ()))
    found = weekly(target, _config(config).fleet, week)
    for path, kind in files.items():
        beside = f"{path.stem}-runs"
        if kind == "html":
            for name, text in pages(target, found):
                (path.parent / beside).mkdir(parents=True, exist_ok=True)
                _write(path.parent / beside / name, text.encode())
        _write(path, _rendered_week(found, kind, links or (beside if kind == "html" else None), verbose=True).encode())
    sys.stdout.write(_rendered_week(found, standard, links, verbose=verbose, to_screen=True))


@fleet_app.command("runs")
def fleet_runs(store: StoreUri, week: WeekName = None, option: StoreOptions = None) -> None:
    """One line per run of a week: its id, team, job and verdict."""
    from advisor.fleet.show import listed
    from advisor.fleet.store import existing, opened

    for line in listed(existing(opened(store, option or ())), week):
        typer.echo(line)


@fleet_app.command("show")
def fleet_show(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or its beginning.")],
    store: StoreUri,
    output: Annotated[
        list[Path] | None, typer.Option("--output", "-o", help="Write it: .html .json .md .txt. Repeatable.")
    ] = None,
    option: StoreOptions = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Evidence, every fix and the places.")] = False,
) -> None:
    """The report of one run, as it was checked or last judged."""
    from advisor.fleet.show import report_of
    from advisor.fleet.store import existing, opened

    files = {path: _chosen("-o", _format_of(path), _FORMATS) for path in output or []}
    report = report_of(existing(opened(store, option or ())), run_id)
    for path, kind in files.items():
        _write(path, _rendered(report, kind, verbose=True).encode())
    sys.stdout.write(_rendered(report, "terminal", verbose=verbose, to_screen=True))


@fleet_app.command("compact")
def fleet_compact(store: StoreUri, option: StoreOptions = None) -> None:
    """Put the store's many small files together; run it once a day or week."""
    from advisor.fleet.store import existing, opened

    left = existing(opened(store, option or ())).compact()
    typer.echo(", ".join(f"{name}: {number} files" for name, number in left.items()))


@fleet_app.command("prune")
def fleet_prune(
    store: StoreUri,
    before: Annotated[str, typer.Option("--before", metavar="WEEK", help="First week to keep, as 2026-W01.")],
    option: StoreOptions = None,
) -> None:
    """Forget the weeks before one."""
    from advisor.fleet.labels import monday_of
    from advisor.fleet.store import existing, opened

    monday_of(before)
    typer.echo(f"{existing(opened(store, option or ())).prune(before)} runs forgotten")


def main() -> None:
    """Entry point of the `advisor` command, and the only place that catches AdvisorError."""
    try:
        app(standalone_mode=True)
    except AdvisorError as error:
        from advisor.text import plain

        typer.echo(f"advisor: {plain(str(error))}", err=True)
        sys.exit(error.exit_code)


def _config(path: Path | None) -> Config:
    from advisor.config import find, load

    return load(path or find(Path.cwd()))


def _chosen(option: str, value: str, allowed: tuple[_Choice, ...]) -> _Choice:
    for candidate in allowed:
        if value == candidate:
            return candidate
    raise UsageError(f"{option} {value}: not one of {', '.join(allowed)}")


def _format_of(path: Path) -> Format | Picture:
    kinds: dict[str, Format | Picture] = {**_SUFFIXES, **_PICTURES}
    if path.suffix.lower() not in kinds:
        raise UsageError(f"-o {path}: no kind of report has that suffix; use one of {' '.join(kinds)}")
    return kinds[path.suffix.lower()]


def _comparison_format_of(path: Path) -> Format:
    suffixes = {suffix: kind for suffix, kind in _SUFFIXES.items() if kind in _OF_COMPARISONS}
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"-o {path}: no kind of comparison has that suffix; use one of {' '.join(suffixes)}")
    return suffixes[path.suffix.lower()]


def _content(report: Report, kind: Format | Picture) -> bytes:
    if kind == "svg" or kind == "png":  # noqa: PLR1714 - mypy narrows on comparisons
        from advisor.render import charts

        return charts.breakdown(report.runs[0], kind)
    return _rendered(report, kind, verbose=True).encode()


def _rendered(report: Report, kind: Format, *, verbose: bool, to_screen: bool = False) -> str:
    if kind == "terminal":
        from advisor.render import terminal

        return terminal.render(report, verbose=verbose, **(terminal.this_screen() if to_screen else {}))
    if kind == "html":
        from advisor.render import html

        return html.render(report)
    if kind == "sarif":
        from advisor.render import sarif

        return sarif.render(report)
    if kind == "markdown":
        from advisor.render import markdown

        return markdown.render(report)
    from advisor.render import json

    return json.render(report)


def _rendered_comparison(found: Comparison, kind: Format, *, verbose: bool, to_screen: bool = False) -> str:
    from advisor.render.compared import html, json, markdown, terminal

    if kind == "terminal":
        from advisor.render.terminal import this_screen

        return terminal.render(found, verbose=verbose, **(this_screen() if to_screen else {}))
    render: Callable[[Comparison], str] = {"html": html.render, "markdown": markdown.render, "json": json.render}[kind]
    return render(found)


def _rendered_week(found: Week, kind: Format, links: str | None, *, verbose: bool, to_screen: bool = False) -> str:
    from advisor.render.fleet import html, json, markdown, terminal

    if kind == "terminal":
        from advisor.render.terminal import this_screen

        return terminal.render(found, verbose=verbose, **(this_screen() if to_screen else {}))
    if kind == "json":
        return json.render(found)
    return html.render(found, links=links) if kind == "html" else markdown.render(found, links=links)


def _write(path: Path, content: bytes) -> None:
    """Write beside the target, then rename: a reader never sees half a report."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"-o {path}: cannot be written: {error.strerror}") from None


@contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar on standard error for large files; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    from advisor.storage import size

    with Bar(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=Console(stderr=True), transient=True
    ) as bar:

        def started(file: str) -> Callable[[int], object]:
            task = bar.add_task(Path(file).name, total=size(file))
            return lambda count: bar.advance(task, count)

        yield started


@contextmanager
def _working(engine: Engine) -> Iterator[Engine]:
    """An engine that is let go of at the end."""
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _progress_of_runs() -> Iterator[RunProgress]:
    """A bar that counts runs, on standard error; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:

        def started(runs: int) -> Callable[[int], object]:
            task = bar.add_task("runs", total=runs)
            return lambda count: bar.advance(task, count)

        yield started
