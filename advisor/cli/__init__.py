"""The command line: each command parses, makes one library call, renders, and picks the exit code.

Annotations here are values, not text: typer would compile each of them at every start.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from typer import Argument, Option

from advisor import __version__
from advisor.cli import output as shared
from advisor.cli import runners
from advisor.cli.book import kernels, metrics_app, rules_app
from advisor.cli.fleet import fleet_app
from advisor.cli.record import record
from advisor.cli.trials import try_
from advisor.errors import BUG_EXIT_CODE, AdvisorError, UsageError, contained, failure
from advisor.pull_request.hosts import HOSTS, target_of
from advisor.system.processes import own_files, spare_garbage
from advisor.text import count, ns, one_line, plain
from advisor.vocabulary.severities import FAIL_ON

_HOSTS: Final = " or ".join(f"{name} (its token in {host.token})" for name, host in HOSTS.items())
_OWN_SERVERS: Final = " or ".join(host.own for host in HOSTS.values())
_DROPPED: Final = 8  # names of what is not in a copy

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Why a GPU job is slow, what to change, and what the change is worth.",
)
app.add_typer(rules_app, name="rules")
app.add_typer(metrics_app, name="metrics")
app.add_typer(fleet_app, name="fleet")
app.command(context_settings={"allow_interspersed_args": False})(record)
app.command()(kernels)
app.command("try", context_settings={"allow_interspersed_args": False})(try_)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"advisor {__version__}")
        raise typer.Exit


@app.callback()
def advisor(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Why a GPU job is slow, what to change, and what the change is worth."""


@app.command()
@shared.answers_in_json
def check(
    paths: Annotated[list[str], Argument(metavar="PATH...", help="Profiles: files, folders or URLs.")],
    output: Annotated[
        list[Path] | None,
        shared.output_option("report", more="; .svg and .png are pictures of where a step of the first run goes"),
    ] = None,
    format_: Annotated[str, shared.format_option("report", "; brief is JSON of at most 5 kB")] = "terminal",
    fail_on: Annotated[
        str,
        Option(
            metavar="LEVEL",
            help="Exit 1 at this severity: high, medium, low or never; 3 if a file is unreadable or tells too little.",
        ),
    ] = "never",
    steps: shared.Steps = "steady",
    step_range: shared.StepRange = None,
    processes: shared.Processes = shared.CORES,
    engine: shared.EngineName = "local",
    ranks: shared.Ranks = None,
    workload: Annotated[
        str | None,
        Option(
            metavar="KIND",
            help="The kind of work, where the report has it wrong: training, inference, serving, capture, benchmark.",
        ),
    ] = None,
    flops_per_step: Annotated[
        float | None,
        Option(
            metavar="FLOPS",
            help="FLOPs of the model in a step of one device, such as 6 x parameters x tokens; else counted by shapes.",
        ),
    ] = None,
    ncu: Annotated[
        str | None, Option(metavar="CSV", help="Counters of the same kernels: ncu --set full --csv --page raw.")
    ] = None,
    run: Annotated[
        str | None, Option(metavar="NAME", help="The run of a TensorFlow or JAX log folder; by default the newest.")
    ] = None,
    all_runs: Annotated[bool, Option("--all-runs", help="All runs in such a folder.")] = False,
    config: shared.ConfigPath = None,
    max_size: shared.MaxSize = None,
    baseline: Annotated[str | None, Option(metavar="REPORT", help="An earlier report.json: marks what is new.")] = None,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Evidence, every fix and the places.")] = False,
) -> None:
    """Find out why the profiled jobs are slow, and what to change."""
    shared.spare_start(paths)
    from advisor.engine import check as run_check

    standard, files = shared.outputs("report", format_, output)
    level = shared.chosen("--fail-on", fail_on, FAIL_ON)
    with shared.progress_of_files() as progress:
        options = shared.options_of(
            config,
            max_size,
            ranks,
            steps=steps,
            progress=progress,
            processes=processes,
            engine=engine,
            step_range=step_range,
            workload=workload or None,
            flops_per_step=flops_per_step,
            ncu=ncu,
            run=run,
            all_runs=all_runs,
            baseline=baseline,
        )
        report = run_check(paths, options)
    shared.show(report, files, standard, verbose=verbose)
    if (unread := report.unreadable) and (level != "never" or standard != "terminal"):  # who reads nothing else
        number, first = sum(1 + len(file.others) for file in unread), f"{unread[0].path}: {unread[0].why}"
        typer.echo(f"advisor: {count(number, 'file')} could not be read; {one_line(first, 300)}", err=True)
    raise typer.Exit(report.exit_code(level))


