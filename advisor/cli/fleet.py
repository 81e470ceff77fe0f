"""`advisor fleet`: a store of all runs, and the report of a week."""

import datetime as dt
import json
import os
import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer
from typer import Argument, Option

from advisor.cli import output as shared
from advisor.errors import ReadError, StoreError, UsageError
from advisor.render.registry import Request, draw
from advisor.text import count

if TYPE_CHECKING:
    from advisor.config import Config
    from advisor.fleet.store import Store
    from advisor.model.clause import Note

fleet_app = typer.Typer(no_args_is_help=True, help="A store of all runs of a fleet, and the report of a week.")

StoreUri = Annotated[str, Option(metavar="URI", help="The fleet store: a folder, s3:// or gs://.")]
StoreOptions = Annotated[
    list[str] | None, Option(metavar="KEY=VALUE", help="For the object store, such as aws_endpoint. Repeatable.")
]
ConfigPath = Annotated[
    Path | None,
    Option(help="advisor.yaml to use; by default the nearest at or above the runs or the store, else this folder."),
]
EngineProcesses = Annotated[
    int, Option(min=1, help="Runs to check at a time on this machine; by default one per core.")
]


def _week(text: str | None) -> str | None:
    from advisor.fleet.labels import week_name

    return week_name(text)


WeekName = Annotated[
    str | None,
    Option(
        metavar="WEEK",
        callback=_week,
        help="As 2026-W47, or last for the one that ended last; by default the newest in the store that has begun.",
    ),
]


@fleet_app.command("ingest")
def fleet_ingest(
    roots: Annotated[list[str], Argument(metavar="ROOT...", help="Folders of profiles, or URLs.")],
    store: StoreUri,
    label: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="Of all runs: team, job, owner, model, gpu_hours. Repeatable."),
    ] = None,
    labels_from: Annotated[
        list[str] | None, Option(metavar="SYSTEM", help="Environment to label by: slurm, kubernetes or wandb.")
    ] = None,
    engine: shared.EngineName = "local",
    processes: EngineProcesses = shared.CORES,
    option: StoreOptions = None,
    config: ConfigPath = None,
    max_size: shared.MaxSize = None,
) -> None:
    """Check every new run under the roots, and write it to the store."""
    from advisor.fleet.ingest import ingest
    from advisor.fleet.labels import labels_of_run
    from advisor.fleet.store import opened
    from advisor.system.engines import engine as engine_of

    target, settings = opened(store, option or ()), _settings(config, roots)
    labels = labels_of_run(label or (), labels_from or (), os.environ)
    with closing(engine_of(engine, processes)) as where, shared.progress_of("runs") as progress:
        done = ingest(
            roots, target, where, config=settings, labels=labels, max_bytes=shared.bytes_of(max_size), progress=progress
        )
    _tell(done.notes)
    if done.unread or done.partly or done.unprofiled:
        typer.echo(
            f"advisor: `advisor fleet runs --store {target.uri}` says why of each that is no checked run", err=True
        )
    also = [
        (done.relabelled, "with changed labels"),
        (done.pruned, "of weeks that were pruned"),
        (done.gone, "gone meanwhile"),
    ]
    typer.echo(
        f"{count(done.recordings, 'recording')}: {done.known:,} known, {done.added:,} added"
        + (f" ({count(done.runs, 'run')})" if done.added else "")
        + "".join(f", {number:,} {what}" for number, what in also if number)
        + f"; of them {done.unread:,} cannot be read"
        + (f", {done.partly:,} only in part" if done.partly else "")
        + (f"; {count(done.unprofiled, 'folder')} without a profile" if done.unprofiled else "")
    )
    if done.recordings and done.unread == done.recordings:
        raise typer.Exit(ReadError.exit_code)


