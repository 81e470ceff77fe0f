"""`advisor record`: run a program as it is, record its steps, and check the recording."""

import datetime as dt
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from advisor.cli.output import CORES, options_of, rendered, spare_start, write
from advisor.errors import AdvisorError, UsageError, contained
from advisor.render.registry import Request, draw
from advisor.text import plain


def record(
    command: Annotated[list[str], Argument(metavar="COMMAND...", help="The program, as in a shell.")],
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="LOGDIR", help="Folder for the recording; by default a new one.")
    ] = None,
    skip: Annotated[int, Option(min=0, help="Steps before anything is timed or recorded.")] = 10,
    active: Annotated[int, Option(min=3, help="Steps to record, and to time before and after.")] = 10,
    shapes: Annotated[bool, Option("--shapes/--no-shapes", help="Shapes and types of each op's inputs.")] = True,
    stacks: Annotated[bool, Option("--stacks", help="Source lines; slows the recorded steps.")] = False,
    memory: Annotated[bool, Option("--memory", help="Allocations of memory.")] = False,
    samples: Annotated[
        bool, Option("--samples/--no-samples", help="Lines that take the time; a signal samples them.")
    ] = True,
    stop: Annotated[bool, Option("--stop", help="End the program after the recording, with exit code 0.")] = False,
    seconds: Annotated[
        float | None, Option(min=0.1, metavar="S", help="If no step ends in S seconds, record S seconds.")
    ] = None,
    no_check: Annotated[bool, Option("--no-check", help="Print no report and write no report.html.")] = False,
) -> None:
    """Record steps of an unchanged program, then check the recording.

    Write the command behind `--`: advisor record -- torchrun --nproc-per-node=8 train.py
    """
    from advisor.present.recorded_files import DAMAGED, sentences, under_way
    from advisor.recording.launcher import Options, holds_recording, run

    task = [os.environ.get(name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]  # all of a step have one folder
    now = dt.datetime.now().strftime("%Y%m%d-%H%M%S")  # noqa: DTZ005 - for people who are here
    logdir = output or Path("advisor-logs", "slurm-{}.{}".format(*task) if all(task) else now)
    if os.path.isdir(logdir):  # noqa: PTH112 - `is_dir` fails where the name is too long
        from advisor.inputs.discover import discover

        if discover([str(logdir)])[0]:  # whoever made it: the report is to be of this recording alone
            raise UsageError(f"-o {logdir}: holds a recording already; give another folder, or delete it")
    options = Options(skip, active, shapes, samples, stacks, memory, stop, seconds)
    lines, damaged = dict[str, None](), DAMAGED.format(logdir=logdir)

    def tell(work: Callable[[], list[str]]) -> None:
        words = contained(work, lambda _: [damaged])
        for line in words:
            if line not in lines:
                typer.echo(f"advisor: {plain(line)}", err=True)
        lines.update(dict.fromkeys(words))

    outcome = run(command, logdir, options, lambda events: tell(lambda: under_way(events)))
    is_there = holds_recording(logdir)
    tell(lambda: sentences(command, outcome.events, str(logdir), outcome.exit_code, is_there=is_there))
    is_recorded = any(event["event"] == "result" and event.get("path") for event in outcome.events)
    if (is_recorded or is_there) and not no_check:
        _check(logdir)
    raise typer.Exit(0 if stop and is_recorded else outcome.exit_code)


def _check(logdir: Path) -> None:
    """Print the report and write the page; what keeps us from it changes no exit code of the program."""
    spare_start([str(logdir)])
    from advisor.engine import check

    try:
        report = check([str(logdir)], options_of(None, None, processes=CORES))
    except AdvisorError as error:
        typer.echo(f"advisor: not checked: {error}", err=True)
        return
    sys.stdout.write(rendered(report, "terminal", verbose=False))
    try:
        write({(page := logdir / "report.html"): draw(Request(report), "html")})
    except AdvisorError as error:
        typer.echo(f"advisor: no page: {error}", err=True)
    else:
        typer.echo(f"advisor: the page is {page}", err=True)