@app.command()
def excerpt(
    path: Annotated[str, Argument(metavar="PATH", help="Profile of one run: a file, a folder or a URL.")],
    finding: Annotated[str, Option(metavar="KEY", help="The finding to show, as `check` names it.")],
    output: Annotated[Path, Option("--output", "-o", help="Where to write it: .json or .json.gz.")],
    all_ranks: Annotated[
        bool, Option("--all-ranks", help="Show all ranks of the job, and not only those of the finding.")
    ] = False,
    steps: shared.Steps = "steady",
    step_range: shared.StepRange = None,
    config: shared.ConfigPath = None,
    max_size: shared.MaxSize = None,
) -> None:
    """Cut the place of a finding out of a recording.

    Perfetto and chrome://tracing show what it writes. The ranks of a job are on one clock.
    """
    import gzip
    import json

    from advisor.engine import excerpt as cut

    if not output.name.lower().endswith((".json", ".json.gz")):
        raise UsageError(f"-o {output}: a trace ends in .json or .json.gz")
    options = shared.options_of(config, max_size, steps=steps, step_range=step_range)
    content = cut(path, finding, options, all_ranks=all_ranks)
    trace = json.dumps(content, separators=(",", ":")).encode()
    shared.write({output: gzip.compress(trace, mtime=0) if output.suffix.lower() == ".gz" else trace})
    if note := content["advisor"].get("note"):
        typer.echo(f"advisor: {note}", err=True)
    events, length = len(content["traceEvents"]), ns(content["advisor"]["dur_ns"])
    typer.echo(
        f"wrote {output}: {length} of the recording, {count(events, 'event')}. Open it in https://ui.perfetto.dev"
        ' ("Open trace file"; it stays on your machine) or chrome://tracing.'
    )