@fleet_app.command("rejudge")
def fleet_rejudge(
    store: StoreUri,
    week: Annotated[
        str | None, Option(metavar="WEEK", callback=_week, help="As 2026-W47, or last; by default all weeks.")
    ] = None,
    engine: shared.EngineName = "local",
    every: Annotated[
        bool, Option("--all", help="Also runs that were judged by these rules, to write findings that got lost.")
    ] = False,
    processes: EngineProcesses = shared.CORES,
    option: StoreOptions = None,
    config: ConfigPath = None,
) -> None:
    """Judge stored runs by the rules of today, without their profiles.

    Of all weeks, unless one is given.
    """
    from advisor.fleet.ingest import rejudge
    from advisor.system.engines import engine as engine_of

    target, weeks = _existing(store, option), None if week is None else [week]
    with closing(engine_of(engine, processes)) as where, shared.progress_of("runs") as progress:
        done = rejudge(target, where, config=_settings(config, [store]), weeks=weeks, every=every, progress=progress)
    _tell(done.notes)
    typer.echo(f"{count(done.runs, 'run')} judged again")


@fleet_app.command("report")
def fleet_report(
    store: StoreUri,
    week: WeekName = None,
    output: Annotated[list[Path] | None, shared.output_option("week")] = None,
    format_: Annotated[str | None, shared.format_option("week", "; by default terminal, with -o a summary")] = None,
    links: Annotated[
        str | None, Option(metavar="URL", help="Where the runs' reports will lie; by default beside the .html.")
    ] = None,
    option: StoreOptions = None,
    config: ConfigPath = None,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Every table.")] = False,
) -> None:
    """Where a week's GPU-hours went, and what to fix first."""
    from advisor.fleet.examine import Settings, book
    from advisor.fleet.show import pages
    from advisor.fleet.weekly import weekly
    from advisor.present.week import facts, headline

    standard, files = shared.outputs("week", format_ or "terminal", output)
    if links and urlsplit(links).scheme not in {"", "http", "https"}:
        raise UsageError(f"--links {links}: no web address and no folder; give https://... or a path")
    target = _existing(store, option, week)
    settings = Settings(_settings(config, [store]), dt.datetime.now(dt.UTC).date())
    report = weekly(target, settings.config.fleet, week, rules=book(settings)[2])
    beside = {path: path.with_name(f"{path.stem}-runs") for path, kind in files.items() if kind == "html"}
    for folder in beside.values():
        try:
            for name, text in pages(target, report):
                shared.make(folder)
                shared.write({folder / name: text.encode()})
        except UsageError:
            with suppress(OSError):  # not empty: an earlier report's
                folder.rmdir()
            raise
    contents: dict[Path, bytes] = {}
    for path, kind in files.items():
        near = beside.get(path) or next(iter(beside.values()), None)
        lead = links or (None if near is None else Path(os.path.relpath(near, path.parent)).as_posix())
        contents[path] = draw(Request(report, links=lead), kind)
    shared.write(contents)
    if files and format_ is None and not verbose:
        typer.echo("\n".join([headline(report), *facts(report), *(f"wrote {path}" for path in files)]))
    else:
        sys.stdout.write(shared.rendered(report, standard, verbose=verbose, links=links))


@fleet_app.command("runs")
def fleet_runs(
    store: StoreUri,
    week: WeekName = None,
    job: Annotated[
        str | None, Option(metavar="NAME", help="Only its runs; without a label, a run's name counts.")
    ] = None,
    format_: Annotated[
        str, Option("--format", "-f", metavar="FORMAT", help="Standard output: terminal or json.")
    ] = "terminal",
    option: StoreOptions = None,
) -> None:
    """One line per run of a week: its id, team, job and verdict."""
    from advisor.fleet.show import listed, runs_of

    kind = shared.chosen("--format", format_, ("terminal", "json"))
    target = _existing(store, option, week)
    if kind == "json":
        typer.echo(json.dumps(runs_of(target, week, job).to_dicts(), indent=1, allow_nan=False))
        return
    for line in listed(target, week, job):
        typer.echo(line)


