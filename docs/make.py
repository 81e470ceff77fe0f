"""Writes the generated pages of docs/: rules, metrics and the command line. `--check` only says what is out of date."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from console import transcript
from coverage_page import coverage_page
from reference_pages import accounting_page, metrics_page, rules_index
from typer.testing import CliRunner

import advisor
from advisor.cli import app
from advisor.errors import BUG_EXIT_CODE
from advisor.metrics import topics
from advisor.present.reference import rule_page
from advisor.rules.rule_file import Rule, load
from advisor.system.resources import rules_folder

HERE = Path(__file__).parent
SKILL = HERE.parent / "skills/advisor/references"
COMMANDS: tuple[list[str], ...] = (
    [],
    ["record"],
    ["try"],
    ["check"],
    ["compare"],
    ["show"],
    ["excerpt"],
    ["whatif"],
    ["scrub"],
    ["comment"],
    ["mcp"],
    ["rules"],
    ["rules", "list"],
    ["rules", "show"],
    ["rules", "test"],
    ["rules", "new"],
    ["rules", "try"],
    ["metrics", "list"],
    ["metrics", "show"],
    ["fleet"],
    ["fleet", "ingest"],
    ["fleet", "rejudge"],
    ["fleet", "report"],
    ["fleet", "runs"],
    ["fleet", "show"],
    ["fleet", "compact"],
    ["fleet", "prune"],
)


def pages() -> dict[Path, str]:
    """Every generated page by its path."""
    rules = load([rules_folder()])
    made = {HERE / "rules" / f"{rule.id}.md": rule_page(rule) for rule in rules.values()}
    made[HERE / "rules" / "index.md"] = rules_index(rules.values())
    made[HERE / "metrics.md"] = metrics_page(topics(), rules.values())
    made[HERE / "accounting.md"] = accounting_page()
    made[HERE / "usage.md"] = usage_page()
    made[HERE / "python.md"] = python_page()
    made[HERE / "coverage.md"] = coverage_page()
    for page in ("tutorial.md", "writing-a-rule.md"):
        made[HERE / page] = transcript((HERE / page).read_text("utf-8"))
    made[HERE / "notebook.ipynb"] = notebook((HERE / "notebook.ipynb").read_text("utf-8"))
    made[SKILL / "commands.md"] = skill_commands()
    made[SKILL / "rules.md"] = skill_rules(rules.values())
    return made


EXIT_CODES = f"""\
| exit code | meaning |
| --: | --- |
| 0 | all went well |
| 1 | findings or a regression, as `--fail-on` has it; without that option only `compare` exits so |
| 2 | usage, configuration or a rule file |
| 3 | no file readable, or each cut off before a step ends; with `--fail-on`, also one unread or a run with too little |
| 4 | `compare --strict`: nothing can be told |
| 5 | `comment`: no such pull request, or the host refuses or does not answer |
| {BUG_EXIT_CODE} | a bug in advisor: please report it, with what `ADVISOR_DEBUG=1` prints |

A bug in reading a file, in a metric or in a rule does not end a check: that file is unreadable, that metric or rule
"could not tell", and the reason names the kind of the error. No file is read that is larger, unpacked, than
`--max-size`; the default is what fits into 70 % of the memory that the process may use, limits of control groups
included."""


def usage_page() -> str:
    """The help of every command, as it prints it."""
    parts = [
        "# Command line",
        EXIT_CODES,
        *(f"## advisor {' '.join(words)}".rstrip() + f"\n\n```text\n{_help(words)}\n```" for words in COMMANDS),
    ]
    return "\n\n".join(parts) + "\n"


def notebook(text: str) -> str:
    """The notebook, with what its first cell shows now."""
    cells = json.loads(text)
    shown = next(cell["outputs"][0]["data"] for cell in cells["cells"] if cell["cell_type"] == "code")
    report = advisor.check(str(HERE.parent / "fixtures/simulated-input-bound-v100"))
    shown["text/html"] = report._repr_html_().splitlines(keepends=True)
    return json.dumps(cells, indent=1, ensure_ascii=False) + "\n"


def skill_commands() -> str:
    """Every command with what it does, for the skill of coding agents."""
    rows = [f"| `advisor {' '.join(words)}` | {_purpose(words)} |" for words in COMMANDS if words]
    return "\n".join(["# Commands", "", "Each prints its options with `--help`.", "", *_TABLE, *rows, ""])


_TABLE = ("| command | what it does |", "| --- | --- |")


def _purpose(words: list[str]) -> str:
    """The first sentence of a command's help, which stands below its usage."""
    return " ".join(_help(words).split("\n\n")[1].split())


def skill_rules(rules: Iterable[Rule]) -> str:
    """Every finding by its id, for the skill."""
    rows = [f"| `{rule.id}` | {rule.heading()} | {rule.saving.of if rule.saving else ''} |" for rule in rules]
    head = ("# Findings", "", "`advisor rules show ID` prints conditions, thresholds, fixes and sources.", "")
    return "\n".join([*head, "| id | says | saves from |", "| --- | --- | --- |", *rows, ""])


PYTHON = """\
# Python

`advisor.check`, `advisor.compare`, `advisor.what_if` and `advisor.measure` do what the commands do and return frozen
values; `advisor.record` records a loop that calls it. In a notebook
a report shows itself ([an example](notebook.ipynb)). Names that begin with `fixtures/` are samples in the repository.

![A cell of a notebook: the verdict, where the step goes, the finding with a bar for its saving](img/notebook.png)

All errors are `advisor.AdvisorError`; the message says what to do."""
API: tuple[Callable[..., object] | property, ...] = (
    advisor.check,
    advisor.compare,
    advisor.read,
    advisor.Options,
    advisor.Report,
    advisor.Report.findings,
    advisor.Report.to_frame,
    advisor.Report.metric,
    advisor.Comparison,
    advisor.record,
    advisor.what_if,
    advisor.measure,
    advisor.Trials,
)
SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Example):$")
ITEM = re.compile(r"^    (\w+): ")


def python_page() -> str:
    """The public functions and classes, from their docstrings."""
    return "\n\n".join([PYTHON, *map(_entry, API)]) + "\n"


def _entry(of: Callable[..., object] | property) -> str:
    """One of them: its call, and its docstring as Markdown."""
    function = of.fget if isinstance(of, property) else of
    assert function is not None
    name = f"advisor.{function.__qualname__}"
    is_function = inspect.isfunction(function) and not isinstance(of, property)
    call = f"{name}{inspect.signature(function)}".replace("'", "") if is_function else name
    return f"## {name}\n\n```python\n{call}\n```\n\n{_markdown(inspect.getdoc(function) or '')}"


def _markdown(docstring: str) -> str:
    """A docstring in Google's style as Markdown: items as a list, an example as code."""
    lines, section = [], ""
    for line in docstring.splitlines():
        if heading := SECTION.match(line):
            section = heading[1]
            lines += [f"**{section}**", "", *(["```pycon"] if section == "Example" else [])]
        else:
            lines.append(_line(line, section))
    return "\n".join([*lines, *(["```"] if section == "Example" else [])])


def _line(line: str, section: str) -> str:
    if section in {"Example", "Returns"}:
        return line.removeprefix("    ")
    return ITEM.sub(r"- `\1`: ", line) if section else line


def _help(words: list[str]) -> str:
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    done = runner.invoke(app, [*words, "--help"], prog_name="advisor", catch_exceptions=False)
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def main() -> None:
    """Write, or with `--check` compare."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit("out of date, run `make docs`: " + ", ".join(str(path.relative_to(HERE.parent)) for path in stale))
        return
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
