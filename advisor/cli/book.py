"""`advisor rules` and `advisor metrics`: what the engine knows, looked up and tested."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from advisor.cli.output import ConfigPath, StepRange, Steps, config_of, make, write
from advisor.errors import UsageError
from advisor.text import count, did_you_mean, one_line
from advisor.vocabulary.rules import QUESTIONS
from advisor.vocabulary.severities import words

_WIDEST = 100  # columns: longer lines are hard to read

rules_app = typer.Typer(no_args_is_help=True, help="The rule book: list, show and test rules.")
metrics_app = typer.Typer(no_args_is_help=True, help="The metrics that rules can use.")


@rules_app.command("list")
def rules_list(
    config: ConfigPath = None,
    python: Annotated[
        bool, Option("--python", help="Only rules that need Python of their own, each with its reason.")
    ] = False,
) -> None:
    """One line per rule: its id, its severities and its title."""
    from advisor.rules.user_config import rule_book

    book = rule_book(config_of(config))
    if not python:
        for rule in book.values():
            typer.echo(f"{rule.id:28} {'/'.join(words(rule.levels)) or 'by saving':12} {rule.heading()}")
        return
    from advisor.rules.python import python_metrics, reason

    own = python_metrics(book)
    for name, metrics in own.items():
        typer.echo(f"{name:28} {'; '.join(dict.fromkeys(map(reason, metrics)))}")
    typer.echo(
        f"{len(own)} of {len(book)} rules use metrics that no other rule uses; the others need no Python of theirs"
    )


@rules_app.command("show")
def rules_show(
    rule_id: Annotated[str, Argument(metavar="ID", help="A rule, as `advisor rules list` names it.")],
    config: ConfigPath = None,
) -> None:
    """The page of one rule: meaning, condition, fix and sources."""
    from advisor.present.reference import rule_page
    from advisor.rules.user_config import rule_book

    book = rule_book(config_of(config))
    if rule_id not in book:
        hint = did_you_mean(rule_id, book) or "; `advisor rules list` names them all"
        raise UsageError(f"no rule is called {rule_id!r}{hint}")
    _page(rule_page(book[rule_id]))


@rules_app.command("test")
def rules_test(
    folder: Annotated[
        Path | None, Argument(metavar="[DIR]", help="A folder of rules; the shipped ones if absent.")
    ] = None,
) -> None:
    """Check the rules of a folder and run their cases.

    Exit 2 if anything is wrong.
    """
    from advisor.rules.lint import lint
    from advisor.rules.rule_file import load
    from advisor.system.resources import rules_folder

    tested = folder or rules_folder()
    shipped = load([rules_folder()])
    if problems := lint(tested, shipped, documented=folder is None):
        typer.echo("advisor: " + "\n".join(map(one_line, problems)), err=True)
        raise typer.Exit(UsageError.exit_code)
    rules = load([tested])
    for name in sorted(rules.keys() & shipped.keys()) if folder else ():
        typer.echo(f"{name} takes the place of the shipped rule")
    cases = sum(len(rule.cases) for rule in rules.values())
    typer.echo(f"{count(len(rules), 'rule')}, {count(cases, 'case')}: all right")


@rules_app.command("new")
def rules_new(
    rule_id: Annotated[str, Argument(metavar="ID", help="What to call it: words with hyphens.")],
    folder: Annotated[Path, Option(metavar="DIR", help="Where to write it.")] = Path("our-rules"),
    kind: Annotated[str | None, Option(metavar="KIND", help=QUESTIONS["kind"].words)] = None,
    names: Annotated[str | None, Option(metavar="PATTERN", help=QUESTIONS["names"].words)] = None,
    title: Annotated[str | None, Option(metavar="TEXT", help=QUESTIONS["title"].words)] = None,
    limit: Annotated[str | None, Option(metavar="SHARE", help=QUESTIONS["limit"].words)] = None,
    why: Annotated[str | None, Option(metavar="TEXT", help=QUESTIONS["why"].words)] = None,
    fix: Annotated[str | None, Option(metavar="TEXT", help=QUESTIONS["fix"].words)] = None,
    change: Annotated[str | None, Option(metavar="WAY", help=QUESTIONS["change"].words)] = None,
) -> None:
    """Write a rule with a selection and cases from a few answers.

    It asks for what no option says; without a terminal, every question without a usual answer needs its option.
    """
    from advisor.rules.new_rule import rule_text
    from advisor.rules.user_config import rule_of

    options = {"kind": kind, "names": names, "title": title, "limit": limit, "why": why, "fix": fix, "change": change}
    path = folder / f"{rule_id}.yaml"
    if path.parent != folder:
        raise UsageError(f"{rule_id}: an ID is words with hyphens; --folder says where")
    if os.path.lexists(path):
        raise UsageError(f"{path}: is there already; choose another ID or --folder")
    answers = {name: options[name] or _answer(name, *question) for name, question in QUESTIONS.items()}
    text = rule_text(answers)
    rule_of(path, text)
    make(folder)
    write({path: text.encode()})
    typer.echo(f"wrote {path}; edit it, and see what it does:")
    typer.echo(f"  advisor rules test {folder}\n  advisor rules try {path} LOGDIR")
    typer.echo(f"`rules: [{folder}]` in advisor.yaml lets every check use it.")


def _answer(name: str, words: str, usual: str | None) -> str:
    if sys.stdin.isatty():
        answer: str = typer.prompt(words, default=usual)
        return answer
    if usual is None:
        raise UsageError(f"--{name}: give it, because nobody can be asked; {words}")
    return usual


@rules_app.command("try")
def rules_try(
    file: Annotated[Path, Argument(metavar="FILE", help="A rule file.")],
    path: Annotated[str, Argument(metavar="PATH", help="A profile: a file, a folder or a URL.")],
    steps: Steps = "steady",
    step_range: StepRange = None,
) -> None:
    """Show what a rule measures on a recording, and why it fires or not."""
    from advisor.engine import measured_runs
    from advisor.options import Options
    from advisor.present.reference import rule_on_run
    from advisor.rules.user_config import rule_of

    rule = rule_of(file)
    runs = measured_runs([path], list(rule.selected.values()), Options(steps=steps, step_range=step_range))
    typer.echo("\n".join(rule_on_run(rule, name, run) for name, run in runs), nl=False)


@metrics_app.command("list")
def metrics_list() -> None:
    """One line per metric: its name, its unit and its meaning."""
    from advisor.metrics import METRICS

    for metric in sorted(METRICS.values(), key=lambda m: m.name):
        typer.echo(f"{metric.name:30} {metric.unit:7} {metric.meaning}")


@metrics_app.command("show")
def metrics_show(
    name: Annotated[str, Argument(metavar="NAME", help="A metric, as `advisor metrics list` names it.")],
) -> None:
    """One metric: formula, source, and what it needs of a profile."""
    from advisor.metrics import METRICS
    from advisor.present.reference import metric_entry
    from advisor.rules.user_config import rule_book

    if name not in METRICS and f"{name}_share" in METRICS:
        name = f"{name}_share"  # a part of the step, as savings name it
    if name not in METRICS:
        hint = did_you_mean(name, METRICS) or "; `advisor metrics list` names them all"
        raise UsageError(f"no metric is called {name!r}{hint}")
    _page(metric_entry(METRICS[name], rule_book(config_of(None)).values()))


def kernels(
    names: Annotated[list[str], Argument(metavar="NAME...", help="Kernels, as a profiler names them.")],
) -> None:
    """What the names of kernels tell, and the source of that."""
    from advisor.present.reference import kernel_entry

    if broken := next((name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)), None):
        raise UsageError(f"kernels {broken}: is no UTF-8; give the name as the profiler wrote it")
    _page("\n".join(map(kernel_entry, names)))


def _page(markdown: str) -> None:
    """Draws a page on a terminal; anything else gets its Markdown."""
    if not sys.stdout.isatty():
        typer.echo(markdown, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.print(Markdown(markdown), width=min(console.width, _WIDEST))