@fleet_app.command("show")
def fleet_show(
    run_id: Annotated[str, Argument(metavar="RUN", help="A run's id, or its beginning.")],
    store: StoreUri,
    output: Annotated[
        list[Path] | None, Option("--output", "-o", help="Write it: .html .json .md .txt. Repeatable.")
    ] = None,
    option: StoreOptions = None,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Evidence, every fix and the places.")] = False,
) -> None:
    """The report of one run, as it was checked or last judged."""
    from advisor.fleet.show import report_of

    standard, files = shared.outputs("report", "terminal", output)
    shared.show(report_of(_existing(store, option), run_id), files, standard, verbose=verbose)


@fleet_app.command("compact")
def fleet_compact(
    store: StoreUri,
    keep: Annotated[
        int, Option(min=1, max=36_500, metavar="DAYS", help="How long replaced files stay for those who use them.")
    ] = 7,
    option: StoreOptions = None,
) -> None:
    """Join the store's small files and remove old ones.

    Run it once a day or week. It also removes what a writer that was stopped left of runs.
    """
    from advisor.fleet.verify import withdraw

    target = _existing(store, option)
    if torn := withdraw(target):
        typer.echo(f"removed the rows of {count(torn, 'run')} that a writer had not completed; ingest them again")
    for name, (live, waiting) in target.compact(keep).items():
        later = f"; {waiting:,} replaced, which a compact removes once they are {count(keep, 'day')} old"
        typer.echo(f"{name}: {count(live, 'file')} in use{later if waiting else ''}")


@fleet_app.command("verify")
def fleet_verify(
    store: Annotated[str, Argument(metavar="STORE", help="The fleet store: a folder, s3:// or gs://.")],
    option: StoreOptions = None,
) -> None:
    """Read the whole store and check that its tables agree.

    Runs, findings, workers and reports must belong together.
    """
    from advisor.fleet.store import opened
    from advisor.fleet.verify import verify

    rows, problems = verify(opened(store, option or ()))
    for problem in problems:
        typer.echo(f"advisor: {problem}", err=True)
    if problems:
        raise StoreError(f"{store}: {count(len(problems), 'problem')}; see above")
    typer.echo(", ".join(f"{name}: {count(number, 'row')}" for name, number in rows.items()) + "; all right")


@fleet_app.command("prune")
def fleet_prune(
    store: StoreUri,
    before: Annotated[str, Option(metavar="WEEK", help="First week to keep, as 2026-W01.")],
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be forgotten.")] = False,
    every_week: Annotated[bool, Option("--every-week", help="Go on even if no week is left.")] = False,
    option: StoreOptions = None,
) -> None:
    """Forget the weeks before one.

    Later ingests skip runs of these weeks, until a prune names an earlier week.
    """
    from advisor.fleet.labels import monday_of

    monday_of(before)
    target = _existing(store, option)
    old = target.before(before)
    weeks, rows = old["week"].to_list(), int(old["rows"].sum())
    which = f"{count(rows, 'row')} of {count(len(weeks), 'week')}" + (f", {weeks[0]} to {weeks[-1]}" if weeks else "")
    if dry_run:
        typer.echo(f"would forget {which}")
        return
    if weeks and weeks[-1] == max(target.weeks()) and not every_week:
        raise UsageError(f"--before {before}: that is every week ({which}); give --every-week if it is meant")
    target.prune(before)
    typer.echo(f"forgot {which}; ingests leave out what started before {before}")


def _existing(store: str, options: list[str] | None, week: str | None = "") -> "Store":
    from advisor.fleet.store import existing, opened
    from advisor.fleet.verify import to_come

    target = existing(opened(store, options or ()))
    _tell(to_come(target) if week is None else ())
    return target


def _tell(notes: Iterable["Note"]) -> None:
    for note in notes:
        typer.echo(f"advisor: {note.words}", err=True)


def _settings(path: Path | None, near: list[str]) -> "Config":
    """The settings of `--config`, or of the nearest advisor.yaml above what is worked on, else the current folder."""
    from advisor.config import find, load
    from advisor.inputs.storage import is_url, tidy

    if path is None:
        folders = [Path(tidy(place)).resolve() for place in near if not is_url(tidy(place))]
        path = next(filter(None, map(find, [*folders, Path.cwd()])), None)
        if path is not None:
            typer.echo(f"advisor: settings are those of {path}", err=True)
    return load(path)
