"""What Python programs and notebooks use: check, compare and measure, with results that show themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import polars as pl

from advisor import engine
from advisor.analysis.device.selection import select_steps
from advisor.errors import UsageError
from advisor.model import comparison as compared
from advisor.model import report as reported
from advisor.model import trials as tried
from advisor.model.finding import Finding, Value
from advisor.options import Options
from advisor.present import document_of
from advisor.text import did_you_mean, one_line
from advisor.whatif.scenario import Scenario, scenario

# A file, folder or URL, or several of them
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_LINE: Final = 200
_ENDS: Final = ("low_ms", "high_ms", "low_share", "high_share")
_COLUMNS: Final = {
    **dict.fromkeys(("run", "finding", "title", "severity", "confidence"), pl.String),
    **dict.fromkeys(_ENDS, pl.Float64),
    "fix": pl.String,
}


class _Views:
    """How a result shows itself: one line, one screen, or a notebook's cell."""

    kind: str

    def __repr__(self) -> str:
        """One line, however large the result is."""
        document = document_of(self)  # type: ignore[arg-type] # a report or a comparison
        words = f"{document.overview}: {document.title}" if document.overview != document.title else document.title
        return f"<{type(self).__name__} {one_line(words, _LINE)}>"

    def __str__(self) -> str:
        """The screen that the command line prints."""
        from advisor.render.registry import Request, draw  # noqa: PLC0415 - who only reads numbers does without

        return draw(Request(self, verbose=False), "terminal").decode()  # type: ignore[arg-type] # as above

    def _repr_html_(self) -> str:
        """A notebook's cell: verdict, where the step goes, findings with bars. Nothing is loaded from a network."""
        from advisor.render.html import fragment  # noqa: PLC0415 - as above

        return fragment(document_of(self))  # type: ignore[arg-type] # as above