@app.command("whatif")
def what_if(
    path: Annotated[str, Argument(metavar="PATH", help="Profile of one run: a file, a folder or a URL.")],
    changes: Annotated[
        list[str], Option("--change", metavar="CHANGE", help="What is different, as input=0; once for each.")
    ],
    steps: shared.Steps = "steady",
    step_range: shared.StepRange = None,
    config: shared.ConfigPath = None,
    max_size: shared.MaxSize = None,
    in_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replay the recorded steps with changes, one after the other.

    Prints the step after each, and who sets the pace then. Changes: input=0 or input=2x, kernels:gemm=2x (a family, or
    letters of the name), waits=0. With the traces of all ranks: link=2x (transfer, never waiting), rank:2=typical.
    """
    import json
    from dataclasses import asdict

    from advisor.api import what_if as replayed
    from advisor.present.trials import sentences

    options = shared.options_of(config, max_size, steps=steps, step_range=step_range)
    answer = replayed(path, *map(plain, changes), options=options)
    typer.echo(json.dumps(asdict(answer)) if in_json else "\n".join(sentences(answer)))
    raise typer.Exit(2 if answer.refused else 0)


@app.command()
def scrub(
    path: Annotated[
        Path, Argument(metavar="FILE", help="A profiler's recording: a file, or a folder of Parquet tables.")
    ],
    output: Annotated[Path, Option("--output", "-o", metavar="CLEAN", help="Where to write the copy.")],
    max_size: shared.MaxSize = None,
) -> None:
    """Copy a recording without environment, user, host and secrets.

    The copy is checked to the same findings.
    """
    from advisor.scrub import scrub as copy

    if dropped := copy(path, output, shared.bytes_of(max_size)):
        more = f" and {len(dropped) - _DROPPED} more" if len(dropped) > _DROPPED else ""
        typer.echo(f"left out what advisor does not read: {', '.join(dropped[:_DROPPED])}{more}")
    typer.echo(f"wrote {output}; look through it before you pass it on: names of your own in it stay")


@app.command()
@shared.answers_in_json
def compare(
    base: Annotated[str, Argument(metavar="BASE", help="Before: a profile, folder, URL or saved report.json.")],
    head: Annotated[str, Argument(metavar="HEAD", help="After: the same.")],
    more_base: Annotated[
        list[str] | None, Option("--base", metavar="PATH", help="Another run of the base. Repeatable.")
    ] = None,
    more_head: Annotated[
        list[str] | None, Option("--head", metavar="PATH", help="Another run of the head. Repeatable.")
    ] = None,
    output: Annotated[list[Path] | None, shared.output_option("comparison")] = None,
    format_: Annotated[str, shared.format_option("comparison", "; brief is JSON of at most 5 kB")] = "terminal",
    fail_on: Annotated[
        list[str] | None,
        Option(metavar="WHAT", help="Exit 1 if so: slower (the default), slower:PERCENT, new-high, never. Repeatable."),
    ] = None,
    strict: Annotated[bool, Option("--strict", help="Exit 4 if nothing can be told.")] = False,
    trials: Annotated[
        str | None, Option(metavar="FILE", help="JSON of `advisor try`: its gains beside what was predicted.")
    ] = None,
    steps: shared.Steps = "steady",
    step_range: shared.StepRange = None,
    processes: shared.Processes = shared.CORES,
    engine: shared.EngineName = "local",
    ranks: shared.Ranks = None,
    config: shared.ConfigPath = None,
    max_size: shared.MaxSize = None,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Every finding, kernel and op.")] = False,
) -> None:
    """Tell whether a change made the job slower, and why."""
    shared.spare_start([base, head, *(more_base or []), *(more_head or [])])
    from advisor.engine import compare as run_compare
    from advisor.model.comparison import fail_on as conditions

    standard, files = shared.outputs("comparison", format_, output)
    failing = conditions(fail_on or ["slower"])
    sides = [base, *(more_base or [])], [head, *(more_head or [])]
    with shared.progress_of_files() as progress:
        options = shared.options_of(
            config,
            max_size,
            ranks,
            steps=steps,
            progress=progress,
            processes=processes,
            engine=engine,
            step_range=step_range,
            trials=trials,
        )
        comparison = run_compare(*sides, options)
    shared.show(comparison, files, standard, verbose=verbose)
    raise typer.Exit(comparison.exit_code(failing, strict=strict))


@app.command("show")
@shared.answers_in_json
def show_saved(
    file: Annotated[str, Argument(metavar="FILE", help="JSON that check, compare or try saved.")],
    output: Annotated[
        list[Path] | None,
        shared.output_option("report", more="; a comparison and trials have neither brief nor pictures"),
    ] = None,
    format_: Annotated[str, shared.format_option("report")] = "terminal",
    verbose: Annotated[bool, Option("--verbose", "-v", help="Evidence, every fix and the places.")] = False,
) -> None:
    """Draw a saved report in any form."""
    from advisor.render.json import read

    value = read(file)
    standard, files = shared.outputs(value.kind, format_, output)
    shared.show(value, files, standard, verbose=verbose)


@app.command()
def comment(
    file: Annotated[Path, Argument(metavar="FILE", help="JSON of `advisor check` or `advisor compare`, or Markdown.")],
    host: Annotated[str | None, Option(metavar="NAME", help=f"{_HOSTS}; by default as CI tells.")] = None,
    repo: Annotated[str | None, Option(metavar="OWNER/NAME", help="By default the one that CI runs for.")] = None,
    pr: Annotated[
        int | None, Option(metavar="NUMBER", min=1, help="Pull or merge request; by default the event's.")
    ] = None,
    commit: Annotated[str | None, Option(metavar="SHA", help="What was measured; by default the event's head.")] = None,
    link: Annotated[
        str | None, Option(metavar="URL", help="The full report; by default the page of the CI run.")
    ] = None,
    api_url: Annotated[str | None, Option(metavar="URL", help=f"Of {_OWN_SERVERS}.")] = None,
    key: Annotated[str, Option(metavar="NAME", help="Tells several comments on one pull request apart.")] = "default",
    post: Annotated[bool, Option("--comment/--no-comment", help="Whether to comment.")] = True,
    status: Annotated[bool, Option("--status", help="Also set a commit status.")] = False,
    check_run: Annotated[
        bool, Option("--check-run", help="Also add a check run, with remarks on the lines that findings name.")
    ] = False,
    fail_on: Annotated[
        list[str] | None, Option(metavar="WHAT", help="When status and check run fail; as in check and compare.")
    ] = None,
    strict: Annotated[
        bool, Option("--strict", help="A comparison that can tell nothing fails too; as in compare.")
    ] = False,
    root: Annotated[Path, Option(metavar="DIR", help="The checkout that remarks refer to.")] = Path(),
    dry_run: Annotated[bool, Option("--dry-run", help="Print the comment and post nothing.")] = False,
) -> None:
    """Keep one comment on a pull request up to date.

    It is posted at the first call and edited from then on.
    """
    from advisor.pull_request import deliver

    kind = shared.chosen("--host", host, tuple(HOSTS)) if host else None
    message = deliver.read(file, fail_on or [], strict=strict)
    target = target_of(os.environ, kind, repo=repo, number=pr, commit=commit, link=link, api_url=api_url)
    order = deliver.Order(key=key, comment=post, check_run=check_run, status=status, root=root)
    if dry_run:
        sys.stdout.write(deliver.dry_run(message, target, order))
        return
    for done in deliver.deliver(message, target, order):
        if done.hint:
            runners.hint(plain(done.line))
        else:
            typer.echo(f"advisor: {plain(done.line)}")


@app.command()
def mcp() -> None:
    """Serve seven tools to coding agents.

    They speak the Model Context Protocol on standard input and output.

    The tools are check, finding, metric, compare, excerpt, what_if and record_recipe. All of them only read, and only
    in the folders that the client gives.
    """
    try:
        from advisor.server import serve
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise UsageError("advisor mcp needs an extra: pip install 'gpu-advisor[mcp]'") from None
    sys.stdout = sys.__stdout__  # the protocol's own: JSON that no CI runner reads
    serve()


def main() -> None:
    """Entry point of the `advisor` command, and the only place that catches AdvisorError."""
    spare_garbage()
    own_files()
    runners.guard()
    contained(_run, _give_up)


def _run() -> None:
    try:
        try:
            runners.require_surroundings()
            app(standalone_mode=True)
        except OSError as error:
            runners.require_surroundings(error.errno)  # they may have gone meanwhile
            raise
        finally:
            runners.require_written()
    except AdvisorError as error:
        typer.echo(shared.error_lines(f"advisor: {one_line(str(error), 10_000)}"), err=True)
        sys.exit(error.exit_code)


def _give_up(kind: str) -> None:
    typer.echo(f"advisor: {failure(kind)}", err=True)
    sys.exit(BUG_EXIT_CODE)
