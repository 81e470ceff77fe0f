"""`advisor try`: measure fixes on the job itself before a line of it changes."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from typer import Argument, Option

from advisor.cli.output import format_option, output_option, outputs, show
from advisor.errors import UsageError

_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_FEW: Final = 10
_FAILED: Final = 3


def try_(
    command: Annotated[list[str], Argument(metavar="COMMAND...", help="The program, as in a shell.")],
    fix: Annotated[
        list[str] | None, Option(metavar="RULE", help="Try the fix of this finding; by default of all. Repeatable.")
    ] = None,
    patch: Annotated[
        list[str] | None, Option(metavar="NAME[:key=value,...]", help="Try this patch. Repeatable.")
    ] = None,
    recording: Annotated[
        str | None, Option(metavar="LOGDIR", help="Its findings; by default of a new recording.")
    ] = None,
    within: Annotated[str, Option(metavar="PERCENT", help="Half-width of the interval to reach, of the step.")] = "5%",
    budget: Annotated[str, Option(metavar="TIME", help="For all runs: 90s, 15m, 2h.")] = "15m",
    output: Annotated[list[Path] | None, output_option("trials")] = None,
    format_: Annotated[str, format_option("trials")] = "terminal",
    yes: Annotated[bool, Option("--yes", help="Run the program again though it writes files.")] = False,
    scratch: Annotated[bool, Option("--scratch", help="Run it in a copy of the working folder.")] = False,
    keep_trackers: Annotated[bool, Option("--keep-trackers", help="Leave trackers of experiments online.")] = False,
) -> None:
    """Measure what fixes save on the program itself.

    No line of the program changes.

    Write the command behind `--`: advisor try -- python train.py
    """
    from advisor.cli.output import progress_of_trials
    from advisor.recording.signals import SIGNALLED
    from advisor.trials.session import Options, Session

    standard, files = outputs("trials", format_, output)
    with progress_of_trials() as tell:
        options = Options(
            fixes=fix or (),
            patches=patch or (),
            recording=recording,
            within=_share(within),
            budget_s=_seconds(budget),
            scratch=scratch,
            keep_trackers=keep_trackers,
            may_repeat=lambda paths: yes or _agrees(paths),
            tell=tell,
        )
        session = Session(command, options)
        trials = session.run()
    try:
        show(trials, files, standard)
    except UsageError:  # the program may have removed the folder meanwhile: what was measured took minutes
        show(trials, {}, standard)
        raise
    raise typer.Exit(SIGNALLED + session.cut_by if session.cut_by else _FAILED if trials.step_ms is None else 0)


def _share(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%?", text.strip())
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"--within {text}: give a share of the step, as 5%")
    return share


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|)", text.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"--budget {text}: give a time, as 90s, 15m or 2h")
    return float(match[1]) * _SECONDS[match[2]]


def _agrees(paths: Sequence[str]) -> bool:
    """Whether who sits at the terminal lets the program write its files again; without a terminal nobody does."""
    if not sys.stdin.isatty():
        return False
    typer.echo(
        "The program writes these files below the working folder, and each further run writes them again:", err=True
    )
    for path in paths[:_FEW]:
        typer.echo(f"  {path}", err=True)
    if len(paths) > _FEW:
        typer.echo(f"  and {len(paths) - _FEW} more", err=True)
    return typer.confirm("Run it again?", err=True)