class Report(_Views, reported.Report):
    """The result of `check`: every run with its findings, numbers, and what could not be told.

    `print(report)` shows the screen of the command line, a notebook shows findings with bars. The fields are those of
    the [JSON report](json.md).

    Example:
        >>> report = advisor.check("fixtures/simulated-input-bound-v100")
        >>> report
        <Report 1 run, 1 finding: 1 high: The main process loads its batches itself: 48 % of ...>
        >>> report.runs[0].source.steps.used
        8
    """

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all runs, those of the first run first; within a run by expected saving.

        Example:
            >>> first = advisor.check("fixtures/simulated-input-bound-v100").findings[0]
            >>> first.key, first.severity, round(first.saving.high_ms)
            ('single-process-data-loader', 'high', 36)
        """
        return tuple(finding for run in self.runs for finding in run.findings)

    def to_frame(self) -> pl.DataFrame:
        """One row per finding, as a polars data frame.

        Returns:
            Columns `run`, `finding` (its id), `title`, `severity`, `confidence`, `low_ms` and `high_ms` (what a fix
            saves of the mean step), `low_share` and `high_share` (the same as shares of 1), `fix` (the first one).
            Savings are null for findings without an estimate.

        Example:
            >>> frame = advisor.check("fixtures/simulated-input-bound-v100").to_frame()
            >>> frame["finding"].to_list()
            ['single-process-data-loader']
        """
        rows = [
            {
                "run": run.name,
                "finding": of.key,
                "title": of.title,
                "severity": of.severity,
                "confidence": of.confidence,
                **{end: getattr(of.saving, end, None) for end in _ENDS},
                "fix": of.fixes[0].do if of.fixes else None,
            }
            for run in self.runs
            for of in run.findings
        ]
        return pl.DataFrame(rows, schema=_COLUMNS)

    def metric(self, name: str, run: int = 0) -> Value:
        """The value of a metric for a whole run; None if the recording does not show it.

        Args:
            name: A metric of `advisor metrics list`; its page says unit and formula.
            run: Which run, counted from 0.

        Raises:
            UsageError: there is no such metric or run.

        Example:
            >>> report = advisor.check("fixtures/simulated-input-bound-v100")
            >>> round(report.metric("step_mean_ms"), 1)
            71.5
        """
        if not -len(self.runs) <= run < len(self.runs):
            raise UsageError(f"run {run}: the report has {len(self.runs)}, counted from 0")
        values = self.runs[run].of_job
        if name not in values:
            hint = did_you_mean(name, values) or "; `advisor metrics list` prints all"
            raise UsageError(f"{one_line(name, 80)}: no metric of this run{hint}")
        return values[name]


class Comparison(_Views, compared.Comparison):
    """The result of `compare`: whether the head is slower than the base, and why.

    Example:
        >>> base, head = "fixtures/simulated-sync-a100", "fixtures/simulated-healthy-a100"
        >>> comparison = advisor.compare(base, head)
        >>> comparison.verdict, round(comparison.change.ratio, 2)
        ('faster', 0.86)
    """


class Trials(_Views, tried.Trials):
    """The result of `measure`: what each patch was worth, with its interval."""


def check(paths: Paths, options: Options | None = None) -> Report:
    """Check every run under `paths`.

    Args:
        paths: Profiles: a file, folder or URL, or several.
        options: How to read, measure and judge.

    Raises:
        NoRuns: none of the paths holds a readable profile.
        ReadError: the baseline is no report.
        UsageError: the configuration, a rule, `steps` or `step_range` is wrong.

    Example:
        >>> report = advisor.check("fixtures/simulated-input-bound-v100", advisor.Options(processes=2))
        >>> report.runs[0].outcome.code
        'finding'
    """
    return Report.model_construct(**_content(engine.check(_texts(paths), options)))


def compare(base: Paths, head: Paths, options: Options | None = None) -> Comparison:
    """Compare the runs under `head` with those under `base`.

    Args:
        base: Before the change: profiles, folders or URLs of them, and saved reports.
        head: After it, the same.
        options: How to read, measure and judge the profiles.

    Raises:
        NoRuns: a side holds no readable profile and no report.
        ReadError: a report cannot be read.
        UsageError: the configuration, a rule, `steps` or `step_range` is wrong.
    """
    return Comparison.model_construct(**_content(engine.compare(_texts(base), _texts(head), options)))


def what_if(path: str | os.PathLike[str], *changes: str, options: Options | None = None) -> Scenario:
    """The mean step of one run with changes, one after the other, and who sets the pace then.

    Args:
        path: A profile: a file, a folder or a URL.
        changes: As `advisor whatif --change` takes them.
        options: How to read it, and which steps to use.

    Raises:
        NoRuns: the path holds no readable profile.
        ReadError: it holds more than one run.
        UsageError: a change is none, or the steps cannot be replayed. One change that cannot be is `refused`.

    Example:
        >>> scenario = advisor.what_if("fixtures/simulated-input-bound-v100", "input=0")
        >>> round(scenario.step_ms), scenario.stages[0].pace
        (71, 'the GPU')
    """
    options = options or Options()
    return scenario(select_steps(engine.read(os.fspath(path), options), options.steps), changes)


def measure(  # noqa: PLR0913 - options of a trial
    command: Sequence[str],
    *,
    fixes: Sequence[str] = (),
    patches: Sequence[str] = (),
    within: float = 0.05,
    budget_s: float = 900.0,
    scratch: bool = False,
    keep_trackers: bool = False,
) -> Trials:
    """Measure what fixes are worth on a program, as `advisor try` does; files that it writes are written again.

    Args:
        command: The program and its arguments, as `["python", "train.py"]`.
        fixes: Rules whose fixes to try; without these and `patches` those of all findings of a recording.
        patches: Patches to try, each as `"dataloader:num_workers=4"`.
        within: Half-width of the 95 % interval to reach, as a share of the step.
        budget_s: Seconds for all runs.
        scratch: Run the program in a copy of the working folder.
        keep_trackers: Leave trackers of experiments online.

    Raises:
        UsageError: the program cannot be started, or there is no such patch or finding.
    """
    from advisor.trials import session  # noqa: PLC0415 - who only checks does without

    options = session.Options(
        fixes=fixes, patches=patches, within=within, budget_s=budget_s, scratch=scratch, keep_trackers=keep_trackers
    )
    return Trials.model_construct(**_content(session.Session(command, options).run()))


def _texts(paths: Paths) -> list[str]:
    each = [paths] if isinstance(paths, str | os.PathLike) else paths
    return [os.fspath(path) for path in each]


def _content(value: reported.Report | compared.Comparison | tried.Trials) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).model_fields}
